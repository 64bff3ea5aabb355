//===- ApiCase.cpp - A cache under test and what it should hold ------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// See ApiCase.h.
//
//===----------------------------------------------------------------------===//

#include "ApiCase.h"

#include "ReferenceDecode.h"

#include "ffd/Float16.h"
#include "ffd/Split.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace ffd;

ffdContext *ffd::referenceContext() {
  static ffdContext *context = [] {
    ffdContextOptions options;
    ffdContextOptionsInit(&options);
    options.threads = 2;
    options.compiler = FFD_REFERENCE_JIT;
    options.kernel_cache_dir = "";
    ffdContext *c = nullptr;
    EXPECT_EQ(ffdContextCreate(&options, &c), FFD_SUCCESS)
        << ffdLastErrorMessage();
    return c;
  }();
  return context;
}

ffdCacheOptions ApiCase::small(const ffdSpec &spec) {
  ffdCacheOptions options;
  ffdCacheOptionsInit(&options);
  options.spec = spec;
  options.layers = 2;
  options.kv_heads = 2;
  options.sequences = 6;
  options.max_tokens = 2048;
  options.pages = 40;
  return options;
}

ApiCase::ApiCase(const ffdCacheOptions &options, uint32_t seed,
                 ffdContext *context)
    : options(options), random(seed) {
  EXPECT_EQ(ffdCacheCreate(context, &options, &cache), FFD_SUCCESS)
      << ffdLastErrorMessage();
}

int32_t ApiCase::create() {
  int32_t sequence = -1;
  EXPECT_EQ(ffdSequenceCreate(cache, nullptr, &sequence), FFD_SUCCESS)
      << ffdLastErrorMessage();
  Tokens &t = tokens[sequence];
  t = Tokens();
  t.k.resize(size_t(options.layers));
  t.v.resize(size_t(options.layers));
  return sequence;
}

int32_t ApiCase::fork(int32_t sequence) {
  int32_t child = -1;
  EXPECT_EQ(ffdSequenceFork(cache, sequence, nullptr, &child), FFD_SUCCESS)
      << ffdLastErrorMessage();
  tokens[child] = tokens[sequence];
  return child;
}

void ApiCase::free(int32_t sequence) {
  EXPECT_EQ(ffdSequenceFree(cache, sequence, nullptr), FFD_SUCCESS)
      << ffdLastErrorMessage();
  tokens.erase(sequence);
}

ffdStatus ApiCase::append(const std::vector<int32_t> &sequences,
                          const std::vector<int32_t> &counts) {
  const ffdSpec &spec = options.spec;
  std::normal_distribution<float> normal;
  int64_t rows = 0;
  for (int32_t count : counts)
    rows += count;
  std::vector<std::vector<uint16_t>> ks, vs;
  ffdStatus status = FFD_SUCCESS;
  for (int32_t layer = 0; layer < options.layers; ++layer) {
    std::vector<uint16_t> k(size_t(rows * options.kv_heads * spec.head_dim));
    std::vector<uint16_t> v(size_t(rows * options.kv_heads * spec.value_dim));
    for (uint16_t &x : k)
      x = f32ToElement(spec.element, keySpread * normal(random) + keyMean);
    for (uint16_t &x : v)
      x = f32ToElement(spec.element, normal(random));
    ffdAppendBatch batch;
    ffdAppendBatchInit(&batch);
    batch.layer = layer;
    batch.count = int32_t(sequences.size());
    batch.sequences = sequences.data();
    batch.tokens = counts.data();
    batch.k = k.data();
    batch.v = v.data();
    status = ffdAppend(cache, &batch, nullptr);
    if (status != FFD_SUCCESS)
      return status;
    ks.push_back(std::move(k));
    vs.push_back(std::move(v));
  }
  int64_t row = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Tokens &t = tokens[sequences[i]];
    const int64_t n = counts[i];
    const auto add = [&](std::vector<uint16_t> &to,
                         const std::vector<uint16_t> &from, int64_t dim) {
      const int64_t size = options.kv_heads * dim;
      to.insert(to.end(), from.begin() + row * size,
                from.begin() + (row + n) * size);
    };
    for (size_t layer = 0; layer < ks.size(); ++layer) {
      add(t.k[layer], ks[layer], spec.head_dim);
      add(t.v[layer], vs[layer], spec.value_dim);
    }
    t.length += n;
    t.committed =
        std::max(t.committed, committedBlocks(spec, t.length, options.lag));
    row += n;
  }
  return status;
}

ffdStatus ApiCase::truncate(int32_t sequence, int64_t length) {
  const ffdStatus status =
      ffdSequenceTruncate(cache, sequence, length, nullptr);
  if (status != FFD_SUCCESS)
    return status;
  Tokens &t = tokens[sequence];
  t.length = length;
  t.committed = std::min(t.committed, length / options.spec.quant_block);
  for (size_t layer = 0; layer < t.k.size(); ++layer) {
    t.k[layer].resize(
        size_t(length * options.kv_heads * options.spec.head_dim));
    t.v[layer].resize(
        size_t(length * options.kv_heads * options.spec.value_dim));
  }
  return status;
}

std::unique_ptr<SplitCache> ApiCase::fresh(int32_t sequence, int64_t layer) {
  const Tokens &t = tokens[sequence];
  const ffdSpec &spec = options.spec;
  SplitCacheOptions o;
  o.spec = spec;
  o.batch = o.kvBatch = 1;
  o.kvHeads = options.kv_heads;
  o.tokens = t.length;
  o.k = TokenView::dense(t.k[size_t(layer)].data(), t.length, options.kv_heads,
                         spec.head_dim);
  o.v = TokenView::dense(t.v[size_t(layer)].data(), t.length, options.kv_heads,
                         spec.value_dim);
  // A truncated sequence keeps its blocks: as if the lag were what is left.
  o.lag =
      std::min<int64_t>(options.lag, t.length - t.committed * spec.quant_block);
  std::unique_ptr<SplitCache> result;
  Status status = SplitCache::create(o, testPool(), result);
  EXPECT_TRUE(status.ok()) << status.message();
  return result;
}

std::vector<uint16_t> ApiCase::queries(size_t sequences) {
  std::normal_distribution<float> normal;
  // A few spare elements, to begin at a multiple of 16 bytes.
  std::vector<uint16_t> q(sequences *
                          size_t(queryHeads() * options.spec.head_dim));
  for (uint16_t &x : q)
    x = f32ToElement(options.spec.element, 3 * normal(random));
  return q;
}

std::vector<float> ApiCase::decode(const std::vector<int32_t> &sequences,
                                   const std::vector<uint16_t> &q,
                                   int32_t layer) {
  const int64_t count = int64_t(sequences.size());
  const int64_t outs = count * queryHeads() * options.spec.value_dim;
  HostBuffer query, out;
  EXPECT_TRUE(query.allocate("q", int64_t(q.size()) * 2, 0).ok());
  std::memcpy(query.data(), q.data(), q.size() * 2);
  EXPECT_TRUE(
      out.allocate("out", (outs + count * queryHeads()) * 4, 0xFF).ok());
  ffdDecodeBatch batch;
  ffdDecodeBatchInit(&batch);
  batch.layer = layer;
  batch.count = int32_t(count);
  batch.sequences = sequences.data();
  batch.q = query.data();
  batch.out = out.as<float>();
  batch.lse = out.as<float>() + outs;
  EXPECT_EQ(ffdDecode(cache, &batch, nullptr), FFD_SUCCESS)
      << ffdLastErrorMessage();
  return std::vector<float>(out.as<float>(),
                            out.as<float>() + outs + count * queryHeads());
}

void ApiCase::check(const std::vector<int32_t> &sequences) {
  const ffdSpec &spec = options.spec;
  const int64_t count = int64_t(sequences.size());
  const int64_t outs = queryHeads() * spec.value_dim;
  for (int32_t layer = 0; layer < options.layers; ++layer) {
    const std::vector<uint16_t> q = queries(sequences.size());
    const std::vector<float> got = decode(sequences, q, layer);
    for (int64_t i = 0; i < count; ++i) {
      const std::unique_ptr<SplitCache> oracle =
          fresh(sequences[size_t(i)], layer);
      std::vector<float> out, lse;
      out.resize(size_t(outs));
      lse.resize(size_t(queryHeads()));
      const float delta = options.delta;
      ffdDecodeArgs args = {};
      oracle->fill(args);
      args.q = q.data() + i * queryHeads() * spec.head_dim;
      args.q_head_stride = spec.head_dim;
      args.delta = &delta;
      args.out = out.data();
      args.lse = lse.data();
      args.splits = 1;
      args.sm_scale = 1 / std::sqrt(float(spec.head_dim));
      const ReferenceDecode reference(spec, args);
      for (int64_t row = 0; row < options.kv_heads; ++row)
        reference.run(row);
      const std::string where =
          "sequence " + std::to_string(sequences[size_t(i)]) + " layer " +
          std::to_string(layer) + " of " +
          std::to_string(tokens[sequences[size_t(i)]].length) + " tokens";
      EXPECT_EQ(
          std::memcmp(out.data(), got.data() + i * outs, size_t(outs) * 4), 0)
          << "out of " << where;
      EXPECT_EQ(std::memcmp(lse.data(),
                            got.data() + count * outs + i * queryHeads(),
                            size_t(queryHeads()) * 4),
                0)
          << "lse of " << where;
    }
  }
}

void ApiCase::checkGather(int32_t sequence) {
  const ffdSpec &spec = options.spec;
  const Tokens &t = tokens[sequence];
  for (int32_t layer = 0; layer < options.layers; ++layer) {
    std::vector<uint16_t> k(t.k[size_t(layer)].size()),
        v(t.v[size_t(layer)].size());
    ASSERT_EQ(ffdGather(cache, layer, sequence, 0, t.length, k.data(), v.data(),
                        nullptr),
              FFD_SUCCESS)
        << ffdLastErrorMessage();
    EXPECT_EQ(v, t.v[size_t(layer)]);
    const std::unique_ptr<SplitCache> oracle = fresh(sequence, layer);
    const bool centred = spec.centre == FFD_CENTRE_ROW && t.committed > 0;
    for (int64_t token = 0; token < t.length; ++token)
      for (int64_t head = 0; head < options.kv_heads; ++head)
        for (int64_t c = 0; c < spec.head_dim; ++c) {
          const float centre =
              centred ? elementToF32(spec.element, oracle->centre(0, head)[c])
                      : 0;
          const size_t at =
              size_t((token * options.kv_heads + head) * spec.head_dim + c);
          uint16_t expected = t.k[size_t(layer)][at];
          if (token < t.committed * spec.quant_block) {
            const int64_t page = oracle->page(0, token / spec.quant_block);
            expected = f32ToElement(
                spec.element,
                float(reconstructAt(spec, oracle->thumbnail(page, head),
                                    oracle->residual(page, head),
                                    token % spec.quant_block, c)) +
                    centre);
          } else if (centred) {
            const uint16_t d = f32ToElement(
                spec.element, elementToF32(spec.element, expected) - centre);
            expected = f32ToElement(spec.element,
                                    elementToF32(spec.element, d) + centre);
          }
          ASSERT_EQ(k[at], expected) << "token " << token;
        }
  }
}
