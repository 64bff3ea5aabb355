// RUN: ffd-opt %s --ffd-gpu-to-nvvm | FileCheck %s

// Two bits: codes and residuals are one f16 subnormal; a sum of products and a sum
// of weights per step of 16 channels.
// CHECK-LABEL: func.func @refine2
func.func @refine2(%c: vector<1xi32>, %r: vector<4xi32>) -> vector<4xf32> {
  // CHECK-COUNT-4: mul.rn.f16x2
  // CHECK-COUNT-4: nvvm.mma.sync {{.*}} shape = #nvvm.shape<m = 16, n = 8, k = 16>
  // CHECK-NOT: nvvm.mma.sync
  // CHECK: arith.constant -5.115000e+02 : f32
  %f = ffd.gpu.refine_tile %c, %r, %r, %r bits 2 elements f16
      : (vector<1xi32>, vector<4xi32>, vector<4xi32>, vector<4xi32>) -> vector<4xf32>
  return %f : vector<4xf32>
}

// More bits: codes and residuals apart, and what the rounding of a product to f16
// lost in products of its own.
// CHECK-LABEL: func.func @refine4
func.func @refine4(%c: vector<2xi32>, %r: vector<4xi32>) -> vector<4xf32> {
  // CHECK-COUNT-12: nvvm.mma.sync
  // CHECK-NOT: nvvm.mma.sync
  // CHECK: arith.constant -2.047500e+03 : f32
  %f = ffd.gpu.refine_tile %c, %r, %r, %r bits 4 elements f16
      : (vector<2xi32>, vector<4xi32>, vector<4xi32>, vector<4xi32>) -> vector<4xf32>
  return %f : vector<4xf32>
}

// bf16: products in f32, rounded once to f16.
// CHECK-LABEL: func.func @refine_bf16
func.func @refine_bf16(%c: vector<1xi32>, %r: vector<4xi32>) -> vector<4xf32> {
  // CHECK-COUNT-2: arith.mulf
  // CHECK: cvt.rn.f16x2.f32
  %f = ffd.gpu.refine_tile %c, %r, %r, %r bits 2 elements bf16
      : (vector<1xi32>, vector<4xi32>, vector<4xi32>, vector<4xi32>) -> vector<4xf32>
  return %f : vector<4xf32>
}

// Rescaling is a branch that is rarely taken.
// CHECK-LABEL: func.func @softmax
func.func @softmax(%s: vector<4xf32>, %m: vector<2xf32>, %o: vector<4xf32>) -> vector<2xi32> {
  // CHECK: nvvm.vote.sync any
  // CHECK: scf.if
  // CHECK-COUNT-2: ex2.approx.ftz.f32
  // CHECK: } else {
  // CHECK-COUNT-4: ex2.approx.ftz.f32
  // CHECK-COUNT-2: movmatrix.sync.aligned.m8n8.trans.b16
  %p, %m1, %l1, %o1 = ffd.gpu.softmax_step %s, %m, %m, %o elements f16
      : (vector<4xf32>, vector<2xf32>, vector<2xf32>, vector<4xf32>)
      -> (vector<2xi32>, vector<2xf32>, vector<2xf32>, vector<4xf32>)
  return %p : vector<2xi32>
}

// CHECK-LABEL: func.func @accumulate
func.func @accumulate(%o: vector<8xf32>, %v: vector<8xi32>, %p: vector<2xi32>) -> vector<8xf32> {
  // CHECK-COUNT-2: nvvm.mma.sync {{.*}}multiplicandAPtxType = #nvvm.mma_type<bf16>
  %o1 = ffd.gpu.accumulate %o, %v, %p elements bf16
      : (vector<8xf32>, vector<8xi32>, vector<2xi32>) -> vector<8xf32>
  return %o1 : vector<8xf32>
}

// tail_c1: two of sixteen chains in a lane, folded by halves.
// CHECK-LABEL: func.func @ordered
func.func @ordered(%k: vector<2xi32>, %q: vector<2xi32>) -> f32 {
  // CHECK-COUNT-4: llvm.intr.fma
  // CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c4_i32
  // CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c2_i32
  // CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c1_i32
  // CHECK: arith.addf
  // CHECK: nvvm.shfl.sync
  // CHECK: arith.addf
  // CHECK-NEXT: arith.addf
  // CHECK-NEXT: return
  %f = ffd.gpu.ordered_dot %k, %q elements f16 : vector<2xi32>
  return %f : f32
}
