//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a decode does with the blocks of a row: load, select, compute.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_TILE_DECODE_OPS
#define FFD_TILE_DECODE_OPS

include "FFDTileBase.td"

//===--- Loads -------------------------------------------------------------===//

def FFD_TileLoadThumbnailOp : FFD_TileValueOp<"load_thumbnail", [
    MemoryEffects<[MemRead]>]> {
  let summary = "codes and scales of a committed block";
  let description = [{
    `block` counts within the row; its page comes from the page table.

    Example:

    ```mlir
    %c = ffd.tile.load_thumbnail %cache[%row, %b] : (!ffd.cache<#s>) -> !ffd.thumbnail<#s>
    ```
  }];
  let arguments = (ins FFD_CacheType:$cache, Index:$row, Index:$block);
  let results = (outs FFD_ThumbnailType:$result);
  let assemblyFormat = [{
    $cache `[` $row `,` $block `]` attr-dict `:` `(` qualified(type($cache)) `)` `->`
    qualified(type($result))
  }];
}

def FFD_TileLoadBodyOp : FFD_TileValueOp<"load_body", [MemoryEffects<[MemRead]>]> {
  let summary = "residuals and values of the kept part of a block";
  let description = [{
    Only the selection blocks whose mask bit is set are read.

    Example:

    ```mlir
    %r = ffd.tile.load_body %cache[%row, %b] mask(%m) : (!ffd.cache<#s>, !ffd.mask<#s>) -> !ffd.body<#s>
    ```
  }];
  let arguments = (ins FFD_CacheType:$cache, Index:$row, Index:$block,
                       FFD_MaskType:$mask);
  let results = (outs FFD_BodyType:$result);
  let assemblyFormat = [{
    $cache `[` $row `,` $block `]` `mask` `(` $mask `)` attr-dict `:` `(`
    qualified(type($cache)) `,` qualified(type($mask)) `)` `->` qualified(type($result))
  }];
}

def FFD_TileLoadTailOp : FFD_TileValueOp<"load_tail", [MemoryEffects<[MemRead]>]> {
  let summary = "a tile of 16 tail tokens, 16-bit keys and values";
  let description = [{
    `keys` and `values` are row-major tails; tokens at and after `tail` are never
    read.

    Constraints:
    * (tile_c2) element type and innermost size of the memory, where static, are
      the spec's.

    Example:

    ```mlir
    %t = ffd.tile.load_tail %tk, %tv[%row, %i] of %tail : (memref<?x?x?x128xf16>, memref<?x?x?x128xf16>) -> !ffd.tail<#s>
    ```
  }];
  let arguments = (ins FFD_TailMemory:$keys, FFD_TailMemory:$values,
                       Index:$row, Index:$tile, Index:$tail);
  let results = (outs FFD_TailType:$result);
  let assemblyFormat = [{
    $keys `,` $values `[` $row `,` $tile `]` `of` $tail attr-dict `:` `(`
    type($keys) `,` type($values) `)` `->` qualified(type($result))
  }];
  let hasVerifier = 1;
}

//===--- Selector ----------------------------------------------------------===//

def FFD_TileScanOp : FFD_TileValueOp<"scan", [Pure]> {
  let summary = "estimated scores of a block, in scan units";
  let description = [{
    scan_c1 and scan_c2: folds the block's scales into the quantised query and
    multiplies by the codes, exactly. With a body, whose residuals are all that
    it reads, the scores are refined ones (select_c5), exact too.

    Constraints:
    * (scan_t1) a body only where the spec has residuals.

    Example:

    ```mlir
    %a = ffd.tile.scan %qq, %c : (!ffd.query<#s>, !ffd.thumbnail<#s>) -> !ffd.scores<#s>
    ```
  }];
  let arguments = (ins FFD_QueryType:$query, FFD_ThumbnailType:$thumbnail,
                       Optional<FFD_BodyType>:$body);
  let results = (outs FFD_ScoresType:$result);
  let assemblyFormat = [{
    $query `,` $thumbnail (`,` $body^)? attr-dict `:`
    functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def FFD_TileDotOp : FFD_TileValueOp<"dot", [Pure]> {
  let summary = "scores of tail tokens in f32";
  let description = [{
    With `ordered`, in the evaluation order of tail_c1 (for the pseudo-max);
    otherwise in any order.

    Example:

    ```mlir
    %f = ffd.tile.dot ordered %qq, %t : (!ffd.query<#s>, !ffd.tail<#s>) -> !ffd.logits<#s>
    ```
  }];
  let arguments = (ins FFD_QueryType:$query, FFD_TailType:$tail, UnitAttr:$ordered);
  let results = (outs FFD_LogitsType:$result);
  let assemblyFormat = [{
    (`ordered` $ordered^)? $query `,` $tail attr-dict `:`
    functional-type(operands, results)
  }];
}

def FFD_TileToUnitsOp : FFD_TileValueOp<"to_units", [Pure]> {
  let summary = "tail scores in scan units, for the pseudo-max";
  let description = [{
    The tail part of select_c1. A NaN or infinite score marks the row as one that
    keeps everything (select_c3).

    Example:

    ```mlir
    %a = ffd.tile.to_units %qq, %f : (!ffd.query<#s>, !ffd.logits<#s>) -> !ffd.scores<#s>
    ```
  }];
  let arguments = (ins FFD_QueryType:$query, FFD_LogitsType:$logits);
  let results = (outs FFD_ScoresType:$result);
  let assemblyFormat = [{
    $query `,` $logits attr-dict `:` functional-type(operands, results)
  }];
}

def FFD_TileReachOp : FFD_TileValueOp<"reach", [Pure]> {
  let summary = "which selection blocks of a block reach the threshold";
  let description = [{
    select_c4: bit `j` is set iff a token of selection block `j` reaches the
    threshold of its head, for at least one head.

    Example:

    ```mlir
    %m = ffd.tile.reach %a, %thr : (!ffd.scores<#s>, !ffd.threshold<#s>) -> !ffd.mask<#s>
    ```
  }];
  let arguments = (ins FFD_ScoresType:$scores, FFD_ThresholdType:$threshold);
  let results = (outs FFD_MaskType:$result);
  let assemblyFormat = [{
    $scores `,` $threshold attr-dict `:` functional-type(operands, results)
  }];
}

def FFD_TileKeepEndsOp : FFD_TileValueOp<"keep_ends", [Pure]> {
  let summary = "keep the first and the last selection block of a row";
  let description = [{
    select_c6: sets the bit of the first selection block in the mask of block 0,
    and that of the last one in the mask of block `blocks - 1`.

    Example:

    ```mlir
    %m1 = ffd.tile.keep_ends %m, %b of %n : (!ffd.mask<#s>) -> !ffd.mask<#s>
    ```
  }];
  let arguments = (ins FFD_MaskType:$mask, Index:$block, Index:$blocks);
  let results = (outs FFD_MaskType:$result);
  let assemblyFormat = [{
    $mask `,` $block `of` $blocks attr-dict `:` `(` qualified(type($mask)) `)`
    `->` qualified(type($result))
  }];
}

def FFD_TileSkippedOp : FFD_TileValueOp<"skipped", [Pure]> {
  let summary = "estimated softmax mass of the tokens of a block that are not kept";
  let description = [{
    cert_c1 to cert_c3: per head the sum of `exp` of the estimates over selection
    blocks whose mask bit is not set, relative to the head's threshold, which none
    of them reaches. With `noise` each block's is corrected for the noise of its
    codes (cert_c2), which the scales of the thumbnail say.

    Constraints:
    * (skipped_c1) keys are split: `scan_bits` is not 16.

    Example:

    ```mlir
    %e = ffd.tile.skipped noise %qq, %c, %a, %thr, %m : (!ffd.query<#s>, !ffd.thumbnail<#s>, !ffd.scores<#s>, !ffd.threshold<#s>, !ffd.mask<#s>) -> !ffd.skipped<#s>
    ```
  }];
  let arguments = (ins FFD_QueryType:$query, FFD_ThumbnailType:$thumbnail,
                       FFD_ScoresType:$scores, FFD_ThresholdType:$threshold,
                       FFD_MaskType:$mask, UnitAttr:$noise);
  let results = (outs FFD_SkippedType:$result);
  let assemblyFormat = [{
    (`noise` $noise^)? $query `,` $thumbnail `,` $scores `,` $threshold `,` $mask
    attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
}

def FFD_TileFullOp : FFD_TileValueOp<"full", [Pure]> {
  let summary = "the mask that keeps a whole block";
  let description = [{
    Example:

    ```mlir
    %m = ffd.tile.full : !ffd.mask<#s>
    ```
  }];
  let results = (outs FFD_MaskType:$result);
  let assemblyFormat = "attr-dict `:` qualified(type($result))";
}

def FFD_TileChooseOp : FFD_TileValueOp<"choose", [
    MemoryEffects<[MemWrite]>]> {
  let summary = "keep the blocks of a row that its ranking chooses";
  let description = [{
    The rules that need the whole row, `#ffd.top_k` and `#ffd.top_p`: a byte per
    selection block of the ranking goes to `kept`. A row that is non-finite keeps
    everything. Such a kernel is launched with one piece per row.

    Constraints:
    * (choose_c1) the selector is `#ffd.top_k` or `#ffd.top_p`.

    Example:

    ```mlir
    ffd.tile.choose #ffd.top_k<64> %qq, %r, %kept[%row] : (!ffd.query<#s>, !ffd.ranking<#s>, memref<?x?x?xi8>) -> ()
    ```
  }];
  let arguments = (ins FFD_AnySelector:$selector, FFD_QueryType:$query,
                       FFD_RankingType:$ranking, FFD_KeptMemory:$kept,
                       Index:$row);
  let assemblyFormat = [{
    $selector $query `,` $ranking `,` $kept `[` $row `]` attr-dict `:` `(`
    qualified(type($query)) `,` qualified(type($ranking)) `,` type($kept) `)`
    `->` `(` `)`
  }];
  let hasVerifier = 1;
}

def FFD_TileStoreKeptOp : FFD_TileValueOp<"store_kept", [MemoryEffects<[MemWrite]>]> {
  let summary = "write a block's mask to memory, a byte per selection block";
  let description = [{
    A kernel whose caller gives counters (`kept_count` of `abi.h`) also adds the
    number of kept selection blocks to the row's.

    Example:

    ```mlir
    ffd.tile.store_kept %m, %kept[%row, %b] : (!ffd.mask<#s>, memref<?x?x?xi8>) -> ()
    ```
  }];
  let arguments = (ins FFD_MaskType:$mask, FFD_KeptMemory:$kept, Index:$row,
                       Index:$block);
  let assemblyFormat = [{
    $mask `,` $kept `[` $row `,` $block `]` attr-dict `:` `(`
    qualified(type($mask)) `,` type($kept) `)` `->` `(` `)`
  }];
}

def FFD_TileLoadKeptOp : FFD_TileValueOp<"load_kept", [MemoryEffects<[MemRead]>]> {
  let summary = "read a block's mask from memory";
  let description = [{
    How the second kernel of an unfused program learns what the first selected.

    Example:

    ```mlir
    %m = ffd.tile.load_kept %kept[%row, %b] : (memref<?x?x?xi8>) -> !ffd.mask<#s>
    ```
  }];
  let arguments = (ins FFD_KeptMemory:$kept, Index:$row, Index:$block);
  let results = (outs FFD_MaskType:$result);
  let assemblyFormat = [{
    $kept `[` $row `,` $block `]` attr-dict `:` `(` type($kept) `)` `->`
    qualified(type($result))
  }];
}

//===--- Computer ----------------------------------------------------------===//

def FFD_TileRefineOp : FFD_TileValueOp<"refine", [Pure]> {
  let summary = "refined scores of the kept part of a block";
  let description = [{
    attend_c1: thumbnails and residuals together, in f32.

    Example:

    ```mlir
    %f = ffd.tile.refine %qq, %c, %r : (!ffd.query<#s>, !ffd.thumbnail<#s>, !ffd.body<#s>) -> !ffd.logits<#s>
    ```
  }];
  let arguments = (ins FFD_QueryType:$query, FFD_ThumbnailType:$thumbnail,
                       FFD_BodyType:$body);
  let results = (outs FFD_LogitsType:$result);
  let assemblyFormat = [{
    $query `,` $thumbnail `,` $body attr-dict `:`
    functional-type(operands, results)
  }];
}

def FFD_TileAccumulateOp : FFD_TileValueOp<"accumulate", [Pure]> {
  let summary = "one step of the online softmax";
  let description = [{
    Adds the tokens of `values` (a body or a tail tile) with scores `logits` to
    the state (attend_c2).

    Example:

    ```mlir
    %s1 = ffd.tile.accumulate %s, %f, %r : (!ffd.state<#s>, !ffd.logits<#s>, !ffd.body<#s>) -> !ffd.state<#s>
    ```
  }];
  let arguments = (ins FFD_StateType:$state, FFD_LogitsType:$logits,
                       AnyTypeOf<[FFD_BodyType, FFD_TailType]>:$values);
  let results = (outs FFD_StateType:$result);
  let assemblyFormat = [{
    $state `,` $logits `,` $values attr-dict `:`
    functional-type(operands, results)
  }];
}

#endif // FFD_TILE_DECODE_OPS
