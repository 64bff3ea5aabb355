//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What an append does to a row.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_TILE_APPEND_OPS
#define FFD_TILE_APPEND_OPS

include "FFDTileBase.td"

def FFD_TileAppendExtentOp : FFD_TileOp<"append_extent", [
    MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "what an append does to a row";
  let description = [{
    `first` and `end` are the committed blocks before and after; `count` is the
    number of tokens that the row's sequence gets. Where the sequence cannot take
    them (`ffd.append`), `end = first` and `count = 0`, and the reasons are added
    to `errors`. All teams of a sequence come to the same result.

    Example:

    ```mlir
    %f, %e, %c = ffd.tile.append_extent %cache[%row] offsets(%off) reserved(%res) errors(%err) : !ffd.cache<#s>, memref<?xi32>, memref<?xi32>, memref<?xi32>
    ```
  }];
  let arguments = (ins FFD_CacheType:$cache, Index:$row,
                       MemRefRankOf<[I32], [1]>:$offsets,
                       MemRefRankOf<[I32], [1]>:$reserved,
                       MemRefRankOf<[I32], [1]>:$errors);
  let results = (outs Index:$first, Index:$end, Index:$count);
  let assemblyFormat = [{
    $cache `[` $row `]` `offsets` `(` $offsets `)` `reserved` `(` $reserved `)`
    `errors` `(` $errors `)` attr-dict `:` qualified(type($cache)) `,`
    type($offsets) `,` type($reserved) `,` type($errors)
  }];
}

def FFD_TileLoadTokensOp : FFD_TileValueOp<"load_tokens", [
    MemoryEffects<[MemRead]>]> {
  let summary = "the 16-bit tokens of a block that is about to be committed";
  let description = [{
    Tokens that the sequence already had come from its tail, the others from
    `keys` and `values`, of which the sequence's start at `offsets`. Where the
    spec has `centre = row`, keys are relative to the row's centre (centre_c3),
    which for a row without committed blocks is the mean of its block 0
    (centre_c1).

    Constraints:
    * (tile_c2) element type and innermost size of the memory, where static, are
      the spec's.

    Example:

    ```mlir
    %x = ffd.tile.load_tokens %cache[%row, %b] new(%k, %v, %off) : (!ffd.cache<#s>, memref<?x?x128xf16>, memref<?x?x128xf16>, memref<?xi32>) -> !ffd.tokens<#s>
    ```
  }];
  let arguments = (ins FFD_CacheType:$cache, Index:$row, Index:$block,
                       FFD_RowMemory16:$keys, FFD_RowMemory16:$values,
                       MemRefRankOf<[I32], [1]>:$offsets);
  let results = (outs FFD_TokensType:$result);
  let assemblyFormat = [{
    $cache `[` $row `,` $block `]` `new` `(` $keys `,` $values `,` $offsets `)`
    attr-dict `:` `(` qualified(type($cache)) `,` type($keys) `,` type($values)
    `,` type($offsets) `)` `->` qualified(type($result))
  }];
  let hasVerifier = 1;
}

def FFD_TileSplitOp : FFD_TileValueOp<"split", [Pure]> {
  let summary = "split a block's keys; pack its values";
  let description = [{
    split_c1 to split_c5, the same as `ffd.split`: codes and scales, and the
    residuals with the values.

    Example:

    ```mlir
    %t, %r = ffd.tile.split %x : (!ffd.tokens<#s>) -> (!ffd.thumbnail<#s>, !ffd.body<#s>)
    ```
  }];
  let arguments = (ins FFD_TokensType:$tokens);
  let results = (outs FFD_ThumbnailType:$thumbnail, FFD_BodyType:$body);
  let assemblyFormat = "$tokens attr-dict `:` functional-type(operands, results)";
}

def FFD_TileStoreBlockOp : FFD_TileValueOp<"store_block", [
    MemoryEffects<[MemWrite]>]> {
  let summary = "write a committed block to its page";
  let description = [{
    Example:

    ```mlir
    ffd.tile.store_block %t, %r into %cache[%row, %b] : (!ffd.thumbnail<#s>, !ffd.body<#s>, !ffd.cache<#s>) -> ()
    ```
  }];
  let arguments = (ins FFD_ThumbnailType:$thumbnail, FFD_BodyType:$body,
                       FFD_CacheType:$cache, Index:$row, Index:$block);
  let assemblyFormat = [{
    $thumbnail `,` $body `into` $cache `[` $row `,` $block `]` attr-dict `:` `(`
    qualified(type($thumbnail)) `,` qualified(type($body)) `,`
    qualified(type($cache)) `)` `->` `(` `)`
  }];
}

def FFD_TileFinishAppendOp : FFD_TileValueOp<"finish_append", [
    MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "the new smax, tail and length of a row";
  let description = [{
    The team that arrives last raises the row's `smax` to the scales of all
    pieces (from zero, where the row had no committed blocks), moves the tail
    behind the blocks that were committed, and adds the new tokens to it. Where
    the spec has `centre = row`, it writes the centre of a row that had no
    committed blocks, and the tail's keys are relative to it (centre_c2). One
    team of a sequence writes `new_lengths`, the last one where those are the
    cache's own lengths. With `count` 0 nothing but that is written.

    Constraints:
    * (tile_c2) element type and innermost size of the memory, where static, are
      the spec's.

    Example:

    ```mlir
    ffd.tile.finish_append %sx, %cache[%row] blocks(%f, %e) count(%c) new(%k, %v, %off) lengths(%newlen) piece(%split of %splits) : (!ffd.scales<#s>, !ffd.cache<#s>, memref<?x?x128xf16>, memref<?x?x128xf16>, memref<?xi32>, memref<?xi32>) -> ()
    ```
  }];
  let arguments = (ins FFD_ScalesType:$scales, FFD_CacheType:$cache, Index:$row,
                       Index:$first, Index:$end, Index:$count,
                       FFD_RowMemory16:$keys, FFD_RowMemory16:$values,
                       MemRefRankOf<[I32], [1]>:$offsets,
                       MemRefRankOf<[I32], [1]>:$new_lengths, Index:$split,
                       Index:$splits);
  let assemblyFormat = [{
    $scales `,` $cache `[` $row `]` `blocks` `(` $first `,` $end `)` `count` `(`
    $count `)` `new` `(` $keys `,` $values `,` $offsets `)` `lengths` `(`
    $new_lengths `)` `piece` `(` $split `of` $splits `)` attr-dict `:` `(`
    qualified(type($scales)) `,` qualified(type($cache)) `,` type($keys) `,`
    type($values) `,` type($offsets) `,` type($new_lengths) `)` `->` `(` `)`
  }];
  let hasVerifier = 1;
}

#endif // FFD_TILE_APPEND_OPS
