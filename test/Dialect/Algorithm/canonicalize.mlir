// RUN: ffd-opt %s --canonicalize --split-input-file | FileCheck %s

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>

// Row ops on tensors only read, so unused ones go, and the view with them.
// CHECK-LABEL: @unused
// CHECK-NEXT: return
func.func @unused(%q: tensor<1x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: tensor<1xf32>, %sm: f32, %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>,
    %b0: tensor<1x4x?xi32>, %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>,
    %keys: tensor<256x64xf16>) {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>,
        memref<?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x64xf16>,
        memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  %o1, %l1, %m1 = ffd.decode #ffd.top_delta
      ins(%q, %cache, %delta, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1xf32>)
      outs(%o, %l, %mask : tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>)
      -> tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>
  %o2, %l2 = ffd.exact #s ins(%q, %tk, %tv, %ln, %sm : tensor<1x4x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?xi32>)
      outs(%o1, %l1 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  %codes, %residuals, %scales = ffd.split %keys {scan_bits = 2 : i64, quant_block = 128 : i64}
      : tensor<256x64xf16> -> tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xf16>
  return
}

// On memrefs they write, and stay.
// CHECK-LABEL: @on_memrefs
// CHECK: ffd.scan
func.func @on_memrefs(%q: memref<1x4x128xf16>, %cache: !ffd.cache<#s>, %b: memref<1x4x?xi32>) {
  ffd.scan ins(%q, %cache : memref<1x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<1x4x?xi32>)
  return
}

// #ffd.all reads no scores: what computes them is dead.
// CHECK-LABEL: @all_reads_no_scores
// CHECK-SAME: %[[PM:[a-z0-9]+]]: tensor<1x4xi32>, %[[U:[a-z0-9]+]]: tensor<1x4xf32>, %[[B:[a-z0-9]+]]: tensor<1x4x?xi32>
func.func @all_reads_no_scores(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>, %m0: tensor<1x1x?xi8>) -> tensor<1x1x?xi8> {
  // CHECK-NOT: ffd.pseudo_max
  // CHECK-NOT: ffd.scan
  // CHECK: ffd.select #ffd.all ins(%[[B]], %[[PM]], %[[U]],
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.all
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  return %mask : tensor<1x1x?xi8>
}

// Every other selector reads them.
// CHECK-LABEL: @top_p_reads_scores
// CHECK: ffd.pseudo_max
// CHECK: ffd.scan
// CHECK: ffd.select #ffd.top_p
func.func @top_p_reads_scores(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>, %m0: tensor<1x1x?xi8>) -> tensor<1x1x?xi8> {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_p<0.9 : f64>
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  return %mask : tensor<1x1x?xi8>
}

// Scores that something else reads are still computed.
// CHECK-LABEL: @all_keeps_other_users
// CHECK: %[[BEST:.*]] = ffd.scan
// CHECK: ffd.select #ffd.all
// CHECK: return %{{.*}}, %[[BEST]]
func.func @all_keeps_other_users(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>,
    %pm: tensor<1x4xi32>, %u: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>, %m0: tensor<1x1x?xi8>) -> (tensor<1x1x?xi8>, tensor<1x4x?xi32>) {
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.all
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  return %mask, %best : tensor<1x1x?xi8>, tensor<1x4x?xi32>
}

// A tensor.cast that forgets sizes folds into the op.
// CHECK-LABEL: @tensor_cast
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<1x4x128xf16>
// CHECK: ffd.scan ins(%[[Q]], %{{.*}} : tensor<1x4x128xf16>, !ffd.cache<#{{.*}}>) outs(%{{.*}} : tensor<1x4x64xi32>) -> tensor<1x4x64xi32>
func.func @tensor_cast(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %b0: tensor<1x4x64xi32>) -> tensor<1x4x?xi32> {
  %q1 = tensor.cast %q : tensor<1x4x128xf16> to tensor<?x?x128xf16>
  %b1 = tensor.cast %b0 : tensor<1x4x64xi32> to tensor<1x4x?xi32>
  %best = ffd.scan ins(%q1, %cache : tensor<?x?x128xf16>, !ffd.cache<#s>)
      outs(%b1 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  return %best : tensor<1x4x?xi32>
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>

// A memref.cast that forgets sizes folds into the view.
// CHECK-LABEL: @memref_cast
// CHECK-NOT: memref.cast
// CHECK: ffd.cache.view
// CHECK-SAME: memref<64x8x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x8x128xf16>
func.func @memref_cast(%th: memref<64x8x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x8x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) -> !ffd.cache<#s> {
  %th1 = memref.cast %th : memref<64x8x4352xi8> to memref<?x?x?xi8>
  %sx1 = memref.cast %sx : memref<?x8x128xf16> to memref<?x?x128xf16>
  %cache = ffd.cache.view thumbnails(%th1) residuals(%re) values(%va) smax(%sx1)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x?xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>,
        memref<?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x64xf16>,
        memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return %cache : !ffd.cache<#s>
}

// Not one that claims sizes, that hides a size the layout contradicts, or that
// comes from another layout: the op would be invalid, or claim less.
// CHECK-LABEL: @memref_cast_stays
// CHECK-COUNT-3: memref.cast
func.func @memref_cast_stays(%th: memref<?x?x?xi8>, %re: memref<?x?x16xi8>,
    %va: memref<4x8x8192xf16, strided<[65536, 8192, 1], offset: ?>>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) -> !ffd.cache<#s> {
  %th1 = memref.cast %th : memref<?x?x?xi8> to memref<?x?x4352xi8>
  %re1 = memref.cast %re : memref<?x?x16xi8> to memref<?x?x?xi8>
  %va1 = memref.cast %va : memref<4x8x8192xf16, strided<[65536, 8192, 1], offset: ?>> to memref<4x8x8192xf16>
  %cache = ffd.cache.view thumbnails(%th1) residuals(%re1) values(%va1) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x?xi8>, memref<4x8x8192xf16>,
        memref<?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x64xf16>,
        memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return %cache : !ffd.cache<#s>
}
