//===- CudaMemory.cpp - Memory of a GPU ---------------------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Allocations of a context and copies on its streams, and CudaBuffer, which
// waits.
//
//===----------------------------------------------------------------------===//

#include "CudaSymbols.h"

#include <algorithm>

using namespace ffd;

namespace {
/// CUDA_MEMCPY2D. Passed as an address of anything: in a check of calls through
/// pointers a type of this file alone would be no one else's.
struct Copy2D {
  struct Side {
    size_t x, y;
    unsigned memoryType;
    void *host;
    CUdeviceptr device;
    void *array;
    size_t pitch;
  } from, to;
  size_t width, height;
};
static_assert(sizeof(Copy2D) == 128, "as the driver reads it");
constexpr unsigned kUnifiedMemory = 4;
} // namespace

Status CudaContext::allocate(const char *what, int64_t bytes, bool onHost,
                             void *&pointer) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  const std::string task = "allocate " + std::to_string(bytes) + " bytes of " +
                           (onHost ? "pinned host" : "device") +
                           " memory for the " + what;
  if (onHost)
    return scope.cuda.check(scope.cuda.memHostAlloc(&pointer, size_t(bytes),
                                                    kPortable | kDeviceMap),
                            task);
  CUdeviceptr fresh = 0;
  FFD_RETURN_IF_ERROR(
      scope.cuda.check(scope.cuda.memAlloc(&fresh, size_t(bytes)), task));
  pointer = reinterpret_cast<void *>(uintptr_t(fresh));
  return Status::success();
}

void CudaContext::free(void *pointer, bool onHost) const {
  CudaScope scope(*this);
  if (!pointer || !scope.entered().ok())
    return;
  if (onHost)
    scope.cuda.memFreeHost(pointer);
  else
    scope.cuda.memFree(addressOf(pointer));
}

Status CudaContext::copyIn(void *to, const void *host, int64_t bytes,
                           void *on) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  // From pageable memory the driver takes a copy before it returns.
  return scope.cuda.check(
      scope.cuda.memcpyHtoDAsync(addressOf(to), host, size_t(bytes), on),
      "copy to the device");
}

Status CudaContext::copyOutLater(void *pinned, const void *from, int64_t bytes,
                                 void *on) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(
      scope.cuda.memcpyDtoHAsync(pinned, addressOf(from), size_t(bytes), on),
      "copy from the device");
}

Status CudaContext::copyRowsOutLater(void *pinned, const void *from,
                                     int64_t bytes, int64_t rows,
                                     int64_t stride, void *on) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  Copy2D copy = {};
  // Whose memory it is, the driver sees from the address.
  copy.from.memoryType = copy.to.memoryType = kUnifiedMemory;
  copy.from.device = addressOf(from);
  copy.from.pitch = size_t(stride);
  copy.to.device = addressOf(pinned);
  copy.to.pitch = copy.width = size_t(bytes);
  copy.height = size_t(rows);
  return scope.cuda.check(scope.cuda.memcpy2DAsync(&copy, on),
                          "copy rows from the device");
}

Status CudaContext::copyOut(void *host, const void *from, int64_t bytes,
                            void *on) const {
  FFD_RETURN_IF_ERROR(copyOutLater(host, from, bytes, on));
  return finish(on);
}

Status CudaContext::copyWithin(void *to, const void *from, int64_t bytes,
                               void *on) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.memcpyDtoDAsync(addressOf(to),
                                                     addressOf(from),
                                                     size_t(bytes), on),
                          "copy on the device");
}

Status CudaContext::fill(void *to, uint8_t value, int64_t bytes,
                         void *on) const {
  if (bytes == 0)
    return Status::success();
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(
      scope.cuda.memsetD8Async(addressOf(to), value, size_t(bytes), on),
      "set device memory");
}

//===----------------------------------------------------------------------===//
// CudaBuffer
//===----------------------------------------------------------------------===//

CudaBuffer::~CudaBuffer() { release(); }

void CudaBuffer::release() {
  if (pointer) {
    CudaScope scope(*context);
    if (scope.entered().ok())
      scope.cuda.memFree(pointer);
  }
  pointer = 0;
  capacity = 0;
}

Status CudaBuffer::reserve(std::shared_ptr<CudaContext> owner, const char *what,
                           int64_t bytes) {
  if (owner == context && bytes <= capacity)
    return Status::success();
  release();
  context = std::move(owner);
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  CUdeviceptr fresh = 0;
  FFD_RETURN_IF_ERROR(
      scope.cuda.check(scope.cuda.memAlloc(&fresh, size_t(bytes)),
                       "allocate " + std::to_string(bytes) +
                           " bytes of device memory for the " + what));
  pointer = fresh;
  capacity = bytes;
  return Status::success();
}

/// The status of a range that a buffer does not have, else success.
static Status checkRange(int64_t bytes, int64_t capacity) {
  if (bytes >= 0 && bytes <= capacity)
    return Status::success();
  return Status::invalid("device copy is of " + std::to_string(bytes) +
                         " bytes, expected at most " +
                         std::to_string(capacity));
}

Status CudaBuffer::upload(const void *host, int64_t bytes) {
  FFD_RETURN_IF_ERROR(checkRange(bytes, capacity));
  if (bytes == 0)
    return Status::success();
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.memcpyHtoD(pointer, host, size_t(bytes)),
                          "copy to the device");
}

Status CudaBuffer::download(void *host, int64_t bytes) const {
  FFD_RETURN_IF_ERROR(checkRange(bytes, capacity));
  if (bytes == 0)
    return Status::success();
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.memcpyDtoH(host, pointer, size_t(bytes)),
                          "copy from the device");
}

Status CudaBuffer::fill(uint8_t value, int64_t bytes) {
  FFD_RETURN_IF_ERROR(checkRange(bytes, capacity));
  if (bytes == 0)
    return Status::success();
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.memsetD8(pointer, value, size_t(bytes)),
                          "set device memory");
}

Status CudaBuffer::repeat(int64_t to, int64_t from, int64_t bytes) {
  FFD_RETURN_IF_ERROR(checkRange(bytes, capacity - std::max(to, from)));
  if (bytes == 0)
    return Status::success();
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.memcpyDtoD(pointer + uint64_t(to),
                                                pointer + uint64_t(from),
                                                size_t(bytes)),
                          "copy on the device");
}
