// RUN: ffd-opt %s --ffd-gpu-to-nvvm | FileCheck %s

// Magnitudes as integers, then a butterfly over the lanes of a channel: 16
// channels in three steps.
// CHECK-LABEL: func.func @maxima
func.func @maxima(%k: vector<16xi32>) -> vector<16xi32> {
  // CHECK: arith.constant 32767
  // CHECK: arith.maxsi
  // CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c4_i32
  // CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c8_i32
  // CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c16_i32
  // CHECK-COUNT-45: nvvm.shfl.sync bfly
  // CHECK-NOT: nvvm.shfl.sync
  %m = ffd.gpu.key_maxima %k : (vector<16xi32>) -> vector<16xi32>
  // CHECK: return
  return %m : vector<16xi32>
}

// Two true divisions; only bf16 has scales that count as zero (split_c2).
// CHECK-LABEL: func.func @scale_f16
func.func @scale_f16(%a: i32) -> (i32, f32) {
  // CHECK: arith.divf
  // CHECK: cvt.rn.f16x2.f32
  // CHECK-NOT: arith.cmpf
  // CHECK: arith.divf
  // CHECK: arith.mulf
  %s, %f = ffd.gpu.split_scale %a bits 2 elements f16 : i32, f32
  return %s, %f : i32, f32
}
// CHECK-LABEL: func.func @scale_bf16
func.func @scale_bf16(%a: i32) -> (i32, f32) {
  // CHECK: cvt.rn.bf16x2.f32
  // CHECK: arith.cmpf olt
  %s, %f = ffd.gpu.split_scale %a bits 4 elements bf16 : i32, f32
  return %s, %f : i32, f32
}

// 32 elements of a lane: one multiply-add and one clamp each.
// CHECK-LABEL: func.func @tile
func.func @tile(%k: vector<16xi32>, %f: vector<16xf32>) -> (vector<2xi32>, vector<8xi32>) {
  // CHECK: llvm.intr.fma
  // CHECK: llvm.intr.floor
  // CHECK: llvm.intr.maxnum
  // CHECK: llvm.intr.minnum
  // CHECK: arith.fptosi
  // CHECK-COUNT-31: llvm.intr.fma
  // CHECK-NOT: llvm.intr.fma
  %c, %r = ffd.gpu.split_tile %k, %f bits 2 elements f16 : (vector<16xi32>, vector<16xf32>) -> (vector<2xi32>, vector<8xi32>)
  // CHECK: return
  return %c, %r : vector<2xi32>, vector<8xi32>
}
