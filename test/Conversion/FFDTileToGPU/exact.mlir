// RUN: ffd-opt %s --ffd-tile-to-gpu | FileCheck %s

// Exact attention has neither rings nor a scan: every warp takes tiles of the
// tail, and no barrier stands before the merge.

// CHECK: llvm.func @exact
// CHECK-NOT: ffd.gpu.ring
// CHECK-NOT: ffd.gpu.team_barrier
// CHECK: scf.for
// CHECK: ffd.gpu.dot_tile
// CHECK: ffd.gpu.softmax_step
// CHECK: ffd.gpu.accumulate
// CHECK: ffd.gpu.team_barrier
// CHECK: ffd.gpu.arrive

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @exact(%q: memref<?x?x128xf16, strided<[?, ?, 1]>>, %k: memref<?x?x?x128xf16>, %v: memref<?x?x?x128xf16>, %ln: memref<?xi32>, %sm: f32, %o: memref<?x?x128xf32>, %l: memref<?x?xf32>) {
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    %tail = ffd.tile.exact_extent %ln[%row] : memref<?xi32>
    %qq = ffd.tile.query %q[%row] scale(%sm) : (memref<?x?x128xf16, strided<[?, ?, 1]>>, f32) -> !ffd.query<#s>
    %s0 = ffd.tile.init %qq : (!ffd.query<#s>) -> !ffd.state<#s>
    %s2 = ffd.tile.distribute tail_share(%tail, %split, %splits : index, index, index) combine state init(%s0 : !ffd.state<#s>) {
    ^bb0(%t: index, %s: !ffd.state<#s>):
      %kv = ffd.tile.load_tail %k, %v[%row, %t] of %tail : (memref<?x?x?x128xf16>, memref<?x?x?x128xf16>) -> !ffd.tail<#s>
      %f = ffd.tile.dot %qq, %kv : (!ffd.query<#s>, !ffd.tail<#s>) -> !ffd.logits<#s>
      %s_ = ffd.tile.accumulate %s, %f, %kv : (!ffd.state<#s>, !ffd.logits<#s>, !ffd.tail<#s>) -> !ffd.state<#s>
      ffd.tile.yield %s_ : !ffd.state<#s>
    } -> !ffd.state<#s>
    ffd.tile.finish %s2 into %o, %l[%row] piece(%split of %splits) : (!ffd.state<#s>, memref<?x?x128xf32>, memref<?x?xf32>) -> ()
  }
  return
}
