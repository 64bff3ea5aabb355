//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rings: stages of shared memory that copies fill ahead of their use.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_GPU_RING_OPS
#define FFD_GPU_RING_OPS

include "FFDGPUBase.td"

def FFD_GPURingInitOp : FFD_GPUOp<"ring.init", [MemoryEffects<[MemWrite]>]> {
  let summary = "make the barriers of a warp's rings ready";
  let description = [{
    One lane initialises `count` mbarriers of 8 bytes each; nothing happens with
    `async` copies, which need no barriers. A ring belongs to one warp.

    Constraints:
    * (ring_c1) `count` is positive.

    Example:

    ```mlir
    ffd.gpu.ring.init bulk %bars count 4 : !llvm.ptr<3>
    ```
  }];
  let arguments = (ins FFD_CopyKind:$kind, FFD_SharedPtr:$barriers, I64Attr:$count);
  let assemblyFormat = "$kind $barriers `count` $count attr-dict `:` type($barriers)";
  let hasVerifier = 1;
}

def FFD_GPURingFillOp : FFD_GPUOp<"ring.fill", [
    MemoryEffects<[MemRead, MemWrite]>, SameVariadicOperandSize]> {
  let summary = "start the copies that fill one stage of a ring";
  let description = [{
    Copy `i` moves `sizes[i]` bytes from `sources[i]` to `targets[i]`, if
    `condition` (the same in all lanes) holds. With `bulk` one lane issues
    cp.async.bulk against `barrier`; with `async` all lanes issue 16-byte
    cp.async and close the group, also an empty one, so that groups count stages.

    Constraints:
    * (ring_c2) there is one size per copy, a positive multiple of 16.

    Example:

    ```mlir
    ffd.gpu.ring.fill bulk %bar if %c copy %dst from %src sizes [4352]
        : !llvm.ptr<3> copy !llvm.ptr<3> from !llvm.ptr<1>
    ```
  }];
  let arguments = (ins FFD_CopyKind:$kind, FFD_SharedPtr:$barrier, I1:$condition,
                       Variadic<FFD_SharedPtr>:$targets,
                       Variadic<FFD_GlobalPtr>:$sources,
                       DenseI64ArrayAttr:$sizes);
  let assemblyFormat = [{
    $kind $barrier `if` $condition `copy` $targets `from` $sources `sizes` $sizes
    attr-dict `:` type($barrier) `copy` type($targets) `from` type($sources)
  }];
  let hasVerifier = 1;
}

def FFD_GPURingWaitOp : FFD_GPUOp<"ring.wait", [
    MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "wait until a stage is filled";
  let description = [{
    With `bulk`: until the barrier's phase `parity` completes. With `async`:
    until all but the `pending` newest groups have arrived.

    Constraints:
    * (ring_c3) `pending` is not negative.

    Example:

    ```mlir
    ffd.gpu.ring.wait bulk %bar parity %p pending 1 : !llvm.ptr<3>
    ```
  }];
  let arguments = (ins FFD_CopyKind:$kind, FFD_SharedPtr:$barrier, I32:$parity,
                       I64Attr:$pending);
  let assemblyFormat = [{
    $kind $barrier `parity` $parity `pending` $pending attr-dict `:` type($barrier)
  }];
  let hasVerifier = 1;
}

def FFD_GPURingHandoverOp : FFD_GPUOp<"ring.handover", [
    MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "ring memory is about to change its role";
  let description = [{
    Orders the lanes' own accesses before copies that overwrite them; a team
    barrier follows.

    Example:

    ```mlir
    ffd.gpu.ring.handover bulk
    ```
  }];
  let arguments = (ins FFD_CopyKind:$kind);
  let assemblyFormat = "$kind attr-dict";
}

#endif // FFD_GPU_RING_OPS
