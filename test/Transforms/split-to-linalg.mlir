// RUN: ffd-opt %s --ffd-split-to-linalg | FileCheck %s

// CHECK-LABEL: @f16(
// CHECK-SAME: %[[K:.*]]: tensor<256x64xf16>)
// CHECK: %[[BLOCKS:.*]] = tensor.expand_shape %[[K]] {{\[\[}}0, 1], [2]] output_shape [2, 128, 64]
// split_c1: the maximum, NaN propagates.
// CHECK: %[[AMAX:.*]] = linalg.generic {{.*}}["parallel", "reduction", "parallel"]
// CHECK-NEXT: ^bb0
// CHECK-NEXT: arith.extf
// CHECK-NEXT: math.absf
// CHECK-NEXT: arith.maximumf
// split_c1, split_c3: rounded to the element; no split_c2 for f16.
// CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%[[AMAX]]
// CHECK-NEXT: ^bb0
// CHECK-NEXT: arith.divf
// CHECK-NEXT: arith.truncf
// CHECK-NEXT: arith.cmpf olt
// CHECK-NEXT: arith.select
// CHECK-NEXT: linalg.yield
// split_c4, split_c5: no contraction but the fma of the specification.
// CHECK: %[[CODES:.*]]:2 = linalg.generic {{.*}} ins(%[[BLOCKS]], %[[S]]
// CHECK-NOT: fastmath
// CHECK: math.fma
// CHECK: math.floor
// CHECK: arith.fptoui
// CHECK: arith.shrui
// CHECK: %[[C:.*]] = tensor.collapse_shape %[[CODES]]#0 {{.*}} into tensor<256x64xi8>
// CHECK: %[[R:.*]] = tensor.collapse_shape %[[CODES]]#1 {{.*}} into tensor<256x64xi8>
// CHECK: return %[[C]], %[[R]], %[[S]]
func.func @f16(%k: tensor<256x64xf16>) -> (tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xf16>) {
  %c, %r, %s = ffd.split %k {scan_bits = 2 : i64, quant_block = 128 : i64}
      : tensor<256x64xf16> -> tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xf16>
  return %c, %r, %s : tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xf16>
}

// Any number of tokens and channels; bf16 has split_c2.
// CHECK-LABEL: @dynamic(
// CHECK: %[[T:.*]] = tensor.dim %{{.*}}, %c0
// CHECK: %[[D:.*]] = tensor.dim %{{.*}}, %c1
// CHECK: %[[N:.*]] = arith.divui %[[T]], %c128
// CHECK: tensor.expand_shape {{.*}} output_shape [%[[N]], 128, %[[D]]]
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK-NEXT: arith.extf
// CHECK-NEXT: arith.cmpf olt
func.func @dynamic(%k: tensor<?x?xbf16>) -> tensor<?x?xi8> {
  %c, %r, %s = ffd.split %k {scan_bits = 4 : i64, quant_block = 128 : i64}
      : tensor<?x?xbf16> -> tensor<?x?xi8>, tensor<?x?xi8>, tensor<?x?xbf16>
  return %c : tensor<?x?xi8>
}
