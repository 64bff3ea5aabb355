// RUN: ffd-opt %s --cse | FileCheck %s

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>

// Two equal scans are one ...
// CHECK-LABEL: @same
// CHECK-COUNT-1: ffd.scan
// CHECK-NOT: ffd.scan
func.func @same(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %b: tensor<1x4x?xi32>) -> (tensor<1x4x?xi32>, tensor<1x4x?xi32>) {
  %0 = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>) outs(%b : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %1 = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>) outs(%b : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  return %0, %1 : tensor<1x4x?xi32>, tensor<1x4x?xi32>
}

// ... unless the cache may have changed in between: it is a view of memory.
// CHECK-LABEL: @written_between
// CHECK-COUNT-2: ffd.scan
func.func @written_between(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %b: tensor<1x4x?xi32>, %lengths: memref<1xi32>, %n: i32) -> (tensor<1x4x?xi32>, tensor<1x4x?xi32>) {
  %c0 = arith.constant 0 : index
  %0 = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>) outs(%b : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  memref.store %n, %lengths[%c0] : memref<1xi32>
  %1 = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>) outs(%b : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  return %0, %1 : tensor<1x4x?xi32>, tensor<1x4x?xi32>
}
