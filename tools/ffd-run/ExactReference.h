//===- ExactReference.h - Exact attention in float64 ------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Softmax attention over the unsplit 16-bit K and V, slow and obvious, and the
// distance of a decode's result from it. It shares no code with the kernels.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDRUN_EXACTREFERENCE_H
#define FFD_TOOLS_FFDRUN_EXACTREFERENCE_H

#include "Case.h"

#include <vector>

namespace ffd::run {

struct ExactResult {
  std::vector<double> out; ///< [batch][queryTokens][queryHeads][valueDim]
  std::vector<double> lse; ///< [batch][queryTokens][queryHeads], natural logarithm
};

/// Exact attention of a case. Reads only visible tokens.
ExactResult exactAttention(const Case &c, double smScale, ThreadPool &pool);

/// How far results are from exact ones, summed over (sequence, head) pairs. A
/// NaN on either side stays visible in every number.
struct Accuracy {
  int64_t heads = 0;
  double cosineSum = 0;
  double worstCosine = 1;
  double errorSquares = 0;     ///< sum of (o - exact)^2
  double referenceSquares = 0; ///< sum of exact^2
  double lseError = 0;         ///< the largest |lse - exact|

  double cosine() const { return heads ? cosineSum / double(heads) : 1; }
  /// norm(o - exact) / norm(exact) over all heads.
  double relativeError() const;
  void merge(const Accuracy &other);
};

Accuracy compare(const float *out, const float *lse, const ExactResult &exact);

} // namespace ffd::run

#endif // FFD_TOOLS_FFDRUN_EXACTREFERENCE_H
