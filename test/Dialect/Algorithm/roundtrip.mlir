// RUN: ffd-opt %s | ffd-opt | FileCheck %s
// RUN: ffd-opt %s --mlir-print-op-generic | ffd-opt | FileCheck %s

// The spec prints once, as an alias.
// CHECK: #spec = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>

// CHECK-LABEL: @split
func.func @split(%k: tensor<256x64xbf16>) -> tensor<2x64xbf16> {
  // CHECK: ffd.split %{{.*}} {quant_block = 128 : i64, scan_bits = 4 : i64} : tensor<256x64xbf16> -> tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xbf16>
  %codes, %residuals, %scales = ffd.split %k {scan_bits = 4 : i64, quant_block = 128 : i64}
      : tensor<256x64xbf16> -> tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xbf16>
  return %scales : tensor<2x64xbf16>
}

// CHECK-LABEL: @steps
func.func @steps(%q: tensor<1x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: tensor<1xf32>, %sm: f32, %pm0: tensor<1x4xi32>, %u0: tensor<1x4xf32>,
    %b0: tensor<1x4x?xi32>, %m0: tensor<1x1x?xi8>, %o0: tensor<1x4x64xf32>, %l0: tensor<1x4xf32>)
    -> (tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>) {
  // CHECK: ffd.cache.view thumbnails(%{{.*}}) residuals(%{{.*}}) values(%{{.*}}) smax(%{{.*}}) tails(%{{.*}}, %{{.*}}) pages(%{{.*}}) lengths(%{{.*}}) lag(%{{.*}})
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>,
        memref<?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x64xf16>,
        memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  // CHECK: ffd.pseudo_max ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<1x4x128xf16>, !ffd.cache<#spec>) outs(%{{.*}}, %{{.*}} : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
  // CHECK: ffd.scan ins(%{{.*}}, %{{.*}} : tensor<1x4x128xf16>, !ffd.cache<#spec>) outs(%{{.*}} : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
      outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
  // CHECK: ffd.select #ffd.top_k<64> ins(
  %top_k = ffd.select #ffd.top_k<64>
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  %top_p = ffd.select #ffd.top_p<8.500000e-01 : f64>
      ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
  // CHECK: ffd.attend ins(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<1x4x128xf16>, !ffd.cache<#spec>, tensor<1x1x?xi8>)
  %o, %l = ffd.attend ins(%q, %cache, %top_k, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
      outs(%o0, %l0 : tensor<1x4x64xf32>, tensor<1x4xf32>) -> tensor<1x4x64xf32>, tensor<1x4xf32>
  // CHECK: ffd.decode #ffd.top_delta ins(
  %o1, %l1, %m1 = ffd.decode #ffd.top_delta
      ins(%q, %cache, %delta, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1xf32>)
      outs(%o, %l, %top_p : tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>)
      -> tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>
  return %o1, %l1, %m1 : tensor<1x4x64xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>
}

// CHECK-LABEL: @exact
func.func @exact(%q: memref<1x4x128xf16>, %k: memref<1x1x?x128xf16>, %v: memref<1x1x?x64xf16>,
    %ln: memref<1xi32>, %sm: f32, %o: memref<1x4x64xf32>, %l: memref<1x4xf32>) {
  // CHECK: ffd.exact #spec ins(
  ffd.exact #s ins(%q, %k, %v, %ln, %sm : memref<1x4x128xf16>, memref<1x1x?x128xf16>, memref<1x1x?x64xf16>, memref<1xi32>)
      outs(%o, %l : memref<1x4x64xf32>, memref<1x4xf32>)
  return
}

// Every op on memrefs: no results.
// CHECK-LABEL: @on_memrefs
func.func @on_memrefs(%q: memref<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: memref<1xf32>, %sm: f32,
    %pm: memref<1x4xi32>, %u: memref<1x4xf32>, %b: memref<1x4x?xi32>, %m: memref<1x1x?xi8>,
    %o: memref<1x4x64xf32>, %l: memref<1x4xf32>) {
  // CHECK: ffd.pseudo_max ins({{.*}}) outs(%{{.*}}, %{{.*}} : memref<1x4xi32>, memref<1x4xf32>){{$}}
  ffd.pseudo_max ins(%q, %cache, %sm : memref<1x4x128xf16>, !ffd.cache<#s>)
      outs(%pm, %u : memref<1x4xi32>, memref<1x4xf32>)
  // CHECK: ffd.scan ins({{.*}}) outs(%{{.*}} : memref<1x4x?xi32>){{$}}
  ffd.scan ins(%q, %cache : memref<1x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<1x4x?xi32>)
  // CHECK: ffd.select #ffd.all ins({{.*}}) outs(%{{.*}} : memref<1x1x?xi8>) {note = "kept"}{{$}}
  ffd.select #ffd.all
      ins(%b, %pm, %u, %delta, %cache : memref<1x4x?xi32>, memref<1x4xi32>, memref<1x4xf32>, memref<1xf32>, !ffd.cache<#s>)
      outs(%m : memref<1x1x?xi8>) {note = "kept"}
  // CHECK: ffd.attend ins({{.*}}) outs(%{{.*}}, %{{.*}} : memref<1x4x64xf32>, memref<1x4xf32>){{$}}
  ffd.attend ins(%q, %cache, %m, %sm : memref<1x4x128xf16>, !ffd.cache<#s>, memref<1x1x?xi8>)
      outs(%o, %l : memref<1x4x64xf32>, memref<1x4xf32>)
  // CHECK: ffd.decode #ffd.all ins({{.*}}) outs(%{{.*}}, %{{.*}}, %{{.*}} : memref<1x4x64xf32>, memref<1x4xf32>, memref<1x1x?xi8>){{$}}
  ffd.decode #ffd.all ins(%q, %cache, %delta, %sm : memref<1x4x128xf16>, !ffd.cache<#s>, memref<1xf32>)
      outs(%o, %l, %m : memref<1x4x64xf32>, memref<1x4xf32>, memref<1x1x?xi8>)
  return
}
