//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// L2: tile programs. A *team* (a CTA, or a CPU task) works on one piece of one
// row. `ffd.tile.distribute` runs a body over blocks or tiles and says how
// iterations combine; how they are dealt to warps or vectors, which copies run
// ahead, and where barriers go is decided below this level.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_TILE_OPS
#define FFD_TILE_OPS

include "FFDTypes.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

/// All tile types of one op carry one spec: (tile_c1).
def FFD_SameSpec : PredOpTrait<"all types have one spec (tile_c1)",
    CPred<"::mlir::ffd::haveOneSpec($_op.getOperandTypes(), $_op.getResultTypes())">>;

/// Memory as row ops have it, see (tile_c2) and verifyTileMemory.
def FFD_RowMemory16 : MemRefRankOf<[F16, BF16], [3]>;
def FFD_TailMemory : MemRefRankOf<[F16, BF16], [4]>;
def FFD_OutMemory : MemRefRankOf<[F32], [3]>;
def FFD_LseMemory : MemRefRankOf<[F32], [2]>;
def FFD_KeptMemory : MemRefRankOf<[I8], [3]>;

class FFD_TileOp<string mnemonic, list<Trait> traits = []>
    : FFD_Op<"tile." # mnemonic, traits>;

/// An op on tile values whose types are printed as a function type.
class FFD_TileValueOp<string mnemonic, list<Trait> traits = []>
    : FFD_TileOp<mnemonic, !listconcat([FFD_SameSpec], traits)>;

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
    AttrSizedOperandSegments, SingleBlock, RecursiveMemoryEffects]> {
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
    | `append` | a mask | the work list of non-empty masks, in ascending order |
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
  let results = (outs AnyType:$result);
  let regions = (region SizedRegion<1>:$region);
  let assemblyFormat = [{
    $domain `(` $over `:` type($over) `)` `combine` $combiner
    (`init` `(` $init^ `:` type($init) `)`)? attr-dict-with-keyword $region `->`
    qualified(type($result))
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
  let arguments = (ins AnyType:$value);
  let assemblyFormat = "$value attr-dict `:` type($value)";
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
    in (centre_c4).

    Constraints:
    * (tile_c2) element type and innermost size of the memory, where static, are
      the spec's;
    * (finish_c1) `centre` is given only where the spec has `centre = row`.

    Example:

    ```mlir
    ffd.tile.finish %s into %o, %lse[%row] piece(%split of %splits) : (!ffd.state<#s>, memref<?x?x128xf32>, memref<?x?xf32>) -> ()
    ```
  }];
  let arguments = (ins FFD_StateType:$state, FFD_OutMemory:$out,
                       FFD_LseMemory:$lse, Index:$row, Index:$split,
                       Index:$splits, Optional<FFD_QueryType>:$query,
                       Optional<FFD_CacheType>:$cache);
  let assemblyFormat = [{
    $state `into` $out `,` $lse `[` $row `]` `piece` `(` $split `of` $splits `)`
    (`centre` `(` $query^ `,` $cache `)`)? attr-dict `:` `(`
    qualified(type($state)) `,` type($out) `,` type($lse)
    (`,` qualified(type($query))^ `,` qualified(type($cache)))? `)` `->` `(` `)`
  }];
  let builders = [
    /// Without a centre.
    OpBuilder<(ins "::mlir::Value":$state, "::mlir::Value":$out,
                   "::mlir::Value":$lse, "::mlir::Value":$row,
                   "::mlir::Value":$split, "::mlir::Value":$splits), [{
      build($_builder, $_state, state, out, lse, row, split, splits,
            ::mlir::Value(), ::mlir::Value());
    }]>];
  let hasVerifier = 1;
}

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

//===--- Append ------------------------------------------------------------===//

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

#endif // FFD_TILE_OPS
