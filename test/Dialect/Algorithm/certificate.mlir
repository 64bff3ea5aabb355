// RUN: ffd-opt %s -split-input-file -verify-diagnostics | ffd-opt -split-input-file | FileCheck %s
// RUN: ffd-opt %s -split-input-file -verify-diagnostics --ffd-decompose | FileCheck %s --check-prefix=STAYS
// RUN: ffd-opt %s -split-input-file -verify-diagnostics --one-shot-bufferize="bufferize-function-boundaries=1" | FileCheck %s --check-prefix=BUFFER

// A certificate is one more destination of the fused op, and never decomposed.
#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2>
// CHECK-LABEL: @tensors(
// CHECK: ffd.decode #ffd.top_delta<certificate = plain> ins({{.*}}) outs(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>, tensor<1x4xf32>) -> tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>, tensor<1x4xf32>
// STAYS-LABEL: @tensors(
// STAYS: ffd.decode #ffd.top_delta<certificate = plain>
// STAYS-NOT: ffd.scan
// BUFFER-LABEL: @tensors(
// BUFFER: ffd.decode #ffd.top_delta<certificate = plain> ins({{.*}}) outs({{.*}} : memref<1x4x128xf32{{.*}}>, memref<1x4xf32{{.*}}>, memref<1x1x?xi8{{.*}}>, memref<1x4xf32{{.*}}>)
func.func @tensors(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %o0: tensor<1x4x128xf32>, %l0: tensor<1x4xf32>, %m0: tensor<1x1x?xi8>, %s0: tensor<1x4xf32>)
    -> (tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>, tensor<1x4xf32>) {
  %o, %l, %m, %e = ffd.decode #ffd.top_delta<certificate = plain>
      ins(%q, %cache, %delta, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1xf32>)
      outs(%o0, %l0, %m0, %s0 : tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>, tensor<1x4xf32>)
      -> tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>, tensor<1x4xf32>
  return %o, %l, %m, %e : tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>, tensor<1x4xf32>
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2>
// decode_c4
func.func @missing(%q: memref<1x4x128xf16>, %c: !ffd.cache<#s>, %delta: memref<1xf32>, %sm: f32,
    %o: memref<1x4x128xf32>, %l: memref<1x4xf32>, %m: memref<1x1x?xi8>) {
  // expected-error @below {{'ffd.decode' op has no 'skipped_lse' with the selector #ffd.top_delta<certificate = noise>, expected one exactly where that has a certificate (decode_c4)}}
  ffd.decode #ffd.top_delta<certificate = noise>
      ins(%q, %c, %delta, %sm : memref<1x4x128xf16>, !ffd.cache<#s>, memref<1xf32>)
      outs(%o, %l, %m : memref<1x4x128xf32>, memref<1x4xf32>, memref<1x1x?xi8>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2>
// decode_c4
func.func @unasked(%q: memref<1x4x128xf16>, %c: !ffd.cache<#s>, %delta: memref<1xf32>, %sm: f32,
    %o: memref<1x4x128xf32>, %l: memref<1x4xf32>, %m: memref<1x1x?xi8>) {
  // expected-error @below {{'ffd.decode' op has a 'skipped_lse' with the selector #ffd.all, expected one exactly where that has a certificate (decode_c4)}}
  ffd.decode #ffd.all
      ins(%q, %c, %delta, %sm : memref<1x4x128xf16>, !ffd.cache<#s>, memref<1xf32>)
      outs(%o, %l, %m, %l : memref<1x4x128xf32>, memref<1x4xf32>, memref<1x1x?xi8>, memref<1x4xf32>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 16, residual_bits = 0>
// decode_c4
func.func @keys(%q: memref<1x4x128xf16>, %c: !ffd.cache<#s>, %delta: memref<1xf32>, %sm: f32,
    %o: memref<1x4x128xf32>, %l: memref<1x4xf32>, %m: memref<1x1x?xi8>, %e: memref<1x4xf32>) {
  // expected-error @below {{'ffd.decode' op has a certificate with scan_bits = 16, expected 2, 4 or 8 (decode_c4)}}
  ffd.decode #ffd.top_delta<certificate = plain>
      ins(%q, %c, %delta, %sm : memref<1x4x128xf16>, !ffd.cache<#s>, memref<1xf32>)
      outs(%o, %l, %m, %e : memref<1x4x128xf32>, memref<1x4xf32>, memref<1x1x?xi8>, memref<1x4xf32>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2>
// decode_c1
func.func @shape(%q: memref<1x4x128xf16>, %c: !ffd.cache<#s>, %delta: memref<1xf32>, %sm: f32,
    %o: memref<1x4x128xf32>, %l: memref<1x4xf32>, %m: memref<1x1x?xi8>, %e: memref<1x8xf32>) {
  // expected-error @below {{(decode_c1)}}
  ffd.decode #ffd.top_delta<certificate = plain>
      ins(%q, %c, %delta, %sm : memref<1x4x128xf16>, !ffd.cache<#s>, memref<1xf32>)
      outs(%o, %l, %m, %e : memref<1x4x128xf32>, memref<1x4xf32>, memref<1x1x?xi8>, memref<1x8xf32>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, group = 4, element = f16, scan_bits = 2>
// select_o3
func.func @select_o3(%b: tensor<1x4x?xi32>, %pm: tensor<1x4xi32>, %u: tensor<1x4xf32>, %d: tensor<1xf32>, %c: !ffd.cache<#s>, %m: tensor<1x1x?xi8>) {
  // expected-error @below {{'ffd.select' op selector #ffd.top_delta<certificate = plain> has a certificate, expected none: 'best' has no sums over tokens, and only 'ffd.decode' makes them (select_o3)}}
  %0 = ffd.select #ffd.top_delta<certificate = plain>
      ins(%b, %pm, %u, %d, %c : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  return
}
