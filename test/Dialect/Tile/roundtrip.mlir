// RUN: ffd-opt %s | ffd-opt | FileCheck %s
// RUN: ffd-opt %s --mlir-print-op-generic | ffd-opt | FileCheck %s

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>

// A whole decode with every op of the level.
// CHECK-LABEL: @decode
func.func @decode(%q: memref<?x4x128xf16>, %cache: !ffd.cache<#s>, %tk: memref<?x?x?x128xf16>,
    %tv: memref<?x?x?x128xf16>, %delta: memref<?xf32>, %sm: f32, %o: memref<?x4x128xf32>,
    %l: memref<?x4xf32>, %kept: memref<?x1x?xi8>) {
  // CHECK: ffd.tile.teams #spec schedule <warps = 8, ctas = 2, stages = 2, slots = 2> attributes {note = "one"} {
  ffd.tile.teams #s schedule <warps = 8, ctas = 2, stages = 2, slots = 2> attributes {note = "one"} {
  // CHECK: ^bb0(%[[ROW:.*]]: index, %[[SPLIT:.*]]: index, %[[SPLITS:.*]]: index):
  ^bb0(%row: index, %split: index, %splits: index):
    // CHECK: %[[N:.*]], %[[T:.*]] = ffd.tile.extent %{{.*}}[%[[ROW]]] : !ffd.cache<#spec>
    %n, %t = ffd.tile.extent %cache[%row] : !ffd.cache<#s>
    // CHECK: ffd.tile.query %{{.*}}[%[[ROW]]] scale(%{{.*}}) cache(%{{.*}}) : (memref<?x4x128xf16>, f32, !ffd.cache<#spec>) -> !ffd.query<#spec>
    %qq = ffd.tile.query %q[%row] scale(%sm) cache(%cache) : (memref<?x4x128xf16>, f32, !ffd.cache<#s>) -> !ffd.query<#s>
    // CHECK: %[[PM0:.*]] = ffd.tile.distribute candidates(%[[N]] : index) combine max {
    %pm0 = ffd.tile.distribute candidates(%n : index) combine max {
    ^bb0(%b: index):
      // CHECK: ffd.tile.load_thumbnail %{{.*}}[%[[ROW]], %{{.*}}] : (!ffd.cache<#spec>) -> !ffd.thumbnail<#spec>
      %c = ffd.tile.load_thumbnail %cache[%row, %b] : (!ffd.cache<#s>) -> !ffd.thumbnail<#s>
      // CHECK: ffd.tile.scan %{{.*}}, %{{.*}} : (!ffd.query<#spec>, !ffd.thumbnail<#spec>) -> !ffd.scores<#spec>
      %a = ffd.tile.scan %qq, %c : (!ffd.query<#s>, !ffd.thumbnail<#s>) -> !ffd.scores<#s>
      // CHECK: ffd.tile.yield %{{.*}} : !ffd.scores<#spec>
      ffd.tile.yield %a : !ffd.scores<#s>
    // CHECK: } -> !ffd.row_max<#spec>
    } -> !ffd.row_max<#s>
    // CHECK: ffd.tile.distribute tail(%[[T]] : index) combine max init(%[[PM0]] : !ffd.row_max<#spec>) {
    %pm = ffd.tile.distribute tail(%t : index) combine max init(%pm0 : !ffd.row_max<#s>) {
    ^bb0(%i: index):
      // CHECK: ffd.tile.load_tail %{{.*}}, %{{.*}}[%[[ROW]], %{{.*}}] of %[[T]] : (memref<?x?x?x128xf16>, memref<?x?x?x128xf16>) -> !ffd.tail<#spec>
      %x = ffd.tile.load_tail %tk, %tv[%row, %i] of %t : (memref<?x?x?x128xf16>, memref<?x?x?x128xf16>) -> !ffd.tail<#s>
      // CHECK: ffd.tile.dot ordered %{{.*}}, %{{.*}} : (!ffd.query<#spec>, !ffd.tail<#spec>) -> !ffd.logits<#spec>
      %f = ffd.tile.dot ordered %qq, %x : (!ffd.query<#s>, !ffd.tail<#s>) -> !ffd.logits<#s>
      // CHECK: ffd.tile.to_units %{{.*}}, %{{.*}} : (!ffd.query<#spec>, !ffd.logits<#spec>) -> !ffd.scores<#spec>
      %a = ffd.tile.to_units %qq, %f : (!ffd.query<#s>, !ffd.logits<#s>) -> !ffd.scores<#s>
      ffd.tile.yield %a : !ffd.scores<#s>
    } -> !ffd.row_max<#s>
    // CHECK: ffd.tile.threshold %{{.*}}, %{{.*}}, %{{.*}}[%[[ROW]]] : (!ffd.query<#spec>, !ffd.row_max<#spec>, memref<?xf32>) -> !ffd.threshold<#spec>
    %thr = ffd.tile.threshold %qq, %pm, %delta[%row] : (!ffd.query<#s>, !ffd.row_max<#s>, memref<?xf32>) -> !ffd.threshold<#s>
    // CHECK: ffd.tile.distribute share(%[[N]], %[[SPLIT]], %[[SPLITS]] : index, index, index) combine append {
    %list = ffd.tile.distribute share(%n, %split, %splits : index, index, index) combine append {
    ^bb0(%b: index):
      %c = ffd.tile.load_thumbnail %cache[%row, %b] : (!ffd.cache<#s>) -> !ffd.thumbnail<#s>
      %a = ffd.tile.scan %qq, %c : (!ffd.query<#s>, !ffd.thumbnail<#s>) -> !ffd.scores<#s>
      // CHECK: ffd.tile.reach %{{.*}}, %{{.*}} : (!ffd.scores<#spec>, !ffd.threshold<#spec>) -> !ffd.mask<#spec>
      %m = ffd.tile.reach %a, %thr : (!ffd.scores<#s>, !ffd.threshold<#s>) -> !ffd.mask<#s>
      // CHECK: ffd.tile.full : !ffd.mask<#spec>
      %all = ffd.tile.full : !ffd.mask<#s>
      %body = ffd.tile.load_body %cache[%row, %b] mask(%all) : (!ffd.cache<#s>, !ffd.mask<#s>) -> !ffd.body<#s>
      // CHECK: ffd.tile.scan %{{.*}}, %{{.*}}, %{{.*}} : (!ffd.query<#spec>, !ffd.thumbnail<#spec>, !ffd.body<#spec>) -> !ffd.scores<#spec>
      %fine = ffd.tile.scan %qq, %c, %body : (!ffd.query<#s>, !ffd.thumbnail<#s>, !ffd.body<#s>) -> !ffd.scores<#s>
      // CHECK: ffd.tile.keep_ends %{{.*}}, %{{.*}} of %{{.*}} : (!ffd.mask<#spec>) -> !ffd.mask<#spec>
      %ends = ffd.tile.keep_ends %m, %b of %n : (!ffd.mask<#s>) -> !ffd.mask<#s>
      // CHECK: ffd.tile.store_kept %{{.*}}, %{{.*}}[%[[ROW]], %{{.*}}] : (!ffd.mask<#spec>, memref<?x1x?xi8>) -> ()
      ffd.tile.store_kept %m, %kept[%row, %b] : (!ffd.mask<#s>, memref<?x1x?xi8>) -> ()
      ffd.tile.yield %m : !ffd.mask<#s>
    } -> !ffd.worklist<#s>
    // CHECK: ffd.tile.init %{{.*}} : (!ffd.query<#spec>) -> !ffd.state<#spec>
    %s0 = ffd.tile.init %qq : (!ffd.query<#s>) -> !ffd.state<#s>
    // CHECK: ffd.tile.distribute worklist(%{{.*}} : !ffd.worklist<#spec>) combine state init(%{{.*}} : !ffd.state<#spec>) {
    %s1 = ffd.tile.distribute worklist(%list : !ffd.worklist<#s>) combine state init(%s0 : !ffd.state<#s>) {
    // CHECK: ^bb0(%{{.*}}: index, %{{.*}}: !ffd.mask<#spec>, %{{.*}}: !ffd.state<#spec>):
    ^bb0(%b: index, %m: !ffd.mask<#s>, %s: !ffd.state<#s>):
      %c = ffd.tile.load_thumbnail %cache[%row, %b] : (!ffd.cache<#s>) -> !ffd.thumbnail<#s>
      // CHECK: ffd.tile.load_body %{{.*}}[%[[ROW]], %{{.*}}] mask(%{{.*}}) : (!ffd.cache<#spec>, !ffd.mask<#spec>) -> !ffd.body<#spec>
      %r = ffd.tile.load_body %cache[%row, %b] mask(%m) : (!ffd.cache<#s>, !ffd.mask<#s>) -> !ffd.body<#s>
      // CHECK: ffd.tile.refine %{{.*}}, %{{.*}}, %{{.*}} : (!ffd.query<#spec>, !ffd.thumbnail<#spec>, !ffd.body<#spec>) -> !ffd.logits<#spec>
      %f = ffd.tile.refine %qq, %c, %r : (!ffd.query<#s>, !ffd.thumbnail<#s>, !ffd.body<#s>) -> !ffd.logits<#s>
      // CHECK: ffd.tile.accumulate %{{.*}}, %{{.*}}, %{{.*}} : (!ffd.state<#spec>, !ffd.logits<#spec>, !ffd.body<#spec>) -> !ffd.state<#spec>
      %s2 = ffd.tile.accumulate %s, %f, %r : (!ffd.state<#s>, !ffd.logits<#s>, !ffd.body<#s>) -> !ffd.state<#s>
      ffd.tile.yield %s2 : !ffd.state<#s>
    } -> !ffd.state<#s>
    // CHECK: ffd.tile.distribute tail_share(%[[T]], %[[SPLIT]], %[[SPLITS]] : index, index, index) combine state init(%{{.*}} : !ffd.state<#spec>) {
    %s3 = ffd.tile.distribute tail_share(%t, %split, %splits : index, index, index) combine state init(%s1 : !ffd.state<#s>) {
    ^bb0(%i: index, %s: !ffd.state<#s>):
      %x = ffd.tile.load_tail %tk, %tv[%row, %i] of %t : (memref<?x?x?x128xf16>, memref<?x?x?x128xf16>) -> !ffd.tail<#s>
      // CHECK: ffd.tile.dot %{{.*}}, %{{.*}} : (!ffd.query<#spec>, !ffd.tail<#spec>) -> !ffd.logits<#spec>
      %f = ffd.tile.dot %qq, %x : (!ffd.query<#s>, !ffd.tail<#s>) -> !ffd.logits<#s>
      // CHECK: ffd.tile.accumulate %{{.*}}, %{{.*}}, %{{.*}} : (!ffd.state<#spec>, !ffd.logits<#spec>, !ffd.tail<#spec>) -> !ffd.state<#spec>
      %s4 = ffd.tile.accumulate %s, %f, %x : (!ffd.state<#s>, !ffd.logits<#s>, !ffd.tail<#s>) -> !ffd.state<#s>
      ffd.tile.yield %s4 : !ffd.state<#s>
    } -> !ffd.state<#s>
    // CHECK: ffd.tile.finish %{{.*}} into %{{.*}}, %{{.*}}[%[[ROW]]] piece(%[[SPLIT]] of %[[SPLITS]]) : (!ffd.state<#spec>, memref<?x4x128xf32>, memref<?x4xf32>) -> ()
    ffd.tile.finish %s3 into %o, %l[%row] piece(%split of %splits) : (!ffd.state<#s>, memref<?x4x128xf32>, memref<?x4xf32>) -> ()
  }
  return
}

// The ops that other programs have: an exact decode, and the unfused kernels.
// CHECK-LABEL: @others
func.func @others(%q: memref<?x4x128xf16>, %lengths: memref<?xi32>, %kept: memref<?x1x?xi8>, %row: index, %b: index, %sm: f32) -> (!ffd.mask<#s>, !ffd.mask<#s>, !ffd.state<#s>, index) {
  // CHECK: ffd.tile.exact_extent %{{.*}}[%{{.*}}] : memref<?xi32>
  %t = ffd.tile.exact_extent %lengths[%row] : memref<?xi32>
  // CHECK: ffd.tile.query %{{.*}}[%{{.*}}] scale(%{{.*}}) : (memref<?x4x128xf16>, f32) -> !ffd.query<#spec>
  %qq = ffd.tile.query %q[%row] scale(%sm) : (memref<?x4x128xf16>, f32) -> !ffd.query<#s>
  // CHECK: ffd.tile.init %{{.*}} : (!ffd.query<#spec>) -> !ffd.state<#spec>
  %s = ffd.tile.init %qq : (!ffd.query<#s>) -> !ffd.state<#s>
  // CHECK: ffd.tile.full : !ffd.mask<#spec>
  %m0 = ffd.tile.full : !ffd.mask<#s>
  // CHECK: ffd.tile.load_kept %{{.*}}[%{{.*}}, %{{.*}}] : (memref<?x1x?xi8>) -> !ffd.mask<#spec>
  %m1 = ffd.tile.load_kept %kept[%row, %b] : (memref<?x1x?xi8>) -> !ffd.mask<#s>
  return %m0, %m1, %s, %t : !ffd.mask<#s>, !ffd.mask<#s>, !ffd.state<#s>, index
}

// A rule over the whole row.
// CHECK-LABEL: @choose
func.func @choose(%q: !ffd.query<#s>, %cache: !ffd.cache<#s>, %kept: memref<?x1x?xi8>, %row: index, %n: index,
    %split: index, %splits: index) {
  // CHECK: %[[R:.*]] = ffd.tile.distribute share(%{{.*}}, %{{.*}}, %{{.*}} : index, index, index) combine rank {
  %r = ffd.tile.distribute share(%n, %split, %splits : index, index, index) combine rank {
  ^bb0(%b: index):
    %c = ffd.tile.load_thumbnail %cache[%row, %b] : (!ffd.cache<#s>) -> !ffd.thumbnail<#s>
    %a = ffd.tile.scan %q, %c : (!ffd.query<#s>, !ffd.thumbnail<#s>) -> !ffd.scores<#s>
    ffd.tile.yield %a : !ffd.scores<#s>
  // CHECK: } -> !ffd.ranking<#spec>
  } -> !ffd.ranking<#s>
  // CHECK: ffd.tile.choose #ffd.top_p<9.000000e-01 : f64> %{{.*}}, %[[R]], %{{.*}}[%{{.*}}] : (!ffd.query<#spec>, !ffd.ranking<#spec>, memref<?x1x?xi8>) -> ()
  ffd.tile.choose #ffd.top_p<0.9 : f64> %q, %r, %kept[%row] : (!ffd.query<#s>, !ffd.ranking<#s>, memref<?x1x?xi8>) -> ()
  return
}
