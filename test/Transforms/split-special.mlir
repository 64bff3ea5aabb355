// REQUIRES: mlir-runner
// RUN: ffd-opt %s --ffd-split-to-linalg --convert-elementwise-to-linalg \
// RUN:   --one-shot-bufferize="bufferize-function-boundaries" --convert-linalg-to-loops \
// RUN:   --expand-strided-metadata --lower-affine --convert-scf-to-cf \
// RUN:   --arith-expand="include-bf16=true" --convert-to-llvm --reconcile-unrealized-casts \
// RUN: | mlir-runner -e main -entry-point-result=void -shared-libs=%mlir_runner_utils \
// RUN: | FileCheck %s

// The quantiser on values worked out by hand. Blocks of two tokens.

func.func private @printMemrefI32(memref<*xi32>)

func.func @print(%codes: tensor<4x3xi8>) {
  %wide = arith.extui %codes : tensor<4x3xi8> to tensor<4x3xi32>
  %buffer = bufferization.to_buffer %wide : tensor<4x3xi32> to memref<4x3xi32>
  %any = memref.cast %buffer : memref<4x3xi32> to memref<*xi32>
  call @printMemrefI32(%any) : (memref<*xi32>) -> ()
  return
}

func.func @main() {
  // Channel 0: scale 1 (split_c1), then 0: code 2^(b-1) (split_c4).
  // Channel 1: 1 and -1 with scale f16(2/3) < 2/3, then NaN (split_c3).
  // Channel 2: scale 2, 0.1 is 12 parts of 256 above the middle; then infinity.
  %k = arith.constant dense<[[1.5, 1.0, 3.0], [-1.5, -1.0, 0.1],
                             [0.0, 0x7E00, 0xFC00], [-0.0, 1.0, 1.0]]> : tensor<4x3xf16>
  %c, %r, %s = ffd.split %k {scan_bits = 2 : i64, quant_block = 2 : i64}
      : tensor<4x3xf16> -> tensor<4x3xi8>, tensor<4x3xi8>, tensor<2x3xf16>
  // CHECK: {{\[\[}}3, 3, 3],
  // CHECK-NEXT: [0, 0, 2],
  // CHECK-NEXT: [2, 0, 0],
  // CHECK-NEXT: [2, 0, 0]]
  call @print(%c) : (tensor<4x3xi8>) -> ()
  // CHECK: {{\[\[}}128, 128, 128],
  // CHECK-NEXT: [128, 127, 12],
  // CHECK-NEXT: [0, 0, 0],
  // CHECK-NEXT: [0, 0, 0]]
  call @print(%r) : (tensor<4x3xi8>) -> ()
  // 1, f16(2/3), 2; 0 and the canonical NaN.
  // CHECK: {{\[\[}}15360, 14677, 16384],
  // CHECK-NEXT: [0, 32256, 32256]]
  %bits = arith.bitcast %s : tensor<2x3xf16> to tensor<2x3xi16>
  %wide = arith.extui %bits : tensor<2x3xi16> to tensor<2x3xi32>
  %buffer = bufferization.to_buffer %wide : tensor<2x3xi32> to memref<2x3xi32>
  %any = memref.cast %buffer : memref<2x3xi32> to memref<*xi32>
  call @printMemrefI32(%any) : (memref<*xi32>) -> ()

  // split_c2: a bf16 scale below 2^-100 is 0, so the code is the middle one;
  // the next larger is not.
  %k1 = arith.constant dense<[[0x0DBF, 0x0DC0, 0.0], [0x8DBF, 0x8DC0, 0.0],
                              [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]> : tensor<4x3xbf16>
  %c1, %r1, %s1 = ffd.split %k1 {scan_bits = 2 : i64, quant_block = 2 : i64}
      : tensor<4x3xbf16> -> tensor<4x3xi8>, tensor<4x3xi8>, tensor<2x3xbf16>
  // CHECK: {{\[\[}}2, 3, 2],
  // CHECK-NEXT: [2, 0, 2],
  call @print(%c1) : (tensor<4x3xi8>) -> ()
  return
}
