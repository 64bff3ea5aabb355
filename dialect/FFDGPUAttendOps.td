//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Scores of tokens that are kept, and the softmax over them.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_GPU_ATTEND_OPS
#define FFD_GPU_ATTEND_OPS

include "FFDGPUBase.td"

//===--- The tail ----------------------------------------------------------===//

def FFD_GPUOrderedDotOp : FFD_GPUOp<"ordered_dot", [
    Pure, AllTypesMatch<["keys", "query"]>]> {
  let summary = "the score of a tail token in the order of tail_c1";
  let description = [{
    Eight lanes share a token: lane `l` of them holds channels `16n + 2l` and
    `16n + 2l + 1` as word n of `keys` and of one head's `query`. All eight get
    `p_0`.

    Example:

    ```mlir
    %p = ffd.gpu.ordered_dot %k, %q elements f16 : vector<8xi32>
    ```
  }];
  let arguments = (ins FFD_Words:$keys, FFD_Words:$query, TypeAttr:$element);
  let results = (outs F32:$result);
  let assemblyFormat = "$keys `,` $query `elements` $element attr-dict `:` type($keys)";
}

def FFD_GPUDotTileOp : FFD_GPUOp<"dot_tile", [Pure]> {
  let summary = "scores of 16 tokens from 16-bit keys";
  let description = [{
    `keys` has eight words per channel group: the four of a fragment for token g,
    then for token g + 8. Four results per query tile: heads 2 tq and 2 tq + 1 of
    token g, then of token g + 8.

    Constraints:
    * (dot_c1) `keys` has twice the words of each query, `result` four floats per
      query.

    Example:

    ```mlir
    %f = ffd.gpu.dot_tile %k, %q elements f16
        : (vector<32xi32>, vector<16xi32>) -> vector<4xf32>
    ```
  }];
  let arguments = (ins FFD_Words:$keys, Variadic<FFD_Words>:$queries,
                       TypeAttr:$element);
  let results = (outs FFD_Floats:$result);
  let assemblyFormat = [{
    $keys `,` $queries `elements` $element attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

//===--- The queue ---------------------------------------------------------===//

def FFD_GPUQueueTakeOp : FFD_GPUOp<"queue.take", [
    MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "a warp's part of the kept tiles, in ascending order";
  let description = [{
    `keep` holds a byte per block, one bit per tile: byte `W i + w` is that of the
    i-th block of warp w, i < 32, W warps. The kept tiles, in the order of the
    bytes, are cut into W even slices; this warp writes the 16-bit numbers
    `8 byte + tile` of its slice to `queue[begin..end)`. Every warp counts for
    itself, so the order does not depend on timing.

    Constraints:
    * (queue_c1) `warps` is 4, 8 or 16.

    Example:

    ```mlir
    %begin, %end = ffd.gpu.queue.take %keep, %queue warps 8
        : !llvm.ptr<3>, !llvm.ptr<3>
    ```
  }];
  let arguments = (ins FFD_SharedPtr:$keep, FFD_SharedPtr:$queue, I64Attr:$warps);
  let results = (outs I32:$begin, I32:$end);
  let assemblyFormat = [{
    $keep `,` $queue `warps` $warps attr-dict `:` type($keep) `,` type($queue)
  }];
  let hasVerifier = 1;
}

//===--- Refinement and softmax --------------------------------------------===//

def FFD_GPURefineTileOp : FFD_GPUOp<"refine_tile", [Pure]> {
  let summary = "refined scores of 16 tokens";
  let description = [{
    attend_c1 without `sm_scale`: `sum_c q s ((t - L) + (r - 127.5) / 256)` for
    queries made by `ffd.gpu.scale_query`. Results as in `ffd.gpu.dot_tile`. Codes
    and residuals enter the tensor cores as f16 *subnormals*, which represent
    small integers exactly without a conversion.

    Constraints:
    * (scan_o1) `bits` is 2, 4 or 8;
    * (refine_c1) residuals, scales and queries have four words per channel group,
      codes `bits / 2`, `result` four floats per query.

    Example:

    ```mlir
    %f = ffd.gpu.refine_tile %c, %r, %s, %q bits 2 elements f16
        : (vector<4xi32>, vector<16xi32>, vector<16xi32>, vector<16xi32>) -> vector<4xf32>
    ```
  }];
  let arguments = (ins FFD_Words:$codes, FFD_Words:$residuals, FFD_Words:$scales,
                       Variadic<FFD_Words>:$queries, I64Attr:$bits,
                       TypeAttr:$element);
  let results = (outs FFD_Floats:$result);
  let assemblyFormat = [{
    $codes `,` $residuals `,` $scales `,` $queries `bits` $bits `elements` $element
    attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def FFD_GPUSoftmaxStepOp : FFD_GPUOp<"softmax_step", [
    Pure, AllTypesMatch<["reference", "sum", "new_reference", "new_sum"]>,
    AllTypesMatch<["output", "new_output"]>]> {
  let summary = "probabilities of 16 tokens for eight heads";
  let description = [{
    `scores` are in units of log2, for heads 2 tq and 2 tq + 1 of token g, then of
    token g + 8. Where they exceed the heads' `reference` by more than 8, which is
    rare, reference, sum and output are rescaled first. `p` is the B operand for
    `ffd.gpu.accumulate`: probabilities of head g, rounded to the element type.

    Constraints:
    * (softmax_c1) `scores` has 4, `reference` and `sum` 2 floats, `output` a
      multiple of 4.

    Example:

    ```mlir
    %p, %m1, %l1, %o1 = ffd.gpu.softmax_step %s, %m, %l, %o elements f16
        : (vector<4xf32>, vector<2xf32>, vector<2xf32>, vector<32xf32>)
        -> (vector<2xi32>, vector<2xf32>, vector<2xf32>, vector<32xf32>)
    ```
  }];
  let arguments = (ins VectorOfLengthAndType<[4], [F32]>:$scores,
                       VectorOfLengthAndType<[2], [F32]>:$reference,
                       VectorOfLengthAndType<[2], [F32]>:$sum,
                       FFD_Floats:$output, TypeAttr:$element);
  let results = (outs VectorOfLengthAndType<[2], [I32]>:$p,
                      VectorOfLengthAndType<[2], [F32]>:$new_reference,
                      VectorOfLengthAndType<[2], [F32]>:$new_sum,
                      FFD_Floats:$new_output);
  let assemblyFormat = [{
    $scores `,` $reference `,` $sum `,` $output `elements` $element attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def FFD_GPUAccumulateOp : FFD_GPUOp<"accumulate", [
    Pure, AllTypesMatch<["output", "result"]>]> {
  let summary = "add the values of 16 tokens, weighted";
  let description = [{
    `O^T += V^T P` for eight heads. `output` has four floats per 16 dims: heads
    2 tq and 2 tq + 1 of dim `16m + g`, then of dim `16m + g + 8`; `values` has
    the four words of `docs/layout.md` per 16 dims.

    Constraints:
    * (accumulate_c1) `values` has as many words as `output` has floats, a
      multiple of 4.

    Example:

    ```mlir
    %o1 = ffd.gpu.accumulate %o, %v, %p elements f16
        : (vector<32xf32>, vector<32xi32>, vector<2xi32>) -> vector<32xf32>
    ```
  }];
  let arguments = (ins FFD_Floats:$output, FFD_Words:$values,
                       VectorOfLengthAndType<[2], [I32]>:$p, TypeAttr:$element);
  let results = (outs FFD_Floats:$result);
  let assemblyFormat = [{
    $output `,` $values `,` $p `elements` $element attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def FFD_GPUAddCounterOp : FFD_GPUOp<"add_counter", [
    MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "add to a 64-bit counter in global memory";
  let description = [{
    Atomic; orders nothing else. Unlike other ops of this level it is executed by
    the lanes that come to it, not by the warp together.

    Example:

    ```mlir
    ffd.gpu.add_counter %p, %n : !llvm.ptr<1>
    ```
  }];
  let arguments = (ins FFD_GlobalPtr:$counter, I64:$value);
  let assemblyFormat = "$counter `,` $value attr-dict `:` type($counter)";
}

#endif // FFD_GPU_ATTEND_OPS
