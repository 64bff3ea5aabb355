//===- PagedCuda.h - What a paged cache has on a GPU ------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SRC_PAGEDCUDA_H
#define FFD_SRC_PAGEDCUDA_H

#include "PagedCache.h"

#include "ffd/CudaDriver.h"

namespace ffd {

struct PagedCache::GpuWorkspace {
  void *memory = nullptr;
  int64_t bytes = 0;
};

/// Device memory and kernels besides planes and tables. Memory belongs to the
/// cache's CacheMemory.
struct PagedCache::Gpu {
  explicit Gpu(std::shared_ptr<CudaContext> context)
      : context(std::move(context)) {}
  ~Gpu();

  std::shared_ptr<CudaContext> context;
  int32_t *errors = nullptr;  ///< [slots] bits of ffdAppendError
  int32_t *oneEach = nullptr; ///< [slots + 1] 0, 1, 2 ...
  int32_t *offsets = nullptr; ///< [slots + 1] of the append under way
  int32_t *pinnedErrors = nullptr;
  uint64_t *pinnedCounts = nullptr;
  CudaEvent counted; ///< behind the copy to pinnedCounts
  /// For reading errors beside all other work.
  void *ownStream = nullptr;

  GpuWorkspace decode; ///< PagedCache::createDecodeWorkspace
  /// Of appends with one piece per row, which leave nothing but zeros.
  GpuWorkspace append;
  GpuWorkspace
      prefill; ///< of several pieces per row; cleared before each launch
};

} // namespace ffd
#endif // FFD_SRC_PAGEDCUDA_H
