//===- Memory.h - Aligned host buffers and checked sizes --------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A host buffer whose allocation fails with a status instead of an exception,
// and products of sizes that notice overflow. Header only.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_MEMORY_H
#define FFD_MEMORY_H

#include "ffd/Status.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>

namespace ffd {

/// The product of non-negative factors; false if it exceeds an int64_t or a
/// factor is negative.
inline bool checkedProduct(std::initializer_list<int64_t> factors,
                           int64_t &product) {
  product = 1;
  bool fits = true, zero = false;
  for (int64_t factor : factors) {
    if (factor < 0)
      return false;
    zero |= factor == 0;
    fits &= !__builtin_mul_overflow(product, factor ? factor : 1, &product);
  }
  if (zero)
    product = 0;
  return fits || zero;
}

/// Bytes aligned to a cache line pair; moves, does not copy.
class HostBuffer {
public:
  HostBuffer() = default;
  ~HostBuffer() { std::free(bytes); }
  HostBuffer(HostBuffer &&other) noexcept { swap(other); }
  HostBuffer &operator=(HostBuffer &&other) noexcept {
    swap(other);
    return *this;
  }

  /// Replaces the contents by `count` bytes of value `fill`. An empty buffer
  /// still has an address, so that kernels never see a null pointer.
  Status allocate(const char *what, int64_t count, int fill) {
    const int64_t rounded = count <= INT64_MAX - 128
                                ? (count + 127) / 128 * 128 + (count == 0) * 128
                                : -1;
    void *fresh = count < 0 || rounded < 0
                      ? nullptr
                      : std::aligned_alloc(128, size_t(rounded));
    if (!fresh)
      return Status(StatusCode::OutOfMemory,
                    std::string("cannot allocate ") + std::to_string(count) +
                        " bytes of host memory for the " + what);
    std::memset(fresh, fill, size_t(rounded));
    std::free(bytes);
    bytes = static_cast<uint8_t *>(fresh);
    length = count;
    return Status::success();
  }

  uint8_t *data() { return bytes; }
  const uint8_t *data() const { return bytes; }
  template <typename T>
  T *as() {
    return reinterpret_cast<T *>(bytes);
  }
  template <typename T>
  const T *as() const {
    return reinterpret_cast<const T *>(bytes);
  }
  int64_t size() const { return length; }

private:
  void swap(HostBuffer &other) {
    std::swap(bytes, other.bytes);
    std::swap(length, other.length);
  }
  uint8_t *bytes = nullptr;
  int64_t length = 0;
};

} // namespace ffd
#endif // FFD_MEMORY_H
