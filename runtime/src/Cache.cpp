//===- Cache.cpp - A split cache in host memory -------------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sizes first, all of them checked, then the packing: one task per page, one
// per tail, one per row of smax.
//
//===----------------------------------------------------------------------===//

#include "ffd/Cache.h"

#include "ffd/Centre.h"
#include "ffd/Split.h"
#include "ffd/ThreadPool.h"

#include <algorithm>
#include <cstring>
#include <numeric>

using namespace ffd;

namespace {

Status badOption(const char *option, int64_t value,
                 const std::string &expected) {
  return Status::invalid(std::string("split cache option '") + option +
                         "' is " + std::to_string(value) + ", expected " +
                         expected);
}

Status checkView(const char *name, const TokenView &view, int64_t longest) {
  if (longest > 0 && !view.data)
    return Status::invalid(std::string("split cache option '") + name +
                           "' is null, expected the elements of " +
                           std::to_string(longest) + " tokens");
  return Status::success();
}

Status checkOptions(const SplitCacheOptions &o) {
  FFD_RETURN_IF_ERROR(checkSpec(o.spec, /*ablations=*/true));
  if (o.batch < 1 || o.batch > INT32_MAX)
    return badOption("batch", o.batch, "1 to 2147483647");
  if (o.kvHeads < 1 || o.kvHeads > INT32_MAX)
    return badOption("kvHeads", o.kvHeads, "1 to 2147483647");
  if (o.kvBatch != o.batch && o.kvBatch != 1)
    return badOption("kvBatch", o.kvBatch,
                     "1 or the batch, " + std::to_string(o.batch));
  if (o.tokens < 0 || o.tokens > INT32_MAX)
    return badOption("tokens", o.tokens, "0 to 2147483647");
  if (o.lag < 0 || o.lag > INT32_MAX)
    return badOption("lag", o.lag, "0 to 2147483647");
  if (!o.lengths.empty() && int64_t(o.lengths.size()) != o.batch)
    return badOption("lengths.size()", int64_t(o.lengths.size()),
                     "the batch, " + std::to_string(o.batch));
  int64_t longest = o.lengths.empty() ? o.tokens : 0;
  for (size_t i = 0; i < o.lengths.size(); ++i) {
    if (o.lengths[i] < 0 || o.lengths[i] > o.tokens)
      return badOption(("lengths[" + std::to_string(i) + "]").c_str(),
                       o.lengths[i], "0 to " + std::to_string(o.tokens));
    longest = std::max(longest, o.lengths[i]);
  }
  FFD_RETURN_IF_ERROR(checkView("k", o.k, longest));
  return checkView("v", o.v, longest);
}

/// allocate() of a product of sizes.
Status allocateProduct(HostBuffer &buffer, const char *what,
                       std::initializer_list<int64_t> factors, int fill) {
  int64_t bytes;
  if (!checkedProduct(factors, bytes))
    return Status(StatusCode::OutOfMemory, std::string("the size of the ") +
                                               what +
                                               " does not fit in 64 bits");
  return buffer.allocate(what, bytes, fill);
}

/// The identity, or a permutation that depends on the seed only.
std::vector<int32_t> pageOrder(int64_t pages, uint64_t seed) {
  std::vector<int32_t> order(static_cast<size_t>(pages));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = pages - 1; seed != 0 && i > 0; --i) {
    seed += 0x9E3779B97F4A7C15; // splitmix64
    uint64_t z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    std::swap(order[size_t(i)], order[size_t((z ^ z >> 31) % uint64_t(i + 1))]);
  }
  return order;
}

} // namespace

Status SplitCache::create(const SplitCacheOptions &options, ThreadPool &pool,
                          std::unique_ptr<SplitCache> &result) {
  FFD_RETURN_IF_ERROR(checkOptions(options));
  std::unique_ptr<SplitCache> cache(new SplitCache);
  SplitCache &c = *cache;
  c.cacheSpec = options.spec;
  c.cacheLayout = layoutOf(options.spec);
  c.sequences = options.batch;
  c.heads = options.kvHeads;
  c.newest = options.lag;
  const bool shared = options.kvBatch != options.batch;

  FFD_RETURN_IF_ERROR(
      allocateProduct(c.lengths, "lengths", {c.sequences, 4}, 0xFF));
  int64_t longest = 0;
  for (int64_t s = 0; s < c.sequences; ++s) {
    const int64_t length =
        options.lengths.empty() ? options.tokens : options.lengths[size_t(s)];
    c.lengths.as<int32_t>()[s] = int32_t(length);
    longest = std::max(longest, length);
    c.mostBlocks = std::max(c.mostBlocks, c.blocks(s));
    c.pageCount = shared ? c.mostBlocks : c.pageCount + c.blocks(s);
  }
  if (c.pageCount > INT32_MAX)
    return Status(StatusCode::OutOfMemory,
                  "the split cache needs " + std::to_string(c.pageCount) +
                      " pages, expected at most 2147483647");
  c.pageStride = std::max<int64_t>(4, (c.mostBlocks + 3) / 4 * 4);
  c.tailCapacity =
      std::min<int64_t>(c.cacheSpec.quant_block + c.newest, longest);
  c.tailCapacity = std::max<int64_t>(16, (c.tailCapacity + 15) / 16 * 16);

  const Layout &l = c.cacheLayout;
  FFD_RETURN_IF_ERROR(
      allocateProduct(c.thumbnails, "thumbnails",
                      {c.pageCount, c.heads, l.thumbnailBytes()}, 0xFF));
  FFD_RETURN_IF_ERROR(allocateProduct(c.residuals, "residuals",
                                      {c.pageCount, c.heads, l.residualBytes()},
                                      0xFF));
  FFD_RETURN_IF_ERROR(allocateProduct(
      c.values, "values", {c.pageCount, c.heads, l.valueBytes()}, 0xFF));
  FFD_RETURN_IF_ERROR(allocateProduct(
      c.smax, "smax", {c.sequences, c.heads, l.paddedHeadDim(), 2}, 0));
  if (c.cacheSpec.centre != FFD_CENTRE_NONE)
    FFD_RETURN_IF_ERROR(allocateProduct(
        c.centres, "centres", {c.sequences, c.heads, l.headDim, 2}, 0));
  FFD_RETURN_IF_ERROR(allocateProduct(
      c.tailK, "tails of K",
      {c.sequences, c.heads, c.tailCapacity, l.headDim, 2}, 0xFF));
  FFD_RETURN_IF_ERROR(allocateProduct(
      c.tailV, "tails of V",
      {c.sequences, c.heads, c.tailCapacity, l.valueDim, 2}, 0xFF));
  FFD_RETURN_IF_ERROR(allocateProduct(c.pageTable, "page table",
                                      {c.sequences, c.pageStride, 4}, 0xFF));
  c.computeCentres(options, pool);
  c.pack(options, pool);
  c.packTails(options, pool);
  c.maximiseScales(pool);
  result = std::move(cache);
  return Status::success();
}

/// centre_c1: 0 for rows without committed blocks.
void SplitCache::computeCentres(const SplitCacheOptions &options,
                                ThreadPool &pool) {
  if (cacheSpec.centre == FFD_CENTRE_NONE)
    return;
  const bool shared = options.kvBatch != options.batch;
  pool.parallelFor(rows(), [&](int64_t row) {
    const int64_t s = row / heads;
    if (blocks(s) > 0)
      centreOf(cacheSpec, options.k.at(shared ? 0 : s, 0, row % heads),
               options.k.tokenStride,
               centres.as<uint16_t>() + row * cacheLayout.headDim);
  });
}

void SplitCache::pack(const SplitCacheOptions &options, ThreadPool &pool) {
  const bool shared = options.kvBatch != options.batch;
  const std::vector<int32_t> order = pageOrder(pageCount, options.pageSeed);
  struct Work {
    int64_t sequence, block, page; // of the input, but for the page
    int64_t row;                   // whose centre it has, of head 0
  };
  std::vector<Work> work;
  int64_t next = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    int32_t *table = pageTable.as<int32_t>() + s * pageStride;
    if (shared)
      next = 0;
    for (int64_t block = 0; block < blocks(s); ++block, ++next) {
      table[block] = order[size_t(next)];
      if (next == int64_t(work.size()))
        work.push_back({shared ? 0 : s, block, table[block], s * heads});
    }
  }

  const Layout &l = cacheLayout;
  pool.parallelFor(int64_t(work.size()), [&](int64_t i) {
    const Work w = work[size_t(i)];
    const int64_t first = w.block * cacheSpec.quant_block;
    std::vector<uint16_t> centred;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t slot = w.page * heads + h;
      const uint16_t *k = options.k.at(w.sequence, first, h);
      int64_t stride = options.k.tokenStride;
      if (cacheSpec.centre != FFD_CENTRE_NONE) {
        centred.resize(size_t(cacheSpec.quant_block * l.headDim));
        centreKeys(cacheSpec, k, stride, cacheSpec.quant_block,
                   centres.as<uint16_t>() + (w.row + h) * l.headDim,
                   centred.data(), l.headDim);
        k = centred.data();
        stride = l.headDim;
      }
      splitBlock(cacheSpec, k, stride,
                 thumbnails.data() + slot * l.thumbnailBytes(),
                 residuals.data() + slot * l.residualBytes());
      packValues(cacheSpec, options.v.at(w.sequence, first, h),
                 options.v.tokenStride, values.data() + slot * l.valueBytes());
    }
  });
}

void SplitCache::packTails(const SplitCacheOptions &options, ThreadPool &pool) {
  const bool shared = options.kvBatch != options.batch;
  pool.parallelFor(rows(), [&](int64_t row) {
    const int64_t s = row / heads, h = row % heads, from = shared ? 0 : s;
    const int64_t first = blocks(s) * cacheSpec.quant_block;
    const uint16_t *centre = this->centre(s, h);
    for (int64_t t = 0; t < tailLength(s); ++t) {
      const int64_t slot = row * tailCapacity + t;
      if (centre && blocks(s) > 0)
        centreKeys(cacheSpec, options.k.at(from, first + t, h), 0, 1, centre,
                   tailK.as<uint16_t>() + slot * cacheLayout.headDim, 0);
      else
        std::memcpy(tailK.as<uint16_t>() + slot * cacheLayout.headDim,
                    options.k.at(from, first + t, h),
                    size_t(cacheLayout.headDim) * 2);
      std::memcpy(tailV.as<uint16_t>() + slot * cacheLayout.valueDim,
                  options.v.at(from, first + t, h),
                  size_t(cacheLayout.valueDim) * 2);
    }
  });
}

void SplitCache::maximiseScales(ThreadPool &pool) {
  pool.parallelFor(rows(), [&](int64_t row) {
    const int64_t s = row / heads, h = row % heads;
    uint16_t *top = smax.as<uint16_t>() + row * cacheLayout.paddedHeadDim();
    for (int64_t block = 0; block < blocks(s); ++block)
      ffd::maximiseScales(cacheSpec, thumbnail(page(s, block), h), top);
  });
}

void SplitCache::fill(ffdDecodeArgs &args) const {
  args.thumbnails = thumbnails.data();
  args.residuals = residuals.data();
  args.values = values.data();
  args.smax = smax.data();
  args.centre = cacheSpec.centre == FFD_CENTRE_NONE ? nullptr : centres.data();
  args.tail_k = tailK.data();
  args.tail_v = tailV.data();
  args.page_table = pageTable.as<int32_t>();
  args.lengths = lengths.as<int32_t>();
  args.page_stride = pageStride;
  args.tail_batch_stride = heads * tailCapacity;
  args.tail_head_stride = tailCapacity;
  args.batch = int32_t(sequences);
  args.kv_heads = int32_t(heads);
  args.lag = int32_t(newest);
}

DecodeBytes SplitCache::decodeBytes(const uint8_t *kept,
                                    int64_t keptStride) const {
  const Layout &l = cacheLayout;
  const int64_t keptBytes = l.selectBlock * (l.residualBytes() / l.quantBlock +
                                             2 * l.paddedValueDim());
  const int64_t tokenBytes = 2 * (l.headDim + l.valueDim);
  DecodeBytes bytes;
  for (int64_t row = 0; row < rows(); ++row) {
    const int64_t s = row / heads, count = selects(s);
    int64_t keep = kept ? 0 : count;
    for (int64_t i = 0; kept && i < count; ++i)
      keep += kept[row * keptStride + i] != 0;
    bytes.scan += blocks(s) * l.thumbnailBytes();
    bytes.kept += keep * keptBytes;
    if (cacheSpec.pseudo_max) {
      // Residuals of the first and the last block are read, kept or not.
      const int64_t per = l.selectsPerBlock();
      int64_t skipped = 0;
      for (int64_t i = 0; kept && i < count; ++i)
        skipped += (i < per || i >= count - per) &&
                   kept[row * keptStride + i] == 0;
      bytes.kept +=
          skipped * l.selectBlock * (l.residualBytes() / l.quantBlock);
    }
    bytes.tail += tailLength(s) * tokenBytes;
    bytes.dense += length(s) * tokenBytes;
    bytes.keptBlocks += keep;
    bytes.selectBlocks += count;
  }
  return bytes;
}
