//===- RefinedMaxEmulationTest.cpp - Refined pseudo-max, emulated ---------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The decode whose pseudo-max is one of refined scores (select_c5, select_c6),
// where the matrix of kernels does not go: query tokens, centred keys, rows of
// every length about the first blocks, thresholds to the unit.
//
//===----------------------------------------------------------------------===//

#include "EmulatedDecode.h"
#include "ReferenceDecode.h"

#include "ffd/Float16.h"

#include <cmath>
#include <cstring>

using namespace ffd;

namespace {

struct RefinedCase {
  int headDim, group, tokens, element, bits, select;
  const char *arch;
  int splits; ///< 0: as a plan says
  bool centred;

  ffdSpec spec() const {
    ffdSpec spec = makeSpec(headDim, 64, group, element, bits, select);
    spec.query_tokens = tokens;
    spec.centre = centred ? FFD_CENTRE_ROW : FFD_CENTRE_NONE;
    spec.pseudo_max = FFD_PSEUDO_MAX_REFINED;
    return spec;
  }
};

void PrintTo(const RefinedCase &c, std::ostream *os) {
  *os << specName(c.spec()) << " " << c.arch << " splits " << c.splits;
}

const RefinedCase cases[] = {
    {64, 4, 1, FFD_F16, 2, 16, "sm_90a", 2, false},
    {128, 4, 1, FFD_F16, 2, 16, "sm_90a", 0, true},
    {80, 3, 3, FFD_BF16, 2, 16, "sm_80", 3, true},
    {96, 8, 2, FFD_F16, 8, 32, "sm_90a", 1, false},
    {128, 1, 1, FFD_BF16, 4, 64, "sm_86", 1, true},
    {128, 8, 1, FFD_BF16, 2, 16, "sm_100a", 2, false},
    {256, 4, 2, FFD_F16, 2, 16, "sm_120a", 0, true},
    {256, 3, 1, FFD_BF16, 4, 32, "sm_89", 2, false},
    {64, 1, 8, FFD_F16, 8, 16, "sm_90a", 5, true},
};

class RefinedMax : public testing::TestWithParam<RefinedCase> {
protected:
  void SetUp() override {
    const RefinedCase &c = GetParam();
    shape.spec = c.spec();
    shape.keySpread = 0.5;
    shape.kvHeads = 1;
    decode = std::make_unique<EmulatedDecode>(shape.spec, c.arch, error);
    ASSERT_EQ(error, "");
  }
  /// A case with a mean in every key channel, if keys are centred.
  std::unique_ptr<RandomCase> draw(uint32_t seed) const {
    auto c = std::make_unique<RandomCase>(shape, seed);
    if (!shape.spec.centre)
      return c;
    const int element = shape.spec.element;
    for (size_t i = 0; i < c->k.size(); ++i)
      c->k[i] = f32ToElement(
          element, elementToF32(element, c->k[i]) +
                       float(i % size_t(shape.spec.head_dim) % 3) / 2);
    c->build();
    return c;
  }

  CaseShape shape;
  std::string error;
  std::unique_ptr<EmulatedDecode> decode;
};

/// No committed block, one, two and more, with every kind of tail.
TEST_P(RefinedMax, MatchesReference) {
  const int tokens = GetParam().tokens;
  shape.lengths = {0, 1, 128 + tokens, 255, 256, 600};
  int differ = 0;
  for (int64_t lag : {tokens - 1, 40}) {
    shape.lag = lag;
    shape.delta = lag == 40 ? 3 : 0.5f;
    const std::unique_ptr<RandomCase> c = draw(uint32_t(lag));
    const emulator::Report report =
        decode->run(*c, GetParam().splits, {}, /*launches=*/2);
    ASSERT_TRUE(report.ok) << report.str();
    EXPECT_TRUE(matchesReference(*c)) << "lag " << lag;
    // From two bits, another pseudo-max would have kept other blocks.
    const ReferenceDecode refined(shape.spec, c->args);
    const ReferenceDecode plain(withoutRule(shape.spec), c->args);
    for (int64_t s = 0; s < c->batch(); ++s)
      differ += refined.row(s, 0).kept != plain.row(s, 0).kept;
  }
  if (GetParam().bits == 2)
    EXPECT_GT(differ, 0);
}

/// A delta that is just enough for a selection block, and the next smaller one:
/// the pseudo-max is right to the unit.
TEST_P(RefinedMax, IsExact) {
  const int tokens = GetParam().tokens;
  shape.lag = tokens - 1;
  shape.sharedKV = true;
  shape.lengths = {400 + tokens, 400 + tokens};
  int found = 0;
  for (uint32_t seed = 1; seed <= 40 && !found; ++seed) {
    const std::unique_ptr<RandomCase> c = draw(seed);
    // Both sequences ask the same.
    std::memcpy(c->q.data() + c->q.size() / 2, c->q.data(),
                size_t(c->q.size() / 2));
    const ReferenceDecode reference(shape.spec, c->args);
    const auto keptAt = [&](float delta) {
      c->delta[0] = delta;
      return reference.row(0, 0).kept;
    };
    // Bisects between two deltas of different kept sets.
    float below = 0, above = 8;
    const auto first = keptAt(below);
    if (keptAt(above) == first)
      continue;
    while (std::nextafter(below, above) < above) {
      const float middle = below + (above - below) / 2;
      (keptAt(middle) == first ? below : above) = middle;
    }
    c->delta[0] = below;
    c->delta[1] = above;
    const emulator::Report report = decode->run(*c, GetParam().splits, {});
    ASSERT_TRUE(report.ok) << report.str();
    EXPECT_TRUE(matchesReference(*c));
    const auto sets = c->kept.data();
    EXPECT_NE(std::memcmp(sets, sets + c->args.kept_stride, first.size()), 0);
    ++found;
  }
  EXPECT_EQ(found, 1) << "no row whose kept set depends on delta";
}

INSTANTIATE_TEST_SUITE_P(Some, RefinedMax, testing::ValuesIn(cases));

} // namespace
