// RUN: ffd-opt %s --ffd-decompose --ffd-fuse | FileCheck %s --check-prefix=FUSED
// RUN: ffd-opt %s --ffd-decompose | FileCheck %s --check-prefix=STEPS

// The kind of a pseudo-max goes from the decode to two of its steps, and back.

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>

// STEPS-LABEL: @decode(
// STEPS: %[[PM:.*]], %[[U:.*]] = ffd.pseudo_max refined ins(
// STEPS: ffd.scan ins(
// STEPS: ffd.select #ffd.top_delta<pseudo_max = refined> ins(%{{.*}}, %[[PM]], %[[U]],
// FUSED-LABEL: @decode(
// FUSED-NOT: ffd.pseudo_max
// FUSED: ffd.decode #ffd.top_delta<pseudo_max = refined> ins(
func.func @decode(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>, %m0: tensor<1x1x?xi8>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>) {
  %o, %l, %m = ffd.decode #ffd.top_delta<pseudo_max = refined>
      ins(%q, %cache, %delta, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1xf32>)
      outs(%o0, %l0, %m0 : tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>)
      -> tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>
  return %o, %l, %m : tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>
}

// Steps that disagree are left alone.
// FUSED-LABEL: @two_kinds(
// FUSED: ffd.pseudo_max refined
// FUSED: ffd.attend
func.func @two_kinds(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max refined ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}
