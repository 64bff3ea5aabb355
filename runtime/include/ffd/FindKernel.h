//===- FindKernel.h - From a specification to a kernel ----------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Finds the kernel of a specification: a package in a folder if there is one,
// else compiled by libffd-jit (Jit.h), which is loaded on demand. When neither
// works the status lists what was looked for and where.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_FINDKERNEL_H
#define FFD_FINDKERNEL_H

#include "ffd/Jit.h"
#include "ffd/Kernel.h"
#include "ffd/Selector.h"
#include "ffd/Spec.h"
#include "ffd/Status.h"

#include <memory>
#include <string>

namespace ffd {

class CudaContext;
class ThreadPool;

/// The functions of a loaded libffd-jit. Stays loaded while referenced.
struct Jit {
  std::string path;
  uint32_t (*abiVersion)(void) = nullptr;
  int (*compile)(const ffdSpec *, const char *, const char *,
                 ffdJitResult *) = nullptr;
  void (*release)(ffdJitResult *) = nullptr;
};

/// Loads libffd-jit.so: from `path` if it is not empty; else from the folder of
/// libffd, then as the system's loader searches.
Status loadJit(const std::string &path, std::shared_ptr<const Jit> &jit);

struct FindKernelOptions {
  Program program = Program::Decode;
  /// Of a decode. Others than the default are compiled, for CPU targets only:
  /// packages hold none.
  Selector selector;
  /// "cpu" (the best this machine runs), "cpu:avx2", "cpu:avx512",
  /// "cpu:avx512vnni"; "cuda" (what the device takes), or an architecture of it
  /// such as "sm_90a".
  std::string target = "cpu";
  std::string packageDir;     ///< folder of packages; empty: none
  bool useJit = true;         ///< compile what no package provides
  /// Folder in which compiled kernels are kept, created when needed; empty:
  /// they are not.
  std::string cacheDir;
  std::string jitPath;        ///< see loadJit
  ThreadPool *pool = nullptr; ///< required for CPU targets; outlives the kernel
  std::shared_ptr<CudaContext> cuda; ///< required for GPU targets
  /// Receives, if not null, why packages that are there were not used although
  /// a kernel was found; empty if there were none.
  std::string *passedOver = nullptr;
  /// The same for kernels in cacheDir that are damaged and for new ones that
  /// could not be kept there. Not cleared.
  std::string *cacheNote = nullptr;
};

Status findKernel(const ffdSpec &spec, const FindKernelOptions &options,
                  std::unique_ptr<DecodeKernel> &kernel);

} // namespace ffd
#endif // FFD_FINDKERNEL_H
