//===- ApiCudaTest.cpp - Caches on a GPU, without one ----------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The stand-in driver runs the reference append and decode, at once or when a
// graph is replayed: what the host tells the device must be enough for results
// that equal those of a fresh cache, bit for bit.
//
//===----------------------------------------------------------------------===//

#include "ApiCudaFixture.h"

#include <cstring>
#include <thread>

using namespace ffd;

void ApiCuda::randomLife() {
  for (int lag : {0, 9}) {
    ffdCacheOptions o = options();
    o.lag = lag;
    ApiCase c(o, uint32_t(lag) + 1, context);
    c.keyMean = 2;
    const int32_t a = c.create(), b = c.create();
    ASSERT_EQ(c.append({a, b}, {300, 0}), FFD_SUCCESS) << ffdLastErrorMessage();
    c.check({a, b});
    const int32_t d = c.fork(a);
    ASSERT_EQ(c.append({a, b, d}, {1, 130, 100}), FFD_SUCCESS);
    c.check({a, b, d});
    c.free(b);
    const int32_t e = c.fork(d);
    EXPECT_EQ(e, b) << "the lowest slot";
    ASSERT_EQ(c.append({a, e, d}, {200, 60, 1}), FFD_SUCCESS);
    c.check({a, e, d});
    if (lag == 0) {
      ASSERT_EQ(c.truncate(d, 128), FFD_SUCCESS) << ffdLastErrorMessage();
      c.check({a, e, d});
      ASSERT_EQ(c.append({d}, {150}), FFD_SUCCESS);
    } else {
      // 300 + 100 + 1: three blocks, 17 tokens, fewer than the lag afterwards.
      ASSERT_EQ(c.truncate(d, 386), FFD_SUCCESS) << ffdLastErrorMessage();
      c.check({a, e, d});
      const int32_t f = c.fork(d);
      ASSERT_EQ(c.append({f, d}, {130, 3}), FFD_SUCCESS);
      c.check({d, f});
      // 516 has 3 blocks, since 9 tokens stay; 521 would have 4.
      ASSERT_EQ(c.truncate(f, 384), FFD_SUCCESS) << ffdLastErrorMessage();
      c.check({f});
      ASSERT_EQ(c.append({f}, {200}), FFD_SUCCESS);
      c.check({f, a});
      c.checkGather(f);
      ASSERT_EQ(c.truncate(f, 256), FFD_SUCCESS) << ffdLastErrorMessage();
      c.check({f});
      c.free(f);
    }
    c.check({a, e, d});
    c.checkGather(d);
    ASSERT_EQ(c.truncate(a, 0), FFD_SUCCESS) << ffdLastErrorMessage();
    ASSERT_EQ(c.append({a}, {30}), FFD_SUCCESS);
    c.check({a});
    int32_t errors = -1;
    FFD_OK(ffdCacheGetErrors(c.cache, &errors, nullptr));
    EXPECT_EQ(errors, 0);
  }
}

TEST_F(ApiCuda, RandomLife) { randomLife(); }

namespace {
class ApiCudaCentred : public ApiCuda {
  int32_t centre() const override { return FFD_CENTRE_ROW; }
};
} // namespace

TEST_F(ApiCudaCentred, RandomLife) { randomLife(); }

TEST_F(ApiCuda, BatchesAreAnySlots) {
  ApiCase c(options(), 1, context);
  for (int i = 0; i < 4; ++i)
    c.create();
  ASSERT_EQ(c.append({1, 2}, {3, 4}), FFD_SUCCESS) << ffdLastErrorMessage();
  ASSERT_EQ(c.append({3, 0}, {1, 300}), FFD_SUCCESS) << ffdLastErrorMessage();
  ASSERT_EQ(c.append({2, 1, 3}, {200, 1, 1}), FFD_SUCCESS);
  c.check({1, 2});
  c.check({3, 0, 2});
  c.check({2, 1, 0, 3});
  EXPECT_EQ(c.append({2, 2}, {1, 1}), FFD_INVALID_ARGUMENT);
}

/// A sequence is cut in the same way whatever its batch, and the grid does for
/// the longest.
TEST_F(ApiCuda, PiecesOfABatchInvariantCache) {
  ffdCacheOptions o = options();
  o.batch_invariant = 1;
  o.piece_tokens = 256;
  ApiCase c(o, 1, context);
  for (int i = 0; i < 4; ++i)
    c.create();
  ASSERT_EQ(c.append({0, 1, 2}, {900, 5, 700}), FFD_SUCCESS);
  c.check({0, 2});
  EXPECT_EQ(lastPlan.blocks_per_piece, 2);
  EXPECT_EQ(lastPlan.pieces, 2 * 2 * 8) << "2048 tokens";
  c.check({2, 1, 0, 3});
  EXPECT_EQ(lastPlan.blocks_per_piece, 2);

  o.piece_tokens = 0;
  ApiCase d(o, 1, context);
  d.create();
  ASSERT_EQ(d.append({0}, {300}), FFD_SUCCESS);
  d.check({0});
  EXPECT_GE(lastPlan.blocks_per_piece, 8);
  o.piece_tokens = 100;
  ffdCache *none = nullptr;
  EXPECT_EQ(ffdCacheCreate(context, &o, &none), FFD_INVALID_ARGUMENT);
  o.batch_invariant = 0;
  o.piece_tokens = 128;
  EXPECT_EQ(ffdCacheCreate(context, &o, &none), FFD_INVALID_ARGUMENT);
  EXPECT_STREQ(ffdLastErrorMessage(),
               "'ffdCacheOptions' field 'piece_tokens' is 128, expected 0 "
               "without batch_invariant");
}

/// The pool is empty in the middle of a batch: no sequence of it gets a token.
TEST_F(ApiCuda, OutOfPagesChangesNothing) {
  ffdCacheOptions o = options();
  o.pages = 4;
  ApiCase c(o, 1, context);
  const int32_t a = c.create(), b = c.create(), d = c.create();
  ASSERT_EQ(c.append({a, b}, {200, 100}), FFD_SUCCESS) << ffdLastErrorMessage();
  EXPECT_EQ(c.append({d, a, b}, {1, 200, 300}), FFD_OUT_OF_PAGES);
  EXPECT_STREQ(ffdLastErrorMessage(),
               "the cache has 3 of 4 pages free, expected at least the 5 that "
               "are needed");
  c.check({a, b, d});
  int32_t errors = -1;
  FFD_OK(ffdCacheGetErrors(c.cache, &errors, nullptr));
  EXPECT_EQ(errors, 0) << "the device was not asked";
  ASSERT_EQ(c.append({d, b, a}, {1, 200, 56}), FFD_SUCCESS)
      << ffdLastErrorMessage();
  c.check({a, b, d});
}

TEST_F(ApiCuda, CallersPagesAreChecked) {
  ffdCacheOptions o = options();
  o.caller_pages = 1;
  ApiCase c(o, 1, context);
  const int32_t a = c.create();
  EXPECT_EQ(c.append({a}, {128}), FFD_OUT_OF_PAGES);
  const int32_t pages[] = {int32_t(o.pages) - 1, 0}, bad[] = {3, -1};
  const int32_t large = int32_t(o.pages);
  for (const int32_t *page : {&bad[1], &large})
    EXPECT_EQ(ffdSequenceSetPages(c.cache, a, 0, page, 1, nullptr),
              FFD_INVALID_ARGUMENT);
  EXPECT_EQ(ffdSequenceSetPages(c.cache, a, 0, bad, 2, nullptr),
            FFD_INVALID_ARGUMENT);
  EXPECT_EQ(c.append({a}, {128}), FFD_OUT_OF_PAGES)
      << "nor is the good one set";
  FFD_OK(ffdSequenceSetPages(c.cache, a, 0, pages, 2, nullptr));
  ASSERT_EQ(c.append({a}, {300}), FFD_SUCCESS) << ffdLastErrorMessage();
  c.check({a});
}

/// Views into a fused buffer; what a GPU cannot load 16 bytes at a time from is
/// refused.
TEST_F(ApiCuda, StridedAndMisalignedInputs) {
  ffdCacheOptions o = options();
  o.layers = 1;
  ApiCase c(o, 2, context);
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {300}), FFD_SUCCESS) << ffdLastErrorMessage();
  const int32_t b = c.create();
  c.tokens[b] = c.tokens[a];
  // [token][head][k 64 | v 32 | 8 spare]
  const int64_t head = 104, token = 2 * head + 16;
  HostBuffer fused;
  ASSERT_TRUE(fused.allocate("fused", 300 * token * 2, 0x7E).ok());
  uint16_t *const data = fused.as<uint16_t>();
  for (int64_t row = 0; row < 600; ++row) {
    uint16_t *to = data + row / 2 * token + row % 2 * head;
    std::memcpy(to, &c.tokens[a].k[0][size_t(row * 64)], 128);
    std::memcpy(to + 64, &c.tokens[a].v[0][size_t(row * 32)], 64);
  }
  const int32_t count = 300;
  ffdAppendBatch batch;
  ffdAppendBatchInit(&batch);
  batch.count = 1;
  batch.sequences = &b;
  batch.tokens = &count;
  batch.k = data;
  batch.v = data + 64;
  batch.k_token_stride = batch.v_token_stride = token;
  batch.k_head_stride = batch.v_head_stride = head;
  const ffdAppendBatch good = batch;
  const auto refused = [&](const char *part) {
    EXPECT_EQ(ffdAppend(c.cache, &batch, nullptr), FFD_INVALID_ARGUMENT);
    EXPECT_NE(std::string(ffdLastErrorMessage()).find(part), std::string::npos)
        << ffdLastErrorMessage();
    batch = good;
  };
  batch.k = data + 1;
  refused("'k' is misaligned, expected an address that is a multiple of 16");
  batch.v = data + 4;
  refused("'v' is misaligned");
  batch.k_head_stride = 100;
  refused("'k_head_stride' is 100, expected a multiple of 8");
  batch.v_token_stride = token + 4;
  refused("'v_token_stride'");
  batch.channel_stride = 2;
  refused("'channel_stride' is 2");
  FFD_OK(ffdAppend(c.cache, &batch, nullptr));
  c.check({b, a});

  HostBuffer q, out;
  ASSERT_TRUE(q.allocate("q", 4 * 64 * 2 + 16, 0).ok());
  ASSERT_TRUE(out.allocate("out", 4 * 32 * 4 + 16, 0).ok());
  ffdDecodeBatch decode;
  ffdDecodeBatchInit(&decode);
  decode.count = 1;
  decode.q = q.as<uint16_t>() + 1;
  decode.out = out.as<float>();
  EXPECT_EQ(ffdDecode(c.cache, &decode, nullptr), FFD_INVALID_ARGUMENT);
  decode.q = q.data();
  decode.out = out.as<float>() + 1;
  EXPECT_EQ(ffdDecode(c.cache, &decode, nullptr), FFD_INVALID_ARGUMENT);
  decode.out = out.as<float>();
  decode.q_head_stride = 68;
  decode.q_batch_stride = 4 * 68;
  EXPECT_EQ(ffdDecode(c.cache, &decode, nullptr), FFD_INVALID_ARGUMENT);
  decode.q_head_stride = decode.q_batch_stride = 0;
  FFD_OK(ffdDecode(c.cache, &decode, nullptr));
}

TEST_F(ApiCuda, TwoThreadsTwoCaches) {
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 2; ++i)
    threads.emplace_back([this, i] {
      ApiCase c(options(), i, context);
      const int32_t a = c.create(), b = c.create();
      for (int step = 0; step < 4; ++step) {
        ASSERT_EQ(c.append({a, b}, {70, 128 - step}), FFD_SUCCESS)
            << ffdLastErrorMessage();
        c.check({b, a});
        EXPECT_EQ(ffdSequenceFree(c.cache, 40 + int32_t(i), nullptr),
                  FFD_INVALID_ARGUMENT);
        EXPECT_NE(std::string(ffdLastErrorMessage())
                      .find("sequence is " + std::to_string(40 + i)),
                  std::string::npos);
      }
      c.truncate(a, 128);
      c.check({a, b});
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST_F(ApiCuda, MemoryThatIsRefused) {
  for (int64_t left = 0; left < (1 << 20); left += 150000) {
    fake->memoryLeft = left;
    const ffdCacheOptions o = options();
    ffdCache *cache = nullptr;
    const ffdStatus status = ffdCacheCreate(context, &o, &cache);
    EXPECT_EQ(status, FFD_OUT_OF_MEMORY);
    EXPECT_NE(std::string(ffdLastErrorMessage()).find("allocate"),
              std::string::npos);
  }
  fake->memoryLeft = -1;
}

TEST_F(ApiCuda, NoAppendKernel) {
  std::remove(paths[1].c_str());
  ApiCase c(options(), 1, context);
  const int32_t a = c.create();
  EXPECT_EQ(c.append({a}, {3}), FFD_NOT_FOUND);
  EXPECT_NE(std::string(ffdLastErrorMessage()).find("append-d64"),
            std::string::npos)
      << ffdLastErrorMessage();
}

TEST_F(ApiCuda, NoPlanKernel) {
  std::remove(paths[2].c_str());
  ApiCase c(options(), 1, context);
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {3}), FFD_SUCCESS);
  HostBuffer q, out;
  ASSERT_TRUE(q.allocate("q", 4 * 64 * 2, 0).ok());
  ASSERT_TRUE(out.allocate("out", 4 * 32 * 4, 0).ok());
  ffdDecodeBatch batch;
  ffdDecodeBatchInit(&batch);
  batch.count = 1;
  batch.q = q.data();
  batch.out = out.as<float>();
  EXPECT_EQ(ffdDecode(c.cache, &batch, nullptr), FFD_NOT_FOUND);
  EXPECT_NE(std::string(ffdLastErrorMessage()).find("plan-d128"),
            std::string::npos)
      << ffdLastErrorMessage();
}

TEST_F(ApiCuda, HostPages) {
  ffdCacheOptions o = options();
  o.host_pages = 1;
  ApiCase c(o, 1, context);
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {300}), FFD_SUCCESS) << ffdLastErrorMessage();
  c.check({a});
}

TEST_F(ApiCuda, Statistics) {
  ApiCase c(options(), 1, context);
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {300}), FFD_SUCCESS);
  c.decode({a}, c.queries(1), 1);
  ffdHeadStatistics s[4];
  FFD_OK(ffdStatisticsRequest(c.cache, nullptr));
  FFD_OK(ffdStatisticsFetch(c.cache, s));
  EXPECT_EQ(s[0].scanned, 0u);
  EXPECT_EQ(s[3].scanned, 16u);
}
