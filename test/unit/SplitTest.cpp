//===- SplitTest.cpp - The quantiser against the spec ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Codes, residuals and scales bit by bit against a second transcription of
// split_c1 to split_c6 that shares no code with the first, on ordinary and on
// hostile channels; and the bound of the reconstruction.
//
//===----------------------------------------------------------------------===//

#include "RandomCase.h"

#include "ffd/Float16.h"
#include "ffd/Split.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <random>

using namespace ffd;

namespace {

/// One channel of one block, quantised in float64 and long arithmetic: all
/// values of the two element types, and f32 divisions of them by constants, are
/// such that float64 rounded once to f32 is the f32 operation.
struct SlowChannel {
  uint16_t s = 0;
  std::vector<int> x;
};

double toDouble(int32_t element, uint16_t bits) {
  const int sign = bits >> 15 ? -1 : 1;
  const int mantissaBits = element == FFD_F16 ? 10 : 7;
  const int exponentMask = element == FFD_F16 ? 0x1F : 0xFF;
  const int bias = element == FFD_F16 ? 15 : 127;
  const int exponent = bits >> mantissaBits & exponentMask;
  const int mantissa = bits & ((1 << mantissaBits) - 1);
  if (exponent == exponentMask)
    return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0)
    return sign * std::ldexp(mantissa, 1 - bias - mantissaBits);
  return sign * std::ldexp(mantissa + (1 << mantissaBits),
                           exponent - bias - mantissaBits);
}

/// The element nearest to a non-negative value: ties to the even pattern.
uint16_t nearest(int32_t element, double value) {
  const uint16_t infinity = element == FFD_F16 ? 0x7C00 : 0x7F80;
  int low = 0, high = infinity - 1; // largest pattern whose value is <= value
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (toDouble(element, uint16_t(middle)) <= value)
      low = middle;
    else
      high = middle - 1;
  }
  if (low == infinity - 1)
    return uint16_t(low); // not reached: amax / L is below the largest number
  const double below = value - toDouble(element, uint16_t(low));
  const double above = toDouble(element, uint16_t(low + 1)) - value;
  return uint16_t(above < below || (above == below && low % 2) ? low + 1 : low);
}

SlowChannel slowSplit(int32_t element, int b, const std::vector<uint16_t> &k) {
  SlowChannel result;
  double amax = 0;
  bool finite = true;
  for (uint16_t bits : k) {
    const double value = std::fabs(toDouble(element, bits));
    finite = finite && std::isfinite(value);
    if (value > amax)
      amax = value;
  }
  if (!finite) { // split_c3
    result.s = element == FFD_F16 ? 0x7E00 : 0x7FC0;
    result.x.assign(k.size(), 0);
    return result;
  }
  const double limit = (std::pow(2, b) - 1) / 2;
  result.s = nearest(element, double(float(amax / limit))); // split_c1
  double s = toDouble(element, result.s);
  if (element == FFD_BF16 && s < std::ldexp(1, -100)) { // split_c2
    result.s = 0;
    s = 0;
  }
  const float inv = s == 0 ? 0.0f : float(1 / s);
  for (uint16_t bits : k) { // split_c4
    const float value = std::fma(float(toDouble(element, bits)), inv * 256.0f,
                                 float(std::pow(2, b + 7)));
    const double top = std::pow(2, b + 8) - 1;
    result.x.push_back(
        int(std::min(top, std::max(0.0, std::floor(double(value))))));
  }
  return result;
}

/// Channel `c` of a block: ordinary numbers for most, then every kind of
/// trouble.
uint16_t element(int32_t type, std::mt19937 &random, int64_t c) {
  std::normal_distribution<float> normal;
  const uint16_t any = uint16_t(random());
  const uint16_t infinity = type == FFD_F16 ? 0x7C00 : 0x7F80;
  switch (c % 16) {
  case 0: // zeros of both signs
    return any & 0x8000;
  case 1: // subnormals
    return (any & 0x8000) | any % (type == FFD_F16 ? 0x400 : 0x80);
  case 2: // any finite number
    return (any & 0x7FFF) >= infinity ? 0x3C00 : any;
  case 3: // the largest numbers
    return (any & 0x8000) | (infinity - 1 - random() % 4);
  case 4: // now and then a NaN
    return random() % 64 == 0 ? infinity | 1 | any : f32ToElement(type, 1);
  case 5: // now and then an infinity
    return random() % 64 == 0 ? (any & 0x8000) | infinity
                              : f32ToElement(type, 2);
  case 6: // around the smallest scale of bf16, 2^-100
    return f32ToElement(type, std::ldexp(1 + float(any) / 65536, -100));
  case 7: // one outlier among small ones
    return f32ToElement(type,
                        random() % 100 == 0 ? 1000.0f : 0.01f * normal(random));
  case 8: // a constant: codes at the very end of their range
    return f32ToElement(type, any & 1 ? 3.0f : -3.0f);
  case 9: // tiny f16 scales, down to one subnormal unit
    return (any & 0x8000) | random() % 4;
  default:
    return f32ToElement(type, normal(random) * std::exp2(float(c % 9) - 4));
  }
}

class SplitTest : public testing::TestWithParam<ffdSpec> {};

TEST_P(SplitTest, BitExactAgainstTheSpec) {
  const ffdSpec spec = GetParam();
  const Layout l = layoutOf(spec);
  std::mt19937 random(uint32_t(spec.head_dim * 16 + spec.scan_bits));
  const int64_t stride = spec.head_dim + 8;
  std::vector<uint8_t> thumbnail(size_t(l.thumbnailBytes()), 0xFF);
  std::vector<uint8_t> residual(size_t(l.residualBytes()), 0xFF);
  std::vector<uint16_t> k(size_t(128 * stride));
  for (int round = 0; round < 4; ++round) {
    for (int64_t t = 0; t < 128; ++t)
      for (int64_t c = 0; c < stride; ++c)
        k[size_t(t * stride + c)] = element(spec.element, random, c + round);
    splitBlock(spec, k.data(), stride, thumbnail.data(), residual.data());

    std::vector<uint16_t> channel(128);
    for (int64_t c = 0; c < spec.head_dim; ++c) {
      for (int64_t t = 0; t < 128; ++t)
        channel[size_t(t)] = k[size_t(t * stride + c)];
      const SlowChannel slow = slowSplit(spec.element, spec.scan_bits, channel);
      ASSERT_EQ(scaleAt(l, thumbnail.data(), c), slow.s) << "channel " << c;
      const double s = toDouble(spec.element, slow.s);
      for (int64_t t = 0; t < 128; ++t) {
        const int x = slow.x[size_t(t)];
        ASSERT_EQ(codeAt(l, thumbnail.data(), t, c), x >> 8) << t << " " << c;
        ASSERT_EQ(residualAt(l, residual.data(), t, c), x & 255)
            << t << " " << c;
        if (std::isnan(s))
          continue;
        // |k - k~| <= s / 512, plus what rounding s down clips at the ends.
        const double value = toDouble(spec.element, channel[size_t(t)]);
        const double near =
            reconstructAt(spec, thumbnail.data(), residual.data(), t, c);
        const double half = std::ldexp(1, spec.scan_bits - 1);
        const double clipped = std::max(0.0, std::fabs(value) - s * half);
        // f32 rounding of inv and of the fma: a few units of 2^-24 of x / 256.
        const double slack = s * half * 0x1p-21;
        ASSERT_LE(std::fabs(value - near), s / 512 + clipped + slack)
            << t << " " << c;
      }
    }
    // Padding is zero bytes.
    for (int64_t c = spec.head_dim; c < l.paddedHeadDim(); ++c) {
      ASSERT_EQ(scaleAt(l, thumbnail.data(), c), 0);
      for (int64_t t = 0; t < 128; ++t) {
        ASSERT_EQ(codeAt(l, thumbnail.data(), t, c), 0);
        ASSERT_EQ(residualAt(l, residual.data(), t, c), 0);
      }
    }
  }
}

TEST_P(SplitTest, ReconstructionFormulasAgree) {
  // s * ((x + 0.5) / 256 - 2^(b-1)) is the two-part formula of split_c5.
  const int b = GetParam().scan_bits;
  for (int x = 0; x < 1 << (b + 8); ++x)
    ASSERT_EQ((x + 0.5) / 256 - (1 << (b - 1)),
              (x >> 8) - ((1 << b) - 1) / 2.0 + ((x & 255) - 127.5) / 256);
}

TEST_P(SplitTest, SmaxIsTheMaximumAndKeepsNaN) {
  const ffdSpec spec = GetParam();
  const Layout l = layoutOf(spec);
  std::mt19937 random(7);
  std::vector<uint16_t> smax(size_t(l.paddedHeadDim()), 0);
  std::vector<double> expected(size_t(spec.head_dim), 0);
  std::vector<uint8_t> thumbnail(size_t(l.thumbnailBytes()));
  std::vector<uint8_t> residual(size_t(l.residualBytes()));
  std::vector<uint16_t> k(size_t(128 * spec.head_dim));
  for (int block = 0; block < 3; ++block) {
    for (size_t i = 0; i < k.size(); ++i)
      k[i] = element(spec.element, random, int64_t(i) % spec.head_dim);
    splitBlock(spec, k.data(), spec.head_dim, thumbnail.data(),
               residual.data());
    maximiseScales(spec, thumbnail.data(), smax.data());
    for (int64_t c = 0; c < spec.head_dim; ++c) {
      const double s = toDouble(spec.element, scaleAt(l, thumbnail.data(), c));
      double &top = expected[size_t(c)];
      top = std::isnan(s) || std::isnan(top) ? NAN : std::max(top, s);
    }
  }
  for (int64_t c = 0; c < spec.head_dim; ++c) {
    const double got =
        toDouble(spec.element, smax[size_t(Layout::scaleIndex(c))]);
    if (std::isnan(expected[size_t(c)]))
      EXPECT_TRUE(std::isnan(got)) << c;
    else
      EXPECT_EQ(got, expected[size_t(c)]) << c;
  }
}

std::string nameOf(const testing::TestParamInfo<ffdSpec> &info) {
  return "d" + std::to_string(info.param.head_dim) + "b" +
         std::to_string(info.param.scan_bits) + elementName(info.param.element);
}
INSTANTIATE_TEST_SUITE_P(All, SplitTest, testing::ValuesIn(allSplitSpecs()),
                         nameOf);

TEST(Split, ValuesComeBack) {
  for (int valueDim : {16, 64, 128, 256}) {
    const ffdSpec spec = makeSpec(128, valueDim);
    const Layout l = layoutOf(spec);
    const int64_t stride = valueDim + 24;
    std::vector<uint16_t> v(size_t(128 * stride));
    for (size_t i = 0; i < v.size(); ++i)
      v[i] = uint16_t(i * 40503u);
    std::vector<uint8_t> packed(size_t(l.valueBytes()));
    packValues(spec, v.data(), stride, packed.data());
    for (int64_t t = 0; t < 128; ++t)
      for (int64_t d = 0; d < valueDim; ++d)
        ASSERT_EQ(valueAt(l, packed.data(), t, d), v[size_t(t * stride + d)]);
  }
}

} // namespace
