// Collectives that not all lanes reach, and kernels that do not end, are reports
// and not hangs.
// RUN: not ffd-emulate %s --kernel=vote_in_branch --arg='i32[32]' 2>&1 | FileCheck %s --check-prefix=VOTE
// RUN: not ffd-emulate %s --kernel=ended --arg='i32[32]' 2>&1 | FileCheck %s --check-prefix=ENDED
// RUN: not ffd-emulate %s --kernel=barrier --block=64 --arg='i32[64]' 2>&1 | FileCheck %s --check-prefix=BARRIER
// RUN: not ffd-emulate %s --kernel=outside --arg='i32[32]' 2>&1 | FileCheck %s --check-prefix=OUTSIDE
// RUN: not ffd-emulate %s --kernel=endless --arg='i32[32]' --step-budget=10000 2>&1 | FileCheck %s --check-prefix=ENDLESS
// RUN: not ffd-emulate %s --kernel=nowhere 2>&1 | FileCheck %s --check-prefix=NOWHERE

// Lanes 0 to 15 vote, the others shuffle.
// VOTE: error: divergent collective
llvm.func @vote_in_branch(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %lane = nvvm.read.ptx.sreg.laneid : i32
  %all = llvm.mlir.constant(-1 : i32) : i32
  %c16 = llvm.mlir.constant(16 : i32) : i32
  %c31 = llvm.mlir.constant(31 : i32) : i32
  %low = llvm.icmp "ult" %lane, %c16 : i32
  llvm.cond_br %low, ^vote, ^shuffle
^vote:
  %0 = nvvm.vote.sync ballot %all, %low -> i32
  llvm.br ^end(%0 : i32)
^shuffle:
  %1 = nvvm.shfl.sync idx %all, %lane, %c16, %c31 : i32 -> i32
  llvm.br ^end(%1 : i32)
^end(%2: i32):
  %p = llvm.getelementptr %out[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
  llvm.store %2, %p : i32, !llvm.ptr<1>
  llvm.return
}

// ENDED: divergence.mlir":[[# @LINE + 8]]:8): error: divergent collective 'vote.sync.ballot.b32': {{.*(lane 0 has ended|lanes 0x1 of mask 0xFFFFFFFF have ended)}}
llvm.func @ended(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %lane = nvvm.read.ptx.sreg.laneid : i32
  %all = llvm.mlir.constant(-1 : i32) : i32
  %c0 = llvm.mlir.constant(0 : i32) : i32
  %first = llvm.icmp "eq" %lane, %c0 : i32
  llvm.cond_br %first, ^end, ^vote
^vote:
  %0 = nvvm.vote.sync ballot %all, %first -> i32
  llvm.br ^end
^end:
  llvm.return
}

// BARRIER: error: barrier 0 never completes: 63 of 64 threads arrived, but block 0 warp 1 lane 31 has ended
llvm.func @barrier(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %c63 = llvm.mlir.constant(63 : i32) : i32
  %last = llvm.icmp "eq" %tid, %c63 : i32
  llvm.cond_br %last, ^end, ^wait
^wait:
  nvvm.barrier
  llvm.br ^end
^end:
  llvm.return
}

// OUTSIDE: by a lane that is not in its mask 0x1
llvm.func @outside(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %one = llvm.mlir.constant(1 : i32) : i32
  nvvm.bar.warp.sync %one : i32
  llvm.return
}

// ENDLESS: error: the kernel did not end within 10000 steps
llvm.func @endless(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  llvm.br ^loop
^loop:
  %x = llvm.load %out : !llvm.ptr<1> -> i32
  %c1 = llvm.mlir.constant(1 : i32) : i32
  %done = llvm.icmp "eq" %x, %c1 : i32
  llvm.cond_br %done, ^end, ^loop
^end:
  llvm.return
}

// NOWHERE: error: there is no kernel 'nowhere'
