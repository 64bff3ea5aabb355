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

#include "CheckCase.h"

#include "ffd/Float16.h"

#include <algorithm>
#include <ctime>
#include <tuple>

using namespace ffd;

namespace {

/// A case and its number.
using Numbered = std::tuple<size_t, MatrixCase>;

class DecodeEmulation : public testing::TestWithParam<Numbered> {};

TEST_P(DecodeEmulation, MatchesReference) {
  const auto &[number, c] = GetParam();
  std::string error;
  EmulatedDecode decode(c.spec, c.arch, error);
  ASSERT_EQ(error, "");
  EXPECT_TRUE(checkCase(c, decode));
  // The CPU's kernel is compared with the same reference in tests of its own;
  // compiling it takes longer than all the rest.
  EXPECT_TRUE(checkScores(c, decode, number % 6 == 0 && hasCpuKernel()));
}

std::vector<Numbered> numberedCases() {
  std::vector<Numbered> cases;
  for (const MatrixCase &c : coveringCases(1))
    cases.push_back({cases.size(), c});
  return cases;
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

/// Pieces none of whose blocks is kept add nothing: those in the middle of one
/// sequence, and all of another, whose tail has all the weight.
TEST_P(LongRows, PiecesThatKeepNothing) {
  for (const ffdSpec &spec : {makeSpec(64, 64, 4, FFD_F16, 2, 32),
                              makeSpec(128, 48, 1, FFD_BF16, 4)}) {
    CaseShape shape;
    shape.spec = spec;
    shape.lengths = {1580, 1300, 0};
    shape.delta = 2;
    shape.keySpread = 0.3;
    std::string error;
    EmulatedDecode decode(spec, GetParam(), error);
    ASSERT_EQ(error, "");
    for (int splits : {12, 0}) { // 12 blocks or 10; 0: a plan
      RandomCase c(shape, 6);
      c.oppose(0, 256, 1280);
      c.oppose(1, 0, 1280);
      const emulator::Report report = decode.run(c, splits, {});
      ASSERT_TRUE(report.ok) << report.str();
      EXPECT_TRUE(matchesReference(c)) << "splits " << splits;
      const int64_t selects = 128 / spec.select_block;
      const uint8_t *kept = c.kept.data();
      EXPECT_EQ(std::count(kept + 2 * selects, kept + 10 * selects, 1), 0);
      EXPECT_GT(std::count(kept, kept + 12 * selects, 1), 0);
      kept += shape.kvHeads * c.args.kept_stride;
      EXPECT_EQ(std::count(kept, kept + 10 * selects, 1), 0);
    }
  }
}

/// Group, query tokens, head dim, element, scan bits, architecture, splits.
using QueryTokensCase = std::tuple<int, int, int, int, int, const char *, int>;
class QueryTokensEmulation : public testing::TestWithParam<QueryTokensCase> {};

TEST_P(QueryTokensEmulation, MatchesReference) {
  auto [group, tokens, headDim, element, bits, arch, splits] = GetParam();
  CaseShape shape;
  shape.spec = makeSpec(headDim, 64, group, element, bits, 32);
  shape.spec.query_tokens = tokens;
  shape.lengths = {300, 0, 1, tokens - 1, 128 + tokens};
  shape.keySpread = 0.5;
  std::string error;
  EmulatedDecode decode(shape.spec, arch, error);
  ASSERT_EQ(error, "");
  for (int64_t lag : {tokens - 1, 20}) {
    shape.lag = lag;
    shape.delta = lag == 20 ? 4 : 1;
    RandomCase c(shape, uint32_t(lag));
    const emulator::Report report = decode.run(c, splits, {}, 2);
    ASSERT_TRUE(report.ok) << report.str();
    EXPECT_TRUE(matchesReference(c)) << "lag " << lag;
  }
}

/// lse over centred keys is that of the keys themselves: one piece, several and
/// a plan, head tiles, query tokens, rows with and without committed blocks.
class CentredEmulation : public testing::TestWithParam<QueryTokensCase> {};

TEST_P(CentredEmulation, MatchesReference) {
  auto [group, tokens, headDim, element, bits, arch, splits] = GetParam();
  CaseShape shape;
  shape.spec = makeSpec(headDim, 64, group, element, bits, 16);
  shape.spec.query_tokens = tokens;
  shape.spec.centre = FFD_CENTRE_ROW;
  shape.lengths = {600, 0, 1, 127, 128 + tokens};
  shape.keySpread = 0.5;
  shape.lag = tokens - 1;
  shape.delta = 1;
  std::string error;
  EmulatedDecode decode(shape.spec, arch, error);
  ASSERT_EQ(error, "");
  RandomCase c(shape, uint32_t(headDim));
  for (size_t i = 0; i < c.k.size(); ++i)
    c.k[i] = f32ToElement(element, elementToF32(element, c.k[i]) +
                                       float(i % size_t(headDim) % 3) / 2);
  c.build();
  const emulator::Report report = decode.run(c, splits, {}, 2);
  ASSERT_TRUE(report.ok) << report.str();
  EXPECT_TRUE(matchesReference(c));
}

INSTANTIATE_TEST_SUITE_P(
    Few, CentredEmulation,
    testing::Values(QueryTokensCase{4, 1, 128, FFD_F16, 2, "sm_90a", 2},
                    QueryTokensCase{1, 1, 64, FFD_BF16, 4, "sm_80", 1},
                    QueryTokensCase{16, 1, 256, FFD_F16, 2, "sm_90a", 0},
                    QueryTokensCase{3, 3, 80, FFD_BF16, 2, "sm_80", 3}));

INSTANTIATE_TEST_SUITE_P(
    Few, QueryTokensEmulation,
    testing::Values(QueryTokensCase{4, 4, 128, FFD_F16, 2, "sm_90a", 2},
                    QueryTokensCase{1, 8, 64, FFD_BF16, 4, "sm_80", 1},
                    QueryTokensCase{8, 2, 96, FFD_F16, 8, "sm_90a", 1},
                    QueryTokensCase{3, 5, 80, FFD_BF16, 2, "sm_80", 3},
                    QueryTokensCase{1, 2, 64, FFD_F16, 2, "sm_120a", 0}));

INSTANTIATE_TEST_SUITE_P(Archs, LongRows,
                         testing::Values("sm_80", "sm_86", "sm_90a",
                                         "sm_120a"));
INSTANTIATE_TEST_SUITE_P(Pairwise, DecodeEmulation,
                         testing::ValuesIn(numberedCases()));

} // namespace
