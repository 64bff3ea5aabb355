//===- CentreTest.cpp - Keys relative to a vector of their row ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// centre_c1 to centre_c3 against a scalar transcription, and what a cache with
// centres holds.
//
//===----------------------------------------------------------------------===//

#include "RandomCase.h"

#include "ffd/Centre.h"
#include "ffd/Float16.h"
#include "ffd/Split.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstring>
#include <random>

using namespace ffd;

namespace {

/// c of one channel, token by token.
uint16_t slowCentre(int32_t element, const std::vector<uint16_t> &keys) {
  float p[8] = {};
  for (size_t t = 0; t < keys.size(); ++t)
    p[t % 8] += elementToF32(element, keys[t]);
  const float q0 = p[0] + p[4], q1 = p[1] + p[5], q2 = p[2] + p[6],
              q3 = p[3] + p[7];
  const float r0 = q0 + q2, r1 = q1 + q3;
  const float mean = (r0 + r1) / 128;
  const uint16_t bits = f32ToElement(element, mean);
  return std::isfinite(elementToF32(element, bits)) ? bits : 0;
}

TEST(Centre, MeanInAFixedOrder) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const ffdSpec &spec : allSplitSpecs()) {
    const int64_t dim = spec.head_dim, stride = dim + 8;
    std::vector<uint16_t> k(size_t(128 * stride));
    for (size_t i = 0; i < k.size(); ++i)
      k[i] =
          f32ToElement(spec.element, (normal(random) + float(i % stride % 7)) *
                                         std::exp(float(i % stride % 5) - 2));
    const uint16_t nan = canonicalNaN(spec.element),
                   infinity = spec.element == FFD_F16 ? 0x7C00 : 0x7F80;
    k[size_t(5 * stride + 1)] = nan;
    k[size_t(127 * stride + 2)] = infinity;
    k[size_t(3 * stride + 4)] = infinity | 0x8000;
    k[size_t(4 * stride + 4)] = infinity;
    for (int64_t t = 0; t < 128; ++t) // the largest finite number
      k[size_t(t * stride + 6)] = infinity - 1;
    std::vector<uint16_t> c(size_t(dim) + 1, 0x1234);
    centreOf(spec, k.data(), stride, c.data());
    EXPECT_EQ(c[size_t(dim)], 0x1234);
    for (int64_t channel = 0; channel < dim; ++channel) {
      std::vector<uint16_t> keys;
      for (int64_t t = 0; t < 128; ++t)
        keys.push_back(k[size_t(t * stride + channel)]);
      ASSERT_EQ(c[size_t(channel)], slowCentre(spec.element, keys))
          << "channel " << channel;
    }
    EXPECT_EQ(c[1] | c[2] | c[4], 0);
    EXPECT_EQ(c[6], spec.element == FFD_F16 ? infinity - 1 : 0);
  }
}

/// d is what one rounding of the exact difference gives, as GPUs compute it.
TEST(Centre, DifferencesRoundOnce) {
  std::mt19937 random(4);
  for (int32_t element : {FFD_F16, FFD_BF16}) {
    const ffdSpec spec = makeSpec(64, 64, 1, element);
    for (int round = 0; round < 3000; ++round) {
      uint16_t k[64], c[64], d[64];
      for (int i = 0; i < 64; ++i) {
        k[i] = uint16_t(random());
        c[i] = uint16_t(random());
        if (i % 2) // near each other, so that small bits matter
          c[i] = uint16_t((k[i] & 0xFC00) | (c[i] & 0x3FF));
        if (!std::isfinite(elementToF32(element, c[i])))
          c[i] = 0;
      }
      centreKeys(spec, k, 0, 1, c, d, 0);
      for (int i = 0; i < 64; ++i) {
        const double exact = double(elementToF32(element, k[i])) -
                             double(elementToF32(element, c[i]));
        if (std::isnan(exact)) {
          ASSERT_EQ(d[i], 0x7FFF);
          continue;
        }
        const double got = elementToF32(element, d[i]);
        if (!std::isfinite(got)) {
          ASSERT_GT(exact * (got > 0 ? 1 : -1),
                    double(elementToF32(element, uint16_t(d[i] - 1) & 0x7FFF)));
          continue;
        }
        for (int step : {-1, 1}) {
          const uint16_t next = uint16_t(d[i] + step);
          if ((next & 0x7FFF) > (d[i] & 0x7FFF) + 1)
            continue; // below zero
          const double other = elementToF32(element, next);
          const double mine = std::fabs(got - exact),
                       its = std::fabs(other - exact);
          ASSERT_TRUE(mine < its || (mine == its && d[i] % 2 == 0) ||
                      !std::isfinite(other))
              << k[i] << " - " << c[i] << " = " << d[i];
        }
      }
      // In place, and back.
      uint16_t same[64];
      std::memcpy(same, k, sizeof k);
      centreKeys(spec, same, 64, 1, c, same, 64);
      ASSERT_EQ(std::memcmp(same, d, sizeof d), 0);
    }
    EXPECT_EQ(uncentred(spec, 0.25f, f32ToElement(element, 1.5f)), 1.75f);
  }
}

TEST(Centre, CacheHoldsRelativeKeys) {
  for (bool shared : {false, true})
    for (int64_t lag : {0, 100}) {
      CaseShape shape;
      shape.spec = makeSpec(80, 48, 2, shared ? FFD_BF16 : FFD_F16, 2);
      shape.spec.centre = FFD_CENTRE_ROW;
      shape.lengths = {0, 127, 128, 129, 300, 700};
      shape.lag = lag;
      shape.sharedKV = shared;
      shape.pageSeed = 5;
      RandomCase c(shape, 9);
      for (uint16_t &k : c.k) // a mean
        k = f32ToElement(shape.spec.element,
                         elementToF32(shape.spec.element, k) + 2.5f);
      c.build();
      const SplitCache &cache = *c.cache;
      const Layout &l = cache.layout();
      EXPECT_TRUE(checkArgs(shape.spec, Program::Decode, c.args).ok());
      for (int64_t s = 0; s < cache.batch(); ++s)
        for (int64_t h = 0; h < cache.kvHeads(); ++h) {
          const int64_t stride = shape.kvHeads * 80;
          const uint16_t *k =
              c.k.data() +
              ((shared ? 0 : s) * c.tokens * shape.kvHeads + h) * 80;
          std::vector<uint16_t> centre(80, 0);
          if (cache.blocks(s) > 0)
            centreOf(shape.spec, k, stride, centre.data());
          ASSERT_EQ(cache.centre(s, h),
                    static_cast<const uint16_t *>(c.args.centre) +
                        (s * shape.kvHeads + h) * 80);
          ASSERT_EQ(std::memcmp(cache.centre(s, h), centre.data(), 160), 0);
          std::vector<uint16_t> d(size_t(c.tokens * 80));
          centreKeys(shape.spec, k, stride, c.tokens, centre.data(), d.data(),
                     80);
          for (int64_t block = 0; block < cache.blocks(s); ++block) {
            std::vector<uint8_t> thumbnail(size_t(l.thumbnailBytes())),
                residual(size_t(l.residualBytes()));
            splitBlock(shape.spec, d.data() + block * 128 * 80, 80,
                       thumbnail.data(), residual.data());
            const int64_t page = cache.page(s, block);
            ASSERT_EQ(std::memcmp(cache.thumbnail(page, h), thumbnail.data(),
                                  thumbnail.size()),
                      0);
            ASSERT_EQ(std::memcmp(cache.residual(page, h), residual.data(),
                                  residual.size()),
                      0);
          }
          const auto *tail =
              static_cast<const uint16_t *>(c.args.tail_k) +
              (s * c.args.tail_batch_stride + h * c.args.tail_head_stride) * 80;
          ASSERT_EQ(std::memcmp(tail, d.data() + cache.blocks(s) * 128 * 80,
                                size_t(cache.tailLength(s)) * 160),
                    0);
        }
    }
}

TEST(Centre, ArgumentsNeedOne) {
  CaseShape shape;
  shape.spec.centre = FFD_CENTRE_ROW;
  RandomCase c(shape, 1);
  ffdDecodeArgs args = c.args;
  args.centre = nullptr;
  EXPECT_EQ(checkArgs(shape.spec, Program::Decode, args).message(),
            "'ffdDecodeArgs' field 'centre' is null, expected a pointer");
  ffdSpec plain = shape.spec;
  plain.centre = FFD_CENTRE_NONE;
  EXPECT_TRUE(checkArgs(plain, Program::Decode, args).ok());
  plain.centre = 2;
  EXPECT_EQ(checkSpec(plain).message(),
            "'ffdSpec' field 'centre' is 2, expected 0 (none) or 1 (row)");
  EXPECT_EQ(specName(shape.spec), "d128-v128-g4-f16-b2-q128-s16-crow");
  EXPECT_TRUE(shape.spec != makeSpec());
}

} // namespace
