// RUN: ffd-opt %s --ffd-fuse | FileCheck %s
// RUN: ffd-opt %s --ffd-fuse | ffd-opt --ffd-decompose --ffd-fuse | FileCheck %s

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>

// The four steps become one.
// CHECK-LABEL: @fuse(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<1x4x128xf16>, %[[C:[a-z0-9]+]]: !ffd.cache<#{{.*}}>, %[[DELTA:[a-z0-9]+]]: tensor<1xf32>, %[[SM:[a-z0-9]+]]: f32
// CHECK-SAME: %[[M0:[a-z0-9]+]]: tensor<1x1x?xi8>, %[[O0:[a-z0-9]+]]: tensor<1x4x64xf32>, %[[L0:[a-z0-9]+]]: tensor<1x4xf32>)
// CHECK-NOT: ffd.scan
// CHECK: %[[R:.*]], %[[RL:.*]], %[[RM:.*]] = ffd.decode #ffd.top_delta ins(%[[Q]], %[[C]], %[[DELTA]], %[[SM]] : {{.*}}) outs(%[[O0]], %[[L0]], %[[M0]] :
// CHECK-NEXT: return %[[R]], %[[RL]]
func.func @fuse(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
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

// The order of scan and pseudo-max does not matter, nor what only reads.
// CHECK-LABEL: @order(
// CHECK: ffd.decode #ffd.top_delta
// CHECK-NOT: ffd.attend
func.func @order(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>, %lengths: memref<1xi32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>, i32) {
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %c0 = arith.constant 0 : index
  %n = memref.load %lengths[%c0] : memref<1xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l, %n : tensor<1x4x64xf32>, tensor<1x4xf32>, i32
}

// Users of the mask after the steps get what was kept.
// CHECK-LABEL: @mask_used_after(
// CHECK: %[[R:.*]], %[[RL:.*]], %[[RM:.*]] = ffd.decode #ffd.top_delta
// CHECK-NEXT: return %[[R]], %[[RM]]
func.func @mask_used_after(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x1x?xi8>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %mask : tensor<1x4x64xf32>, tensor<1x1x?xi8>
}

// #ffd.all needs no scores ...
// CHECK-LABEL: @all(
// CHECK: ffd.decode #ffd.all
// CHECK-NOT: ffd.attend
func.func @all(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %mask = ffd.select #ffd.all
      ins(%b0, %pm0, %u0, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// ... and drops what computes them.
// CHECK-LABEL: @all_with_scores(
// CHECK-NOT: ffd.scan
// CHECK-NOT: ffd.pseudo_max
// CHECK: ffd.decode #ffd.all
// CHECK-NOT: ffd.attend
func.func @all_with_scores(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.all
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

//===--- Not fused ----------------------------------------------------------===//

// The selector needs a pass over the whole row.
// CHECK-LABEL: @top_k(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @top_k(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_k<64>
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// Likewise.
// CHECK-LABEL: @top_p(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @top_p(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_p<0.9 : f64>
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// The mask is not from a selection.
// CHECK-LABEL: @foreign_mask(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @foreign_mask(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %o, %l = ffd.attend ins(%q, %cache, %m0, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// Scores are not from a scan.
// CHECK-LABEL: @foreign_scores(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @foreign_scores(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %mask = ffd.select #ffd.top_delta
      ins(%b0, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// The pseudo-max is not from this row.
// CHECK-LABEL: @foreign_pseudo_max(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @foreign_pseudo_max(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm0, %u0, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// Pseudo-max and unit are from different rows.
// CHECK-LABEL: @two_pseudo_maxes(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @two_pseudo_maxes(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %pm1, %u1 = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u1, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// Somebody else reads the scores.
// CHECK-LABEL: @scores_used(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @scores_used(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4x?xi32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %best : tensor<1x4x64xf32>, tensor<1x4x?xi32>
}

// Somebody else reads the pseudo-max.
// CHECK-LABEL: @pseudo_max_used(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @pseudo_max_used(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xi32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %pm : tensor<1x4x64xf32>, tensor<1x4xi32>
}

// Somebody else reads the unit.
// CHECK-LABEL: @unit_used(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @unit_used(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %u : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// The scan has another query.
// CHECK-LABEL: @scan_query(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @scan_query(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>, %q1: tensor<1x4x128xf16>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q1, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// The pseudo-max has another query.
// CHECK-LABEL: @pseudo_max_query(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @pseudo_max_query(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>, %q1: tensor<1x4x128xf16>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q1, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
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

// The computer has another query.
// CHECK-LABEL: @attend_query(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @attend_query(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>, %q1: tensor<1x4x128xf16>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q1, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// The scan reads another cache.
// CHECK-LABEL: @scan_cache(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @scan_cache(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>, %cache1: !ffd.cache<#s>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache1 : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// The pseudo-max reads another cache.
// CHECK-LABEL: @pseudo_max_cache(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @pseudo_max_cache(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>, %cache1: !ffd.cache<#s>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache1, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
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

// The selection reads another cache.
// CHECK-LABEL: @select_cache(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @select_cache(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>, %cache1: !ffd.cache<#s>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache1 : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// So it does with #ffd.all.
// CHECK-LABEL: @all_cache(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @all_cache(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>, %cache1: !ffd.cache<#s>, %best: tensor<1x4x?xi32>, %pm: tensor<1x4xi32>, %u: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %mask = ffd.select #ffd.all
      ins(%best, %pm, %u, %delta, %cache1 : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// Another softmax scale.
// CHECK-LABEL: @scale(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @scale(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>, %sm1: f32)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm1 : tensor<1x4x128xf16>, !ffd.cache<#s>)
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

// The cache may change between the steps: a store,
// CHECK-LABEL: @written_between(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @written_between(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>, %lengths: memref<1xi32>, %n: i32)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %c0 = arith.constant 0 : index
  memref.store %n, %lengths[%c0] : memref<1xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// a store in a loop,
// CHECK-LABEL: @written_in_loop(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @written_in_loop(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>, %lengths: memref<?xi32>, %n: i32, %lo: index, %hi: index)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  scf.for %i = %lo to %hi step %hi {
    memref.store %n, %lengths[%i] : memref<?xi32>
  }
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// a call, which may write anything.
// CHECK-LABEL: @call_between(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @call_between(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  func.call @append() : () -> ()
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

func.func private @append()

// Somebody needs the mask before the result is there.
// CHECK-LABEL: @mask_used_before(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @mask_used_before(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, i8) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %c0 = arith.constant 0 : index
  %n = tensor.extract %mask[%c0, %c0, %c0] : tensor<1x1x?xi8>
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %n : tensor<1x4x64xf32>, i8
}

// Steps are in several blocks.
// CHECK-LABEL: @several_blocks(
// CHECK-NOT: ffd.decode
// CHECK: ffd.attend
// CHECK-NOT: ffd.decode
func.func @several_blocks(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>, %b0: tensor<1x4x?xi32>,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  cf.br ^next
^next:
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}
