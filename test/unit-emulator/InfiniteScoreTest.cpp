//===- InfiniteScoreTest.cpp - Sequences of infinite scores only ----------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A sequence whose scores are all infinite has weights that sum to 0 or NaN. It
// is not an empty sequence: its output is NaN, whatever the sign of the scores
// and however it is cut into pieces.
//
//===----------------------------------------------------------------------===//

#include "EmulatedDecode.h"

#include "ffd/Float16.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>

using namespace ffd;

TEST(InfiniteScore, IsNotAnEmptySequence) {
  const ffdSpec spec = makeSpec(64, 64, 2);
  std::string error;
  EmulatedDecode decode(spec, "sm_90a", error);
  ASSERT_EQ(error, "");
  for (uint16_t infinity : {0x7C00, 0xFC00})
    for (int splits : {1, 3}) {
      CaseShape shape;
      shape.spec = spec;
      shape.kvHeads = 1;
      shape.lengths = {2, 0};
      RandomCase c(shape, 9);
      std::fill(c.k.begin(), c.k.end(), f32ToF16(1));
      c.build();
      c.q.as<uint16_t>()[5] = infinity;
      const emulator::Report report = decode.run(c, splits, {});
      ASSERT_TRUE(report.ok) << report.str();
      EXPECT_TRUE(std::isnan(c.out.as<float>()[0]));
      EXPECT_EQ(c.out.as<float>()[2 * 64], 0) << "of the empty sequence";
      EXPECT_TRUE(matchesReference(c));
    }
}

// A finite score, however low, is a score: one token alone is attended fully,
// also where exp of its score is 0 in f32 (-2^11 / 8 = -256).
TEST(VeryLowScore, IsAttended) {
  ffdSpec spec = makeSpec(64, 64, 2);
  spec.element = FFD_BF16;
  std::string error;
  EmulatedDecode decode(spec, "sm_90a", error);
  ASSERT_EQ(error, "");
  for (float low : {0x1p120f, 0x1p11f})
    for (int splits : {1, 3}) {
      CaseShape shape;
      shape.spec = spec;
      shape.kvHeads = 1;
      shape.lengths = {1};
      RandomCase c(shape, 9);
      std::fill(c.k.begin(), c.k.end(), f32ToBF16(0));
      c.k[5] = f32ToBF16(-low * 0x1p-10f);
      c.build();
      for (int64_t h = 0; h < 2; ++h)
        c.q.as<uint16_t>()[h * 64 + 5] = f32ToBF16(0x1p10f);
      const emulator::Report report = decode.run(c, splits, {});
      ASSERT_TRUE(report.ok) << report.str();
      for (int64_t i = 0; i < 64; ++i)
        EXPECT_EQ(c.out.as<float>()[i], bf16ToF32(c.v[size_t(i)]));
      EXPECT_FLOAT_EQ(c.lse.as<float>()[0], -low / 8);
    }
}
