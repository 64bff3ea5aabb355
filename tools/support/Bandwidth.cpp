//===- Bandwidth.cpp - How fast threads can read memory -------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Bandwidth.h"
#include "Errors.h"

#include "ffd/Memory.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <unistd.h>
#include <vector>

using namespace llvm;

namespace ffd::tools {

static constexpr int64_t kChunkBytes = int64_t(1) << 20;
static constexpr int kPasses = 7;

#if defined(__x86_64__)
#define FFD_VECTOR_CLONES                                                      \
  __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FFD_VECTOR_CLONES
#endif

/// Adds up a chunk in independent lanes, which vectorises to plain loads.
FFD_VECTOR_CLONES static uint64_t sumChunk(const uint64_t *data) {
  constexpr int kLanes = 64;
  uint64_t sums[kLanes] = {};
  for (int64_t i = 0; i < kChunkBytes / 8; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane)
      sums[lane] += data[i + lane];
  uint64_t total = 0;
  for (uint64_t sum : sums)
    total += sum;
  return total;
}

static int64_t systemValue(int name) {
  return std::max<int64_t>(0, sysconf(name));
}

Expected<Bandwidth> measureReadBandwidth(ThreadPool &pool) {
  Bandwidth result;
  for (int name :
       {_SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL4_CACHE_SIZE})
    result.lastLevelCacheBytes =
        std::max(result.lastLevelCacheBytes, systemValue(name));

  // Twice the cache, within a quarter of the memory.
  int64_t memory = systemValue(_SC_PHYS_PAGES) * systemValue(_SC_PAGESIZE);
  int64_t wanted =
      std::max<int64_t>(2 * result.lastLevelCacheBytes, 256 * kChunkBytes);
  int64_t chunks =
      std::max<int64_t>(1, std::min(wanted, memory / 4) / kChunkBytes);
  result.bufferBytes = chunks * kChunkBytes;
  HostBuffer buffer;
  if (Error e =
          toError(buffer.allocate("bandwidth measurement", result.bufferBytes,
                                  /*fill=*/1)))
    return std::move(e);

  // A thread reads one long run, as it does in a decode.
  int64_t parts = std::min<int64_t>(pool.threads(), chunks);
  std::atomic<uint64_t> total{0};
  std::vector<double> seconds;
  for (int pass = 0; pass < kPasses; ++pass) {
    auto start = std::chrono::steady_clock::now();
    pool.parallelFor(parts, [&](int64_t part) {
      uint64_t sum = 0;
      for (int64_t i = chunks * part / parts; i < chunks * (part + 1) / parts;
           ++i)
        sum += sumChunk(buffer.as<uint64_t>() + i * (kChunkBytes / 8));
      total += sum;
    });
    std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    seconds.push_back(elapsed.count());
  }
  if (total == 0)
    return error("the bandwidth measurement read zeros, expected ones");
  std::sort(seconds.begin(), seconds.end());
  result.bytesPerSecond =
      double(result.bufferBytes) / seconds[seconds.size() / 2];
  return result;
}

} // namespace ffd::tools
