//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How a tile program is put together, and what a row of it starts from and ends
// in.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_TILE_TEAM_OPS
#define FFD_TILE_TEAM_OPS

include "FFDTileBase.td"

//===--- Structure ---------------------------------------------------------===//

def FFD_TileTeamsOp : FFD_TileOp<"teams", [
    SingleBlock, NoTerminator, RecursiveMemoryEffects]> {
  let summary = "one team per row and piece";
  let description = [{
    Runs its region once for every row (sequence and kv head) and every piece
    (split) of the row; the launch decides how many there are. The block
    arguments are the row, the split and the number of splits. The function that
    holds the op becomes one kernel.

    Constraints:
    * (teams_c1) the block has three `index` arguments;
    * (teams_c2) the spec is complete;
    * (teams_c3) it is the spec of every ffd type in the region.

    Example:

    ```mlir
    ffd.tile.teams #s {
    ^bb0(%row: index, %split: index, %splits: index):
      %n, %t = ffd.tile.extent %cache[%row] : !ffd.cache<#s>
    }
    ```
  }];
  let arguments = (ins FFD_SpecAttr:$spec,
                       OptionalAttr<FFD_ScheduleAttr>:$schedule);
  let regions = (region SizedRegion<1>:$region);
  let assemblyFormat = "$spec (`schedule` $schedule^)? attr-dict-with-keyword $region";
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::BlockArgument getRow() { return getBody()->getArgument(0); }
    ::mlir::BlockArgument getSplit() { return getBody()->getArgument(1); }
    ::mlir::BlockArgument getSplits() { return getBody()->getArgument(2); }
  }];
}

def FFD_TileDistributeOp : FFD_TileOp<"distribute", [
    AttrSizedOperandSegments, SingleBlock, RecursiveMemoryEffects,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "run a body over a domain and combine what it yields";
  let description = [{
    The domain decides what the first block argument counts:

    | domain | operands | runs over |
    | --- | --- | --- |
    | `candidates` | committed blocks | block 0 and the last committed block |
    | `share` | committed blocks, split, splits | this team's part of all committed blocks |
    | `worklist` | a work list | blocks of the list; second argument: their mask |
    | `tail` | tail tokens | every tile of 16 tail tokens |
    | `tail_share` | tail tokens, split, splits | this team's part of those tiles |
    | `commit` | first, end, split, splits | this team's part of the blocks from first to end - 1 |

    The combiner decides what `ffd.tile.yield` means:

    | combiner | yields | result |
    | --- | --- | --- |
    | `max` | scores | the maximum per head, as a row maximum, also over `init` |
    | `append` | a mask, maybe what it skips | the work list of non-empty masks, in ascending order; the skipped mass, added up |
    | `state` | the state | the softmax state; last block argument: the state so far |
    | `rank` | scores | a ranking of the selection blocks that ran |
    | `scales` | a thumbnail | the largest scale of every channel, NaN propagates |

    Iterations with `max`, `append`, `rank` and `scales` are independent. With `state` a target
    may keep several private states and merge them in a fixed order.

    Constraints:
    * (distribute_c1) operands and block arguments are those of the domain;
    * (distribute_c2) what is yielded, `init` and the result fit the combiner.

    Example:

    ```mlir
    %pm = ffd.tile.distribute candidates(%n : index) combine max {
    ^bb0(%b: index):
      %c = ffd.tile.load_thumbnail %cache[%row, %b] : (!ffd.cache<#s>) -> !ffd.thumbnail<#s>
      %a = ffd.tile.scan %qq, %c : (!ffd.query<#s>, !ffd.thumbnail<#s>) -> !ffd.scores<#s>
      ffd.tile.yield %a : !ffd.scores<#s>
    } -> !ffd.row_max<#s>
    ```
  }];
  let arguments = (ins FFD_Domain:$domain, Variadic<AnyType>:$over,
                       FFD_Combiner:$combiner, Optional<AnyType>:$init);
  let results = (outs AnyType:$result, Optional<FFD_SkippedType>:$skipped);
  let regions = (region SizedRegion<1>:$region);
  let assemblyFormat = [{
    $domain `(` $over `:` type($over) `)` `combine` $combiner
    (`init` `(` $init^ `:` type($init) `)`)? attr-dict-with-keyword $region `->`
    qualified(type($result)) (`,` qualified(type($skipped))^)?
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// What the body runs over: the block id, or the tile index of the tail.
    ::mlir::BlockArgument getIndex() { return getBody()->getArgument(0); }
    /// The mask of a work list's block.
    ::mlir::BlockArgument getMask() { return getBody()->getArgument(1); }
    /// The state so far (combiner `state`).
    ::mlir::BlockArgument getState() { return getBody()->getArguments().back(); }
    /// What an iteration contributes.
    ::mlir::Value getYielded() { return getBody()->getTerminator()->getOperand(0); }
    /// The op whose estimates `skipped` adds up, or null.
    TileSkippedOp getSkippedOp();
  }];
}

def FFD_TileYieldOp : FFD_TileOp<"yield", [Pure, Terminator, ReturnLike,
    HasParent<"::mlir::ffd::TileDistributeOp">]> {
  let summary = "what an iteration contributes";
  let description = [{
    Ends the body of `ffd.tile.distribute`, whose combiner says what is done with
    the value.

    Example:

    ```mlir
    %kept = ffd.tile.distribute share(%n, %split, %splits : index, index, index) combine append {
    ^bb0(%b: index):
      %m = ffd.tile.full : !ffd.mask<#s>
      ffd.tile.yield %m : !ffd.mask<#s>
    } -> !ffd.worklist<#s>
    ```
  }];
  let arguments = (ins AnyType:$value, Optional<FFD_SkippedType>:$skipped);
  let assemblyFormat = [{
    $value (`,` $skipped^)? attr-dict `:` type($value)
    (`,` qualified(type($skipped))^)?
  }];
}

//===--- Row state ---------------------------------------------------------===//

def FFD_TileExtentOp : FFD_TileOp<"extent", [
    MemoryEffects<[MemRead]>]> {
  let summary = "committed blocks and tail tokens of a row";
  let description = [{
    `blocks = floor(max(0, T - lag) / QB)` and `tail = T - blocks * QB`, with `T`
    the row's length in device memory.

    Example:

    ```mlir
    %n, %t = ffd.tile.extent %cache[%row] : !ffd.cache<#s>
    ```
  }];
  let arguments = (ins FFD_CacheType:$cache, Index:$row);
  let results = (outs Index:$blocks, Index:$tail);
  let assemblyFormat =
      "$cache `[` $row `]` attr-dict `:` qualified(type($cache))";
}

def FFD_TileExactExtentOp : FFD_TileOp<"exact_extent", [
    MemoryEffects<[MemRead]>]> {
  let summary = "tokens of a row of an exact decode, all of them tail";
  let description = [{
    Example:

    ```mlir
    %t = ffd.tile.exact_extent %lengths[%row] : memref<?xi32>
    ```
  }];
  let arguments = (ins MemRefRankOf<[I32], [1]>:$lengths, Index:$row);
  let results = (outs Index:$tail);
  let assemblyFormat = "$lengths `[` $row `]` attr-dict `:` type($lengths)";
}

def FFD_TileQueryOp : FFD_TileValueOp<"query", [MemoryEffects<[MemRead]>]> {
  let summary = "load and quantise the queries of a row";
  let description = [{
    query_c1 to query_c5: the row's `G` queries, exact and as `qh`, `e`, `F`, and
    whether the row is non-finite. Without a cache (exact attention) only the
    exact queries are loaded.

    Constraints:
    * (tile_c2) element type and innermost size of the memory, where static, are
      the spec's.

    Example:

    ```mlir
    %qq = ffd.tile.query %q[%row] scale(%sm) cache(%cache) : (memref<?x?x128xf16>, f32, !ffd.cache<#s>) -> !ffd.query<#s>
    ```
  }];
  let arguments = (ins FFD_RowMemory16:$memory, Index:$row, F32:$sm_scale,
                       Optional<FFD_CacheType>:$cache);
  let results = (outs FFD_QueryType:$result);
  let assemblyFormat = [{
    $memory `[` $row `]` `scale` `(` $sm_scale `)` (`cache` `(` $cache^ `)`)?
    attr-dict `:` `(` type($memory) `,` type($sm_scale)
    (`,` qualified(type($cache))^)? `)` `->` qualified(type($result))
  }];
  let hasVerifier = 1;
}

def FFD_TileThresholdOp : FFD_TileValueOp<"threshold", [MemoryEffects<[MemRead]>]> {
  let summary = "the lowest score that keeps a block";
  let description = [{
    select_c2 and select_c3, with `delta` of the row's sequence.

    Example:

    ```mlir
    %thr = ffd.tile.threshold %qq, %pm, %delta[%row] : (!ffd.query<#s>, !ffd.row_max<#s>, memref<?xf32>) -> !ffd.threshold<#s>
    ```
  }];
  let arguments = (ins FFD_QueryType:$query, FFD_RowMaxType:$row_max,
                       MemRefRankOf<[F32], [1]>:$delta, Index:$row);
  let results = (outs FFD_ThresholdType:$result);
  let assemblyFormat = [{
    $query `,` $row_max `,` $delta `[` $row `]` attr-dict `:` `(`
    qualified(type($query)) `,` qualified(type($row_max)) `,` type($delta) `)`
    `->` qualified(type($result))
  }];
}

def FFD_TileInitOp : FFD_TileValueOp<"init", [Pure]> {
  let summary = "the empty softmax state";
  let description = [{
    Its reference is that of no score; a target takes one from the scores that it
    meets (attend_c2). The pseudo-max is none: noise can lift it so far above all
    scores that every weight vanishes against it.

    Example:

    ```mlir
    %s0 = ffd.tile.init %qq : (!ffd.query<#s>) -> !ffd.state<#s>
    ```
  }];
  let arguments = (ins FFD_QueryType:$query);
  let results = (outs FFD_StateType:$result);
  let assemblyFormat = [{
    $query attr-dict `:` `(` qualified(type($query)) `)` `->`
    qualified(type($result))
  }];
}

def FFD_TileFinishOp : FFD_TileValueOp<"finish", [
    AttrSizedOperandSegments, MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "merge the states of a row's pieces and write the result";
  let description = [{
    The team leaves its state in the workspace; the team that arrives last
    merges the states of all pieces in a fixed order (attend_c4), normalises,
    and writes output and lse. With one split there is nothing to merge. Over
    centred keys `centre` names the queries and the cache whose centre lse takes
    in (centre_c4). `skipped` is the mass that the team skipped: added up over
    all pieces in a fixed order, its log goes to a second memory like lse.

    Constraints:
    * (tile_c2) element type and innermost size of the memory, where static, are
      the spec's;
    * (finish_c1) `centre` is given only where the spec has `centre = row`;
    * (finish_c2) the skipped mass is a result of an `ffd.tile.distribute`.

    Example:

    ```mlir
    ffd.tile.finish %s into %o, %lse[%row] piece(%split of %splits) : (!ffd.state<#s>, memref<?x?x128xf32>, memref<?x?xf32>) -> ()
    ```
  }];
  let arguments = (ins FFD_StateType:$state, FFD_OutMemory:$out,
                       FFD_LseMemory:$lse, Index:$row, Index:$split,
                       Index:$splits, Optional<FFD_QueryType>:$query,
                       Optional<FFD_CacheType>:$cache,
                       Optional<FFD_SkippedType>:$skipped,
                       Optional<FFD_LseMemory>:$skipped_lse);
  let assemblyFormat = [{
    $state `into` $out `,` $lse `[` $row `]` `piece` `(` $split `of` $splits `)`
    (`centre` `(` $query^ `,` $cache `)`)?
    (`skipped` `(` $skipped^ `into` $skipped_lse `:` qualified(type($skipped)) `,`
    type($skipped_lse) `)`)? attr-dict `:` `(`
    qualified(type($state)) `,` type($out) `,` type($lse)
    (`,` qualified(type($query))^ `,` qualified(type($cache)))? `)` `->` `(` `)`
  }];
  let builders = [
    /// Without a centre.
    OpBuilder<(ins "::mlir::Value":$state, "::mlir::Value":$out,
                   "::mlir::Value":$lse, "::mlir::Value":$row,
                   "::mlir::Value":$split, "::mlir::Value":$splits), [{
      build($_builder, $_state, state, out, lse, row, split, splits,
            ::mlir::Value(), ::mlir::Value(), ::mlir::Value(),
            ::mlir::Value());
    }]>];
  let hasVerifier = 1;
}

#endif // FFD_TILE_TEAM_OPS
