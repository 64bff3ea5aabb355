// Two warps exchange through shared memory; with and without the barrier, and
// with one thread too many.
// RUN: ffd-emulate %s --kernel=good --block=64 --seeds=20 --arg='>i32[64]' --arg=64:i32 | FileCheck %s
// RUN: not ffd-emulate %s --kernel=no_barrier --block=64 --arg='i32[64]' --arg=64:i32 2>&1 | FileCheck %s --check-prefix=BARRIER
// RUN: not ffd-emulate %s --kernel=good --block=64 --arg='i32[63]' --arg=64:i32 2>&1 | FileCheck %s --check-prefix=BOUNDS
// RUN: not ffd-emulate %s --kernel=good --block=64 --arg='~i32[64]' --arg=64:i32 2>&1 | FileCheck %s --check-prefix=READONLY
// RUN: not ffd-emulate %s --kernel=misaligned --arg='i32[64]' 2>&1 | FileCheck %s --check-prefix=ALIGN
// RUN: not ffd-emulate %s --kernel=unwritten --arg='i32[64]' 2>&1 | FileCheck %s --check-prefix=UNWRITTEN

llvm.mlir.global internal @cells() {addr_space = 3 : i32} : !llvm.array<64 x i32>

// CHECK: {{^}}63 62 61 60{{.*}} 2 1 0{{$}}
// BOUNDS: reverse.mlir":[[# @LINE + 15]]:3): error: out-of-bounds access: 4-byte write at offset 252 of buffer 'argument 0' (252 bytes) by block 0 warp 1 lane 31
// BOUNDS-NEXT: in block (0, 0, 0), warp 1, lane 31
// READONLY: reverse.mlir":[[# @LINE + 13]]:3): error: write to a read-only buffer
llvm.func @good(%out: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %cells = llvm.mlir.addressof @cells : !llvm.ptr<3>
  %one = llvm.mlir.constant(1 : i32) : i32
  %p = llvm.getelementptr %cells[%tid] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
  llvm.store %tid, %p : i32, !llvm.ptr<3>
  nvvm.barrier
  %last = llvm.sub %n, %one : i32
  %other = llvm.sub %last, %tid : i32
  %q = llvm.getelementptr %cells[%other] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
  %x = llvm.load %q : !llvm.ptr<3> -> i32
  %o = llvm.getelementptr %out[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
  llvm.store %x, %o : i32, !llvm.ptr<1>
  llvm.return
}

// Each lane writes twice, so that what is read was written in any order. Which
// access comes last depends on the schedule.
// BARRIER: reverse.mlir":{{[0-9]+:[38]}}): error: race: {{read|write}} of shared memory at offset [[# ]] by block 0 warp [[# ]] lane [[# ]] is not ordered after the {{read|write}} by block 0 warp [[# ]] lane [[# ]] at 'llvm.{{load|store}}'
// BARRIER-NEXT: in block (0, 0, 0), warp
// BARRIER-NEXT: reverse.mlir":{{[0-9]+:[38]}}): note: the other operation is here
llvm.func @no_barrier(%out: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %cells = llvm.mlir.addressof @cells : !llvm.ptr<3>
  %one = llvm.mlir.constant(1 : i32) : i32
  %p = llvm.getelementptr %cells[%tid] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
  llvm.store %tid, %p : i32, !llvm.ptr<3>
  nvvm.barrier
  llvm.store %one, %p : i32, !llvm.ptr<3>
  %last = llvm.sub %n, %one : i32
  %other = llvm.sub %last, %tid : i32
  %q = llvm.getelementptr %cells[%other] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
  %x = llvm.load %q : !llvm.ptr<3> -> i32
  %o = llvm.getelementptr %out[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
  llvm.store %x, %o : i32, !llvm.ptr<1>
  llvm.return
}

// ALIGN: error: misaligned access: 8-byte read at offset 4 of buffer 'argument 0'
llvm.func @misaligned(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %p = llvm.getelementptr %out[1] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
  %x = llvm.load %p : !llvm.ptr<1> -> i64
  llvm.store %x, %out : i64, !llvm.ptr<1>
  llvm.return
}

// UNWRITTEN: reverse.mlir":[[# @LINE + 3]]:8): error: read of shared memory that nothing wrote, at offset 0
llvm.func @unwritten(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %cells = llvm.mlir.addressof @cells : !llvm.ptr<3>
  %x = llvm.load %cells : !llvm.ptr<3> -> i32
  llvm.store %x, %out : i32, !llvm.ptr<1>
  llvm.return
}
