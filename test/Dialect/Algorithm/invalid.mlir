// RUN: ffd-opt %s --verify-diagnostics --split-input-file

// split_o1: tokens.
func.func @split_o1_tokens(%k: tensor<200x64xf16>) {
  // expected-error @below {{'ffd.split' op operand 'keys' has 200 tokens, expected a multiple of quant_block = 128 (split_o1)}}
  // expected-error @below {{'ffd.split' op failed to infer returned types}}
  %c, %r, %s = ffd.split %k {scan_bits = 2 : i64, quant_block = 128 : i64}
      : tensor<200x64xf16> -> tensor<200x64xi8>, tensor<200x64xi8>, tensor<1x64xf16>
  return
}

// -----

// split_o1: block.
func.func @split_o1_block(%k: tensor<256x64xf16>) {
  // expected-error @below {{'ffd.split' op attribute 'quant_block' is 0, expected at least 1 (split_o1)}}
  // expected-error @below {{'ffd.split' op failed to infer returned types}}
  %c, %r, %s = ffd.split %k {scan_bits = 2 : i64, quant_block = 0 : i64}
      : tensor<256x64xf16> -> tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xf16>
  return
}

// -----

// split_o1: result types follow from the keys.
func.func @split_o1_result(%k: tensor<256x64xf16>) {
  // expected-error @below {{'ffd.split' op inferred type(s) 'tensor<256x64xi8>', 'tensor<256x64xi8>', 'tensor<2x64xf16>' are incompatible with return type(s)}}
  // expected-error @below {{'ffd.split' op failed to infer returned types}}
  %c, %r, %s = ffd.split %k {scan_bits = 2 : i64, quant_block = 128 : i64}
      : tensor<256x64xf16> -> tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xbf16>
  return
}

// -----

// split_o2
func.func @split_o2(%k: tensor<256x64xf16>) {
  // expected-error @below {{'ffd.split' op attribute 'scan_bits' is 3, expected 2, 4 or 8 (split_o2)}}
  %c, %r, %s = ffd.split %k {scan_bits = 3 : i64, quant_block = 128 : i64}
      : tensor<256x64xf16> -> tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xf16>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// cache_c1: a plane packed for another head dim.
func.func @cache_c1_thumbnails(%th: memref<?x?x2176xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) {
  // expected-error @below {{'ffd.cache.view' op operand 'thumbnails' has size 2176 in axis 2, expected bytes of a thumbnail block = 4352 (cache_c1)}}
  %c = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x2176xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// cache_c1: every other plane.
func.func @cache_c1_residuals(%th: memref<?x?x?xi8>, %re: memref<?x?x1xi8>,
    %va: memref<?x?x?xf16>, %sx: memref<?x?x?xf16>, %tk: memref<?x?x?x?xf16>,
    %tv: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) {
  // expected-error @below {{'ffd.cache.view' op operand 'residuals' has size 1 in axis 2, expected bytes of a residual block = 16384 (cache_c1)}}
  %c = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x?xi8>, memref<?x?x1xi8>, memref<?x?x?xf16>, memref<?x?x?xf16>,
        memref<?x?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @cache_c1_values(%th: memref<?x?x?xi8>, %re: memref<?x?x?xi8>,
    %va: memref<?x?x1xf16>, %sx: memref<?x?x?xf16>, %tk: memref<?x?x?x?xf16>,
    %tv: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) {
  // expected-error @below {{'ffd.cache.view' op operand 'values' has size 1 in axis 2, expected elements of a value block = 8192 (cache_c1)}}
  %c = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x?xi8>, memref<?x?x?xi8>, memref<?x?x1xf16>, memref<?x?x?xf16>,
        memref<?x?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return
}

// -----

// 80 channels are padded to 96.
#s = #ffd.spec<head_dim = 80, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @cache_c1_smax(%th: memref<?x?x?xi8>, %re: memref<?x?x?xi8>,
    %va: memref<?x?x?xf16>, %sx: memref<?x?x80xf16>, %tk: memref<?x?x?x?xf16>,
    %tv: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) {
  // expected-error @below {{'ffd.cache.view' op operand 'smax' has size 80 in axis 2, expected padded head_dim = 96 (cache_c1)}}
  %c = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x?xi8>, memref<?x?x?xi8>, memref<?x?x?xf16>, memref<?x?x80xf16>,
        memref<?x?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return
}

// -----

// Tails have no padding, and sizes that the spec knows are checked even while
// others are unknown.
#s = #ffd.spec<head_dim = 80>
func.func @cache_c1_tail_k(%th: memref<?x?x?xi8>, %re: memref<?x?x?xi8>,
    %va: memref<?x?x?xf16>, %sx: memref<?x?x?xf16>, %tk: memref<?x?x?x96xf16>,
    %tv: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) {
  // expected-error @below {{'ffd.cache.view' op operand 'tail_k' has size 96 in axis 3, expected head_dim = 80 (cache_c1)}}
  %c = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x?xi8>, memref<?x?x?xi8>, memref<?x?x?xf16>, memref<?x?x?xf16>,
        memref<?x?x?x96xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return
}

// -----

#s = #ffd.spec<value_dim = 64>
func.func @cache_c1_tail_v(%th: memref<?x?x?xi8>, %re: memref<?x?x?xi8>,
    %va: memref<?x?x?xf16>, %sx: memref<?x?x?xf16>, %tk: memref<?x?x?x?xf16>,
    %tv: memref<?x?x?x128xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) {
  // expected-error @below {{'ffd.cache.view' op operand 'tail_v' has size 128 in axis 3, expected value_dim = 64 (cache_c1)}}
  %c = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x?xi8>, memref<?x?x?xi8>, memref<?x?x?xf16>, memref<?x?x?xf16>,
        memref<?x?x?x?xf16>, memref<?x?x?x128xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return
}

// -----

#s = #ffd.spec<element = f16>
func.func @cache_c2(%th: memref<?x?x?xi8>, %re: memref<?x?x?xi8>,
    %va: memref<?x?x?xf16>, %sx: memref<?x?x?xbf16>, %tk: memref<?x?x?x?xf16>,
    %tv: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) {
  // expected-error @below {{'ffd.cache.view' op operand 'smax' has element type 'bf16', expected 'f16' (cache_c2)}}
  %c = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x?xi8>, memref<?x?x?xi8>, memref<?x?x?xf16>, memref<?x?x?xbf16>,
        memref<?x?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return
}

// -----

#s = #ffd.spec<element = f16>
func.func @cache_c3(%th: memref<?x?x?xi8>, %re: memref<?x?x?xi8, strided<[?, ?, 1]>>,
    %va: memref<?x?x?xf16>, %sx: memref<?x?x?xf16>, %tk: memref<?x?x?x?xf16>,
    %tv: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) {
  // expected-error @below {{'ffd.cache.view' op operand 'residuals' has layout strided<[?, ?, 1]>, expected it to be contiguous (cache_c3)}}
  %c = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x?xi8>, memref<?x?x?xi8, strided<[?, ?, 1]>>, memref<?x?x?xf16>, memref<?x?x?xf16>,
        memref<?x?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, group = 4, element = f16>
// pseudo_max_c1: head dim.
func.func @pseudo_max_c1_head_dim(%q: tensor<1x4x96xf16>, %c: !ffd.cache<#s>, %sm: f32, %a: tensor<1x4xi32>, %b: tensor<1x4xf32>) {
  // expected-error @below {{'ffd.pseudo_max' op operand 'query' has size 96 in axis 2, expected head_dim = 128 (pseudo_max_c1)}}
  %0, %1 = ffd.pseudo_max ins(%q, %c, %sm : tensor<1x4x96xf16>, !ffd.cache<#s>)
      outs(%a, %b : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, group = 4, element = f16>
// pseudo_max_c1: heads.
func.func @pseudo_max_c1_heads(%q: tensor<1x6x128xf16>, %c: !ffd.cache<#s>, %sm: f32, %a: tensor<1x6xi32>, %b: tensor<1x6xf32>) {
  // expected-error @below {{'ffd.pseudo_max' op operand 'query' has 6 heads, expected a multiple of group = 4 (pseudo_max_c1)}}
  %0, %1 = ffd.pseudo_max ins(%q, %c, %sm : tensor<1x6x128xf16>, !ffd.cache<#s>)
      outs(%a, %b : tensor<1x6xi32>, tensor<1x6xf32>) -> tensor<1x6xi32>, tensor<1x6xf32>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, group = 4, element = f16>
// pseudo_max_c1: element type.
func.func @pseudo_max_c1_element(%q: tensor<1x4x128xbf16>, %c: !ffd.cache<#s>, %sm: f32, %a: tensor<1x4xi32>, %b: tensor<1x4xf32>) {
  // expected-error @below {{'ffd.pseudo_max' op operand 'query' has element type 'bf16', expected 'f16' (pseudo_max_c1)}}
  %0, %1 = ffd.pseudo_max ins(%q, %c, %sm : tensor<1x4x128xbf16>, !ffd.cache<#s>)
      outs(%a, %b : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, group = 4, element = f16>
// pseudo_max_c1: the outputs agree even where the query does not know.
func.func @pseudo_max_c1_outputs(%q: tensor<?x?x128xf16>, %c: !ffd.cache<#s>, %sm: f32, %a: tensor<2x4xi32>, %b: tensor<3x4xf32>) {
  // expected-error @below {{'ffd.pseudo_max' op operand 'unit' has size 3 in axis 0, expected batch = 2 (pseudo_max_c1)}}
  %0, %1 = ffd.pseudo_max ins(%q, %c, %sm : tensor<?x?x128xf16>, !ffd.cache<#s>)
      outs(%a, %b : tensor<2x4xi32>, tensor<3x4xf32>) -> tensor<2x4xi32>, tensor<3x4xf32>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, group = 4, element = f16>
// scan_o1
func.func @scan_o1(%q: tensor<1x4x128xf16>, %c: !ffd.cache<#s>, %b: tensor<1x8x?xi32>) {
  // expected-error @below {{'ffd.scan' op operand 'best' has size 8 in axis 1, expected query heads = 4 (scan_o1)}}
  %0 = ffd.scan ins(%q, %c : tensor<1x4x128xf16>, !ffd.cache<#s>) outs(%b : tensor<1x8x?xi32>) -> tensor<1x8x?xi32>
  return
}

// -----

#s = #ffd.spec<group = 4>
// select_o1: kv heads.
func.func @select_o1_kv_heads(%b: tensor<1x8x?xi32>, %pm: tensor<1x8xi32>, %u: tensor<1x8xf32>, %d: tensor<1xf32>, %c: !ffd.cache<#s>, %m: tensor<1x4x?xi8>) {
  // expected-error @below {{'ffd.select' op operand 'mask' has size 4 in axis 1, expected kv heads = 2 (select_o1)}}
  %0 = ffd.select #ffd.all ins(%b, %pm, %u, %d, %c : tensor<1x8x?xi32>, tensor<1x8xi32>, tensor<1x8xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m : tensor<1x4x?xi8>) -> tensor<1x4x?xi8>
  return
}

// -----

#s = #ffd.spec<group = 4>
// select_o1: heads.
func.func @select_o1_heads(%b: tensor<1x6x?xi32>, %pm: tensor<1x6xi32>, %u: tensor<1x6xf32>, %d: tensor<1xf32>, %c: !ffd.cache<#s>, %m: tensor<1x?x?xi8>) {
  // expected-error @below {{'ffd.select' op operand 'best' has 6 heads, expected a multiple of group = 4 (select_o1)}}
  %0 = ffd.select #ffd.all ins(%b, %pm, %u, %d, %c : tensor<1x6x?xi32>, tensor<1x6xi32>, tensor<1x6xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m : tensor<1x?x?xi8>) -> tensor<1x?x?xi8>
  return
}

// -----

#s = #ffd.spec<group = 4>
// select_o1: blocks.
func.func @select_o1_blocks(%b: tensor<1x4x64xi32>, %pm: tensor<1x4xi32>, %u: tensor<1x4xf32>, %d: tensor<1xf32>, %c: !ffd.cache<#s>, %m: tensor<1x1x32xi8>) {
  // expected-error @below {{'ffd.select' op operand 'mask' has size 32 in axis 2, expected blocks = 64 (select_o1)}}
  %0 = ffd.select #ffd.top_delta ins(%b, %pm, %u, %d, %c : tensor<1x4x64xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m : tensor<1x1x32xi8>) -> tensor<1x1x32xi8>
  return
}

// -----

#s = #ffd.spec<group = 4>
// select_o1: one delta per sequence.
func.func @select_o1_delta(%b: tensor<2x4x?xi32>, %pm: tensor<2x4xi32>, %u: tensor<2x4xf32>, %d: tensor<1xf32>, %c: !ffd.cache<#s>, %m: tensor<2x1x?xi8>) {
  // expected-error @below {{'ffd.select' op operand 'delta' has size 1 in axis 0, expected batch = 2 (select_o1)}}
  %0 = ffd.select #ffd.top_delta ins(%b, %pm, %u, %d, %c : tensor<2x4x?xi32>, tensor<2x4xi32>, tensor<2x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m : tensor<2x1x?xi8>) -> tensor<2x1x?xi8>
  return
}

// -----

#s = #ffd.spec<>
// The selector is one of four attributes.
func.func @select_selector(%b: tensor<1x4x?xi32>, %pm: tensor<1x4xi32>, %u: tensor<1x4xf32>, %d: tensor<1xf32>, %c: !ffd.cache<#s>, %m: tensor<1x1x?xi8>) {
  // expected-error @below {{'ffd.select' op attribute 'selector' failed to satisfy constraint: a selector}}
  %0 = ffd.select "newest" ins(%b, %pm, %u, %d, %c : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4>
// attend_o1: value dim.
func.func @attend_o1_value_dim(%q: tensor<1x4x128xf16>, %c: !ffd.cache<#s>, %m: tensor<1x1x?xi8>, %sm: f32, %o: tensor<1x4x128xf32>, %l: tensor<1x4xf32>) {
  // expected-error @below {{'ffd.attend' op operand 'out' has size 128 in axis 2, expected value_dim = 64 (attend_o1)}}
  %0, %1 = ffd.attend ins(%q, %c, %m, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o, %l : tensor<1x4x128xf32>, tensor<1x4xf32>) -> tensor<1x4x128xf32>, tensor<1x4xf32>
  return
}

// -----

#s = #ffd.spec<group = 4>
// attend_o1: heads of mask and output, where the query does not know.
func.func @attend_o1_heads(%q: tensor<1x?x128xf16>, %c: !ffd.cache<#s>, %m: tensor<1x2x?xi8>, %sm: f32, %o: tensor<1x4x128xf32>, %l: tensor<1x4xf32>) {
  // expected-error @below {{'ffd.attend' op operand 'out' has 4 heads, expected group * kv heads = 8 (attend_o1)}}
  %0, %1 = ffd.attend ins(%q, %c, %m, %sm : tensor<1x?x128xf16>, !ffd.cache<#s>, tensor<1x2x?xi8>)
      outs(%o, %l : tensor<1x4x128xf32>, tensor<1x4xf32>) -> tensor<1x4x128xf32>, tensor<1x4xf32>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4>
// decode_c1
func.func @decode_c1(%q: tensor<1x4x128xf16>, %c: !ffd.cache<#s>, %d: tensor<1xf32>, %sm: f32, %o: tensor<1x4x128xf32>, %l: tensor<1x4xf32>, %m: tensor<1x4x?xi8>) {
  // expected-error @below {{'ffd.decode' op operand 'kept' has size 4 in axis 1, expected kv heads = 1 (decode_c1)}}
  %0, %1, %2 = ffd.decode #ffd.top_delta ins(%q, %c, %d, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1xf32>)
      outs(%o, %l, %m : tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x4x?xi8>)
      -> tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x4x?xi8>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4>
// decode_c2
func.func @decode_c2(%q: memref<1x4x128xf16>, %c: !ffd.cache<#s>, %d: memref<1xf32>, %sm: f32, %o: memref<1x4x128xf32>, %l: memref<1x4xf32>, %m: memref<1x1x?xi8>) {
  // expected-error @below {{'ffd.decode' op selector #ffd.top_k<64> needs a pass over the whole row, expected #ffd.top_delta or #ffd.all (decode_c2)}}
  ffd.decode #ffd.top_k<64> ins(%q, %c, %d, %sm : memref<1x4x128xf16>, !ffd.cache<#s>, memref<1xf32>)
      outs(%o, %l, %m : memref<1x4x128xf32>, memref<1x4xf32>, memref<1x1x?xi8>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4>
// exact_c1: head dim.
func.func @exact_c1_head_dim(%q: memref<1x4x128xf16>, %k: memref<1x1x?x64xf16>, %v: memref<1x1x?x128xf16>, %n: memref<1xi32>, %sm: f32, %o: memref<1x4x128xf32>, %l: memref<1x4xf32>) {
  // expected-error @below {{'ffd.exact' op operand 'keys' has size 64 in axis 3, expected head_dim = 128 (exact_c1)}}
  ffd.exact #s ins(%q, %k, %v, %n, %sm : memref<1x4x128xf16>, memref<1x1x?x64xf16>, memref<1x1x?x128xf16>, memref<1xi32>)
      outs(%o, %l : memref<1x4x128xf32>, memref<1x4xf32>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4>
// exact_c1: tokens.
func.func @exact_c1_tokens(%q: memref<1x4x128xf16>, %k: memref<1x1x256x128xf16>, %v: memref<1x1x128x128xf16>, %n: memref<1xi32>, %sm: f32, %o: memref<1x4x128xf32>, %l: memref<1x4xf32>) {
  // expected-error @below {{'ffd.exact' op operand 'values' has size 128 in axis 2, expected tokens = 256 (exact_c1)}}
  ffd.exact #s ins(%q, %k, %v, %n, %sm : memref<1x4x128xf16>, memref<1x1x256x128xf16>, memref<1x1x128x128xf16>, memref<1xi32>)
      outs(%o, %l : memref<1x4x128xf32>, memref<1x4xf32>)
  return
}

// -----

#s = #ffd.spec<>
// exact_c2
func.func @exact_c2(%q: memref<1x4x128xf16>, %k: memref<1x1x?x128xbf16>, %v: memref<1x1x?x128xf16>, %n: memref<1xi32>, %sm: f32, %o: memref<1x4x128xf32>, %l: memref<1x4xf32>) {
  // expected-error @below {{'ffd.exact' op operand 'keys' has element type 'bf16', expected 'f16' (exact_c2)}}
  ffd.exact #s ins(%q, %k, %v, %n, %sm : memref<1x4x128xf16>, memref<1x1x?x128xbf16>, memref<1x1x?x128xf16>, memref<1xi32>)
      outs(%o, %l : memref<1x4x128xf32>, memref<1x4xf32>)
  return
}

// -----

#s = #ffd.spec<>
// row_c1: one kind of inits.
func.func @row_c1_mixed(%q: tensor<1x4x128xf16>, %c: !ffd.cache<#s>, %sm: f32, %a: memref<1x4xi32>, %b: tensor<1x4xf32>) {
  // expected-error @below {{'ffd.pseudo_max' op mixes tensors and memrefs in outs(), expected one kind (row_c1)}}
  %0 = "ffd.pseudo_max"(%q, %c, %sm, %a, %b) {resultSegmentSizes = array<i32: 0, 1>}
      : (tensor<1x4x128xf16>, !ffd.cache<#s>, f32, memref<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xf32>
  return
}

// -----

#s = #ffd.spec<>
// row_c1: tensors have results.
func.func @row_c1_no_result(%q: tensor<1x4x128xf16>, %c: !ffd.cache<#s>, %b: tensor<1x4x?xi32>) {
  // expected-error @below {{'ffd.scan' op expected the number of tensor results (0) to be equal to the number of output tensors (1)}}
  ffd.scan ins(%q, %c : tensor<1x4x128xf16>, !ffd.cache<#s>) outs(%b : tensor<1x4x?xi32>)
  return
}

// -----

#s = #ffd.spec<>
// row_c1: memrefs have none.
func.func @row_c1_result(%q: tensor<1x4x128xf16>, %c: !ffd.cache<#s>, %b: memref<1x4x?xi32>) {
  // expected-error @below {{'ffd.scan' op expected the number of tensor results (1) to be equal to the number of output tensors (0)}}
  %0 = ffd.scan ins(%q, %c : tensor<1x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<1x4x?xi32>) -> tensor<1x4x?xi32>
  return
}

// -----

#s = #ffd.spec<>
// row_c1: of the type of the init.
func.func @row_c1_result_type(%q: tensor<1x4x128xf16>, %c: !ffd.cache<#s>, %b: tensor<1x4x?xi32>) {
  // expected-error @below {{'ffd.scan' op expected type of operand #2 ('tensor<1x4x?xi32>') to match type of corresponding result ('tensor<1x4x64xi32>')}}
  %0 = ffd.scan ins(%q, %c : tensor<1x4x128xf16>, !ffd.cache<#s>) outs(%b : tensor<1x4x?xi32>) -> tensor<1x4x64xi32>
  return
}

// -----

#s = #ffd.spec<>
// Ranks and element types are those of the op's description.
func.func @rank(%q: tensor<4x128xf16>, %c: !ffd.cache<#s>, %b: tensor<1x4x?xi32>) {
  // expected-error @below {{'ffd.scan' op operand #0 must be 3D tensor of 16-bit float or bfloat16 type values or 3D memref of 16-bit float or bfloat16 type values}}
  %0 = ffd.scan ins(%q, %c : tensor<4x128xf16>, !ffd.cache<#s>) outs(%b : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, group = 4, element = f16, scan_bits = 2, residual_bits = 0>
// pseudo_max_c2
func.func @pseudo_max_c2(%q: tensor<1x4x128xf16>, %c: !ffd.cache<#s>, %sm: f32, %a: tensor<1x4xi32>, %b: tensor<1x4xf32>) {
  // expected-error @below {{'ffd.pseudo_max' op takes a refined pseudo-max from a cache with residual_bits = 0, expected residuals (pseudo_max_c2)}}
  %0, %1 = ffd.pseudo_max refined ins(%q, %c, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%a, %b : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, group = 4, element = f16, scan_bits = 16, residual_bits = 0>
// select_o2
func.func @select_o2(%b: tensor<1x4x?xi32>, %pm: tensor<1x4xi32>, %u: tensor<1x4xf32>, %d: tensor<1xf32>, %c: !ffd.cache<#s>, %m: tensor<1x1x?xi8>) {
  // expected-error @below {{'ffd.select' op takes a refined pseudo-max from a cache with residual_bits = 0, expected residuals (select_o2)}}
  %0 = ffd.select #ffd.top_delta<pseudo_max = refined>
      ins(%b, %pm, %u, %d, %c : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 4, residual_bits = 0>
// decode_c3
func.func @decode_c3(%q: memref<1x4x128xf16>, %c: !ffd.cache<#s>, %delta: memref<1xf32>, %sm: f32,
    %o: memref<1x4x128xf32>, %l: memref<1x4xf32>, %m: memref<1x1x?xi8>) {
  // expected-error @below {{'ffd.decode' op takes a refined pseudo-max from a cache with residual_bits = 0, expected residuals (decode_c3)}}
  ffd.decode #ffd.top_delta<pseudo_max = refined>
      ins(%q, %c, %delta, %sm : memref<1x4x128xf16>, !ffd.cache<#s>, memref<1xf32>)
      outs(%o, %l, %m : memref<1x4x128xf32>, memref<1x4xf32>, memref<1x1x?xi8>)
  return
}
