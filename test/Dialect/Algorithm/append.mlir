// RUN: ffd-opt %s --verify-diagnostics --split-input-file | ffd-opt --split-input-file | FileCheck %s

#s = #ffd.spec<head_dim = 64, value_dim = 80, group = 1, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// CHECK-LABEL: @append
func.func @append(%k: memref<?x2x64xf16>, %v: memref<?x2x80xf16>, %off: memref<4xi32>, %res: memref<3xi32>, %cache: !ffd.cache<#s>, %n: memref<3xi32>, %e: memref<3xi32>) {
  // CHECK: ffd.append ins(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : memref<?x2x64xf16>, memref<?x2x80xf16>, memref<4xi32>, memref<3xi32>) into %{{.*}} : !ffd.cache<#spec> outs(%{{.*}}, %{{.*}} : memref<3xi32>, memref<3xi32>)
  ffd.append ins(%k, %v, %off, %res : memref<?x2x64xf16>, memref<?x2x80xf16>, memref<4xi32>, memref<3xi32>) into %cache : !ffd.cache<#s> outs(%n, %e : memref<3xi32>, memref<3xi32>)
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 80, group = 1, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @append_c1_keys(%k: memref<?x2x96xf16>, %v: memref<?x2x80xf16>, %i: memref<?xi32>, %cache: !ffd.cache<#s>) {
  // expected-error @below {{'ffd.append' op operand 'keys' has size 96 in axis 2, expected head_dim = 64 (append_c1)}}
  ffd.append ins(%k, %v, %i, %i : memref<?x2x96xf16>, memref<?x2x80xf16>, memref<?xi32>, memref<?xi32>) into %cache : !ffd.cache<#s> outs(%i, %i : memref<?xi32>, memref<?xi32>)
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 80, group = 1, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @append_c1_heads(%k: memref<?x2x64xf16>, %v: memref<?x3x80xf16>, %i: memref<?xi32>, %cache: !ffd.cache<#s>) {
  // expected-error @below {{'ffd.append' op operand 'values' has size 3 in axis 1, expected kv heads = 2 (append_c1)}}
  ffd.append ins(%k, %v, %i, %i : memref<?x2x64xf16>, memref<?x3x80xf16>, memref<?xi32>, memref<?xi32>) into %cache : !ffd.cache<#s> outs(%i, %i : memref<?xi32>, memref<?xi32>)
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 80, group = 1, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @append_c1_offsets(%k: memref<?x2x64xf16>, %v: memref<?x2x80xf16>, %i: memref<3xi32>, %cache: !ffd.cache<#s>) {
  // expected-error @below {{'ffd.append' op operand 'offsets' has size 3 in axis 0, expected batch + 1 = 4 (append_c1)}}
  ffd.append ins(%k, %v, %i, %i : memref<?x2x64xf16>, memref<?x2x80xf16>, memref<3xi32>, memref<3xi32>) into %cache : !ffd.cache<#s> outs(%i, %i : memref<3xi32>, memref<3xi32>)
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 80, group = 1, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @append_c2(%k: memref<?x2x64xf16>, %v: memref<?x2x80xbf16>, %i: memref<?xi32>, %cache: !ffd.cache<#s>) {
  // expected-error @below {{'ffd.append' op operand 'values' has element type 'bf16', expected 'f16' (append_c2)}}
  ffd.append ins(%k, %v, %i, %i : memref<?x2x64xf16>, memref<?x2x80xbf16>, memref<?xi32>, memref<?xi32>) into %cache : !ffd.cache<#s> outs(%i, %i : memref<?xi32>, memref<?xi32>)
  return
}
