//===- FloatInstructionTest.cpp - Arithmetic of floats ------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Arithmetic of 16-bit floats against exact arithmetic, conversions, and the
// approximations within the errors of the PTX manual.
//
//===----------------------------------------------------------------------===//

#include "TextKernel.h"

#include "ffd/Float16.h"

#include <cmath>
#include <random>

using namespace ffd::emulator;

namespace {

/// The f16 nearest to an exact number, ties to even, from integers only: x is
/// a multiple of 2^-48 as a 128-bit integer.
uint16_t nearestHalf(__int128 x) {
  const bool negative = x < 0;
  unsigned __int128 a = negative ? -(unsigned __int128)x : (unsigned __int128)x;
  // Candidates in ascending order have ascending bits: search for the largest
  // finite one not above.
  auto valueOf = [](uint32_t bits) {
    uint32_t exponent = bits >> 10, mantissa = bits & 1023;
    return exponent
               ? (unsigned __int128)(1024 + mantissa) << (24 + exponent - 1)
               : (unsigned __int128)mantissa << 24;
  };
  uint32_t low = 0, high = 0x7C00; // the value of 0x7C00 counts as 65536
  while (high - low > 1) {
    uint32_t middle = (low + high) / 2;
    (valueOf(middle) <= a ? low : high) = middle;
  }
  unsigned __int128 below = valueOf(low), above = valueOf(low + 1);
  uint32_t bits = low;
  if (a - below > above - a || (a - below == above - a && (low & 1)))
    bits = low + 1;
  if (a >= above)
    bits = 0x7C00;
  return uint16_t(bits | (negative ? 0x8000 : 0));
}

__int128 exactHalf(uint16_t bits) { // in units of 2^-24
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  __int128 value = exponent ? __int128(1024 + mantissa) << (exponent - 1)
                            : __int128(mantissa);
  return bits & 0x8000 ? -value : value;
}

TEST(EmulatorFloat, HalfFmaRoundsOnce) {
  std::mt19937 random(3);
  std::vector<uint32_t> words(32 * 3 * 64);
  // 64 warps' worth of triples, two in each word, most of them near a tie.
  int checked = 0;
  for (int round = 0; round < 64; ++round) {
    std::vector<uint32_t> w(96);
    for (uint32_t &x : w) {
      auto half = [&] {
        uint16_t bits = uint16_t(random());
        return (bits & 0x7C00) == 0x7C00 ? uint16_t(bits & 0x83FF) : bits;
      };
      x = half() | uint32_t(half()) << 16;
    }
    auto result = runWords(1, 3, "fma.rn.f16x2 $0, $1, $2, $3;", w);
    for (unsigned l = 0; l < 32; ++l)
      for (unsigned part : {0u, 16u}) {
        uint16_t a = uint16_t(w[3 * l] >> part),
                 b = uint16_t(w[3 * l + 1] >> part),
                 c = uint16_t(w[3 * l + 2] >> part);
        __int128 exact =
            exactHalf(a) * exactHalf(b) + exactHalf(c) * (__int128(1) << 24);
        if (exact == 0)
          continue; // the sign of zero has rules of its own
        ++checked;
        EXPECT_EQ(uint16_t(result[l] >> part), nearestHalf(exact))
            << a << " " << b << " " << c;
      }
  }
  EXPECT_GT(checked, 4000);
}

TEST(EmulatorFloat, HalfFmaOfLLVM) {
  // A product and a sum that lie just above a tie: rounding to f32 first loses
  // the bit that decides.
  const char *text = R"(
llvm.func @kernel(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %x = llvm.load %in {alignment = 8 : i64} : !llvm.ptr<1> -> vector<4xf16>
  %i0 = llvm.mlir.constant(0 : i64) : i64
  %i1 = llvm.mlir.constant(1 : i64) : i64
  %i2 = llvm.mlir.constant(2 : i64) : i64
  %a = llvm.extractelement %x[%i0 : i64] : vector<4xf16>
  %b = llvm.extractelement %x[%i1 : i64] : vector<4xf16>
  %c = llvm.extractelement %x[%i2 : i64] : vector<4xf16>
  %r = llvm.intr.fma(%a, %b, %c) : (f16, f16, f16) -> f16
  llvm.store %r, %out : f16, !llvm.ptr<1>
  llvm.return
})";
  std::mt19937 random(4);
  int different = 0;
  for (int tries = 0; tries < 200000 && different < 5; ++tries) {
    uint16_t in[4];
    for (uint16_t &x : in)
      x = uint16_t(random() % 0x7C00);
    float a = ffd::elementToF32(FFD_F16, in[0]),
          b = ffd::elementToF32(FFD_F16, in[1]),
          c = ffd::elementToF32(FFD_F16, in[2]);
    __int128 exact = exactHalf(in[0]) * exactHalf(in[1]) +
                     exactHalf(in[2]) * (__int128(1) << 24);
    uint16_t expected = nearestHalf(exact);
    if (ffd::f32ToElement(FFD_F16, std::fma(a, b, c)) == expected)
      continue;
    ++different;
    DeviceMemory input(in, 8), output(2);
    LaunchConfig one;
    one.block = {1, 1, 1};
    Report report =
        run(text, {Argument::of(input.data()), Argument::of(output.data())},
            {input.buffer("in", true), output.buffer("out")}, one);
    ASSERT_TRUE(report.ok) << report.str();
    EXPECT_EQ(*output.as<uint16_t>(), expected);
  }
  EXPECT_EQ(different, 5);
}

TEST(EmulatorFloat, ConversionsAndApproximations) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 30);
  std::vector<uint32_t> words(64);
  std::vector<float> x(64);
  for (size_t i = 0; i < 64; ++i) {
    x[i] = normal(random);
    std::memcpy(&words[i], &x[i], 4);
  }
  auto halves = runWords(1, 2, "cvt.rn.f16x2.f32 $0, $1, $2;", words);
  auto bfloats = runWords(1, 2, "cvt.rn.bf16x2.f32 $0, $1, $2;", words);
  auto powers = runWords(1, 1, "ex2.approx.ftz.f32 $0, $1;", words);
  auto logs = runWords(1, 1, "lg2.approx.f32 $0, $1;", words);
  for (size_t l = 0; l < 32; ++l) {
    EXPECT_EQ(halves[l], ffd::f32ToElement(FFD_F16, x[2 * l + 1]) |
                             uint32_t(ffd::f32ToElement(FFD_F16, x[2 * l]))
                                 << 16);
    EXPECT_EQ(bfloats[l], ffd::f32ToElement(FFD_BF16, x[2 * l + 1]) |
                              uint32_t(ffd::f32ToElement(FFD_BF16, x[2 * l]))
                                  << 16);
    float got;
    std::memcpy(&got, &powers[l], 4);
    EXPECT_NEAR(got / std::exp2(double(x[l])), 1, 0x1p-22);
    std::memcpy(&got, &logs[l], 4);
    if (x[l] > 0) {
      EXPECT_NEAR(got, std::log2(double(x[l])), 1e-6 * (1 + std::fabs(got)));
    } else {
      EXPECT_TRUE(std::isnan(got));
    }
  }
  auto permuted = runWords(1, 2, "prmt.b32 $0, $1, $2, 0x9F40;", words);
  for (size_t l = 0; l < 32; ++l) {
    uint32_t a = words[2 * l], b = words[2 * l + 1];
    uint32_t expected = (a & 0xFF) | (b & 0xFF) << 8 |
                        (b >> 31 ? 0xFF0000u : 0) |
                        (a >> 15 & 1 ? 0xFF000000u : 0);
    EXPECT_EQ(permuted[l], expected);
  }
}

} // namespace
