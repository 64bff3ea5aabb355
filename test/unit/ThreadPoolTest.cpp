//===- ThreadPoolTest.cpp - Parallel loops ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every task once, whoever calls; nested loops; many short loops; several
// callers.
//
//===----------------------------------------------------------------------===//

#include "ffd/ThreadPool.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

using namespace ffd;

namespace {

TEST(ThreadPool, EveryTaskRunsOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(size_t(count), 0); // no atomics: pool synchronises
      pool.parallelFor(count, [&](int64_t i) { ++runs[size_t(i)]; });
      EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), count);
    }
  }
}

TEST(ThreadPool, ManyShortLoops) {
  ThreadPool pool(4);
  std::vector<int64_t> sums(16, 0);
  for (int loop = 0; loop < 2000; ++loop)
    pool.parallelFor(16, [&](int64_t i) { sums[size_t(i)] += i; });
  for (int64_t i = 0; i < 16; ++i)
    EXPECT_EQ(sums[size_t(i)], 2000 * i);
}

TEST(ThreadPool, ALoopInsideATaskRuns) {
  ThreadPool pool(3);
  std::atomic<int> count{0};
  pool.parallelFor(
      5, [&](int64_t) { pool.parallelFor(7, [&](int64_t) { ++count; }); });
  EXPECT_EQ(count, 35);
}

TEST(ThreadPool, CallersTakeTurns) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int> count{0};
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int loop = 0; loop < 200; ++loop)
        pool.parallelFor(10, [&](int64_t) { ++count; });
    });
  for (std::thread &caller : callers)
    caller.join();
  EXPECT_EQ(count, 4 * 200 * 10);
}

TEST(ThreadPool, DefaultIsEveryCore) {
  ThreadPool pool;
  EXPECT_EQ(pool.threads(), ThreadPool::availableCores());
}

} // namespace
