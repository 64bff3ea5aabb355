// RUN: ffd-opt %s --verify-diagnostics --split-input-file | ffd-opt --split-input-file | FileCheck %s

// One query token is what a spec has without saying so.
// CHECK-LABEL: @one
// CHECK-SAME: <head_dim = 64, group = 4>
func.func @one(%c: !ffd.cache<#ffd.spec<head_dim = 64, group = 4, query_tokens = 1>>) { return }

// -----

// CHECK: group = 2, query_tokens = 8
func.func @eight(%c: !ffd.cache<#ffd.spec<head_dim = 64, group = 2, query_tokens = 8>>) { return }

// -----

// expected-error @below {{query_tokens is 9, expected 1 to 8 (spec_c8)}}
func.func @nine(%c: !ffd.cache<#ffd.spec<head_dim = 64, group = 1, query_tokens = 9>>) { return }

// -----

// expected-error @below {{group * query_tokens is 5 * 4, expected at most 16 (spec_c8)}}
func.func @twenty(%c: !ffd.cache<#ffd.spec<head_dim = 64, group = 5, query_tokens = 4>>) { return }
