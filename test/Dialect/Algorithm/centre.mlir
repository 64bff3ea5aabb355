// RUN: ffd-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// Keys relative to a vector of their row: the operand that holds it.

// CHECK-LABEL: @split
func.func @split(%k: tensor<256x64xbf16>, %c: tensor<64xbf16>) -> tensor<2x64xbf16> {
  // CHECK: ffd.split %{{.*}} centre(%{{.*}} : tensor<64xbf16>) {quant_block = 128 : i64, scan_bits = 4 : i64} : tensor<256x64xbf16> ->
  %codes, %residuals, %scales = ffd.split %k centre(%c : tensor<64xbf16>) {scan_bits = 4 : i64, quant_block = 128 : i64}
      : tensor<256x64xbf16> -> tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xbf16>
  return %scales : tensor<2x64xbf16>
}

// -----

func.func @split_o3_channels(%k: tensor<256x64xf16>, %c: tensor<80xf16>) {
  // expected-error @below {{'ffd.split' op operand 'centre' has size 80 in axis 0, expected channels of the keys = 64 (split_o3)}}
  %codes, %residuals, %scales = ffd.split %k centre(%c : tensor<80xf16>) {scan_bits = 4 : i64, quant_block = 128 : i64}
      : tensor<256x64xf16> -> tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xf16>
  return
}

// -----

func.func @split_o3_element(%k: tensor<256x64xf16>, %c: tensor<64xbf16>) {
  // expected-error @below {{'ffd.split' op operand 'centre' has element type 'bf16', expected 'f16' (split_o3)}}
  %codes, %residuals, %scales = ffd.split %k centre(%c : tensor<64xbf16>) {scan_bits = 4 : i64, quant_block = 128 : i64}
      : tensor<256x64xf16> -> tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xf16>
  return
}

// -----

#s = #ffd.spec<head_dim = 80, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16, centre = row>
// CHECK-LABEL: @view
func.func @view(%th: memref<?x?x3264xi8>, %re: memref<?x?x12288xi8>, %va: memref<?x?x8192xf16>, %sx: memref<?x?x96xf16>,
    %tk: memref<?x?x?x80xf16>, %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %c: memref<?x2x80xf16>) -> !ffd.cache<#s> {
  // CHECK: ffd.cache.view {{.*}} lag(%{{.*}}) centre(%{{.*}} : memref<?x2x80xf16>) :
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag) centre(%c : memref<?x2x80xf16>)
      : memref<?x?x3264xi8>, memref<?x?x12288xi8>, memref<?x?x8192xf16>, memref<?x?x96xf16>,
        memref<?x?x?x80xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return %cache : !ffd.cache<#s>
}

// -----

#s = #ffd.spec<head_dim = 80, element = f16, centre = row>
func.func @cache_c1(%b: memref<?x?x?xi8>, %e: memref<?x?x?xf16>, %t: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32, %c: memref<?x?x96xf16>) {
  // expected-error @below {{'ffd.cache.view' op operand 'centre' has size 96 in axis 2, expected head_dim = 80 (cache_c1)}}
  %cache = ffd.cache.view thumbnails(%b) residuals(%b) values(%e) smax(%e) tails(%t, %t) pages(%pt) lengths(%ln) lag(%lag) centre(%c : memref<?x?x96xf16>)
      : memref<?x?x?xi8>, memref<?x?x?xi8>, memref<?x?x?xf16>, memref<?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return
}

// -----

#s = #ffd.spec<element = f16, centre = row>
func.func @cache_c2(%b: memref<?x?x?xi8>, %e: memref<?x?x?xf16>, %t: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32, %c: memref<?x?x?xbf16>) {
  // expected-error @below {{'ffd.cache.view' op operand 'centre' has element type 'bf16', expected 'f16' (cache_c2)}}
  %cache = ffd.cache.view thumbnails(%b) residuals(%b) values(%e) smax(%e) tails(%t, %t) pages(%pt) lengths(%ln) lag(%lag) centre(%c : memref<?x?x?xbf16>)
      : memref<?x?x?xi8>, memref<?x?x?xi8>, memref<?x?x?xf16>, memref<?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return
}

// -----

#s = #ffd.spec<element = f16, centre = row>
func.func @cache_c4_none(%b: memref<?x?x?xi8>, %e: memref<?x?x?xf16>, %t: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) {
  // expected-error @below {{'ffd.cache.view' op has no centre with the spec #ffd.spec<element = f16, centre = row>, expected one exactly where that has centre = row (cache_c4)}}
  %cache = ffd.cache.view thumbnails(%b) residuals(%b) values(%e) smax(%e) tails(%t, %t) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x?xi8>, memref<?x?x?xi8>, memref<?x?x?xf16>, memref<?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return
}

// -----

#s = #ffd.spec<element = f16>
func.func @cache_c4_some(%b: memref<?x?x?xi8>, %e: memref<?x?x?xf16>, %t: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32, %c: memref<?x?x?xf16>) {
  // expected-error @below {{'ffd.cache.view' op has a centre with the spec #ffd.spec<element = f16>, expected one exactly where that has centre = row (cache_c4)}}
  %cache = ffd.cache.view thumbnails(%b) residuals(%b) values(%e) smax(%e) tails(%t, %t) pages(%pt) lengths(%ln) lag(%lag) centre(%c : memref<?x?x?xf16>)
      : memref<?x?x?xi8>, memref<?x?x?xi8>, memref<?x?x?xf16>, memref<?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return
}
