// RUN: not ffd-opt %s --ffd-tile-to-gpu=arch=sm_70 2>&1 | FileCheck %s
// RUN: not ffd-opt %s --ffd-gpu-to-nvvm=arch=sm_70 2>&1 | FileCheck %s

// CHECK: error: GPU architecture is 'sm_70', expected sm_80 or sm_86 or sm_89 or sm_90 or sm_90a or sm_100a or sm_120a
module {}
