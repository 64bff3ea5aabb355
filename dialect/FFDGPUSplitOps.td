//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Splitting a block of keys into thumbnail and residual, and centring them.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_GPU_SPLIT_OPS
#define FFD_GPU_SPLIT_OPS

include "FFDGPUBase.td"

def FFD_GPUKeyMaximaOp : FFD_GPUOp<"key_maxima", [Pure]> {
  let summary = "the largest magnitude of every channel of a tile";
  let description = [{
    `keys` are 16 tokens as the layout's registers have them: per group and
    register `i`, two words of four elements. The result, the same in all lanes
    of one `tq`, has eight entries per group in scale order: the bits of the
    largest `|k|` of a channel. They order like the numbers, and NaN above all.

    Constraints:
    * (split_tile_c1) `keys` has eight words per channel group, the result as
      many entries.

    Example:

    ```mlir
    %m = ffd.gpu.key_maxima %k : (vector<32xi32>) -> vector<32xi32>
    ```
  }];
  let arguments = (ins FFD_Words:$keys);
  let results = (outs FFD_Words:$result);
  let assemblyFormat = "$keys attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def FFD_GPUSplitScaleOp : FFD_GPUOp<"split_scale", [Pure]> {
  let summary = "the scale of a channel from its largest magnitude";
  let description = [{
    split_c1 to split_c4 for one channel, per lane: the bits of `s`, and
    `inv * 256`. The factor of a channel that is not finite (split_c3) is NaN,
    which makes its codes 0 in `ffd.gpu.split_tile`.

    Constraints:
    * (scan_o1) `bits` is 2, 4 or 8.

    Example:

    ```mlir
    %s, %f = ffd.gpu.split_scale %amax bits 2 elements f16 : i32, f32
    ```
  }];
  let arguments = (ins I32:$maximum, I64Attr:$bits, TypeAttr:$element);
  let results = (outs I32:$scale, F32:$factor);
  let assemblyFormat = [{
    $maximum `bits` $bits `elements` $element attr-dict `:` type($scale) `,`
    type($factor)
  }];
  let hasVerifier = 1;
}

def FFD_GPUSplitTileOp : FFD_GPUOp<"split_tile", [Pure]> {
  let summary = "codes and residuals of 16 tokens";
  let description = [{
    split_c4 and split_c5: the lane's words of the thumbnail and of the residual
    plane, in the order of `docs/layout.md`, from its keys (`ffd.gpu.key_maxima`)
    and the factors of its channels in scale order.

    Constraints:
    * (split_tile_c1) `keys` has eight words per channel group, `factors` as many
      floats, `residuals` half as many words, `codes` `bits` / 8 of that;
    * (scan_o1) `bits` is 2, 4 or 8.

    Example:

    ```mlir
    %c, %r = ffd.gpu.split_tile %k, %f bits 2 elements f16 : (vector<32xi32>, vector<32xf32>) -> (vector<4xi32>, vector<16xi32>)
    ```
  }];
  let arguments = (ins FFD_Words:$keys, FFD_Floats:$factors, I64Attr:$bits,
                       TypeAttr:$element);
  let results = (outs FFD_Words:$codes, FFD_Words:$residuals);
  let assemblyFormat = [{
    $keys `,` $factors `bits` $bits `elements` $element attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def FFD_GPURelativeKeysOp : FFD_GPUOp<"relative_keys", [Pure]> {
  let summary = "keys relative to the centre of their row";
  let description = [{
    centre_c3 for every element of a lane's words: `keys - centre`, rounded once,
    NaN as 0x7FFF.

    Constraints:
    * (relative_c1) `keys`, `centre` and the result have as many words.

    Example:

    ```mlir
    %d = ffd.gpu.relative_keys %k, %c elements f16 : (vector<4xi32>, vector<4xi32>) -> vector<4xi32>
    ```
  }];
  let arguments = (ins FFD_Words:$keys, FFD_Words:$centre, TypeAttr:$element);
  let results = (outs FFD_Words:$result);
  let assemblyFormat = [{
    $keys `,` $centre `elements` $element attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def FFD_GPUAddKeysOp : FFD_GPUOp<"add_keys", [Pure]> {
  let summary = "a token's keys added to sums";
  let description = [{
    A step of the partial sums of centre_c1, in f32, one addition per element.

    Constraints:
    * (add_keys_c1) `sums` and the result have two entries for each word.

    Example:

    ```mlir
    %p = ffd.gpu.add_keys %sums, %k elements f16 : (vector<8xf32>, vector<4xi32>) -> vector<8xf32>
    ```
  }];
  let arguments = (ins FFD_Floats:$sums, FFD_Words:$keys, TypeAttr:$element);
  let results = (outs FFD_Floats:$result);
  let assemblyFormat = [{
    $sums `,` $keys `elements` $element attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def FFD_GPUCentreKeyOp : FFD_GPUOp<"centre_key", [Pure]> {
  let summary = "the centre of a channel from its partial sums";
  let description = [{
    The end of centre_c1: the eight partial sums of `tokens` keys added in the
    order of that constraint, divided and rounded, as bits; 0 if not finite.

    Constraints:
    * (centre_key_c1) there are eight `sums`.

    Example:

    ```mlir
    %c = ffd.gpu.centre_key %sums tokens 128 elements f16 : (vector<8xf32>) -> i32
    ```
  }];
  let arguments = (ins FFD_Floats:$sums, I64Attr:$tokens, TypeAttr:$element);
  let results = (outs I32:$result);
  let assemblyFormat = [{
    $sums `tokens` $tokens `elements` $element attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

#endif // FFD_GPU_SPLIT_OPS
