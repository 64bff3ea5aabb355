//===- Context.h - What a C context is made of ------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A device, its thread pool or driver context, and the kernels loaded so far,
// by specification. Used from any number of threads.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SRC_CONTEXT_H
#define FFD_SRC_CONTEXT_H

#include "ffd/FindKernel.h"
#include "ffd/ThreadPool.h"
#include "ffd/ffd.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ffd {

class CudaKernel;
class CpuKernel;

/// The kernels of one specification.
struct KernelSet {
  std::unique_ptr<DecodeKernel> decode;
  CpuKernel *cpu = nullptr;   ///< decode, if it is one
  CudaKernel *cuda = nullptr; ///< decode, if it is one
  /// On a GPU; if there is none, the status says why.
  std::unique_ptr<CudaKernel> append;
  Status appendStatus;
  /// On a GPU, the same for all specifications; if there is none, the status
  /// says why.
  std::unique_ptr<CudaKernel> plan;
  Status planStatus;
};

class Context {
public:
  static Status create(const ffdContextOptions &options,
                       std::shared_ptr<Context> &context);

  ffdDevice device() const { return kind; }
  bool onCpu() const { return kind == FFD_DEVICE_CPU; }
  ThreadPool &pool() { return *threads; }
  const std::shared_ptr<CudaContext> &cuda() const { return cudaContext; }
  void describe(ffdContextInfo &info) const;

  /// Finds, loads and remembers.
  Status kernels(const ffdSpec &spec, std::shared_ptr<const KernelSet> &set);

  /// Passes a status to the diagnostic callback; returns it as the C code.
  ffdStatus report(const Status &status) const;
  void note(const std::string &message) const;

private:
  Context() = default;
  Status load(const ffdSpec &spec, KernelSet &set);

  ffdDevice kind = FFD_DEVICE_CPU;
  ffdDiagnosticFn diagnostic = nullptr;
  void *diagnosticUser = nullptr;
  FindKernelOptions find;
  std::unique_ptr<ThreadPool> threads; // outlives the kernels below
  std::shared_ptr<CudaContext> cudaContext;

  std::mutex mutex; ///< guards `loaded`
  struct Loaded {
    ffdSpec spec;
    std::shared_ptr<const KernelSet> set;
  };
  std::vector<Loaded> loaded;
};

/// The C code of a status.
inline ffdStatus toCode(const Status &status) {
  return static_cast<ffdStatus>(status.code());
}
/// Leaves the message of a failure for ffdLastErrorMessage.
ffdStatus setLastError(const Status &status);

/// Copies a caller's options of whatever size over the defaults in `options`.
/// `minimum` is the size of the struct's first version.
Status takeStruct(const char *name, const void *from, size_t minimum,
                  void *options, size_t size);
/// `next` is where the first field begins that the struct's first version did
/// not have. That version ended in padding up to its alignment; a later field
/// that lies in it is 0 there, as Init left it.
template <typename T>
Status takeOptions(const char *name, const T *from, T &options,
                   size_t next = sizeof(T)) {
  const size_t first = (next + alignof(T) - 1) / alignof(T) * alignof(T);
  Status status = takeStruct(name, from, first, &options, sizeof(T));
  options.struct_size = sizeof(T);
  return status;
}

/// Fills a caller's result struct as far as it goes.
Status giveStruct(const char *name, const void *result, size_t size, void *to);
template <typename T>
Status giveResult(const char *name, T &result, T *to) {
  return giveStruct(name, &result, sizeof(T), to);
}

} // namespace ffd

struct ffdContext {
  std::shared_ptr<ffd::Context> impl;
};
struct ffdKernel {
  std::shared_ptr<ffd::Context> context; // keeps what the kernels run on
  std::shared_ptr<const ffd::KernelSet> set;
};

#endif // FFD_SRC_CONTEXT_H
