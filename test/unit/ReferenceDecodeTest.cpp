//===- ReferenceDecodeTest.cpp - The oracle, tested itself ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Against float64 dense attention when nothing is skipped, against the error
// bound of the scan, and on every path that keeps everything.
//
//===----------------------------------------------------------------------===//

#include "ReferenceDecode.h"
#include "RandomCase.h"

#include "ffd/Float16.h"
#include "ffd/Split.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>

using namespace ffd;

namespace {

class ReferenceTest : public testing::TestWithParam<ffdSpec> {};

double relativeError(const std::vector<double> &reference, const double *got) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    difference += (got[i] - reference[i]) * (got[i] - reference[i]);
    norm += reference[i] * reference[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

TEST_P(ReferenceTest, InfiniteDeltaIsDenseAttention) {
  CaseShape shape;
  shape.spec = GetParam();
  shape.kvHeads = 1;
  shape.lengths = {1, 128, 300};
  shape.delta = INFINITY;
  // Random values average to little, which makes a relative error of the
  // output strict: keep the scores as mild as the bar of the spec assumes.
  shape.keySpread = 0.15;
  RandomCase c(shape, 5);
  const ReferenceDecode reference(shape.spec, c.args);
  const bool half = shape.spec.element == FFD_F16;
  for (int64_t s = 0; s < c.batch(); ++s) {
    const ReferenceDecode::Row row = reference.row(s, 0);
    EXPECT_EQ(std::count(row.kept.begin(), row.kept.end(), 0), 0);
    for (int64_t g = 0; g < shape.spec.group; ++g) {
      double lse;
      const std::vector<double> dense = c.denseAttention(s, g, lse);
      EXPECT_LE(
          relativeError(dense, &row.out[size_t(g * shape.spec.value_dim)]),
          half ? 5e-3 : 2e-2);
      EXPECT_NEAR(row.lse[size_t(g)], lse, 5e-3);
    }
  }
}

TEST_P(ReferenceTest, ScanKeepsItsErrorBound) {
  CaseShape shape;
  shape.spec = GetParam();
  shape.spec.group = 2;
  shape.kvHeads = 1;
  shape.lengths = {400};
  RandomCase c(shape, 6);
  const ReferenceDecode::Row row =
      ReferenceDecode(shape.spec, c.args).row(0, 0);
  const Layout &l = c.cache->layout();
  const double limit = ((1 << shape.spec.scan_bits) - 1) / 2.0;
  for (int64_t g = 0; g < 2; ++g) {
    const uint16_t *q = c.q.as<uint16_t>() + g * shape.spec.head_dim;
    const double scale = std::ldexp(double(row.m[size_t(g)]), row.exponent);
    const double u = scale / 126;
    for (int64_t token = 0; token < 384; ++token) {
      const uint8_t *thumbnail =
          c.cache->thumbnail(c.cache->page(0, token / 128), 0);
      double exact = 0, bound = 0;
      for (int64_t ch = 0; ch < shape.spec.head_dim; ++ch) {
        const double s =
            elementToF32(shape.spec.element, scaleAt(l, thumbnail, ch));
        const double qs = elementToF32(shape.spec.element, q[ch]) * s;
        const double t = codeAt(l, thumbnail, token % 128, ch) - limit;
        exact += qs * t;
        bound += std::fabs(t) * (0x1p-8 + 0x1p-10 * (1 + std::fabs(qs / u)));
      }
      const double a =
          double(row.unit[size_t(g)]) * row.scores[size_t(g * 384 + token)];
      ASSERT_LE(std::fabs(a - c.args.sm_scale * exact),
                c.args.sm_scale * u * bound * 1.0001)
          << token;
    }
  }
}

TEST_P(ReferenceTest, KeptSetsGrowWithDelta) {
  CaseShape shape;
  shape.spec = GetParam();
  shape.kvHeads = 1;
  shape.lengths = {700};
  RandomCase c(shape, 8);
  std::vector<uint8_t> previous;
  for (float delta : {0.0f, 1.0f, 3.0f, 6.0f, 1e6f}) {
    c.delta[0] = delta;
    const auto row = ReferenceDecode(shape.spec, c.args).row(0, 0);
    for (size_t i = 0; i < previous.size(); ++i)
      EXPECT_LE(previous[i], row.kept[i]);
    previous = row.kept;
    // The block of the pseudo-max itself is within any delta.
    if (delta == 0) {
      EXPECT_LT(std::count(row.kept.begin(), row.kept.end(), 1),
                int64_t(row.kept.size()));
    }
  }
  EXPECT_EQ(std::count(previous.begin(), previous.end(), 0), 0);
}

std::string nameOf(const testing::TestParamInfo<ffdSpec> &info) {
  return "d" + std::to_string(info.param.head_dim) + "b" +
         std::to_string(info.param.scan_bits) + elementName(info.param.element);
}
INSTANTIATE_TEST_SUITE_P(All, ReferenceTest, testing::ValuesIn(allSplitSpecs()),
                         nameOf);

TEST(Reference, NothingVisibleIsZero) {
  CaseShape shape;
  shape.lengths = {0, 200};
  RandomCase c(shape, 9);
  const auto row = ReferenceDecode(shape.spec, c.args).row(0, 1);
  for (double value : row.out)
    EXPECT_EQ(value, 0);
  for (double lse : row.lse)
    EXPECT_EQ(lse, -INFINITY);
}

TEST(Reference, BadNumbersKeepEverythingAndSurface) {
  for (int element : {FFD_F16, FFD_BF16})
    for (float bad : {float(NAN), float(INFINITY)})
      for (int where = 0; where < 3; ++where) { // q, committed K, tail K
        CaseShape shape;
        shape.spec = makeSpec(64, 64, 2, element);
        shape.lengths = {300, 300};
        shape.delta = 0;
        RandomCase c(shape, 10);
        const auto neighbour = ReferenceDecode(shape.spec, c.args).row(1, 1);
        const uint16_t bits = f32ToElement(element, bad);
        const int64_t row = shape.kvHeads * 64;
        if (where == 0)
          c.q.as<uint16_t>()[5] = bits;
        else
          c.k[size_t((where == 1 ? 20 : 290) * row + 5)] = bits;
        c.build();
        const ReferenceDecode reference(shape.spec, c.args);
        const auto r = reference.row(0, 0);
        EXPECT_EQ(r.nonFinite, where < 2);
        EXPECT_EQ(std::count(r.kept.begin(), r.kept.end(), 0), 0);
        EXPECT_FALSE(std::isfinite(r.out[0]) && std::isfinite(r.lse[0]));
        const auto after = reference.row(1, 1);
        EXPECT_EQ(after.kept, neighbour.kept);
        EXPECT_EQ(after.out, neighbour.out);
        EXPECT_EQ(after.lse, neighbour.lse);
      }
}

TEST(Reference, ZeroQueriesAndKeysKeepEverything) {
  CaseShape shape;
  shape.delta = 0;
  shape.lengths = {300};
  RandomCase zeroQ(shape, 11);
  std::fill_n(zeroQ.q.as<uint16_t>(), zeroQ.q.size() / 2, uint16_t(0));
  RandomCase zeroK(shape, 11);
  std::fill(zeroK.k.begin(), zeroK.k.end(), uint16_t(0));
  zeroK.build();
  for (RandomCase *c : {&zeroQ, &zeroK}) {
    const auto row = ReferenceDecode(shape.spec, c->args).row(0, 0);
    EXPECT_EQ(row.unit[0], 0); // F = 0: select_c3
    EXPECT_EQ(std::count(row.kept.begin(), row.kept.end(), 0), 0);
    EXPECT_NEAR(row.lse[0], std::log(300.0), 1e-5);
  }
}

TEST(Reference, ExtremeMagnitudesStayFinite) {
  for (int element : {FFD_F16, FFD_BF16})
    for (double spread : {1e-6, 1e4, 1e20}) {
      if (element == FFD_F16 && spread > 1e4)
        continue;
      CaseShape shape;
      shape.spec = makeSpec(64, 64, 2, element);
      shape.keySpread = spread / (element == FFD_F16 ? 50 : 1);
      shape.lengths = {300};
      RandomCase c(shape, 12);
      const auto row = ReferenceDecode(shape.spec, c.args).row(0, 0);
      EXPECT_FALSE(row.nonFinite);
      for (int32_t a : row.scores)
        ASSERT_LT(std::abs(int64_t(a)), int64_t(1) << 30);
      EXPECT_TRUE(std::isfinite(row.lse[0])) << element << " " << spread;
    }
}

TEST(Reference, PagesMayLieAnywhere) {
  CaseShape shape;
  shape.lengths = {700, 300};
  RandomCase a(shape, 13);
  shape.pageSeed = 99;
  RandomCase b(shape, 13);
  for (int64_t s = 0; s < 2; ++s) {
    const auto x = ReferenceDecode(shape.spec, a.args).row(s, 1);
    const auto y = ReferenceDecode(shape.spec, b.args).row(s, 1);
    EXPECT_EQ(x.kept, y.kept);
    EXPECT_EQ(x.out, y.out);
  }
}

} // namespace
