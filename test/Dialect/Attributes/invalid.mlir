// RUN: ffd-opt %s --verify-diagnostics --split-input-file

// spec_c1: head dim, not a multiple of 16.
// expected-error @below {{head_dim is 100, expected a multiple of 16 in 16..256 (spec_c1)}}
module attributes {a = #ffd.spec<head_dim = 100>} {}

// -----

// spec_c1: head dim, too large.
// expected-error @below {{head_dim is 272, expected a multiple of 16 in 16..256 (spec_c1)}}
module attributes {a = #ffd.spec<head_dim = 272>} {}

// -----

// spec_c1: value dim.
// expected-error @below {{value_dim is -16, expected a multiple of 16 in 16..256 (spec_c1)}}
module attributes {a = #ffd.spec<value_dim = -16>} {}

// -----

// spec_c2
// expected-error @below {{group is 17, expected 1..16 (spec_c2)}}
module attributes {a = #ffd.spec<group = 17>} {}

// -----

// spec_c2
// expected-error @below {{group is -1, expected 1..16 (spec_c2)}}
module attributes {a = #ffd.spec<group = -1>} {}

// -----

// spec_c3
// expected-error @below {{element is 'f32', expected f16 or bf16 (spec_c3)}}
module attributes {a = #ffd.spec<element = f32>} {}

// -----

// spec_c4
// expected-error @below {{scan_bits is 3, expected 2, 4, 8 or 16 (spec_c4)}}
module attributes {a = #ffd.spec<scan_bits = 3>} {}

// -----

// spec_c5
// expected-error @below {{quant_block is 64, expected 128 (spec_c5)}}
module attributes {a = #ffd.spec<quant_block = 64>} {}

// -----

// spec_c6
// expected-error @below {{select_block is 8, expected 16, 32, 64 or 128 (spec_c6)}}
module attributes {a = #ffd.spec<select_block = 8>} {}

// -----

// spec_c7
// expected-error @below {{residual_bits is 4, expected 8 or 0 (spec_c7)}}
module attributes {a = #ffd.spec<residual_bits = 4>} {}

// -----

// spec_c7: keys that are not split.
// expected-error @below {{residual_bits is 8 with scan_bits = 16, expected 0: keys that are not split have no residuals (spec_c7)}}
module attributes {a = #ffd.spec<scan_bits = 16>} {}

// -----

// A centre that there is not.
// expected-error @below {{expected one of [none, row] for what is subtracted from the keys of a row, got: mean}}
// expected-error @below {{failed to parse FFD_SpecAttr parameter 'centre' which is to be a `::mlir::ffd::Centre`}}
module attributes {a = #ffd.spec<centre = mean>} {}

// -----

// top_k_c1
// expected-error @below {{top_k has k = 0, expected at least 1 (top_k_c1)}}
module attributes {a = #ffd.top_k<0>} {}

// -----

// top_p_c1: no share.
// expected-error @below {{top_p has p = 0.000000e+00, expected 0 < p <= 1 (top_p_c1)}}
module attributes {a = #ffd.top_p<0.0 : f32>} {}

// -----

// top_p_c1: more than everything.
// expected-error @below {{top_p has p = 1.500000e+00, expected 0 < p <= 1 (top_p_c1)}}
module attributes {a = #ffd.top_p<1.5 : f64>} {}

// -----

// top_p_c1: NaN.
// expected-error @below {{top_p has p = nan, expected 0 < p <= 1 (top_p_c1)}}
module attributes {a = #ffd.top_p<0x7FC00000 : f32>} {}

// -----

// schedule_c1
// expected-error @below {{schedule has warps = 3, expected 1, 2, 4, 8 or 16 (schedule_c1)}}
module attributes {a = #ffd.schedule<warps = 3, ctas = 1, stages = 1, slots = 1>} {}

// -----

// schedule_c2
// expected-error @below {{schedule has ctas = 0, expected 1..8 (schedule_c2)}}
module attributes {a = #ffd.schedule<warps = 4, ctas = 0, stages = 1, slots = 1>} {}

// -----

// schedule_c3
// expected-error @below {{schedule has stages = 9, expected 1..8 (schedule_c3)}}
module attributes {a = #ffd.schedule<warps = 4, ctas = 1, stages = 9, slots = 1>} {}

// -----

// schedule_c4
// expected-error @below {{schedule has slots = -2, expected 1..8 (schedule_c4)}}
module attributes {a = #ffd.schedule<warps = 4, ctas = 1, stages = 1, slots = -2>} {}

// -----

// A kind of pseudo-max that there is not.
// expected-error @below {{expected one of [scan, refined] for what a pseudo-max is taken from, got: exact}}
// expected-error @below {{failed to parse FFD_TopDeltaAttr parameter 'pseudo_max'}}
module attributes {a = #ffd.top_delta<pseudo_max = exact>} {}

// -----

// A kind of certificate that there is not.
// expected-error @below {{expected one of [none, plain, noise] for an estimate of the skipped mass, got: sure}}
// expected-error @below {{failed to parse FFD_TopDeltaAttr parameter 'certificate'}}
module attributes {a = #ffd.top_delta<certificate = sure>} {}
