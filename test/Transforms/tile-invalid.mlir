// RUN: ffd-opt %s --ffd-tile --verify-diagnostics --split-input-file

// Sizes must be known.
func.func @incomplete(%q: memref<?x4x128xf16>, %k: memref<?x1x?x128xf16>, %n: memref<?xi32>,
    %sm: f32, %o: memref<?x4x128xf32>, %l: memref<?x4xf32>) {
  // expected-error @below {{'ffd.exact' op has the incomplete spec #ffd.spec<head_dim = 128>, expected --ffd-specialize to have run}}
  ffd.exact #ffd.spec<head_dim = 128> ins(%q, %k, %k, %n, %sm : memref<?x4x128xf16>, memref<?x1x?x128xf16>, memref<?x1x?x128xf16>, memref<?xi32>)
      outs(%o, %l : memref<?x4x128xf32>, memref<?x4xf32>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// Tensors come first.
func.func @tensors(%q: tensor<?x4x128xf16>, %k: memref<?x1x?x128xf16>, %v: memref<?x1x?x64xf16>, %n: memref<?xi32>,
    %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>) {
  // expected-error @below {{'ffd.exact' op has tensor operands, expected memrefs; bufferise first}}
  ffd.exact #s ins(%q, %k, %v, %n, %sm : tensor<?x4x128xf16>, memref<?x1x?x128xf16>, memref<?x1x?x64xf16>, memref<?xi32>)
      outs(%o, %l : memref<?x4x64xf32>, memref<?x4xf32>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// A kernel has planes, not a cache.
func.func @cache_argument(%q: memref<?x4x128xf16>, %cache: !ffd.cache<#s>,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>) {
  // expected-error @below {{'ffd.decode' op operand 'cache' is not the result of 'ffd.cache.view', expected one}}
  ffd.decode #ffd.top_delta ins(%q, %cache, %delta, %sm : memref<?x4x128xf16>, !ffd.cache<#s>, memref<?xf32>)
      outs(%o, %l, %m : memref<?x4x64xf32>, memref<?x4xf32>, memref<?x1x?xi8>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// One team, not one per iteration.
func.func @nested(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>, %n: index) {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  scf.for %i = %n to %n step %n {
    // expected-error @below {{'ffd.decode' op is nested in 'scf.for', expected it in the body of a function}}
    ffd.decode #ffd.top_delta ins(%q, %cache, %delta, %sm : memref<?x4x128xf16>, !ffd.cache<#s>, memref<?xf32>)
        outs(%o, %l, %m : memref<?x4x64xf32>, memref<?x4xf32>, memref<?x1x?xi8>)
  }
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// No control flow.
// expected-error @below {{function 'blocks' has 2 blocks, expected one}}
func.func @blocks(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>) {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.decode #ffd.top_delta ins(%q, %cache, %delta, %sm : memref<?x4x128xf16>, !ffd.cache<#s>, memref<?xf32>)
      outs(%o, %l, %m : memref<?x4x64xf32>, memref<?x4xf32>, memref<?x1x?xi8>)
  cf.br ^next
^next:
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// Results are written, not returned.
// expected-error @below {{function 'result' returns a value of type 'memref<4x4x64xf32>' that is not one of its arguments, expected results to be written into arguments}}
func.func @result(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>) -> memref<4x4x64xf32> {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.decode #ffd.top_delta ins(%q, %cache, %delta, %sm : memref<?x4x128xf16>, !ffd.cache<#s>, memref<?xf32>)
      outs(%o, %l, %m : memref<?x4x64xf32>, memref<?x4xf32>, memref<?x1x?xi8>)
  %r = memref.alloc() : memref<4x4x64xf32>
  return %r : memref<4x4x64xf32>
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// Scores from nowhere.
func.func @no_scan(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>, %n: index) {
  %pm = memref.alloc(%n) : memref<?x4xi32>
  %u = memref.alloc(%n) : memref<?x4xf32>
  %b = memref.alloc(%n, %n) : memref<?x4x?xi32>
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.pseudo_max ins(%q, %cache, %sm : memref<?x4x128xf16>, !ffd.cache<#s>)
      outs(%pm, %u : memref<?x4xi32>, memref<?x4xf32>)
  // expected-error @below {{'ffd.select' op operand 'best' is not written by an 'ffd.scan' before it in its block, expected one}}
  ffd.select #ffd.top_delta ins(%b, %pm, %u, %delta, %cache : memref<?x4x?xi32>, memref<?x4xi32>, memref<?x4xf32>, memref<?xf32>, !ffd.cache<#s>)
      outs(%m : memref<?x1x?xi8>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// A pseudo-max from nowhere.
func.func @no_pseudo_max(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>, %n: index) {
  %pm = memref.alloc(%n) : memref<?x4xi32>
  %u = memref.alloc(%n) : memref<?x4xf32>
  %b = memref.alloc(%n, %n) : memref<?x4x?xi32>
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.scan ins(%q, %cache : memref<?x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<?x4x?xi32>)
  // expected-error @below {{'ffd.select' op operands 'row_max' and 'unit' are not written by one 'ffd.pseudo_max' before it in its block, expected one}}
  ffd.select #ffd.top_delta ins(%b, %pm, %u, %delta, %cache : memref<?x4x?xi32>, memref<?x4xi32>, memref<?x4xf32>, memref<?xf32>, !ffd.cache<#s>)
      outs(%m : memref<?x1x?xi8>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// Two queries.
func.func @two_queries(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>, %n: index, %q1: memref<?x4x128xf16>) {
  %pm = memref.alloc(%n) : memref<?x4xi32>
  %u = memref.alloc(%n) : memref<?x4xf32>
  %b = memref.alloc(%n, %n) : memref<?x4x?xi32>
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.pseudo_max ins(%q, %cache, %sm : memref<?x4x128xf16>, !ffd.cache<#s>)
      outs(%pm, %u : memref<?x4xi32>, memref<?x4xf32>)
  ffd.scan ins(%q1, %cache : memref<?x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<?x4x?xi32>)
  // expected-error @below {{'ffd.select' op and its 'ffd.scan' and 'ffd.pseudo_max' differ in query or cache, expected the same}}
  ffd.select #ffd.top_delta ins(%b, %pm, %u, %delta, %cache : memref<?x4x?xi32>, memref<?x4xi32>, memref<?x4xf32>, memref<?xf32>, !ffd.cache<#s>)
      outs(%m : memref<?x1x?xi8>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// Scores that the caller wants.
func.func @scores_wanted(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>, %n: index, %b: memref<?x4x?xi32>) {
  %pm = memref.alloc(%n) : memref<?x4xi32>
  %u = memref.alloc(%n) : memref<?x4xf32>
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.pseudo_max ins(%q, %cache, %sm : memref<?x4x128xf16>, !ffd.cache<#s>)
      outs(%pm, %u : memref<?x4xi32>, memref<?x4xf32>)
  // expected-error @below {{'ffd.scan' op writes memory that others see, expected a 'memref.alloc' that only 'ffd.select' reads: a kernel keeps scores in registers}}
  ffd.scan ins(%q, %cache : memref<?x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<?x4x?xi32>)
  ffd.select #ffd.top_delta ins(%b, %pm, %u, %delta, %cache : memref<?x4x?xi32>, memref<?x4xi32>, memref<?x4xf32>, memref<?xf32>, !ffd.cache<#s>)
      outs(%m : memref<?x1x?xi8>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// Scores that another op reads.
func.func @scores_read(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>, %n: index) -> i32 {
  %pm = memref.alloc(%n) : memref<?x4xi32>
  %u = memref.alloc(%n) : memref<?x4xf32>
  %b = memref.alloc(%n, %n) : memref<?x4x?xi32>
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  // expected-error @below {{'ffd.pseudo_max' op writes memory that others see, expected a 'memref.alloc' that only 'ffd.select' reads: a kernel keeps scores in registers}}
  ffd.pseudo_max ins(%q, %cache, %sm : memref<?x4x128xf16>, !ffd.cache<#s>)
      outs(%pm, %u : memref<?x4xi32>, memref<?x4xf32>)
  ffd.scan ins(%q, %cache : memref<?x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<?x4x?xi32>)
  ffd.select #ffd.top_delta ins(%b, %pm, %u, %delta, %cache : memref<?x4x?xi32>, memref<?x4xi32>, memref<?x4xf32>, memref<?xf32>, !ffd.cache<#s>)
      outs(%m : memref<?x1x?xi8>)
  %x = memref.load %pm[%n, %n] : memref<?x4xi32>
  return %x : i32
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// Two kernels share no local buffer.
func.func @local_mask(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>, %n: index) {
  %pm = memref.alloc(%n) : memref<?x4xi32>
  %u = memref.alloc(%n) : memref<?x4xf32>
  %b = memref.alloc(%n, %n) : memref<?x4x?xi32>
  %m1 = memref.alloc(%n, %n) : memref<?x1x?xi8>
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.pseudo_max ins(%q, %cache, %sm : memref<?x4x128xf16>, !ffd.cache<#s>)
      outs(%pm, %u : memref<?x4xi32>, memref<?x4xf32>)
  ffd.scan ins(%q, %cache : memref<?x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<?x4x?xi32>)
  ffd.select #ffd.top_delta ins(%b, %pm, %u, %delta, %cache : memref<?x4x?xi32>, memref<?x4xi32>, memref<?x4xf32>, memref<?xf32>, !ffd.cache<#s>)
      outs(%m1 : memref<?x1x?xi8>)
  // expected-error @below {{'ffd.attend' op operand 'mask' is a local buffer, expected an argument of the function: another kernel writes it}}
  ffd.attend ins(%q, %cache, %m1, %sm : memref<?x4x128xf16>, !ffd.cache<#s>, memref<?x1x?xi8>)
      outs(%o, %l : memref<?x4x64xf32>, memref<?x4xf32>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// What is neither kernel would run in both.
func.func @store(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>, %n: index, %x: i32) {
  %pm = memref.alloc(%n) : memref<?x4xi32>
  %u = memref.alloc(%n) : memref<?x4xf32>
  %b = memref.alloc(%n, %n) : memref<?x4x?xi32>
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.pseudo_max ins(%q, %cache, %sm : memref<?x4x128xf16>, !ffd.cache<#s>)
      outs(%pm, %u : memref<?x4xi32>, memref<?x4xf32>)
  ffd.scan ins(%q, %cache : memref<?x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<?x4x?xi32>)
  ffd.select #ffd.top_delta ins(%b, %pm, %u, %delta, %cache : memref<?x4x?xi32>, memref<?x4xi32>, memref<?x4xf32>, memref<?xf32>, !ffd.cache<#s>)
      outs(%m : memref<?x1x?xi8>)
  // expected-error @below {{'memref.store' op writes memory in a function that becomes several kernels, expected row ops only}}
  memref.store %x, %ln[%n] : memref<?xi32>
  ffd.attend ins(%q, %cache, %m, %sm : memref<?x4x128xf16>, !ffd.cache<#s>, memref<?x1x?xi8>)
      outs(%o, %l : memref<?x4x64xf32>, memref<?x4xf32>)
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// Steps of two rules.
func.func @two_kinds(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>, %n: index) {
  %pm = memref.alloc(%n) : memref<?x4xi32>
  %u = memref.alloc(%n) : memref<?x4xf32>
  %b = memref.alloc(%n, %n) : memref<?x4x?xi32>
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.scan ins(%q, %cache : memref<?x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<?x4x?xi32>)
  ffd.pseudo_max ins(%q, %cache, %sm : memref<?x4x128xf16>, !ffd.cache<#s>)
      outs(%pm, %u : memref<?x4xi32>, memref<?x4xf32>)
  // expected-error @below {{'ffd.select' op has the selector #ffd.top_delta<pseudo_max = refined> with the row_max of an 'ffd.pseudo_max' that is not refined, expected one kind of pseudo-max}}
  ffd.select #ffd.top_delta<pseudo_max = refined> ins(%b, %pm, %u, %delta, %cache : memref<?x4x?xi32>, memref<?x4xi32>, memref<?x4xf32>, memref<?xf32>, !ffd.cache<#s>)
      outs(%m : memref<?x1x?xi8>)
  return
}
