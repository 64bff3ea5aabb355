//===- Check.cpp - What a launch computed, against float64 ----------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Scores of a row in parallel over its blocks, then softmax in order; slow and
// obvious. It shares no code with the kernels.
//
//===----------------------------------------------------------------------===//

#include "Check.h"

#include "support/Errors.h"

#include "ffd/Float16.h"
#include "ffd/Split.h"

#include <algorithm>
#include <cmath>

using namespace llvm;
using ffd::tools::error;

namespace ffd::bench {

static constexpr double kOutBar = 1e-2, kLseBar = 1e-2;
/// Distance from the threshold, natural log, within which a block may go either
/// way: the bound on the scan's rounding, generously.
static constexpr double kMaskMargin = 0.05;
/// Token-head pairs that a check looks at, so that it takes seconds.
static constexpr int64_t kMaxWork = int64_t(1) << 21;

namespace {
/// One row of the batch: scores of its tokens and attention over some of them.
class RowCheck {
public:
  RowCheck(const Pool &pool, const Sequence &sequence, int64_t row)
      : s(pool.shape()), spec(s.spec), sequence(sequence), row(row),
        head(row % s.kvHeads), length(s.lengths[size_t(row / s.kvHeads)]),
        blocks(committedBlocks(spec, length, s.lag)) {
    const uint16_t *from =
        pool.queries().data() + row * spec.group * spec.head_dim;
    for (int64_t i = 0; i < spec.group * spec.head_dim; ++i)
      q.push_back(elementToF32(spec.element, from[i]));
    scores.resize(size_t(spec.group * length));
    shift.resize(size_t(spec.group));
  }

  /// Over centred keys, lse is that of the keys themselves (centre_c4).
  void addCentre() {
    const std::vector<uint16_t> &c = sequence.centres();
    for (int64_t i = 0; blocks > 0 && !c.empty() && i < int64_t(q.size()); ++i)
      shift[size_t(i / spec.head_dim)] +=
          q[size_t(i)] / std::sqrt(double(spec.head_dim)) *
          elementToF32(spec.element,
                       c[size_t(head * spec.head_dim + i % spec.head_dim)]);
  }

  double &score(int64_t g, int64_t t) { return scores[size_t(g * length + t)]; }

  /// Exact scores of tokens from `first` on.
  void scoreExact(int64_t first) {
    for (int64_t t = first; t < length; ++t)
      for (int64_t g = 0; g < spec.group; ++g) {
        double dot = 0;
        for (int64_t c = 0; c < spec.head_dim; ++c)
          dot += q[size_t(g * spec.head_dim + c)] *
                 elementToF32(spec.element, sequence.k(head, t)[c]);
        score(g, t) = dot / std::sqrt(double(spec.head_dim));
      }
  }

  /// Refined scores of the kept tokens and, into `coarse`, the largest scan
  /// score of each selection block and head.
  void scoreSplit(const SplitCache &cache, const uint8_t *kept,
                  std::vector<double> &coarse, ThreadPool &threads) {
    const Layout l = layoutOf(spec);
    const double limit = ((1 << spec.scan_bits) - 1) / 2.0;
    const double scale = 1 / std::sqrt(double(spec.head_dim));
    const int64_t per = l.selectsPerBlock();
    coarse.assign(size_t(blocks * per * spec.group), -HUGE_VAL);
    ends.assign(size_t(2 * spec.group), -HUGE_VAL);
    threads.parallelFor(blocks, [&](int64_t b) {
      const int64_t page = cache.page(0, b);
      const bool isEnd = b == 0 || b == blocks - 1;
      const uint8_t *thumbnail = cache.thumbnail(page, head);
      const uint8_t *residual = cache.residual(page, head);
      std::vector<double> qs; // [group][channel]
      for (int64_t i = 0; i < int64_t(q.size()); ++i)
        qs.push_back(q[size_t(i)] * scale *
                     elementToF32(spec.element,
                                  scaleAt(l, thumbnail, i % spec.head_dim)));
      std::vector<double> codes(size_t(spec.head_dim)), fine(codes);
      for (int64_t t = 0; t < spec.quant_block; ++t) {
        const int64_t select = b * per + t / spec.select_block;
        for (int64_t c = 0; c < spec.head_dim; ++c) {
          codes[size_t(c)] = codeAt(l, thumbnail, t, c) - limit;
          if (kept[select] || isEnd)
            fine[size_t(c)] = (residualAt(l, residual, t, c) - 127.5) / 256;
        }
        for (int64_t g = 0; g < spec.group; ++g) {
          double rough = 0, rest = 0;
          for (int64_t c = 0; c < spec.head_dim; ++c) {
            rough += qs[size_t(g * spec.head_dim + c)] * codes[size_t(c)];
            rest += qs[size_t(g * spec.head_dim + c)] * fine[size_t(c)];
          }
          double &top = coarse[size_t(select * spec.group + g)];
          top = std::max(top, rough);
          if (isEnd) {
            double &end = ends[size_t((b == 0 ? 0 : spec.group) + g)];
            end = std::max(end, rough + rest);
          }
          score(g, b * spec.quant_block + t) =
              kept[select] ? rough + rest : -HUGE_VAL;
        }
      }
    });
  }

  /// Blocks whose fate the rule does not explain.
  int64_t maskErrors(const std::vector<double> &coarse, const uint8_t *kept,
                     float delta) {
    if (blocks == 0)
      return 0;
    const int64_t per = layoutOf(spec).selectsPerBlock();
    std::vector<double> top(size_t(spec.group), -HUGE_VAL);
    for (int64_t g = 0; g < spec.group; ++g) {
      for (int64_t j = 0; !spec.pseudo_max && j < blocks * per; ++j)
        if (j < per || j >= (blocks - 1) * per)
          top[size_t(g)] =
              std::max(top[size_t(g)], coarse[size_t(j * spec.group + g)]);
      if (spec.pseudo_max)
        top[size_t(g)] =
            std::max(ends[size_t(g)], ends[size_t(spec.group + g)]);
      for (int64_t t = blocks * spec.quant_block; t < length; ++t)
        top[size_t(g)] = std::max(top[size_t(g)], score(g, t));
    }
    int64_t errors = 0;
    for (int64_t j = 0; j < blocks * per; ++j) {
      double above = -HUGE_VAL;
      for (int64_t g = 0; g < spec.group; ++g)
        above = std::max(above, coarse[size_t(j * spec.group + g)] -
                                    top[size_t(g)] + delta);
      if (spec.pseudo_max && (j == 0 || j == blocks * per - 1)) {
        errors += !kept[j]; // select_c6
        continue;
      }
      errors += std::fabs(above) > kMaskMargin && (above >= 0) != bool(kept[j]);
    }
    return errors;
  }

  /// Attention over all finite scores, compared with results.
  void compare(const float *out, const float *lse, CheckResult &result) {
    double squares = 0, errors = 0;
    for (int64_t g = 0; g < spec.group; ++g) {
      double top = -HUGE_VAL, sum = 0;
      for (int64_t t = 0; t < length; ++t)
        top = std::max(top, score(g, t));
      std::vector<double> o(size_t(spec.value_dim), 0);
      for (int64_t t = 0; t < length; ++t) {
        double p = std::exp(score(g, t) - top);
        if (p == 0)
          continue;
        sum += p;
        for (int64_t c = 0; c < spec.value_dim; ++c)
          o[size_t(c)] +=
              p * elementToF32(spec.element, sequence.v(head, t)[c]);
      }
      for (int64_t c = 0; c < spec.value_dim; ++c) {
        double want = sum ? o[size_t(c)] / sum : 0;
        double got = out[g * spec.value_dim + c];
        squares += want * want;
        errors += (got - want) * (got - want);
      }
      if (length > 0)
        result.lseError = std::max(
            result.lseError,
            std::fabs(lse[g] - (top + std::log(sum) + shift[size_t(g)])));
    }
    if (squares > 0)
      result.outError = std::max(result.outError, std::sqrt(errors / squares));
    ++result.rowsChecked;
  }

  const PoolShape &s;
  const ffdSpec &spec;
  const Sequence &sequence;
  const int64_t row, head, length, blocks;

private:
  std::vector<double> q, scores, shift;
  std::vector<double> ends; ///< largest refined scores, [first, last][head]
};
} // namespace

static Error checkFinite(const Pool &pool, const std::vector<float> &out,
                         const std::vector<float> &lse) {
  for (auto [name, values] : {std::pair("o", &out), std::pair("lse", &lse)})
    for (size_t i = 0; i < values->size(); ++i)
      if (!std::isfinite((*values)[i]))
        return error(
            "the kernel's '{0}' is {1} at element {2} of {3}, expected "
            "finite numbers",
            name, (*values)[i], i, values->size());
  return Error::success();
}

static Error judge(CheckResult &result, bool tolerant) {
  if (result.outError <= kOutBar && result.lseError <= kLseBar &&
      result.maskErrors == 0)
    return Error::success();
  result.note =
      formatv("the kernel's result is off: relative error of o {0:e2}, error "
              "of lse {1:e2}, {2} blocks kept or skipped wrongly; expected at "
              "most {3:e0}, {4:e0} and 0",
              result.outError, result.lseError, result.maskErrors, kOutBar,
              kLseBar)
          .str();
  return tolerant ? Error::success() : error("{0}", result.note);
}

/// The rows to look at: the first, the last and one between, less if long.
static std::vector<int64_t> rowsToCheck(const Pool &pool) {
  const PoolShape &s = pool.shape();
  std::vector<int64_t> rows;
  int64_t work = 0;
  for (int64_t row : {s.rows() - 1, int64_t(0), s.rows() / 2}) {
    if (std::find(rows.begin(), rows.end(), row) != rows.end())
      continue;
    work += s.lengths[size_t(row / s.kvHeads)] * s.spec.group;
    if (!rows.empty() && work > kMaxWork)
      break;
    rows.push_back(row);
  }
  return rows;
}

Expected<CheckResult> checkSparse(const Pool &pool, const Sequence &sequence,
                                  const SplitCache &cache, float delta,
                                  bool tolerant, bool rows,
                                  ThreadPool &threads) {
  const PoolShape &s = pool.shape();
  const Layout l = layoutOf(s.spec);
  std::vector<float> out, lse;
  std::vector<uint8_t> kept;
  if (Error e = pool.fetch(out, lse, &kept))
    return std::move(e);
  if (Error e = checkFinite(pool, out, lse))
    return std::move(e);

  CheckResult result;
  DecodeBytes &bytes = result.bytes;
  int64_t skippedEnds = 0;
  for (int64_t row = 0; row < s.rows(); ++row) {
    const int64_t length = s.lengths[size_t(row / s.kvHeads)];
    const int64_t blocks = committedBlocks(s.spec, length, s.lag);
    const uint8_t *mask = kept.data() + row * pool.keptStride();
    for (int64_t b = 0; b < blocks; ++b) {
      bool any = false;
      for (int64_t j = 0; j < l.selectsPerBlock(); ++j) {
        uint8_t byte = mask[b * l.selectsPerBlock() + j];
        if (byte > 1)
          return error("the kernel left {0} in 'kept' for block {1} of row "
                       "{2}, expected 0 or 1",
                       int(byte), b * l.selectsPerBlock() + j, row);
        bytes.keptBlocks += byte;
        if (s.spec.pseudo_max && (b == 0 || b == blocks - 1))
          skippedEnds += !byte;
        any |= byte;
      }
      result.keptQuantBlocks += any;
    }
    const int64_t tokenBytes = 2 * (s.spec.head_dim + s.spec.value_dim);
    result.quantBlocks += blocks;
    bytes.selectBlocks += blocks * l.selectsPerBlock();
    bytes.scan += blocks * l.thumbnailBytes();
    bytes.tail += tailTokens(s.spec, length, s.lag) * tokenBytes;
    bytes.dense += length * tokenBytes;
  }
  const int64_t residualBytes = s.spec.no_residuals ? 0 : l.paddedHeadDim();
  // Beyond kept blocks, a refined pseudo-max reads residuals of two blocks.
  bytes.kept = bytes.keptBlocks * s.spec.select_block *
                   (residualBytes + 2 * l.paddedValueDim()) +
               skippedEnds * s.spec.select_block * residualBytes;
  if (!rows)
    return result;

  for (int64_t row : rowsToCheck(pool)) {
    RowCheck check(pool, sequence, row);
    const uint8_t *mask = kept.data() + row * pool.keptStride();
    std::vector<double> coarse;
    check.addCentre();
    check.scoreSplit(cache, mask, coarse, threads);
    check.scoreExact(check.blocks * s.spec.quant_block);
    result.maskErrors += check.maskErrors(coarse, mask, delta);
    check.compare(out.data() + row * s.spec.group * s.spec.value_dim,
                  lse.data() + row * s.spec.group, result);
  }
  if (Error e = judge(result, tolerant))
    return std::move(e);
  return result;
}

Expected<CheckResult> checkExact(const Pool &pool, const Sequence &sequence,
                                 bool tolerant, bool rows,
                                 ThreadPool &threads) {
  const PoolShape &s = pool.shape();
  std::vector<float> out, lse;
  if (Error e = pool.fetch(out, lse, nullptr))
    return std::move(e);
  if (Error e = checkFinite(pool, out, lse))
    return std::move(e);
  CheckResult result;
  if (!rows)
    return result;
  std::vector<int64_t> checked = rowsToCheck(pool);
  std::vector<CheckResult> each(checked.size());
  threads.parallelFor(int64_t(checked.size()), [&](int64_t i) {
    const int64_t row = checked[size_t(i)];
    RowCheck check(pool, sequence, row);
    check.scoreExact(0);
    check.compare(out.data() + row * s.spec.group * s.spec.value_dim,
                  lse.data() + row * s.spec.group, each[size_t(i)]);
  });
  for (const CheckResult &one : each) {
    result.rowsChecked += one.rowsChecked;
    result.outError = std::max(result.outError, one.outError);
    result.lseError = std::max(result.lseError, one.lseError);
  }
  if (Error e = judge(result, tolerant))
    return std::move(e);
  return result;
}

Expected<double> errorToExact(const Pool &pool, const Sequence &sequence) {
  std::vector<float> out, lse;
  if (Error e = pool.fetch(out, lse, nullptr))
    return std::move(e);
  if (Error e = checkFinite(pool, out, lse))
    return std::move(e);
  RowCheck check(pool, sequence, 0);
  check.scoreExact(0);
  CheckResult result;
  check.compare(out.data(), lse.data(), result);
  return result.outError;
}

} // namespace ffd::bench
