//===- Driver.h - Streams, graphs and memory of a GPU -----------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What an engine does with CUDA beside libffd, in the few driver functions that
// it takes. Failures end the program: it is a test.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SOAK_DRIVER_H
#define FFD_SOAK_DRIVER_H

#include <cstddef>

namespace soak {

class Driver {
public:
  explicit Driver(int device);
  void *stream() const { return queue; }
  void *allocate(size_t bytes) const;
  void upload(void *to, const void *host, size_t bytes) const; // in the stream
  void download(void *host, const void *from, size_t bytes) const; // waits
  void wait() const;
  void beginCapture() const;
  /// An executable graph of what was captured.
  void *endCapture() const;
  void replay(void *graph) const;
  void destroy(void *graph) const;
  void fill(void *to, int value, size_t bytes) const;

private:
  void *queue = nullptr;
};

} // namespace soak
#endif // FFD_SOAK_DRIVER_H
