// RUN: ffd-opt %s --verify-diagnostics --split-input-file | FileCheck %s

// One query token is what a spec has without saying so.
// CHECK: #ffd.spec<head_dim = 64, group = 4>
module attributes {ffd.a = #ffd.spec<head_dim = 64, group = 4, query_tokens = 1>} {}

// -----

// CHECK: #ffd.spec<head_dim = 64, group = 2, query_tokens = 8>
module attributes {ffd.a = #ffd.spec<head_dim = 64, group = 2, query_tokens = 8>} {}

// -----

// spec_c8: tokens.
// expected-error @below {{query_tokens is 9, expected 1 to 8 (spec_c8)}}
module attributes {ffd.a = #ffd.spec<head_dim = 64, group = 1, query_tokens = 9>} {}

// -----

// spec_c8: queries of a row.
// expected-error @below {{group * query_tokens is 5 * 4, expected at most 16 (spec_c8)}}
module attributes {ffd.a = #ffd.spec<head_dim = 64, group = 5, query_tokens = 4>} {}
