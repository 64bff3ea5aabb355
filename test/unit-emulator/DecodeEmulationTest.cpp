//===- DecodeEmulationTest.cpp - The generated kernel, emulated ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The decode kernel that the compiler generates, on the emulator with all its
// checks, against the reference: a covering set of the kernel matrix.
//
//===----------------------------------------------------------------------===//

#include "EmulatedDecode.h"

#include "ffd/Float16.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <random>
#include <set>

using namespace ffd;

namespace {

/// What is special about the input.
enum class Content {
  Plain,
  ZeroQuery,
  NaNQuery,
  InfiniteQuery,
  NaNKey,
  ZeroKeys
};

/// One kernel and what it gets.
struct Case {
  ffdSpec spec;
  const char *arch;
  std::vector<int64_t> lengths;
  float delta;
  int splits;
  int64_t lag;
  Content content;
};

void PrintTo(const Case &c, std::ostream *os) {
  *os << specName(c.spec) << " " << c.arch << " splits " << c.splits
      << " delta " << c.delta << " lag " << c.lag << " content "
      << int(c.content) << " lengths";
  for (int64_t length : c.lengths)
    *os << " " << length;
}

void fillContent(RandomCase &c, Content content) {
  const ffdSpec &spec = c.shape.spec;
  const uint16_t nan = spec.element == FFD_F16 ? 0x7E00 : 0x7FC0;
  const uint16_t infinity = spec.element == FFD_F16 ? 0x7C00 : 0x7F80;
  switch (content) {
  case Content::Plain:
    break;
  case Content::ZeroQuery:
    for (int i = 0; i < spec.head_dim; ++i)
      c.q.as<uint16_t>()[i] = 0;
    break;
  case Content::NaNQuery:
    c.q.as<uint16_t>()[3] = nan;
    break;
  case Content::InfiniteQuery:
    c.q.as<uint16_t>()[5] = infinity;
    break;
  case Content::NaNKey:
    c.k[c.k.size() / 3] = nan;
    c.build();
    break;
  case Content::ZeroKeys:
    std::fill(c.k.begin(), c.k.end(), 0);
    c.build();
    break;
  }
}

/// A covering set: every pair of values of two factors occurs in some case.
/// Greedy and deterministic: each case is the best of some random ones.
std::vector<Case> coveringCases(uint32_t seed) {
  const std::vector<int> headDims = {64, 80, 96, 128, 192, 256};
  const std::vector<int> valueDims = {0, 64, 80, 256}; // 0: as head_dim
  const std::vector<int> groups = {1, 2, 3, 4, 5, 8, 11, 16};
  const std::vector<int> elements = {FFD_F16, FFD_BF16};
  const std::vector<int> bits = {2, 4, 8};
  const std::vector<int> selects = {16, 32, 64, 128};
  const std::vector<const char *> archs = {"sm_80", "sm_90a"};
  const std::vector<std::vector<int64_t>> lengths = {
      {0}, {1}, {0, 127, 128}, {129, 300}, {1000}, {640, 0, 2500}};
  const std::vector<float> deltas = {0, 1, 5, INFINITY};
  const std::vector<int> splits = {1, 2, 5};
  const std::vector<int> lags = {0, 64, 200};
  const std::vector<Content> contents = {
      Content::Plain,         Content::ZeroQuery, Content::NaNQuery,
      Content::InfiniteQuery, Content::NaNKey,    Content::ZeroKeys};
  const size_t sizes[] = {headDims.size(), valueDims.size(), groups.size(),
                          elements.size(), bits.size(),      selects.size(),
                          archs.size(),    lengths.size(),   deltas.size(),
                          splits.size(),   lags.size(),      contents.size()};
  constexpr size_t factors = 12;
  using Choice = std::array<size_t, factors>;
  std::set<std::array<size_t, 4>> open;
  for (size_t a = 0; a < factors; ++a)
    for (size_t b = 0; b < a; ++b)
      for (size_t x = 0; x < sizes[a]; ++x)
        for (size_t y = 0; y < sizes[b]; ++y)
          open.insert({a, b, x, y});
  std::mt19937 random(seed);
  const auto gain = [&](const Choice &choice) {
    size_t count = 0;
    for (size_t a = 0; a < factors; ++a)
      for (size_t b = 0; b < a; ++b)
        count += open.count({a, b, choice[a], choice[b]});
    return count;
  };
  std::vector<Case> cases;
  while (!open.empty()) {
    Choice best = {};
    size_t bestGain = 0;
    for (int attempt = 0; attempt < 200; ++attempt) {
      Choice choice;
      for (size_t f = 0; f < factors; ++f)
        choice[f] = random() % sizes[f];
      // One open pair is certain.
      auto pair = *std::next(open.begin(), long(random() % open.size()));
      choice[pair[0]] = pair[2];
      choice[pair[1]] = pair[3];
      if (size_t g = gain(choice); g > bestGain) {
        bestGain = g;
        best = choice;
      }
    }
    for (size_t a = 0; a < factors; ++a)
      for (size_t b = 0; b < a; ++b)
        open.erase({a, b, best[a], best[b]});
    const int d = headDims[best[0]], v = valueDims[best[1]];
    cases.push_back({makeSpec(d, v ? v : d, groups[best[2]], elements[best[3]],
                              bits[best[4]], selects[best[5]]),
                     archs[best[6]], lengths[best[7]], deltas[best[8]],
                     splits[best[9]], lags[best[10]], contents[best[11]]});
  }
  return cases;
}

class DecodeEmulation : public testing::TestWithParam<Case> {};

TEST_P(DecodeEmulation, MatchesReference) {
  const Case &p = GetParam();
  CaseShape shape;
  shape.spec = p.spec;
  shape.lengths = p.lengths;
  shape.delta = p.delta;
  shape.lag = p.lag;
  shape.kvHeads = 2;
  shape.pageSeed = 7;
  shape.keySpread = 0.5;
  RandomCase c(shape, 11);
  fillContent(c, p.content);
  std::string error;
  EmulatedDecode decode(p.spec, p.arch, error);
  ASSERT_EQ(error, "");
  emulator::Options options;
  options.seed = 3;
  // Twice: a launch must leave the workspace as it found it.
  const emulator::Report report = decode.run(c, p.splits, options, 2);
  ASSERT_TRUE(report.ok) << report.str();
  EXPECT_TRUE(matchesReference(c));
}

class LongRows : public testing::TestWithParam<const char *> {};

/// Rows that go through every ring and queue more than once, and results that
/// do not depend on the schedule: the same bits for every seed.
TEST_P(LongRows, MatchAndDoNotDependOnTheSchedule) {
  CaseShape shape;
  shape.spec = makeSpec(64, 64, 4);
  shape.kvHeads = 1;
  shape.lengths = {33500, 5000};
  shape.delta = 0.7f;
  RandomCase c(shape, 2);
  std::string error;
  clock_t start = clock();
  const auto milliseconds = [&start] {
    clock_t now = clock();
    int result = int((now - start) * 1000 / CLOCKS_PER_SEC);
    start = now;
    return result;
  };
  EmulatedDecode decode(shape.spec, GetParam(), error);
  ASSERT_EQ(error, "");
  RecordProperty("compile_ms", milliseconds());
  std::vector<uint8_t> first;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    emulator::Options options;
    options.seed = seed;
    options.residentBlocks = unsigned(seed);
    const emulator::Report report = decode.run(c, 2, options);
    RecordProperty("run_ms_" + std::to_string(seed), milliseconds());
    ASSERT_TRUE(report.ok) << report.str();
    std::vector<uint8_t> bits(c.out.data(), c.out.data() + c.out.size());
    bits.insert(bits.end(), c.lse.data(), c.lse.data() + c.lse.size());
    if (seed == 1)
      first = bits;
    else
      EXPECT_TRUE(bits == first) << "seed " << seed;
  }
  EXPECT_TRUE(matchesReference(c));
}

INSTANTIATE_TEST_SUITE_P(Archs, LongRows, testing::Values("sm_80", "sm_90a"));
INSTANTIATE_TEST_SUITE_P(Pairwise, DecodeEmulation,
                         testing::ValuesIn(coveringCases(1)));

} // namespace
