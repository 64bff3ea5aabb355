//===- ExactReference.cpp - Exact attention in float64 --------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One task per (sequence, kv head): all scores, their maximum, then the sum.
//
//===----------------------------------------------------------------------===//

#include "ExactReference.h"

#include "ffd/Float16.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ffd::run {

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// `count` elements as doubles.
static void widen(int32_t element, const uint16_t *from, int64_t count,
                  double *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = elementToF32(element, from[i]);
}

/// The heads of one group over one kv head of one query token of a sequence.
static void attendGroup(const Case &c, double smScale, int64_t sequence,
                        int64_t token, int64_t kvHead, ExactResult &result) {
  const CaseShape &s = c.shape;
  int64_t kvSequence = s.kvBatch == 1 ? 0 : sequence;
  // It does not see the tokens that came after it.
  int64_t length = std::max<int64_t>(
      0, s.lengths[sequence] - (s.queryTokens - 1 - token));
  int64_t firstHead = (sequence * s.queryTokens + token) * s.queryHeads +
                      kvHead * s.group();

  std::vector<double> q(s.group() * s.headDim), k(s.headDim), v(s.valueDim);
  widen(s.element, c.q.as<uint16_t>() + firstHead * s.headDim,
        s.group() * s.headDim, q.data());

  std::vector<double> scores(s.group() * length);
  std::vector<double> largest(s.group(), -kInfinity);
  auto tokenIndex = [&](int64_t t) {
    return (kvSequence * s.tokens + t) * s.kvHeads + kvHead;
  };
  for (int64_t t = 0; t < length; ++t) {
    widen(s.element, c.k.as<uint16_t>() + tokenIndex(t) * s.headDim, s.headDim,
          k.data());
    for (int64_t h = 0; h < s.group(); ++h) {
      double dot = 0;
      for (int64_t i = 0; i < s.headDim; ++i)
        dot += q[h * s.headDim + i] * k[i];
      scores[h * length + t] = smScale * dot;
      largest[h] = std::fmax(largest[h], smScale * dot);
    }
  }

  std::vector<double> sums(s.group());
  double *out = result.out.data() + firstHead * s.valueDim;
  for (int64_t t = 0; t < length; ++t) {
    widen(s.element, c.v.as<uint16_t>() + tokenIndex(t) * s.valueDim,
          s.valueDim, v.data());
    for (int64_t h = 0; h < s.group(); ++h) {
      double p = std::exp(scores[h * length + t] - largest[h]);
      sums[h] += p;
      for (int64_t i = 0; i < s.valueDim; ++i)
        out[h * s.valueDim + i] += p * v[i];
    }
  }
  if (length == 0)
    return; // attend_c3: zeros and -inf, as initialised
  for (int64_t h = 0; h < s.group(); ++h) {
    for (int64_t i = 0; i < s.valueDim; ++i)
      out[h * s.valueDim + i] /= sums[h];
    result.lse[firstHead + h] = largest[h] + std::log(sums[h]);
  }
}

ExactResult exactAttention(const Case &c, double smScale, ThreadPool &pool) {
  const CaseShape &s = c.shape;
  ExactResult result;
  int64_t heads = s.batch * s.queryTokens * s.queryHeads;
  result.out.assign(heads * s.valueDim, 0);
  result.lse.assign(heads, -kInfinity);
  pool.parallelFor(s.batch * s.queryTokens * s.kvHeads, [&](int64_t row) {
    int64_t token = row / s.kvHeads;
    attendGroup(c, smScale, token / s.queryTokens, token % s.queryTokens,
                row % s.kvHeads, result);
  });
  return result;
}

/// The larger one; NaN if one of them is.
static double larger(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? a + b : std::fmax(a, b);
}

double Accuracy::relativeError() const {
  if (errorSquares == 0)
    return 0;
  return std::sqrt(errorSquares) / std::sqrt(referenceSquares);
}

void Accuracy::merge(const Accuracy &other) {
  heads += other.heads;
  cosineSum += other.cosineSum;
  worstCosine = -larger(-worstCosine, -other.worstCosine);
  errorSquares += other.errorSquares;
  referenceSquares += other.referenceSquares;
  lseError = larger(lseError, other.lseError);
}

Accuracy compare(const float *out, const float *lse, const ExactResult &exact) {
  Accuracy result;
  size_t heads = exact.lse.size();
  size_t dim = heads ? exact.out.size() / heads : 0;
  for (size_t h = 0; h < heads; ++h) {
    double dot = 0, outSquares = 0;
    Accuracy one;
    one.heads = 1;
    for (size_t i = h * dim; i < (h + 1) * dim; ++i) {
      double difference = out[i] - exact.out[i];
      dot += out[i] * exact.out[i];
      outSquares += double(out[i]) * out[i];
      one.referenceSquares += exact.out[i] * exact.out[i];
      one.errorSquares += difference * difference;
    }
    // Two zero vectors are alike.
    bool zeros = outSquares == 0 && one.referenceSquares == 0;
    one.worstCosine =
        zeros ? 1 : dot / std::sqrt(outSquares * one.referenceSquares);
    one.cosineSum = one.worstCosine;
    // Equal infinities (no token at all) do not differ.
    one.lseError =
        lse[h] == exact.lse[h] ? 0 : std::fabs(lse[h] - exact.lse[h]);
    result.merge(one);
  }
  return result;
}

} // namespace ffd::run
