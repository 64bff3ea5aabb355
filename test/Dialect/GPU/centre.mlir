// RUN: ffd-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// CHECK-LABEL: @centre
func.func @centre(%k: vector<4xi32>, %c: vector<4xi32>, %s: vector<8xf32>) -> i32 {
  // CHECK: ffd.gpu.relative_keys %{{.*}}, %{{.*}} elements f16 : (vector<4xi32>, vector<4xi32>) -> vector<4xi32>
  %d = ffd.gpu.relative_keys %k, %c elements f16 : (vector<4xi32>, vector<4xi32>) -> vector<4xi32>
  // CHECK: ffd.gpu.add_keys %{{.*}}, %{{.*}} elements bf16 : (vector<8xf32>, vector<4xi32>) -> vector<8xf32>
  %p = ffd.gpu.add_keys %s, %d elements bf16 : (vector<8xf32>, vector<4xi32>) -> vector<8xf32>
  // CHECK: ffd.gpu.centre_key %{{.*}} tokens 128 elements f16 : (vector<8xf32>) -> i32
  %m = ffd.gpu.centre_key %p tokens 128 elements f16 : (vector<8xf32>) -> i32
  return %m : i32
}

// -----

func.func @relative_c1(%k: vector<4xi32>, %c: vector<2xi32>) {
  // expected-error @below {{(relative_c1)}}
  %d = ffd.gpu.relative_keys %k, %c elements f16 : (vector<4xi32>, vector<2xi32>) -> vector<4xi32>
  return
}

// -----

func.func @add_keys_c1(%k: vector<4xi32>, %s: vector<4xf32>) {
  // expected-error @below {{(add_keys_c1)}}
  %p = ffd.gpu.add_keys %s, %k elements f16 : (vector<4xf32>, vector<4xi32>) -> vector<4xf32>
  return
}

// -----

func.func @centre_key_c1(%s: vector<4xf32>) {
  // expected-error @below {{(centre_key_c1)}}
  %m = ffd.gpu.centre_key %s tokens 128 elements f16 : (vector<4xf32>) -> i32
  return
}

// -----

func.func @element(%s: vector<8xf32>) {
  // expected-error @below {{f32}}
  %m = ffd.gpu.centre_key %s tokens 128 elements f32 : (vector<8xf32>) -> i32
  return
}
