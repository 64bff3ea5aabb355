//===- ApiDecodeTest.cpp - Decoding through the C interface ----------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Batches, strides, bad numbers, large caches, threads and counters.
//
//===----------------------------------------------------------------------===//

#include "ApiCase.h"

#include "ffd/Float16.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

using namespace ffd;

namespace {

bool sameBits(const float *a, const float *b, int64_t count) {
  return std::memcmp(a, b, size_t(count) * 4) == 0;
}

/// The order of a batch, and who else is in it, change no bit.
TEST(ApiDecode, SequencesDoNotDependOnTheirBatch) {
  ApiCase c(ApiCase::small());
  const int32_t a = c.create(), b = c.create(), d = c.create();
  ASSERT_EQ(c.append({a, b, d}, {500, 0, 129}), FFD_SUCCESS);
  const std::vector<uint16_t> q = c.queries(3);
  const size_t perQ = q.size() / 3;
  const std::vector<float> all = c.decode({d, b, a}, q);
  const int64_t perOut = c.queryHeads() * c.options.spec.value_dim;
  for (int i = 0; i < 3; ++i) {
    const std::vector<uint16_t> own(q.begin() + i * perQ,
                                    q.begin() + (i + 1) * perQ);
    const std::vector<float> one = c.decode({i == 0 ? d : i == 1 ? b : a}, own);
    EXPECT_TRUE(sameBits(one.data(), all.data() + i * perOut, perOut)) << i;
  }
  // Length 0.
  for (int64_t i = 0; i < perOut; ++i)
    EXPECT_EQ(all[size_t(perOut + i)], 0);
  for (int64_t i = 0; i < c.queryHeads(); ++i)
    EXPECT_EQ(all[size_t(3 * perOut + c.queryHeads() + i)],
              -std::numeric_limits<float>::infinity());
}

/// NaN and infinity in one sequence leave its neighbours bit-identical.
TEST(ApiDecode, BadNumbersStayInTheirSequence) {
  const float bad[] = {std::nanf(""), std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (int where = 0; where < 3; ++where) // q, K, V
    for (float value : bad) {
      ffdCacheOptions options = ApiCase::small(makeSpec(64, 64, 2));
      options.layers = 1;
      std::vector<float> results[2];
      for (int broken = 0; broken < 2; ++broken) {
        ApiCase c(options, 77);
        const int32_t a = c.create(), b = c.create(), d = c.create();
        ASSERT_EQ(c.append({a, b, d}, {200, 0, 300}), FFD_SUCCESS);
        std::vector<uint16_t> k(size_t(260 * 2 * 64)), v(k.size());
        for (size_t i = 0; i < k.size(); ++i) {
          k[i] = f32ToF16(float(i % 7) - 3);
          v[i] = f32ToF16(float(i % 5) - 2);
        }
        std::vector<uint16_t> q = c.queries(3);
        if (broken && where == 0)
          q[q.size() / 3 + 5] = f32ToF16(value);
        if (broken && where == 1)
          k[4000] = f32ToF16(value);
        if (broken && where == 2)
          v[4000] = f32ToF16(value);
        ffdAppendBatch batch;
        ffdAppendBatchInit(&batch);
        const int32_t count = 260;
        batch.count = 1;
        batch.sequences = &b;
        batch.tokens = &count;
        batch.k = k.data();
        batch.v = v.data();
        FFD_OK(ffdAppend(c.cache, &batch, nullptr));
        results[broken] = c.decode({a, b, d}, q);
      }
      const int64_t per = 4 * 64;
      EXPECT_TRUE(sameBits(&results[0][0], &results[1][0], per));
      EXPECT_TRUE(sameBits(&results[0][2 * per], &results[1][2 * per], per));
      EXPECT_FALSE(sameBits(&results[0][per], &results[1][per], per));
    }
}

/// Views into larger tensors: a fused QKV buffer, padded heads, odd addresses.
TEST(ApiDecode, StridedInputs) {
  ffdCacheOptions options = ApiCase::small(makeSpec(64, 32, 2));
  options.layers = 1;
  ApiCase c(options, 9);
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {300}), FFD_SUCCESS);
  const std::vector<uint16_t> k = c.tokens[a].k[0], v = c.tokens[a].v[0];
  const int32_t b = c.create();
  c.tokens[b] = c.tokens[a];
  // [token][head][k 64 | v 32 | 5 spare], beginning at an odd element.
  const int64_t head = 101, token = 2 * head + 3;
  std::vector<uint16_t> fused(size_t(300 * token + 1), 0x7E00);
  for (int64_t t = 0; t < 300; ++t)
    for (int64_t h = 0; h < 2; ++h) {
      std::memcpy(&fused[size_t(1 + t * token + h * head)],
                  &k[size_t((t * 2 + h) * 64)], 128);
      std::memcpy(&fused[size_t(1 + t * token + h * head + 64)],
                  &v[size_t((t * 2 + h) * 32)], 64);
    }
  ffdAppendBatch batch;
  ffdAppendBatchInit(&batch);
  const int32_t count = 300;
  batch.count = 1;
  batch.sequences = &b;
  batch.tokens = &count;
  batch.k = fused.data() + 1;
  batch.v = fused.data() + 65;
  batch.k_token_stride = batch.v_token_stride = token;
  batch.k_head_stride = batch.v_head_stride = head;
  FFD_OK(ffdAppend(c.cache, &batch, nullptr));
  c.check({b, a});

  // What cannot be read as asked is refused.
  batch.channel_stride = 2;
  EXPECT_EQ(ffdAppend(c.cache, &batch, nullptr), FFD_INVALID_ARGUMENT);
  EXPECT_STREQ(ffdLastErrorMessage(),
               "'ffdAppendBatch' field 'channel_stride' is 2, expected 1: the "
               "channels of a token lie side by side");
  batch.channel_stride = 1;
  batch.k_head_stride = 60;
  EXPECT_EQ(ffdAppend(c.cache, &batch, nullptr), FFD_INVALID_ARGUMENT);
  batch.k_head_stride = -64;
  EXPECT_EQ(ffdAppend(c.cache, &batch, nullptr), FFD_INVALID_ARGUMENT);
  batch.k_head_stride = head;
  batch.k = reinterpret_cast<const char *>(fused.data()) + 1;
  EXPECT_EQ(ffdAppend(c.cache, &batch, nullptr), FFD_INVALID_ARGUMENT);
  EXPECT_STREQ(ffdLastErrorMessage(), "'ffdAppendBatch' field 'k' is "
                                      "misaligned, expected an address that "
                                      "is a multiple of 2");
  batch.k = nullptr;
  EXPECT_EQ(ffdAppend(c.cache, &batch, nullptr), FFD_INVALID_ARGUMENT);
  c.check({b, a});
}

TEST(ApiDecode, RefusedBatches) {
  ApiCase c(ApiCase::small());
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {10}), FFD_SUCCESS);
  std::vector<float> out(size_t(c.queryHeads() * 128 + 8));
  std::vector<uint16_t> q(size_t(c.queryHeads() * 128 + 16));
  float *out16 =
      reinterpret_cast<float *>((uintptr_t(out.data()) + 15) & ~uintptr_t(15));
  auto *q16 =
      reinterpret_cast<uint16_t *>((uintptr_t(q.data()) + 15) & ~uintptr_t(15));
  ffdDecodeBatch batch;
  ffdDecodeBatchInit(&batch);
  batch.count = 1;
  batch.q = q16;
  batch.out = out16;
  FFD_OK(ffdDecode(c.cache, &batch, nullptr));
  const auto refused = [&](const char *part) {
    EXPECT_EQ(ffdDecode(c.cache, &batch, nullptr), FFD_INVALID_ARGUMENT);
    EXPECT_NE(std::string(ffdLastErrorMessage()).find(part), std::string::npos)
        << ffdLastErrorMessage();
  };
  batch.layer = 2;
  refused("'layer' is 2, expected 0 to 1");
  batch.layer = 0;
  batch.q = q16 + 1;
  refused("'q' is not aligned");
  batch.q = nullptr;
  refused("'q' is null");
  batch.q = q16;
  batch.q_head_stride = 100;
  batch.q_batch_stride = 800;
  refused("q_head_stride");
  batch.q_head_stride = 132; // no multiple of 8
  batch.q_batch_stride = 132 * 8;
  refused("q_head_stride");
  batch.q_head_stride = batch.q_batch_stride = 0;
  const int32_t twice[] = {a, a};
  batch.sequences = twice;
  batch.count = 2;
  refused("listed twice");
  const int32_t none[] = {3};
  batch.sequences = none;
  batch.count = 1;
  refused("sequence 3 does not exist");
  batch.count = 0;
  refused("expected 1 to 6");
}

/// Page slots beyond 2^31 bytes and elements: only touched memory is real.
TEST(ApiDecode, CachesBeyondTwoToTheThirtyOne) {
  ffdCacheOptions options = ApiCase::small();
  options.layers = 1;
  options.caller_pages = 1;
  options.pages = 200000; // 200000 * 2 * 32 KiB of V: 12 GiB
  ffdCacheSizes sizes = {};
  sizes.struct_size = sizeof sizes;
  FFD_OK(ffdCacheMeasure(&options, &sizes));
  EXPECT_GT(sizes.values / 2, uint64_t(1) << 31);
  ApiCase c(options, 31);
  const int32_t a = c.create();
  const int32_t pages[] = {199999, 65535, 65536, 131072};
  FFD_OK(ffdSequenceSetPages(c.cache, a, 0, pages, 4, nullptr));
  ASSERT_EQ(c.append({a}, {600}), FFD_SUCCESS);
  c.check({a});
  c.checkGather(a);
}

TEST(ApiDecode, TwoThreadsTwoCaches) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([i] {
      ffdCacheOptions options = ApiCase::small(makeSpec(64, 64, 1 + i));
      ApiCase c(options, uint32_t(i));
      const int32_t a = c.create();
      for (int step = 0; step < 5; ++step) {
        ASSERT_EQ(c.append({a}, {70}), FFD_SUCCESS);
        c.check({a});
        // Each thread has its own last message.
        EXPECT_EQ(ffdSequenceFree(c.cache, 40 + i, nullptr),
                  FFD_INVALID_ARGUMENT);
        EXPECT_NE(std::string(ffdLastErrorMessage())
                      .find("sequence is " + std::to_string(40 + i)),
                  std::string::npos);
      }
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(ApiDecode, DeltaPerSequenceAndStatistics) {
  ffdCacheOptions options = ApiCase::small(makeSpec(64, 64, 1));
  options.layers = 2;
  ApiCase c(options, 3);
  c.keySpread = 2;
  const int32_t a = c.create(), b = c.create();
  ASSERT_EQ(c.append({a, b}, {600, 600}), FFD_SUCCESS);
  ffdHeadStatistics s[4];
  EXPECT_EQ(ffdStatisticsFetch(c.cache, s), FFD_INVALID_ARGUMENT);
  FFD_OK(ffdSequenceSetDelta(c.cache, a, std::numeric_limits<float>::infinity(),
                             nullptr));
  FFD_OK(ffdSequenceSetDelta(c.cache, b, 0, nullptr));
  EXPECT_EQ(ffdSequenceSetDelta(c.cache, b, -1, nullptr), FFD_INVALID_ARGUMENT);
  EXPECT_EQ(ffdSequenceSetDelta(c.cache, b, std::nanf(""), nullptr),
            FFD_INVALID_ARGUMENT);
  c.decode({a}, c.queries(1), 1);
  FFD_OK(ffdStatisticsRequest(c.cache, nullptr));
  FFD_OK(ffdStatisticsFetch(c.cache, s));
  EXPECT_EQ(s[0].scanned, 0u);
  EXPECT_EQ(s[2].scanned, 32u); // 4 blocks of 8 selection blocks
  EXPECT_EQ(s[2].kept, 32u);
  EXPECT_EQ(s[3].kept, 32u);
  c.decode({b}, c.queries(1), 1);
  FFD_OK(ffdStatisticsRequest(c.cache, nullptr));
  FFD_OK(ffdStatisticsFetch(c.cache, s));
  EXPECT_EQ(s[3].scanned, 64u);
  EXPECT_LT(s[3].kept, 50u);
}

/// Merging the decodes of two ranges gives the decode of both.
/// Skipped mass of every sequence of a batch, where asked for; only of a cache
/// whose specification has a certificate.
TEST(ApiDecode, SkippedMass) {
  ffdCacheOptions options = ApiCase::small();
  options.spec.certificate = FFD_CERTIFICATE_NOISE;
  options.delta = 0.5f;
  ApiCase c(options);
  const int32_t a = c.create(), b = c.create(), d = c.create();
  ASSERT_EQ(c.append({a, b, d}, {700, 0, 100}), FFD_SUCCESS);
  const std::vector<int32_t> order = {d, a, b};
  const std::vector<uint16_t> q = c.queries(3);
  HostBuffer query, out, skipped;
  ASSERT_TRUE(query.allocate("q", int64_t(q.size()) * 2, 0).ok());
  std::memcpy(query.data(), q.data(), q.size() * 2);
  const int64_t heads = c.queryHeads();
  ASSERT_TRUE(
      out.allocate("out", 3 * heads * options.spec.value_dim * 4, 0xFF).ok());
  ASSERT_TRUE(skipped.allocate("skipped", 3 * heads * 4, 0xFF).ok());
  ffdDecodeBatch batch;
  ffdDecodeBatchInit(&batch);
  batch.count = 3;
  batch.sequences = order.data();
  batch.q = query.data();
  batch.out = out.as<float>();
  batch.skipped_lse = skipped.as<float>();
  FFD_OK(ffdDecode(c.cache, &batch, nullptr));
  const float *mass = skipped.as<float>();
  for (int64_t h = 0; h < heads; ++h) {
    EXPECT_EQ(mass[h], -INFINITY) << h;               // no committed block
    EXPECT_TRUE(std::isfinite(mass[heads + h])) << h; // some are skipped
    EXPECT_EQ(mass[2 * heads + h], -INFINITY) << h;   // empty
  }
  c.check({a, d, b});

  ApiCase plain(ApiCase::small());
  const int32_t e = plain.create();
  ASSERT_EQ(plain.append({e}, {100}), FFD_SUCCESS);
  batch.count = 1;
  batch.sequences = &e;
  EXPECT_EQ(ffdDecode(plain.cache, &batch, nullptr), FFD_INVALID_ARGUMENT);
  EXPECT_STREQ(ffdLastErrorMessage(),
               "'ffdDecodeBatch' field 'skipped_lse' is given, expected NULL: "
               "the cache's spec has certificate 0 (none)");
}

TEST(ApiDecode, Merge) {
  const float out0[] = {1, 2, 5, 5}, out1[] = {3, 6, 7, 7};
  const float inf = std::numeric_limits<float>::infinity();
  const float lse0[] = {1, -inf}, lse1[] = {1, -inf};
  const float *outs[] = {out0, out1}, *lses[] = {lse0, lse1};
  float out[4], lse[2];
  FFD_OK(ffdMerge(2, 2, 2, outs, lses, out, lse));
  EXPECT_FLOAT_EQ(out[0], 2);
  EXPECT_FLOAT_EQ(out[1], 4);
  EXPECT_FLOAT_EQ(lse[0], 1 + std::log(2.0f));
  EXPECT_EQ(out[2], 0); // no tokens at all
  EXPECT_EQ(lse[1], -inf);
  lses[1] = nullptr;
  EXPECT_EQ(ffdMerge(2, 2, 2, outs, lses, out, lse), FFD_INVALID_ARGUMENT);
  EXPECT_EQ(ffdMerge(0, 2, 2, outs, lses, out, lse), FFD_INVALID_ARGUMENT);
}

/// Engines with their own cache call the kernel alone.
TEST(ApiDecode, KernelAlone) {
  CaseShape shape;
  shape.lengths = {300, 0, 129};
  RandomCase c(shape, 4);
  ffdKernel *kernel = nullptr;
  FFD_OK(ffdKernelCreate(referenceContext(), &shape.spec, &kernel));
  EXPECT_STREQ(ffdKernelTarget(kernel), "cpu:reference");
  uint64_t bytes = 0;
  FFD_OK(ffdKernelWorkspaceBytes(kernel, 3, 2, 2, &bytes));
  HostBuffer workspace;
  ASSERT_TRUE(workspace.allocate("workspace", int64_t(bytes), 0).ok());
  EXPECT_EQ(ffdKernelDecode(kernel, &c.args, nullptr), FFD_INVALID_ARGUMENT)
      << "no workspace";
  c.args.splits = 2;
  c.args.workspace = workspace.data();
  FFD_OK(ffdKernelDecode(kernel, &c.args, nullptr));
  EXPECT_TRUE(std::isfinite(c.out.as<float>()[0]));
  ffdKernelDestroy(kernel);
}

} // namespace
