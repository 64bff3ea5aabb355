//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The query as the scan needs it, the scan of thumbnails, and the screen before
// it (docs/schedule.md).
//
//===----------------------------------------------------------------------===//

#ifndef FFD_GPU_SCAN_OPS
#define FFD_GPU_SCAN_OPS

include "FFDGPUBase.td"

//===--- The query ---------------------------------------------------------===//

def FFD_GPUQuantizeQueryOp : FFD_GPUOp<"quantize_query", [Pure]> {
  let summary = "a head's query as the scan needs it";
  let description = [{
    query_c1 to query_c5 for a head that eight lanes share, those of g = 2h and
    g = 2h + 1: a lane holds a part of the query's fragment, and the eight hold
    all channels. `smax` are the channel maxima of that part. `qh` are pairs of f16 `qh[c]`; `factor` is `2^e` twice, as f16;
    `unit` is `F`; `bad` says that `m` is NaN or infinite; `shift` is `2^-k`, by
    which the scan multiplies scales (1 for f16).

    Constraints:
    * (fragment_c1) fragments of one op have one size, a multiple of 4 words.

    Example:

    ```mlir
    %qh, %e, %f, %bad, %k = ffd.gpu.quantize_query %q, %smax scale %sm elements f16
        : (vector<16xi32>, vector<16xi32>, f32) -> (vector<16xi32>, i32, f32, i1, f32)
    ```
  }];
  let arguments = (ins FFD_Words:$query, FFD_Words:$smax, F32:$sm_scale,
                       TypeAttr:$element);
  let results = (outs FFD_Words:$qh, I32:$factor, F32:$unit, I1:$bad, F32:$shift);
  let assemblyFormat = [{
    $query `,` $smax `scale` $sm_scale `elements` $element attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def FFD_GPUScaleQueryOp : FFD_GPUOp<"scale_query", [Pure]> {
  let summary = "a head's query times a power of two, for the refinement";
  let description = [{
    Chooses `2^j` for the head such that products with scales up to `smax` use
    the range of f16 well (attend_c1), multiplies the query by it, exactly but
    for numbers too small to matter, and returns `2^-j`.

    Example:

    ```mlir
    %qs, %inv = ffd.gpu.scale_query %q, %smax elements f16
        : (vector<16xi32>, vector<16xi32>) -> (vector<16xi32>, f32)
    ```
  }];
  let arguments = (ins FFD_Words:$query, FFD_Words:$smax, TypeAttr:$element);
  let results = (outs FFD_Words:$scaled, F32:$inverse);
  let assemblyFormat = [{
    $query `,` $smax `elements` $element attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

//===--- The scan ----------------------------------------------------------===//

def FFD_GPUScaleFragmentOp : FFD_GPUOp<"scale_fragment", [
    Pure, AllTypesMatch<["scales", "result"]>]> {
  let summary = "a block's scales as f16 numbers";
  let description = [{
    query_c1: `s' = f16(f32(s * shift))` of bf16 scales. f16 scales need no such
    step.

    Example:

    ```mlir
    %t = ffd.gpu.scale_fragment %s by %k : vector<16xi32>
    ```
  }];
  let arguments = (ins FFD_Words:$scales, F32:$shift);
  let results = (outs FFD_Words:$result);
  let assemblyFormat = "$scales `by` $shift attr-dict `:` type($scales)";
}

def FFD_GPUFoldOp : FFD_GPUOp<"fold", [Pure]> {
  let summary = "fold a block's scales into the quantised query";
  let description = [{
    scan_c1 for four heads: lanes of even g compute the high byte of `Q`, lanes
    of odd g the low byte. Two words (B operands) per group of 32 channels.

    Constraints:
    * (fold_c1) `result` has half the words of `query` and `scales`.

    Example:

    ```mlir
    %b = ffd.gpu.fold %qh, %s factor %e
        : (vector<16xi32>, vector<16xi32>, i32) -> vector<8xi32>
    ```
  }];
  let arguments = (ins FFD_Words:$query, FFD_Words:$scales, I32:$factor);
  let results = (outs FFD_Words:$result);
  let assemblyFormat = [{
    $query `,` $scales `factor` $factor attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def FFD_GPUCentreOp : FFD_GPUOp<"centre", [Pure]> {
  let summary = "2 L times the sum of the folded query";
  let description = [{
    The part of scan_c2 that does not depend on codes, of head tq of the tile.

    Constraints:
    * (scan_o1) `bits` is 2, 4 or 8.

    Example:

    ```mlir
    %z = ffd.gpu.centre %b bits 2 : vector<8xi32>
    ```
  }];
  let arguments = (ins FFD_Words:$folded, I64Attr:$bits);
  let results = (outs I32:$result);
  let assemblyFormat = "$folded `bits` $bits attr-dict `:` type($folded)";
  let hasVerifier = 1;
}

def FFD_GPUSquareSumOp : FFD_GPUOp<"square_sum", [Pure]> {
  let summary = "the sum of the squares of the folded query";
  let description = [{
    `sum Q^2` of cert_c2, of head tq of the tile, rounded to f32.

    Constraints:
    * (square_sum_c1) `folded` has two words per channel group.

    Example:

    ```mlir
    %v = ffd.gpu.square_sum %b : vector<8xi32>
    ```
  }];
  let arguments = (ins FFD_Words:$folded);
  let results = (outs F32:$result);
  let assemblyFormat = "$folded attr-dict `:` type($folded)";
  let hasVerifier = 1;
}

def FFD_GPUScanTileOp : FFD_GPUOp<"scan_tile", [Pure, SameVariadicOperandSize]> {
  let summary = "integer scores of 16 tokens for all query tiles";
  let description = [{
    For query tile `i`, head tq: result `2i` is `S + starts[i]` of token g and
    result `2i + 1` is `2^bits` times (for 8 bits: once) `S + starts[i]` of token
    g + 8, where `S = sum_c Q[c] t[c]`. The factor is what saves a shift per
    word: codes of tokens g + 8 stay where they are in their bytes, and the sign,
    which is all that a threshold needs, does not change.

    Constraints:
    * (scan_o1) `bits` is 2, 4 or 8;
    * (scan_o2) every folded query has two words per channel group, `codes` has
      `bits / 2` words per group, and there is one start per query tile.

    Example:

    ```mlir
    %a = ffd.gpu.scan_tile %codes, %b0 start %s0 bits 2
        : (vector<4xi32>, vector<8xi32>, i32) -> vector<2xi32>
    ```
  }];
  let arguments = (ins FFD_Words:$codes, Variadic<FFD_Words>:$folded,
                       Variadic<I32>:$starts, I64Attr:$bits);
  let results = (outs FFD_Words:$result);
  let assemblyFormat = [{
    $codes `,` $folded `start` $starts `bits` $bits attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    unsigned getTiles() { return getStarts().size(); }
  }];
}

//===--- Screening ---------------------------------------------------------===//

def FFD_GPUFoldHighOp : FFD_GPUOp<"fold_high", [Pure]> {
  let summary = "the high bytes alone of a folded query";
  let description = [{
    The high byte of scan_c1's `Q` of head g of eight: half the operands of
    `fold`, which has four heads. A low byte is 64 in magnitude at most, so high
    bytes bound a score.

    Constraints:
    * (fold_c1) `result` has half the words of `query` and `scales`.

    Example:

    ```mlir
    %b = ffd.gpu.fold_high %qh, %s factor %e
        : (vector<16xi32>, vector<16xi32>, i32) -> vector<8xi32>
    ```
  }];
  let arguments = (ins FFD_Words:$query, FFD_Words:$scales, I32:$factor);
  let results = (outs FFD_Words:$result);
  let assemblyFormat = [{
    $query `,` $scales `factor` $factor attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def FFD_GPUCentreHighOp : FFD_GPUOp<"centre_high", [Pure]> {
  let summary = "2 L times the sums of high bytes";
  let description = [{
    As `centre`, of heads 2 tq and 2 tq + 1 of a tile of eight.

    Constraints:
    * (scan_o1) `bits` is 2, 4 or 8;
    * (centre_high_c1) `result` has two words.

    Example:

    ```mlir
    %z = ffd.gpu.centre_high %b bits 2 : vector<8xi32> -> vector<2xi32>
    ```
  }];
  let arguments = (ins FFD_Words:$folded, I64Attr:$bits);
  let results = (outs FFD_Words:$result);
  let assemblyFormat = [{
    $folded `bits` $bits attr-dict `:` type($folded) `->` type($result)
  }];
  let hasVerifier = 1;
}

def FFD_GPUScreenTileOp : FFD_GPUOp<"screen_tile", [
    Pure, SameVariadicOperandSize]> {
  let summary = "scores of high bytes of 16 tokens for all tiles of eight heads";
  let description = [{
    For tile `i`, of the heads 2 tq and 2 tq + 1: results `4i` and `4i + 1` are
    `S + starts[i]` of token g, the next two `2^bits` times (for 8 bits: once)
    that of token g + 8, where `S = sum_c hi[c] t[c]`.

    Constraints:
    * (scan_o1) `bits` is 2, 4 or 8;
    * (scan_o2) every folded query has two words per channel group, `codes` has
      `bits / 2` words per group, and there are two starts per tile.

    Example:

    ```mlir
    %a = ffd.gpu.screen_tile %codes, %b0 start %s0 bits 2
        : (vector<4xi32>, vector<8xi32>, vector<2xi32>) -> vector<4xi32>
    ```
  }];
  let arguments = (ins FFD_Words:$codes, Variadic<FFD_Words>:$folded,
                       Variadic<FFD_Words>:$starts, I64Attr:$bits);
  let results = (outs FFD_Words:$result);
  let assemblyFormat = [{
    $codes `,` $folded `start` $starts `bits` $bits attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def FFD_GPUPushKeepOp : FFD_GPUOp<"push_keep", [Pure]> {
  let summary = "shift a tile's verdict into a lane's bits";
  let description = [{
    `result = 2 * bits + (all scores of this lane are negative)`. The tiles of a
    block are pushed from the last to the first.

    Example:

    ```mlir
    %n1 = ffd.gpu.push_keep %n0, %a : vector<2xi32>
    ```
  }];
  let arguments = (ins I32:$bits, FFD_Words:$scores);
  let results = (outs I32:$result);
  let assemblyFormat = "$bits `,` $scores attr-dict `:` type($scores)";
}

def FFD_GPUKeepMaskOp : FFD_GPUOp<"keep_mask", [Pure]> {
  let summary = "which tiles of a block are kept";
  let description = [{
    select_c4: combines the verdicts of all lanes (bit j of `bits`: no score of
    tile j reaches the threshold) to a bit per tile; all tiles of a kept
    selection block are set.

    Constraints:
    * (keep_c1) `select_block` is 16, 32, 64 or 128.

    Example:

    ```mlir
    %m = ffd.gpu.keep_mask %n select 16
    ```
  }];
  let arguments = (ins I32:$bits, I64Attr:$select_block);
  let results = (outs I32:$result);
  let assemblyFormat = "$bits `select` $select_block attr-dict";
  let hasVerifier = 1;
}

#endif // FFD_GPU_SCAN_OPS
