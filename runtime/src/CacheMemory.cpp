//===- CacheMemory.cpp - Where a cache lives --------------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Small host allocations are filled with 0xFF, so that a read of what was never
// written shows as NaN; large ones are mapped and cost nothing until touched.
//
//===----------------------------------------------------------------------===//

#include "CacheMemory.h"

#include "ffd/CudaDriver.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <sys/mman.h>

using namespace ffd;

CacheMemory::~CacheMemory() = default;

namespace {

class HostCacheMemory : public CacheMemory {
public:
  ~HostCacheMemory() override {
    for (auto &[pointer, bytes] : blocks)
      free(pointer, bytes);
  }

  Status allocate(const char *what, int64_t bytes, Place,
                  void *&pointer) override {
    const int64_t rounded =
        bytes >= 0 && bytes <= INT64_MAX - 256 ? (bytes + 255) / 256 * 256 : -1;
    const int64_t size = rounded == 0 ? 256 : rounded;
    void *fresh = nullptr;
    if (size >= kMapped) {
      fresh = mmap(nullptr, size_t(size), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      fresh = fresh == MAP_FAILED ? nullptr : fresh;
    } else if (size > 0) {
      fresh = std::aligned_alloc(256, size_t(size));
      if (fresh)
        std::memset(fresh, 0xFF, size_t(size));
    }
    if (!fresh)
      return Status(StatusCode::OutOfMemory,
                    "cannot allocate " + std::to_string(bytes) +
                        " bytes of host memory for the " + what);
    blocks[fresh] = size;
    pointer = fresh;
    return Status::success();
  }

  void release(void *pointer) override {
    const auto found = blocks.find(pointer);
    if (found == blocks.end())
      return;
    free(found->first, found->second);
    blocks.erase(found);
  }

  Status write(void *to, const void *host, int64_t bytes, void *) override {
    std::memmove(to, host, size_t(bytes));
    return Status::success();
  }
  Status read(void *host, const void *from, int64_t bytes, void *) override {
    std::memmove(host, from, size_t(bytes));
    return Status::success();
  }
  Status readRows(void *host, const void *from, int64_t bytes, int64_t rows,
                  int64_t stride, void *) override {
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(static_cast<uint8_t *>(host) + row * bytes,
                  static_cast<const uint8_t *>(from) + row * stride,
                  size_t(bytes));
    return Status::success();
  }
  Status finish(void *) override { return Status::success(); }
  Status copy(void *to, const void *from, int64_t bytes, void *) override {
    std::memmove(to, from, size_t(bytes));
    return Status::success();
  }
  Status fill(void *to, uint8_t value, int64_t bytes, void *) override {
    std::memset(to, value, size_t(bytes));
    return Status::success();
  }
  Status capturing(void *, uint64_t &capture) override {
    capture = 0;
    return Status::success();
  }

private:
  static constexpr int64_t kMapped = int64_t(16) << 20;

  static void free(void *pointer, int64_t bytes) {
    if (bytes >= kMapped)
      munmap(pointer, size_t(bytes));
    else
      std::free(pointer);
  }

  std::map<void *, int64_t> blocks;
};

} // namespace

std::unique_ptr<CacheMemory> CacheMemory::host() {
  return std::unique_ptr<CacheMemory>(new HostCacheMemory);
}

//===----------------------------------------------------------------------===//
// Device memory
//===----------------------------------------------------------------------===//

namespace {

class CudaCacheMemory : public CacheMemory {
public:
  explicit CudaCacheMemory(std::shared_ptr<CudaContext> context)
      : context(std::move(context)) {}
  ~CudaCacheMemory() override {
    for (auto &[pointer, place] : blocks)
      context->free(pointer, place == Place::Host);
  }

  Status allocate(const char *what, int64_t bytes, Place place,
                  void *&pointer) override {
    void *fresh = nullptr;
    FFD_RETURN_IF_ERROR(context->allocate(what, bytes > 0 ? bytes : 1,
                                          place == Place::Host, fresh));
    blocks[fresh] = place;
    pointer = fresh;
    return Status::success();
  }
  void release(void *pointer) override {
    const auto found = blocks.find(pointer);
    if (found == blocks.end())
      return;
    context->free(pointer, found->second == Place::Host);
    blocks.erase(found);
  }
  Status write(void *to, const void *host, int64_t bytes,
               void *stream) override {
    return context->copyIn(to, host, bytes, stream);
  }
  Status read(void *host, const void *from, int64_t bytes,
              void *stream) override {
    return context->copyOut(host, from, bytes, stream);
  }
  Status readRows(void *host, const void *from, int64_t bytes, int64_t rows,
                  int64_t stride, void *stream) override {
    return context->copyRowsOutLater(host, from, bytes, rows, stride, stream);
  }
  Status finish(void *stream) override { return context->finish(stream); }
  Status copy(void *to, const void *from, int64_t bytes,
              void *stream) override {
    return context->copyWithin(to, from, bytes, stream);
  }
  Status fill(void *to, uint8_t value, int64_t bytes, void *stream) override {
    return context->fill(to, value, bytes, stream);
  }
  Status capturing(void *stream, uint64_t &capture) override {
    return context->capturing(stream, capture);
  }

private:
  std::shared_ptr<CudaContext> context;
  std::map<void *, Place> blocks;
};

} // namespace

std::unique_ptr<CacheMemory>
CacheMemory::cuda(std::shared_ptr<CudaContext> context) {
  return std::unique_ptr<CacheMemory>(new CudaCacheMemory(std::move(context)));
}
