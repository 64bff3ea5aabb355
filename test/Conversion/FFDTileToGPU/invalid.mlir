// RUN: ffd-opt %s --ffd-tile-to-gpu --verify-diagnostics --split-input-file

// warps
#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @decode(%q: memref<?x?x128xf16, strided<[?, ?, 1]>>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>, %va: memref<?x?x16384xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>, %tv: memref<?x?x?x128xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32, %delta: memref<?xf32>, %sm: f32,
   %o: memref<?x?x128xf32>, %l: memref<?x?xf32>, %kept: memref<?x?x?xi8>) {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x16384xf16>,
        memref<?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>,
        memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  // expected-error @below {{'ffd.tile.teams' op schedule has 2 warps, expected 4, 8 or 16}}
  ffd.tile.teams #s schedule <warps = 2, ctas = 1, stages = 2, slots = 2> {
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

// -----

// shared memory
#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @decode(%q: memref<?x?x128xf16, strided<[?, ?, 1]>>, %th: memref<?x?x4352xi8>, %re: memref<?x?x16384xi8>, %va: memref<?x?x16384xf16>, %sx: memref<?x?x128xf16>, %tk: memref<?x?x?x128xf16>, %tv: memref<?x?x?x128xf16>, %pt: memref<?x?xi32>, %ln: memref<?xi32>, %lag: i32, %delta: memref<?xf32>, %sm: f32,
   %o: memref<?x?x128xf32>, %l: memref<?x?xf32>, %kept: memref<?x?x?xi8>) {
  %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
      tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
      : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x16384xf16>,
        memref<?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>,
        memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
  // expected-error-re @below {{'ffd.tile.teams' op schedule needs {{[0-9]+}} bytes of shared memory in each of 2 CTAs, expected what sm_90a has: 232448 per CTA, 233472 in all}}
  ffd.tile.teams #s schedule <warps = 16, ctas = 2, stages = 2, slots = 2> {
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
