//===- CacheMemory.h - Where a cache lives ----------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Host or device memory behind one interface, so that the bookkeeping of paged
// caches is written once. Work goes to the caller's stream; only read() waits.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SRC_CACHEMEMORY_H
#define FFD_SRC_CACHEMEMORY_H

#include "ffd/Status.h"

#include <cstdint>
#include <memory>

namespace ffd {

class CudaContext;

class CacheMemory {
public:
  enum class Place {
    Near, ///< the memory of the device
    Host  ///< host memory that the device can access too
  };

  virtual ~CacheMemory();

  /// Memory that this object owns, 256-byte aligned, contents undefined; a
  /// size of 0 has an address too.
  virtual Status allocate(const char *what, int64_t bytes, Place place,
                          void *&pointer) = 0;
  /// Gives back one allocation.
  virtual void release(void *pointer) = 0;

  /// From host memory, which may be reused when the call returns.
  virtual Status write(void *to, const void *host, int64_t bytes,
                       void *stream) = 0;
  virtual Status read(void *host, const void *from, int64_t bytes,
                      void *stream) = 0;
  /// `rows` times `bytes`, `stride` apart at the source, side by side in memory
  /// of Place::Host; there once finish() returns.
  virtual Status readRows(void *host, const void *from, int64_t bytes,
                          int64_t rows, int64_t stride, void *stream) = 0;
  virtual Status finish(void *stream) = 0;
  virtual Status copy(void *to, const void *from, int64_t bytes,
                      void *stream) = 0;
  virtual Status fill(void *to, uint8_t value, int64_t bytes, void *stream) = 0;
  /// The number of the capture that records work given to the stream instead
  /// of doing it, a different one for each; 0 if there is none.
  virtual Status capturing(void *stream, uint64_t &capture) = 0;

  static std::unique_ptr<CacheMemory> host();
  static std::unique_ptr<CacheMemory>
  cuda(std::shared_ptr<CudaContext> context);
};

} // namespace ffd
#endif // FFD_SRC_CACHEMEMORY_H
