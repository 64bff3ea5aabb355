//===- PagedCache.h - Sequences in a paged split cache ----------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The host's view of an ffdCache: which pages a sequence has, how long it is in
// each layer, and the tables that kernels read. ffd.h says what every operation
// does; the names are the same.
//
// A sequence is (length, committed blocks, pages). Usually the committed blocks
// are floor((length - lag) / 128), as docs/numerics.md has it; after truncation
// there may be more, and the tail is shorter than the lag.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SRC_PAGEDCACHE_H
#define FFD_SRC_PAGEDCACHE_H

#include "CacheMemory.h"
#include "Context.h"
#include "PagePool.h"

#include "ffd/Memory.h"

#include <memory>
#include <vector>

namespace ffd {

/// The sizes that follow from a cache's options, all products checked.
struct CacheShape {
  ffdSpec spec = {};
  Layout layout;
  int64_t layers = 0, heads = 0, slots = 0, lag = 0, maxTokens = 0, pages = 0;
  int64_t tailCapacity = 0; ///< tokens
  int64_t pageStride = 0;   ///< entries of a page table's row
  ffdCacheSizes sizes = {};

  /// Checks the options and computes.
  static Status of(const ffdCacheOptions &options, CacheShape &shape);
  int64_t rows() const { return slots * heads; }
};

/// A range of tokens of one append.
struct NewTokens {
  int32_t slot = 0;
  int64_t count = 0; ///< tokens
  int64_t row = 0;   ///< the first of them in k and v
};

class PagedCache {
public:
  static Status create(std::shared_ptr<Context> context,
                       const ffdCacheOptions &options,
                       std::unique_ptr<PagedCache> &cache);
  ~PagedCache();

  Context &context() const { return *owner; }
  void info(ffdCacheInfo &info) const;

  Status createSequence(void *stream, int32_t &slot);
  Status freeSequence(int32_t slot, void *stream);
  Status fork(int32_t slot, void *stream, int32_t &forked);
  Status truncate(int32_t slot, int64_t length, void *stream);
  Status setDelta(int32_t slot, float delta, void *stream);
  Status sequenceInfo(int32_t slot, ffdSequenceInfo &info) const;
  Status reserve(int64_t count, const int32_t *slots, const int64_t *tokens,
                 void *stream);
  Status setPages(int32_t slot, int64_t first, const int32_t *pages,
                  int64_t count, void *stream);

  Status append(const ffdAppendBatch &batch, void *stream);
  Status advance(int64_t count, const int32_t *slots, const int32_t *tokens);
  Status decode(const ffdDecodeBatch &batch, void *stream);

  Status gather(int64_t layer, int32_t slot, int64_t first, int64_t count,
                uint16_t *k, uint16_t *v, void *stream);
  Status requestStatistics(void *stream);
  Status fetchStatistics(ffdHeadStatistics *statistics);
  Status errors(int32_t &any, int32_t *each) const;
  Status clearErrors();

  Status save(int32_t slot, ffdWriteFn write, void *user, void *stream);
  Status load(ffdReadFn read, void *user, void *stream, int32_t &slot);

private:
  struct Sequence {
    bool used = false;
    float delta = 0;
    std::vector<int64_t> length;    ///< per layer
    std::vector<int64_t> committed; ///< blocks, per layer
    std::vector<int32_t> pages;     ///< of its blocks, reserved ones included
  };

  PagedCache() = default;

  // PagedCache.cpp
  Status checkSlot(int32_t slot) const;
  Status checkNotCapturing(const char *what, void *stream) const;
  Status checkEven(const char *what, int32_t slot) const;
  /// `anySlot`: those without a sequence too.
  Status checkList(const char *what, int64_t count, const int32_t *slots,
                   bool anySlot = false) const;
  /// Lists in device memory are for captures alone.
  Status checkDeviceSequences(const char *batch, const int32_t *slots,
                              const int32_t *given, uint64_t capture) const;
  /// Blocks that `length` tokens have committed, at least `already`.
  int64_t blocksAt(int64_t length, int64_t already) const;
  int64_t longest(const Sequence &sequence) const;

  // PagedSequences.cpp
  Status takeSlot(int32_t &slot);

  // PagedTables.cpp
  /// Takes the pages of several growths at once; `blocks[i]` in total each.
  Status takePages(const std::vector<int32_t> &slots,
                   const std::vector<int64_t> &blocks, void *stream);
  void givePagesBack(Sequence &sequence, int64_t from);
  Status writePages(int32_t slot, int64_t first, void *stream);
  Status writeLengths(int32_t slot, void *stream);
  Status recomputeSmax(int32_t slot, void *stream);
  /// centre_c2: a row without committed blocks has none.
  Status clearCentres(int32_t slot, void *stream);
  Status writeDelta(int32_t slot, void *stream);
  Status clearError(int32_t slot, void *stream);

  // Where things are.
  uint8_t *thumbnail(int64_t layer, int64_t page, int64_t head) const;
  uint8_t *residual(int64_t layer, int64_t page, int64_t head) const;
  uint8_t *value(int64_t layer, int64_t page, int64_t head) const;
  uint16_t *smaxRow(int64_t layer, int64_t slot, int64_t head) const;
  /// Only where centred().
  uint16_t *centreRow(int64_t layer, int64_t slot, int64_t head) const;
  bool centred() const { return shape.spec.centre != FFD_CENTRE_NONE; }
  uint16_t *tailK(int64_t layer, int64_t slot, int64_t head) const;
  uint16_t *tailV(int64_t layer, int64_t slot, int64_t head) const;

  // PagedAppend.cpp
  /// What a batch reads, checked, with strides filled in (elements).
  struct Input {
    int64_t layer = 0;
    const uint16_t *k = nullptr, *v = nullptr;
    int64_t kToken = 0, kHead = 0, vToken = 0, vHead = 0;
  };
  Status checkAppend(const ffdAppendBatch &batch, uint64_t capture,
                     Input &input, std::vector<NewTokens> &tokens) const;
  void appendOnCpu(const Input &input, const std::vector<NewTokens> &tokens);
  /// Tokens of a block that is to be committed that the tail has.
  int64_t oldTokens(const Input &input, const NewTokens &tokens,
                    int64_t block) const;
  /// The keys of such a block, as tail and input have them; `joined` keeps what
  /// is in neither alone.
  const uint16_t *keysOf(const Input &input, const NewTokens &tokens,
                         int64_t block, int64_t head,
                         std::vector<uint16_t> &joined, int64_t &stride) const;
  void commitBlock(const Input &input, const NewTokens &tokens, int64_t block,
                   int64_t head);
  void moveTail(const Input &input, const NewTokens &tokens, int64_t head);

  // PagedDecode.cpp
  /// Tokens of a sequence that are not committed.
  int64_t tailOf(int32_t slot, int64_t layer) const;
  Status decodeOnCpu(const ffdDecodeBatch &batch, const KernelSet &kernels);
  void fill(int64_t layer, int64_t slot, ffdDecodeArgs &args) const;
  /// Elements between the query tokens of a sequence.
  int64_t tokenStride(const ffdDecodeBatch &batch) const;

  // PagedCuda.cpp
  struct Gpu;
  struct GpuWorkspace;
  Status createGpu();
  static bool consecutive(int64_t count, const int32_t *slots);
  /// Where the device finds the list of a batch's sequences.
  Status listOnDevice(const char *what, int64_t count, const int32_t *slots,
                      const int32_t *given, int32_t *room, uint64_t capture,
                      void *stream, const int32_t *&list) const;
  Status reserveWorkspace(const char *what, int64_t bytes, int64_t counterBytes,
                          void *stream, GpuWorkspace &workspace);
  Status appendOnGpu(const ffdAppendBatch &batch, const Input &input,
                     const std::vector<NewTokens> &tokens, uint64_t capture,
                     void *stream);
  Status decodeOnGpu(const ffdDecodeBatch &batch, uint64_t capture,
                     void *stream);

  // PagedPlan.cpp
  struct DevicePlan;
  Status createPlans();
  int64_t planEntries(int64_t count) const;
  void noteCapture(uint64_t capture);
  void noteCapturedAppend(const ffdAppendBatch &batch);
  Status planDecode(const ffdDecodeBatch &batch, uint64_t capture, void *stream,
                    ffdDecodeArgs &args);

  struct Header; // SequenceFile.cpp

  std::shared_ptr<Context> owner;
  std::shared_ptr<const KernelSet> kernels; ///< once a call needed them
  CacheShape shape;
  float smScale = 0, newDelta = 0;
  bool callerPages = false;
  int32_t pieceBlocks = 0; ///< GPU: given size of pieces, or 0

  std::unique_ptr<CacheMemory> memory;
  std::vector<ffdLayerMemory> layerMemory;
  // Tables in the cache's memory.
  int32_t *pageTable = nullptr;  ///< [slots][pageStride]
  int32_t *lengths = nullptr;    ///< [layers][slots]
  int32_t *capacity = nullptr;   ///< [slots] blocks that have pages
  float *deltas = nullptr;       ///< [slots]
  uint64_t *keptCount = nullptr; ///< [layers][slots * heads]

  PagePool pool;
  std::vector<Sequence> sequences;
  HostBuffer workspace; ///< of CPU decodes
  std::unique_ptr<Gpu> gpu;
  // Counters: selection blocks scanned per head of a layer; as they were at the
  // last request, with the kept ones of a CPU.
  std::vector<uint64_t> scanned, scannedThen, counts;
  bool requested = false;
};

} // namespace ffd

struct ffdCache {
  std::unique_ptr<ffd::PagedCache> impl;
};

#endif // FFD_SRC_PAGEDCACHE_H
