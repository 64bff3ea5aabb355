// cp.async groups and bulk copies with an mbarrier; with their waits and fences,
// and each of them left out.
// RUN: ffd-emulate %s --kernel=groups --shared=512 --seeds=20 --arg='~i32[128]=iota' --arg='>i32[128]' | FileCheck %s
// RUN: not ffd-emulate %s --kernel=groups_no_wait --shared=512 --arg='~i32[128]=iota' --arg='>i32[128]' 2>&1 | FileCheck %s --check-prefix=NOWAIT
// RUN: ffd-emulate %s --kernel=bulk --shared=528 --seeds=20 --arg='~i32[128]=iota' --arg='>i32[128]' | FileCheck %s
// RUN: not ffd-emulate %s --kernel=bulk_no_init_fence --shared=528 --arg='~i32[128]=iota' --arg='i32[128]' 2>&1 | FileCheck %s --check-prefix=INIT
// RUN: not ffd-emulate %s --kernel=bulk_no_wait --shared=528 --arg='~i32[128]=iota' --arg='i32[128]' 2>&1 | FileCheck %s --check-prefix=BULKWAIT
// RUN: not ffd-emulate %s --kernel=bulk_reuse --shared=528 --arg='~i32[128]=iota' --arg='i32[128]' 2>&1 | FileCheck %s --check-prefix=REUSE
// RUN: not ffd-emulate %s --kernel=bulk_short --shared=528 --arg='~i32[128]=iota' --arg='i32[128]' 2>&1 | FileCheck %s --check-prefix=SHORT

// CHECK: {{^}}0 1 2 3 4 5{{.*}} 126 127{{$}}
llvm.mlir.global external @shared() {addr_space = 3 : i32, alignment = 128 : i64} : !llvm.array<0 x i8>

llvm.func @groups(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  %c4 = llvm.mlir.constant(4 : i32) : i32
  %at = llvm.shl %tid, %c4 : i32
  %to = llvm.getelementptr %shared[%at] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
  %from = llvm.getelementptr %in[%at] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
  nvvm.cp.async.shared.global %to, %from, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
  nvvm.cp.async.commit.group
  nvvm.cp.async.wait.group 0
  %x = llvm.load %to {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xi32>
  %o = llvm.getelementptr %out[%at] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
  llvm.store %x, %o {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
  llvm.return
}

// NOWAIT: error: race: read of shared memory at offset [[# ]] by block 0 warp 0 lane [[LANE:[0-9]+]] is not ordered after the write by a cp.async of block 0 warp 0 lane [[LANE]]
llvm.func @groups_no_wait(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  %c4 = llvm.mlir.constant(4 : i32) : i32
  %at = llvm.shl %tid, %c4 : i32
  %to = llvm.getelementptr %shared[%at] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
  %from = llvm.getelementptr %in[%at] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
  nvvm.cp.async.shared.global %to, %from, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
  nvvm.cp.async.commit.group
  nvvm.cp.async.wait.group 1
  %x = llvm.load %to {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xi32>
  %o = llvm.getelementptr %out[%at] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
  llvm.store %x, %o {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
  llvm.return
}

// The pieces that the bulk kernels share: lane 0 prepares the mbarrier at
// offset 512 and starts the copy.
llvm.func @start(%in: !llvm.ptr<1>, %shared: !llvm.ptr<3>, %fence: i1, %bytes: i32) {
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %c0 = llvm.mlir.constant(0 : i32) : i32
  %c1 = llvm.mlir.constant(1 : i32) : i32
  %size = llvm.mlir.constant(512 : i32) : i32
  %all = llvm.mlir.constant(-1 : i32) : i32
  %bar = llvm.getelementptr %shared[512] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
  %first = llvm.icmp "eq" %tid, %c0 : i32
  llvm.cond_br %first, ^init, ^ready
^init:
  nvvm.mbarrier.init %bar, %c1 : !llvm.ptr<3>, i32
  llvm.cond_br %fence, ^fence, ^copy
^fence:
  nvvm.fence.mbarrier.init
  llvm.br ^copy
^copy:
  nvvm.mbarrier.arrive.expect_tx %bar, %bytes : !llvm.ptr<3>, i32
  llvm.inline_asm has_side_effects "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];", "r,l,r,r" %shared, %in, %size, %bar : (!llvm.ptr<3>, !llvm.ptr<1>, i32, !llvm.ptr<3>) -> ()
  llvm.br ^ready
^ready:
  nvvm.bar.warp.sync %all : i32
  llvm.return
}

llvm.func @await(%shared: !llvm.ptr<3>) {
  %bar = llvm.getelementptr %shared[512] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
  %c0 = llvm.mlir.constant(0 : i32) : i32
  llvm.inline_asm has_side_effects "{\0A\09.reg .pred done;\0Aagain: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\0A\09@!done bra again;\0A\09}", "r,r" %bar, %c0 : (!llvm.ptr<3>, i32) -> ()
  llvm.return
}

llvm.func @finish(%shared: !llvm.ptr<3>, %out: !llvm.ptr<1>) {
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %c4 = llvm.mlir.constant(4 : i32) : i32
  %at = llvm.shl %tid, %c4 : i32
  %p = llvm.getelementptr %shared[%at] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i8
  %x = llvm.load %p {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xi32>
  %o = llvm.getelementptr %out[%at] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i8
  llvm.store %x, %o {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
  llvm.return
}

llvm.func @bulk(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  %true = llvm.mlir.constant(true) : i1
  %bytes = llvm.mlir.constant(512 : i32) : i32
  llvm.call @start(%in, %shared, %true, %bytes) : (!llvm.ptr<1>, !llvm.ptr<3>, i1, i32) -> ()
  llvm.call @await(%shared) : (!llvm.ptr<3>) -> ()
  llvm.call @finish(%shared, %out) : (!llvm.ptr<3>, !llvm.ptr<1>) -> ()
  llvm.return
}

// INIT: error: missing proxy fence: a bulk copy by block 0 warp 0 lane 0 reports to an mbarrier that was initialised without fence.mbarrier_init or fence.proxy.async
llvm.func @bulk_no_init_fence(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  %false = llvm.mlir.constant(false) : i1
  %bytes = llvm.mlir.constant(512 : i32) : i32
  llvm.call @start(%in, %shared, %false, %bytes) : (!llvm.ptr<1>, !llvm.ptr<3>, i1, i32) -> ()
  llvm.call @await(%shared) : (!llvm.ptr<3>) -> ()
  llvm.call @finish(%shared, %out) : (!llvm.ptr<3>, !llvm.ptr<1>) -> ()
  llvm.return
}

// BULKWAIT: error: race: read of shared memory at offset [[# ]] by block 0 warp 0 lane [[# ]] is not ordered after the write by a bulk copy of block 0
llvm.func @bulk_no_wait(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  %true = llvm.mlir.constant(true) : i1
  %bytes = llvm.mlir.constant(512 : i32) : i32
  llvm.call @start(%in, %shared, %true, %bytes) : (!llvm.ptr<1>, !llvm.ptr<3>, i1, i32) -> ()
  llvm.call @finish(%shared, %out) : (!llvm.ptr<3>, !llvm.ptr<1>) -> ()
  llvm.return
}

// Lanes write the target before it is copied to, without a proxy fence.
// REUSE: error: missing proxy fence: asynchronous write of shared memory at offset 0 by block 0 warp 0 lane 0 follows the write by block 0 warp 0 lane 0 at 'llvm.store' without fence.proxy.async
llvm.func @bulk_reuse(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %all = llvm.mlir.constant(-1 : i32) : i32
  %p = llvm.getelementptr %shared[%tid] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
  llvm.store %tid, %p : i32, !llvm.ptr<3>
  nvvm.bar.warp.sync %all : i32
  %true = llvm.mlir.constant(true) : i1
  %bytes = llvm.mlir.constant(512 : i32) : i32
  llvm.call @start(%in, %shared, %true, %bytes) : (!llvm.ptr<1>, !llvm.ptr<3>, i1, i32) -> ()
  llvm.call @await(%shared) : (!llvm.ptr<3>) -> ()
  llvm.call @finish(%shared, %out) : (!llvm.ptr<3>, !llvm.ptr<1>) -> ()
  llvm.return
}

// Expects more bytes than are copied.
// SHORT: error: mbarrier at shared offset 512 never completes phase 0: 0 arrivals and 16 bytes are missing
llvm.func @bulk_short(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %shared = llvm.mlir.addressof @shared : !llvm.ptr<3>
  %true = llvm.mlir.constant(true) : i1
  %bytes = llvm.mlir.constant(528 : i32) : i32
  llvm.call @start(%in, %shared, %true, %bytes) : (!llvm.ptr<1>, !llvm.ptr<3>, i1, i32) -> ()
  llvm.call @await(%shared) : (!llvm.ptr<3>) -> ()
  llvm.call @finish(%shared, %out) : (!llvm.ptr<3>, !llvm.ptr<1>) -> ()
  llvm.return
}
