//===- CacheTest.cpp - Caches of ragged batches ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lengths around block boundaries, shared K and V, permuted pages, the bytes a
// decode reads, and that nothing outside is read or left readable.
//
//===----------------------------------------------------------------------===//

#include "RandomCase.h"

#include "ffd/Float16.h"
#include "ffd/Split.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

using namespace ffd;

namespace {

const std::vector<int64_t> kRagged = {0,   1,   127, 128, 129,
                                      255, 256, 257, 700, 384};

/// Every token that the cache holds is the one it was given.
void expectHoldsInput(const RandomCase &c) {
  const SplitCache &cache = *c.cache;
  const ffdSpec &spec = cache.spec();
  const Layout &l = cache.layout();
  for (int64_t s = 0; s < cache.batch(); ++s)
    for (int64_t h = 0; h < cache.kvHeads(); ++h) {
      for (int64_t block = 0; block < cache.blocks(s); ++block) {
        const int64_t page = cache.page(s, block);
        ASSERT_TRUE(page >= 0 && page < cache.pages());
        for (int64_t t = 0; t < 128; t += 5)
          for (int64_t ch = 0; ch < spec.head_dim; ++ch) {
            const float k = c.key(s, block * 128 + t, h, ch);
            const double scale = elementToF32(
                spec.element, scaleAt(l, cache.thumbnail(page, h), ch));
            ASSERT_NEAR(reconstructAt(spec, cache.thumbnail(page, h),
                                      cache.residual(page, h), t, ch),
                        k, scale / 512 + std::fabs(k) * 0x1p-7 + 1e-6)
                << s << " " << block << " " << t << " " << ch;
          }
        for (int64_t t = 0; t < 128; ++t)
          for (int64_t d = 0; d < spec.value_dim; ++d) {
            const int64_t from = c.shape.sharedKV ? 0 : s;
            ASSERT_EQ(valueAt(l, cache.value(page, h), t, d),
                      c.v[size_t(((from * c.tokens + block * 128 + t) *
                                      c.shape.kvHeads +
                                  h) *
                                     spec.value_dim +
                                 d)]);
          }
      }
      const auto *tail = static_cast<const uint16_t *>(c.args.tail_k);
      const int64_t first =
          s * c.args.tail_batch_stride + h * c.args.tail_head_stride;
      for (int64_t t = 0; t < c.args.tail_head_stride; ++t)
        for (int64_t ch = 0; ch < spec.head_dim; ++ch) {
          const uint16_t got = tail[(first + t) * spec.head_dim + ch];
          if (t < cache.tailLength(s))
            ASSERT_EQ(elementToF32(spec.element, got),
                      c.key(s, cache.blocks(s) * 128 + t, h, ch));
          else
            ASSERT_EQ(got, 0xFFFF) << "unused memory is not poisoned";
        }
    }
}

TEST(Cache, RaggedLengths) {
  for (int64_t lag : {0, 1, 64, 128, 200, 100000}) {
    CaseShape shape;
    shape.spec = makeSpec(80, 48, 2, FFD_BF16, 4);
    shape.lengths = kRagged;
    shape.lag = lag;
    shape.pageSeed = 17;
    RandomCase c(shape, 1);
    int64_t pages = 0;
    std::set<int64_t> ids;
    for (int64_t s = 0; s < c.batch(); ++s) {
      const int64_t length = kRagged[size_t(s)];
      EXPECT_EQ(c.cache->blocks(s), std::max<int64_t>(0, length - lag) / 128);
      EXPECT_EQ(c.cache->tailLength(s), length - 128 * c.cache->blocks(s));
      EXPECT_LE(c.cache->tailLength(s), c.args.tail_head_stride);
      pages += c.cache->blocks(s);
      for (int64_t block = 0; block < c.cache->blocks(s); ++block)
        ids.insert(c.cache->page(s, block));
      for (int64_t block = c.cache->blocks(s); block < c.args.page_stride;
           ++block)
        EXPECT_EQ(c.cache->page(s, block), -1);
    }
    EXPECT_EQ(c.cache->pages(), pages);
    EXPECT_EQ(int64_t(ids.size()), pages);
    expectHoldsInput(c);
    EXPECT_TRUE(checkArgs(shape.spec, Program::Decode, c.args).ok());
  }
}

TEST(Cache, SharedKeysShareTheirPages) {
  CaseShape shape;
  shape.lengths = {700, 129, 128, 0, 500};
  shape.sharedKV = true;
  RandomCase c(shape, 2);
  EXPECT_EQ(c.cache->pages(), 5);
  EXPECT_EQ(c.cache->page(0, 0), c.cache->page(1, 0));
  EXPECT_EQ(c.cache->page(0, 2), c.cache->page(4, 2));
  expectHoldsInput(c);
}

TEST(Cache, SmaxCoversExactlyTheCommittedBlocks) {
  CaseShape shape;
  shape.lengths = {127, 128, 300, 520};
  shape.sharedKV = true;
  RandomCase c(shape, 3);
  const Layout &l = c.cache->layout();
  for (int64_t s = 0; s < c.batch(); ++s)
    for (int64_t h = 0; h < shape.kvHeads; ++h)
      for (int64_t ch = 0; ch < l.paddedHeadDim(); ++ch) {
        float expected = 0;
        for (int64_t block = 0; block < c.cache->blocks(s); ++block)
          expected = std::max(
              expected,
              f16ToF32(scaleAt(
                  l, c.cache->thumbnail(c.cache->page(s, block), h), ch)));
        const uint16_t got = static_cast<const uint16_t *>(
            c.args.smax)[(s * shape.kvHeads + h) * l.paddedHeadDim() +
                         Layout::scaleIndex(ch)];
        ASSERT_EQ(f16ToF32(got), expected);
      }
}

TEST(Cache, NeverReadsBeyondTheLongestLength) {
  // K ends, at its longest length, right before a page that cannot be read.
  const ffdSpec spec = makeSpec(64, 64, 1);
  const int64_t length = 300, bytes = length * 64 * 2;
  const int64_t unit = sysconf(_SC_PAGESIZE);
  const int64_t room = (bytes + unit - 1) / unit * unit;
  auto *memory = static_cast<uint8_t *>(
      mmap(nullptr, size_t(room + unit), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(mprotect(memory + room, size_t(unit), PROT_NONE), 0);
  SplitCacheOptions o;
  o.spec = spec;
  o.batch = 3;
  o.kvHeads = 1;
  o.kvBatch = 1;
  o.tokens = 100000; // the tensor claims more than the lengths use
  o.lengths = {length, 10, 256};
  o.k = TokenView::dense(reinterpret_cast<uint16_t *>(memory + room - bytes),
                         o.tokens, 1, 64);
  o.v = o.k;
  std::unique_ptr<SplitCache> cache;
  EXPECT_TRUE(SplitCache::create(o, testPool(), cache).ok());
  munmap(memory, size_t(room + unit));
}

TEST(Cache, BytesOfADecode) {
  CaseShape shape;
  shape.spec = makeSpec(80, 64, 2, FFD_F16, 2, 32);
  shape.lengths = {300, 0, 128};
  shape.kvHeads = 2;
  RandomCase c(shape, 4);
  const int64_t stride = c.args.kept_stride;
  std::vector<uint8_t> kept(size_t(6 * stride), 0);
  kept[0] = kept[7] = kept[size_t(5 * stride) + 3] = 1;
  kept[8] = 1; // beyond the 8 selection blocks of row 0: does not count
  const DecodeBytes bytes = c.cache->decodeBytes(kept.data(), stride);
  // Rows 0 and 1 have 2 blocks and 44 tail tokens, rows 4 and 5 one block.
  EXPECT_EQ(bytes.scan, 6 * (128 * 96 / 4 + 2 * 96));
  EXPECT_EQ(bytes.kept, 3 * 32 * (96 + 2 * 64));
  EXPECT_EQ(bytes.tail, 2 * 44 * 2 * (80 + 64));
  EXPECT_EQ(bytes.dense, (600 + 256) * 2 * (80 + 64));
  EXPECT_EQ(bytes.keptBlocks, 3);
  EXPECT_EQ(bytes.selectBlocks, 24);
  EXPECT_EQ(c.cache->decodeBytes(nullptr, 0).keptBlocks, 24);
}

TEST(Cache, BytesOfARefinedPseudoMax) {
  CaseShape shape;
  shape.spec = makeSpec(80, 64, 2, FFD_F16, 2, 32);
  shape.spec.pseudo_max = FFD_PSEUDO_MAX_REFINED;
  shape.lengths = {128 * 5, 128};
  shape.kvHeads = 1;
  RandomCase c(shape, 4);
  const int64_t stride = c.args.kept_stride;
  std::vector<uint8_t> kept(size_t(2 * stride), 0);
  // Of row 0 one at each end and one between, of row 1 all but one.
  kept[0] = kept[7] = kept[19] = 1;
  for (int64_t i : {0, 1, 3})
    kept[size_t(stride + i)] = 1;
  const DecodeBytes bytes = c.cache->decodeBytes(kept.data(), stride);
  EXPECT_EQ(bytes.kept, 6 * 32 * (96 + 2 * 64) + (3 + 3 + 1) * 32 * 96);
  EXPECT_EQ(bytes.keptBlocks, 6);
  EXPECT_EQ(c.cache->decodeBytes(nullptr, 0).kept, 24 * 32 * (96 + 2 * 64));
}

TEST(Cache, OptionsAreChecked) {
  std::vector<uint16_t> data(64 * 64, 0);
  SplitCacheOptions good;
  good.spec = makeSpec(64, 64, 1);
  good.batch = 1;
  good.kvHeads = 1;
  good.kvBatch = 1;
  good.tokens = 64;
  good.k = good.v = TokenView::dense(data.data(), 64, 1, 64);
  const auto expect = [&](const SplitCacheOptions &o, const char *part) {
    std::unique_ptr<SplitCache> cache;
    Status status = SplitCache::create(o, testPool(), cache);
    EXPECT_FALSE(status.ok()) << part;
    EXPECT_NE(status.message().find(part), std::string::npos)
        << status.message();
    EXPECT_EQ(cache, nullptr);
  };
  SplitCacheOptions o = good;
  o.spec.head_dim = 100;
  expect(o, "'head_dim' is 100");
  o = good;
  o.batch = 0;
  expect(o, "'batch' is 0");
  o = good;
  o.batch = 3;
  o.kvBatch = 2;
  expect(o, "'kvBatch' is 2");
  o = good;
  o.kvHeads = -1;
  expect(o, "'kvHeads' is -1");
  o = good;
  o.tokens = int64_t(1) << 40;
  expect(o, "'tokens'");
  o = good;
  o.lag = -1;
  expect(o, "'lag' is -1");
  o = good;
  o.lengths = {65};
  expect(o, "'lengths[0]' is 65, expected 0 to 64");
  o.lengths = {-1};
  expect(o, "'lengths[0]' is -1");
  o.lengths = {1, 2};
  expect(o, "'lengths.size()' is 2");
  o = good;
  o.v.data = nullptr;
  expect(o, "'v' is null");
  o.lengths = {0};
  std::unique_ptr<SplitCache> cache;
  EXPECT_TRUE(SplitCache::create(o, testPool(), cache).ok());
}

TEST(Memory, ProductsNoticeOverflow) {
  int64_t p;
  EXPECT_TRUE(checkedProduct({3, 5, 7}, p));
  EXPECT_EQ(p, 105);
  EXPECT_TRUE(checkedProduct({INT64_MAX, 0, INT64_MAX}, p));
  EXPECT_EQ(p, 0);
  EXPECT_FALSE(checkedProduct({INT64_MAX, 2}, p));
  EXPECT_FALSE(checkedProduct({int64_t(1) << 32, int64_t(1) << 31}, p));
  EXPECT_FALSE(checkedProduct({-1, 2}, p));
  HostBuffer buffer;
  EXPECT_FALSE(buffer.allocate("test", INT64_MAX, 0).ok());
  EXPECT_FALSE(buffer.allocate("test", -1, 0).ok());
}

} // namespace
