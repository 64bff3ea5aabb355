// RUN: ffd-opt %s --ffd-specialize="head-dim=128" --verify-diagnostics --split-input-file

// An option against a shape.
func.func @option(%q: memref<1x1x64xf16>, %k: memref<1x1x?x64xf16>, %n: memref<1xi32>, %sm: f32,
    %o: memref<1x1x64xf32>, %l: memref<1x1xf32>) {
  // expected-error @below {{'ffd.spec' has head_dim = 64, but option 'head-dim' gives 128; expected one value}}
  ffd.exact #ffd.spec<> ins(%q, %k, %k, %n, %sm : memref<1x1x64xf16>, memref<1x1x?x64xf16>, memref<1x1x?x64xf16>, memref<1xi32>)
      outs(%o, %l : memref<1x1x64xf32>, memref<1x1xf32>)
  return
}

// -----

// An option against the spec.
func.func @spec(%q: memref<1x1x?xf16>, %k: memref<1x1x?x?xf16>, %n: memref<1xi32>, %sm: f32,
    %o: memref<1x1x?xf32>, %l: memref<1x1xf32>) {
  // expected-error @below {{'ffd.spec' has head_dim = 96, but option 'head-dim' gives 128; expected one value}}
  ffd.exact #ffd.spec<head_dim = 96> ins(%q, %k, %k, %n, %sm : memref<1x1x?xf16>, memref<1x1x?x?xf16>, memref<1x1x?x?xf16>, memref<1xi32>)
      outs(%o, %l : memref<1x1x?xf32>, memref<1x1xf32>)
  return
}

// -----

// Two ops that share a spec.
#s = #ffd.spec<>
func.func @shapes(%q: memref<1x4x128xf16>, %q1: memref<1x4x64xf16>, %cache: !ffd.cache<#s>, %b: memref<1x4x?xi32>) {
  ffd.scan ins(%q, %cache : memref<1x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<1x4x?xi32>)
  // expected-error @below {{'ffd.spec' has head_dim = 128, but operand 'query' gives 64; expected one value}}
  ffd.scan ins(%q1, %cache : memref<1x4x64xf16>, !ffd.cache<#s>) outs(%b : memref<1x4x?xi32>)
  return
}

// -----

// Two groups.
#s = #ffd.spec<>
func.func @groups(%b: tensor<1x8x?xi32>, %pm: tensor<1x8xi32>, %u: tensor<1x8xf32>, %d: tensor<1xf32>, %cache: !ffd.cache<#s>, %m0: tensor<1x4x?xi8>, %m1: tensor<1x2x?xi8>) {
  %0 = ffd.select #ffd.all ins(%b, %pm, %u, %d, %cache : tensor<1x8x?xi32>, tensor<1x8xi32>, tensor<1x8xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x4x?xi8>) -> tensor<1x4x?xi8>
  // expected-error @below {{'ffd.spec' has group = 2, but the number of heads gives 4; expected one value}}
  %1 = ffd.select #ffd.all ins(%b, %pm, %u, %d, %cache : tensor<1x8x?xi32>, tensor<1x8xi32>, tensor<1x8xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m1 : tensor<1x2x?xi8>) -> tensor<1x2x?xi8>
  return
}

// -----

// Two element types.
#s = #ffd.spec<>
func.func @elements(%q: memref<1x4x128xf16>, %q1: memref<1x4x128xbf16>, %cache: !ffd.cache<#s>, %b: memref<1x4x?xi32>) {
  ffd.scan ins(%q, %cache : memref<1x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<1x4x?xi32>)
  // expected-error @below {{'ffd.spec' has element = 'f16', but operand 'query' gives 'bf16'; expected one type}}
  ffd.scan ins(%q1, %cache : memref<1x4x128xbf16>, !ffd.cache<#s>) outs(%b : memref<1x4x?xi32>)
  return
}

// -----

// Nothing says how large the group is.
#s = #ffd.spec<>
func.func @no_group(%q: memref<1x4x128xf16>, %cache: !ffd.cache<#s>, %b: memref<1x4x?xi32>) {
  // expected-error @below {{'ffd.spec' has no group, expected it from static shapes or from an option of --ffd-specialize}}
  ffd.scan ins(%q, %cache : memref<1x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<1x4x?xi32>)
  return
}

// -----

// Nor that a shape will do.
#s = #ffd.spec<>
func.func @group_too_large(%q: memref<1x32x128xf16>, %cache: !ffd.cache<#s>, %m: memref<1x1x?xi8>, %sm: f32, %o: memref<1x32x128xf32>, %l: memref<1x32xf32>) {
  // expected-error @below {{group is 32, expected 1..16 (spec_c2)}}
  ffd.attend ins(%q, %cache, %m, %sm : memref<1x32x128xf16>, !ffd.cache<#s>, memref<1x1x?xi8>)
      outs(%o, %l : memref<1x32x128xf32>, memref<1x32xf32>)
  return
}

// -----

// A plane that contradicts the spec that results.
#s = #ffd.spec<group = 4>
func.func @plane(%th: memref<?x?x1000xi8>, %re: memref<?x?x?xi8>,
    %va: memref<?x?x?xf16>, %sx: memref<?x?x?xf16>, %tk: memref<?x?x?x?xf16>,
    %tv: memref<?x?x?x?xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32) {
  // expected-error @below {{'ffd.cache.view' op operand 'thumbnails' has size 1000 in axis 2, expected bytes of a thumbnail block = 4352 (cache_c1)}}
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x1000xi8>, memref<?x?x?xi8>, memref<?x?x?xf16>, memref<?x?x?xf16>,
        memref<?x?x?x?xf16>, memref<?x?x?x?xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  return
}
