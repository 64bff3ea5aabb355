// RUN: ffd-opt %s --verify-diagnostics --split-input-file

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 1, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// distribute_c1
func.func @commit_operands(%n: index) {
  // expected-error @below {{'ffd.tile.distribute' op domain commit runs over ('index', 'index'), expected (index, index, index, index) (distribute_c1)}}
  %sx = ffd.tile.distribute commit(%n, %n : index, index) combine scales {
  ^bb0(%b: index):
    %m = ffd.tile.full : !ffd.mask<#s>
    ffd.tile.yield %m : !ffd.mask<#s>
  } -> !ffd.scales<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 1, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// distribute_c2
func.func @commit_yields_mask(%n: index) {
  // expected-error @below {{'ffd.tile.distribute' op combiner scales yields '!ffd.mask<}}
  %sx = ffd.tile.distribute commit(%n, %n, %n, %n : index, index, index, index) combine scales {
  ^bb0(%b: index):
    %m = ffd.tile.full : !ffd.mask<#s>
    ffd.tile.yield %m : !ffd.mask<#s>
  } -> !ffd.scales<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 1, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// tile_c2
func.func @load_tokens(%cache: !ffd.cache<#s>, %i: index, %k: memref<?x?x80xf16>, %v: memref<?x?x64xf16>, %off: memref<?xi32>) {
  // expected-error @below {{'ffd.tile.load_tokens' op operand 'keys' has size 80 in axis 2, expected head_dim = 64 (tile_c2)}}
  %x = ffd.tile.load_tokens %cache[%i, %i] new(%k, %v, %off) : (!ffd.cache<#s>, memref<?x?x80xf16>, memref<?x?x64xf16>, memref<?xi32>) -> !ffd.tokens<#s>
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 1, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
// tile_c2
func.func @finish_append(%sx: !ffd.scales<#s>, %cache: !ffd.cache<#s>, %i: index, %k: memref<?x?x64xf16>, %v: memref<?x?x64xbf16>, %n: memref<?xi32>) {
  // expected-error @below {{'ffd.tile.finish_append' op operand 'values' has element type 'bf16', expected 'f16' (tile_c2)}}
  ffd.tile.finish_append %sx, %cache[%i] blocks(%i, %i) count(%i) new(%k, %v, %n) lengths(%n) piece(%i of %i) : (!ffd.scales<#s>, !ffd.cache<#s>, memref<?x?x64xf16>, memref<?x?x64xbf16>, memref<?xi32>, memref<?xi32>) -> ()
  return
}
