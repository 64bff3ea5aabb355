//===- Sequence.cpp - A synthetic sequence with a known keep ratio --------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Elements come from a hash of their position, so that blocks are filled in any
// order by any number of threads and are always the same.
//
//===----------------------------------------------------------------------===//

#include "Sequence.h"

#include "support/Errors.h"

#include "ffd/Centre.h"
#include "ffd/Float16.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace llvm;
using ffd::tools::toError;

namespace ffd::bench {

#if defined(__x86_64__)
#define FFD_VECTOR_CLONES                                                      \
  __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FFD_VECTOR_CLONES
#endif

namespace {

constexpr int64_t kBlock = 128; // the blocks that `keep` counts
constexpr int64_t kSinks = 4, kWindow = 64;
constexpr int64_t kTopic = 256; // tokens that share a topic
constexpr int64_t kMaxDim = 256;
// Scores above the mean, natural log, before calibration.
constexpr double kBackground = 1.5, kSink = 15;
constexpr double kLocalLow = 4, kLocalHigh = 12;
constexpr double kHeavyLow = 11, kHeavyHigh = 14;
/// How far queries are stretched for a keep ratio. Scores of no model lie further
/// apart; a head that still keeps more keeps more, and the table says so.
constexpr double kMaxStretch = 4;

/// splitmix64.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t next() {
    state += 0x9E3779B97F4A7C15;
    uint64_t z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }
  double uniform() { return double(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) {
    return low + (high - low) * uniform();
  }
  int64_t below(int64_t n) { return int64_t(next() % uint64_t(n)); }
  double normal() {
    double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * M_PI * uniform());
  }

private:
  uint64_t state;
};

uint32_t salt(uint64_t seed, int64_t head, uint32_t what) {
  return uint32_t(Random(seed * 1000003 + uint64_t(head) * 64 + what).next());
}

/// Nearly normal numbers from a hash of first, first + 1, ...: the sum of four
/// bytes.
FFD_VECTOR_CLONES void hashNormals(uint32_t first, uint32_t salt, int64_t count,
                                   float *to) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t h = (first + uint32_t(i)) * 0x9E3779B1u ^ salt;
    h ^= h >> 16;
    h *= 0x7FEB352Du;
    h ^= h >> 15;
    h *= 0x846CA68Bu;
    h ^= h >> 16;
    int32_t sum = int32_t((h & 255) + (h >> 8 & 255) + (h >> 16 & 255)) +
                  int32_t(h >> 24);
    to[i] = float(sum - 510) * (1.0f / 147.8f);
  }
}

/// scores[t] += q * column[t] over a block.
FFD_VECTOR_CLONES void addColumn(float q, const float *column, float *scores) {
  for (int64_t t = 0; t < kBlock; ++t)
    scores[t] += q * column[t];
}

} // namespace

/// What the tokens of a kv head have in common.
struct Sequence::Head {
  float spread[kMaxDim], mean[kMaxDim], g[kMaxDim], valueSpread[kMaxDim];
  std::vector<float> planted; ///< score each token is to have, or 0
};

/// Heavy hitters in `keep` of the blocks, in neighbourhoods; sinks; windows.
static std::vector<float> plant(Random &random, const SequenceOptions &o) {
  std::vector<float> want(size_t(o.tokens), 0);
  int64_t blocks = o.tokens / kBlock;
  std::vector<bool> taken(size_t(blocks) + 1, false);
  int64_t ends = 0;
  auto take = [&](int64_t block) {
    ends += !taken[size_t(block)];
    taken[size_t(block)] = true;
  };
  take(0);
  for (int64_t end : o.lengths) {
    int64_t size = std::min(kWindow, end);
    for (int64_t i = 0; i < size; ++i) {
      double ramp = kLocalLow + (kLocalHigh - kLocalLow) * double(i) /
                                    double(std::max<int64_t>(1, size - 1));
      ramp *= random.uniform();
      want[size_t(end - size + i)] = random.uniform() < 0.5 ? float(ramp) : 0;
    }
    if (end > 0)
      take(std::min((end - 1) / kBlock, blocks));
  }

  std::vector<int64_t> order(static_cast<size_t>(blocks));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = blocks - 1; i > 0; --i)
    std::swap(order[size_t(i)], order[size_t(random.below(i + 1))]);
  int64_t left = std::llround(o.keep * double(blocks)) - ends;
  auto heavy = [&](int64_t block) {
    if (block >= blocks || taken[size_t(block)] || left <= 0)
      return;
    taken[size_t(block)] = true;
    --left;
    for (int64_t run = random.below(3); run >= 0; --run) {
      int64_t size = 2 + random.below(7);
      int64_t start = block * kBlock + random.below(kBlock - size);
      for (int64_t t = start; t < start + size; ++t)
        want[size_t(t)] = float(random.uniform(kHeavyLow, kHeavyHigh));
    }
  };
  for (int64_t block : order) { // every second one follows another
    heavy(block);
    heavy(block + 1);
  }
  std::fill_n(want.begin(), std::min(kSinks, o.tokens), float(kSink));
  return want;
}

void Sequence::makeHead(int64_t head, Head &h) {
  const SequenceOptions &o = settings;
  int64_t dim = o.spec.head_dim;
  Random random(salt(o.seed, head, 0));
  double norm = 0;
  for (int64_t c = 0; c < dim; ++c) {
    h.spread[c] = float(std::exp(0.3 * random.normal()));
    h.mean[c] = float(0.5 * random.normal());
    h.g[c] = float(random.normal());
    norm += double(h.g[c]) * h.g[c];
  }
  for (int64_t c = 0; c < dim; ++c)
    h.g[c] /= float(std::sqrt(norm));
  for (int64_t i = 0; i < std::max<int64_t>(1, dim / 32); ++i) {
    int64_t c = random.below(dim);
    h.spread[c] *= 3;
    h.mean[c] += random.below(2) ? 8 : -8;
  }
  for (int64_t c = 0; c < o.spec.value_dim; ++c)
    h.valueSpread[c] = float(std::exp(0.3 * random.normal()));
  h.planted = plant(random, o);

  // The shared direction and something of each query head's own.
  double unit = kBackground * std::sqrt(double(dim) / 1.25);
  float *q = raw.data() + head * queriesPerHead() * dim;
  for (int64_t i = 0; i < queriesPerHead(); ++i)
    for (int64_t c = 0; c < dim; ++c) {
      double own = 0.4 * random.normal() / std::sqrt(double(dim));
      float value = float((h.g[c] + own) * unit / h.spread[c]);
      q[i * dim + c] =
          elementToF32(o.spec.element, f32ToElement(o.spec.element, value));
    }
}

void Sequence::fillKeys(int64_t head, const Head &h, int64_t block) {
  const SequenceOptions &o = settings;
  int64_t dim = o.spec.head_dim, first = block * kBlock;
  uint32_t noise = salt(o.seed, head, 1), topics = salt(o.seed, head, 2);
  float topic[kMaxDim], x[kMaxDim];
  for (int64_t t = first; t < std::min(first + kBlock, o.tokens); ++t) {
    if (t == first || t % kTopic == 0)
      hashNormals(uint32_t(t / kTopic * dim), topics, dim, topic);
    hashNormals(uint32_t(t * dim), noise, dim, x);
    for (int64_t c = 0; c < dim; ++c)
      x[c] += 0.5f * topic[c];
    if (float want = h.planted[size_t(t)]) {
      float score = 0;
      for (int64_t c = 0; c < dim; ++c)
        score += x[c] * h.g[c];
      float push = want * float(std::sqrt(1.25) / kBackground) - score;
      for (int64_t c = 0; c < dim; ++c)
        x[c] += push * h.g[c];
    }
    uint16_t *to = const_cast<uint16_t *>(k(head, t));
    for (int64_t c = 0; c < dim; ++c)
      to[c] = f32ToElement(o.spec.element, x[c] * h.spread[c] + h.mean[c]);
  }
}

void Sequence::fillValues(int64_t head, const Head &h, int64_t block) {
  const SequenceOptions &o = settings;
  int64_t dim = o.spec.value_dim, first = block * kBlock;
  uint32_t noise = salt(o.seed, head, 3), topics = salt(o.seed, head, 4);
  float topic[kMaxDim], x[kMaxDim];
  for (int64_t t = first; t < std::min(first + kBlock, o.tokens); ++t) {
    if (t == first || t % kTopic == 0)
      hashNormals(uint32_t(t / kTopic * dim), topics, dim, topic);
    hashNormals(uint32_t(t * dim), noise, dim, x);
    float scale = t < kSinks ? 0.1f : 1.0f; // sinks say little
    uint16_t *to = const_cast<uint16_t *>(v(head, t));
    for (int64_t c = 0; c < dim; ++c)
      to[c] = f32ToElement(o.spec.element,
                           (x[c] + topic[c]) * h.valueSpread[c] * scale);
  }
}

/// Makes the keys of a head relative to the mean of its first block.
void Sequence::centreHead(int64_t head) {
  const SequenceOptions &o = settings;
  if (o.tokens < kBlock)
    return;
  int64_t dim = o.spec.head_dim;
  uint16_t *to = keys.as<uint16_t>() + head * o.tokens * dim;
  uint16_t *c = centre.data() + head * dim;
  centreOf(o.spec, to, dim, c);
  centreKeys(o.spec, to, dim, o.tokens, c, to, dim);
}

/// The largest scan score of every query over one committed block.
void Sequence::scanBlock(int64_t head, int64_t block) {
  const SequenceOptions &o = settings;
  int64_t dim = o.spec.head_dim, count = queriesPerHead();
  float limit = float((1 << o.spec.scan_bits) - 1) / 2;
  float top = 2 * limit;
  std::vector<float> columns(size_t(dim * kBlock));
  for (int64_t c = 0; c < dim; ++c) {
    float *column = columns.data() + c * kBlock;
    float amax = 0;
    for (int64_t t = 0; t < kBlock; ++t) {
      column[t] = elementToF32(o.spec.element, k(head, block * kBlock + t)[c]);
      amax = std::max(amax, std::fabs(column[t]));
    }
    float s = elementToF32(o.spec.element,
                           f32ToElement(o.spec.element, amax / limit));
    float inverse = s == 0 ? 0 : 1 / s;
    for (int64_t t = 0; t < kBlock; ++t) {
      float code = std::floor(column[t] * inverse + limit + 0.5f);
      column[t] = (std::clamp(code, 0.0f, top) - limit) * s;
    }
  }
  float scale = float(1 / std::sqrt(double(dim)));
  int64_t blocks = o.tokens / kBlock;
  for (int64_t i = 0; i < count; ++i) {
    const float *q = raw.data() + (head * count + i) * dim;
    float scores[kBlock] = {};
    for (int64_t c = 0; c < dim; ++c)
      addColumn(q[c], columns.data() + c * kBlock, scores);
    best[size_t((head * blocks + block) * count + i)] =
        scale * *std::max_element(scores, scores + kBlock);
  }
}

/// The largest exact score of tokens [first, last).
double Sequence::exactScore(int64_t head, const float *q, int64_t first,
                            int64_t last) const {
  const SequenceOptions &o = settings;
  double largest = -HUGE_VAL;
  for (int64_t t = first; t < last; ++t) {
    double dot = 0;
    for (int64_t c = 0; c < o.spec.head_dim; ++c)
      dot += double(q[c]) * elementToF32(o.spec.element, k(head, t)[c]);
    largest = std::max(largest, dot / std::sqrt(double(o.spec.head_dim)));
  }
  return largest;
}

Expected<std::unique_ptr<Sequence>>
Sequence::generate(const SequenceOptions &options, ThreadPool &pool) {
  std::unique_ptr<Sequence> result(new Sequence(options));
  Sequence &s = *result;
  const SequenceOptions &o = s.settings;
  int64_t heads = o.kvHeads, blocks = o.tokens / kBlock;
  for (auto [buffer, what, dim] :
       {std::tuple(&s.keys, "keys", o.spec.head_dim),
        std::tuple(&s.values, "values", o.spec.value_dim)})
    if (Error e = toError(
            buffer->allocate(what, heads * o.tokens * dim * 2, /*fill=*/0)))
      return std::move(e);
  s.raw.resize(size_t(heads * s.queriesPerHead() * o.spec.head_dim));
  s.best.resize(size_t(heads * blocks * s.queriesPerHead()));
  std::vector<Head> made(static_cast<size_t>(heads));
  pool.parallelFor(heads,
                   [&](int64_t head) { s.makeHead(head, made[size_t(head)]); });
  int64_t all = (o.tokens + kBlock - 1) / kBlock;
  pool.parallelFor(heads * all, [&](int64_t i) {
    int64_t head = i / all, block = i % all;
    s.fillKeys(head, made[size_t(head)], block);
    s.fillValues(head, made[size_t(head)], block);
  });
  if (o.spec.centre != FFD_CENTRE_NONE) {
    s.centre.resize(size_t(heads * o.spec.head_dim));
    pool.parallelFor(heads, [&](int64_t head) { s.centreHead(head); });
  }
  pool.parallelFor(heads * blocks,
                   [&](int64_t i) { s.scanBlock(i / blocks, i % blocks); });
  return std::move(result);
}

void Sequence::queries(int variant, int64_t length, double keep,
                       uint16_t *q) const {
  const SequenceOptions &o = settings;
  int64_t dim = o.spec.head_dim, group = o.spec.group;
  int64_t all = o.tokens / kBlock;
  int64_t blocks = committedBlocks(o.spec, length, o.lag);
  for (int64_t head = 0; head < o.kvHeads; ++head) {
    int64_t first = variant * group;
    const float *from = raw.data() + (head * queriesPerHead() + first) * dim;
    // What the pseudo-max is taken from: refined scores are near exact ones.
    auto candidate = [&](int64_t block, int64_t g) {
      return o.spec.pseudo_max
                 ? exactScore(head, from + g * dim, block * kBlock,
                              (block + 1) * kBlock)
                 : double(best[size_t((head * all + block) * queriesPerHead() +
                                      first + g)]);
    };
    auto score = [&](int64_t block, int64_t g) {
      return double(
          best[size_t((head * all + block) * queriesPerHead() + first + g)]);
    };
    // Scores are proportional to the length of q: a block `gap` below the
    // pseudo-max is kept iff scale * gap <= delta.
    double scale = 1;
    if (blocks > 0) {
      std::vector<double> gaps(size_t(blocks), HUGE_VAL);
      for (int64_t g = 0; g < group; ++g) {
        double top = std::max(
            {candidate(0, g), candidate(blocks - 1, g),
             exactScore(head, from + g * dim, blocks * kBlock, length)});
        for (int64_t block = 0; block < blocks; ++block)
          gaps[size_t(block)] =
              std::min(gaps[size_t(block)], top - score(block, g));
      }
      std::sort(gaps.begin(), gaps.end());
      int64_t count =
          std::clamp<int64_t>(std::llround(keep * double(blocks)), 1, blocks);
      double inside = std::max(gaps[size_t(count - 1)], 0.0);
      double edge =
          count < blocks ? (inside + gaps[size_t(count)]) / 2 : inside * 1.1;
      if (edge > 0 && std::isfinite(o.delta))
        scale = std::min(o.delta / edge, kMaxStretch);
    }
    for (int64_t i = 0; i < group * dim; ++i)
      q[head * group * dim + i] =
          f32ToElement(o.spec.element, float(from[i] * scale));
  }
}

std::vector<int64_t> raggedLengths(int64_t count, int64_t tokens) {
  std::vector<int64_t> lengths;
  double shortest = double(std::min<int64_t>(1024, tokens));
  for (int64_t i = 0; i < count; ++i) {
    double u = (double(i) + 0.5) / double(count);
    double x = shortest * std::pow(double(tokens) / shortest, std::pow(u, 2.5));
    lengths.push_back(std::min<int64_t>(tokens, int64_t(x) + i * 37 % 128));
  }
  Random random(3);
  for (int64_t i = count - 1; i > 0; --i)
    std::swap(lengths[size_t(i)], lengths[size_t(random.below(i + 1))]);
  return lengths;
}

} // namespace ffd::bench
