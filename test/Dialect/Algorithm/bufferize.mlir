// RUN: ffd-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" | FileCheck %s

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>

// Every op writes its destination in place: no copy.
// CHECK-LABEL: @steps(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: memref<1x4x128xf16>
// CHECK-SAME: %[[M:[a-z0-9]+]]: memref<1x1x?xi8>, %[[O:[a-z0-9]+]]: memref<1x4x64xf32>, %[[L:[a-z0-9]+]]: memref<1x4xf32>)
func.func @steps(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %n: index, %delta: tensor<1xf32>, %sm: f32,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>) {
  // CHECK-DAG: %[[PM:.*]] = memref.alloc() {{.*}} : memref<1x4xi32>
  // CHECK-DAG: %[[U:.*]] = memref.alloc() {{.*}} : memref<1x4xf32>
  // CHECK-DAG: %[[B:.*]] = memref.alloc(%{{.*}}) {{.*}} : memref<1x4x?xi32>
  // CHECK-NOT: memref.copy
  %pm0 = tensor.empty() : tensor<1x4xi32>
  %u0 = tensor.empty() : tensor<1x4xf32>
  %b0 = tensor.empty(%n) : tensor<1x4x?xi32>
  // CHECK: ffd.pseudo_max ins(%[[Q]], %{{.*}}, %{{.*}} : memref<1x4x128xf16>, !ffd.cache<#spec>) outs(%[[PM]], %[[U]] : memref<1x4xi32>, memref<1x4xf32>)
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  // CHECK: ffd.scan ins(%[[Q]], %{{.*}} : memref<1x4x128xf16>, !ffd.cache<#spec>) outs(%[[B]] : memref<1x4x?xi32>)
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  // CHECK: ffd.select #ffd.top_delta ins(%[[B]], %[[PM]], %[[U]], %{{.*}}, %{{.*}} : memref<1x4x?xi32>, memref<1x4xi32>, memref<1x4xf32>, memref<1xf32>, !ffd.cache<#spec>) outs(%[[M]] : memref<1x1x?xi8>)
  %mask = ffd.select #ffd.top_delta
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  // CHECK: ffd.attend ins(%[[Q]], %{{.*}}, %[[M]], %{{.*}} : memref<1x4x128xf16>, !ffd.cache<#spec>, memref<1x1x?xi8>) outs(%[[O]], %[[L]] : memref<1x4x64xf32>, memref<1x4xf32>)
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  // CHECK: return %[[O]], %[[L]], %[[M]]
  return %o, %l, %mask : tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>
}

// CHECK-LABEL: @decode(
// CHECK-NOT: memref.copy
// CHECK: ffd.decode #ffd.all ins({{.*}}) outs(%{{.*}}, %{{.*}}, %{{.*}} : memref<1x4x64xf32>, memref<1x4xf32>, memref<1x1x?xi8>){{$}}
func.func @decode(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>) {
  %o, %l, %m = ffd.decode #ffd.all
      ins(%q, %cache, %delta, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1xf32>)
      outs(%o0, %l0, %m0 : tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>)
      -> tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>
  return %o, %l, %m : tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>
}

// CHECK-LABEL: @exact(
// CHECK-NOT: memref.copy
// CHECK: ffd.exact #spec ins({{.*}}) outs(%{{.*}}, %{{.*}} : memref<1x4x64xf32>, memref<1x4xf32>){{$}}
func.func @exact(%q: tensor<1x4x128xf16>, %k: memref<1x1x?x128xf16>, %v: memref<1x1x?x64xf16>, %n: memref<1xi32>, %sm: f32,
    %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>) -> (tensor<1x4x64xf32>, tensor<1x4xf32>) {
  %o, %l = ffd.exact #s ins(%q, %k, %v, %n, %sm : tensor<1x4x128xf16>, memref<1x1x?x128xf16>, memref<1x1x?x64xf16>, memref<1xi32>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  return %o, %l : tensor<1x4x64xf32>, tensor<1x4xf32>
}

// A destination that is needed later is not overwritten: a new buffer. What an
// output held before does not matter, so it is not copied ...
// CHECK-LABEL: @output_needed_later(
// CHECK-SAME: %[[B:[a-z0-9]+]]: memref<1x4x8xi32>)
// CHECK: %[[NEW:.*]] = memref.alloc()
// CHECK-NOT: memref.copy
// CHECK: ffd.scan ins({{.*}}) outs(%[[NEW]] :
// CHECK: return %[[NEW]], %[[B]]
func.func @output_needed_later(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %b: tensor<1x4x8xi32>)
    -> (tensor<1x4x8xi32>, tensor<1x4x8xi32>) {
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b : tensor<1x4x8xi32>) -> tensor<1x4x8xi32>
  return %best, %b : tensor<1x4x8xi32>, tensor<1x4x8xi32>
}

// ... but a mask is: its bytes beyond the committed blocks stay.
// CHECK-LABEL: @mask_needed_later(
// CHECK-SAME: %[[M:[a-z0-9]+]]: memref<1x1x8xi8>)
// CHECK: %[[NEW:.*]] = memref.alloc()
// CHECK: memref.copy %[[M]], %[[NEW]]
// CHECK: ffd.select #ffd.all ins({{.*}}) outs(%[[NEW]] :
func.func @mask_needed_later(%best: tensor<1x4x8xi32>, %pm: tensor<1x4xi32>, %u: tensor<1x4xf32>, %delta: tensor<1xf32>,
    %cache: !ffd.cache<#s>, %m: tensor<1x1x8xi8>) -> (tensor<1x1x8xi8>, tensor<1x1x8xi8>) {
  %mask = ffd.select #ffd.all
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x8xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m : tensor<1x1x8xi8>) -> tensor<1x1x8xi8>
  return %mask, %m : tensor<1x1x8xi8>, tensor<1x1x8xi8>
}
