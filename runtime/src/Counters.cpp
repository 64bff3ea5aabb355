//===- Counters.cpp - What a cache counts while it works --------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kept blocks and errors, read from a device without waiting for its work: the
// first by a copy in the caller's stream that is fetched later, the second by a
// copy in a stream of the cache's own.
//
//===----------------------------------------------------------------------===//

#include "PagedCuda.h"

#include "ffd/CudaDriver.h"

#include <algorithm>

using namespace ffd;

Status PagedCache::requestStatistics(void *stream) {
  FFD_RETURN_IF_ERROR(checkNotCapturing("ffdStatisticsRequest", stream));
  const int64_t bytes = shape.layers * shape.rows() * 8;
  if (owner->onCpu()) {
    counts.assign(keptCount, keptCount + bytes / 8);
  } else {
    FFD_RETURN_IF_ERROR(owner->cuda()->copyOutLater(gpu->pinnedCounts,
                                                    keptCount, bytes, stream));
    FFD_RETURN_IF_ERROR(gpu->counted.record(stream));
  }
  scannedThen = scanned;
  requested = true;
  return Status::success();
}

Status PagedCache::fetchStatistics(ffdHeadStatistics *statistics) {
  if (!requested)
    return Status::invalid("no statistics were requested, expected "
                           "ffdStatisticsRequest before");
  if (!statistics)
    return Status::invalid("'statistics' is null, expected room for " +
                           std::to_string(shape.layers * shape.heads) +
                           " entries");
  const uint64_t *kept = counts.data();
  if (!owner->onCpu()) {
    bool there = false;
    FFD_RETURN_IF_ERROR(gpu->counted.reached(there));
    if (!there)
      return Status(StatusCode::NotReady,
                    "the statistics are not read yet, expected a later call");
    kept = gpu->pinnedCounts;
  }
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    ffdHeadStatistics *of = statistics + layer * shape.heads;
    for (int64_t head = 0; head < shape.heads; ++head)
      of[head] = {scannedThen[size_t(layer)], 0};
    for (int64_t row = 0; row < shape.rows(); ++row)
      of[row % shape.heads].kept += kept[layer * shape.rows() + row];
  }
  return Status::success();
}

Status PagedCache::errors(int32_t &any, int32_t *each) const {
  any = 0;
  if (each)
    std::fill_n(each, shape.slots, 0);
  if (owner->onCpu())
    return Status::success();
  const CudaContext &cuda = *owner->cuda();
  FFD_RETURN_IF_ERROR(cuda.copyOut(gpu->pinnedErrors, gpu->errors,
                                   shape.slots * 4, gpu->ownStream));
  for (int64_t slot = 0; slot < shape.slots; ++slot) {
    // Graphs append to empty slots too, in vain.
    if (!sequences[size_t(slot)].used)
      continue;
    any |= gpu->pinnedErrors[slot];
    if (each)
      each[slot] = gpu->pinnedErrors[slot];
  }
  return Status::success();
}

Status PagedCache::clearErrors() {
  if (owner->onCpu())
    return Status::success();
  return memory->fill(gpu->errors, 0, shape.slots * 4, gpu->ownStream);
}
