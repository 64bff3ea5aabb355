//===- Scan.h - Approximate scores of a split cache -------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the selector sees and kernels keep to themselves: the approximate score
// of every committed token, the tail's scores and the pseudo-max, computed from
// the packed cache with the roundings of docs/numerics.md.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_PYTHON_SCAN_H
#define FFD_PYTHON_SCAN_H

#include "ffd/Spec.h"

namespace ffd {
class ThreadPool;
}

namespace ffd::python {

/// Where scanScores writes; heads are those of the query, [query tokens][heads]
/// where several tokens ask at once. Null: not wanted.
struct ScanOutputs {
  /// [batch][heads][stride] a_int of committed tokens (scan_c2); 0 in a
  /// non-finite row and beyond the committed tokens.
  int32_t *units = nullptr;
  int64_t unitsStride = 0;
  /// [batch][heads] F (query_c4), natural-log units per scan unit.
  float *unit = nullptr;
  /// [batch][heads][stride] in natural-log units: F * a_int of committed
  /// tokens, the tail's scores (tail_c1), -inf beyond the length and for what a
  /// query token does not see (tokens_c1). NaN for committed tokens of a
  /// non-finite row.
  float *scores = nullptr;
  int64_t scoresStride = 0;
  /// [batch][heads] in natural-log units: the largest score of the first and
  /// the last committed block (refined ones, if the specification says so) and
  /// of the tail; -inf without tokens, NaN in a
  /// non-finite row or beside a tail score of NaN.
  float *pseudoMax = nullptr;
};

/// Reads of `args` what describes the cache and the query; host memory, checked
/// by the caller. Pieces of rows run on the pool.
void scanScores(const ffdSpec &spec, const ffdDecodeArgs &args,
                ThreadPool &pool, const ScanOutputs &outputs);

} // namespace ffd::python
#endif // FFD_PYTHON_SCAN_H
