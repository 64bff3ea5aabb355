// RUN: ffd-opt %s --ffd-tile-to-vector=isa=avx2 -split-input-file -verify-diagnostics

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @inner(%q: memref<?x?x128xf16, strided<[?, ?, 1]>>, %k: memref<?x?x?x128xf16>, %v: memref<?x?x?x128xf16>, %ln: memref<?xi32>, %sm: f32, %o: memref<?x?x128xf32>, %l: memref<?x?xf32>) {
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    %l2 = memref.alloc() : memref<1x1xf32>
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
    // expected-error @below {{operand 'lse' is not an argument of function 'inner', expected one: the kernel receives it from its caller}}
    ffd.tile.finish %s2 into %o, %l2[%row] piece(%split of %splits) : (!ffd.state<#s>, memref<?x?x128xf32>, memref<1x1xf32>) -> ()
  }
  return
}

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @two(%q: memref<?x?x128xf16, strided<[?, ?, 1]>>, %k: memref<?x?x?x128xf16>, %v: memref<?x?x?x128xf16>, %ln: memref<?xi32>, %sm: f32, %o: memref<?x?x128xf32>, %l: memref<?x?xf32>) {
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
  // expected-error @below {{is the second in function 'two', expected one per kernel}}
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

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @beside(%q: memref<?x?x128xf16, strided<[?, ?, 1]>>, %k: memref<?x?x?x128xf16>, %v: memref<?x?x?x128xf16>, %ln: memref<?xi32>, %sm: f32, %o: memref<?x?x128xf32>, %l: memref<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  // expected-error @below {{stands next to 'ffd.tile.teams', expected the tile program to be all that the kernel does}}
  memref.store %zero, %l[%c0, %c0] : memref<?x?xf32>
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

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @foreign(%q: memref<?x?x128xf16, strided<[?, ?, 1]>>, %k: memref<?x?x?x128xf16>, %v: memref<?x?x?x128xf16>, %ln: memref<?xi32>, %sm: f32, %o: memref<?x?x128xf32>, %l: memref<?x?xf32>) {
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    %tail = ffd.tile.exact_extent %ln[%row] : memref<?xi32>
    %qq = ffd.tile.query %q[%row] scale(%sm) : (memref<?x?x128xf16, strided<[?, ?, 1]>>, f32) -> !ffd.query<#s>
    // expected-error @below {{cannot be lowered for the CPU inside a tile program, expected a tile operation}}
    %r = arith.addi %row, %split : index
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

// -----

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// expected-error @below {{has 1 results, expected none: a kernel writes to its arguments}}
func.func @result(%q: memref<?x?x128xf16, strided<[?, ?, 1]>>, %k: memref<?x?x?x128xf16>, %v: memref<?x?x?x128xf16>, %ln: memref<?xi32>, %sm: f32, %o: memref<?x?x128xf32>, %l: memref<?x?xf32>) -> f32 {
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
  return %sm : f32
}
