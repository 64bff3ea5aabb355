//===- Pool.h - Copies of a sequence in the target's memory -----*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A pool of physically distinct copies of one sequence, from which launches
// take batches in turn, so that what one launch reads is no longer in a cache
// when its turn comes again. Pages of a sequence are spread over the whole
// pool.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDBENCH_POOL_H
#define FFD_TOOLS_FFDBENCH_POOL_H

#include "Machine.h"
#include "Sequence.h"

#include "ffd/Cache.h"

#include <vector>

namespace ffd::bench {

/// What launches of one batch have in common.
struct PoolShape {
  ffdSpec spec = {};
  int64_t kvHeads = 0, batch = 0, rotations = 1, lag = 0;
  std::vector<int64_t> lengths; ///< [batch]

  int64_t sequences() const { return batch * rotations; }
  int64_t rows() const { return batch * kvHeads; }
  int64_t longest() const;
  /// 16-bit K and V of a batch.
  int64_t denseBytes() const;
  /// Thumbnails of a batch.
  int64_t scanBytes() const;
  int64_t outputBytes() const {
    return rows() * spec.group * (spec.value_dim + 1) * 4;
  }
};

/// Queries, lengths and results, which all programs need, then the split cache
/// or the row-major one.
class Pool {
public:
  /// Bytes that the pools of this shape take.
  static int64_t splitBytes(const PoolShape &shape);
  static int64_t denseBytes(const PoolShape &shape);

  static llvm::Expected<std::unique_ptr<Pool>>
  createSplit(const PoolShape &shape, const Sequence &sequence,
              const SplitCache &cache, bool contiguous, Machine &machine);
  static llvm::Expected<std::unique_ptr<Pool>>
  createDense(const PoolShape &shape, const Sequence &sequence,
              Machine &machine);

  const PoolShape &shape() const { return poolShape; }

  /// Makes room for that many pieces per row.
  llvm::Error reserveSplits(int64_t splits);
  /// Makes a plan that aims at that many pieces, and room for them.
  llvm::Error reservePlan(int64_t target);
  llvm::Error poisonPlan() { return plan.fill(0xFF); }
  /// Arguments with which the kernel "plan" makes that plan on the device.
  ffdPlanArgs planArgs(int64_t target) const;
  /// Whether the plan in device memory is what the host makes of the lengths.
  llvm::Expected<bool> planIsRight(int64_t target) const;
  llvm::Error setDelta(float delta);
  /// Queries that keep the share `keep` of the blocks.
  llvm::Error setQueries(const Sequence &sequence, double keep);
  /// The arguments of launch `i`; the kept mask only if asked for.
  ffdDecodeArgs args(int64_t i, int64_t splits, bool withKept = false) const;

  /// Results of launch 0: poison them before, fetch them after.
  llvm::Error poison();
  llvm::Error fetch(std::vector<float> &out, std::vector<float> &lse,
                    std::vector<uint8_t> *kept) const;
  int64_t keptStride() const { return selectStride; }
  /// [rotations * batch][kvHeads * group][head_dim], on the host.
  const std::vector<uint16_t> &queries() const { return hostQ; }

private:
  Pool(const PoolShape &shape, Machine &machine)
      : poolShape(shape), machine(machine) {}
  llvm::Error createCommon(const Sequence &sequence);
  llvm::Error createTails(const Sequence &sequence);

  PoolShape poolShape;
  Machine &machine;
  std::vector<uint16_t> hostQ;
  Memory q, lengths, delta, out, lse, skipped, kept, workspace;
  Memory thumbnails, residuals, values, smax, centre, pageTable, tailK, tailV,
      plan;
  int64_t pieces = 0; ///< of the plan; 0: none
  bool sparse = false;
  int64_t pageStride = 0, selectStride = 0, tailStride = 0;
};

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_POOL_H
