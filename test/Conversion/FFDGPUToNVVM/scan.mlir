// RUN: ffd-opt %s --ffd-gpu-to-nvvm | FileCheck %s

// scan_c1 in five operations on pairs of f16.
// CHECK-LABEL: func.func @fold
func.func @fold(%q: vector<4xi32>, %s: vector<4xi32>, %e: i32) -> vector<2xi32> {
  // CHECK: mul.rn.f16x2
  // CHECK-COUNT-4: fma.rn.f16x2
  // CHECK: mul.rn.f16x2
  // CHECK-COUNT-4: fma.rn.f16x2
  // CHECK: prmt.b32
  %b = ffd.gpu.fold %q, %s factor %e : (vector<4xi32>, vector<4xi32>, i32) -> vector<2xi32>
  return %b : vector<2xi32>
}

// query_c1: one product in f32, one rounding to f16.
// CHECK-LABEL: func.func @scale_fragment
func.func @scale_fragment(%s: vector<4xi32>, %k: f32) -> vector<4xi32> {
  // CHECK: arith.mulf
  // CHECK: arith.mulf
  // CHECK: cvt.rn.f16x2.f32
  %t = ffd.gpu.scale_fragment %s by %k : vector<4xi32>
  return %t : vector<4xi32>
}

// 2 L = 15 as the other operand: four bytes 0x0f.
// CHECK-LABEL: func.func @centre
func.func @centre(%b: vector<4xi32>) -> i32 {
  // CHECK: arith.constant 252645135 : i32
  // CHECK-COUNT-2: nvvm.mma.sync {{.*}} shape = #nvvm.shape<m = 16, n = 8, k = 32>
  %z = ffd.gpu.centre %b bits 4 : vector<4xi32>
  return %z : i32
}

// Two bits: one shift for four registers, and odd fields stay where they are.
// CHECK-LABEL: func.func @scan2
func.func @scan2(%c: vector<1xi32>, %b: vector<2xi32>, %s: i32) -> vector<2xi32> {
  // CHECK: arith.shli %{{.*}}, %c2_i32
  // CHECK-DAG: arith.constant 50529027 : i32
  // CHECK-DAG: arith.constant 202116108 : i32
  // CHECK: arith.shrui %{{.*}}, %c4_i32
  // CHECK-NOT: arith.shrui
  // CHECK-COUNT-4: arith.andi
  // CHECK: nvvm.mma.sync
  %a = ffd.gpu.scan_tile %c, %b start %s bits 2 : (vector<1xi32>, vector<2xi32>, i32) -> vector<2xi32>
  return %a : vector<2xi32>
}

// Eight bits: the words are the operand.
// CHECK-LABEL: func.func @scan8
func.func @scan8(%c: vector<4xi32>, %b: vector<2xi32>, %s: i32) -> vector<2xi32> {
  // CHECK-NOT: arith.andi
  // CHECK: nvvm.mma.sync
  %a = ffd.gpu.scan_tile %c, %b start %s bits 8 : (vector<4xi32>, vector<2xi32>, i32) -> vector<2xi32>
  return %a : vector<2xi32>
}

// A column per head: no low bytes to add, and a start for each of two heads.
// CHECK-LABEL: func.func @screen
func.func @screen(%c: vector<1xi32>, %q: vector<4xi32>, %e: i32, %s: vector<2xi32>) -> vector<4xi32> {
  // CHECK-COUNT-4: llvm.inline_asm {{.*}}fma.rn.f16x2
  // CHECK-NOT: fma.rn.f16x2
  %b = ffd.gpu.fold_high %q, %q factor %e : (vector<4xi32>, vector<4xi32>, i32) -> vector<2xi32>
  // CHECK-COUNT-2: arith.shli
  // CHECK: nvvm.mma.sync
  // CHECK-NOT: arith.addi
  %a = ffd.gpu.screen_tile %c, %b start %s bits 2 : (vector<1xi32>, vector<2xi32>, vector<2xi32>) -> vector<4xi32>
  return %a : vector<4xi32>
}

// CHECK-LABEL: func.func @keep
func.func @keep(%n: i32, %a: vector<2xi32>) -> i32 {
  // CHECK: arith.andi
  // CHECK: llvm.intr.fshl
  %m = ffd.gpu.push_keep %n, %a : vector<2xi32>
  // CHECK: nvvm.redux.sync and
  // CHECK: arith.muli %{{.*}}, %c3_i32
  %k = ffd.gpu.keep_mask %m select 32
  return %k : i32
}
