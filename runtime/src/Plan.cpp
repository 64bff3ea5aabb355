//===- Plan.cpp - Dividing a ragged batch among CTAs ---------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ffd/Plan.h"

#include <algorithm>
#include <vector>

using namespace ffd;

namespace {
/// A sequence of the batch; without a slot it has a length and blocks of -1.
struct Planned {
  int32_t place, slot, length;
  int64_t blocks;
};
} // namespace

static std::vector<Planned> readBatch(const ffdSpec &spec,
                                      const PlanOptions &options,
                                      const int32_t *lengths) {
  std::vector<Planned> batch;
  for (int32_t b = 0; b < options.batch; ++b) {
    const int32_t slot = options.slots ? options.slots[b] : b;
    if ((options.slots && (slot < 0 || slot >= options.slotCount)) ||
        lengths[slot] < 0) {
      batch.push_back({b, -1, -1, -1});
      continue;
    }
    int64_t blocks =
        std::max<int64_t>(0, int64_t(lengths[slot]) - options.lag) /
        spec.quant_block;
    if (options.committed)
      blocks = std::max<int64_t>(blocks, options.committed[slot]);
    batch.push_back({b, slot, lengths[slot], blocks});
  }
  return batch;
}

static int64_t piecesOf(int64_t blocks, int64_t size) {
  return blocks < 0 ? 0 : std::max<int64_t>(1, (blocks + size - 1) / size);
}

/// The smallest size of at least `least` blocks with at most `target` pieces,
/// or one per row.
static int64_t smallestSize(const std::vector<Planned> &batch, int64_t heads,
                            int64_t target, int64_t least) {
  int64_t high = least;
  for (const Planned &p : batch)
    high = std::max(high, p.blocks);
  const int64_t allowed = std::max(target, int64_t(batch.size()) * heads);
  const auto fits = [&](int64_t size) {
    int64_t pieces = 0;
    for (const Planned &p : batch)
      pieces += heads * piecesOf(p.blocks, size);
    return pieces <= allowed;
  };
  // The longest fits: it leaves one piece per row.
  int64_t low = least;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (fits(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static int64_t choosePieceBlocks(const PlanOptions &options,
                                 const std::vector<Planned> &batch) {
  if (options.blocksPerPiece > 0)
    return options.blocksPerPiece;
  const auto size = [&](int64_t target, int64_t least) {
    return smallestSize(batch, options.kvHeads, target, least);
  };
  const int64_t target = size(options.target, kMinPieceBlocks);
  if (options.multiprocessors <= 0)
    return target;
  const int64_t few = size(options.multiprocessors, kMinPieceBlocks);
  const int64_t all = size(options.resident, kMinPieceBlocks);
  uint32_t blocks = 0; // as the kernel adds
  for (const Planned &p : batch)
    blocks += uint32_t(std::max<int64_t>(0, p.blocks));
  const int64_t work = int64_t(blocks) * options.kvHeads;
  if (all < kLongPieceBlocks &&
      (few <= kMinPieceBlocks || 2 * few * options.multiprocessors <= 3 * work))
    return few;
  return 2 * all * options.resident <= 2 * work + target * options.resident
             ? all
             : target;
}

int64_t ffd::pieceBlocks(const ffdSpec &spec, const PlanOptions &options,
                         const int32_t *lengths) {
  return choosePieceBlocks(options, readBatch(spec, options, lengths));
}

Status ffd::planPieces(const ffdSpec &spec, const PlanOptions &options,
                       const int32_t *lengths, ffdPiece *plan,
                       int64_t capacity) {
  if (options.batch < 1 || options.kvHeads < 1 || options.lag < 0 ||
      options.target < 0 || options.blocksPerPiece < 0)
    return Status::invalid(
        "plan: batch, kv heads, lag, target and blocks per piece are " +
        std::to_string(options.batch) + ", " + std::to_string(options.kvHeads) +
        ", " + std::to_string(options.lag) + ", " +
        std::to_string(options.target) + " and " +
        std::to_string(options.blocksPerPiece) +
        ", expected at least 1, 1, 0, 0 and 0");
  std::vector<Planned> batch = readBatch(spec, options, lengths);
  const int64_t size = choosePieceBlocks(options, batch);
  std::stable_sort(
      batch.begin(), batch.end(),
      [](const Planned &a, const Planned &b) { return a.length > b.length; });
  int64_t next = 0;
  for (const Planned &p : batch) {
    const int64_t splits = piecesOf(p.blocks, size);
    if (next + splits * options.kvHeads > capacity)
      return Status::invalid("plan: pieces of " + std::to_string(size) +
                             " blocks exceed the " + std::to_string(capacity) +
                             " entries, expected room for all");
    for (int32_t head = 0; splits > 0 && head < options.kvHeads; ++head) {
      const int64_t first = next;
      for (int64_t split = 0; split < splits; ++split) {
        ffdPiece piece = {};
        piece.row = p.slot * options.kvHeads + head;
        piece.split = int32_t(split);
        piece.splits = int32_t(splits);
        piece.first = int32_t(first);
        piece.length = p.length;
        piece.place = p.place;
        piece.blocks = int32_t(p.blocks);
        plan[next++] = piece;
      }
    }
  }
  for (; next < capacity; ++next)
    plan[next] = emptyPiece();
  return Status::success();
}

int32_t ffd::pickGpuSplits(const ffdSpec &spec, int64_t rows, int64_t maxLength,
                           int64_t multiprocessors,
                           int64_t ctasPerMultiprocessor) {
  constexpr int64_t kMaxSplits = 1024;
  const int64_t blocks = maxLength / spec.quant_block;
  const int64_t most = std::clamp<int64_t>(blocks / kMinPieceBlocks, 1, kMaxSplits);
  const auto pieces = [&](int64_t ctas) {
    return std::clamp<int64_t>(rows > 0 ? ctas / rows : 1, 1, most);
  };
  const int64_t all = pieces(multiprocessors * ctasPerMultiprocessor);
  return int32_t(blocks / all >= kLongPieceBlocks ? all
                                                  : pieces(multiprocessors));
}

Status ffd::checkPlanArgs(const ffdPlanArgs &args) {
  const auto bad = [](const char *field, int64_t value,
                      const std::string &expected) {
    return Status::invalid(std::string("'ffdPlanArgs' field '") + field +
                           "' is " + std::to_string(value) + ", expected " +
                           expected);
  };
  if (args.batch < 1 || args.batch > FFD_PLAN_MAX_BATCH)
    return bad("batch", args.batch,
               "1 to " + std::to_string(FFD_PLAN_MAX_BATCH));
  if (args.kv_heads < 1)
    return bad("kv_heads", args.kv_heads, "at least 1");
  if (args.lag < 0)
    return bad("lag", args.lag, "at least 0");
  if (args.target < 0)
    return bad("target", args.target, "at least 0");
  if (args.blocks_per_piece < 0)
    return bad("blocks_per_piece", args.blocks_per_piece, "at least 0");
  if (args.slots && args.slot_count < 1)
    return bad("slot_count", args.slot_count, "at least 1 with 'slots'");
  if (args.multiprocessors < 0)
    return bad("multiprocessors", args.multiprocessors, "at least 0");
  if (args.multiprocessors > 0 && args.resident < args.multiprocessors)
    return bad("resident", args.resident,
               "at least multiprocessors, " +
                   std::to_string(args.multiprocessors));
  const int64_t least =
      std::max<int64_t>(args.target, int64_t(args.batch) * args.kv_heads);
  if (args.pieces < least)
    return bad("pieces", args.pieces,
               "at least target and batch * kv_heads, " +
                   std::to_string(least));
  if (!args.lengths || !args.plan ||
      reinterpret_cast<uintptr_t>(args.plan) % 16 != 0)
    return Status::invalid("'ffdPlanArgs' fields 'lengths' and 'plan' are null "
                           "or not aligned, expected pointers, plan to a "
                           "multiple of 16 bytes");
  return Status::success();
}
