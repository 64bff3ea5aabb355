// RUN: ffd-opt %s --ffd-specialize --split-input-file | FileCheck %s
// RUN: ffd-opt %s --ffd-specialize="scan-bits=4 select-block=64 value-dim=0" --split-input-file | FileCheck %s --check-prefix=OPTIONS

// Everything from static shapes, what is left from options, then defaults; a
// plane that is an argument gets the size that follows.
// CHECK: #[[S:.*]] = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// CHECK-LABEL: @from_decode(
// CHECK-SAME: memref<?x?x4352xi8>, %{{[a-z0-9]+}}: memref<?x?x16384xi8>, %{{[a-z0-9]+}}: memref<?x?x8192xf16>, %{{[a-z0-9]+}}: memref<?x?x128xf16>, %{{[a-z0-9]+}}: memref<?x?x?x128xf16>, %{{[a-z0-9]+}}: memref<?x?x?x64xf16>
// CHECK: ffd.cache.view
// CHECK-SAME: !ffd.cache<#[[S]]>
// CHECK: ffd.decode
// CHECK-SAME: !ffd.cache<#[[S]]>
// OPTIONS: #[[S:.*]] = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 4, quant_block = 128, select_block = 64>
// OPTIONS-LABEL: @from_decode(
// OPTIONS-SAME: memref<?x?x8448xi8>
#s = #ffd.spec<>
func.func @from_decode(%q: memref<1x4x128xf16>, %th: memref<?x?x?xi8>, %re: memref<?x?x?xi8>,
    %va: memref<?x?x?xf16>, %sx: memref<?x?x?xf16>, %tk: memref<?x?x?x?xf16>,
    %tv: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<1xf32>, %sm: f32, %o: memref<1x4x64xf32>, %l: memref<1x4xf32>, %m: memref<1x1x?xi8>) {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x?xi8>, memref<?x?x?xi8>, memref<?x?x?xf16>, memref<?x?x?xf16>,
        memref<?x?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.decode #ffd.top_delta ins(%q, %cache, %delta, %sm : memref<1x4x128xf16>, !ffd.cache<#s>, memref<1xf32>)
      outs(%o, %l, %m : memref<1x4x64xf32>, memref<1x4xf32>, memref<1x1x?xi8>)
  return
}

// -----

// value_dim is head_dim where nothing says otherwise; sizes come from several
// ops, and function types follow.
// CHECK: #[[S:.*]] = #ffd.spec<head_dim = 96, value_dim = 96, group = 2, element = bf16, scan_bits = 2, quant_block = 128, select_block = 16>
// CHECK-LABEL: @from_steps(
// CHECK-SAME: !ffd.cache<#[[S]]>
// CHECK: ffd.scan
// CHECK-SAME: !ffd.cache<#[[S]]>
#s = #ffd.spec<>
func.func @from_steps(%q: tensor<?x?x96xbf16>, %cache: !ffd.cache<#s>, %b0: tensor<1x8x?xi32>,
    %pm: tensor<1x8xi32>, %u: tensor<1x8xf32>, %d: tensor<1xf32>, %m0: tensor<1x4x?xi8>) -> tensor<1x4x?xi8> {
  %b = ffd.scan ins(%q, %cache : tensor<?x?x96xbf16>, !ffd.cache<#s>) outs(%b0 : tensor<1x8x?xi32>) -> tensor<1x8x?xi32>
  %m = ffd.select #ffd.top_delta ins(%b, %pm, %u, %d, %cache : tensor<1x8x?xi32>, tensor<1x8xi32>, tensor<1x8xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x4x?xi8>) -> tensor<1x4x?xi8>
  return %m : tensor<1x4x?xi8>
}

// -----

// Several specs of one module are completed one by one.
// CHECK-DAG: #[[A:.*]] = #ffd.spec<head_dim = 64, value_dim = 64, group = 1, element = f16, scan_bits = 4, quant_block = 128, select_block = 16>
// CHECK-DAG: #[[B:.*]] = #ffd.spec<head_dim = 128, value_dim = 128, group = 1, element = f16, scan_bits = 4, quant_block = 128, select_block = 16>
// CHECK-LABEL: @two(
// CHECK: ffd.exact #[[A]]
// CHECK: ffd.scan
// CHECK-SAME: !ffd.cache<#[[B]]>
// OPTIONS-LABEL: @two(
#a = #ffd.spec<head_dim = 64, scan_bits = 4>
#b = #ffd.spec<group = 1, scan_bits = 4>
func.func @two(%q: memref<1x1x64xf16>, %k: memref<1x1x?x64xf16>, %n: memref<1xi32>, %sm: f32,
    %o: memref<1x1x64xf32>, %l: memref<1x1xf32>, %q1: memref<1x1x128xf16>, %cache: !ffd.cache<#b>, %best: memref<1x1x?xi32>) {
  ffd.exact #a ins(%q, %k, %k, %n, %sm : memref<1x1x64xf16>, memref<1x1x?x64xf16>, memref<1x1x?x64xf16>, memref<1xi32>)
      outs(%o, %l : memref<1x1x64xf32>, memref<1x1xf32>)
  ffd.scan ins(%q1, %cache : memref<1x1x128xf16>, !ffd.cache<#b>) outs(%best : memref<1x1x?xi32>)
  return
}

// -----

// Arguments that others see keep their types: of a function that is called, and
// with another user.
// CHECK-LABEL: @called(
// CHECK-SAME: %{{[a-z0-9]+}}: memref<?x?x?xi8>, %{{[a-z0-9]+}}: memref<?x?x16384xi8>
#s = #ffd.spec<head_dim = 128, group = 1, element = f16>
func.func @called(%th: memref<?x?x?xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x?xf16>, %sx: memref<?x?x?xf16>, %tk: memref<?x?x?x?xf16>,
    %tv: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) -> !ffd.cache<#s> {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x?xi8>, memref<?x?x16384xi8>, memref<?x?x?xf16>, memref<?x?x?xf16>,
        memref<?x?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return %cache : !ffd.cache<#s>
}
// CHECK-LABEL: @caller(
func.func @caller(%th: memref<?x?x?xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x?xf16>, %sx: memref<?x?x?xf16>, %tk: memref<?x?x?x?xf16>,
    %tv: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) -> !ffd.cache<#s> {
  %cache = func.call @called(%th, %re, %va, %sx, %tk, %tv, %pt, %ln, %lag)
      : (memref<?x?x?xi8>, memref<?x?x16384xi8>, memref<?x?x?xf16>, memref<?x?x?xf16>,
        memref<?x?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32>, i32) -> !ffd.cache<#s>
  return %cache : !ffd.cache<#s>
}
// CHECK-LABEL: @other_user(
// CHECK-SAME: %{{[a-z0-9]+}}: memref<?x?x?xi8>, %{{[a-z0-9]+}}: memref<?x?x16384xi8>, %{{[a-z0-9]+}}: memref<?x?x16384xf16>
func.func @other_user(%th: memref<?x?x?xi8>, %re: memref<?x?x?xi8>,
    %va: memref<?x?x?xf16>, %sx: memref<?x?x?xf16>, %tk: memref<?x?x?x?xf16>,
    %tv: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) -> (!ffd.cache<#s>, memref<?x?x?xi8>) {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x?xi8>, memref<?x?x?xi8>, memref<?x?x?xf16>, memref<?x?x?xf16>,
        memref<?x?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return %cache, %th : !ffd.cache<#s>, memref<?x?x?xi8>
}
