//===- Machine.h - Memory and time of a target ------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Hides whether a benchmark runs on a GPU or on the host: memory to put copies
// in, repeated runs with their spread, and how fast a plain read of the same
// size is.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDBENCH_MACHINE_H
#define FFD_TOOLS_FFDBENCH_MACHINE_H

#include "Options.h"

#include "ffd/CudaDriver.h"
#include "ffd/Kernel.h"
#include "ffd/Memory.h"
#include "ffd/ThreadPool.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <map>
#include <memory>

namespace ffd::bench {

/// Seconds of one launch, over many runs of several launches each.
struct Timing {
  double median = 0, fastest = 0, p10 = 0, p90 = 0;
  int launches = 0, runs = 0;
};

/// Memory of the target.
class Memory {
public:
  llvm::Error allocate(std::shared_ptr<CudaContext> cuda, const char *what,
                       int64_t bytes);
  llvm::Error upload(const void *host, int64_t bytes);
  llvm::Error download(void *host, int64_t bytes) const;
  llvm::Error fill(uint8_t value);
  /// Copies the first `bytes` behind themselves until there are `count`.
  llvm::Error replicate(int64_t bytes, int64_t count);
  template <typename T>
  T *as(int64_t offset = 0) const {
    return reinterpret_cast<T *>(address() + offset * int64_t(sizeof(T)));
  }

private:
  uintptr_t address() const;
  bool onGpu = false;
  CudaBuffer device;
  HostBuffer host;
};

class Machine {
public:
  static llvm::Expected<std::unique_ptr<Machine>> open(const Options &options,
                                                       ThreadPool &pool);

  const std::shared_ptr<CudaContext> &cuda() const { return context; }
  ThreadPool &threads() { return pool; }
  std::string name() const;
  int64_t cacheBytes() const { return cache; }
  int64_t memoryBytes() const { return memory; }
  /// Tasks that run at a time, for the choice of splits.
  int64_t parallelTasks(DecodeKernel &kernel) const;

  /// One decode over memory of this machine. On a GPU it does not wait.
  Status run(DecodeKernel &kernel, const ffdDecodeArgs &args);
  llvm::Error wait();

  /// Times runs of `launches` launches: graph replays on a GPU.
  llvm::Expected<Timing> time(int launches, int runs,
                              llvm::function_ref<Status(int)> launch);

  /// Reads `bytes` that no cache holds, with the best grid.
  llvm::Expected<Timing> timeRead(int64_t bytes);
  llvm::Error measurePeak();
  double peak() const { return peakRate; } ///< bytes per second
  /// A launch that does nothing.
  llvm::Expected<Timing> timeEmpty();

private:
  Machine(const Options &options, ThreadPool &pool)
      : options(options), pool(pool) {}
  llvm::Error openDevice();

  const Options &options;
  ThreadPool &pool;
  std::shared_ptr<CudaContext> context;
  CudaFunction readKernel, emptyKernel;
  Memory readBuffer;
  std::map<int64_t, Timing> reads;
  int64_t readBytes = 0, cache = 0, memory = 0;
  double peakRate = 0;
};

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_MACHINE_H
