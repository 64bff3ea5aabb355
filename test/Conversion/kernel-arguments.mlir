// What both targets refuse: a program that is not all that its function does, or
// that names two arguments where the kernel has one field.

// RUN: ffd-opt %s --ffd-tile-to-vector=isa=avx2 -split-input-file -verify-diagnostics
// RUN: ffd-opt %s --ffd-schedule --ffd-tile-to-gpu -split-input-file -verify-diagnostics

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 2, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @second(%q: memref<?x?x64xf16, strided<[?, ?, 1]>>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %n: memref<?xi32>, %scale: f32, %out: memref<?x?x64xf32>, %lse: memref<?x?xf32>) {
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    %tail = ffd.tile.exact_extent %n[%row] : memref<?xi32>
    %query = ffd.tile.query %q[%row] scale(%scale) : (memref<?x?x64xf16, strided<[?, ?, 1]>>, f32) -> !ffd.query<#s>
    %init = ffd.tile.init %query : (!ffd.query<#s>) -> !ffd.state<#s>
    %state = ffd.tile.distribute tail_share(%tail, %split, %splits : index, index, index) combine state init(%init : !ffd.state<#s>) {
    ^bb0(%t: index, %before: !ffd.state<#s>):
      %kv = ffd.tile.load_tail %k, %v[%row, %t] of %tail : (memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) -> !ffd.tail<#s>
      %f = ffd.tile.dot %query, %kv : (!ffd.query<#s>, !ffd.tail<#s>) -> !ffd.logits<#s>
      %after = ffd.tile.accumulate %before, %f, %kv : (!ffd.state<#s>, !ffd.logits<#s>, !ffd.tail<#s>) -> !ffd.state<#s>
      ffd.tile.yield %after : !ffd.state<#s>
    } -> !ffd.state<#s>
    ffd.tile.finish %state into %out, %lse[%row] piece(%split of %splits) : (!ffd.state<#s>, memref<?x?x64xf32>, memref<?x?xf32>) -> ()
  }
  // expected-error @below {{is the second in function 'second', expected one per kernel}}
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    %tail = ffd.tile.exact_extent %n[%row] : memref<?xi32>
    %query = ffd.tile.query %q[%row] scale(%scale) : (memref<?x?x64xf16, strided<[?, ?, 1]>>, f32) -> !ffd.query<#s>
    %init = ffd.tile.init %query : (!ffd.query<#s>) -> !ffd.state<#s>
    %state = ffd.tile.distribute tail_share(%tail, %split, %splits : index, index, index) combine state init(%init : !ffd.state<#s>) {
    ^bb0(%t: index, %before: !ffd.state<#s>):
      %kv = ffd.tile.load_tail %k, %v[%row, %t] of %tail : (memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) -> !ffd.tail<#s>
      %f = ffd.tile.dot %query, %kv : (!ffd.query<#s>, !ffd.tail<#s>) -> !ffd.logits<#s>
      %after = ffd.tile.accumulate %before, %f, %kv : (!ffd.state<#s>, !ffd.logits<#s>, !ffd.tail<#s>) -> !ffd.state<#s>
      ffd.tile.yield %after : !ffd.state<#s>
    } -> !ffd.state<#s>
    ffd.tile.finish %state into %out, %lse[%row] piece(%split of %splits) : (!ffd.state<#s>, memref<?x?x64xf32>, memref<?x?xf32>) -> ()
  }
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 2, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// expected-error @below {{has 3 blocks, expected one: a kernel is its tile program alone}}
func.func @branch(%q: memref<?x?x64xf16, strided<[?, ?, 1]>>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %n: memref<?xi32>, %scale: f32, %out: memref<?x?x64xf32>, %lse: memref<?x?xf32>, %condition: i1) {
  cf.cond_br %condition, ^run, ^skip
^run:
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    %tail = ffd.tile.exact_extent %n[%row] : memref<?xi32>
    %query = ffd.tile.query %q[%row] scale(%scale) : (memref<?x?x64xf16, strided<[?, ?, 1]>>, f32) -> !ffd.query<#s>
    %init = ffd.tile.init %query : (!ffd.query<#s>) -> !ffd.state<#s>
    %state = ffd.tile.distribute tail_share(%tail, %split, %splits : index, index, index) combine state init(%init : !ffd.state<#s>) {
    ^bb0(%t: index, %before: !ffd.state<#s>):
      %kv = ffd.tile.load_tail %k, %v[%row, %t] of %tail : (memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) -> !ffd.tail<#s>
      %f = ffd.tile.dot %query, %kv : (!ffd.query<#s>, !ffd.tail<#s>) -> !ffd.logits<#s>
      %after = ffd.tile.accumulate %before, %f, %kv : (!ffd.state<#s>, !ffd.logits<#s>, !ffd.tail<#s>) -> !ffd.state<#s>
      ffd.tile.yield %after : !ffd.state<#s>
    } -> !ffd.state<#s>
    ffd.tile.finish %state into %out, %lse[%row] piece(%split of %splits) : (!ffd.state<#s>, memref<?x?x64xf32>, memref<?x?xf32>) -> ()
  }
  cf.br ^skip
^skip:
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 2, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @conditional(%q: memref<?x?x64xf16, strided<[?, ?, 1]>>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %n: memref<?xi32>, %scale: f32, %out: memref<?x?x64xf32>, %lse: memref<?x?xf32>, %condition: i1) {
  scf.if %condition {
    // expected-error @below {{is not directly in function 'conditional', expected nothing around it}}
    ffd.tile.teams #s {
    ^bb0(%row: index, %split: index, %splits: index):
      %tail = ffd.tile.exact_extent %n[%row] : memref<?xi32>
      %query = ffd.tile.query %q[%row] scale(%scale) : (memref<?x?x64xf16, strided<[?, ?, 1]>>, f32) -> !ffd.query<#s>
      %init = ffd.tile.init %query : (!ffd.query<#s>) -> !ffd.state<#s>
      %state = ffd.tile.distribute tail_share(%tail, %split, %splits : index, index, index) combine state init(%init : !ffd.state<#s>) {
      ^bb0(%t: index, %before: !ffd.state<#s>):
        %kv = ffd.tile.load_tail %k, %v[%row, %t] of %tail : (memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) -> !ffd.tail<#s>
        %f = ffd.tile.dot %query, %kv : (!ffd.query<#s>, !ffd.tail<#s>) -> !ffd.logits<#s>
        %after = ffd.tile.accumulate %before, %f, %kv : (!ffd.state<#s>, !ffd.logits<#s>, !ffd.tail<#s>) -> !ffd.state<#s>
        ffd.tile.yield %after : !ffd.state<#s>
      } -> !ffd.state<#s>
      ffd.tile.finish %state into %out, %lse[%row] piece(%split of %splits) : (!ffd.state<#s>, memref<?x?x64xf32>, memref<?x?xf32>) -> ()
    }
  }
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 2, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @keys(%q: memref<?x?x64xf16, strided<[?, ?, 1]>>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %n: memref<?xi32>, %scale: f32, %out: memref<?x?x64xf32>, %lse: memref<?x?xf32>, %k2: memref<?x?x?x64xf16>) {
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    %tail = ffd.tile.exact_extent %n[%row] : memref<?xi32>
    %query = ffd.tile.query %q[%row] scale(%scale) : (memref<?x?x64xf16, strided<[?, ?, 1]>>, f32) -> !ffd.query<#s>
    %init = ffd.tile.init %query : (!ffd.query<#s>) -> !ffd.state<#s>
    %state = ffd.tile.distribute tail_share(%tail, %split, %splits : index, index, index) combine state init(%init : !ffd.state<#s>) {
    ^bb0(%t: index, %before: !ffd.state<#s>):
      %kv = ffd.tile.load_tail %k, %v[%row, %t] of %tail : (memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) -> !ffd.tail<#s>
      // expected-error @below {{operand 'keys' is a second argument for 'tail_k', expected one per kernel}}
      %other = ffd.tile.load_tail %k2, %v[%row, %t] of %tail : (memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) -> !ffd.tail<#s>
      %f = ffd.tile.dot %query, %kv : (!ffd.query<#s>, !ffd.tail<#s>) -> !ffd.logits<#s>
      %after = ffd.tile.accumulate %before, %f, %other : (!ffd.state<#s>, !ffd.logits<#s>, !ffd.tail<#s>) -> !ffd.state<#s>
      ffd.tile.yield %after : !ffd.state<#s>
    } -> !ffd.state<#s>
    ffd.tile.finish %state into %out, %lse[%row] piece(%split of %splits) : (!ffd.state<#s>, memref<?x?x64xf32>, memref<?x?xf32>) -> ()
  }
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 2, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @outputs(%q: memref<?x?x64xf16, strided<[?, ?, 1]>>, %k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %n: memref<?xi32>, %scale: f32, %out: memref<?x?x64xf32>, %lse: memref<?x?xf32>, %lse2: memref<?x?xf32>) {
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    %tail = ffd.tile.exact_extent %n[%row] : memref<?xi32>
    %query = ffd.tile.query %q[%row] scale(%scale) : (memref<?x?x64xf16, strided<[?, ?, 1]>>, f32) -> !ffd.query<#s>
    %init = ffd.tile.init %query : (!ffd.query<#s>) -> !ffd.state<#s>
    %state = ffd.tile.distribute tail_share(%tail, %split, %splits : index, index, index) combine state init(%init : !ffd.state<#s>) {
    ^bb0(%t: index, %before: !ffd.state<#s>):
      %kv = ffd.tile.load_tail %k, %v[%row, %t] of %tail : (memref<?x?x?x64xf16>, memref<?x?x?x64xf16>) -> !ffd.tail<#s>
      %f = ffd.tile.dot %query, %kv : (!ffd.query<#s>, !ffd.tail<#s>) -> !ffd.logits<#s>
      %after = ffd.tile.accumulate %before, %f, %kv : (!ffd.state<#s>, !ffd.logits<#s>, !ffd.tail<#s>) -> !ffd.state<#s>
      ffd.tile.yield %after : !ffd.state<#s>
    } -> !ffd.state<#s>
    ffd.tile.finish %state into %out, %lse[%row] piece(%split of %splits) : (!ffd.state<#s>, memref<?x?x64xf32>, memref<?x?xf32>) -> ()
    // expected-error @below {{operand 'lse' is a second argument for 'lse', expected one per kernel}}
    ffd.tile.finish %state into %out, %lse2[%row] piece(%split of %splits) : (!ffd.state<#s>, memref<?x?x64xf32>, memref<?x?xf32>) -> ()
  }
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 2, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @foreign_count(%k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %q: memref<?x?x64xf16>, %n: memref<?xi32>, %scale: f32) {
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    %query = ffd.tile.query %q[%row] scale(%scale) : (memref<?x?x64xf16>, f32) -> !ffd.query<#s>
    // expected-error @below {{domain share runs over a value that is not the committed blocks of 'ffd.tile.extent', expected that result}}
    %list = ffd.tile.distribute share(%row, %split, %splits : index, index, index) combine append {
    ^bb0(%b: index):
      %m = ffd.tile.full : !ffd.mask<#s>
      ffd.tile.yield %m : !ffd.mask<#s>
    } -> !ffd.worklist<#s>
  }
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 2, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @foreign_pieces(%k: memref<?x?x?x64xf16>, %v: memref<?x?x?x64xf16>, %q: memref<?x?x64xf16>, %n: memref<?xi32>, %scale: f32) {
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    %tail = ffd.tile.exact_extent %n[%row] : memref<?xi32>
    %query = ffd.tile.query %q[%row] scale(%scale) : (memref<?x?x64xf16>, f32) -> !ffd.query<#s>
    %init = ffd.tile.init %query : (!ffd.query<#s>) -> !ffd.state<#s>
    // expected-error @below {{domain tail_share has other pieces than its team, expected the split and the number of splits of 'ffd.tile.teams'}}
    %state = ffd.tile.distribute tail_share(%tail, %splits, %split : index, index, index) combine state init(%init : !ffd.state<#s>) {
    ^bb0(%t: index, %before: !ffd.state<#s>):
      ffd.tile.yield %before : !ffd.state<#s>
    } -> !ffd.state<#s>
  }
  return
}
