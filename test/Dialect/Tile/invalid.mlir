// RUN: ffd-opt %s --verify-diagnostics --split-input-file

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// teams_c1
func.func @teams_c1() {
  // expected-error @below {{'ffd.tile.teams' op block arguments are ('index', 'i32'), expected (index, index, index): row, split, splits (teams_c1)}}
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: i32):
  }
  return
}

// -----

// teams_c2
func.func @teams_c2() {
  // expected-error @below {{'ffd.tile.teams' op spec is #ffd.spec<head_dim = 128, group = 4>, expected every size to be known; run --ffd-specialize (teams_c2)}}
  ffd.tile.teams #ffd.spec<head_dim = 128, group = 4> {
  ^bb0(%row: index, %split: index, %splits: index):
  }
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
#t = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// teams_c3
func.func @teams_c3(%cache: !ffd.cache<#t>) {
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    // expected-error @below {{'ffd.tile.extent' op has the spec #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>, expected that of its teams, #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16> (teams_c3)}}
    %n, %t = ffd.tile.extent %cache[%row] : !ffd.cache<#t>
  }
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// distribute_c1: operands of a domain.
func.func @distribute_c1_operands(%n: index) {
  // expected-error @below {{'ffd.tile.distribute' op domain share runs over ('index'), expected (index, index, index) (distribute_c1)}}
  %0 = ffd.tile.distribute share(%n : index) combine append {
  ^bb0(%b: index):
    %m = ffd.tile.full : !ffd.mask<#s>
    ffd.tile.yield %m : !ffd.mask<#s>
  } -> !ffd.worklist<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// distribute_c1: a work list is no count.
func.func @distribute_c1_worklist(%n: index, %s0: !ffd.state<#s>) {
  // expected-error @below {{'ffd.tile.distribute' op domain worklist runs over ('index'), expected a work list (distribute_c1)}}
  %0 = ffd.tile.distribute worklist(%n : index) combine state init(%s0 : !ffd.state<#s>) {
  ^bb0(%b: index, %m: !ffd.mask<#s>, %s: !ffd.state<#s>):
    ffd.tile.yield %s : !ffd.state<#s>
  } -> !ffd.state<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// distribute_c1: block arguments.
func.func @distribute_c1_arguments(%w: !ffd.worklist<#s>, %s0: !ffd.state<#s>) {
  // expected-error @below {{'ffd.tile.distribute' op block arguments are ('index', '!ffd.state<#ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>>'), expected an index, a mask, a state (distribute_c1)}}
  %0 = ffd.tile.distribute worklist(%w : !ffd.worklist<#s>) combine state init(%s0 : !ffd.state<#s>) {
  ^bb0(%b: index, %s: !ffd.state<#s>):
    ffd.tile.yield %s : !ffd.state<#s>
  } -> !ffd.state<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// distribute_c1: no block arguments at all.
func.func @distribute_c1_none(%n: index, %a: !ffd.scores<#s>) {
  // expected-error @below {{'ffd.tile.distribute' op block arguments are (), expected an index (distribute_c1)}}
  %0 = ffd.tile.distribute candidates(%n : index) combine max {
    ffd.tile.yield %a : !ffd.scores<#s>
  } -> !ffd.row_max<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// distribute_c2: max combines scores.
func.func @distribute_c2_max(%n: index, %m: !ffd.mask<#s>) {
  // expected-error @below {{expected scores and a row maximum (distribute_c2)}}
  %0 = ffd.tile.distribute candidates(%n : index) combine max {
  ^bb0(%b: index):
    ffd.tile.yield %m : !ffd.mask<#s>
  } -> !ffd.row_max<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// distribute_c2: a work list starts empty.
func.func @distribute_c2_append(%n: index, %m: !ffd.mask<#s>, %w: !ffd.worklist<#s>) {
  // expected-error @below {{expected a mask and a work list, without init (distribute_c2)}}
  %0 = ffd.tile.distribute share(%n, %n, %n : index, index, index) combine append init(%w : !ffd.worklist<#s>) {
  ^bb0(%b: index):
    ffd.tile.yield %m : !ffd.mask<#s>
  } -> !ffd.worklist<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// distribute_c2: a state does not.
func.func @distribute_c2_state(%w: !ffd.worklist<#s>) {
  // expected-error @below {{expected a state, with a state as init (distribute_c2)}}
  %0 = ffd.tile.distribute worklist(%w : !ffd.worklist<#s>) combine state {
  ^bb0(%b: index, %m: !ffd.mask<#s>, %s: !ffd.state<#s>):
    ffd.tile.yield %s : !ffd.state<#s>
  } -> !ffd.state<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// distribute_c2: the terminator.
func.func @distribute_c2_terminator(%n: index) {
  // expected-error @below {{'ffd.tile.distribute' op body ends in 'arith.constant', expected 'ffd.tile.yield' (distribute_c2)}}
  %0 = ffd.tile.distribute candidates(%n : index) combine max {
  ^bb0(%b: index):
    %c0 = arith.constant 0 : index
  } -> !ffd.row_max<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// distribute_c2: no body.
func.func @distribute_c2_empty(%n: index) {
  // expected-error @below {{'ffd.tile.distribute' op expects a non-empty block}}
  %0 = ffd.tile.distribute candidates(%n : index) combine max {
  ^bb0(%b: index):
  } -> !ffd.row_max<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// A yield has its place.
func.func @yield_parent(%m: !ffd.mask<#s>) {
  // expected-error @below {{'ffd.tile.yield' op expects parent op 'ffd.tile.distribute'}}
  ffd.tile.yield %m : !ffd.mask<#s>
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
#t = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// tile_c1, op by op.
func.func @tile_c1_query(%q: memref<?x4x128xf16>, %cache: !ffd.cache<#t>, %sm: f32, %row: index) {
  // expected-error @below {{'ffd.tile.query' op failed to verify that all types have one spec (tile_c1)}}
  %0 = ffd.tile.query %q[%row] scale(%sm) cache(%cache) : (memref<?x4x128xf16>, f32, !ffd.cache<#t>) -> !ffd.query<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
#t = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c1_threshold(%q: !ffd.query<#s>, %pm: !ffd.row_max<#t>, %d: memref<?xf32>, %row: index) {
  // expected-error @below {{'ffd.tile.threshold' op failed to verify that all types have one spec (tile_c1)}}
  %0 = ffd.tile.threshold %q, %pm, %d[%row] : (!ffd.query<#s>, !ffd.row_max<#t>, memref<?xf32>) -> !ffd.threshold<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
#t = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c1_init(%q: !ffd.query<#t>) {
  // expected-error @below {{'ffd.tile.init' op failed to verify that all types have one spec (tile_c1)}}
  %0 = ffd.tile.init %q : (!ffd.query<#t>) -> !ffd.state<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
#t = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c1_load_thumbnail(%cache: !ffd.cache<#t>, %i: index) {
  // expected-error @below {{'ffd.tile.load_thumbnail' op failed to verify that all types have one spec (tile_c1)}}
  %0 = ffd.tile.load_thumbnail %cache[%i, %i] : (!ffd.cache<#t>) -> !ffd.thumbnail<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
#t = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c1_load_body(%cache: !ffd.cache<#s>, %m: !ffd.mask<#t>, %i: index) {
  // expected-error @below {{'ffd.tile.load_body' op failed to verify that all types have one spec (tile_c1)}}
  %0 = ffd.tile.load_body %cache[%i, %i] mask(%m) : (!ffd.cache<#s>, !ffd.mask<#t>) -> !ffd.body<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
#t = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c1_scan(%q: !ffd.query<#t>, %c: !ffd.thumbnail<#s>) {
  // expected-error @below {{'ffd.tile.scan' op failed to verify that all types have one spec (tile_c1)}}
  %0 = ffd.tile.scan %q, %c : (!ffd.query<#t>, !ffd.thumbnail<#s>) -> !ffd.scores<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
#t = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c1_dot(%q: !ffd.query<#t>, %c: !ffd.tail<#s>) {
  // expected-error @below {{'ffd.tile.dot' op failed to verify that all types have one spec (tile_c1)}}
  %0 = ffd.tile.dot %q, %c : (!ffd.query<#t>, !ffd.tail<#s>) -> !ffd.logits<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
#t = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c1_to_units(%q: !ffd.query<#t>, %c: !ffd.logits<#s>) {
  // expected-error @below {{'ffd.tile.to_units' op failed to verify that all types have one spec (tile_c1)}}
  %0 = ffd.tile.to_units %q, %c : (!ffd.query<#t>, !ffd.logits<#s>) -> !ffd.scores<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
#t = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c1_reach(%a: !ffd.scores<#s>, %b: !ffd.threshold<#t>) {
  // expected-error @below {{'ffd.tile.reach' op failed to verify that all types have one spec (tile_c1)}}
  %0 = ffd.tile.reach %a, %b : (!ffd.scores<#s>, !ffd.threshold<#t>) -> !ffd.mask<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
#t = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c1_refine(%q: !ffd.query<#s>, %c: !ffd.thumbnail<#t>, %r: !ffd.body<#s>) {
  // expected-error @below {{'ffd.tile.refine' op failed to verify that all types have one spec (tile_c1)}}
  %0 = ffd.tile.refine %q, %c, %r : (!ffd.query<#s>, !ffd.thumbnail<#t>, !ffd.body<#s>) -> !ffd.logits<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
#t = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c1_accumulate(%s: !ffd.state<#s>, %f: !ffd.logits<#s>, %r: !ffd.tail<#t>) {
  // expected-error @below {{'ffd.tile.accumulate' op failed to verify that all types have one spec (tile_c1)}}
  %0 = ffd.tile.accumulate %s, %f, %r : (!ffd.state<#s>, !ffd.logits<#s>, !ffd.tail<#t>) -> !ffd.state<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
#t = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// tile_c1: through the region of a loop.
func.func @tile_c1_distribute(%w: !ffd.worklist<#s>, %s0: !ffd.state<#s>) {
  // expected-error @below {{'ffd.tile.distribute' op mixes specs, expected all types to have one spec (tile_c1)}}
  %0 = ffd.tile.distribute worklist(%w : !ffd.worklist<#s>) combine state init(%s0 : !ffd.state<#s>) {
  ^bb0(%b: index, %m: !ffd.mask<#t>, %s: !ffd.state<#s>):
    ffd.tile.yield %s : !ffd.state<#s>
  } -> !ffd.state<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// tile_c2, operand by operand.
func.func @tile_c2_query_element(%q: memref<?x4x128xbf16>, %sm: f32, %row: index) {
  // expected-error @below {{'ffd.tile.query' op operand 'memory' has element type 'bf16', expected 'f16' (tile_c2)}}
  %0 = ffd.tile.query %q[%row] scale(%sm) : (memref<?x4x128xbf16>, f32) -> !ffd.query<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c2_query_size(%q: memref<?x4x64xf16>, %sm: f32, %row: index) {
  // expected-error @below {{'ffd.tile.query' op operand 'memory' has size 64 in axis 2, expected head_dim = 128 (tile_c2)}}
  %0 = ffd.tile.query %q[%row] scale(%sm) : (memref<?x4x64xf16>, f32) -> !ffd.query<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c2_finish(%s: !ffd.state<#s>, %o: memref<?x4x128xf32>, %l: memref<?x4xf32>, %i: index) {
  // expected-error @below {{'ffd.tile.finish' op operand 'out' has size 128 in axis 2, expected value_dim = 64 (tile_c2)}}
  ffd.tile.finish %s into %o, %l[%i] piece(%i of %i) : (!ffd.state<#s>, memref<?x4x128xf32>, memref<?x4xf32>) -> ()
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c2_load_tail_element(%k: memref<?x?x?x128xf16>, %v: memref<?x?x?x64xbf16>, %i: index) {
  // expected-error @below {{'ffd.tile.load_tail' op operand 'values' has element type 'bf16', expected 'f16' (tile_c2)}}
  %0 = ffd.tile.load_tail %k, %v[%i, %i] of %i : (memref<?x?x?x128xf16>, memref<?x?x?x64xbf16>) -> !ffd.tail<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c2_load_tail_size(%k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %i: index) {
  // expected-error @below {{'ffd.tile.load_tail' op operand 'keys' has size 64 in axis 3, expected head_dim = 128 (tile_c2)}}
  %0 = ffd.tile.load_tail %k, %v[%i, %i] of %i : (memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) -> !ffd.tail<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c2_store_kept(%m: !ffd.mask<#s>, %k: memref<?x?x?xi32>, %i: index) {
  // expected-error @below {{'ffd.tile.store_kept' op operand #1 must be 3D memref of 8-bit signless integer values, but got 'memref<?x?x?xi32>'}}
  ffd.tile.store_kept %m, %k[%i, %i] : (!ffd.mask<#s>, memref<?x?x?xi32>) -> ()
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c2_load_kept(%k: memref<?x?xi8>, %i: index) {
  // expected-error @below {{'ffd.tile.load_kept' op operand #0 must be 3D memref of 8-bit signless integer values, but got 'memref<?x?xi8>'}}
  %0 = ffd.tile.load_kept %k[%i, %i] : (memref<?x?xi8>) -> !ffd.mask<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @tile_c2_lse(%s: !ffd.state<#s>, %o: memref<?x4x64xf32>, %l: memref<?x4xf16>, %i: index) {
  // expected-error @below {{'ffd.tile.finish' op operand #2 must be 2D memref of 32-bit float values, but got 'memref<?x4xf16>'}}
  ffd.tile.finish %s into %o, %l[%i] piece(%i of %i) : (!ffd.state<#s>, memref<?x4x64xf32>, memref<?x4xf16>) -> ()
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// distribute_c2: a ranking is of scores.
func.func @distribute_c2_rank(%n: index, %m: !ffd.mask<#s>) {
  // expected-error @below {{expected scores and a ranking, without init (distribute_c2)}}
  %0 = ffd.tile.distribute share(%n, %n, %n : index, index, index) combine rank {
  ^bb0(%b: index):
    ffd.tile.yield %m : !ffd.mask<#s>
  } -> !ffd.ranking<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// choose_c1: a threshold needs no ranking.
func.func @choose_c1(%q: !ffd.query<#s>, %r: !ffd.ranking<#s>, %k: memref<?x?x?xi8>, %row: index) {
  // expected-error @below {{'ffd.tile.choose' op selector is #ffd.top_delta, expected #ffd.top_k or #ffd.top_p (choose_c1)}}
  ffd.tile.choose #ffd.top_delta %q, %r, %k[%row] : (!ffd.query<#s>, !ffd.ranking<#s>, memref<?x?x?xi8>) -> ()
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16, residual_bits = 0>
// scan_t1
func.func @scan_t1(%q: !ffd.query<#s>, %c: !ffd.thumbnail<#s>, %r: !ffd.body<#s>) {
  // expected-error @below {{'ffd.tile.scan' op takes a body with residual_bits = 0, expected residuals (scan_t1)}}
  %0 = ffd.tile.scan %q, %c, %r : (!ffd.query<#s>, !ffd.thumbnail<#s>, !ffd.body<#s>) -> !ffd.scores<#s>
  return
}
