// RUN: ffd-opt %s | ffd-opt | FileCheck %s
// RUN: ffd-opt %s --mlir-print-op-generic | ffd-opt | FileCheck %s

// CHECK-LABEL: @team
func.func @team(%x: f32, %i: i32, %c: i1) {
  // CHECK: ffd.gpu.id thread
  %t = ffd.gpu.id thread
  // CHECK: ffd.gpu.id warp
  %w = ffd.gpu.id warp
  // CHECK: ffd.gpu.id lane
  %l = ffd.gpu.id lane
  // CHECK: ffd.gpu.id block
  %b = ffd.gpu.id block
  // CHECK: ffd.gpu.shared 4096 : !llvm.ptr<3>
  %p = ffd.gpu.shared 4096 : !llvm.ptr<3>
  // CHECK: ffd.gpu.team_barrier
  ffd.gpu.team_barrier
  // CHECK: ffd.gpu.warp_barrier
  ffd.gpu.warp_barrier
  // CHECK: ffd.gpu.reduce_rows max %{{.*}} : i32
  %r = ffd.gpu.reduce_rows max %i : i32
  // CHECK: ffd.gpu.reduce_rows add %{{.*}} : f32
  %s = ffd.gpu.reduce_rows add %x : f32
  // CHECK: ffd.gpu.shuffle %{{.*}} from %{{.*}} : f32
  %y = ffd.gpu.shuffle %x from %l : f32
  // CHECK: ffd.gpu.any %{{.*}}
  %a = ffd.gpu.any %c
  // CHECK: ffd.gpu.ballot %{{.*}}
  %m = ffd.gpu.ballot %c
  // CHECK: ffd.gpu.exp2 %{{.*}}
  %e = ffd.gpu.exp2 %x
  // CHECK: ffd.gpu.log2 %{{.*}}
  %g = ffd.gpu.log2 %x
  return
}

// CHECK-LABEL: @rows
func.func @rows(%words: vector<4xi32>, %line: !llvm.ptr<1>, %to: !llvm.ptr<3>, %c: i1) {
  // CHECK: ffd.gpu.transpose %{{.*}} : vector<4xi32>
  %t = ffd.gpu.transpose %words : vector<4xi32>
  // CHECK: ffd.gpu.prefetch %{{.*}} : !llvm.ptr<1>
  ffd.gpu.prefetch %line : !llvm.ptr<1>
  // CHECK: ffd.gpu.load_if %{{.*}}, %{{.*}} : !llvm.ptr<1> -> vector<4xi32>
  %w = ffd.gpu.load_if %c, %line : !llvm.ptr<1> -> vector<4xi32>
  // CHECK: ffd.gpu.load_if %{{.*}}, %{{.*}} written : !llvm.ptr<1> -> vector<1xi32>
  %v = ffd.gpu.load_if %c, %line written : !llvm.ptr<1> -> vector<1xi32>
  // CHECK: ffd.gpu.copy_if %{{.*}}, %{{.*}} to %{{.*}} : !llvm.ptr<1>, !llvm.ptr<3>
  ffd.gpu.copy_if %c, %line to %to : !llvm.ptr<1>, !llvm.ptr<3>
  // CHECK: ffd.gpu.copy_wait
  ffd.gpu.copy_wait
  return
}

// CHECK-LABEL: @rings
func.func @rings(%bar: !llvm.ptr<3>, %dst: !llvm.ptr<3>, %src: !llvm.ptr<1>, %c: i1, %p: i32) {
  // CHECK: ffd.gpu.ring.init bulk %{{.*}} count 4 : !llvm.ptr<3>
  ffd.gpu.ring.init bulk %bar count 4 : !llvm.ptr<3>
  // CHECK: ffd.gpu.ring.fill bulk %{{.*}} if %{{.*}} copy %{{.*}}, %{{.*}} from %{{.*}}, %{{.*}} sizes [4096, 256] : !llvm.ptr<3> copy !llvm.ptr<3>, !llvm.ptr<3> from !llvm.ptr<1>, !llvm.ptr<1>
  ffd.gpu.ring.fill bulk %bar if %c copy %dst, %dst from %src, %src sizes [4096, 256]
      : !llvm.ptr<3> copy !llvm.ptr<3>, !llvm.ptr<3> from !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: ffd.gpu.ring.wait async %{{.*}} parity %{{.*}} pending 1 : !llvm.ptr<3>
  ffd.gpu.ring.wait async %bar parity %p pending 1 : !llvm.ptr<3>
  // CHECK: ffd.gpu.ring.handover bulk
  ffd.gpu.ring.handover bulk
  return
}

// CHECK-LABEL: @query
func.func @query(%q: vector<16xi32>, %smax: vector<16xi32>, %sm: f32) {
  // CHECK: ffd.gpu.quantize_query %{{.*}}, %{{.*}} scale %{{.*}} elements bf16 : (vector<16xi32>, vector<16xi32>, f32) -> (vector<16xi32>, i32, f32, i1, f32)
  %qh, %e, %f, %bad, %k = ffd.gpu.quantize_query %q, %smax scale %sm elements bf16
      : (vector<16xi32>, vector<16xi32>, f32) -> (vector<16xi32>, i32, f32, i1, f32)
  // CHECK: ffd.gpu.scale_query %{{.*}}, %{{.*}} elements f16 : (vector<16xi32>, vector<16xi32>) -> (vector<16xi32>, f32)
  %qs, %inv = ffd.gpu.scale_query %q, %smax elements f16
      : (vector<16xi32>, vector<16xi32>) -> (vector<16xi32>, f32)
  return
}

// CHECK-LABEL: @scan
func.func @scan(%q: vector<16xi32>, %s: vector<16xi32>, %c: vector<4xi32>, %k: f32, %e: i32, %s0: i32) -> i32 {
  // CHECK: ffd.gpu.scale_fragment %{{.*}} by %{{.*}} : vector<16xi32>
  %t = ffd.gpu.scale_fragment %s by %k : vector<16xi32>
  // CHECK: ffd.gpu.fold %{{.*}}, %{{.*}} factor %{{.*}} : (vector<16xi32>, vector<16xi32>, i32) -> vector<8xi32>
  %b = ffd.gpu.fold %q, %t factor %e
      : (vector<16xi32>, vector<16xi32>, i32) -> vector<8xi32>
  // CHECK: ffd.gpu.centre %{{.*}} bits 2 : vector<8xi32>
  %z = ffd.gpu.centre %b bits 2 : vector<8xi32>
  // CHECK: ffd.gpu.scan_tile %{{.*}}, %{{.*}}, %{{.*}} start %{{.*}}, %{{.*}} bits 2 : (vector<4xi32>, vector<8xi32>, vector<8xi32>, i32, i32) -> vector<4xi32>
  %a = ffd.gpu.scan_tile %c, %b, %b start %z, %s0 bits 2
      : (vector<4xi32>, vector<8xi32>, vector<8xi32>, i32, i32) -> vector<4xi32>
  // CHECK: ffd.gpu.push_keep %{{.*}}, %{{.*}} : vector<4xi32>
  %n = ffd.gpu.push_keep %e, %a : vector<4xi32>
  // CHECK: ffd.gpu.keep_mask %{{.*}} select 64
  %m = ffd.gpu.keep_mask %n select 64
  return %m : i32
}

// CHECK-LABEL: @screen
func.func @screen(%q: vector<16xi32>, %s: vector<16xi32>, %c: vector<4xi32>, %e: i32) -> vector<8xi32> {
  // CHECK: ffd.gpu.fold_high %{{.*}}, %{{.*}} factor %{{.*}} : (vector<16xi32>, vector<16xi32>, i32) -> vector<8xi32>
  %b = ffd.gpu.fold_high %q, %s factor %e
      : (vector<16xi32>, vector<16xi32>, i32) -> vector<8xi32>
  // CHECK: ffd.gpu.square_sum %{{.*}} : vector<8xi32>
  %sq = ffd.gpu.square_sum %b : vector<8xi32>
  // CHECK: ffd.gpu.centre_high %{{.*}} bits 2 : vector<8xi32> -> vector<2xi32>
  %z = ffd.gpu.centre_high %b bits 2 : vector<8xi32> -> vector<2xi32>
  // CHECK: ffd.gpu.screen_tile %{{.*}}, %{{.*}}, %{{.*}} start %{{.*}}, %{{.*}} bits 2 : (vector<4xi32>, vector<8xi32>, vector<8xi32>, vector<2xi32>, vector<2xi32>) -> vector<8xi32>
  %a = ffd.gpu.screen_tile %c, %b, %b start %z, %z bits 2
      : (vector<4xi32>, vector<8xi32>, vector<8xi32>, vector<2xi32>, vector<2xi32>) -> vector<8xi32>
  return %a : vector<8xi32>
}

// CHECK-LABEL: @attend
func.func @attend(%c: vector<4xi32>, %r: vector<16xi32>, %k: vector<32xi32>, %k2: vector<8xi32>,
    %ml: vector<2xf32>, %o: vector<32xf32>, %v: vector<32xi32>) {
  // CHECK: ffd.gpu.ordered_dot %{{.*}}, %{{.*}} elements f16 : vector<8xi32>
  %p0 = ffd.gpu.ordered_dot %k2, %k2 elements f16 : vector<8xi32>
  // CHECK: ffd.gpu.dot_tile %{{.*}}, %{{.*}} elements f16 : (vector<32xi32>, vector<16xi32>) -> vector<4xf32>
  %f0 = ffd.gpu.dot_tile %k, %r elements f16
      : (vector<32xi32>, vector<16xi32>) -> vector<4xf32>
  // CHECK: ffd.gpu.refine_tile %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} bits 2 elements f16 : (vector<4xi32>, vector<16xi32>, vector<16xi32>, vector<16xi32>) -> vector<4xf32>
  %f = ffd.gpu.refine_tile %c, %r, %r, %r bits 2 elements f16
      : (vector<4xi32>, vector<16xi32>, vector<16xi32>, vector<16xi32>) -> vector<4xf32>
  // CHECK: ffd.gpu.softmax_step %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} elements f16 : (vector<4xf32>, vector<2xf32>, vector<2xf32>, vector<32xf32>) -> (vector<2xi32>, vector<2xf32>, vector<2xf32>, vector<32xf32>)
  %p, %m1, %l1, %o1 = ffd.gpu.softmax_step %f, %ml, %ml, %o elements f16
      : (vector<4xf32>, vector<2xf32>, vector<2xf32>, vector<32xf32>)
      -> (vector<2xi32>, vector<2xf32>, vector<2xf32>, vector<32xf32>)
  // CHECK: ffd.gpu.accumulate %{{.*}}, %{{.*}}, %{{.*}} elements bf16 : (vector<32xf32>, vector<32xi32>, vector<2xi32>) -> vector<32xf32>
  %o2 = ffd.gpu.accumulate %o1, %v, %p elements bf16
      : (vector<32xf32>, vector<32xi32>, vector<2xi32>) -> vector<32xf32>
  return
}

// CHECK-LABEL: @queue
func.func @queue(%keep: !llvm.ptr<3>, %queue: !llvm.ptr<3>, %counter: !llvm.ptr<1>, %n: i32) {
  // CHECK: ffd.gpu.queue.take %{{.*}}, %{{.*}} warps 8 : !llvm.ptr<3>, !llvm.ptr<3>
  %begin, %end = ffd.gpu.queue.take %keep, %queue warps 8 : !llvm.ptr<3>, !llvm.ptr<3>
  // CHECK: ffd.gpu.arrive %{{.*}} of %{{.*}} flag %{{.*}} : !llvm.ptr<1>, !llvm.ptr<3>
  %last = ffd.gpu.arrive %counter of %n flag %keep : !llvm.ptr<1>, !llvm.ptr<3>
  return
}
