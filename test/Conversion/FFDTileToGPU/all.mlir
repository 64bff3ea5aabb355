// RUN: ffd-opt %s --ffd-tile-to-gpu | FileCheck %s

// #ffd.all: every block of the share is queued and, if the caller wants the
// mask, marked; there is no scan and no pseudo-max.

// CHECK: llvm.func @all
// CHECK-NOT: ffd.gpu.quantize_query
// CHECK-NOT: ffd.gpu.scan_tile
// CHECK: arith.constant 255 : i32
// CHECK: llvm.store %{{.*}} : i8, !llvm.ptr<1>
// CHECK: ffd.gpu.queue.take
// CHECK: ffd.gpu.refine_tile
// CHECK: ffd.gpu.arrive

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @all(%q: memref<?x?x128xf16, strided<[?, ?, 1]>>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>, %va: memref<?x?x16384xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>, %tv: memref<?x?x?x128xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32, %sm: f32,
   %o: memref<?x?x128xf32>, %l: memref<?x?xf32>, %kept: memref<?x?x?xi8>) {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x16384xf16>,
        memref<?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>,
        memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    %n, %tail = ffd.tile.extent %cache[%row] : !ffd.cache<#s>
    %qq = ffd.tile.query %q[%row] scale(%sm) cache(%cache) : (memref<?x?x128xf16, strided<[?, ?, 1]>>, f32, !ffd.cache<#s>) -> !ffd.query<#s>
    %list = ffd.tile.distribute share(%n, %split, %splits : index, index, index) combine append {
    ^bb0(%b: index):
      %m = ffd.tile.full : !ffd.mask<#s>
      ffd.tile.store_kept %m, %kept[%row, %b] : (!ffd.mask<#s>, memref<?x?x?xi8>) -> ()
      ffd.tile.yield %m : !ffd.mask<#s>
    } -> !ffd.worklist<#s>
    %s0 = ffd.tile.init %qq : (!ffd.query<#s>) -> !ffd.state<#s>
    %s1 = ffd.tile.distribute worklist(%list : !ffd.worklist<#s>) combine state init(%s0 : !ffd.state<#s>) {
    ^bb0(%b: index, %m: !ffd.mask<#s>, %s: !ffd.state<#s>):
      %c = ffd.tile.load_thumbnail %cache[%row, %b] : (!ffd.cache<#s>) -> !ffd.thumbnail<#s>
      %r = ffd.tile.load_body %cache[%row, %b] mask(%m) : (!ffd.cache<#s>, !ffd.mask<#s>) -> !ffd.body<#s>
      %f = ffd.tile.refine %qq, %c, %r : (!ffd.query<#s>, !ffd.thumbnail<#s>, !ffd.body<#s>) -> !ffd.logits<#s>
      %s_ = ffd.tile.accumulate %s, %f, %r : (!ffd.state<#s>, !ffd.logits<#s>, !ffd.body<#s>) -> !ffd.state<#s>
      ffd.tile.yield %s_ : !ffd.state<#s>
    } -> !ffd.state<#s>
    %s2 = ffd.tile.distribute tail_share(%tail, %split, %splits : index, index, index) combine state init(%s1 : !ffd.state<#s>) {
    ^bb0(%t: index, %s: !ffd.state<#s>):
      %kv = ffd.tile.load_tail %tk, %tv[%row, %t] of %tail : (memref<?x?x?x128xf16>, memref<?x?x?x128xf16>) -> !ffd.tail<#s>
      %f = ffd.tile.dot %qq, %kv : (!ffd.query<#s>, !ffd.tail<#s>) -> !ffd.logits<#s>
      %s_ = ffd.tile.accumulate %s, %f, %kv : (!ffd.state<#s>, !ffd.logits<#s>, !ffd.tail<#s>) -> !ffd.state<#s>
      ffd.tile.yield %s_ : !ffd.state<#s>
    } -> !ffd.state<#s>
    ffd.tile.finish %s2 into %o, %l[%row] piece(%split of %splits) : (!ffd.state<#s>, memref<?x?x128xf32>, memref<?x?xf32>) -> ()
  }
  return
}
