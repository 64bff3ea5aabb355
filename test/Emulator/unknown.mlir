// What the emulator does not know is reported before anything runs: every such
// operation of the kernel, with its place, and nothing of other kernels.
// RUN: not ffd-emulate %s --kernel=intrinsic --arg='i32[32]' 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not ffd-emulate %s --kernel=assembly --arg='i32[32]' 2>&1 | FileCheck %s --check-prefix=ASM
// RUN: not ffd-emulate %s --kernel=call --arg='i32[32]' 2>&1 | FileCheck %s --check-prefix=CALL
// RUN: not ffd-emulate %s --kernel=several --arg='i32[32]' 2>&1 | FileCheck %s --check-prefix=SEVERAL --implicit-check-not=error:

// UNKNOWN: unknown.mlir":[[# @LINE + 2]]:3): error: unknown GPU operation 'llvm.nvvm.barrier.cluster.arrive
llvm.func @intrinsic(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  nvvm.cluster.arrive
  llvm.return
}

// ASM: unknown.mlir":[[# @LINE + 2]]:3): error: unknown GPU operation 'wgmma.fence.sync.aligned' in inline assembly
llvm.func @assembly(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "" : () -> ()
  llvm.return
}

llvm.func @__nv_expf(f32) -> f32
// CALL: error: unknown GPU operation: a call of '__nv_expf'
llvm.func @call(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %x = llvm.load %out : !llvm.ptr<1> -> f32
  %y = llvm.call @__nv_expf(%x) : (f32) -> f32
  llvm.store %y, %out : f32, !llvm.ptr<1>
  llvm.return
}

// SEVERAL: unknown.mlir":[[# @LINE + 11]]:3): error: unknown GPU operation 'llvm.nvvm.barrier.cluster.arrive
// SEVERAL: unknown.mlir":[[# @LINE + 14]]:3): error: unknown GPU operation 'wgmma.fence.sync.aligned', 'setp.what.f32 $0, 1.0' in inline assembly
// SEVERAL: unknown.mlir":[[# @LINE + 15]]:8): error: unknown GPU operation: a call of '__nv_expf'
llvm.func @several(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %lane = nvvm.read.ptx.sreg.laneid : i32
  %c0 = llvm.mlir.constant(0 : i32) : i32
  %all = llvm.mlir.constant(-1 : i32) : i32
  %first = llvm.icmp "eq" %lane, %c0 : i32
  llvm.cond_br %first, ^one, ^two
^one:
  nvvm.bar.warp.sync %all : i32
  nvvm.cluster.arrive
  llvm.br ^two
^two:
  %x = llvm.load %out : !llvm.ptr<1> -> f32
  llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned; membar.gl; setp.what.f32 $0, 1.0;", "f" %x : (f32) -> ()
  llvm.store %x, %out : f32, !llvm.ptr<1>
  %y = llvm.call @__nv_expf(%x) : (f32) -> f32
  llvm.store %y, %out : f32, !llvm.ptr<1>
  llvm.return
}
