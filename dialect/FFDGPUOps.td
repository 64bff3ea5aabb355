//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// L3: what a warp does on a GPU. Every op is executed by all 32 lanes of a warp
// together; its operands and results are the registers of one lane, as plain
// vectors, and pointers to global (`!llvm.ptr<1>`) and shared (`!llvm.ptr<3>`)
// memory. Control flow, addresses and plain arithmetic stay scf, llvm and arith.
//
// Lanes have coordinates g = lane / 4 and tq = lane % 4, those of mma.sync:
// operand rows and the query column are g, result columns are 2 tq and 2 tq + 1.
// A *query tile* is what fits the eight columns of an mma: four heads in the
// scan (column 2h holds the high byte, column 2h + 1 the low byte of a query),
// eight heads elsewhere. A *fragment* of D channels has D / 8 words: four words
// per group of 32 channels, in the order of `docs/layout.md`.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_GPU_OPS
#define FFD_GPU_OPS

include "FFDTypes.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def FFD_GlobalPtr : Type<CPred<"::mlir::ffd::isPointerTo($_self, 1)">,
                         "pointer to global memory (!llvm.ptr<1>)">;
def FFD_SharedPtr : Type<CPred<"::mlir::ffd::isPointerTo($_self, 3)">,
                         "pointer to shared memory (!llvm.ptr<3>)">;
def FFD_Words : VectorOfRankAndType<[1], [I32]>;
def FFD_Floats : VectorOfRankAndType<[1], [F32]>;

def FFD_LaneId : I32EnumAttr<"LaneId", "a coordinate of the executing lane", [
    I32EnumAttrCase<"thread", 0>, I32EnumAttrCase<"warp", 1>,
    I32EnumAttrCase<"lane", 2>, I32EnumAttrCase<"block", 3>]> {
  let cppNamespace = "::mlir::ffd";
}
def FFD_CopyKind : I32EnumAttr<"CopyKind", "how asynchronous copies are done", [
    I32EnumAttrCase<"bulk", 0>, I32EnumAttrCase<"async", 1>]> {
  let cppNamespace = "::mlir::ffd";
}
def FFD_Reduction : I32EnumAttr<"Reduction", "how lanes are reduced", [
    I32EnumAttrCase<"add", 0>, I32EnumAttrCase<"max", 1>]> {
  let cppNamespace = "::mlir::ffd";
}

class FFD_GPUOp<string mnemonic, list<Trait> traits = []>
    : FFD_Op<"gpu." # mnemonic, traits>;

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

//===--- Rings -------------------------------------------------------------===//

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

//===--- Splitting a block -------------------------------------------------===//

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

#endif // FFD_GPU_OPS
