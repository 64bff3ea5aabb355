// RUN: ffd-opt %s --ffd-decompose | FileCheck %s
// RUN: ffd-opt %s --ffd-decompose --ffd-fuse | FileCheck %s --check-prefix=BACK

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>

// The inverse of --ffd-fuse: destinations of scores are new, the others those of
// the decode.
// CHECK-LABEL: @decompose(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<1x4x128xf16>, %[[C:[a-z0-9]+]]: !ffd.cache<#spec>, %[[DELTA:[a-z0-9]+]]: tensor<1xf32>, %[[SM:[a-z0-9]+]]: f32
// CHECK-SAME: %[[O0:[a-z0-9]+]]: tensor<1x4x64xf32>, %[[L0:[a-z0-9]+]]: tensor<1x4xf32>, %[[M0:[a-z0-9]+]]: tensor<1x1x?xi8>)
// CHECK-DAG: %[[BLOCKS:.*]] = tensor.dim %[[M0]], %{{.*}}
// CHECK-DAG: %[[PM0:.*]] = tensor.empty() : tensor<1x4xi32>
// CHECK-DAG: %[[U0:.*]] = tensor.empty() : tensor<1x4xf32>
// CHECK-DAG: %[[B0:.*]] = tensor.empty(%[[BLOCKS]]) : tensor<1x4x?xi32>
// CHECK: %[[PM:.*]], %[[U:.*]] = ffd.pseudo_max ins(%[[Q]], %[[C]], %[[SM]] : {{.*}}) outs(%[[PM0]], %[[U0]] :
// CHECK: %[[B:.*]] = ffd.scan ins(%[[Q]], %[[C]] : {{.*}}) outs(%[[B0]] :
// CHECK: %[[M:.*]] = ffd.select #ffd.top_delta ins(%[[B]], %[[PM]], %[[U]], %[[DELTA]], %[[C]] : {{.*}}) outs(%[[M0]] :
// CHECK: %[[O:.*]], %[[L:.*]] = ffd.attend ins(%[[Q]], %[[C]], %[[M]], %[[SM]] : {{.*}}) outs(%[[O0]], %[[L0]] :
// CHECK: return %[[O]], %[[L]], %[[M]]
// BACK-LABEL: @decompose(
// BACK-SAME: %[[Q:[a-z0-9]+]]: tensor<1x4x128xf16>, %[[C:[a-z0-9]+]]: !ffd.cache<#spec>, %[[DELTA:[a-z0-9]+]]: tensor<1xf32>, %[[SM:[a-z0-9]+]]: f32
// BACK-SAME: %[[O0:[a-z0-9]+]]: tensor<1x4x64xf32>, %[[L0:[a-z0-9]+]]: tensor<1x4xf32>, %[[M0:[a-z0-9]+]]: tensor<1x1x?xi8>)
// BACK-NEXT: %[[R:.*]], %[[RL:.*]], %[[RM:.*]] = ffd.decode #ffd.top_delta ins(%[[Q]], %[[C]], %[[DELTA]], %[[SM]] : {{.*}}) outs(%[[O0]], %[[L0]], %[[M0]] :
// BACK-NEXT: return %[[R]], %[[RL]], %[[RM]]
func.func @decompose(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
    %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>, %m0: tensor<1x1x?xi8>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>) {
  %o, %l, %m = ffd.decode #ffd.top_delta
      ins(%q, %cache, %delta, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1xf32>)
      outs(%o0, %l0, %m0 : tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>)
      -> tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>
  return %o, %l, %m : tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>
}

// Sizes that are not static are read off the destinations.
// CHECK-LABEL: @dynamic(
// CHECK: tensor.empty(%{{.*}}, %{{.*}}) : tensor<?x?xi32>
// CHECK: tensor.empty(%{{.*}}, %{{.*}}, %{{.*}}) : tensor<?x?x?xi32>
// CHECK: ffd.select #ffd.all
// BACK-LABEL: @dynamic(
// BACK: ffd.decode #ffd.all
// BACK-NOT: ffd.attend
func.func @dynamic(%q: tensor<?x?x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<?xf32>, %sm: f32,
    %o0: tensor<?x?x64xf32>, %l0: tensor<?x?xf32>, %m0: tensor<?x?x?xi8>)
    -> (tensor<?x?x64xf32>, tensor<?x?xf32>, tensor<?x?x?xi8>) {
  %o, %l, %m = ffd.decode #ffd.all
      ins(%q, %cache, %delta, %sm : tensor<?x?x128xf16>, !ffd.cache<#s>, tensor<?xf32>)
      outs(%o0, %l0, %m0 : tensor<?x?x64xf32>, tensor<?x?xf32>, tensor<?x?x?xi8>)
      -> tensor<?x?x64xf32>, tensor<?x?xf32>, tensor<?x?x?xi8>
  return %o, %l, %m : tensor<?x?x64xf32>, tensor<?x?xf32>, tensor<?x?x?xi8>
}

// On memrefs the decode stays.
// CHECK-LABEL: @on_memrefs(
// CHECK: ffd.decode
// CHECK-NOT: ffd.attend
func.func @on_memrefs(%q: memref<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: memref<1xf32>, %sm: f32,
    %o: memref<1x4x64xf32>, %l: memref<1x4xf32>, %m: memref<1x1x?xi8>) {
  ffd.decode #ffd.top_delta
      ins(%q, %cache, %delta, %sm : memref<1x4x128xf16>, !ffd.cache<#s>, memref<1xf32>)
      outs(%o, %l, %m : memref<1x4x64xf32>, memref<1x4xf32>, memref<1x1x?xi8>)
  return
}
