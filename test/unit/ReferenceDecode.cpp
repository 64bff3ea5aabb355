//===- ReferenceDecode.cpp - A slow decode, exactly by the spec ------ ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// See ReferenceDecode.h. Each function is one section of docs/numerics.md.
// Compiled without contraction (-ffp-contract=off).
//
//===----------------------------------------------------------------------===//

#include "ReferenceDecode.h"

#include "ffd/Float16.h"
#include "ffd/Merge.h"
#include "ffd/Split.h"

#include <algorithm>
#include <cmath>

using namespace ffd;

static constexpr int32_t kAll = -(1 << 30); // a threshold that keeps everything

ReferenceDecode::ReferenceDecode(const ffdSpec &spec, const ffdDecodeArgs &args)
    : spec(spec), layout(layoutOf(spec)), args(args) {}

float ReferenceDecode::toFloat(uint16_t bits) const {
  return elementToF32(spec.element, bits);
}

const uint16_t *ReferenceDecode::query(int64_t sequence, int64_t head,
                                       int64_t g) const {
  return static_cast<const uint16_t *>(args.q) +
         sequence * args.q_batch_stride + g / spec.group * args.q_token_stride +
         (head * spec.group + g % spec.group) * args.q_head_stride;
}

int64_t ReferenceDecode::seen(int64_t sequence, int64_t g) const {
  const int64_t hidden = queryTokens(spec) - 1 - g / spec.group;
  return tailTokens(spec, args.lengths[sequence], args.lag) - hidden;
}

const uint8_t *ReferenceDecode::slot(const void *plane, int64_t bytes,
                                     int64_t sequence, int64_t block,
                                     int64_t head) const {
  const int64_t page = args.page_table[sequence * args.page_stride + block];
  return static_cast<const uint8_t *>(plane) +
         (page * args.kv_heads + head) * bytes;
}

/// max that NaN wins.
static float maxNaN(float a, float b) {
  return std::isnan(a) || std::isnan(b) ? std::nanf("") : std::max(a, b);
}

/// floor(log2(x)) of a positive finite number, without a rounded logarithm.
static int floorLog2(float x) { return std::ilogb(x); }

void ReferenceDecode::prepareQuery(int64_t sequence, int64_t head,
                                   Row &r) const {
  const int64_t channels = spec.head_dim;
  const uint16_t *smax =
      static_cast<const uint16_t *>(args.smax) +
      (sequence * args.kv_heads + head) * layout.paddedHeadDim();

  // query_c1
  float top = 0;
  for (int64_t c = 0; c < channels; ++c)
    top = maxNaN(top, toFloat(smax[Layout::scaleIndex(c)]));
  r.exponent = 0;
  if (spec.element == FFD_BF16 && std::isfinite(top) && top > 0)
    r.exponent = std::clamp(floorLog2(top), -126, 126);
  r.smax.resize(size_t(channels));
  for (int64_t c = 0; c < channels; ++c) {
    const uint16_t s = smax[Layout::scaleIndex(c)];
    r.smax[size_t(c)] = spec.element == FFD_F16
                            ? s
                            : f32ToF16(std::ldexp(toFloat(s), -r.exponent));
  }

  for (int64_t g = 0; g < rowHeads(spec); ++g) {
    const uint16_t *q = query(sequence, head, g);
    // query_c2
    float m = 0;
    for (int64_t c = 0; c < channels; ++c)
      m = maxNaN(m, std::fabs(toFloat(q[c])) * f16ToF32(r.smax[size_t(c)]));
    r.m.push_back(m);
    if (!std::isfinite(m)) // query_c5
      r.nonFinite = true;
    if (m < 0x1p-100f)
      m = 0;
    const float inv = m == 0 ? 0 : 126.0f / m;
    // query_c3
    float a = 0;
    for (int64_t c = 0; c < channels; ++c)
      if ((r.smax[size_t(c)] & 0x7FFF) != 0)
        a = maxNaN(a, std::fabs(toFloat(q[c]) * inv));
    const int e =
        std::isfinite(a) && a > 0 ? std::clamp(floorLog2(a) - 14, 0, 15) : 0;
    r.e.push_back(e);
    for (int64_t c = 0; c < channels; ++c)
      r.qh.push_back((r.smax[size_t(c)] & 0x7FFF) == 0
                         ? 0
                         : f32ToF16(std::ldexp(toFloat(q[c]) * inv, -e)));
    // query_c4
    float unit = m / 126.0f;
    unit = unit * std::ldexp(1.0f, r.exponent);
    unit = unit * args.sm_scale;
    unit = unit * 0x1p-8f;
    r.unit.push_back(unit);
  }
}

void ReferenceDecode::scan(int64_t sequence, int64_t head, Row &r) const {
  const int64_t blocks =
      committedBlocks(spec, args.lengths[sequence], args.lag);
  const int64_t tokens = blocks * spec.quant_block;
  r.scores.assign(size_t(rowHeads(spec) * tokens), 0);
  r.squares.assign(size_t(rowHeads(spec) * blocks), 0);
  if (r.nonFinite)
    return;
  for (int64_t block = 0; block < blocks; ++block) {
    const uint8_t *thumbnail =
        slot(args.thumbnails, layout.thumbnailBytes(), sequence, block, head);
    for (int64_t g = 0; g < rowHeads(spec); ++g) {
      // scan_c1
      std::vector<int32_t> folded;
      for (int64_t c = 0; c < spec.head_dim; ++c) {
        uint16_t s = scaleAt(layout, thumbnail, c);
        if (spec.element == FFD_BF16)
          s = f32ToF16(std::ldexp(toFloat(s), -r.exponent));
        const uint16_t qh = r.qh[size_t(g * spec.head_dim + c)];
        // The product of two f16 numbers is exact in f32.
        const uint16_t product = f32ToF16(f16ToF32(qh) * f16ToF32(s));
        const double y = std::ldexp(double(f16ToF32(product)), r.e[size_t(g)]);
        const double hi = std::nearbyint(y);
        const double lo = std::nearbyint(128 * (y - hi));
        folded.push_back(int32_t(128 * hi + lo));
      }
      for (const int32_t q : folded)
        r.squares[size_t(g * blocks + block)] += double(q) * q;
      // scan_c2
      for (int64_t t = 0; t < spec.quant_block; ++t) {
        int64_t sum = 0;
        for (int64_t c = 0; c < spec.head_dim; ++c)
          sum += int64_t(folded[size_t(c)]) *
                 (2 * codeAt(layout, thumbnail, t, c) -
                  ((1 << spec.scan_bits) - 1));
        r.scores[size_t(g * tokens + block * spec.quant_block + t)] =
            int32_t(sum);
      }
      // select_c5
      if (!spec.pseudo_max || (block > 0 && block < blocks - 1))
        continue;
      const uint8_t *residual =
          slot(args.residuals, layout.residualBytes(), sequence, block, head);
      r.refinedMax.resize(size_t(rowHeads(spec)), kAll);
      for (int64_t t = 0; t < spec.quant_block; ++t) {
        int64_t sum = 0;
        for (int64_t c = 0; c < spec.head_dim; ++c)
          sum += int64_t(folded[size_t(c)]) *
                 (2 * residualAt(layout, residual, t, c) - 255);
        const int64_t coarse =
            r.scores[size_t(g * tokens + block * spec.quant_block + t)];
        r.refinedMax[size_t(g)] =
            std::max(r.refinedMax[size_t(g)],
                     int32_t(std::floor(double(256 * coarse + sum) / 256)));
      }
    }
  }
}

void ReferenceDecode::scoreTail(int64_t sequence, int64_t head, Row &r) const {
  const int64_t count = tailTokens(spec, args.lengths[sequence], args.lag);
  const int64_t first =
      sequence * args.tail_batch_stride + head * args.tail_head_stride;
  for (int64_t g = 0; g < rowHeads(spec); ++g) {
    const uint16_t *q = query(sequence, head, g);
    for (int64_t t = 0; t < count; ++t) {
      const uint16_t *k = static_cast<const uint16_t *>(args.tail_k) +
                          (first + t) * spec.head_dim;
      float p[16] = {}; // tail_c1
      for (int64_t c = 0; c < spec.head_dim; ++c)
        p[c % 16] = std::fma(toFloat(q[c]), toFloat(k[c]), p[c % 16]);
      for (int stride = 8; stride > 0; stride /= 2)
        for (int i = 0; i < stride; ++i)
          p[i] += p[i + stride];
      r.tailScores.push_back(args.sm_scale * p[0]);
    }
  }
}

void ReferenceDecode::select(int64_t sequence, Row &r) const {
  const int64_t blocks =
      committedBlocks(spec, args.lengths[sequence], args.lag);
  const int64_t tokens = blocks * spec.quant_block;
  const int64_t tail = tailTokens(spec, args.lengths[sequence], args.lag);
  const float delta = args.delta[sequence];
  bool rowKeepsAll = r.nonFinite;
  for (int64_t g = 0; g < rowHeads(spec); ++g)
    for (int64_t t = 0; t < seen(sequence, g); ++t)
      rowKeepsAll |= !std::isfinite(r.tailScores[size_t(g * tail + t)]);

  for (int64_t g = 0; g < rowHeads(spec); ++g) {
    const float unit = r.unit[size_t(g)];
    // select_c3
    const float quotient = delta / unit;
    if (rowKeepsAll || !std::isfinite(unit) || !(delta >= 0) ||
        !(quotient < 0x1p30f)) {
      r.pseudoMax.push_back(kAll);
      r.threshold.push_back(kAll);
      continue;
    }
    // select_c1
    int32_t pm = kAll;
    if (const int64_t last = seen(sequence, g); last > 0) {
      float top = r.tailScores[size_t(g * tail)];
      for (int64_t t = 1; t < last; ++t)
        top = std::max(top, r.tailScores[size_t(g * tail + t)]);
      pm = int32_t(std::clamp(std::floor(top / unit), -0x1p30f, 0x1p30f));
    }
    if (spec.pseudo_max && tokens > 0)
      pm = std::max(pm, r.refinedMax[size_t(g)]);
    for (int64_t t = 0; !spec.pseudo_max && t < tokens; ++t) {
      const int64_t block = t / spec.quant_block;
      if (block == 0 || block == blocks - 1)
        pm = std::max(pm, r.scores[size_t(g * tokens + t)]);
    }
    r.pseudoMax.push_back(pm);
    // select_c2
    const int64_t d = int64_t(std::ceil(quotient));
    r.threshold.push_back(int32_t(std::clamp<int64_t>(pm - d, kAll, 1 << 30)));
  }

  // select_c4
  for (int64_t first = 0; first < tokens; first += spec.select_block) {
    bool keep = false;
    for (int64_t g = 0; g < rowHeads(spec); ++g)
      for (int64_t t = first; t < first + spec.select_block; ++t)
        keep |= r.scores[size_t(g * tokens + t)] >= r.threshold[size_t(g)];
    if (spec.pseudo_max) // select_c6
      keep |= first == 0 || first == tokens - spec.select_block;
    r.kept.push_back(keep);
  }
}

void ReferenceDecode::attend(int64_t sequence, int64_t head, Row &r) const {
  const int64_t blocks =
      committedBlocks(spec, args.lengths[sequence], args.lag);
  const int64_t tail = tailTokens(spec, args.lengths[sequence], args.lag);
  std::vector<Partial<double>> sums(size_t(rowHeads(spec)),
                                    Partial<double>(size_t(spec.value_dim)));
  std::vector<float> v(size_t(spec.value_dim));

  for (int64_t block = 0; block < blocks; ++block) {
    const uint8_t *thumbnail =
        slot(args.thumbnails, layout.thumbnailBytes(), sequence, block, head);
    const uint8_t *residual =
        slot(args.residuals, layout.residualBytes(), sequence, block, head);
    const uint8_t *value =
        slot(args.values, layout.valueBytes(), sequence, block, head);
    for (int64_t t = 0; t < spec.quant_block; ++t) {
      const int64_t token = block * spec.quant_block + t;
      if (!r.kept[size_t(token / spec.select_block)])
        continue;
      std::vector<double> score(size_t(rowHeads(spec)), 0.0); // attend_c1
      for (int64_t c = 0; c < spec.head_dim; ++c) {
        const double kc = reconstructAt(spec, thumbnail, residual, t, c);
        for (int64_t g = 0; g < rowHeads(spec); ++g)
          score[size_t(g)] += toFloat(query(sequence, head, g)[c]) * kc;
      }
      for (int64_t i = 0; i < spec.value_dim; ++i)
        v[size_t(i)] = toFloat(valueAt(layout, value, t, i));
      for (int64_t g = 0; g < rowHeads(spec); ++g)
        sums[size_t(g)].add(args.sm_scale * score[size_t(g)], v.data());
    }
  }
  const int64_t first =
      sequence * args.tail_batch_stride + head * args.tail_head_stride;
  for (int64_t t = 0; t < tail; ++t) {
    for (int64_t i = 0; i < spec.value_dim; ++i)
      v[size_t(i)] = toFloat(static_cast<const uint16_t *>(
          args.tail_v)[(first + t) * spec.value_dim + i]);
    for (int64_t g = 0; g < rowHeads(spec); ++g)
      if (t < seen(sequence, g))
        sums[size_t(g)].add(double(r.tailScores[size_t(g * tail + t)]),
                            v.data());
  }
  for (int64_t g = 0; g < rowHeads(spec); ++g) { // attend_c2, attend_c3
    for (int64_t i = 0; i < spec.value_dim; ++i)
      r.out.push_back(sums[size_t(g)].output(size_t(i)));
    double lse = sums[size_t(g)].lse();
    if (lse > -INFINITY)
      lse += centreScore(sequence, head, g);
    r.lse.push_back(lse);
  }
}

double ReferenceDecode::centreScore(int64_t sequence, int64_t head,
                                    int64_t g) const {
  if (spec.centre != FFD_CENTRE_ROW)
    return 0;
  const uint16_t *q = query(sequence, head, g);
  const auto *centre =
      static_cast<const uint16_t *>(args.centre) +
      (sequence * args.kv_heads + head) * int64_t(spec.head_dim);
  double sum = 0;
  for (int64_t c = 0; c < spec.head_dim; ++c)
    sum += double(toFloat(q[c])) * toFloat(centre[c]);
  return args.sm_scale * sum;
}

void ReferenceDecode::certify(int64_t sequence, int64_t head, Row &r) const {
  if (!spec.certificate)
    return;
  const int64_t blocks =
      committedBlocks(spec, args.lengths[sequence], args.lag);
  const int64_t tokens = blocks * spec.quant_block;
  for (int64_t g = 0; g < rowHeads(spec); ++g) {
    const double unit = r.unit[size_t(g)];
    std::vector<double> estimates;
    for (int64_t t = 0; t < tokens; ++t) {
      if (r.kept[size_t(t / spec.select_block)])
        continue;
      double c = 0; // cert_c2
      if (spec.certificate == FFD_CERTIFICATE_NOISE)
        c = unit * unit / 6 *
            r.squares[size_t(g * blocks + t / spec.quant_block)];
      estimates.push_back(unit * r.scores[size_t(g * tokens + t)] - c);
    }
    if (estimates.empty()) { // cert_c1
      r.skippedLeast.push_back(-INFINITY);
      r.skippedMost.push_back(-INFINITY);
      continue;
    }
    const double top = *std::max_element(estimates.begin(), estimates.end());
    double sum = 0;
    for (const double estimate : estimates)
      sum += std::exp(estimate - top);
    const double least = top + std::log(sum);
    // cert_c3
    const double floor = unit * r.threshold[size_t(g)] - 126 * std::log(2.0) +
                         std::log(double(estimates.size()));
    const double high = std::max(least, floor), low = std::min(least, floor);
    const double centre = centreScore(sequence, head, g);
    r.skippedLeast.push_back(least + centre);
    r.skippedMost.push_back(high + std::log1p(std::exp(low - high)) + centre);
  }
}

int64_t ReferenceDecode::outputIndex(int64_t sequence, int64_t head,
                                     int64_t g) const {
  return ((sequence * queryTokens(spec) + g / spec.group) * args.kv_heads +
          head) *
             spec.group +
         g % spec.group;
}

ReferenceDecode::Row ReferenceDecode::row(int64_t sequence,
                                          int64_t head) const {
  Row r;
  prepareQuery(sequence, head, r);
  scan(sequence, head, r);
  scoreTail(sequence, head, r);
  select(sequence, r);
  attend(sequence, head, r);
  certify(sequence, head, r);
  return r;
}

void ReferenceDecode::run(int64_t index) const {
  const int64_t sequence = index / args.kv_heads, head = index % args.kv_heads;
  const Row r = row(sequence, head);
  for (int64_t g = 0; g < rowHeads(spec); ++g) {
    const int64_t place = outputIndex(sequence, head, g);
    for (int64_t i = 0; i < spec.value_dim; ++i)
      args.out[place * spec.value_dim + i] =
          float(r.out[size_t(g * spec.value_dim + i)]);
    if (args.lse)
      args.lse[place] = float(r.lse[size_t(g)]);
    if (spec.certificate && args.skipped_lse)
      args.skipped_lse[place] = float(r.skippedLeast[size_t(g)]);
  }
  for (size_t i = 0; args.kept && i < r.kept.size(); ++i)
    args.kept[index * args.kept_stride + int64_t(i)] = r.kept[i];
}

static ffdSpec entrySpec;

void ReferenceDecode::setEntrySpec(const ffdSpec &spec) { entrySpec = spec; }

void ReferenceDecode::entry(const ffdDecodeArgs *args, int64_t row,
                            int64_t split) {
  if (split == 0)
    ReferenceDecode(entrySpec, *args).run(row);
}

void ReferenceDecode::launchPlanned(const ffdDecodeArgs *args) {
  const ffdSpec &spec = entrySpec;
  const Layout l = layoutOf(spec);
  const int64_t heads = args->kv_heads, outs = heads * rowHeads(spec);
  for (int32_t i = 0; i < args->pieces; ++i) {
    const ffdPiece &piece = args->plan[i];
    if (piece.row < 0 || piece.split != 0)
      continue;
    const int64_t slot = piece.row / heads, place = piece.place;
    // A batch of that sequence.
    ffdDecodeArgs one = *args;
    one.batch = 1;
    one.plan = nullptr;
    one.lengths = &piece.length;
    if (piece.blocks > 0)
      one.lag = std::min(one.lag, piece.length - piece.blocks * 128);
    const auto add = [](const void *pointer, int64_t elements) {
      return static_cast<const uint16_t *>(pointer) + elements;
    };
    one.q = add(args->q, place * args->q_batch_stride);
    if (args->centre)
      one.centre = add(args->centre, slot * heads * l.headDim);
    one.smax = add(args->smax, slot * heads * l.paddedHeadDim());
    one.tail_k = add(args->tail_k, slot * args->tail_batch_stride * l.headDim);
    one.tail_v = add(args->tail_v, slot * args->tail_batch_stride * l.valueDim);
    one.page_table += slot * args->page_stride;
    one.delta += slot;
    one.out += place * outs * l.valueDim;
    if (one.lse)
      one.lse += place * outs;
    if (spec.certificate && one.skipped_lse)
      one.skipped_lse += place * outs;
    if (one.kept)
      one.kept += slot * heads * args->kept_stride;
    ReferenceDecode(spec, one).run(piece.row % heads);
  }
}
