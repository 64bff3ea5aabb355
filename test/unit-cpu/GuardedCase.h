//===- GuardedCase.h - A decode in memory that ends at a guard --*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Copies of every buffer of a case, each with a page without access at either
// side and flush against one of the two. Buffers hold what a decode may touch
// and no byte more; inputs are read-only.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TEST_UNIT_CPU_GUARDEDCASE_H
#define FFD_TEST_UNIT_CPU_GUARDEDCASE_H

#include "RandomCase.h"

#include <memory>
#include <vector>

namespace ffd {

/// Bytes between two pages without access.
class GuardedBuffer {
public:
  /// `atEnd`: the last byte borders on a guard, otherwise the first one does.
  GuardedBuffer(const void *from, int64_t bytes, bool atEnd);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer &) = delete;
  GuardedBuffer &operator=(const GuardedBuffer &) = delete;

  void makeReadOnly();
  uint8_t *data() const { return begin; }
  int64_t size() const { return bytes; }

private:
  uint8_t *mapping = nullptr, *begin = nullptr;
  int64_t mapped = 0, bytes = 0;
};

class GuardedCase {
public:
  GuardedCase(RandomCase &original, int splits, bool atEnd);

  const ffdDecodeArgs &args() const { return guarded; }
  /// Writes out, lse and kept back into the case.
  void copyResults();

private:
  template <typename T>
  void place(T *&pointer, int64_t bytes, bool readOnly);

  RandomCase &original;
  bool atEnd;
  ffdDecodeArgs guarded;
  std::vector<std::unique_ptr<GuardedBuffer>> buffers;
  int64_t keptBytes = 0;
};

} // namespace ffd
#endif // FFD_TEST_UNIT_CPU_GUARDEDCASE_H
