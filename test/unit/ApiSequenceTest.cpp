//===- ApiSequenceTest.cpp - Sequences grow, fork, shrink and go ------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whatever happened to a sequence, decodes equal those of a cache built from
// its tokens, bit for bit.
//
//===----------------------------------------------------------------------===//

#include "ApiCase.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace ffd;

namespace {

int64_t freePages(ffdCache *cache) {
  ffdCacheInfo info = {};
  info.struct_size = sizeof info;
  EXPECT_EQ(ffdCacheGetInfo(cache, &info), FFD_SUCCESS);
  return info.free_pages;
}

ffdSequenceInfo infoOf(ffdCache *cache, int32_t sequence) {
  ffdSequenceInfo info = {};
  info.struct_size = sizeof info;
  EXPECT_EQ(ffdSequenceGetInfo(cache, sequence, &info), FFD_SUCCESS);
  return info;
}

/// Lengths at and around multiples of the block, in ragged batches, as chunks
/// and as single tokens.
TEST(ApiSequence, RaggedAppendsEqualAFreshCache) {
  for (auto [lag, centre] :
       {std::pair(0, 0), std::pair(1, 0), std::pair(7, 0), std::pair(128, 0),
        std::pair(200, 0), std::pair(0, 1), std::pair(7, 1),
        std::pair(200, 1)}) {
    ffdCacheOptions options = ApiCase::small(makeSpec(64, 48, 2));
    options.lag = lag;
    options.layers = 1;
    options.spec.centre = centre;
    ApiCase c(options, uint32_t(lag) + 3);
    c.keyMean = float(3 * centre);
    const int32_t a = c.create(), b = c.create(), d = c.create(),
                  e = c.create();
    ASSERT_EQ(c.append({a, b, d}, {127, 128, 1}), FFD_SUCCESS)
        << ffdLastErrorMessage();
    c.check({a, b, d, e}); // e has length 0
    ASSERT_EQ(c.append({d, a, b}, {383, 1, 0}), FFD_SUCCESS);
    c.check({e, d, a, b});
    ASSERT_EQ(c.append({a, b, d}, {1, 129, 300}), FFD_SUCCESS);
    c.check({a, b, d});
    for (int i = 0; i < 140; ++i)
      ASSERT_EQ(c.append({a}, {1}), FFD_SUCCESS);
    c.check({a});
    c.checkGather(a);
    c.checkGather(d);
    EXPECT_EQ(infoOf(c.cache, a).length, 269);
    EXPECT_EQ(infoOf(c.cache, a).committed,
              128 * committedBlocks(options.spec, 269, lag));
  }
}

TEST(ApiSequence, AllElementsAndBits) {
  for (const ffdSpec &spec : allSplitSpecs()) {
    ffdCacheOptions options = ApiCase::small(spec);
    options.layers = 1;
    for (int centre : {FFD_CENTRE_NONE, FFD_CENTRE_ROW}) {
      options.spec.centre = centre;
      ApiCase c(options, 5);
      c.keyMean = float(2 * centre);
      const int32_t a = c.create();
      ASSERT_EQ(c.append({a}, {100}), FFD_SUCCESS);
      ASSERT_EQ(c.append({a}, {200}), FFD_SUCCESS);
      c.check({a});
    }
  }
}

/// A row has a centre as long as it has its first block, and the next first
/// block brings another.
TEST(ApiSequence, CentresGoWithTheFirstBlock) {
  for (int element : {FFD_F16, FFD_BF16}) {
    ffdCacheOptions options = ApiCase::small(makeSpec(80, 48, 2, element));
    options.spec.centre = FFD_CENTRE_ROW;
    ApiCase c(options, 8);
    c.keyMean = 5;
    const int32_t a = c.create();
    ASSERT_EQ(c.append({a}, {127}), FFD_SUCCESS);
    c.check({a});
    c.checkGather(a);
    const int32_t early = c.fork(a); // before there is one
    ASSERT_EQ(c.append({a}, {1}), FFD_SUCCESS);
    c.check({a, early});
    ASSERT_EQ(c.append({a}, {250}), FFD_SUCCESS);
    const int32_t late = c.fork(a);
    ASSERT_EQ(c.truncate(a, 128), FFD_SUCCESS);
    c.keyMean = -20;
    ASSERT_EQ(c.append({a, early, late}, {140, 140, 140}), FFD_SUCCESS);
    c.check({a, early, late});
    c.checkGather(a);
    c.checkGather(early);
    ASSERT_EQ(c.truncate(a, 0), FFD_SUCCESS);
    c.check({a});
    ASSERT_EQ(c.append({a}, {100}), FFD_SUCCESS); // keys as they are
    c.check({a});
    ASSERT_EQ(c.append({a}, {100}), FFD_SUCCESS); // and another centre
    c.check({a, late});
    c.free(a);
    EXPECT_EQ(c.create(), a); // a slot that had one
    ASSERT_EQ(c.append({a}, {90}), FFD_SUCCESS);
    c.check({a});
    c.checkGather(a);
  }
}

/// Random operations against the model.
TEST(ApiSequence, RandomLife) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    ffdCacheOptions options = ApiCase::small(makeSpec(64, 16, 1));
    options.lag = seed % 2 ? 5 : 0;
    options.spec.centre = seed < 3 ? FFD_CENTRE_NONE : FFD_CENTRE_ROW;
    ApiCase c(options, seed);
    c.keyMean = seed < 3 ? 0.0f : 2.0f;
    std::mt19937 random(seed + 100);
    for (int step = 0; step < 60; ++step) {
      std::vector<int32_t> live;
      for (const auto &entry : c.tokens)
        live.push_back(entry.first);
      const auto any = [&] { return live[random() % live.size()]; };
      const unsigned action = random() % 10;
      if (live.empty() || (action == 0 && live.size() < 6)) {
        c.create();
      } else if (action == 1 && live.size() < 6) {
        c.fork(any());
      } else if (action == 2) {
        c.free(any());
      } else if (action == 3) {
        const int32_t s = any();
        const int64_t floor = c.tokens[s].committed * 128;
        int64_t length = int64_t(random() % uint64_t(c.tokens[s].length + 1));
        if (length < floor)
          length = length / 128 * 128;
        ASSERT_EQ(c.truncate(s, length), FFD_SUCCESS) << ffdLastErrorMessage();
      } else {
        std::vector<int32_t> counts;
        for (int32_t s : live)
          counts.push_back(
              std::min<int32_t>(int32_t(random() % (action == 9 ? 300 : 40)),
                                int32_t(2048 - c.tokens[s].length)));
        const ffdStatus status = c.append(live, counts);
        ASSERT_TRUE(status == FFD_SUCCESS || status == FFD_OUT_OF_PAGES)
            << ffdLastErrorMessage();
      }
      if (step % 6 == 5 && !c.tokens.empty()) {
        live.clear();
        for (const auto &entry : c.tokens)
          live.push_back(entry.first);
        c.check(live);
      }
    }
    while (!c.tokens.empty())
      c.free(c.tokens.begin()->first);
    EXPECT_EQ(freePages(c.cache), options.pages);
  }
}

/// Both grow inside and beyond the tail they had in common.
TEST(ApiSequence, ForkGrowsApart) {
  ApiCase c(ApiCase::small());
  const int32_t parent = c.create();
  ASSERT_EQ(c.append({parent}, {300}), FFD_SUCCESS);
  const int64_t before = freePages(c.cache);
  const int32_t child = c.fork(parent);
  EXPECT_EQ(freePages(c.cache), before) << "a fork takes no pages";
  ASSERT_EQ(c.append({parent}, {50}), FFD_SUCCESS);
  c.check({child, parent});
  ASSERT_EQ(c.append({child, parent}, {90, 40}), FFD_SUCCESS);
  c.check({parent, child});
  EXPECT_EQ(freePages(c.cache), before - 2);
  const int32_t grandchild = c.fork(child);
  c.free(parent);
  c.free(child);
  c.check({grandchild});
  c.checkGather(grandchild);
}

TEST(ApiSequence, TruncateKeepsWhatIsExact) {
  ffdCacheOptions options = ApiCase::small();
  options.lag = 7;
  options.delta = 0.25f; // so that the selection matters
  ApiCase c(options);
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {128 * 3 + 7}), FFD_SUCCESS); // 3 blocks, 7 tokens
  EXPECT_EQ(infoOf(c.cache, a).committed, 384);
  ASSERT_EQ(c.truncate(a, 384 + 2), FFD_SUCCESS); // within the lag
  EXPECT_EQ(infoOf(c.cache, a).committed, 384);
  c.check({a});
  EXPECT_EQ(c.truncate(a, 300), FFD_UNSUPPORTED);
  EXPECT_STREQ(ffdLastErrorMessage(),
               "cannot truncate sequence 0 to 300 tokens, inside its committed "
               "block 2 whose 16-bit keys are gone; expected at least 384 or a "
               "multiple of 128");
  c.check({a});
  ASSERT_EQ(c.append({a}, {3}), FFD_SUCCESS);
  c.check({a});
  // Keys so large that with their scales in smax the others' scores vanish.
  c.keySpread = 3000;
  ASSERT_EQ(c.append({a}, {140}), FFD_SUCCESS);
  c.check({a});
  const int64_t before = freePages(c.cache);
  ASSERT_EQ(c.truncate(a, 256), FFD_SUCCESS); // smax shrinks
  EXPECT_EQ(freePages(c.cache), before + 2);
  c.check({a});
  c.checkGather(a);
  EXPECT_EQ(c.truncate(a, 257), FFD_INVALID_ARGUMENT);
  EXPECT_EQ(c.truncate(a, -1), FFD_INVALID_ARGUMENT);
  ASSERT_EQ(c.truncate(a, 0), FFD_SUCCESS);
  c.check({a});
}

/// The blocks that truncation gives back may be another's: they are not
/// written again.
TEST(ApiSequence, TruncatedForkLeavesSharedPagesAlone) {
  ApiCase c(ApiCase::small());
  const int32_t parent = c.create();
  ASSERT_EQ(c.append({parent}, {400}), FFD_SUCCESS);
  const int32_t child = c.fork(parent);
  ASSERT_EQ(c.truncate(child, 128), FFD_SUCCESS);
  ASSERT_EQ(c.append({child}, {300}), FFD_SUCCESS);
  c.check({parent, child});
}

TEST(ApiSequence, NothingAdvancesWithoutGraphs) {
  ApiCase c(ApiCase::small());
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {200}), FFD_SUCCESS);
  const int32_t tokens = 3;
  // What no graph appended was never written.
  EXPECT_EQ(ffdAdvance(c.cache, 1, &a, &tokens), FFD_INVALID_ARGUMENT);
  c.check({a});
}

TEST(ApiSequence, OutOfPagesChangesNothing) {
  ffdCacheOptions options = ApiCase::small();
  options.pages = 4;
  ApiCase c(options);
  const int32_t a = c.create(), b = c.create();
  ASSERT_EQ(c.append({a, b}, {200, 100}), FFD_SUCCESS);
  // 3 pages are left; a needs 2 more, b 2.
  EXPECT_EQ(c.append({a, b}, {200, 200}), FFD_OUT_OF_PAGES);
  EXPECT_STREQ(ffdLastErrorMessage(),
               "the cache has 3 of 4 pages free, expected at least the 4 that "
               "are needed");
  EXPECT_EQ(freePages(c.cache), 3);
  c.check({a, b});
  const int64_t more[] = {200, 200};
  const int32_t both[] = {a, b};
  EXPECT_EQ(ffdReserve(c.cache, 2, both, more, nullptr), FFD_OUT_OF_PAGES);
  EXPECT_EQ(freePages(c.cache), 3);
  FFD_OK(ffdReserve(c.cache, 1, both, more, nullptr));
  EXPECT_EQ(freePages(c.cache), 1);
  EXPECT_EQ(infoOf(c.cache, a).reserved, 511);
  ASSERT_EQ(c.append({a}, {300}), FFD_SUCCESS);
  EXPECT_EQ(freePages(c.cache), 1) << "reserved pages are used first";
  c.check({a, b});
  EXPECT_EQ(c.append({a}, {2000}), FFD_INVALID_ARGUMENT); // beyond max_tokens
}

TEST(ApiSequence, SlotsRunOut) {
  ffdCacheOptions options = ApiCase::small();
  options.sequences = 2;
  ApiCase c(options);
  const int32_t a = c.create();
  c.create();
  int32_t sequence = -7;
  EXPECT_EQ(ffdSequenceCreate(c.cache, nullptr, &sequence),
            FFD_OUT_OF_SEQUENCES);
  EXPECT_EQ(ffdSequenceFork(c.cache, a, nullptr, &sequence),
            FFD_OUT_OF_SEQUENCES);
  EXPECT_EQ(sequence, -7);
  c.free(a);
  EXPECT_EQ(c.create(), a);
  c.free(a);
  EXPECT_EQ(ffdSequenceFree(c.cache, a, nullptr), FFD_INVALID_ARGUMENT);
  EXPECT_EQ(ffdSequenceFree(c.cache, 2, nullptr), FFD_INVALID_ARGUMENT);
  EXPECT_EQ(ffdSequenceFree(c.cache, -1, nullptr), FFD_INVALID_ARGUMENT);
}

/// Layers are appended to one after the other; in between only what needs all
/// of them is refused.
TEST(ApiSequence, UnevenLayers) {
  ApiCase c(ApiCase::small());
  const int32_t a = c.create();
  std::vector<uint16_t> k(size_t(2 * 2 * 128), 0), v(k);
  ffdAppendBatch batch;
  ffdAppendBatchInit(&batch);
  batch.count = 1;
  batch.k = k.data();
  batch.v = v.data();
  FFD_OK(ffdAppend(c.cache, &batch, nullptr));
  EXPECT_EQ(infoOf(c.cache, a).length, 0);
  int32_t fork;
  EXPECT_EQ(ffdSequenceFork(c.cache, a, nullptr, &fork), FFD_INVALID_ARGUMENT);
  EXPECT_EQ(ffdSequenceTruncate(c.cache, a, 0, nullptr), FFD_INVALID_ARGUMENT);
  batch.layer = 1;
  FFD_OK(ffdAppend(c.cache, &batch, nullptr));
  EXPECT_EQ(infoOf(c.cache, a).length, 1);
  FFD_OK(ffdSequenceFork(c.cache, a, nullptr, &fork));
}

/// An engine's own block manager: pages in any order, checked.
TEST(ApiSequence, CallersPagesAndMemory) {
  ffdCacheOptions options = ApiCase::small();
  options.caller_pages = 1;
  options.spec.centre = FFD_CENTRE_ROW;
  ffdCacheSizes sizes = {};
  sizes.struct_size = sizeof sizes;
  FFD_OK(ffdCacheMeasure(&options, &sizes));
  std::vector<HostBuffer> buffers(14);
  std::vector<ffdLayerMemory> memory(2);
  for (size_t layer = 0; layer < 2; ++layer) {
    void **fields[] = {&memory[layer].thumbnails, &memory[layer].residuals,
                       &memory[layer].values,     &memory[layer].smax,
                       &memory[layer].tail_k,     &memory[layer].tail_v,
                       &memory[layer].centre};
    const uint64_t bytes[] = {sizes.thumbnails, sizes.residuals, sizes.values,
                              sizes.smax,       sizes.tail_k,    sizes.tail_v,
                              sizes.centre};
    EXPECT_EQ(sizes.centre, 6 * 2 * 128 * 2);
    for (int i = 0; i < 7; ++i) {
      HostBuffer &buffer = buffers[layer * 7 + size_t(i)];
      ASSERT_TRUE(buffer.allocate("x", int64_t(bytes[i]), 0xFF).ok());
      *fields[i] = buffer.data();
    }
  }
  options.memory = memory.data();
  ApiCase c(options);
  const int32_t a = c.create(), b = c.create();
  EXPECT_EQ(c.append({a}, {128}), FFD_OUT_OF_PAGES);
  const int32_t pages[] = {39, 0, 17, 5};
  FFD_OK(ffdSequenceSetPages(c.cache, a, 0, pages, 2, nullptr));
  FFD_OK(ffdSequenceSetPages(c.cache, b, 0, pages + 2, 2, nullptr));
  ASSERT_EQ(c.append({a, b}, {300, 260}), FFD_SUCCESS);
  c.check({a, b});
  const int32_t bad[] = {3, 40, -1};
  EXPECT_EQ(ffdSequenceSetPages(c.cache, a, 2, bad, 2, nullptr),
            FFD_INVALID_ARGUMENT);
  EXPECT_STREQ(ffdLastErrorMessage(), "pages[1] is 40, expected 0 to 39");
  EXPECT_EQ(ffdSequenceSetPages(c.cache, a, 2, bad + 2, 1, nullptr),
            FFD_INVALID_ARGUMENT);
  EXPECT_EQ(ffdSequenceSetPages(c.cache, a, 1, bad, 1, nullptr),
            FFD_INVALID_ARGUMENT)
      << "a committed block has its page for good";
  EXPECT_EQ(ffdSequenceSetPages(c.cache, a, 3, bad, 1, nullptr),
            FFD_INVALID_ARGUMENT);
  memory[1].centre = nullptr;
  ffdCache *none = nullptr;
  EXPECT_EQ(ffdCacheCreate(referenceContext(), &options, &none),
            FFD_INVALID_ARGUMENT);
  options.spec.centre = FFD_CENTRE_NONE; // plain keys need no memory for it
  FFD_OK(ffdCacheCreate(referenceContext(), &options, &none));
  ffdCacheDestroy(none);
  memory[1].values = nullptr;
  ffdCache *broken = nullptr;
  EXPECT_EQ(ffdCacheCreate(referenceContext(), &options, &broken),
            FFD_INVALID_ARGUMENT);
  EXPECT_EQ(broken, nullptr);
}

} // namespace
