// RUN: ffd-opt %s --ffd-gpu-to-nvvm | FileCheck %s

// query_c2 to query_c4: IEEE divisions, products that nothing fuses.
// CHECK-LABEL: func.func @f16
func.func @f16(%q: vector<4xi32>, %s: vector<4xi32>, %sm: f32) -> (vector<4xi32>, i32, f32, i1) {
  // CHECK: llvm.intr.maximum
  // CHECK: arith.constant 1.260000e+02 : f32
  // CHECK: arith.divf
  // CHECK-COUNT-4: cvt.rn.f16x2.f32
  // CHECK: arith.divf
  // CHECK: arith.mulf %{{.*}} : f32
  // CHECK-NOT: fastmath
  %qh, %e, %f, %bad, %k = ffd.gpu.quantize_query %q, %s scale %sm elements f16
      : (vector<4xi32>, vector<4xi32>, f32) -> (vector<4xi32>, i32, f32, i1, f32)
  return %qh, %e, %f, %bad : vector<4xi32>, i32, f32, i1
}

// query_c1: bf16 scales get an exponent of the row.
// CHECK-LABEL: func.func @bf16
func.func @bf16(%q: vector<4xi32>, %s: vector<4xi32>, %sm: f32) -> (vector<4xi32>, f32) {
  // CHECK-COUNT-8: arith.truncf %{{.*}} : f32 to f16
  %qh, %e, %f, %bad, %k = ffd.gpu.quantize_query %q, %s scale %sm elements bf16
      : (vector<4xi32>, vector<4xi32>, f32) -> (vector<4xi32>, i32, f32, i1, f32)
  return %qh, %k : vector<4xi32>, f32
}
