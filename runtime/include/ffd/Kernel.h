//===- Kernel.h - Running a compiled decode kernel --------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One interface over the kernels of all targets. Arguments are host memory;
// every field is checked against abi.h and docs/numerics.md here, because the
// generated code itself checks nothing.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_KERNEL_H
#define FFD_KERNEL_H

#include "ffd/Memory.h"
#include "ffd/Spec.h"
#include "ffd/Status.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ffd {

class CudaContext;
class Package;
class ThreadPool;

/// The entry of a generated CPU kernel, see abi.h.
using CpuEntry = void (*)(const ffdDecodeArgs *args, int64_t row,
                          int64_t split);

/// Checks every field of arguments in host memory. `splits` 0 (and then a null
/// workspace) is allowed: the kernel picks.
Status checkArgs(const ffdSpec &spec, Program program,
                 const ffdDecodeArgs &args);

/// Checks what a host sees of arguments whose memory is on a device.
Status checkAppendArgs(const ffdSpec &spec, const ffdAppendArgs &args);

/// Pieces per row so that `rows * pieces` tasks are at least `tasks`, no piece
/// has fewer than 16 quantisation blocks, and there are at most 1024.
int32_t pickSplits(const ffdSpec &spec, int64_t rows, int64_t maxLength,
                   int64_t tasks);

class DecodeKernel {
public:
  virtual ~DecodeKernel();

  /// Runs one decode over host memory and returns when out, lse and kept are
  /// written. With `args.splits == 0` the kernel picks the pieces; with a null
  /// workspace it uses its own. A kernel runs one decode at a time.
  virtual Status decode(const ffdDecodeArgs &args) = 0;

  /// A short name for reports: "cpu:avx512", "sm_90a".
  const std::string &target() const { return targetName; }
  const ffdSpec &spec() const { return kernelSpec; }
  Program program() const { return kernelProgram; }

protected:
  DecodeKernel(const ffdSpec &spec, Program program, std::string target);

  ffdSpec kernelSpec;
  Program kernelProgram;
  std::string targetName;
};

/// Runs a function on a pool, one task per (row, piece).
class CpuKernel : public DecodeKernel {
public:
  /// `owner` keeps the code behind `entry` alive; `pool` outlives the kernel.
  CpuKernel(const ffdSpec &spec, Program program, std::string target,
            CpuEntry entry, std::shared_ptr<void> owner, ThreadPool &pool);

  Status decode(const ffdDecodeArgs &args) override;

  /// Runs several decodes as one parallel loop and returns when all are done.
  /// Each has its own workspace of Layout::workspaceBytes, whose counters this
  /// call clears, and `splits` of at least 1. Unlike decode() it may run in
  /// several threads at a time.
  Status decodeAll(const ffdDecodeArgs *calls, int64_t count) const;
  ThreadPool &pool() const { return threads; }

private:
  Status reserveWorkspace(int64_t bytes);

  CpuEntry function;
  std::shared_ptr<void> codeOwner;
  ThreadPool &threads;
  HostBuffer workspace;
};

/// Launches one GPU kernel. Either decode(), or upload() once and then launch()
/// or timeLaunches() with everything resident, and download().
class CudaKernel : public DecodeKernel {
public:
  /// Loads the package's PTX or cubin into the context's device.
  static Status create(std::shared_ptr<CudaContext> context,
                       const Package &package,
                       std::unique_ptr<CudaKernel> &kernel);
  ~CudaKernel() override;

  Status decode(const ffdDecodeArgs &args) override;

  /// Checks host arguments and copies all they reach to the device.
  Status upload(const ffdDecodeArgs &args);
  /// One launch over what was uploaded; does not wait.
  Status launch();
  /// One launch over memory that the caller put on the device: the pointers are
  /// device pointers, `splits` is at least 1 and the workspace is the caller's.
  /// Checks nothing that it cannot see from the host; does not wait.
  Status launchResident(const ffdDecodeArgs &device);
  /// The same on a CUstream; null is the default one.
  Status launchResidentOn(void *stream, const ffdDecodeArgs &device);
  /// One launch of an append (Program::Append, the only launch it has) over
  /// memory on the device, on a CUstream; null is that of launch(). Checks what
  /// checkAppendArgs does; does not wait.
  Status launchAppend(const ffdAppendArgs &device, void *stream = nullptr);
  /// One launch of the planning kernel (Program::Plan, the only launch it has),
  /// likewise. Checks what checkPlanArgs does.
  Status launchPlan(const ffdPlanArgs &device, void *stream = nullptr);
  /// The pieces per row that decode() picks for rows of equal length.
  int32_t splitsFor(int64_t rows, int64_t maxLength) const;
  /// CTAs that the device runs at a time.
  int64_t residentCtas() const;
  /// Registers and bytes of local memory (spills) of a thread.
  Status resources(int &registers, int &localBytes) const;
  /// `count` timed launches after `warmup` others; milliseconds of each.
  Status timeLaunches(int warmup, int count, std::vector<float> &milliseconds);
  /// Waits and copies out, lse and kept into the host arguments' memory.
  Status download(const ffdDecodeArgs &args);

private:
  struct State;
  CudaKernel(const ffdSpec &spec, Program program, std::string target);
  Status badProgram(const char *expected) const;
  std::unique_ptr<State> state;
};

} // namespace ffd
#endif // FFD_KERNEL_H
