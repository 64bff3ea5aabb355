// RUN: ffd-opt %s --ffd-specialize="head-dim=192 value-dim=128 group=16 element=bf16 scan-bits=8 quant-block=128 select-block=128" | FileCheck %s
// RUN: not ffd-opt %s --ffd-specialize="head-dim=100 group=1 element=f16" 2>&1 | FileCheck %s --check-prefix=DIM
// RUN: not ffd-opt %s --ffd-specialize="head-dim=64 group=1 element=f32" 2>&1 | FileCheck %s --check-prefix=ELEMENT
// RUN: not ffd-opt %s --ffd-specialize="head-dim=64 group=-1 element=f16" 2>&1 | FileCheck %s --check-prefix=GROUP
// RUN: not ffd-opt %s --ffd-specialize="head-dim=64 group=1" 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not ffd-opt %s --ffd-specialize="group=1 element=f16" 2>&1 | FileCheck %s --check-prefix=NONE

// Everything from options.
// CHECK: #ffd.spec<head_dim = 192, value_dim = 128, group = 16, element = bf16, scan_bits = 8, quant_block = 128, select_block = 128>
// DIM: error: head_dim is 100, expected a multiple of 16 in 16..256 (spec_c1)
// ELEMENT: error: option 'element' is 'f32', expected f16 or bf16
// GROUP: error: option 'group' is -1, expected a positive number
// TYPE: error: 'ffd.spec' has no element, expected it from operand types or from an option of --ffd-specialize
// NONE: error: 'ffd.spec' has no head_dim, expected it from static shapes or from an option of --ffd-specialize
#s = #ffd.spec<>
func.func @select(%b: tensor<1x?x?xi32>, %pm: tensor<1x?xi32>, %u: tensor<1x?xf32>, %d: tensor<1xf32>, %cache: !ffd.cache<#s>, %m: tensor<1x?x?xi8>) -> tensor<1x?x?xi8> {
  %0 = ffd.select #ffd.all ins(%b, %pm, %u, %d, %cache : tensor<1x?x?xi32>, tensor<1x?xi32>, tensor<1x?xf32>, tensor<1xf32>, !ffd.cache<#s>)
      outs(%m : tensor<1x?x?xi8>) -> tensor<1x?x?xi8>
  return %0 : tensor<1x?x?xi8>
}
