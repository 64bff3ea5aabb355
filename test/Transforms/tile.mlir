// RUN: ffd-opt %s --ffd-tile | FileCheck %s

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>

// A decode is one kernel: pseudo-max over sink, last block and tail; threshold;
// work list; softmax over the list and the tail; merge of the pieces.
// CHECK-LABEL: func.func @decode(
// CHECK: %[[C:.*]] = ffd.cache.view
// CHECK: ffd.tile.teams #spec {
// CHECK: ^bb0(%[[ROW:.*]]: index, %[[SPLIT:.*]]: index, %[[SPLITS:.*]]: index):
// CHECK: %[[N:.*]], %[[T:.*]] = ffd.tile.extent %[[C]][%[[ROW]]]
// CHECK: %[[Q:.*]] = ffd.tile.query %{{.*}}[%[[ROW]]] scale(%{{.*}}) cache(%[[C]])
// CHECK: %[[PM0:.*]] = ffd.tile.distribute candidates(%[[N]] : index) combine max {
// CHECK: %[[X:.*]] = ffd.tile.load_thumbnail %[[C]][%[[ROW]], %{{.*}}]
// CHECK: %[[A:.*]] = ffd.tile.scan %[[Q]], %[[X]]
// CHECK: ffd.tile.yield %[[A]]
// CHECK: %[[PM:.*]] = ffd.tile.distribute tail(%[[T]] : index) combine max init(%[[PM0]] : !ffd.row_max<#spec>) {
// CHECK: ffd.tile.load_tail
// CHECK: ffd.tile.dot ordered
// CHECK: ffd.tile.to_units
// CHECK: %[[THR:.*]] = ffd.tile.threshold %[[Q]], %[[PM]], %{{.*}}[%[[ROW]]]
// CHECK: %[[LIST:.*]] = ffd.tile.distribute share(%[[N]], %[[SPLIT]], %[[SPLITS]] : index, index, index) combine append {
// CHECK: %[[M:.*]] = ffd.tile.reach %{{.*}}, %[[THR]]
// CHECK: ffd.tile.store_kept %[[M]], %{{.*}}[%[[ROW]], %{{.*}}]
// CHECK: ffd.tile.yield %[[M]]
// CHECK: %[[S0:.*]] = ffd.tile.init %[[Q]]
// CHECK: %[[S1:.*]] = ffd.tile.distribute worklist(%[[LIST]] : !ffd.worklist<#spec>) combine state init(%[[S0]] : !ffd.state<#spec>) {
// CHECK: ffd.tile.load_body
// CHECK: ffd.tile.refine
// CHECK: ffd.tile.accumulate
// CHECK: %[[S2:.*]] = ffd.tile.distribute tail_share(%[[T]], %[[SPLIT]], %[[SPLITS]] : index, index, index) combine state init(%[[S1]] : !ffd.state<#spec>) {
// CHECK: ffd.tile.dot %
// CHECK: ffd.tile.accumulate
// CHECK: ffd.tile.finish %[[S2]] into %{{.*}}, %{{.*}}[%[[ROW]]] piece(%[[SPLIT]] of %[[SPLITS]])
// CHECK-NOT: ffd.tile.teams
func.func @decode(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>) {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.decode #ffd.top_delta ins(%q, %cache, %delta, %sm : memref<?x4x128xf16>, !ffd.cache<#s>, memref<?xf32>)
      outs(%o, %l, %m : memref<?x4x64xf32>, memref<?x4xf32>, memref<?x1x?xi8>)
  return
}

// Keeping everything needs neither pseudo-max nor threshold.
// CHECK-LABEL: func.func @keep_all(
// CHECK-NOT: ffd.tile.scan
// CHECK-NOT: ffd.tile.threshold
// CHECK: ffd.tile.full
// CHECK: ffd.tile.store_kept
// CHECK: ffd.tile.init %{{[0-9]+}} :
// CHECK: ffd.tile.finish
func.func @keep_all(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>) {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.decode #ffd.all ins(%q, %cache, %delta, %sm : memref<?x4x128xf16>, !ffd.cache<#s>, memref<?xf32>)
      outs(%o, %l, %m : memref<?x4x64xf32>, memref<?x4xf32>, memref<?x1x?xi8>)
  return
}

// An exact decode is the tail part alone.
// CHECK-LABEL: func.func @exact(
// CHECK: ffd.tile.teams
// CHECK: %[[T:.*]] = ffd.tile.exact_extent
// CHECK: ffd.tile.query %{{.*}}[%{{.*}}] scale(%{{.*}}) :
// CHECK-NOT: combine max
// CHECK: ffd.tile.distribute tail_share(%[[T]],
// CHECK: ffd.tile.finish
func.func @exact(%q: memref<?x4x128xf16>, %k: memref<?x1x?x128xf16>, %v: memref<?x1x?x64xf16>, %n: memref<?xi32>,
    %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>) {
  ffd.exact #s ins(%q, %k, %v, %n, %sm : memref<?x4x128xf16>, memref<?x1x?x128xf16>, memref<?x1x?x64xf16>, memref<?xi32>)
      outs(%o, %l : memref<?x4x64xf32>, memref<?x4xf32>)
  return
}

// Unfused, a decode is two kernels; the mask in memory joins them, scores stay
// in registers and their buffers go.
// CHECK-LABEL: func.func @unfused_select(
// CHECK-NOT: memref.alloc
// CHECK: ffd.tile.teams
// CHECK: ffd.tile.threshold
// CHECK: combine append
// CHECK: ffd.tile.reach
// CHECK: ffd.tile.store_kept %{{.*}}, %[[M:arg[0-9]+]][
// CHECK-NOT: combine state
// CHECK-NOT: ffd.tile.finish
// CHECK-LABEL: func.func @unfused_attend(
// CHECK-NOT: memref.alloc
// CHECK: ffd.tile.teams
// CHECK-NOT: combine max
// CHECK: ffd.tile.load_kept %[[M]][
// CHECK: combine state
// CHECK: ffd.tile.finish
// CHECK-NOT: func.func @unfused(
func.func @unfused(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
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
  ffd.scan ins(%q, %cache : memref<?x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<?x4x?xi32>)
  ffd.select #ffd.top_delta ins(%b, %pm, %u, %delta, %cache : memref<?x4x?xi32>, memref<?x4xi32>, memref<?x4xf32>, memref<?xf32>, !ffd.cache<#s>)
      outs(%m : memref<?x1x?xi8>)
  ffd.attend ins(%q, %cache, %m, %sm : memref<?x4x128xf16>, !ffd.cache<#s>, memref<?x1x?xi8>)
      outs(%o, %l : memref<?x4x64xf32>, memref<?x4xf32>)
  memref.dealloc %b : memref<?x4x?xi32>
  return
}

// So it is with a selector that keeps everything, whether scores are computed
// or not.
// CHECK-LABEL: func.func @unfused_all_select(
// CHECK-NOT: ffd.tile.scan
// CHECK: ffd.tile.full
// CHECK: ffd.tile.store_kept
// CHECK-LABEL: func.func @unfused_all_attend(
// CHECK: ffd.tile.finish
func.func @unfused_all(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
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
  ffd.select #ffd.all ins(%b, %pm, %u, %delta, %cache : memref<?x4x?xi32>, memref<?x4xi32>, memref<?x4xf32>, memref<?xf32>, !ffd.cache<#s>)
      outs(%m : memref<?x1x?xi8>)
  ffd.attend ins(%q, %cache, %m, %sm : memref<?x4x128xf16>, !ffd.cache<#s>, memref<?x1x?xi8>)
      outs(%o, %l : memref<?x4x64xf32>, memref<?x4xf32>)
  return
}

// Bufferised functions return their destinations: a kernel does not.
// CHECK-LABEL: func.func @returns(
// CHECK-SAME: memref<?x1x?xi8>) {
// CHECK: ffd.tile.teams
// CHECK: return{{$}}
func.func @returns(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>) -> (memref<?x4x64xf32>, memref<?x4xf32>) {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.decode #ffd.top_delta ins(%q, %cache, %delta, %sm : memref<?x4x128xf16>, !ffd.cache<#s>, memref<?xf32>)
      outs(%o, %l, %m : memref<?x4x64xf32>, memref<?x4xf32>, memref<?x1x?xi8>)
  return %o, %l : memref<?x4x64xf32>, memref<?x4xf32>
}

// Several decodes are several kernels, with distinct names.
// CHECK-LABEL: func.func @two_decode(
// CHECK-COUNT-1: ffd.tile.teams
// CHECK-NOT: ffd.tile.teams
// CHECK-LABEL: func.func @two_decode_0(
// CHECK-COUNT-1: ffd.tile.teams
func.func @two(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
    %va: memref<?x?x8192xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x64xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32,
    %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %m: memref<?x1x?xi8>, %o1: memref<?x4x64xf32>) {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x8192xf16>, memref<?x?x128xf16>,
        memref<?x?x?x128xf16>, memref<?x?x?x64xf16>, memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.decode #ffd.top_delta ins(%q, %cache, %delta, %sm : memref<?x4x128xf16>, !ffd.cache<#s>, memref<?xf32>)
      outs(%o, %l, %m : memref<?x4x64xf32>, memref<?x4xf32>, memref<?x1x?xi8>)
  ffd.decode #ffd.top_delta ins(%q, %cache, %delta, %sm : memref<?x4x128xf16>, !ffd.cache<#s>, memref<?xf32>)
      outs(%o1, %l, %m : memref<?x4x64xf32>, memref<?x4xf32>, memref<?x1x?xi8>)
  return
}

// Other functions stay.
// CHECK-LABEL: func.func @nothing(
// CHECK-NEXT: return %{{.*}} : f32
func.func @nothing(%x: f32) -> f32 {
  return %x : f32
}

// A rule over the whole row ranks the row's blocks and needs no pseudo-max.
// CHECK-LABEL: func.func @top_k(
// CHECK-NOT: candidates
// CHECK: %[[R:.*]] = ffd.tile.distribute share({{.*}}) combine rank {
// CHECK: ffd.tile.scan
// CHECK: ffd.tile.choose #ffd.top_k<64> %{{.*}}, %[[R]], %
// CHECK-NOT: ffd.tile.threshold
// CHECK-NOT: memref.alloc
func.func @top_k(%q: memref<?x4x128xf16>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>,
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
  ffd.scan ins(%q, %cache : memref<?x4x128xf16>, !ffd.cache<#s>) outs(%b : memref<?x4x?xi32>)
  ffd.select #ffd.top_k<64> ins(%b, %pm, %u, %delta, %cache : memref<?x4x?xi32>, memref<?x4xi32>, memref<?x4xf32>, memref<?xf32>, !ffd.cache<#s>)
      outs(%m : memref<?x1x?xi8>)
  return
}
