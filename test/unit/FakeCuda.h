//===- FakeCuda.h - A CUDA driver without a GPU -*- C++ -*- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What FakeCuda.cpp offers to the tests besides the driver's own functions.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TEST_UNIT_FAKECUDA_H
#define FFD_TEST_UNIT_FAKECUDA_H

#include "ffd/abi.h"

#include <atomic>
#include <cstdint>

extern "C" {

struct FakeCudaState {
  /// Runs one CTA; the arguments are what the launch was given.
  void (*kernel)(const ffdDecodeArgs *args, int64_t row, int64_t split);
  std::atomic<int> launches, threads, sharedBytes, sharedOptIn;
  std::atomic<int64_t> grid;
  /// contextDepth is that of all threads together.
  std::atomic<int> liveAllocations, liveModules, contextDepth, retains;
  /// cuMemAlloc fails once this many more bytes are asked for; < 0: never.
  std::atomic<int64_t> memoryLeft;
  int major, minor;
  /// Runs one launch of the kernel "append".
  void (*append)(const ffdAppendArgs *args);
  /// The same of "plan", and of a decode that follows a plan (unless `kernel`
  /// is null); how many of the former ran.
  void (*plan)(const ffdPlanArgs *args);
  void (*planned)(const ffdDecodeArgs *args);
  std::atomic<int> plans;
  /// What cuInit returns.
  int initResult;
  /// Whether events are not reached yet.
  std::atomic<int> pending;
  /// Copies to the device fail after this many; < 0: never.
  std::atomic<int> copiesLeft;
};

/// The state of the loaded library, found with dlsym.
FakeCudaState *fakeCudaState();

} // extern "C"

#endif // FFD_TEST_UNIT_FAKECUDA_H
