//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// L1: the algorithm on tensors. The ops say *what* is computed, in destination
// style: on tensors they return new values, after bufferisation they write
// memrefs. Each is legal alone; fusion (`--ffd-fuse`) is an optimisation.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_OPS
#define FFD_OPS

include "FFDTypes.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/Interfaces/DestinationStyleOpInterface.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def FFD_Element : AnyTypeOf<[F16, BF16]>;
def FFD_ElementShaped : AnyTypeOf<[TensorRankOf<[F16, BF16], [3]>,
                                   MemRefRankOf<[F16, BF16], [3]>]>;
def FFD_ElementShaped4 : AnyTypeOf<[TensorRankOf<[F16, BF16], [4]>,
                                    MemRefRankOf<[F16, BF16], [4]>]>;
class FFD_Shaped<Type elt, int rank>
    : AnyTypeOf<[TensorRankOf<[elt], [rank]>, MemRefRankOf<[elt], [rank]>]>;

//===--- Split -------------------------------------------------------------===//

def FFD_SplitOp : FFD_Op<"split", [Pure, InferTypeOpAdaptor]> {
  let summary = "split keys into thumbnails, residuals and scales";
  let description = [{
    Quantises `T` tokens of one row, `T` a multiple of the quantisation block:
    per block and channel a scale, a `scan_bits`-bit thumbnail code and an 8-bit
    residual (split_c1 to split_c5 of `docs/numerics.md`). With `centre` the keys
    are taken relative to it first (centre_c3). The results are in logical
    layout; `--ffd-split-to-linalg` lowers the op.

    Constraints:
    * (split_o1) `keys` is `[T, D]` with `T`, where static, a multiple of
      `quant_block`;
    * (split_o2) `scan_bits` is 2, 4 or 8;
    * (split_o3) `centre` is `[D]`, of the keys' element type.

    Example:

    ```mlir
    %codes, %residuals, %scales = ffd.split %k {scan_bits = 2 : i64, quant_block = 128 : i64}
        : tensor<256x64xf16> -> tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xf16>
    %c2, %r2, %s2 = ffd.split %k centre(%c : tensor<64xf16>) {scan_bits = 2 : i64, quant_block = 128 : i64}
        : tensor<256x64xf16> -> tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xf16>
    ```
  }];
  let arguments = (ins TensorRankOf<[F16, BF16], [2]>:$keys,
                       Optional<TensorRankOf<[F16, BF16], [1]>>:$centre,
                       I64Attr:$scan_bits, I64Attr:$quant_block);
  let results = (outs TensorRankOf<[I8], [2]>:$codes,
                      TensorRankOf<[I8], [2]>:$residuals,
                      TensorRankOf<[F16, BF16], [2]>:$scales);
  let assemblyFormat = [{
    $keys (`centre` `(` $centre^ `:` type($centre) `)`)? attr-dict `:` type($keys)
    `->` type($codes) `,` type($residuals) `,` type($scales)
  }];
  let hasVerifier = 1;
}

//===--- The cache ---------------------------------------------------------===//

def FFD_CacheViewOp : FFD_Op<"cache.view", [Pure]> {
  let summary = "a typed view of the planes of a paged split cache";
  let description = [{
    Groups the plain memrefs that cross function boundaries into one SSA value
    whose type fixes their layout. Axis 0 of a plane is the page, axis 1 the kv
    head, axis 2 the packed block in the order of `docs/layout.md`. Tails hold
    the newest tokens in 16 bit, row-major, `[sequence][kv head][token][channel]`.
    `lag` is the number of newest tokens that stay in the tail at least.

    Constraints:
    * (cache_c1) the innermost size of each plane, where static, is what the
      spec's layout needs: bytes of a thumbnail block, bytes of a residual block,
      elements of a value block, padded head dim, head dim, value dim; head dim
      for `centre`;
    * (cache_c2) element types of values, smax, tails and centre are the spec's;
    * (cache_c3) every memref has the identity layout: strides are arguments of
      the kernel, not of the type;
    * (cache_c4) there is a `centre`, `[sequence][kv head][channel]`, exactly
      where the spec has `centre = row`.

    A `memref.cast` that only forgets static sizes folds into the op.

    Example:

    ```mlir
    %cache = ffd.cache.view thumbnails(%th) residuals(%re) values(%va) smax(%sx)
        tails(%tk, %tv) pages(%pt) lengths(%ln) lag(%lag)
        : memref<?x?x4352xi8>, memref<?x?x16384xi8>, memref<?x?x16384xf16>,
          memref<?x?x128xf16>, memref<?x?x?x128xf16>, memref<?x?x?x128xf16>,
          memref<?x?xi32>, memref<?xi32> -> !ffd.cache<#s>
    ```
  }];
  let arguments = (ins
    MemRefRankOf<[I8], [3]>:$thumbnails, MemRefRankOf<[I8], [3]>:$residuals,
    MemRefRankOf<[F16, BF16], [3]>:$values, MemRefRankOf<[F16, BF16], [3]>:$smax,
    MemRefRankOf<[F16, BF16], [4]>:$tail_k, MemRefRankOf<[F16, BF16], [4]>:$tail_v,
    MemRefRankOf<[I32], [2]>:$page_table, MemRefRankOf<[I32], [1]>:$lengths,
    I32:$lag, Optional<MemRefRankOf<[F16, BF16], [3]>>:$centre);
  let results = (outs FFD_CacheType:$cache);
  let assemblyFormat = [{
    `thumbnails` `(` $thumbnails `)` `residuals` `(` $residuals `)`
    `values` `(` $values `)` `smax` `(` $smax `)`
    `tails` `(` $tail_k `,` $tail_v `)` `pages` `(` $page_table `)`
    `lengths` `(` $lengths `)` `lag` `(` $lag `)`
    (`centre` `(` $centre^ `:` type($centre) `)`)? attr-dict `:`
    type($thumbnails) `,` type($residuals) `,` type($values) `,` type($smax) `,`
    type($tail_k) `,` type($tail_v) `,` type($page_table) `,` type($lengths)
    `->` qualified(type($cache))
  }];
  let hasFolder = 1;
  let hasVerifier = 1;
}

//===--- Growing the cache -------------------------------------------------===//

def FFD_AppendOp : FFD_Op<"append", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "append tokens to the sequences of a cache";
  let description = [{
    Rows `offsets[b]` up to `offsets[b + 1]` of `keys` and `values` become the
    newest tokens of sequence `b`. Blocks that are then older than the cache's
    `lag` are committed: what `ffd.split` says of their keys goes to the pages
    that the page table names, `smax` rises to their scales (split_c6), and the
    tail holds the rest. Where the spec has `centre = row`, the first block that
    is committed decides the centre of its row, and all keys of the row are
    relative to it from then on, those of the tail too (centre_c1 to centre_c3). `new_lengths[b]` becomes `lengths[b]` plus what was
    appended; where they are other memory, `lengths` stay, so that all layers of
    a step can start from them.

    A sequence that cannot take its tokens stays as it is, all of it, and
    `errors[b]` receives the reasons as bits (`ffdAppendError` of `abi.h`): more
    committed blocks than `reserved[b]`, a page id that is no page, a tail that
    is too short, or a length or count that makes no sense.

    Constraints:
    * (append_c1) shapes: keys `[tokens, Hkv, D]`, values `[tokens, Hkv, Dv]`,
      offsets `[B + 1]`, reserved, new_lengths and errors `[B]`;
    * (append_c2) element types of keys and values are the spec's.

    Example:

    ```mlir
    ffd.append ins(%k, %v, %off, %res : memref<?x1x128xf16>, memref<?x1x128xf16>, memref<2xi32>, memref<1xi32>)
        into %cache : !ffd.cache<#s> outs(%newlen, %err : memref<1xi32>, memref<1xi32>)
    ```
  }];
  let arguments = (ins MemRefRankOf<[F16, BF16], [3]>:$keys,
                       MemRefRankOf<[F16, BF16], [3]>:$values,
                       MemRefRankOf<[I32], [1]>:$offsets,
                       MemRefRankOf<[I32], [1]>:$reserved, FFD_CacheType:$cache,
                       MemRefRankOf<[I32], [1]>:$new_lengths,
                       MemRefRankOf<[I32], [1]>:$errors);
  let assemblyFormat = [{
    `ins` `(` $keys `,` $values `,` $offsets `,` $reserved `:` type($keys) `,`
    type($values) `,` type($offsets) `,` type($reserved) `)`
    `into` $cache `:` qualified(type($cache)) `outs` `(` $new_lengths `,` $errors
    `:` type($new_lengths) `,` type($errors) `)` attr-dict
  }];
  let hasVerifier = 1;
}

//===--- Selector and computer, in steps -----------------------------------===//

/// Destination style over (query, cache, ...), on tensors or memrefs. The cache
/// is a view of memory, so these ops read memory even in tensor form; on tensors
/// they do nothing else, and are dead when their results are unused. For all of
/// them: (row_c1) inits are all tensors, with a result of the same type for
/// each, or all memrefs, without results.
class FFD_RowOp<string mnemonic, list<Trait> traits = []>
    : FFD_Op<mnemonic, !listconcat(traits, [DestinationStyleOpInterface,
        DeclareOpInterfaceMethods<MemoryEffectsOpInterface>])> {
  let hasVerifier = 1;
}

def FFD_PseudoMaxOp : FFD_RowOp<"pseudo_max", [AttrSizedResultSegments]> {
  let summary = "pseudo-max of every query head from sink, local and tail tokens";
  let description = [{
    `row_max[b, h]` is `pm` of select_c1, in scan units; `unit[b, h]` is the
    score of one unit in natural-log units (query_c4). A head whose row must
    keep everything (select_c3) gets `unit` NaN. With `refined`, scores of sink
    and local tokens are those of select_c5.

    Constraints:
    * (pseudo_max_c1) shapes: query `[B, Hq, D]`, outputs `[B, Hq]`, `D` the
      cache's head dim, `Hq`, where static, a multiple of the group;
    * (pseudo_max_c2) with `refined` the cache has residuals.

    Example:

    ```mlir
    %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
        outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
    ```
  }];
  let arguments = (ins FFD_ElementShaped:$query, FFD_CacheType:$cache,
                       F32:$sm_scale, FFD_Shaped<I32, 2>:$row_max,
                       FFD_Shaped<F32, 2>:$unit, UnitAttr:$refined);
  let results = (outs Optional<TensorRankOf<[I32], [2]>>:$row_max_result,
                      Optional<TensorRankOf<[F32], [2]>>:$unit_result);
  let assemblyFormat = [{
    (`refined` $refined^)? `ins` `(` $query `,` $cache `,` $sm_scale `:`
    type($query) `,` qualified(type($cache)) `)`
    `outs` `(` $row_max `,` $unit `:` type($row_max) `,` type($unit) `)` attr-dict
    (`->` type($row_max_result)^ `,` type($unit_result))?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return ::mlir::MutableOperandRange(getOperation(), 3, 2);
    }
  }];
}

def FFD_ScanOp : FFD_RowOp<"scan"> {
  let summary = "best estimated score of every selection block";
  let description = [{
    `best[b, h, j]` is the maximum of `a_int` (scan_c2) over the tokens of
    selection block `j` of the sequence; blocks beyond the committed ones get
    the least int32.

    Constraints:
    * (scan_o1) shapes: query `[B, Hq, D]`, output `[B, Hq, blocks]`.

    Example:

    ```mlir
    %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
        outs(%b0 : tensor<1x4x?xi32>) -> tensor<1x4x?xi32>
    ```
  }];
  let arguments = (ins FFD_ElementShaped:$query, FFD_CacheType:$cache,
                       FFD_Shaped<I32, 3>:$best);
  let results = (outs Optional<TensorRankOf<[I32], [3]>>:$result);
  let assemblyFormat = [{
    `ins` `(` $query `,` $cache `:` type($query) `,`
    qualified(type($cache)) `)`
    `outs` `(` $best `:` type($best) `)` attr-dict (`->` type($result)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getBestMutable(); }
  }];
}

def FFD_SelectOp : FFD_RowOp<"select"> {
  let summary = "which selection blocks of a row are kept";
  let description = [{
    `mask[b, head, j]` is 1 where kv head `head` of sequence `b` keeps selection
    block `j`, by the rule of the selector attribute, and 0 where it does not.
    Bytes beyond the committed blocks stay what they were in the init. `delta`
    holds one threshold per sequence in natural-log units (read by
    `#ffd.top_delta` only). `#ffd.all` reads neither `best`, `row_max` nor
    `unit`: canonicalisation cuts it off from the ops that compute them. The
    `pseudo_max` of `#ffd.top_delta` says of which kind `row_max` is; what is
    computed here depends on it by select_c6 only.

    Constraints:
    * (select_o1) shapes: best `[B, Hq, blocks]`, row_max and unit `[B, Hq]`,
      delta `[B]`, mask `[B, Hkv, blocks]` with `Hq = group * Hkv` where static;
    * (select_o2) `pseudo_max = refined` only with a cache that has residuals;
    * (select_o3) no certificate: `best` has no sums over tokens.

    Example:

    ```mlir
    %mask = ffd.select #ffd.top_delta
        ins(%best, %pm, %u, %delta, %cache : tensor<1x4x?xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
        outs(%m0 : tensor<1x1x?xi8>) -> tensor<1x1x?xi8>
    ```
  }];
  let arguments = (ins FFD_AnySelector:$selector, FFD_Shaped<I32, 3>:$best,
                       FFD_Shaped<I32, 2>:$row_max, FFD_Shaped<F32, 2>:$unit,
                       FFD_Shaped<F32, 1>:$delta, FFD_CacheType:$cache,
                       FFD_Shaped<I8, 3>:$mask);
  let results = (outs Optional<TensorRankOf<[I8], [3]>>:$result);
  let assemblyFormat = [{
    $selector `ins` `(` $best `,` $row_max `,` $unit `,` $delta `,` $cache `:`
    type($best) `,` type($row_max) `,` type($unit) `,` type($delta) `,`
    qualified(type($cache)) `)` `outs` `(` $mask `:` type($mask) `)` attr-dict
    (`->` type($result)^)?
  }];
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getMaskMutable(); }
  }];
}

def FFD_AttendOp : FFD_RowOp<"attend", [AttrSizedResultSegments]> {
  let summary = "refined attention over the kept blocks and the tail";
  let description = [{
    attend_c1 to attend_c4 of `docs/numerics.md`: scores from thumbnails and
    residuals, softmax, product with V, and the natural-log sum of exponentials.

    Constraints:
    * (attend_o1) shapes: query `[B, Hq, D]`, mask `[B, Hkv, blocks]`, out
      `[B, Hq, Dv]`, lse `[B, Hq]`.

    Example:

    ```mlir
    %o, %l = ffd.attend ins(%q, %cache, %mask, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x?xi8>)
        outs(%o0, %l0 : tensor<1x4x128xf32>, tensor<1x4xf32>) -> tensor<1x4x128xf32>, tensor<1x4xf32>
    ```
  }];
  let arguments = (ins FFD_ElementShaped:$query, FFD_CacheType:$cache,
                       FFD_Shaped<I8, 3>:$mask, F32:$sm_scale,
                       FFD_Shaped<F32, 3>:$out, FFD_Shaped<F32, 2>:$lse);
  let results = (outs Optional<TensorRankOf<[F32], [3]>>:$out_result,
                      Optional<TensorRankOf<[F32], [2]>>:$lse_result);
  let assemblyFormat = [{
    `ins` `(` $query `,` $cache `,` $mask `,` $sm_scale `:` type($query) `,`
    qualified(type($cache)) `,` type($mask) `)` `outs` `(` $out `,` $lse `:`
    type($out) `,` type($lse) `)` attr-dict (`->` type($out_result)^ `,` type($lse_result))?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return ::mlir::MutableOperandRange(getOperation(), 4, 2);
    }
  }];
}

//===--- The fused op, and its exact rival ---------------------------------===//

def FFD_DecodeOp : FFD_RowOp<"decode", [AttrSizedResultSegments]> {
  let summary = "selector and computer as one";
  let description = [{
    What `ffd.pseudo_max`, `ffd.scan`, `ffd.select` and `ffd.attend` compute
    together, as one kernel; scores and mask are never materialised. `kept`
    additionally receives the mask, for statistics; as in `ffd.select`, bytes
    beyond the committed blocks stay what they were. Where the selector asks for
    a certificate, `skipped_lse` receives it (cert_c1).

    Constraints:
    * (decode_c1) shapes: query `[B, Hq, D]`, delta `[B]`, out `[B, Hq, Dv]`,
      lse and skipped_lse `[B, Hq]`, kept `[B, Hkv, blocks]`;
    * (decode_c2) the selector needs no pass over the whole row:
      `#ffd.top_delta` or `#ffd.all`;
    * (decode_c3) `pseudo_max = refined` only with a cache that has residuals;
    * (decode_c4) `skipped_lse` is given exactly where the selector has a
      certificate, and then keys are split (`scan_bits` is not 16).

    Example:

    ```mlir
    %o, %l, %m = ffd.decode #ffd.top_delta
        ins(%q, %cache, %delta, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1xf32>)
        outs(%o0, %l0, %m0 : tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>)
        -> tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x?xi8>
    ffd.decode #ffd.top_delta<certificate = plain>
        ins(%q1, %cache, %delta1, %sm : memref<1x4x128xf16>, !ffd.cache<#s>, memref<1xf32>)
        outs(%o1, %l1, %m1, %s1 : memref<1x4x128xf32>, memref<1x4xf32>, memref<1x1x?xi8>, memref<1x4xf32>)
    ```
  }];
  let arguments = (ins FFD_AnySelector:$selector, FFD_ElementShaped:$query,
                       FFD_CacheType:$cache, FFD_Shaped<F32, 1>:$delta,
                       F32:$sm_scale, FFD_Shaped<F32, 3>:$out,
                       FFD_Shaped<F32, 2>:$lse, FFD_Shaped<I8, 3>:$kept,
                       Optional<FFD_Shaped<F32, 2>>:$skipped_lse);
  let results = (outs Optional<TensorRankOf<[F32], [3]>>:$out_result,
                      Optional<TensorRankOf<[F32], [2]>>:$lse_result,
                      Optional<TensorRankOf<[I8], [3]>>:$kept_result,
                      Optional<TensorRankOf<[F32], [2]>>:$skipped_lse_result);
  let assemblyFormat = [{
    $selector `ins` `(` $query `,` $cache `,` $delta `,` $sm_scale `:`
    type($query) `,` qualified(type($cache)) `,` type($delta) `)`
    `outs` `(` $out `,` $lse `,` $kept (`,` $skipped_lse^)? `:` type($out) `,`
    type($lse) `,` type($kept) (`,` type($skipped_lse)^)? `)` attr-dict
    (`->` type($out_result)^ `,` type($lse_result) `,` type($kept_result)
    (`,` type($skipped_lse_result)^)?)?
  }];
  let builders = [
    /// Without a certificate.
    OpBuilder<(ins "::mlir::Type":$outResult, "::mlir::Type":$lseResult,
                   "::mlir::Type":$keptResult, "::mlir::Attribute":$selector,
                   "::mlir::Value":$query, "::mlir::Value":$cache,
                   "::mlir::Value":$delta, "::mlir::Value":$smScale,
                   "::mlir::Value":$out, "::mlir::Value":$lse,
                   "::mlir::Value":$kept), [{
      build($_builder, $_state, outResult, lseResult, keptResult,
            ::mlir::Type(), selector, query, cache, delta, smScale, out, lse,
            kept, ::mlir::Value());
    }]>];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return ::mlir::MutableOperandRange(getOperation(), 4,
                                         getNumOperands() - 4);
    }
  }];
}

def FFD_ExactOp : FFD_RowOp<"exact", [AttrSizedResultSegments]> {
  let summary = "exact decode attention over 16-bit keys and values";
  let description = [{
    The rival: ordinary attention over `keys` and `values`, row-major
    `[B, Hkv, T, D]`, of which `lengths[b]` tokens are visible. Lowered through
    the same tile program as the tail of a decode.

    Constraints:
    * (exact_c1) shapes: query `[B, Hq, D]`, keys `[B, Hkv, T, D]`, values
      `[B, Hkv, T, Dv]`, lengths `[B]`, out `[B, Hq, Dv]`, lse `[B, Hq]`, sizes
      as the spec says;
    * (exact_c2) one element type for query, keys and values.

    Example:

    ```mlir
    %o, %l = ffd.exact #s ins(%q, %k, %v, %len, %sm : tensor<1x4x128xf16>, memref<1x1x?x128xf16>, memref<1x1x?x128xf16>, memref<1xi32>)
        outs(%o0, %l0 : tensor<1x4x128xf32>, tensor<1x4xf32>) -> tensor<1x4x128xf32>, tensor<1x4xf32>
    ```
  }];
  let arguments = (ins FFD_SpecAttr:$spec, FFD_ElementShaped:$query,
                       MemRefRankOf<[F16, BF16], [4]>:$keys,
                       MemRefRankOf<[F16, BF16], [4]>:$values,
                       MemRefRankOf<[I32], [1]>:$lengths, F32:$sm_scale,
                       FFD_Shaped<F32, 3>:$out, FFD_Shaped<F32, 2>:$lse);
  let results = (outs Optional<TensorRankOf<[F32], [3]>>:$out_result,
                      Optional<TensorRankOf<[F32], [2]>>:$lse_result);
  let assemblyFormat = [{
    $spec `ins` `(` $query `,` $keys `,` $values `,` $lengths `,` $sm_scale `:`
    type($query) `,` type($keys) `,` type($values) `,` type($lengths) `)`
    `outs` `(` $out `,` $lse `:` type($out) `,` type($lse) `)` attr-dict
    (`->` type($out_result)^ `,` type($lse_result))?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return ::mlir::MutableOperandRange(getOperation(), 5, 2);
    }
  }];
}

#endif // FFD_OPS
