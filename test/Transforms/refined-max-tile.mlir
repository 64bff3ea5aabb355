// RUN: ffd-opt %s --ffd-tile | FileCheck %s --check-prefix=TILE

// Tile programs with a refined pseudo-max: the candidates are scanned with their
// residuals, and both ends of the row are kept.

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>

// TILE-LABEL: func.func @on_memrefs(
// TILE: %[[N:.*]], %{{.*}} = ffd.tile.extent
// TILE: ffd.tile.distribute candidates(%[[N]] : index) combine max {
// TILE: ^bb0(%[[B:.*]]: index):
// TILE: %[[X:.*]] = ffd.tile.load_thumbnail %[[C:.*]][%[[ROW:.*]], %[[B]]]
// TILE: %[[ALL:.*]] = ffd.tile.full
// TILE: %[[R:.*]] = ffd.tile.load_body %[[C]][%[[ROW]], %[[B]]] mask(%[[ALL]])
// TILE: ffd.tile.scan %{{.*}}, %[[X]], %[[R]]
// TILE: ffd.tile.distribute share
// TILE: ^bb0(%[[S:.*]]: index):
// TILE: ffd.tile.scan %{{.*}}, %{{[0-9]+}} :
// TILE: %[[M:.*]] = ffd.tile.reach
// TILE: %[[KEPT:.*]] = ffd.tile.keep_ends %[[M]], %[[S]] of %[[N]]
// TILE: ffd.tile.store_kept %[[KEPT]],
// TILE: ffd.tile.yield %[[KEPT]]
func.func @on_memrefs(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>) {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.decode #ffd.top_delta<pseudo_max = refined>
      ins(%q, %cache, %delta, %sm : memref<?x4x128xf16>, !ffd.cache<#s>, memref<?xf32>)
      outs(%o, %l, %m : memref<?x4x64xf32>, memref<?x4xf32>, memref<?x1x?xi8>)
  return
}
