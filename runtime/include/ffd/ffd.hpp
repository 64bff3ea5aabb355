//===- ffd.hpp - C++ over the C interface -----------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Owners of the handles of ffd.h, and exceptions instead of statuses. Header
// only: it adds nothing to the library's ABI. ffd.h has the meaning of every
// call; what is not wrapped here is called with get(). C++17, with exceptions.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_FFD_HPP
#define FFD_FFD_HPP

#include "ffd/ffd.h"

#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ffd::api {

/// A call that failed: what() is its message.
class Error : public std::runtime_error {
public:
  explicit Error(ffdStatus status)
      : std::runtime_error(ffdLastErrorMessage()), code(status) {}
  ffdStatus status() const { return code; }

private:
  ffdStatus code;
};

inline void check(ffdStatus status) {
  if (status != FFD_SUCCESS)
    throw Error(status);
}

namespace detail {
template <auto Destroy>
struct Deleter {
  template <typename T>
  void operator()(T *handle) const {
    Destroy(handle);
  }
};
template <typename T, auto Destroy>
using Owner = std::unique_ptr<T, Deleter<Destroy>>;
} // namespace detail

class Context {
public:
  /// The CPU with all defaults.
  Context() {
    ffdContext *fresh = nullptr;
    check(ffdContextCreate(nullptr, &fresh));
    handle.reset(fresh);
  }
  explicit Context(const ffdContextOptions &options) {
    ffdContext *fresh = nullptr;
    check(ffdContextCreate(&options, &fresh));
    handle.reset(fresh);
  }
  ffdContext *get() const { return handle.get(); }
  ffdContextInfo info() const {
    ffdContextInfo result = {};
    result.struct_size = sizeof result;
    check(ffdContextGetInfo(get(), &result));
    return result;
  }

private:
  detail::Owner<ffdContext, ffdContextDestroy> handle;
};

class Kernel {
public:
  Kernel(const Context &context, const ffdSpec &spec) {
    ffdKernel *fresh = nullptr;
    check(ffdKernelCreate(context.get(), &spec, &fresh));
    handle.reset(fresh);
  }
  ffdKernel *get() const { return handle.get(); }
  std::string target() const { return ffdKernelTarget(get()); }

private:
  detail::Owner<ffdKernel, ffdKernelDestroy> handle;
};

/// `stream` is the last parameter everywhere: a CUstream, nothing on a CPU.
class Cache {
public:
  Cache(const Context &context, const ffdCacheOptions &options) {
    ffdCache *fresh = nullptr;
    check(ffdCacheCreate(context.get(), &options, &fresh));
    handle.reset(fresh);
  }
  ffdCache *get() const { return handle.get(); }

  ffdCacheInfo info() const {
    ffdCacheInfo result = {};
    result.struct_size = sizeof result;
    check(ffdCacheGetInfo(get(), &result));
    return result;
  }
  ffdSequenceInfo info(int32_t sequence) const {
    ffdSequenceInfo result = {};
    result.struct_size = sizeof result;
    check(ffdSequenceGetInfo(get(), sequence, &result));
    return result;
  }
  int64_t length(int32_t sequence) const { return info(sequence).length; }

  int32_t create(ffdStream stream = nullptr) {
    int32_t sequence;
    check(ffdSequenceCreate(get(), stream, &sequence));
    return sequence;
  }
  int32_t fork(int32_t sequence, ffdStream stream = nullptr) {
    int32_t child;
    check(ffdSequenceFork(get(), sequence, stream, &child));
    return child;
  }
  void free(int32_t sequence, ffdStream stream = nullptr) {
    check(ffdSequenceFree(get(), sequence, stream));
  }
  void truncate(int32_t sequence, int64_t length, ffdStream stream = nullptr) {
    check(ffdSequenceTruncate(get(), sequence, length, stream));
  }
  void setDelta(int32_t sequence, float delta, ffdStream stream = nullptr) {
    check(ffdSequenceSetDelta(get(), sequence, delta, stream));
  }
  void reserve(const std::vector<int32_t> &sequences,
               const std::vector<int64_t> &tokens, ffdStream stream = nullptr) {
    sameSize(sequences.size(), tokens.size());
    check(ffdReserve(get(), int32_t(sequences.size()), sequences.data(),
                     tokens.data(), stream));
  }

  /// Contiguous k and v.
  void append(int32_t layer, const std::vector<int32_t> &sequences,
              const std::vector<int32_t> &tokens, const void *k, const void *v,
              ffdStream stream = nullptr) {
    sameSize(sequences.size(), tokens.size());
    ffdAppendBatch batch;
    ffdAppendBatchInit(&batch);
    batch.layer = layer;
    batch.count = int32_t(sequences.size());
    batch.sequences = sequences.data();
    batch.tokens = tokens.data();
    batch.k = k;
    batch.v = v;
    append(batch, stream);
  }
  void append(const ffdAppendBatch &batch, ffdStream stream = nullptr) {
    check(ffdAppend(get(), &batch, stream));
  }

  /// Contiguous q.
  void decode(int32_t layer, const std::vector<int32_t> &sequences,
              const void *q, float *out, float *lse = nullptr,
              ffdStream stream = nullptr) {
    ffdDecodeBatch batch;
    ffdDecodeBatchInit(&batch);
    batch.layer = layer;
    batch.count = int32_t(sequences.size());
    batch.sequences = sequences.data();
    batch.q = q;
    batch.out = out;
    batch.lse = lse;
    decode(batch, stream);
  }
  void decode(const ffdDecodeBatch &batch, ffdStream stream = nullptr) {
    check(ffdDecode(get(), &batch, stream));
  }

  void save(int32_t sequence, const std::string &path,
            ffdStream stream = nullptr) {
    check(ffdSequenceSaveFile(get(), sequence, path.c_str(), stream));
  }
  int32_t load(const std::string &path, ffdStream stream = nullptr) {
    int32_t sequence;
    check(ffdSequenceLoadFile(get(), path.c_str(), stream, &sequence));
    return sequence;
  }

private:
  static void sameSize(size_t sequences, size_t tokens) {
    if (sequences != tokens)
      throw std::invalid_argument(
          std::to_string(tokens) + " numbers of tokens for " +
          std::to_string(sequences) + " sequences, expected one each");
  }
  detail::Owner<ffdCache, ffdCacheDestroy> handle;
};

/// Host memory as decodes want it: aligned to 128 bytes.
template <typename T>
class Buffer {
public:
  explicit Buffer(size_t count)
      : memory(static_cast<T *>(std::aligned_alloc(
            128, (count * sizeof(T) + 127) / 128 * 128 + 128))),
        length(count) {
    if (!memory)
      throw std::bad_alloc();
    for (size_t i = 0; i < count; ++i)
      memory.get()[i] = T();
  }
  explicit Buffer(const std::vector<T> &values) : Buffer(values.size()) {
    for (size_t i = 0; i < length; ++i)
      memory.get()[i] = values[i];
  }
  T *data() { return memory.get(); }
  const T *data() const { return memory.get(); }
  size_t size() const { return length; }
  T &operator[](size_t i) { return memory.get()[i]; }
  const T &operator[](size_t i) const { return memory.get()[i]; }

private:
  detail::Owner<T, std::free> memory;
  size_t length;
};

} // namespace ffd::api

#endif // FFD_FFD_HPP
