// RUN: ffd-opt %s --canonicalize | FileCheck %s

#s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>

// Loads and loops without effect are dead when nobody uses them, and so is a
// team that writes nothing.
// CHECK-LABEL: @unused
// CHECK-NEXT: return
func.func @unused(%q: memref<?x4x128xf16>, %cache: !ffd.cache<#s>, %delta: memref<?xf32>, %sm: f32) {
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    %n, %t = ffd.tile.extent %cache[%row] : !ffd.cache<#s>
    %qq = ffd.tile.query %q[%row] scale(%sm) cache(%cache) : (memref<?x4x128xf16>, f32, !ffd.cache<#s>) -> !ffd.query<#s>
    %pm = ffd.tile.distribute candidates(%n : index) combine max {
    ^bb0(%b: index):
      %c = ffd.tile.load_thumbnail %cache[%row, %b] : (!ffd.cache<#s>) -> !ffd.thumbnail<#s>
      %a = ffd.tile.scan %qq, %c : (!ffd.query<#s>, !ffd.thumbnail<#s>) -> !ffd.scores<#s>
      ffd.tile.yield %a : !ffd.scores<#s>
    } -> !ffd.row_max<#s>
    %thr = ffd.tile.threshold %qq, %pm, %delta[%row] : (!ffd.query<#s>, !ffd.row_max<#s>, memref<?xf32>) -> !ffd.threshold<#s>
  }
  return
}

// A work list nobody reads still stores masks.
// CHECK-LABEL: @stores
// CHECK: ffd.tile.distribute share
// CHECK: ffd.tile.store_kept
func.func @stores(%cache: !ffd.cache<#s>, %kept: memref<?x1x?xi8>) {
  ffd.tile.teams #s {
  ^bb0(%row: index, %split: index, %splits: index):
    %n, %t = ffd.tile.extent %cache[%row] : !ffd.cache<#s>
    %list = ffd.tile.distribute share(%n, %split, %splits : index, index, index) combine append {
    ^bb0(%b: index):
      %m = ffd.tile.full : !ffd.mask<#s>
      ffd.tile.store_kept %m, %kept[%row, %b] : (!ffd.mask<#s>, memref<?x1x?xi8>) -> ()
      ffd.tile.yield %m : !ffd.mask<#s>
    } -> !ffd.worklist<#s>
  }
  return
}
