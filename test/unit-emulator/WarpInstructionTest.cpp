//===- WarpInstructionTest.cpp - Exchanges between lanes ----------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// shfl, vote, match, redux and elect against what they mean for one lane, over
// the whole warp and over the lanes of two masks at a time.
//
//===----------------------------------------------------------------------===//

#include "TextKernel.h"

#include <cmath>
#include <functional>
#include <random>

using namespace ffd::emulator;

namespace {

using Words = std::vector<uint32_t>;

/// The warp as one, and cut in two in several ways.
const uint32_t masks[] = {0xFFFFFFFF, 0x0000FFFF, 0x55555555, 0x80000001};

uint32_t maskOf(uint32_t mask, unsigned lane) {
  return mask >> lane & 1 ? mask : ~mask;
}

/// Lane `l` has words value(l) and its mask; the last word of `ptx` is $2 (one
/// result) or $3.
Words exchange(unsigned out, const std::string &ptx, uint32_t mask,
               const Words &values) {
  Words words;
  for (unsigned l = 0; l < 32; ++l) {
    words.push_back(values[l]);
    words.push_back(maskOf(mask, l));
  }
  return runWords(out, 2, ptx, words);
}

Words randomWords(uint32_t seed, uint32_t below) {
  std::mt19937 random(seed);
  Words words(32);
  for (uint32_t &x : words)
    x = below ? random() % below : uint32_t(random());
  return words;
}

TEST(EmulatorWarp, Shuffles) {
  const Words values = randomWords(1, 0);
  for (int width : {32, 16, 8, 4})
    for (unsigned distance : {0u, 1u, 3u, 9u, 31u})
      for (const char *mode : {"up", "down", "bfly", "idx"}) {
        const std::string m = mode;
        const unsigned c = unsigned(32 - width) << 8 | (m == "up" ? 0 : 31);
        const Words got =
            exchange(2,
                     "{ .reg .pred p; shfl.sync." + m + ".b32 $0|p, $2, " +
                         std::to_string(distance) + ", " + std::to_string(c) +
                         ", $3; selp.u32 $1, 1, 0, p; }",
                     0xFFFFFFFF, values);
        for (int l = 0; l < 32; ++l) {
          const int first = l / width * width, last = first + width - 1;
          const int d = int(distance);
          const int from = m == "up"     ? l - d
                           : m == "down" ? l + d
                           : m == "bfly" ? (l ^ d)
                                         : first + d % width;
          // bfly may leave the segment downwards.
          const bool ok = from <= last && (from >= first || m == "bfly");
          const auto i = size_t(2 * l);
          EXPECT_EQ(got[i + 1], ok) << m << " " << width << " " << d;
          EXPECT_EQ(got[i], values[size_t(ok ? from : l)])
              << m << " " << width << " " << d << " lane " << l;
        }
      }
}

TEST(EmulatorWarp, ShufflesWithinAMask) {
  const Words values = randomWords(2, 0);
  // Halves of the warp, each with a mask of its own.
  const Words got =
      exchange(1, "shfl.sync.bfly.b32 $0, $1, 5, 31, $2;", 0xFFFF, values);
  for (size_t l = 0; l < 32; ++l)
    EXPECT_EQ(got[l], values[l ^ 5]);
}

TEST(EmulatorWarp, ShuffleFromOutsideTheMask) {
  Words words, results, global(4);
  for (unsigned l = 0; l < 32; ++l) {
    words.push_back(l);
    words.push_back(maskOf(0xFFFF, l));
  }
  const Report report = runWords(
      {1, 2, "shfl.sync.bfly.b32 $0, $1, 16, 31, $2;"}, words, results, global);
  EXPECT_FALSE(report.ok);
  EXPECT_NE(report.message.find("reads a lane that is not in its mask"),
            std::string::npos)
      << report.str();
}

/// The lanes of a lane's mask, as bits.
void forMasks(
    const std::function<void(uint32_t mask, const Words &values)> &body) {
  for (uint32_t mask : masks)
    for (uint32_t below : {1u, 2u, 4u})
      body(mask, randomWords(below * 7 + mask % 5, below));
}

TEST(EmulatorWarp, Votes) {
  forMasks([](uint32_t mask, const Words &values) {
    for (const char *mode : {"all", "any", "uni", "ballot"}) {
      const std::string m = mode;
      const bool ballot = m == "ballot";
      const Words got = exchange(
          1,
          "{ .reg .pred p, q; setp.ne.u32 p, $1, 0; " +
              (ballot ? std::string("vote.sync.ballot.b32 $0, p, $2; }")
                      : "vote.sync." + m +
                            ".pred q, p, $2; selp.u32 $0, 1, 0, q; }"),
          mask, values);
      for (unsigned l = 0; l < 32; ++l) {
        uint32_t bits = 0;
        for (unsigned k = 0; k < 32; ++k)
          bits |= uint32_t(values[k] != 0) << k;
        const uint32_t mine = maskOf(mask, l);
        bits &= mine;
        EXPECT_EQ(got[l], ballot       ? bits
                          : m == "all" ? uint32_t(bits == mine)
                          : m == "any" ? uint32_t(bits != 0)
                                       : uint32_t(!bits || bits == mine))
            << m << " lane " << l;
      }
    }
  });
}

TEST(EmulatorWarp, Matches) {
  forMasks([](uint32_t mask, const Words &values) {
    const Words any =
        exchange(1, "match.any.sync.b32 $0, $1, $2;", mask, values);
    const Words all = exchange(2,
                               "{ .reg .pred p; match.all.sync.b32 $0|p, $2, "
                               "$3; selp.u32 $1, 1, 0, p; }",
                               mask, values);
    for (unsigned l = 0; l < 32; ++l) {
      const uint32_t mine = maskOf(mask, l);
      uint32_t same = 0;
      for (unsigned k = 0; k < 32; ++k)
        same |= uint32_t((mine >> k & 1) && values[k] == values[l]) << k;
      EXPECT_EQ(any[l], same);
      EXPECT_EQ(all[size_t(2) * l], same == mine ? mine : 0);
      EXPECT_EQ(all[size_t(2) * l + 1], uint32_t(same == mine));
    }
  });
}

TEST(EmulatorWarp, Reductions) {
  using Step = uint32_t (*)(uint32_t, uint32_t);
  const std::pair<const char *, Step> steps[] = {
      {"add.u32", [](uint32_t a, uint32_t b) { return a + b; }},
      {"add.s32", [](uint32_t a, uint32_t b) { return a + b; }},
      {"min.u32", [](uint32_t a, uint32_t b) { return std::min(a, b); }},
      {"max.u32", [](uint32_t a, uint32_t b) { return std::max(a, b); }},
      {"min.s32",
       [](uint32_t a, uint32_t b) {
         return uint32_t(std::min(int32_t(a), int32_t(b)));
       }},
      {"max.s32",
       [](uint32_t a, uint32_t b) {
         return uint32_t(std::max(int32_t(a), int32_t(b)));
       }},
      {"and.b32", [](uint32_t a, uint32_t b) { return a & b; }},
      {"or.b32", [](uint32_t a, uint32_t b) { return a | b; }},
      {"xor.b32", [](uint32_t a, uint32_t b) { return a ^ b; }}};
  for (uint32_t mask : masks)
    for (auto [name, step] : steps) {
      const Words values = randomWords(3, 0);
      const Words got = exchange(
          1, std::string("redux.sync.") + name + " $0, $1, $2;", mask, values);
      for (unsigned l = 0; l < 32; ++l) {
        const uint32_t mine = maskOf(mask, l);
        bool first = true;
        uint32_t expected = 0;
        for (unsigned k = 0; k < 32; ++k)
          if (mine >> k & 1) {
            expected = first ? values[k] : step(expected, values[k]);
            first = false;
          }
        EXPECT_EQ(got[l], expected) << name << " lane " << l;
      }
    }
}

TEST(EmulatorWarp, ReductionsOfFloats) {
  Words values(32);
  for (unsigned l = 0; l < 32; ++l) {
    const float x = float(int(l * 7 % 32) - 20);
    std::memcpy(&values[l], &x, 4);
  }
  values[4] = 0x7FC00000;
  auto floatOf = [](uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
  };
  const std::string end = " $0, $1, $2;";
  const uint32_t all = 0xFFFFFFFF;
  EXPECT_EQ(floatOf(exchange(1, "redux.sync.max.f32" + end, all, values)[9]),
            11);
  EXPECT_EQ(floatOf(exchange(1, "redux.sync.min.f32" + end, all, values)[9]),
            -20);
  EXPECT_EQ(
      floatOf(exchange(1, "redux.sync.max.abs.f32" + end, all, values)[9]), 20);
  EXPECT_EQ(exchange(1, "redux.sync.max.NaN.f32" + end, all, values)[9],
            0x7FFFFFFFu);
}

TEST(EmulatorWarp, ElectsOneLaneOfAMask) {
  for (uint32_t mask : masks) {
    const Words got = exchange(2,
                               "{ .reg .pred p; elect.sync $0|p, $3; selp.u32 "
                               "$1, 1, 0, p; }",
                               mask, randomWords(4, 0));
    uint32_t elected = 0;
    for (unsigned l = 0; l < 32; ++l) {
      const uint32_t mine = maskOf(mask, l);
      EXPECT_TRUE(mine >> got[size_t(2) * l] & 1);
      EXPECT_EQ(got[size_t(2) * l + 1], uint32_t(got[size_t(2) * l] == l));
      elected |= got[size_t(2) * l + 1] << l;
    }
    for (uint32_t part : {mask, ~mask})
      EXPECT_EQ(__builtin_popcount(elected & part), part ? 1 : 0);
  }
}

} // namespace
