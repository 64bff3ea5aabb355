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

/// A plan in device memory, and the batch that it is of.
struct PagedCache::DevicePlan {
  struct Batch {
    int64_t count = 0;
    const int32_t *deviceSlots = nullptr; ///< given by the caller
    std::vector<int32_t> slots;           ///< else
    /// Outside of captures: lengths and committed blocks of the slots.
    std::vector<int64_t> lengths, committed;
    /// In a capture: which, and what it has appended to the layer so far.
    uint64_t capture = 0, appended = 0;
    bool operator==(const Batch &other) const;
  };
  ffdPiece *pieces = nullptr;
  Batch batch; ///< a count of 0: none
};

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
  /// [slots] sequences of the append under way, and of the decode to plan.
  int32_t *appended = nullptr, *decoded = nullptr;
  /// [slots] blocks committed before the lag allows it.
  int32_t *committed = nullptr;
  int32_t *pinnedErrors = nullptr;
  uint64_t *pinnedCounts = nullptr;
  CudaEvent counted; ///< behind the copy to pinnedCounts
  /// For reading errors beside all other work.
  void *ownStream = nullptr;

  /// Of decodes outside of captures, and of those in them: a replay must not
  /// change what the next decode outside takes for known.
  DevicePlan plan, capturedPlan;
  uint64_t capture = 0; ///< the last one seen
  /// [layers] a number for what that capture has appended to a layer.
  std::vector<uint64_t> capturedAppends;

  GpuWorkspace decode; ///< PagedCache::createPlans
  /// Of appends with one piece per row, which leave nothing but zeros.
  GpuWorkspace append;
  GpuWorkspace
      prefill; ///< of several pieces per row; cleared before each launch
};

} // namespace ffd
#endif // FFD_SRC_PAGEDCUDA_H
