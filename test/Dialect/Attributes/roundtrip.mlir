// RUN: ffd-opt %s | ffd-opt | FileCheck %s

// A spec is printed once, as an alias, with the sizes that are known.
// CHECK-DAG: #[[NONE:.*]] = #ffd.spec<>
// CHECK-DAG: #[[SOME:.*]] = #ffd.spec<head_dim = 64, element = bf16>
// CHECK-DAG: #[[ALL:.*]] = #ffd.spec<head_dim = 80, value_dim = 256, group = 16, element = f16, scan_bits = 8, quant_block = 128, select_block = 64>
// CHECK-DAG: #[[RESIDUALS:.*]] = #ffd.spec<scan_bits = 4>{{$}}
// CHECK-DAG: #[[KEYS:.*]] = #ffd.spec<scan_bits = 16, residual_bits = 0>
// CHECK-DAG: #[[THUMBNAILS:.*]] = #ffd.spec<scan_bits = 4, residual_bits = 0>
// CHECK-DAG: #[[CENTRE:.*]] = #ffd.spec<scan_bits = 4, centre = row>
// CHECK-DAG: #[[PLAIN:.*]] = #ffd.spec<scan_bits = 8>
module attributes {
  // CHECK-DAG: test.centre = #[[CENTRE]]
  test.centre = #ffd.spec<centre = row, scan_bits = 4>,
  // CHECK-DAG: test.plain = #[[PLAIN]]
  test.plain = #ffd.spec<scan_bits = 8, centre = none>,
  // CHECK-DAG: test.keys = #[[KEYS]]
  test.keys = #ffd.spec<residual_bits = 0, scan_bits = 16>,
  // CHECK-DAG: test.thumbnails = #[[THUMBNAILS]]
  test.thumbnails = #ffd.spec<scan_bits = 4, residual_bits = 0>,
  // CHECK-DAG: test.residuals = #[[RESIDUALS]]
  test.residuals = #ffd.spec<scan_bits = 4, residual_bits = 8>,
  // CHECK-DAG: test.none = #[[NONE]]
  test.none = #ffd.spec<>,
  // CHECK-DAG: test.some = #[[SOME]]
  test.some = #ffd.spec<element = bf16, head_dim = 64>,
  // CHECK-DAG: test.complete = #[[ALL]]
  test.complete = #ffd.spec<head_dim = 80, value_dim = 256, group = 16, element = f16, scan_bits = 8, quant_block = 128, select_block = 64>,
  // CHECK-DAG: test.top_delta = #ffd.top_delta
  test.top_delta = #ffd.top_delta,
  // CHECK-DAG: test.scanned = #ffd.top_delta{{[,}]}}
  test.scanned = #ffd.top_delta<pseudo_max = scan>,
  // CHECK-DAG: test.refined = #ffd.top_delta<pseudo_max = refined>
  test.refined = #ffd.top_delta<pseudo_max = refined>,
  // CHECK-DAG: test.certified = #ffd.top_delta<certificate = plain>
  test.certified = #ffd.top_delta<certificate = plain>,
  // CHECK-DAG: test.both = #ffd.top_delta<pseudo_max = refined, certificate = noise>
  test.both = #ffd.top_delta<certificate = noise, pseudo_max = refined>,
  // CHECK-DAG: test.top_k = #ffd.top_k<1>
  test.top_k = #ffd.top_k<1>,
  // CHECK-DAG: test.top_p = #ffd.top_p<1.000000e+00 : f32>
  test.top_p = #ffd.top_p<1.0 : f32>,
  // CHECK-DAG: test.keep_all = #ffd.all
  test.keep_all = #ffd.all,
  // CHECK-DAG: test.schedule = #ffd.schedule<warps = 8, ctas = 2, stages = 2, slots = 2>
  test.schedule = #ffd.schedule<slots = 2, warps = 8, ctas = 2, stages = 2>
} {}

// Every type that carries a spec.
// CHECK-LABEL: func.func private @types(
// CHECK-SAME: !ffd.cache<#[[ALL]]>, !ffd.query<#[[ALL]]>, !ffd.thumbnail<#[[ALL]]>, !ffd.body<#[[ALL]]>
// CHECK-SAME: !ffd.tail<#[[ALL]]>, !ffd.scores<#[[ALL]]>, !ffd.logits<#[[ALL]]>, !ffd.row_max<#[[ALL]]>
// CHECK-SAME: !ffd.threshold<#[[ALL]]>, !ffd.mask<#[[ALL]]>, !ffd.worklist<#[[ALL]]>, !ffd.ranking<#[[ALL]]>, !ffd.state<#[[ALL]]>
#s = #ffd.spec<head_dim = 80, value_dim = 256, group = 16, element = f16, scan_bits = 8, quant_block = 128, select_block = 64>
func.func private @types(!ffd.cache<#s>, !ffd.query<#s>, !ffd.thumbnail<#s>, !ffd.body<#s>,
  !ffd.tail<#s>, !ffd.scores<#s>, !ffd.logits<#s>, !ffd.row_max<#s>,
  !ffd.threshold<#s>, !ffd.mask<#s>, !ffd.worklist<#s>, !ffd.ranking<#s>, !ffd.state<#s>)
