//===- Bench.h - One point of the grid --------------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Measures one (tokens, batch, selection block) of a shape with each keep
// ratio: makes the pool, checks a launch, times it, and times the dense rivals
// on the same data.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDBENCH_BENCH_H
#define FFD_TOOLS_FFDBENCH_BENCH_H

#include "Check.h"

#include <map>
#include <optional>

namespace ffd::bench {

/// The time of one choice of pieces per row.
struct SplitsTiming {
  int64_t splits = 0;
  Timing timing;
};

/// A program on a point: the chosen pieces, and all that were tried.
struct ProgramTiming {
  SplitsTiming best;
  std::vector<SplitsTiming> all;
};

struct Point {
  ffdSpec spec = {};
  int64_t tokens = 0, batch = 0, selectBlock = 0;
  double keep = 0;                          ///< asked for; 1: everything
  int64_t rotations = 0, visibleTokens = 0; ///< of the whole batch
  std::string kernel;                       ///< its target
  int registers = 0, localBytes = 0;        ///< 0 on a CPU
  CheckResult check;
  std::string checkNote; ///< what was wrong, if that is tolerated
  int64_t bytes = 0;     ///< that must move
  ProgramTiming decode;
  std::optional<Timing> plan;           ///< of the kernel that plans the batch
  Timing read;                          ///< of as many bytes
  std::optional<ProgramTiming> keepAll; ///< delta = inf
  std::optional<ProgramTiming> exact;   ///< over row-major K and V
  std::string exactNote;                ///< why not

  double rate() const { return double(bytes) / decode.best.timing.median; }
};

/// Batches of copies, so that a rotation reads several times the cache, within
/// the memory there is; an error if not one batch fits.
llvm::Expected<int64_t> rotationsFor(const Options &options,
                                     const Machine &machine,
                                     int64_t launchBytes, int64_t poolBytes);

/// What the data of a shape is made of.
SequenceOptions sequenceOptionsFor(const Options &options, int64_t tokens);

/// Splits a whole sequence as `shape` says.
llvm::Error makeSplitCache(const PoolShape &shape, const Sequence &sequence,
                           bool contiguousPages, ThreadPool &threads,
                           std::unique_ptr<SplitCache> &cache);

class Bench {
public:
  /// `options` are those of one shape (Options::of) and outlive the object.
  Bench(const Options &options, Machine &machine, bool tolerant)
      : options(options), machine(machine), tolerant(tolerant) {}

  /// One point per keep ratio, handed out when all are there.
  llvm::Error measure(int64_t tokens, int64_t batch, int64_t selectBlock,
                      llvm::function_ref<void(Point)> sink);
  /// Why a batch does not fit the memory; empty if it does.
  std::string tooLarge(int64_t tokens, int64_t batch) const;

private:
  PoolShape shapeOf(int64_t tokens, int64_t batch, int64_t selectBlock) const;
  llvm::Error prepareSequence(int64_t tokens);
  llvm::Error prepareCache(const PoolShape &shape);
  llvm::Expected<DecodeKernel *> find(Program program, const ffdSpec &spec);
  std::vector<int64_t> splitsToTry(DecodeKernel &kernel, const PoolShape &shape,
                                   SplitsMode mode);
  /// Whether launches follow a plan.
  bool planned(const DecodeKernel &kernel) const;
  llvm::Error reserve(const DecodeKernel &kernel, Pool &pool, int64_t splits);
  llvm::Error launchOnce(DecodeKernel &kernel, Pool &pool, int64_t splits,
                         bool withKept);
  llvm::Expected<ProgramTiming> time(DecodeKernel &kernel, Pool &pool,
                                     SplitsMode mode);
  llvm::Error measurePlan(Pool &pool, int64_t target, Point &point);
  llvm::Error measureSplit(PoolShape shape, std::vector<Point> &points);
  llvm::Error measureKeep(DecodeKernel &kernel, Pool &pool, Point &point);
  llvm::Error measureExact(PoolShape shape, Point &point);

  const Options &options;
  Machine &machine;
  bool tolerant; ///< a wrong result is a note
  std::unique_ptr<Sequence> sequence;
  int64_t sequenceTokens = -1;
  std::unique_ptr<SplitCache> cache; ///< of the sequence
  int64_t cacheSelectBlock = 0;
  std::map<std::string, std::unique_ptr<DecodeKernel>> kernels;
  /// Times of exact attention do not depend on selection block and keep ratio.
  std::map<std::pair<int64_t, int64_t>, ProgramTiming> exactTimes;
};

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_BENCH_H
