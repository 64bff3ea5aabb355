//===- Scan.cpp - Approximate scores of a split cache ---------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One function per section of docs/numerics.md. This file must be compiled
// without contraction (-ffp-contract=off).
//
//===----------------------------------------------------------------------===//

#include "Scan.h"

#include "ffd/Float16.h"
#include "ffd/Split.h"
#include "ffd/ThreadPool.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace ffd::python {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kSmallest = 0x1p-100f; // query_c2

float roundF16(float value) { return f16ToF32(f32ToF16(value)); }

/// The larger one; NaN if either is.
float maxNaN(float a, float b) {
  return std::isnan(a) || std::isnan(b) ? kNaN : std::max(a, b);
}

/// floor(log2(x)) of a positive finite number, else 0.
int floorLog2(float x) { return x > 0 && std::isfinite(x) ? std::ilogb(x) : 0; }

/// A query head of a row, as the scan needs it.
struct Head {
  std::vector<float> q, qh;
  float F = 0;
  int e = 0;
};

/// One row: the queries of a sequence that share a kv head, those of one query
/// token after the other.
class Row {
public:
  Row(const ffdSpec &spec, const ffdDecodeArgs &args, int64_t row)
      : spec(spec), layout(layoutOf(spec)), args(args), row(row),
        sequence(row / args.kv_heads), head(row % args.kv_heads),
        blocks(committedBlocks(spec, args.lengths[sequence], args.lag)),
        tail(tailTokens(spec, args.lengths[sequence], args.lag)),
        heads(size_t(rowHeads(spec))) {
    prepareQuery();
  }

  /// tokens_c1: tail tokens that query g sees.
  int64_t seenTail(int64_t g) const {
    const int64_t hidden = queryTokens(spec) - 1 - g / spec.group;
    return std::max<int64_t>(0, tail - hidden);
  }

  /// Where outputs of query g are: [sequence][query token][head].
  int64_t output(int64_t g) const {
    return ((sequence * queryTokens(spec) + g / spec.group) * args.kv_heads +
            head) *
               spec.group +
           g % spec.group;
  }

  /// Where a block's part of a plane begins.
  const uint8_t *blockOf(const void *plane, int64_t bytes,
                         int64_t block) const {
    const int64_t slot =
        args.page_table[sequence * args.page_stride + block] * args.kv_heads +
        head;
    return static_cast<const uint8_t *>(plane) + slot * bytes;
  }

  /// scan_c1 and scan_c2 of one block: a[head][quant_block].
  void scanBlock(int64_t block, int32_t *a) const {
    const uint8_t *thumbnail =
        blockOf(args.thumbnails, layout.thumbnailBytes(), block);
    if (spec.scan_bits == 16)
      return scanKeys(reinterpret_cast<const uint16_t *>(thumbnail), a);
    std::vector<int32_t> weights(size_t(spec.head_dim));
    const int32_t levels = (1 << spec.scan_bits) - 1; // 2 L
    std::vector<std::vector<int32_t>> Q(heads.size());
    for (size_t g = 0; g < heads.size(); ++g)
      Q[g] = fold(heads[g], thumbnail);
    for (int64_t t = 0; t < spec.quant_block; ++t) {
      for (int64_t c = 0; c < spec.head_dim; ++c)
        weights[size_t(c)] = 2 * codeAt(layout, thumbnail, t, c) - levels;
      for (size_t g = 0; g < heads.size(); ++g) {
        int32_t sum = 0;
        for (int64_t c = 0; c < spec.head_dim; ++c)
          sum += Q[g][size_t(c)] * weights[size_t(c)];
        a[int64_t(g) * spec.quant_block + t] = sum;
      }
    }
  }

  /// select_c5: adds what the residuals of a block say, in whole scan units.
  void refineBlock(int64_t block, int32_t *a) const {
    const uint8_t *thumbnail =
        blockOf(args.thumbnails, layout.thumbnailBytes(), block);
    const uint8_t *residual =
        blockOf(args.residuals, layout.residualBytes(), block);
    for (size_t g = 0; g < heads.size(); ++g) {
      const std::vector<int32_t> Q = fold(heads[g], thumbnail);
      for (int64_t t = 0; t < spec.quant_block; ++t) {
        int32_t sum = 0;
        for (int64_t c = 0; c < spec.head_dim; ++c)
          sum += Q[size_t(c)] * (2 * residualAt(layout, residual, t, c) - 255);
        a[int64_t(g) * spec.quant_block + t] += sum >> 8; // rounds down
      }
    }
  }

  /// scan_c3.
  void scanKeys(const uint16_t *keys, int32_t *a) const {
    for (int64_t t = 0; t < spec.quant_block; ++t)
      for (size_t g = 0; g < heads.size(); ++g) {
        const float units =
            std::floor(keyScore(g, keys + t * spec.head_dim) / heads[g].F);
        a[int64_t(g) * spec.quant_block + t] =
            units > -0x1p30f ? int32_t(std::min(units, 0x1p30f)) : -(1 << 30);
      }
  }

  /// tail_c1 of a token of the tail.
  float tailScore(size_t g, int64_t token) const {
    return keyScore(g, static_cast<const uint16_t *>(args.tail_k) +
                           (sequence * args.tail_batch_stride +
                            head * args.tail_head_stride + token) *
                               spec.head_dim);
  }

  /// tail_c1.
  float keyScore(size_t g, const uint16_t *k) const {
    float p[16] = {};
    for (int64_t c = 0; c < spec.head_dim; ++c)
      p[c % 16] = std::fma(heads[g].q[size_t(c)],
                           elementToF32(spec.element, k[c]), p[c % 16]);
    for (int width = 8; width > 0; width /= 2)
      for (int i = 0; i < width; ++i)
        p[i] += p[i + width];
    return args.sm_scale * p[0];
  }

  const ffdSpec &spec;
  const Layout layout;
  const ffdDecodeArgs &args;
  const int64_t row, sequence, head, blocks, tail;
  std::vector<Head> heads;
  bool finite = true; // query_c5

private:
  float toScanScale(uint16_t bits) const {
    const float s = elementToF32(spec.element, bits);
    return spec.element == FFD_F16 ? s : roundF16(std::ldexp(s, -power));
  }

  /// query_c1 to query_c5.
  void prepareQuery() {
    const auto *smax =
        static_cast<const uint16_t *>(args.smax) + row * layout.paddedHeadDim();
    if (spec.element == FFD_BF16) {
      float top = 0;
      for (int64_t c = 0; c < spec.head_dim; ++c)
        top = maxNaN(top,
                     elementToF32(spec.element, smax[Layout::scaleIndex(c)]));
      power = std::clamp(floorLog2(top), -126, 126);
    }
    std::vector<float> scales(size_t(spec.head_dim));
    for (int64_t c = 0; c < spec.head_dim; ++c)
      scales[size_t(c)] = toScanScale(smax[Layout::scaleIndex(c)]);
    for (size_t g = 0; g < heads.size(); ++g)
      prepareHead(g, scales);
  }

  void prepareHead(size_t g, const std::vector<float> &scales) {
    const int64_t token = int64_t(g) / spec.group,
                  inGroup = int64_t(g) % spec.group;
    const auto *bits = static_cast<const uint16_t *>(args.q) +
                       sequence * args.q_batch_stride +
                       token * args.q_token_stride +
                       (head * spec.group + inGroup) * args.q_head_stride;
    Head &h = heads[g];
    h.q.resize(scales.size());
    h.qh.assign(scales.size(), 0);
    float m = 0;
    for (size_t c = 0; c < scales.size(); ++c) {
      h.q[c] = elementToF32(spec.element, bits[c]);
      m = maxNaN(m, std::fabs(h.q[c]) * scales[c]); // query_c2
    }
    finite &= std::isfinite(m); // query_c5
    if (m < kSmallest)
      m = 0;
    const float inv = m == 0 ? 0 : 126 / m;
    float A = 0; // query_c3
    for (size_t c = 0; c < scales.size(); ++c)
      if (scales[c] != 0)
        A = maxNaN(A, std::fabs(h.q[c] * inv));
    h.e = A == 0 ? 0 : std::clamp(floorLog2(A) - 14, 0, 15);
    for (size_t c = 0; c < scales.size(); ++c)
      if (scales[c] != 0)
        h.qh[c] = roundF16(std::ldexp(h.q[c] * inv, -h.e));
    const float scaled = std::ldexp(m / 126, power); // query_c4
    h.F = args.sm_scale * scaled * 0x1p-8f;
  }

  /// scan_c1: Q of every channel.
  std::vector<int32_t> fold(const Head &h, const uint8_t *thumbnail) const {
    std::vector<int32_t> Q(h.qh.size());
    for (size_t c = 0; c < Q.size(); ++c) {
      const float s = toScanScale(scaleAt(layout, thumbnail, int64_t(c)));
      const float y = std::ldexp(roundF16(h.qh[c] * s), h.e);
      const float hi = std::nearbyint(y), lo = std::nearbyint(128 * (y - hi));
      Q[c] = std::isfinite(y) ? int32_t(128 * hi + lo) : 0;
    }
    return Q;
  }

  int power = 0; // query_c1
};

/// One row's part of the outputs.
class Writer {
public:
  Writer(const Row &row, const ScanOutputs &outputs)
      : row(row), to(outputs), queries(rowHeads(row.spec)) {}

  void run() {
    std::vector<float> top(size_t(queries), -kInfinity);
    std::vector<int32_t> a(size_t(queries * row.spec.quant_block));
    const bool all = to.units || to.scores;
    for (int64_t block = 0; block < row.blocks; ++block) {
      const bool end = block == 0 || block == row.blocks - 1;
      if (!all && !end)
        continue; // the pseudo-max looks at the ends only
      if (row.finite)
        row.scanBlock(block, a.data());
      for (int64_t g = 0; g < queries; ++g)
        writeBlock(block, g, &a[size_t(g * row.spec.quant_block)]);
      if (!end)
        continue;
      if (row.finite && row.spec.pseudo_max)
        row.refineBlock(block, a.data());
      for (int64_t g = 0; g < queries; ++g)
        for (int64_t t = 0; t < row.spec.quant_block; ++t)
          top[size_t(g)] =
              maxNaN(top[size_t(g)],
                     scoreOf(g, a[size_t(g * row.spec.quant_block + t)]));
    }
    for (int64_t g = 0; g < queries; ++g)
      writeTail(g, top[size_t(g)]);
  }

private:
  float scoreOf(int64_t g, int32_t units) const {
    return row.finite ? row.heads[size_t(g)].F * float(units) : kNaN;
  }

  void writeBlock(int64_t block, int64_t g, const int32_t *a) {
    const int64_t quant = row.spec.quant_block, at = row.output(g);
    for (int64_t t = 0; t < quant; ++t) {
      if (to.units)
        to.units[at * to.unitsStride + block * quant + t] = a[t];
      if (to.scores)
        to.scores[at * to.scoresStride + block * quant + t] = scoreOf(g, a[t]);
    }
  }

  void writeTail(int64_t g, float top) {
    const int64_t start = row.blocks * row.spec.quant_block,
                  tail = row.seenTail(g), at = row.output(g);
    for (int64_t t = 0; t < tail; ++t) {
      const float score = row.tailScore(size_t(g), t);
      if (to.scores)
        to.scores[at * to.scoresStride + start + t] = score;
      top = maxNaN(top, score);
    }
    if (to.scores)
      std::fill(to.scores + at * to.scoresStride + start + tail,
                to.scores + (at + 1) * to.scoresStride, -kInfinity);
    if (to.units)
      std::fill(to.units + at * to.unitsStride + start,
                to.units + (at + 1) * to.unitsStride, 0);
    if (to.unit)
      to.unit[at] = row.heads[size_t(g)].F;
    if (to.pseudoMax)
      to.pseudoMax[at] = top;
  }

  const Row &row;
  const ScanOutputs &to;
  const int64_t queries;
};

} // namespace

void scanScores(const ffdSpec &spec, const ffdDecodeArgs &args,
                ThreadPool &pool, const ScanOutputs &outputs) {
  pool.parallelFor(int64_t(args.batch) * args.kv_heads, [&](int64_t r) {
    const Row row(spec, args, r);
    Writer(row, outputs).run();
  });
}

} // namespace ffd::python
