// RUN: ffd-opt %s -split-input-file -verify-diagnostics | FileCheck %s

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16, centre = row>
// CHECK-LABEL: @finish
func.func @finish(%s: !ffd.state<#s>, %q: !ffd.query<#s>, %c: !ffd.cache<#s>, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %i: index) {
  // CHECK: ffd.tile.finish %{{.*}} into %{{.*}}, %{{.*}}[%[[I:.*]]] piece(%[[I]] of %[[I]]) centre(%{{.*}}, %{{.*}}) : (!ffd.state<#spec>, memref<?x4x64xf32>, memref<?x4xf32>, !ffd.query<#spec>, !ffd.cache<#spec>) -> ()
  ffd.tile.finish %s into %o, %l[%i] piece(%i of %i) centre(%q, %c) : (!ffd.state<#s>, memref<?x4x64xf32>, memref<?x4xf32>, !ffd.query<#s>, !ffd.cache<#s>) -> ()
  // Exact attention, for one, has no cache.
  // CHECK: ffd.tile.finish {{.*}} piece(%[[I]] of %[[I]]) : (
  ffd.tile.finish %s into %o, %l[%i] piece(%i of %i) : (!ffd.state<#s>, memref<?x4x64xf32>, memref<?x4xf32>) -> ()
  return
}

// -----

#s = #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
func.func @finish_c1(%s: !ffd.state<#s>, %q: !ffd.query<#s>, %c: !ffd.cache<#s>, %o: memref<?x4x64xf32>, %l: memref<?x4xf32>, %i: index) {
  // expected-error @below {{'ffd.tile.finish' op has a centre with the spec #ffd.spec<head_dim = 64, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>, expected one only with centre = row (finish_c1)}}
  ffd.tile.finish %s into %o, %l[%i] piece(%i of %i) centre(%q, %c) : (!ffd.state<#s>, memref<?x4x64xf32>, memref<?x4xf32>, !ffd.query<#s>, !ffd.cache<#s>) -> ()
  return
}
