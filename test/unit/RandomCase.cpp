//===- RandomCase.cpp - Random decodes for the tests ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// See RandomCase.h.
//
//===----------------------------------------------------------------------===//

#include "RandomCase.h"

#include "ffd/Float16.h"
#include "ffd/Merge.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>

using namespace ffd;

ThreadPool &ffd::testPool() {
  static ThreadPool pool(2);
  return pool;
}

ffdSpec ffd::makeSpec(int headDim, int valueDim, int group, int element,
                      int scanBits, int selectBlock) {
  return {headDim, valueDim, group, element, scanBits, 128, selectBlock};
}

std::vector<ffdSpec> ffd::allSplitSpecs() {
  std::vector<ffdSpec> specs;
  for (int headDim : {64, 80, 96, 128, 192, 256})
    for (int element : {FFD_F16, FFD_BF16})
      for (int bits : {2, 4, 8})
        specs.push_back(makeSpec(headDim, 64, 1, element, bits));
  return specs;
}

RandomCase::RandomCase(const CaseShape &shape, uint32_t seed) : shape(shape) {
  const ffdSpec &spec = shape.spec;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const int64_t longest =
      *std::max_element(shape.lengths.begin(), shape.lengths.end());
  tokens = longest + 3;
  const int64_t kvBatch = shape.sharedKV ? 1 : batch();
  std::vector<float> channelScale(size_t(spec.head_dim));
  for (float &scale : channelScale) // outlier channels, as real keys have
    scale = std::exp(normal(random));
  k.resize(size_t(kvBatch * tokens * shape.kvHeads * spec.head_dim));
  for (size_t i = 0; i < k.size(); ++i)
    k[i] =
        f32ToElement(spec.element, float(shape.keySpread) * normal(random) *
                                       channelScale[i % channelScale.size()]);
  v.resize(size_t(kvBatch * tokens * shape.kvHeads * spec.value_dim));
  for (uint16_t &value : v)
    value = f32ToElement(spec.element, normal(random));

  EXPECT_TRUE(
      q.allocate("q",
                 batch() * queryTokens(spec) * queryHeads() * spec.head_dim * 2,
                 0)
          .ok());
  for (int64_t i = 0; i < q.size() / 2; ++i)
    q.as<uint16_t>()[i] = f32ToElement(spec.element, normal(random));
  delta.assign(shape.lengths.size(), shape.delta);
  build();
}

void RandomCase::build() {
  const ffdSpec &spec = shape.spec;
  SplitCacheOptions options;
  options.spec = spec;
  options.batch = batch();
  options.kvHeads = shape.kvHeads;
  options.kvBatch = shape.sharedKV ? 1 : batch();
  options.tokens = tokens;
  options.k = TokenView::dense(k.data(), tokens, shape.kvHeads, spec.head_dim);
  options.v = TokenView::dense(v.data(), tokens, shape.kvHeads, spec.value_dim);
  options.lengths = shape.lengths;
  options.lag = shape.lag;
  options.pageSeed = shape.pageSeed;
  Status status = SplitCache::create(options, testPool(), cache);
  ASSERT_TRUE(status.ok()) << status.message();

  const int64_t outputs = batch() * queryTokens(spec) * queryHeads();
  const int64_t keptStride = cache->maxSelects() + 5;
  ASSERT_TRUE(out.allocate("out", outputs * spec.value_dim * 4, 0xFF).ok());
  ASSERT_TRUE(lse.allocate("lse", outputs * 4, 0xFF).ok());
  ASSERT_TRUE(skipped.allocate("skipped lse", outputs * 4, 0xFF).ok());
  ASSERT_TRUE(kept.allocate("kept", cache->rows() * keptStride, 0).ok());
  args = {};
  cache->fill(args);
  args.q = q.data();
  args.q_head_stride = spec.head_dim;
  args.q_token_stride = queryHeads() * spec.head_dim;
  args.q_batch_stride = queryTokens(spec) * args.q_token_stride;
  args.delta = delta.data();
  args.out = out.as<float>();
  args.lse = lse.as<float>();
  args.skipped_lse = spec.certificate ? skipped.as<float>() : nullptr;
  args.kept = kept.data();
  args.kept_stride = keptStride;
  args.sm_scale = 1 / std::sqrt(float(spec.head_dim));
}

void RandomCase::oppose(int64_t sequence, int64_t from, int64_t to) {
  const ffdSpec &spec = shape.spec;
  const int64_t d = spec.head_dim;
  for (int64_t head = 0; head < shape.kvHeads; ++head) {
    uint16_t *query =
        q.as<uint16_t>() + (sequence * queryHeads() + head * spec.group) * d;
    for (int64_t other = 1; other < spec.group; ++other)
      std::copy_n(query, d, query + other * d);
    for (int64_t token = from; token < to; ++token)
      for (int64_t c = 0; c < d; ++c)
        k[size_t(((sequence * tokens + token) * shape.kvHeads + head) * d +
                 c)] =
            f32ToElement(spec.element, -elementToF32(spec.element, query[c]) *
                                           (2 + float(token % 3)));
  }
  build();
}

float RandomCase::key(int64_t sequence, int64_t token, int64_t head,
                      int64_t c) const {
  const int64_t from = shape.sharedKV ? 0 : sequence;
  return elementToF32(
      shape.spec.element,
      k[size_t(((from * tokens + token) * shape.kvHeads + head) *
                   shape.spec.head_dim +
               c)]);
}

std::vector<double> RandomCase::denseAttention(int64_t sequence,
                                               int64_t queryHead,
                                               double &lse) const {
  const ffdSpec &spec = shape.spec;
  const int64_t head = queryHead / spec.group;
  const int64_t from = shape.sharedKV ? 0 : sequence;
  Partial<double> sum(static_cast<size_t>(spec.value_dim));
  std::vector<double> value(size_t(spec.value_dim));
  for (int64_t t = 0; t < shape.lengths[size_t(sequence)]; ++t) {
    double score = 0;
    for (int64_t c = 0; c < spec.head_dim; ++c)
      score +=
          double(key(sequence, t, head, c)) *
          elementToF32(spec.element,
                       q.as<uint16_t>()[(sequence * queryHeads() + queryHead) *
                                            spec.head_dim +
                                        c]);
    const size_t at =
        size_t(((from * tokens + t) * shape.kvHeads + head) * spec.value_dim);
    for (int64_t i = 0; i < spec.value_dim; ++i)
      value[size_t(i)] = elementToF32(spec.element, v[at + size_t(i)]);
    sum.add(args.sm_scale * score, value.data());
  }
  lse = sum.lse();
  std::vector<double> result;
  for (int64_t i = 0; i < spec.value_dim; ++i)
    result.push_back(sum.output(size_t(i)));
  return result;
}
