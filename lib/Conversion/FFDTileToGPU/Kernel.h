//===- Kernel.h - Emits one GPU kernel --------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The emitter walks a tile program and emits the code of one warp. Tile values
// become bundles of registers, listed below; a work list is no value but the
// loop that fills it, which is emitted together with the loop that empties it.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_CONVERSION_FFDTILETOGPU_KERNEL_H
#define FFD_LIB_CONVERSION_FFDTILETOGPU_KERNEL_H

#include "../Common/GPUBuilder.h"
#include "Plan.h"

#include "ffd/Conversion/KernelArgs.h"

#include <limits>

namespace mlir::ffd {

/// The reference of a softmax that has seen no score: above no finite one, and
/// not infinite, so that differences of references are numbers.
inline constexpr float kNoReference = -std::numeric_limits<float>::max();

/// A row maximum: this warp's part of it, then that of the team.
struct RowMaxValue {
  SmallVector<Value> tiles; ///< i32 per query tile of four: of head 4 i + tq
  Value bad;                ///< i1: a tail score was not finite
  bool complete = false;    ///< whether it is the team's
};

/// Thresholds, i32, bounded so that the scan cannot overflow.
struct ThresholdValue {
  /// Of head 4 i + tq, per query tile of four.
  SmallVector<Value> exact;
  /// Where blocks are screened, what high bytes must reach: vector<2xi32> of
  /// heads 8 i + 2 tq and the next, per query tile of eight.
  SmallVector<Value> screen;
};

/// An online softmax in the registers of a warp, per query tile of eight.
struct StateValue {
  SmallVector<Value> reference; ///< vector<2xf32>, units of log2
  SmallVector<Value> sum;       ///< vector<2xf32>
  SmallVector<Value> output;    ///< vector<4 x valueTiles x f32>

  SmallVector<Value> flat() const;
  static StateValue fromFlat(ValueRange values);
};

class KernelEmitter {
public:
  KernelEmitter(OpBuilder &builder, TileTeamsOp teams, const KernelPlan &plan,
                LLVM::LLVMFuncOp function)
      : b(teams.getLoc(), builder), teams(teams), plan(plan),
        function(function) {}

  LogicalResult emit();

private:
  // Kernel.cpp: the walk.
  /// Sets the coordinates below. `again` computes them anew, so that they need
  /// not live through the scan.
  void emitCoordinates(bool again);
  void emitLaneCoordinates(bool again);
  /// Puts row, split, splits, first, sequence, head, length, delta, place and
  /// maybe the committed blocks where later parts find them.
  void storeCoordinates();
  LogicalResult emitOp(Operation *op);
  LogicalResult emitDistribute(TileDistributeOp loop);
  /// Checks that a loop's body has the ops of a form this lowering knows.
  LogicalResult checkBody(TileDistributeOp loop,
                          ArrayRef<StringRef> allowed) const;

  // Prologue.cpp: first loads, query.
  LogicalResult emitExtent(TileExtentOp op);
  LogicalResult emitExactExtent(TileExactExtentOp op);
  LogicalResult emitQuery(TileQueryOp op);
  Value loadSmax();
  /// Words of memory that nobody writes, as a vector; zeros where there is a
  /// condition that does not hold.
  Value loadWords(int64_t words, Value address, Value condition);
  /// One of them, as a number.
  Value loadWord(Value address, Value condition) {
    return b.get(loadWords(1, address, condition), 0);
  }
  void startLoads();
  void loadDelta();
  void prefetchTail();
  void emitScanQuery();
  void emitRefineQuery();
  Value loadQuery(Value headInGroup);
  /// What a lane quantises of the query for the scan.
  struct ScanQuery {
    Value query, smax;
  };
  ScanQuery loadScanQuery(Value condition);
  Value queryOffset(Value headInGroup);
  /// The query token of a head of the row, i32; the last for heads beyond.
  Value queryToken(Value headInGroup);
  /// Of `tokens` (i32), those that a head sees: query token i of n does not see
  /// the last n - 1 - i. Not positive if there are none.
  Value seenBy(Value headInGroup, Value tokens);

  /// The query times the scales of a block.
  struct Folded {
    SmallVector<Value> tiles;   ///< B operands per query tile
    SmallVector<Value> centres; ///< 2 L sum Q per query tile
  };

  // Screen.cpp: blocks above four query heads.
  SmallVector<Value> screenThresholds(ArrayRef<Value> exact, int64_t limit);
  Value emitScreen(Value stageAddress, const ThresholdValue &threshold);
  Value emitScreenedMask(Value stageAddress, const ThresholdValue &threshold,
                         Value &parity);

  // PseudoMax.cpp: pseudo-max, threshold, first state.
  void loadCandidatePage(Value blocks);
  void loadCandidates();
  Value firstCandidateTile();
  Value candidateResiduals();
  void prefetchResiduals();
  /// Scores this lane's two tokens of a tile of a candidate block and takes
  /// them into `best`, per query tile: S of scan_c2's 2 S - 2 L sum Q, or with
  /// residuals the 2 S of refined scores.
  void scoreCandidateTile(const Folded &folded, Value codes, Value residuals,
                          SmallVector<Value> &best);
  /// How the tokens of the tail are dealt for scoring, in steps of a warp.
  struct TailDeal {
    int64_t heads;   ///< of a query tile, that a warp scores at once
    int64_t tokens;  ///< of a step
    int64_t stride;  ///< tokens from one step of a warp to its next
    int64_t steps;   ///< for which a warp has shared memory
    Value head;      ///< i32: of this lane, in a query tile
    Value token;     ///< i32: of this lane, in a step
    Value warpFirst; ///< i32: first token of the warp's first step, larger than
                     ///< any tail if it has none
    int64_t tokensAtOnce() const { return steps * stride; }
  };
  TailDeal dealTail();
  void startTail(Value tail);
  void copyTailKeys(const TailDeal &deal, Value first, Value tail);
  Value loadTailQuery(Value headInGroup, Value condition);
  LogicalResult emitCandidates(TileDistributeOp loop);
  LogicalResult scoreTail(TileDistributeOp loop);
  LogicalResult emitTailMax(TileDistributeOp loop);
  void completeRowMax(RowMaxValue &value);
  LogicalResult emitThreshold(TileThresholdOp op);
  LogicalResult emitInit(TileInitOp op);

  // Scan.cpp: the share of a team.
  struct Share {
    Value stride,
        first;       ///< block of (iteration i, warp w) = first + i stride + w
    Value warpCount; ///< iterations of this warp
    Value teamCount; ///< iterations of warp 0, the most of any
    Value pages;     ///< page id of this lane's iteration of the round
  };
  void startShare(TileDistributeOp loop);
  LogicalResult emitShare(TileDistributeOp share, TileDistributeOp refine);
  Value loadPages(Value firstIteration);
  void fillStages(Value firstIteration, Value pages, Value firstStage);
  void fillStage(Value stage, Value page, Value condition);
  SmallVector<Value> emitScanLoop(TileDistributeOp loop, Value iteration0,
                                  Value count, Value pages, Value stage,
                                  Value parity);
  void emitPlainMasks(TileDistributeOp loop, Value iteration0, Value count);
  Value emitExactMask(Value stageAddress, const ThresholdValue &threshold);
  Value loadBlockScales(Value stageAddress);
  Value scanBlock(Value stageAddress, int64_t selectBlock,
                  function_ref<Value(Value)> scan);
  /// Tiles that are kept in any case (select_c6) of the block of this lane's
  /// iteration, a bit each.
  Value keptEnds(Value iteration0);
  void park(StateValue &state);
  void unpark(StateValue &state);
  void storeKept(Value mask, Value block, Value condition);
  Value countSelects(Value mask);
  void addKeptCount(Value count);

  // Certificate.cpp: what is not kept.
  /// The mask of a block, with `ends` (may be null), and per query tile the
  /// mass of the tokens that it skips, added to `sums`.
  Value emitCertifiedMask(Value stageAddress, const ThresholdValue &threshold,
                          Value ends, SmallVector<Value> &sums);
  void startSkipped(ArrayRef<Value> thresholds);
  void addSkipped(ArrayRef<Value> sums);
  void mergeSkippedWarps();
  void mergeSkippedPieces();
  void writeSkipped(Value headInGroup, Value sum);

  // Pieces of the scan that candidates and share have in common.
  /// Scales of a block as f16.
  Value halfScales(Value scales);
  Folded foldScales(Value scales);
  Value loadFragment(Value address, int64_t groupStride, bool constant,
                     Value condition = {});
  Value loadTileCodes(Value block, Value tile, Value condition = {});
  Value loadTileResiduals(Value residuals, Value tile, Value condition = {});
  /// The address of a page's part of a plane for this row's kv head.
  Value slotOf(Value page);

  // Attend.cpp: refinement, tail, output.
  SmallVector<Value> emitRefineRound(TileDistributeOp loop, Value phase,
                                     ValueRange state);
  LogicalResult emitTailShare(TileDistributeOp loop);
  Value loadTailKeys(Value tile, Value tail);
  Value loadTailValues(Value tile, Value tail);
  Value tailRow(KernelArg plane, int64_t width, Value token);
  Value firstTailTile();
  void stepState(StateValue &state, Value scores,
                 function_ref<Value()> loadValues);

  // Finish.cpp: the end of a piece.
  LogicalResult emitFinish(TileFinishOp op);
  Value placeRow();
  /// Where a head has its output, lse and skipped mass, i64.
  Value outputIndex(Value headInGroup);
  void storeWarpState(const StateValue &state, int64_t headTile);
  void mergeWarps(int64_t headTile);
  void mergePieces();
  SmallVector<Value> mergeSomePieces(Value h, Value dim, Value first,
                                     int64_t step);
  void writeOutput(Value head, Value dim, ArrayRef<Value> output, Value sum,
                   Value reference);
  Value partialAddress(Value split, Value head);
  Value loadPartial(int64_t floats, Value address, Value condition);

  // Centre.cpp: what lse lacks over centred keys.
  void scoreCentre();
  Value centreScore(Value headInGroup);

  //===--- Small things
  //----------------------------------------------------===//

  Value arg(KernelArg which);
  Value shared(int64_t offset) {
    return GPUSharedOp::create(b, b.pointer(3), offset);
  }
  Value teamBarrier() {
    GPUTeamBarrierOp::create(b);
    return {};
  }
  Value reduceRows(Reduction kind, Value value) {
    return GPUReduceRowsOp::create(b, value.getType(), kind, value);
  }
  Value shuffle(Value value, Value from) {
    return GPUShuffleOp::create(b, value.getType(), value, from);
  }
  Value any(Value condition) { return GPUAnyOp::create(b, b.i1(), condition); }
  Value exp2(Value x) { return GPUExp2Op::create(b, b.f32(), x); }
  /// A 64-bit offset: `index` (i32, not negative) times `bytes`.
  Value scaled(Value index, int64_t bytes) {
    return b.mul(b.zext64(index), bytes);
  }
  /// The offset of (group of bytes) `index` in shared memory, i32.
  Value sharedAt(int64_t offset, Value index, int64_t bytes) {
    return b.at(shared(offset), b.mul(index, bytes));
  }

  GPUBuilder b;
  TileTeamsOp teams;
  const KernelPlan &plan;
  LLVM::LLVMFuncOp function;

  // Values of the whole kernel.
  Operation *entry = nullptr; ///< arguments are loaded after it
  Value thread, lane, warp, g, tq;
  Value row, split, splits, sequence, head; // i32
  Value firstPartial; ///< i32: the row's partial results start here
  Value length;       ///< i32: visible tokens of the sequence
  Value place;        ///< i32: of the sequence in q, out and lse
  Value committed;    ///< i32: its blocks; not kept for later parts
  DenseMap<int, Value> args;
  Value keptGiven;         ///< i1, null if the program has no kept mask
  bool centred = false;    ///< lse takes in the centre of the row
  bool countsKept = false; ///< the program has a kept mask, which is counted
  Value ringBase, warpBarriers;

  // Values of tile ops.
  DenseMap<Value, Value> counts; ///< extents
  DenseMap<Value, RowMaxValue> rowMaxima;
  DenseMap<Value, ThresholdValue> thresholds;
  DenseMap<Value, StateValue> states;
  DenseMap<Value, TileDistributeOp> worklists; ///< loops not yet emitted
  std::optional<Share> share;
  bool ringStarted = false;
  /// What the candidate blocks are scored by, loaded early.
  struct Candidates {
    Value some; ///< i1: there are committed blocks
    Value page; ///< i32: of this warp's candidate
    Value scales;
    SmallVector<Value> codes;
    SmallVector<Value> residuals; ///< of a refined pseudo-max, maybe late
  };
  std::optional<Candidates> candidates;
  std::optional<ScanQuery> earlyQuery;
  /// Of a loop over the tail: this lane's largest score of its head in each
  /// query tile, and whether one was not finite.
  DenseMap<TileDistributeOp, SmallVector<Value>> tailScores;
  Value tailQuery; ///< this lane's words of its head, loaded early
  Value delta;     ///< i32, the bits of delta, in the thread that stores it
};

} // namespace mlir::ffd

#endif // FFD_LIB_CONVERSION_FFDTILETOGPU_KERNEL_H
