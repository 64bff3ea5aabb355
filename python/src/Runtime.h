//===- Runtime.h - Threads, device and kernels of Python callers -*- C++
//-*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What outlives single calls: a thread pool, the CUDA context if the target is
// a GPU, and the kernels found so far. Any number of Python threads may use
// one.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_PYTHON_RUNTIME_H
#define FFD_PYTHON_RUNTIME_H

#include "ffd/Kernel.h"
#include "ffd/Selector.h"
#include "ffd/ThreadPool.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace ffd::python {

class Runtime {
public:
  /// The arguments of ffd.Runtime; opens the device of a GPU target. Errors are
  /// exceptions.
  Runtime(std::string target, int threads, std::string kernelDir, bool jit,
          std::string jitPath);

  /// Runs a decode with the kernel of (spec, program, selector), found or
  /// compiled on first use. Does not need the GIL. Decodes of one kernel run
  /// one after the other.
  Status decode(const ffdSpec &spec, Program program, const Selector &selector,
                const ffdDecodeArgs &args);
  /// Finds the kernel; `target` becomes what it was compiled for.
  Status prepare(const ffdSpec &spec, Program program, const Selector &selector,
                 std::string &target);

  ThreadPool &pool() { return threads; }
  const std::string &target() const { return targetName; }

private:
  struct Slot {
    std::mutex mutex; ///< of the kernel: it runs one decode at a time
    std::unique_ptr<DecodeKernel> kernel;
  };
  Slot &slotOf(const ffdSpec &spec, Program program, const Selector &selector);
  Status find(const ffdSpec &spec, Program program, const Selector &selector,
              Slot &slot);

  ThreadPool threads;
  std::string targetName, kernelDir, jitPath;
  bool useJit;
  std::shared_ptr<CudaContext> cuda;
  std::mutex mutex; ///< of the map
  std::map<std::string, std::unique_ptr<Slot>> slots;
};

} // namespace ffd::python
#endif // FFD_PYTHON_RUNTIME_H
