// RUN: ffd-opt %s --ffd-tile-to-vector=isa=avx2 | FileCheck %s

// The selector of an unfused decode writes the mask; nobody reads its list, so
// there is none, no softmax state and no arrival of pieces; kept blocks are
// counted.

// CHECK-LABEL: func.func @select(%{{.*}}: !llvm.ptr, %{{.*}}: i64, %{{.*}}: i64)
// CHECK: pmadd.ub.sw
// CHECK: math.ceil
// CHECK: llvm.store %{{.*}} {alignment = 1 : i64} : i8, !llvm.ptr
// CHECK-NOT: acq_rel
// CHECK: llvm.atomicrmw add %{{.*}} monotonic
// CHECK-NOT: acq_rel
// CHECK-NOT: ffd.

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @select(%q: memref<?x?x128xf16, strided<[?, ?, 1]>>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>, %va: memref<?x?x16384xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>, %tv: memref<?x?x?x128xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32, %delta: memref<?xf32>, %sm: f32,
   %kept: memref<?x?x?xi8>) {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x16384xf16>,
        memref<?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>,
        memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    %n, %tail = ffd.tile.extent %cache[%row] : !ffd.cache<#s>
    %qq = ffd.tile.query %q[%row] scale(%sm) cache(%cache) : (memref<?x?x128xf16, strided<[?, ?, 1]>>, f32, !ffd.cache<#s>) -> !ffd.query<#s>
    %pm0 = ffd.tile.distribute candidates(%n : index) combine max {
    ^bb0(%b: index):
      %c = ffd.tile.load_thumbnail %cache[%row, %b] : (!ffd.cache<#s>) -> !ffd.thumbnail<#s>
      %a = ffd.tile.scan %qq, %c : (!ffd.query<#s>, !ffd.thumbnail<#s>) -> !ffd.scores<#s>
      ffd.tile.yield %a : !ffd.scores<#s>
    } -> !ffd.row_max<#s>
    %pm = ffd.tile.distribute tail(%tail : index) combine max init(%pm0 : !ffd.row_max<#s>) {
    ^bb0(%t: index):
      %kv = ffd.tile.load_tail %tk, %tv[%row, %t] of %tail : (memref<?x?x?x128xf16>, memref<?x?x?x128xf16>) -> !ffd.tail<#s>
      %f = ffd.tile.dot ordered %qq, %kv : (!ffd.query<#s>, !ffd.tail<#s>) -> !ffd.logits<#s>
      %a = ffd.tile.to_units %qq, %f : (!ffd.query<#s>, !ffd.logits<#s>) -> !ffd.scores<#s>
      ffd.tile.yield %a : !ffd.scores<#s>
    } -> !ffd.row_max<#s>
    %thr = ffd.tile.threshold %qq, %pm, %delta[%row] : (!ffd.query<#s>, !ffd.row_max<#s>, memref<?xf32>) -> !ffd.threshold<#s>
    %list = ffd.tile.distribute share(%n, %split, %splits : index, index, index) combine append {
    ^bb0(%b: index):
      %c = ffd.tile.load_thumbnail %cache[%row, %b] : (!ffd.cache<#s>) -> !ffd.thumbnail<#s>
      %a = ffd.tile.scan %qq, %c : (!ffd.query<#s>, !ffd.thumbnail<#s>) -> !ffd.scores<#s>
      %m = ffd.tile.reach %a, %thr : (!ffd.scores<#s>, !ffd.threshold<#s>) -> !ffd.mask<#s>
      ffd.tile.store_kept %m, %kept[%row, %b] : (!ffd.mask<#s>, memref<?x?x?xi8>) -> ()
      ffd.tile.yield %m : !ffd.mask<#s>
    } -> !ffd.worklist<#s>
  }
  return
}
