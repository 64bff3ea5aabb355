//===- Arrays.h - Arrays of Python callers ----------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Any array that speaks DLPack or the buffer protocol (numpy, PyTorch, JAX) as
// checked 16-bit elements in host memory, and status values as exceptions. A
// wrong array is an exception that names the argument, what it is and what was
// expected.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_PYTHON_ARRAYS_H
#define FFD_PYTHON_ARRAYS_H

#include "ffd/Cache.h"
#include "ffd/Status.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ffd::python {

namespace nb = nanobind;

/// What goes wrong outside of the arguments: no kernel, no device, no memory of
/// one. ffd.Error in Python.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// InvalidArgument becomes ValueError, OutOfMemory MemoryError, the rest
/// ffd.Error. Needs the GIL.
void check(const Status &status);

[[noreturn]] void raiseValue(const std::string &message);

/// 16-bit elements of a caller; keeps the caller's memory alive. Strides are in
/// elements, the last one is 1.
class ElementArray {
public:
  /// Takes an array of `least` to `most` (at most 4) axes, named for example
  /// "[batch, heads, head_dim]".
  /// Copies only if channels are not contiguous. Needs the GIL, also when it is
  /// destroyed.
  ElementArray(const char *name, nb::handle object, size_t least, size_t most,
               const char *axes);

  const uint16_t *data() const { return elements; }
  size_t rank() const { return axes; }
  int64_t shape(size_t axis) const { return sizes[axis]; }
  int64_t stride(size_t axis) const { return strides[axis]; }
  int32_t element() const { return type; } ///< an ffdElement
  const char *name() const { return argument; }
  std::string shapeText() const;

  /// Of an array [batch, tokens, heads, channels].
  TokenView tokens() const {
    return {elements, strides[0], strides[1], strides[2]};
  }
  /// That the last axis, of an array of keys, is a head dim that kernels take.
  void expectHeadDim() const;
  void expectElement(const ElementArray &other) const;
  void expectSize(size_t axis, int64_t size, const std::string &why) const;

private:
  void makeContiguous();

  const char *argument;
  nb::ndarray<nb::ro> owner;
  HostBuffer copy;
  const uint16_t *elements = nullptr;
  size_t axes;
  std::array<int64_t, 4> sizes = {}, strides = {};
  int32_t type = 0;
};

/// Small inputs that the Python layer prepares.
template <typename T, size_t Rank>
using HostArray = nb::ndarray<T, nb::ndim<Rank>, nb::c_contig, nb::device::cpu>;

/// A numpy array of a result and, while it is being written, its elements.
template <typename T>
class NewArray {
public:
  /// MemoryError if there is no room. The elements are undefined.
  explicit NewArray(std::vector<size_t> shape) : shape(std::move(shape)) {
    int64_t bytes = sizeof(T);
    for (size_t size : this->shape)
      if (size > size_t(INT64_MAX) ||
          !checkedProduct({bytes, int64_t(size)}, bytes))
        throw std::bad_alloc();
    auto buffer = std::make_unique<HostBuffer>();
    check(buffer->allocate("result", bytes, 0));
    elements = buffer->as<T>();
    owner = nb::capsule(buffer.release(), [](void *p) noexcept {
      delete static_cast<HostBuffer *>(p);
    });
  }

  T *data() const { return elements; }
  /// As numpy.ndarray. Needs the GIL.
  nb::object object() const {
    return nb::cast(
        nb::ndarray<nb::numpy, T>(elements, shape.size(), shape.data(), owner));
  }

private:
  std::vector<size_t> shape;
  T *elements;
  nb::capsule owner;
};

} // namespace ffd::python
#endif // FFD_PYTHON_ARRAYS_H
