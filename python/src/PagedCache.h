//===- PagedCache.h - Caches that grow, for Python callers ------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The caches of ffd.h with exceptions instead of statuses. Arrays are addresses
// here: the Python layer (python/ffd/_paged.py) knows whose they are, has
// checked shapes, types and devices, and keeps them alive. Streams are
// addresses too.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_PYTHON_PAGEDCACHE_H
#define FFD_PYTHON_PAGEDCACHE_H

#include "Arrays.h"

#include "ffd/CudaDriver.h"
#include "ffd/ffd.h"

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ffd::python {

/// The pool has too few pages; ffd.OutOfPages in Python.
struct OutOfPages : Error {
  using Error::Error;
};
/// All slots are taken; ffd.OutOfSequences in Python.
struct OutOfSequences : Error {
  using Error::Error;
};

using Address = uint64_t;
using Slots = std::vector<int32_t>;

/// A device and its kernels, which caches share.
class PagedContext {
public:
  /// `ordinal` of a CUDA device; below 0: the CPU.
  PagedContext(int ordinal, int threads, const std::string &kernelDir, bool jit,
               const std::string &jitPath);

  ffdContext *get() const { return handle.get(); }
  /// Waits for all work of the device.
  Status synchronize() const;
  /// Null on the CPU.
  const std::shared_ptr<CudaContext> &device() const { return cuda; }

private:
  std::unique_ptr<ffdContext, decltype(&ffdContextDestroy)> handle{
      nullptr, ffdContextDestroy};
  std::shared_ptr<CudaContext> cuda;
};

/// Calls of several threads run one after the other, without the GIL.
class PagedCache {
public:
  /// `pages` below 0: as many as fit in `bytes`.
  PagedCache(std::shared_ptr<PagedContext> context, ffdCacheOptions options,
             std::optional<uint64_t> bytes);
  ~PagedCache();
  PagedCache(const PagedCache &) = delete;

  /// Waits for the device and gives the memory back; once is enough.
  void close();
  bool closed() const;

  int32_t create(std::optional<float> delta, Address stream);
  void free(int32_t sequence, Address stream);
  int32_t fork(int32_t sequence, Address stream);
  void truncate(int32_t sequence, int64_t length, Address stream);
  /// Of all, or of none where one is no sequence.
  void setDeltas(const Slots &sequences, const std::vector<float> &values,
                 Address stream);
  void reserve(const Slots &sequences, const std::vector<int64_t> &tokens,
               Address stream);
  void advance(const Slots &sequences, const Slots &tokens);
  /// (length, committed, reserved).
  std::tuple<int64_t, int64_t, int64_t> sequence(int32_t sequence) const;

  /// `tokens` empty: one each, or as `deviceOffsets` says.
  void append(int layer, int count, const Slots &sequences, const Slots &tokens,
              Address deviceSequences, Address deviceOffsets, Address k,
              Address v, std::pair<int64_t, int64_t> kStrides,
              std::pair<int64_t, int64_t> vStrides, Address stream);
  /// `values`: thresholds of `sequences` from now on; empty: as they are.
  void decode(int layer, int count, const Slots &sequences,
              const std::vector<float> &values, Address deviceSequences,
              Address q, std::pair<int64_t, int64_t> strides, Address out,
              Address lse, Address skippedLse, Address stream);
  void gather(int layer, int32_t sequence, int64_t first, int64_t count,
              Address k, Address v, Address stream);

  /// Keeps what owns memory that work enqueued so far uses, until the stream
  /// has done it. Not in a capture: a graph's memory is its caller's to keep.
  void keep(nb::object owner, Address stream);

  void requestStatistics(Address stream);
  /// uint64 [layers, kv heads, 2]: scanned and kept; None while on its way.
  nb::object statistics();
  /// int32 [sequences], bits of ffdAppendError.
  nb::object errors() const;
  void clearErrors();

  void save(int32_t sequence, const std::string &path, Address stream);
  int32_t load(const std::string &path, Address stream);

  /// (pages, free pages, sequences in use).
  std::tuple<int64_t, int64_t, int32_t> info() const;
  /// (pages, tokens) of a cache like this one in so many bytes.
  std::pair<int64_t, int64_t> fit(uint64_t bytes) const;
  ffdCacheSizes sizes() const;

private:
  /// Calls a function of ffd.h with the cache.
  template <typename Call>
  ffdStatus raw(Call call) const;
  template <typename Call>
  void run(Call call) const;

  // With the mutex held:
  ffdStatus setDelta(ffdCache *cache, int32_t sequence, float delta,
                     Address stream);
  ffdStatus setEach(ffdCache *cache, const Slots &sequences,
                    const std::vector<float> &values, Address stream);

  /// Of memory that another framework has lent.
  struct Kept {
    std::unique_ptr<CudaEvent> until;
    nb::object owner;
  };

  std::shared_ptr<PagedContext> context;
  ffdCacheOptions options;
  mutable std::mutex mutex; ///< of what follows
  ffdCache *handle = nullptr;
  /// What the device has, so that a decode does not write it again; NaN: not
  /// known, or no sequence.
  std::vector<float> deltas;
  std::deque<Kept> kept; ///< oldest first; owners go with the GIL held
};

/// What a DLPack capsule describes: (address, shape, strides in elements,
/// dtype, what keeps it alive). TypeError where it is read-only and to be
/// written.
nb::tuple describe(nb::handle capsule, bool write);

} // namespace ffd::python
#endif // FFD_PYTHON_PAGEDCACHE_H
