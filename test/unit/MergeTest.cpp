//===- MergeTest.cpp - Merging partial softmax results ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Any cut into pieces gives the whole; empty pieces change nothing; bad numbers
// surface.
//
//===----------------------------------------------------------------------===//

#include "ffd/Merge.h"

#include "gtest/gtest.h"

#include <random>

using namespace ffd;

namespace {

TEST(Merge, PiecesMakeTheWhole) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (int round = 0; round < 50; ++round) {
    Partial<double> whole(8), merged(8);
    for (int piece = 0; piece < 5; ++piece) {
      Partial<double> part(8);
      for (unsigned i = 0; i < random() % 7; ++i) {
        const double score = 200 * normal(random);
        double v[8];
        for (double &value : v)
          value = normal(random);
        whole.add(score, v);
        part.add(score, v);
      }
      merged.merge(part);
    }
    for (size_t i = 0; i < 8; ++i)
      EXPECT_NEAR(merged.output(i), whole.output(i), 1e-12);
    if (whole.seen) {
      EXPECT_NEAR(merged.lse(), whole.lse(), 1e-10);
    }
  }
}

TEST(Merge, NothingIsZeroAndMinusInfinity) {
  Partial<float> a(4), b(4);
  a.merge(b);
  EXPECT_FALSE(a.seen);
  EXPECT_EQ(a.output(2), 0.0f);
  EXPECT_EQ(a.lse(), -INFINITY);
}

TEST(Merge, BadNumbersSurface) {
  const double v[1] = {1};
  for (double bad : {double(NAN), double(INFINITY)}) {
    Partial<double> before(1), after(1), other(1), merged(1);
    before.add(0.0, v);
    before.add(bad, v);
    after.add(bad, v);
    after.add(0.0, v);
    other.add(0.0, v);
    merged.merge(other);
    merged.merge(after);
    for (const Partial<double> *p : {&before, &after, &merged}) {
      EXPECT_TRUE(std::isnan(p->output(0))) << bad;
      EXPECT_TRUE(std::isnan(p->lse())) << bad;
    }
  }
}

TEST(Merge, MinusInfinityHasNoWeightBesideFiniteScores) {
  const double one[1] = {1}, two[1] = {2};
  Partial<double> none(1), some(1);
  none.add(-INFINITY, one);
  EXPECT_TRUE(std::isnan(none.output(0)));
  some.merge(none);
  some.add(3.0, two);
  some.add(-INFINITY, one);
  some.merge(none);
  EXPECT_EQ(some.output(0), 2);
  EXPECT_EQ(some.lse(), 3);
}

} // namespace
