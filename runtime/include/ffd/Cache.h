//===- Cache.h - A split cache in host memory -------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Builds the packed split cache of a ragged batch from 16-bit K and V and owns
// what a decode reads: planes, page table, tails, smax and lengths (layout.h
// says where every byte lives, docs/numerics.md what it is worth). Memory that
// no decode may read is filled with 0xFF, so that a wrong read shows as NaN.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_CACHE_H
#define FFD_CACHE_H

#include "ffd/Memory.h"
#include "ffd/Spec.h"
#include "ffd/Status.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace ffd {

class ThreadPool;

/// 16-bit elements [sequence][token][head][channel], channels contiguous,
/// strides in elements.
struct TokenView {
  const uint16_t *data = nullptr;
  int64_t batchStride = 0;
  int64_t tokenStride = 0;
  int64_t headStride = 0;

  /// A dense tensor [batch][tokens][heads][dim].
  static TokenView dense(const uint16_t *data, int64_t tokens, int64_t heads,
                         int64_t dim) {
    return {data, tokens * heads * dim, heads * dim, dim};
  }
  const uint16_t *at(int64_t sequence, int64_t token, int64_t head) const {
    return data + sequence * batchStride + token * tokenStride +
           head * headStride;
  }
};

struct SplitCacheOptions {
  ffdSpec spec = {};
  int64_t batch = 0;   ///< sequences
  int64_t kvHeads = 0; ///< heads of K and V
  int64_t kvBatch = 0; ///< sequences K and V hold: `batch`, or 1 for all
  int64_t tokens = 0;  ///< tokens K and V hold per sequence
  TokenView k;         ///< [kvBatch][tokens][kvHeads][head_dim]
  TokenView v;         ///< [kvBatch][tokens][kvHeads][value_dim]
  /// [batch] visible tokens, each 0..tokens; empty: all of them. Tokens beyond
  /// the longest length that uses them are never read.
  std::vector<int64_t> lengths;
  int64_t lag = 0; ///< newest tokens that stay in 16 bit at least
  /// Nonzero: page ids are a pseudo-random permutation with this seed, as in a
  /// pool that has been in use for a while.
  uint64_t pageSeed = 0;
};

/// What one decode reads at least, in bytes; a row is a (sequence, kv head).
struct DecodeBytes {
  int64_t scan = 0;         ///< thumbnails of all committed blocks
  int64_t kept = 0;         ///< residuals and V of the kept selection blocks,
                            ///< and residuals that a refined pseudo-max needs
  int64_t tail = 0;         ///< 16-bit K and V of the tails
  int64_t dense = 0;        ///< 16-bit K and V of all tokens: what exact reads
  int64_t keptBlocks = 0;   ///< kept selection blocks
  int64_t selectBlocks = 0; ///< selection blocks of the committed tokens
  int64_t total() const { return scan + kept + tail; }
  double keepRatio() const {
    return selectBlocks ? double(keptBlocks) / double(selectBlocks) : 1.0;
  }
};

class SplitCache {
public:
  /// Checks the options, quantises and packs. K and V are copied.
  static Status create(const SplitCacheOptions &options, ThreadPool &pool,
                       std::unique_ptr<SplitCache> &cache);

  /// Sets the fields that describe the cache: planes, smax, centre, tails,
  /// page_table, lengths, page and tail strides, batch, kv_heads and lag. The
  /// pointers live as long as the cache. The rest stays as it is.
  void fill(ffdDecodeArgs &args) const;

  const ffdSpec &spec() const { return cacheSpec; }
  const Layout &layout() const { return cacheLayout; }
  int64_t batch() const { return sequences; }
  int64_t kvHeads() const { return heads; }
  int64_t rows() const { return sequences * heads; }
  int64_t lag() const { return newest; }
  int64_t pages() const { return pageCount; }

  int64_t length(int64_t sequence) const {
    return lengths.as<int32_t>()[sequence];
  }
  /// Committed quantisation blocks, selection blocks and tail tokens.
  int64_t blocks(int64_t sequence) const {
    return committedBlocks(cacheSpec, length(sequence), newest);
  }
  int64_t selects(int64_t sequence) const {
    return blocks(sequence) * cacheLayout.selectsPerBlock();
  }
  int64_t tailLength(int64_t sequence) const {
    return tailTokens(cacheSpec, length(sequence), newest);
  }
  /// The largest of the batch; a kept mask needs at least `maxSelects` bytes
  /// per row.
  int64_t maxBlocks() const { return mostBlocks; }
  int64_t maxSelects() const {
    return mostBlocks * cacheLayout.selectsPerBlock();
  }

  /// Slots of a page, for tests and oracles.
  const uint8_t *thumbnail(int64_t page, int64_t head) const {
    return thumbnails.data() +
           (page * heads + head) * cacheLayout.thumbnailBytes();
  }
  const uint8_t *residual(int64_t page, int64_t head) const {
    return residuals.data() +
           (page * heads + head) * cacheLayout.residualBytes();
  }
  const uint8_t *value(int64_t page, int64_t head) const {
    return values.data() + (page * heads + head) * cacheLayout.valueBytes();
  }
  int64_t page(int64_t sequence, int64_t block) const {
    return pageTable.as<int32_t>()[sequence * pageStride + block];
  }

  /// c of a row, head_dim elements; null without FFD_CENTRE_ROW.
  const uint16_t *centre(int64_t sequence, int64_t head) const {
    return cacheSpec.centre == FFD_CENTRE_NONE
               ? nullptr
               : centres.as<uint16_t>() +
                     (sequence * heads + head) * cacheLayout.headDim;
  }

  int64_t thumbnailPlaneBytes() const { return thumbnails.size(); }
  int64_t residualPlaneBytes() const { return residuals.size(); }
  int64_t valuePlaneBytes() const { return values.size(); }
  int64_t tailBytes() const { return tailK.size() + tailV.size(); }
  int64_t totalBytes() const {
    return thumbnailPlaneBytes() + residualPlaneBytes() + valuePlaneBytes() +
           tailBytes() + smax.size() + centres.size() + pageTable.size() +
           lengths.size();
  }

  /// `kept` is [row][keptStride] as a decode wrote it; null counts everything
  /// as kept. A page that several sequences share counts once for each.
  DecodeBytes decodeBytes(const uint8_t *kept, int64_t keptStride) const;

private:
  SplitCache() = default;
  void computeCentres(const SplitCacheOptions &options, ThreadPool &pool);
  void pack(const SplitCacheOptions &options, ThreadPool &pool);
  void packTails(const SplitCacheOptions &options, ThreadPool &pool);
  void maximiseScales(ThreadPool &pool);

  ffdSpec cacheSpec = {};
  Layout cacheLayout;
  int64_t sequences = 0, heads = 0, newest = 0;
  int64_t pageCount = 0, pageStride = 0, mostBlocks = 0, tailCapacity = 0;
  HostBuffer thumbnails, residuals, values, smax, centres, tailK, tailV,
      pageTable, lengths;
};

} // namespace ffd
#endif // FFD_CACHE_H
