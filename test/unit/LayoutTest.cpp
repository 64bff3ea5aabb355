//===- LayoutTest.cpp - Layout functions are bijections ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For every head dim and every b: no two elements share a place, every place is
// inside its slot, and the scheme is the one that layout.h states.
//
//===----------------------------------------------------------------------===//

#include "RandomCase.h"

#include "ffd/layout.h"

#include "gtest/gtest.h"

#include <set>

using namespace ffd;

namespace {

class LayoutTest : public testing::TestWithParam<ffdSpec> {};

TEST_P(LayoutTest, CodesFillTheirBytesExactlyOnce) {
  const Layout l = layoutOf(GetParam());
  std::vector<uint8_t> used(size_t(l.codeBytes()), 0);
  for (int64_t t = 0; t < l.quantBlock; ++t)
    for (int64_t c = 0; c < l.paddedHeadDim(); ++c) {
      const int64_t byte = l.codeByteOffset(t, c), bit = l.codeBitOffset(t, c);
      ASSERT_TRUE(byte >= 0 && byte < l.codeBytes()) << t << " " << c;
      ASSERT_TRUE(bit >= 0 && bit + l.scanBits <= 8);
      const uint8_t mask = uint8_t(((1 << l.scanBits) - 1) << bit);
      ASSERT_EQ(used[size_t(byte)] & mask, 0) << t << " " << c;
      used[size_t(byte)] |= mask;
    }
  for (uint8_t byte : used)
    ASSERT_EQ(byte, 0xFF);
}

TEST_P(LayoutTest, ScaleOrderIsAPermutation) {
  const Layout l = layoutOf(GetParam());
  std::set<int64_t> seen;
  for (int64_t c = 0; c < l.paddedHeadDim(); ++c)
    seen.insert(Layout::scaleIndex(c));
  EXPECT_EQ(int64_t(seen.size()), l.paddedHeadDim());
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), l.paddedHeadDim() - 1);
}

TEST_P(LayoutTest, ResidualsFillTheirSlotExactlyOnce) {
  const Layout l = layoutOf(GetParam());
  std::vector<bool> used(size_t(l.residualBytes()), false);
  for (int64_t t = 0; t < l.quantBlock; ++t)
    for (int64_t c = 0; c < l.paddedHeadDim(); ++c) {
      const int64_t at = l.residualOffset(t, c);
      ASSERT_TRUE(at >= 0 && at < l.residualBytes());
      ASSERT_FALSE(used[size_t(at)]) << t << " " << c;
      used[size_t(at)] = true;
      // A selection block is contiguous: it can be fetched in one copy.
      ASSERT_EQ(at / l.residualTileBytes(), t / kTileTokens);
    }
}

TEST_P(LayoutTest, RegistersHoldTheStatedTokensAndChannels) {
  const Layout l = layoutOf(GetParam());
  for (int64_t t = 0; t < l.quantBlock; ++t)
    for (int64_t c = 0; c < l.paddedHeadDim(); ++c) {
      const int64_t tile = t / 16, g = t % 8, i = t / 8 % 2 + 2 * (c / 16 % 2);
      const int64_t group = c / 32, tq = c / 4 % 4, byte = c % 4;
      ASSERT_EQ(t, 16 * tile + g + 8 * (i & 1));
      ASSERT_EQ(c, 32 * group + 16 * (i >> 1) + 4 * tq + byte);
      ASSERT_EQ(l.residualOffset(t, c),
                ((tile * l.channelGroups() + group) * 32 + 4 * g + tq) * 16 +
                    4 * i + byte);
      ASSERT_EQ(l.codeByteOffset(t, c),
                l.codeWordOffset(tile, 4 * g + tq, l.codeWord(group, i)) +
                    byte);
    }
}

TEST_P(LayoutTest, SlotsKeepSixteenByteAlignment) {
  const Layout l = layoutOf(GetParam());
  EXPECT_EQ(l.thumbnailBytes() % 16, 0);
  EXPECT_EQ(l.codeBytes() % 16, 0);
  EXPECT_EQ(l.residualBytes() % 16, 0);
  EXPECT_EQ(l.partialFloats() % 4, 0);
}

std::string nameOf(const testing::TestParamInfo<ffdSpec> &info) {
  return "d" + std::to_string(info.param.head_dim) + "b" +
         std::to_string(info.param.scan_bits) + elementName(info.param.element);
}
INSTANTIATE_TEST_SUITE_P(All, LayoutTest, testing::ValuesIn(allSplitSpecs()),
                         nameOf);

TEST(Layout, ValuesFillTheirSlotExactlyOnce) {
  for (int valueDim = 16; valueDim <= 256; valueDim += 16) {
    const Layout l = layoutOf(makeSpec(128, valueDim));
    std::vector<bool> used(size_t(l.valueBytes()), false);
    for (int64_t t = 0; t < l.quantBlock; ++t)
      for (int64_t d = 0; d < l.paddedValueDim(); ++d) {
        const int64_t at = l.valueOffset(t, d);
        ASSERT_TRUE(at >= 0 && at + 2 <= l.valueBytes() && at % 2 == 0);
        ASSERT_FALSE(used[size_t(at)]) << t << " " << d;
        used[size_t(at)] = true;
        ASSERT_EQ(at / l.valueTileBytes(), t / kTileTokens);
      }
  }
}

TEST(Layout, WorkspaceHoldsCountersThenPartials) {
  const Layout l = layoutOf(makeSpec());
  EXPECT_EQ(Layout::partialsOffset(1), 128);
  EXPECT_EQ(Layout::partialsOffset(33), 256);
  EXPECT_EQ(l.workspaceBytes(33, 4, 4), 256 + 33 * 4 * 4 * 132 * 4);
}

} // namespace
