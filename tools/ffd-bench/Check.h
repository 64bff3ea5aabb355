//===- Check.h - What a launch computed, against float64 --------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Before anything is timed, the result of one launch is looked at: everything
// written and finite, the kept set within rounding of the rule, and o and lse
// equal to the float64 sparse attention over that set, on a few rows.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDBENCH_CHECK_H
#define FFD_TOOLS_FFDBENCH_CHECK_H

#include "Pool.h"

namespace ffd::bench {

struct CheckResult {
  DecodeBytes bytes;           ///< of the whole batch
  int64_t keptQuantBlocks = 0; ///< 128-token blocks with something kept
  int64_t quantBlocks = 0;
  int64_t rowsChecked = 0;
  double outError = 0; ///< norm(o - ref) / norm(ref), the worst row
  double lseError = 0;
  int64_t maskErrors = 0; ///< blocks kept or skipped by more than rounding
  std::string note;       ///< what is wrong, if that is tolerated
};

/// An error if something is unwritten or not finite or o is far off. `delta` is
/// what the launch used. If `tolerant`, a result that is far off is a note.
/// Without `rows`, none is held against float64: only what was kept is counted.
llvm::Expected<CheckResult>
checkSparse(const Pool &pool, const Sequence &sequence, const SplitCache &cache,
            float delta, bool tolerant, bool rows, ThreadPool &threads);

/// The same for exact attention.
llvm::Expected<CheckResult> checkExact(const Pool &pool,
                                       const Sequence &sequence, bool tolerant,
                                       bool rows, ThreadPool &threads);

/// The relative error of o of the first row to exact attention over all tokens:
/// what a selection costs in accuracy. An error if it is not finite.
llvm::Expected<double> errorToExact(const Pool &pool, const Sequence &sequence);

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_CHECK_H
