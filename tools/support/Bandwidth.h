//===- Bandwidth.h - How fast threads can read memory -----------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Decoding is bound by memory, so its speed is judged against a plain read of
// a buffer that no cache holds, by the same threads.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_SUPPORT_BANDWIDTH_H
#define FFD_TOOLS_SUPPORT_BANDWIDTH_H

#include "ffd/ThreadPool.h"

#include "llvm/Support/Error.h"

#include <cstdint>

namespace ffd::tools {

struct Bandwidth {
  double bytesPerSecond = 0;
  int64_t bufferBytes = 0;
  int64_t lastLevelCacheBytes = 0; ///< 0 if the system does not say
};

llvm::Expected<Bandwidth> measureReadBandwidth(ThreadPool &pool);

} // namespace ffd::tools

#endif // FFD_TOOLS_SUPPORT_BANDWIDTH_H
