//===- Plan.h - Dividing a ragged batch among CTAs --------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A GPU launch over a ragged batch follows a plan: a list of pieces, one per
// CTA (`ffdPiece`). The generated kernel "plan" makes the same list on the
// device; this is its oracle, and serves callers whose lengths are on the host.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_PLAN_H
#define FFD_PLAN_H

#include "ffd/Spec.h"
#include "ffd/Status.h"

#include <algorithm>
#include <cstdint>

namespace ffd {

struct PlanOptions {
  int32_t batch = 0; ///< sequences
  int32_t kvHeads = 0;
  int32_t lag = 0; ///< newest tokens that stay in 16 bit
  /// Pieces to aim at; a row gets at least one whatever this says.
  int64_t target = 0;
  /// Blocks of a piece, if the rows are to be cut without regard to each other
  /// (the results of a row then do not depend on its batch); 0 to choose.
  int32_t blocksPerPiece = 0;
  /// [batch] where each sequence is; no slot (negative, or not below slotCount)
  /// gets no piece. Null: sequence b in slot b.
  const int32_t *slots = nullptr;
  int32_t slotCount = 0;
  /// [slot] blocks that are committed although fewer are older than the lag, or
  /// null.
  const int32_t *committed = nullptr;
  /// Of the GPU, and the CTAs that it holds at a time: if given, fewer pieces
  /// than `target` are aimed at where that is better (pieceBlocks).
  int32_t multiprocessors = 0, resident = 0;
};

/// No piece whose size is chosen has fewer blocks, but the only one of a row:
/// one for each warp of a CTA, which scan them at the same time.
inline constexpr int32_t kMinPieceBlocks = 8;

/// A piece with fewer blocks is short: what it repeats of its row then costs
/// more than CTAs that wait for memory in turn bring.
inline constexpr int32_t kLongPieceBlocks = 48;

/// Pieces to aim at in a ragged batch of so many rows on a GPU that holds so
/// many CTAs at a time. Most rows of such a batch are short and end early; three
/// fifths of a round of pieces beside one per row cut the long ones
/// (docs/schedule.md).
inline int64_t raggedPieces(int64_t rows, int64_t resident) {
  return std::max(resident, rows + 3 * resident / 5);
}

/// The size of a piece: the smallest number of blocks >= kMinPieceBlocks for
/// which the rows have at most `target` pieces, or as many as there are rows.
/// Given a GPU, it is a choice of three numbers of pieces:
///   as many as it has multiprocessors, where pieces would be short even so and
///     nearly as long as the average;
///   else as many as it holds at a time, where the longest of those takes no
///     longer than the average and half a piece of the third;
///   else `target`.
/// `lengths` is by slot.
int64_t pieceBlocks(const ffdSpec &spec, const PlanOptions &options,
                    const int32_t *lengths);

/// An entry beyond the pieces of a plan.
inline ffdPiece emptyPiece() {
  ffdPiece piece = {};
  piece.row = -1;
  piece.splits = 1;
  return piece;
}

/// Writes `capacity` entries: the pieces of the longest sequence first (those
/// of equal length in their order), of a sequence by kv head, of a head by
/// split; then empty ones (row -1). `lengths` [slot] are visible tokens. Fails
/// if the pieces are more than `capacity`, which a capacity of at least
/// `target` and batch * kvHeads rules out unless `blocksPerPiece` is given.
Status planPieces(const ffdSpec &spec, const PlanOptions &options,
                  const int32_t *lengths, ffdPiece *plan, int64_t capacity);

/// Pieces per row of a decode without a plan: two CTAs on a multiprocessor hide
/// more of the memory's latency, but each repeats what a row needs before its
/// blocks are scanned; so one, unless pieces are long even with more
/// (docs/performance.md). At most one piece per two blocks.
int32_t pickGpuSplits(const ffdSpec &spec, int64_t rows, int64_t maxLength,
                      int64_t multiprocessors, int64_t ctasPerMultiprocessor);

/// What a host sees of the arguments of the kernel "plan": sizes and addresses.
Status checkPlanArgs(const ffdPlanArgs &args);

} // namespace ffd
#endif // FFD_PLAN_H
