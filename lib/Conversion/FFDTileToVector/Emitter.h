//===- Emitter.h - A tile program as vector code ------ -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Walks a tile program and emits vector code for it, one function per tile op.
// A value of a tile type becomes a small struct of emitted values, mostly
// pointers to buffers on the stack; what is in them is said at the struct.
// Logical vectors hold 16 words of 32 bits whatever the instruction set: LLVM
// splits them where registers are narrower.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_CONVERSION_FFDTILETOVECTOR_EMITTER_H
#define FFD_LIB_CONVERSION_FFDTILETOVECTOR_EMITTER_H

#include "VectorBuilder.h"
#include "ffd/Conversion/KernelArgs.h"

#include "llvm/ADT/DenseMap.h"
#include <variant>

namespace mlir::ffd {

//===--- What tile values become
//-------------------------------------------===//
//
// G: query heads of the row, those of all query tokens; Dp: padded head dim.
// Buffers are 64-byte aligned.

/// `!ffd.query`. Per-head numbers are lanes of vectors, lane = head.
struct QueryValue {
  Value natural; ///< f32 [G][Dp], q in channel order, padded with zeros
  Value smScale; ///< f32
  // The rest only with a cache.
  Value quantised; ///< f32 [G][Dp], qh in scale order (query_c3)
  Value power;     ///< f32 [16], 2^e (query_c3)
  Value unit;      ///< vector<16xf32>, F (query_c4)
  Value nonFinite; ///< i1 (query_c5)
  Value rescale;   ///< f32, 2^-k (query_c1)
};

/// `!ffd.thumbnail`: pointers into the plane.
struct ThumbnailValue {
  Value codes, scales;
  Value next; ///< the codes of the block that a loop visits next
};

/// `!ffd.body`: pointers into the planes, and which selection blocks count.
struct BodyValue {
  Value residuals, values;
  Value mask; ///< i32
};

/// `!ffd.tail`: 16 tokens, row-major, contiguous. Those at and after `valid`
/// are zero.
struct TailValue {
  Value keys, values;
  Value valid; ///< i64, 1..16
  Value left;  ///< i64, tokens of the tail from this tile on
};

/// `!ffd.scores`: i32 [G][vectors][16], the larger scores of two tokens in each
/// lane; only maxima are taken of them. Of a block: lanes 0-7 of vector v
/// belong to tile v, lanes 8-15 to tile v + 4.
struct ScoresValue {
  Value data;
  int64_t vectors;
  Value tokens; ///< i32 [G][vectors][2][16], both scores; null: not wanted
  Value bad;    ///< i1: a score was NaN or infinite (select_c3); null: none was
  Value
      squares; ///< f32 [16], lane = head: sum Q^2 of cert_c2; null: not wanted
};

/// `!ffd.skipped`: what the loop that yields it adds up, in place.
struct SkippedValue {
  Value sums; ///< f32 [G][16], to be added up
};

/// `!ffd.logits`: f32 [tiles][G][16], tokens in order.
struct LogitsValue {
  Value data;
};

/// `!ffd.row_max`: i32 [16], lane = head, and an i32 that is not 0 if a score
/// of the row was NaN or infinite.
struct RowMaxValue {
  Value data, bad;
};

/// `!ffd.threshold`: i32 [16], lane = head.
struct ThresholdValue {
  Value data;
};

/// `!ffd.mask`.
struct MaskValue {
  Value bits; ///< i32
};

/// `!ffd.worklist`: the loop that produces it. It is never stored whole; see
/// emitWorklist.
struct WorklistValue {
  TileDistributeOp producer;
};

/// `!ffd.ranking`: arrays over the selection blocks of the row, filled up to a
/// multiple of 16 with blocks that no rule chooses.
struct RankingValue {
  Value keys;  ///< i32, the best score as an integer of the same order
  Value mass;  ///< f32, sum of exp(score - best) over heads and tokens
  Value count; ///< i64, selection blocks
};

/// `!ffd.state`. There is one, changed in place. Outputs are kept in two parts
/// that finish adds: one in plain order for tail tokens, one whose lanes follow
/// the fragments of the value plane.
struct StateValue {
  Value plain;     ///< f32 [G][Dvp]
  Value fragments; ///< f32 [G][Dvp / 16][8][16]
  Value reference; ///< f32 [16], lane = head
  Value sums;      ///< f32 [G][16], to be added up
  bool hasFragments;
};

using TileValue =
    std::variant<QueryValue, ThumbnailValue, BodyValue, TailValue, ScoresValue,
                 LogitsValue, RowMaxValue, ThresholdValue, MaskValue,
                 WorklistValue, RankingValue, StateValue, SkippedValue>;

/// Clamps to +-2^30 (NaN to the lower bound) and converts.
Value toUnits(VectorBuilder &b, Value x);
/// Whether the rule over a ranking that `scan` feeds sums over tokens, so that
/// maxima do not do.
bool wantsTokens(TileScanOp scan);
/// The estimate of skipped mass that is made of the scores of `scan`, or null.
TileSkippedOp skippedOf(TileScanOp scan);

//===--- The emitter
//-------------------------------------------------------===//

class Emitter {
public:
  /// Emits at the end of the entry block of `kernel`, whose arguments are those
  /// of the ABI.
  Emitter(func::FuncOp kernel, TileTeamsOp teams, const CpuIsa &isa);

  LogicalResult run();

private:
  LogicalResult emitOp(Operation *op);
  LogicalResult emitBlock(Block &block);
  void addKeptCount();

  // Structure (EmitDistribute.cpp).
  LogicalResult emit(TileDistributeOp op);
  std::pair<Value, Value> emitShare(TileDistributeOp op);
  LogicalResult emitDomain(TileDistributeOp op,
                           function_ref<void()> after = nullptr);
  LogicalResult emitMax(TileDistributeOp op);
  LogicalResult emitAppend(TileDistributeOp op, Value first, Value last,
                           Value masks);
  LogicalResult emitWorklist(TileDistributeOp op);

  // Rules over the whole row (EmitRank.cpp).
  LogicalResult emitRank(TileDistributeOp op);
  LogicalResult emit(TileChooseOp op);
  void rankBlock(const ScoresValue &scores, Value unit, Value first,
                 const RankingValue &ranking);

  // Row state and loads (EmitRow.cpp, EmitQuery.cpp).
  LogicalResult emit(TileExtentOp op);
  LogicalResult emit(TileExactExtentOp op);
  LogicalResult emit(TileLoadThumbnailOp op);
  LogicalResult emit(TileLoadBodyOp op);
  LogicalResult emit(TileLoadTailOp op);
  LogicalResult emit(TileQueryOp op);
  void quantiseQuery(QueryValue &query);
  /// The slot of a block of this row in a plane.
  Value slot(KernelArg plane, int64_t bytes, Value block);

  // Selector (EmitScan.cpp, EmitSelect.cpp).
  LogicalResult emit(TileScanOp op);
  LogicalResult emit(TileToUnitsOp op);
  LogicalResult emit(TileThresholdOp op);
  LogicalResult emit(TileReachOp op);
  LogicalResult emit(TileFullOp op);
  LogicalResult emit(TileKeepEndsOp op);
  LogicalResult emit(TileStoreKeptOp op);
  LogicalResult emit(TileLoadKeptOp op);

  // The certificate (EmitSkipped.cpp).
  LogicalResult emit(TileSkippedOp op);
  void startSkipped(TileDistributeOp loop);
  /// Writes the log of a head's skipped mass, relative to its threshold.
  void writeSkipped(Value head, Value sum, TileFinishOp op,
                    const QueryValue *centred);

  /// Refined scores of a block in scan units, as in a ScoresValue.
  Value scanRefined(const QueryValue &query, const ThumbnailValue &thumbnail,
                    const BodyValue &body);
  /// Scores of a block whose keys are not split, [tile][G][16]; `mask` (i32,
  /// may be null): of its selection blocks only.
  Value emitKeys(const QueryValue &query, Value keys, Value mask);
  void scanKeys(TileScanOp op);

  // Computer (EmitRefine.cpp, EmitTail.cpp, EmitState.cpp, EmitFinish.cpp).
  LogicalResult emit(TileRefineOp op);
  LogicalResult emit(TileDotOp op);
  LogicalResult emit(TileInitOp op);
  LogicalResult emit(TileAccumulateOp op);
  LogicalResult emit(TileFinishOp op);
  /// Writes [G][16] scores of 16 row-major keys, in the order of tail_c1.
  void emitDot(const QueryValue &query, Value keys, Value to);
  void emitRebase(const StateValue &state, Value logits);
  void emitWeights(const StateValue &state, Value logits, Value weights);
  void accumulateFragments(const StateValue &state, Value weights,
                           Value values);
  void accumulateRows(const StateValue &state, Value weights, Value values);
  Value collapse(const StateValue &state, Value head, Value out);
  /// `centred`: the queries, over centred keys; null over plain ones.
  void writeResult(Value head, Value outputs, Value reference, Value sum,
                   const QueryValue *centred);
  /// Where a head of this row has its output, lse and skipped mass.
  Value outputNumber(Value head);
  Value centreScore(Value head, const QueryValue &query);

  /// The struct of a tile value.
  template <typename T>
  const T &get(Value value) {
    return std::get<T>(values.find(value)->second);
  }
  template <typename T>
  void set(Value value, T emitted) {
    values.insert_or_assign(value, TileValue(std::move(emitted)));
  }
  /// Which lanes of a tile of the tail a head sees: vector<16xi1>. Query token
  /// i of n does not see the last n - 1 - i tokens.
  Value seenBy(int64_t head, const TailValue &tail);
  /// An i64 for an index value.
  Value index(Value value) { return indices.lookup(value); }
  Value arg(KernelArg field);

  func::FuncOp kernel;
  TileTeamsOp teams;
  VectorBuilder b;
  SpecAttr spec;
  ::ffd::Layout layout;
  int64_t group, paddedDim, valueDim;

  // Of the row.
  Value row, split, splits, sequence, kvHead;
  Value visibleBlocks; ///< committed blocks, once `extent` has run
  Value
      keptHere; ///< i64 in memory: selection blocks kept so far, null: no mask
  DenseMap<Value, TileValue> values;
  DenseMap<Value, Value> indices;
  SmallVector<Value> arguments;
};

} // namespace mlir::ffd

#endif // FFD_LIB_CONVERSION_FFDTILETOVECTOR_EMITTER_H
