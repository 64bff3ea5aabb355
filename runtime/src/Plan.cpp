//===- Plan.cpp - Dividing a ragged batch among CTAs ---------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ffd/Plan.h"

#include <algorithm>
#include <numeric>
#include <vector>

using namespace ffd;

static int64_t blocksOf(const ffdSpec &spec, const PlanOptions &options,
                        int32_t length) {
  return std::max<int64_t>(0, int64_t(length) - options.lag) / spec.quant_block;
}

static int64_t piecesOf(int64_t blocks, int64_t size) {
  return std::max<int64_t>(1, (blocks + size - 1) / size);
}

int64_t ffd::pieceBlocks(const ffdSpec &spec, const PlanOptions &options,
                         const int32_t *lengths) {
  if (options.blocksPerPiece > 0)
    return options.blocksPerPiece;
  int64_t most = kMinPieceBlocks;
  for (int32_t b = 0; b < options.batch; ++b)
    most = std::max(most, blocksOf(spec, options, lengths[b]));
  const int64_t allowed =
      std::max(options.target, int64_t(options.batch) * options.kvHeads);
  const auto fits = [&](int64_t size) {
    int64_t pieces = 0;
    for (int32_t b = 0; b < options.batch; ++b)
      pieces +=
          options.kvHeads * piecesOf(blocksOf(spec, options, lengths[b]), size);
    return pieces <= allowed;
  };
  // `most` fits: it leaves one piece per row.
  int64_t low = kMinPieceBlocks, high = most;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (fits(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
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
  const int64_t size = pieceBlocks(spec, options, lengths);
  std::vector<int32_t> order(size_t(options.batch));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return lengths[a] > lengths[b];
  });
  int64_t next = 0;
  for (int32_t b : order) {
    const int64_t splits = piecesOf(blocksOf(spec, options, lengths[b]), size);
    if (next + splits * options.kvHeads > capacity)
      return Status::invalid("plan: pieces of " + std::to_string(size) +
                             " blocks exceed the " + std::to_string(capacity) +
                             " entries, expected room for all");
    for (int32_t head = 0; head < options.kvHeads; ++head) {
      const int64_t first = next;
      for (int64_t split = 0; split < splits; ++split)
        plan[next++] = {b * options.kvHeads + head,
                        int32_t(split),
                        int32_t(splits),
                        int32_t(first),
                        lengths[b],
                        {}};
    }
  }
  for (; next < capacity; ++next)
    plan[next] = {-1, 0, 1, 0, 0, {}};
  return Status::success();
}

int32_t ffd::pickGpuSplits(const ffdSpec &spec, int64_t rows, int64_t maxLength,
                           int64_t multiprocessors,
                           int64_t ctasPerMultiprocessor) {
  constexpr int64_t kLongPiece = 48, kMaxSplits = 1024;
  const int64_t blocks = maxLength / spec.quant_block;
  const int64_t most = std::clamp<int64_t>(blocks / 2, 1, kMaxSplits);
  const auto pieces = [&](int64_t ctas) {
    return std::clamp<int64_t>(rows > 0 ? ctas / rows : 1, 1, most);
  };
  const int64_t all = pieces(multiprocessors * ctasPerMultiprocessor);
  return int32_t(blocks / all >= kLongPiece ? all : pieces(multiprocessors));
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
