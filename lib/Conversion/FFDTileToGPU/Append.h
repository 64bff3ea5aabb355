//===- Append.h - Appends on a GPU ------------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Emits the kernel of a tile program that appends to a cache. One CTA per row
// and piece, eight warps: a warp for each tile of 16 tokens of a block.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_CONVERSION_FFDTILETOGPU_APPEND_H
#define FFD_LIB_CONVERSION_FFDTILETOGPU_APPEND_H

#include "../Common/GPUBuilder.h"

#include "ffd/Conversion/KernelArgs.h"
#include "ffd/Dialect/FFDDialect.h"

namespace mlir::ffd {

/// Shared memory of an append.
struct AppendPlan {
  explicit AppendPlan(SpecAttr spec);

  SpecAttr spec;
  ::ffd::Layout layout;
  int64_t channels; ///< padded head dim
  int64_t warps, threads, ctas;
  // Offsets in shared memory.
  int64_t maxima;  ///< i32 [warp][channel]: largest |k|, scale order
  int64_t factors; ///< f32 [channel]: what the keys are multiplied with
  int64_t flags;   ///< i32 [warp]: a page id was bad
  int64_t flag;    ///< of the arrival
  int64_t centre;  ///< element [head_dim]: c of the row, if keys are centred
  int64_t sharedBytes;
};

class AppendEmitter {
public:
  AppendEmitter(OpBuilder &builder, TileTeamsOp teams, const AppendPlan &plan,
                LLVM::LLVMFuncOp function)
      : b(teams.getLoc(), builder), teams(teams), plan(plan),
        layout(plan.layout), function(function) {}

  LogicalResult emit();

private:
  LogicalResult emitOp(Operation *op);
  LogicalResult emitExtent(TileAppendExtentOp op);
  LogicalResult emitCommit(TileDistributeOp loop);
  LogicalResult emitFinish(TileFinishAppendOp op);

  Value checkPages();
  bool centred() const { return plan.spec.hasCentre(); }
  void findCentre();
  void computeCentre();
  void storeCentre();
  Value relative(Value words, Value centre, Value isRaw);
  Value loadKeys(Value block);
  Value cacheRow();
  Value centreRow();
  Value splitKeys(Value keys, Value place, Value running);
  void storeKeys(Value keys, Value place);
  void storeValues(Value block, Value place);
  void mergeScales(Value running);
  void storeLength();
  void storeTail(AppendArg tail, int64_t width, AppendArg input,
                 AppendArg tokenStride, AppendArg headStride);

  /// The address of a token's row of K or V of this kv head: in the tail, if
  /// the sequence had it before, else in the input.
  Value tokenRow(Value token, AppendArg tail, int64_t width, AppendArg input,
                 AppendArg tokenStride, AppendArg headStride);
  Value tailRow(Value index, AppendArg tail, int64_t width);
  Value plane(AppendArg which, Value place, int64_t bytes);

  Value arg(AppendArg which);
  Value perSlot(AppendArg which);
  Value isGiven(AppendArg which);
  void findSlot();
  Value shared(int64_t offset) {
    return GPUSharedOp::create(b, b.pointer(3), offset);
  }
  Value sharedAt(int64_t offset, Value index, int64_t bytes) {
    return b.at(shared(offset), b.mul(index, bytes));
  }
  /// A 64-bit offset: `index` (i32, not negative) times `bytes`.
  Value scaled(Value index, int64_t bytes) {
    return b.mul(b.zext64(index), bytes);
  }

  GPUBuilder b;
  TileTeamsOp teams;
  const AppendPlan &plan;
  const ::ffd::Layout &layout;
  LLVM::LLVMFuncOp function;

  Operation *entry = nullptr; ///< arguments are loaded after it
  DenseMap<int, Value> args;
  Value thread, lane, warp, g, tq;
  Value row, split, splits, sequence, head; // i32
  Value starts;  ///< this append commits the row's block 0 (i1)
  Value slot;    ///< i32: of the sequence in the tables
  Value hasSlot; ///< i1
  /// Tokens of the sequence before, its first new row, its new tokens;
  /// committed blocks before and after (i32).
  Value length, begin, count, first, end;
  DenseMap<Value, Value> largest; ///< !ffd.scales: i32 of channel `thread`
};

} // namespace mlir::ffd

#endif // FFD_LIB_CONVERSION_FFDTILETOGPU_APPEND_H
