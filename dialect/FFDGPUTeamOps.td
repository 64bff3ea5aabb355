//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What lanes, warps and CTAs do together: coordinates, shared memory, barriers,
// reductions, and the last arrival of a row's pieces.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_GPU_TEAM_OPS
#define FFD_GPU_TEAM_OPS

include "FFDGPUBase.td"

//===--- The team ----------------------------------------------------------===//

def FFD_GPUIdOp : FFD_GPUOp<"id", [Pure]> {
  let summary = "thread, warp or lane within the CTA, or the CTA's index";
  let description = [{
    Example:

    ```mlir
    %lane = ffd.gpu.id lane
    ```
  }];
  let arguments = (ins FFD_LaneId:$kind);
  let results = (outs I32:$result);
  let assemblyFormat = "$kind attr-dict";
}

def FFD_GPUSharedOp : FFD_GPUOp<"shared", [Pure]> {
  let summary = "an address in the CTA's dynamic shared memory";
  let description = [{
    Constraints:
    * (shared_c1) `offset` is a multiple of 4 and not negative.

    Example:

    ```mlir
    %p = ffd.gpu.shared 4096 : !llvm.ptr<3>
    ```
  }];
  let arguments = (ins I64Attr:$offset);
  let results = (outs FFD_SharedPtr:$result);
  let assemblyFormat = "$offset attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def FFD_GPUTeamBarrierOp : FFD_GPUOp<"team_barrier", [
    MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "all warps of the CTA meet; shared memory becomes visible";
  let description = [{
    Example:

    ```mlir
    ffd.gpu.team_barrier
    ```
  }];
  let assemblyFormat = "attr-dict";
}

def FFD_GPUWarpBarrierOp : FFD_GPUOp<"warp_barrier", [
    MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "all lanes of the warp meet; memory becomes visible among them";
  let description = [{
    Example:

    ```mlir
    ffd.gpu.warp_barrier
    ```
  }];
  let assemblyFormat = "attr-dict";
}

def FFD_GPUReduceRowsOp : FFD_GPUOp<"reduce_rows", [
    Pure, AllTypesMatch<["value", "result"]>]> {
  let summary = "reduce over the lanes that share a column";
  let description = [{
    A butterfly over g: all eight lanes of one tq get the result. `max` on f32
    ignores NaN.

    Example:

    ```mlir
    %m = ffd.gpu.reduce_rows max %x : i32
    ```
  }];
  let arguments = (ins FFD_Reduction:$kind, AnyTypeOf<[I32, F32]>:$value);
  let results = (outs AnyTypeOf<[I32, F32]>:$result);
  let assemblyFormat = "$kind $value attr-dict `:` type($value)";
}

def FFD_GPUShuffleOp : FFD_GPUOp<"shuffle", [
    Pure, AllTypesMatch<["value", "result"]>]> {
  let summary = "the value that another lane of the warp holds";
  let description = [{
    Example:

    ```mlir
    %y = ffd.gpu.shuffle %x from %lane : f32
    ```
  }];
  let arguments = (ins AnyTypeOf<[I32, F32]>:$value, I32:$lane);
  let results = (outs AnyTypeOf<[I32, F32]>:$result);
  let assemblyFormat = "$value `from` $lane attr-dict `:` type($value)";
}

def FFD_GPUAnyOp : FFD_GPUOp<"any", [Pure]> {
  let summary = "whether a condition holds in some lane of the warp";
  let description = [{
    Example:

    ```mlir
    %b = ffd.gpu.any %x
    ```
  }];
  let arguments = (ins I1:$value);
  let results = (outs I1:$result);
  let assemblyFormat = "$value attr-dict";
}

def FFD_GPUTransposeOp : FFD_GPUOp<"transpose", [
    Pure, AllTypesMatch<["words", "result"]>]> {
  let summary = "transpose 8 x 8 matrices of 16-bit elements among the lanes";
  let description = [{
    Word i of all lanes is one matrix: lane `4 r + c` holds elements 2c and 2c + 1
    of row r, before and after. So rows of memory become the fragments that the
    tensor cores want by column.

    Example:

    ```mlir
    %t = ffd.gpu.transpose %x : vector<4xi32>
    ```
  }];
  let arguments = (ins FFD_Words:$words);
  let results = (outs FFD_Words:$result);
  let assemblyFormat = "$words attr-dict `:` type($words)";
}

def FFD_GPUPrefetchOp : FFD_GPUOp<"prefetch", [MemoryEffects<[MemWrite]>]> {
  let summary = "start to bring a line of global memory into the L2 cache";
  let description = [{
    A hint for 128 bytes that will be read soon; no value depends on it. (Listed
    as a write so that it stays where it is.)

    Example:

    ```mlir
    ffd.gpu.prefetch %p : !llvm.ptr<1>
    ```
  }];
  let arguments = (ins FFD_GlobalPtr:$address);
  let assemblyFormat = "$address attr-dict `:` type($address)";
}

def FFD_GPULoadIfOp : FFD_GPUOp<"load_if", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "read words of global memory where a condition holds, else zeros";
  let description = [{
    No branch surrounds the read, so a warp that issues several waits once for
    all of them. With `written`, other CTAs may have written the memory while the
    kernel runs; without it, nobody does. (Listed as a write so that it stays
    where it is.)

    Constraints:
    * (load_c1) one, two or four words, aligned to their size.

    Example:

    ```mlir
    %w = ffd.gpu.load_if %c, %p : !llvm.ptr<1> -> vector<4xi32>
    %v = ffd.gpu.load_if %c, %q written : !llvm.ptr<1> -> vector<2xi32>
    ```
  }];
  let arguments = (ins I1:$condition, FFD_GlobalPtr:$address, UnitAttr:$written);
  let results = (outs FFD_Words:$words);
  let assemblyFormat = "$condition `,` $address (`written` $written^)? attr-dict `:` type($address) `->` type($words)";
  let hasVerifier = 1;
}

def FFD_GPUCopyIfOp : FFD_GPUOp<"copy_if", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "start to copy 16 bytes to shared memory where a condition holds";
  let description = [{
    Each lane copies on its own; `ffd.gpu.copy_wait` waits for the copies of a
    lane. Both addresses are multiples of 16.

    Example:

    ```mlir
    ffd.gpu.copy_if %c, %from to %to : !llvm.ptr<1>, !llvm.ptr<3>
    ```
  }];
  let arguments = (ins I1:$condition, FFD_GlobalPtr:$from, FFD_SharedPtr:$to);
  let assemblyFormat = "$condition `,` $from `to` $to attr-dict `:` type($from) `,` type($to)";
}

def FFD_GPUCopyWaitOp : FFD_GPUOp<"copy_wait", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "wait for all copies of the warp's lanes";
  let description = [{
    What any lane of the warp copied can be read afterwards.

    Example:

    ```mlir
    ffd.gpu.copy_wait
    ```
  }];
  let assemblyFormat = "attr-dict";
}

def FFD_GPUBallotOp : FFD_GPUOp<"ballot", [Pure]> {
  let summary = "one bit per lane of the warp";
  let description = [{
    Example:

    ```mlir
    %b = ffd.gpu.ballot %x
    ```
  }];
  let arguments = (ins I1:$value);
  let results = (outs I32:$result);
  let assemblyFormat = "$value attr-dict";
}

def FFD_GPUExp2Op : FFD_GPUOp<"exp2", [Pure]> {
  let summary = "2 to the power of x, to about 22 bits";
  let description = [{
    The instruction of the special function unit: exp2(-inf) is 0, results below
    the normal numbers are 0.

    Example:

    ```mlir
    %y = ffd.gpu.exp2 %x
    ```
  }];
  let arguments = (ins F32:$value);
  let results = (outs F32:$result);
  let assemblyFormat = "$value attr-dict";
}

def FFD_GPULog2Op : FFD_GPUOp<"log2", [Pure]> {
  let summary = "the binary logarithm, to about 22 bits";
  let description = [{
    Example:

    ```mlir
    %y = ffd.gpu.log2 %x
    ```
  }];
  let arguments = (ins F32:$value);
  let results = (outs F32:$result);
  let assemblyFormat = "$value attr-dict";
}

//===--- The end of a piece ------------------------------------------------===//

def FFD_GPUArriveOp : FFD_GPUOp<"arrive", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "whether this CTA is the last of a row's pieces";
  let description = [{
    Makes everything the CTA wrote visible to the device, counts it in, and tells
    all its threads whether all `pieces` are in; then everything they wrote is
    visible. The last arrival leaves the counter at zero. `flag` is a word of
    shared memory.

    Example:

    ```mlir
    %last = ffd.gpu.arrive %counter of %pieces flag %f : !llvm.ptr<1>, !llvm.ptr<3>
    ```
  }];
  let arguments = (ins FFD_GlobalPtr:$counter, I32:$pieces, FFD_SharedPtr:$flag);
  let results = (outs I1:$last);
  let assemblyFormat = [{
    $counter `of` $pieces `flag` $flag attr-dict `:` type($counter) `,` type($flag)
  }];
}

#endif // FFD_GPU_TEAM_OPS
