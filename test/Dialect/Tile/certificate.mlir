// RUN: ffd-opt %s -split-input-file -verify-diagnostics | ffd-opt -split-input-file | FileCheck %s

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 2, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// CHECK-LABEL: @skipped(
// CHECK: %[[R:.*]], %[[K:.*]] = ffd.tile.distribute share({{.*}}) combine append {
// CHECK: %[[E:.*]] = ffd.tile.skipped noise %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : (!ffd.query<#[[S:.*]]>, !ffd.thumbnail<#[[S]]>, !ffd.scores<#[[S]]>, !ffd.threshold<#[[S]]>, !ffd.mask<#[[S]]>) -> !ffd.skipped<#[[S]]>
// CHECK: ffd.tile.yield %{{.*}}, %[[E]] : !ffd.mask<#[[S]]>, !ffd.skipped<#[[S]]>
// CHECK: } -> !ffd.worklist<#[[S]]>, !ffd.skipped<#[[S]]>
// CHECK: ffd.tile.finish {{.*}} skipped(%[[K]] into %{{.*}} : !ffd.skipped<#[[S]]>, memref<?x?xf32>) : (
func.func @skipped(%cache: !ffd.cache<#s>, %row: index, %n: index, %split: index, %splits: index, %q: !ffd.query<#s>, %thr: !ffd.threshold<#s>, %state: !ffd.state<#s>, %out: memref<?x?x64xf32>, %lse: memref<?x?xf32>, %mass: memref<?x?xf32>) {
  %list, %k = ffd.tile.distribute share(%n, %split, %splits : index, index, index) combine append {
  ^bb0(%b: index):
    %c = ffd.tile.load_thumbnail %cache[%row, %b] : (!ffd.cache<#s>) -> !ffd.thumbnail<#s>
    %a = ffd.tile.scan %q, %c : (!ffd.query<#s>, !ffd.thumbnail<#s>) -> !ffd.scores<#s>
    %m = ffd.tile.reach %a, %thr : (!ffd.scores<#s>, !ffd.threshold<#s>) -> !ffd.mask<#s>
    %e = ffd.tile.skipped noise %q, %c, %a, %thr, %m : (!ffd.query<#s>, !ffd.thumbnail<#s>, !ffd.scores<#s>, !ffd.threshold<#s>, !ffd.mask<#s>) -> !ffd.skipped<#s>
    ffd.tile.yield %m, %e : !ffd.mask<#s>, !ffd.skipped<#s>
  } -> !ffd.worklist<#s>, !ffd.skipped<#s>
  ffd.tile.finish %state into %out, %lse[%row] piece(%split of %splits) skipped(%k into %mass : !ffd.skipped<#s>, memref<?x?xf32>) : (!ffd.state<#s>, memref<?x?x64xf32>, memref<?x?xf32>) -> ()
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 2, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @not_yielded(%n: index, %split: index, %splits: index) {
  // expected-error @below {{'ffd.tile.distribute' op yields no skipped mass, but has it as a result, expected both or neither (distribute_c2)}}
  %list, %k = ffd.tile.distribute share(%n, %split, %splits : index, index, index) combine append {
  ^bb0(%b: index):
    %m = ffd.tile.full : !ffd.mask<#s>
    ffd.tile.yield %m : !ffd.mask<#s>
  } -> !ffd.worklist<#s>, !ffd.skipped<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 2, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @no_result(%n: index, %split: index, %splits: index, %e: !ffd.skipped<#s>) {
  // expected-error @below {{'ffd.tile.distribute' op yields skipped mass, but does not have it as a result, expected both or neither (distribute_c2)}}
  %list = ffd.tile.distribute share(%n, %split, %splits : index, index, index) combine append {
  ^bb0(%b: index):
    %m = ffd.tile.full : !ffd.mask<#s>
    ffd.tile.yield %m, %e : !ffd.mask<#s>, !ffd.skipped<#s>
  } -> !ffd.worklist<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 2, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @combiner(%n: index, %split: index, %splits: index, %a: !ffd.scores<#s>, %e: !ffd.skipped<#s>) {
  // expected-error @below {{'ffd.tile.distribute' op combiner rank has skipped mass, expected it with append only (distribute_c2)}}
  %list, %k = ffd.tile.distribute share(%n, %split, %splits : index, index, index) combine rank {
  ^bb0(%b: index):
    ffd.tile.yield %a, %e : !ffd.scores<#s>, !ffd.skipped<#s>
  } -> !ffd.ranking<#s>, !ffd.skipped<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 2, element = f16, scan_bits = 16, quant_block = 128, select_block = 16, residual_bits = 0>
func.func @keys(%q: !ffd.query<#s>, %c: !ffd.thumbnail<#s>, %a: !ffd.scores<#s>, %thr: !ffd.threshold<#s>, %m: !ffd.mask<#s>) {
  // expected-error @below {{'ffd.tile.skipped' op has a spec with scan_bits = 16, expected 2, 4 or 8 (skipped_c1)}}
  %e = ffd.tile.skipped %q, %c, %a, %thr, %m : (!ffd.query<#s>, !ffd.thumbnail<#s>, !ffd.scores<#s>, !ffd.threshold<#s>, !ffd.mask<#s>) -> !ffd.skipped<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 2, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @from_nowhere(%row: index, %split: index, %splits: index, %state: !ffd.state<#s>, %k: !ffd.skipped<#s>, %out: memref<?x?x64xf32>, %lse: memref<?x?xf32>) {
  // expected-error @below {{'ffd.tile.finish' op operand 'skipped' is not a result of 'ffd.tile.distribute', expected one (finish_c2)}}
  ffd.tile.finish %state into %out, %lse[%row] piece(%split of %splits) skipped(%k into %lse : !ffd.skipped<#s>, memref<?x?xf32>) : (!ffd.state<#s>, memref<?x?x64xf32>, memref<?x?xf32>) -> ()
  return
}
