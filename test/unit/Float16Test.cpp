//===- Float16Test.cpp - Conversions, exhaustively ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All 65536 patterns of both types there and back, and the compiler's own
// _Float16 for the rounding.
//
//===----------------------------------------------------------------------===//

#include "ffd/Float16.h"

#include "gtest/gtest.h"

#include <cmath>
#include <random>

using namespace ffd;

namespace {

TEST(Float16, EveryF16ComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = f16ToF32(uint16_t(bits));
    const uint16_t back = f32ToF16(value);
    if (std::isnan(value))
      ASSERT_EQ(back, kF16NaN) << bits;
    else
      ASSERT_EQ(back, bits);
  }
}

TEST(Float16, EveryBF16ComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = bf16ToF32(uint16_t(bits));
    if (std::isnan(value))
      ASSERT_EQ(f32ToBF16(value), kBF16NaN) << bits;
    else
      ASSERT_EQ(f32ToBF16(value), bits);
  }
}

/// Values on, just below and just above every rounding boundary of a type:
/// neighbours of each pattern's value and of the midpoint to the next.
template <typename Convert, typename Check>
void atBoundaries(Convert toFloat, Check check) {
  for (uint32_t bits = 0; bits < 65535; ++bits) {
    const float a = toFloat(uint16_t(bits)), b = toFloat(uint16_t(bits + 1));
    if (!std::isfinite(a) || !std::isfinite(b))
      continue;
    const float middle = float((double(a) + double(b)) / 2);
    for (float value : {a, middle})
      for (float v : {value, std::nextafterf(value, -INFINITY),
                      std::nextafterf(value, INFINITY)})
        check(v);
  }
}

/// Round to nearest even by comparing distances, in float64.
uint16_t slowF32ToBF16(float value) {
  uint32_t down = floatBits(value) >> 16; // toward zero
  const float low = floatFromBits(down << 16);
  const double high = std::isinf(floatFromBits((down + 1) << 16))
                          ? std::copysign(0x1p128, double(value))
                          : double(floatFromBits((down + 1) << 16));
  const double toLow = std::fabs(double(value) - low);
  const double toHigh = std::fabs(high - double(value));
  return uint16_t(toHigh < toLow || (toHigh == toLow && (down & 1)) ? down + 1
                                                                    : down);
}

TEST(Float16, BF16RoundsToNearestEven) {
  atBoundaries([](uint16_t b) { return bf16ToF32(b); },
               [](float v) {
                 if (!std::isnan(v) && !std::isinf(v)) {
                   ASSERT_EQ(f32ToBF16(v), slowF32ToBF16(v)) << v;
                 }
               });
  EXPECT_EQ(f32ToBF16(INFINITY), 0x7F80);
  EXPECT_EQ(f32ToBF16(-INFINITY), 0xFF80);
  EXPECT_EQ(f32ToBF16(3.4028235e38f), 0x7F80);
}

#ifdef __FLT16_MAX__
uint16_t compilerF16(float value) {
  const _Float16 half = static_cast<_Float16>(value);
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}

TEST(Float16, F16RoundsAsTheCompiler) {
  const auto check = [](float v) {
    ASSERT_EQ(f32ToF16(v), compilerF16(v)) << v;
  };
  atBoundaries([](uint16_t b) { return f16ToF32(b); }, check);
  std::mt19937 random(1);
  for (int i = 0; i < 2000000; ++i) {
    const float value = floatFromBits(uint32_t(random()));
    if (!std::isnan(value))
      check(value);
  }
  for (float v : {65504.0f, 65519.996f, 65520.0f, 1e30f, -65520.0f, 0x1p-24f,
                  0x1p-25f, 0x1.000002p-25f, 0x1.8p-24f, -0.0f, INFINITY})
    check(v);
}

TEST(Float16, F16WidensAsTheCompiler) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t pattern = uint16_t(bits);
    _Float16 half;
    std::memcpy(&half, &pattern, 2);
    const float expected = float(half);
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(f16ToF32(pattern)));
    else
      ASSERT_EQ(floatBits(f16ToF32(pattern)), floatBits(expected));
  }
}
#endif

TEST(Float16, NaNIsCanonical) {
  for (uint32_t bits : {0x7F800001u, 0x7FC00000u, 0xFFFFFFFFu, 0xFF812345u}) {
    EXPECT_EQ(f32ToF16(floatFromBits(bits)), kF16NaN);
    EXPECT_EQ(f32ToBF16(floatFromBits(bits)), kBF16NaN);
  }
}

} // namespace
