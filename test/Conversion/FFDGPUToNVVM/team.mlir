// RUN: ffd-opt %s --ffd-gpu-to-nvvm | FileCheck %s

// CHECK: llvm.mlir.global external @ffd_shared() {addr_space = 3 : i32, alignment = 128 : i64} : !llvm.array<0 x i8>

// CHECK-LABEL: func.func @coordinates
func.func @coordinates() -> (i32, i32, i32, i32, !llvm.ptr<3>) {
  // CHECK: nvvm.read.ptx.sreg.tid.x
  %t = ffd.gpu.id thread
  // CHECK: arith.shrui %{{.*}}, %c5_i32
  %w = ffd.gpu.id warp
  // CHECK: arith.andi %{{.*}}, %c31_i32
  %l = ffd.gpu.id lane
  // CHECK: nvvm.read.ptx.sreg.ctaid.x
  %b = ffd.gpu.id block
  // CHECK: %[[S:.*]] = llvm.mlir.addressof @ffd_shared : !llvm.ptr<3>
  // CHECK: llvm.getelementptr %[[S]][64]
  %p = ffd.gpu.shared 64 : !llvm.ptr<3>
  return %t, %w, %l, %b, %p : i32, i32, i32, i32, !llvm.ptr<3>
}

// Rows of a matrix are lanes 4, 8 and 16 apart.
// CHECK-LABEL: func.func @reduce
func.func @reduce(%x: f32) -> f32 {
  // CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c4_i32
  // CHECK: llvm.intr.maxnum
  // CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c8_i32
  // CHECK: nvvm.shfl.sync bfly %{{.*}}, %{{.*}}, %c16_i32
  %r = ffd.gpu.reduce_rows max %x : f32
  return %r : f32
}

// CHECK-LABEL: func.func @exchange
func.func @exchange(%x: f32, %l: i32, %c: i1) -> (f32, i1, i32) {
  // CHECK: nvvm.shfl.sync idx
  %y = ffd.gpu.shuffle %x from %l : f32
  // CHECK: nvvm.vote.sync any
  %a = ffd.gpu.any %c
  // CHECK: nvvm.vote.sync ballot
  %b = ffd.gpu.ballot %c
  return %y, %a, %b : f32, i1, i32
}

// CHECK-LABEL: func.func @rows
func.func @rows(%w: vector<2xi32>, %p: !llvm.ptr<1>) -> vector<2xi32> {
  // CHECK: prefetch.global.L2 [$0];
  ffd.gpu.prefetch %p : !llvm.ptr<1>
  // CHECK-COUNT-2: movmatrix.sync.aligned.m8n8.trans.b16
  %t = ffd.gpu.transpose %w : vector<2xi32>
  return %t : vector<2xi32>
}

// Reads and copies without a branch; what others write is not read through the
// read-only path.
// CHECK-LABEL: func.func @where
func.func @where(%c: i1, %p: !llvm.ptr<1>, %s: !llvm.ptr<3>) -> (vector<2xi32>, vector<1xi32>) {
  // CHECK-NOT: scf.if
  // CHECK: setp.ne.b32 p, $3, 0;{{.*}}mov.b32 $0, 0;{{.*}}mov.b32 $1, 0;{{.*}}@p ld.global.nc.v2.b32 {$0, $1}, [$2];{{.*}}"=&r,=&r,l,r"
  %w = ffd.gpu.load_if %c, %p : !llvm.ptr<1> -> vector<2xi32>
  // CHECK: @p ld.global.b32 $0, [$1];
  %v = ffd.gpu.load_if %c, %p written : !llvm.ptr<1> -> vector<1xi32>
  // CHECK: @p cp.async.cg.shared.global [$1], [$2], 16;
  ffd.gpu.copy_if %c, %p to %s : !llvm.ptr<1>, !llvm.ptr<3>
  // CHECK: cp.async.wait_all;
  // CHECK: nvvm.bar.warp.sync
  ffd.gpu.copy_wait
  return %w, %v : vector<2xi32>, vector<1xi32>
}

// Warps count for themselves and write their slice of the list.
// CHECK-LABEL: func.func @take
func.func @take(%keep: !llvm.ptr<3>, %queue: !llvm.ptr<3>) -> (i32, i32) {
  // CHECK-COUNT-2: llvm.intr.ctpop
  // CHECK-COUNT-5: nvvm.shfl.sync up
  // CHECK: scf.if
  // CHECK: scf.while
  // CHECK: llvm.intr.cttz
  // CHECK: llvm.store %{{.*}} : i16, !llvm.ptr<3>
  // CHECK: nvvm.bar.warp.sync
  %b, %e = ffd.gpu.queue.take %keep, %queue warps 8 : !llvm.ptr<3>, !llvm.ptr<3>
  return %b, %e : i32, i32
}

// One acquiring and releasing increment per CTA, between two barriers.
// CHECK-LABEL: func.func @arrive
func.func @arrive(%counter: !llvm.ptr<1>, %n: i32, %flag: !llvm.ptr<3>) -> i1 {
  // CHECK: nvvm.barrier
  // CHECK: scf.if
  // CHECK: "atom.acq_rel.gpu.global.inc.u32
  // CHECK: nvvm.barrier
  // CHECK: llvm.load
  %last = ffd.gpu.arrive %counter of %n flag %flag : !llvm.ptr<1>, !llvm.ptr<3>
  return %last : i1
}

// CHECK-LABEL: func.func @count
func.func @count(%p: !llvm.ptr<1>, %n: i64) {
  // CHECK: "red.relaxed.gpu.global.add.u64 [$0], $1;"
  ffd.gpu.add_counter %p, %n : !llvm.ptr<1>
  return
}
