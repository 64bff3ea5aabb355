//===- PlanTest.cpp - Dividing a ragged batch ----------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ffd/Plan.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <map>
#include <random>

using namespace ffd;

namespace {

ffdSpec someSpec() { return {128, 128, 4, FFD_F16, 2, 128, 16}; }

/// Every row has all its pieces once, in order, partial results apart,
/// sequences by length; the rest is empty.
void expectSound(const PlanOptions &options,
                 const std::vector<int32_t> &lengths,
                 const std::vector<ffdPiece> &plan) {
  std::map<int32_t, int32_t> seen;
  int64_t used = 0;
  int32_t lastLength = INT32_MAX;
  for (const ffdPiece &piece : plan) {
    if (piece.row < 0)
      break;
    const int64_t sequence = piece.row / options.kvHeads;
    ASSERT_LT(sequence, options.batch);
    EXPECT_EQ(piece.place, sequence);
    EXPECT_EQ(piece.length, lengths[size_t(sequence)]);
    EXPECT_EQ(piece.blocks, std::max(0, piece.length - options.lag) / 128);
    EXPECT_LE(piece.length, lastLength);
    lastLength = piece.length;
    EXPECT_EQ(piece.split, seen[piece.row]++);
    EXPECT_EQ(piece.first + piece.split, used);
    EXPECT_LT(piece.split, piece.splits);
    ++used;
  }
  for (size_t i = size_t(used); i < plan.size(); ++i)
    EXPECT_LT(plan[i].row, 0);
  EXPECT_EQ(seen.size(), size_t(options.batch) * size_t(options.kvHeads));
  for (const ffdPiece &piece : plan)
    if (piece.row >= 0) {
      EXPECT_EQ(seen[piece.row], piece.splits);
    }
}

TEST(Plan, CoversRandomBatches) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    PlanOptions options;
    options.batch = 1 + int32_t(random() % 40);
    options.kvHeads = 1 + int32_t(random() % 9);
    options.lag = int32_t(random() % 3) * 100;
    options.target = int64_t(random() % 600);
    std::vector<int32_t> lengths(size_t(options.batch));
    for (int32_t &length : lengths)
      length = int32_t(random() % (1u << (random() % 19)));
    const int64_t rows = int64_t(options.batch) * options.kvHeads;
    std::vector<ffdPiece> plan(size_t(std::max(options.target, rows)));
    const Status status = planPieces(someSpec(), options, lengths.data(),
                                     plan.data(), int64_t(plan.size()));
    ASSERT_TRUE(status.ok()) << status.message();
    expectSound(options, lengths, plan);
  }
}

TEST(Plan, SizeIsTheSmallestThatFits) {
  const std::vector<int32_t> lengths = {128 * 100, 128 * 31, 5, 0};
  PlanOptions options;
  options.batch = 4;
  options.kvHeads = 2;
  options.target = 24; // 12 pieces a head: 2 for the short ones, 10 for two
  EXPECT_EQ(pieceBlocks(someSpec(), options, lengths.data()), 15);
  options.target = 0; // a piece a row
  EXPECT_EQ(pieceBlocks(someSpec(), options, lengths.data()), 100);
  options.target = 100000;
  EXPECT_EQ(pieceBlocks(someSpec(), options, lengths.data()), kMinPieceBlocks);
}

TEST(Plan, FixedPiecesDoNotDependOnTheBatch) {
  PlanOptions options;
  options.kvHeads = 2;
  options.blocksPerPiece = 10;
  std::vector<ffdPiece> plan(64);
  for (std::vector<int32_t> lengths :
       {std::vector<int32_t>{128 * 35}, {128 * 90, 128 * 35, 3}}) {
    options.batch = int32_t(lengths.size());
    ASSERT_TRUE(planPieces(someSpec(), options, lengths.data(), plan.data(),
                           int64_t(plan.size()))
                    .ok());
    for (const ffdPiece &piece : plan)
      if (piece.row >= 0 && piece.length == 128 * 35) {
        EXPECT_EQ(piece.splits, 4);
      }
  }
  EXPECT_NE(planPieces(someSpec(), options,
                       std::vector<int32_t>{128 * 400, 0, 0}.data(),
                       plan.data(), 64)
                .message()
                .find("exceed the 64 entries"),
            std::string::npos);
}

/// Places are of the batch, rows of the slots; what is no slot has no piece.
TEST(Plan, OfListedSlots) {
  const std::vector<int32_t> lengths = {100, 7 * 128, 0, 3 * 128 + 5};
  const std::vector<int32_t> committed = {0, 7, 0, 3};
  const std::vector<int32_t> slots = {3, -1, 1, 4, 2};
  PlanOptions options;
  options.batch = 5;
  options.kvHeads = 2;
  options.lag = 10;
  options.slots = slots.data();
  options.slotCount = 4;
  options.committed = committed.data();
  std::vector<ffdPiece> plan(11);
  ASSERT_TRUE(
      planPieces(someSpec(), options, lengths.data(), plan.data(), 11).ok());
  const int expected[][4] = {{2, 2, 896, 7}, {3, 2, 896, 7}, {6, 0, 389, 3},
                             {7, 0, 389, 3}, {4, 4, 0, 0},   {5, 4, 0, 0}};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(plan[i].row, expected[i][0]) << i;
    EXPECT_EQ(plan[i].place, expected[i][1]) << i;
    EXPECT_EQ(plan[i].length, expected[i][2]) << i;
    EXPECT_EQ(plan[i].blocks, expected[i][3]) << i;
    EXPECT_EQ(plan[i].splits, 1) << i;
  }
  for (size_t i = 6; i < 11; ++i)
    EXPECT_EQ(plan[i].row, -1);
}

/// On 132 multiprocessors of two CTAs batches of one length get the pieces that
/// pickGpuSplits gives them, a ragged one as many as are aimed at.
TEST(Plan, PiecesForAGpu) {
  PlanOptions options;
  options.kvHeads = 8;
  options.multiprocessors = 132;
  options.resident = 264;
  options.target = 396;
  for (int32_t batch : {1, 2, 8, 16, 32})
    for (int32_t tokens : {0, 300, 1024, 4096, 16384, 65536, 262144, 1048576}) {
      const std::vector<int32_t> lengths(size_t(batch), tokens);
      options.batch = batch;
      const int64_t size = pieceBlocks(someSpec(), options, lengths.data());
      const int64_t blocks = tokens / 128;
      EXPECT_EQ(std::max<int64_t>(1, (blocks + size - 1) / size),
                pickGpuSplits(someSpec(), 8 * batch, tokens, 132, 2))
          << batch << " of " << tokens << " tokens, pieces of " << size;
    }
  std::vector<int32_t> ragged;
  for (int i = 0; i < 32; ++i)
    ragged.push_back(1024 << (i % 9));
  options.batch = 32;
  PlanOptions plain = options;
  plain.multiprocessors = 0;
  EXPECT_EQ(pieceBlocks(someSpec(), options, ragged.data()),
            pieceBlocks(someSpec(), plain, ragged.data()));
}

/// More rows than a GPU holds CTAs: the long ones are cut even so.
TEST(Plan, LongRowsOfManyAreCut) {
  EXPECT_EQ(raggedPieces(8, 264), 264);
  EXPECT_EQ(raggedPieces(256, 264), 414);
  EXPECT_EQ(raggedPieces(512, 264), 670);
  std::vector<int32_t> lengths(64, 2048);
  lengths[17] = 262144;
  PlanOptions options;
  options.batch = 64;
  options.kvHeads = 8;
  options.multiprocessors = 132;
  options.resident = 264;
  options.target = raggedPieces(512, 264);
  EXPECT_LE(pieceBlocks(someSpec(), options, lengths.data()), 2048 / 16);
}

TEST(Plan, BadOptionsAreNamed) {
  PlanOptions options;
  options.batch = 1;
  int32_t length = 5;
  ffdPiece piece;
  EXPECT_NE(planPieces(someSpec(), options, &length, &piece, 1)
                .message()
                .find("are 1, 0, 0, 0 and 0, expected at least 1, 1"),
            std::string::npos);
}

/// 132 multiprocessors, two CTAs each: what was best on an H200.
TEST(Plan, PiecesWithoutAPlan) {
  const auto pick = [](int64_t rows, int64_t tokens) {
    return pickGpuSplits(someSpec(), rows, tokens, 132, 2);
  };
  EXPECT_EQ(pick(8, 4096), 4);
  EXPECT_EQ(pick(8, 8192), 8);
  EXPECT_EQ(pick(8, 16384), 16);
  EXPECT_EQ(pick(8, 65536), 16);
  EXPECT_EQ(pick(8, 262144), 33);
  EXPECT_EQ(pick(64, 16384), 2);
  EXPECT_EQ(pick(64, 262144), 4);
  EXPECT_EQ(pick(8, 0), 1);
  EXPECT_EQ(pick(8, 300), 1);
  EXPECT_EQ(pick(100000, 65536), 1);
  EXPECT_EQ(pickGpuSplits(someSpec(), 1, INT32_MAX, INT32_MAX, 16), 1024);
}

TEST(Plan, KernelArgumentsAreChecked) {
  int32_t lengths[2] = {};
  alignas(16) ffdPiece pieces[8];
  ffdPlanArgs good = {};
  good.lengths = lengths;
  good.plan = pieces;
  good.batch = good.kv_heads = 2;
  good.pieces = 8;
  good.target = 6;
  EXPECT_TRUE(checkPlanArgs(good).ok());
  const auto expect = [&](auto change, const char *text) {
    ffdPlanArgs args = good;
    change(args);
    EXPECT_NE(checkPlanArgs(args).message().find(text), std::string::npos)
        << checkPlanArgs(args).message();
  };
  expect([](ffdPlanArgs &a) { a.batch = 4097; }, "'batch' is 4097");
  expect([](ffdPlanArgs &a) { a.batch = 0; }, "'batch' is 0");
  expect([](ffdPlanArgs &a) { a.kv_heads = 0; }, "'kv_heads' is 0");
  expect([](ffdPlanArgs &a) { a.lag = -1; }, "'lag' is -1");
  expect([](ffdPlanArgs &a) { a.target = -1; }, "'target' is -1");
  expect([](ffdPlanArgs &a) { a.target = 9; }, "'pieces' is 8, expected at");
  expect([](ffdPlanArgs &a) { a.blocks_per_piece = -1; }, "blocks_per_piece");
  expect([](ffdPlanArgs &a) { a.slots = a.lengths; }, "'slot_count' is 0");
  expect([](ffdPlanArgs &a) { a.multiprocessors = -1; }, "multiprocessors");
  expect(
      [](ffdPlanArgs &a) {
        a.multiprocessors = 5;
        a.resident = 4;
      },
      "'resident' is 4");
  expect([](ffdPlanArgs &a) { a.lengths = nullptr; }, "null or not aligned");
}

} // namespace
