//===- CacheShape.cpp - The sizes of a paged cache --------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Options checked one by one, every product in 64 bits or refused. No memory is
// touched, so that sizes can be asked for before there is any.
//
//===----------------------------------------------------------------------===//

#include "PagedCache.h"

#include <cmath>

using namespace ffd;

static Status badOption(const char *option, const std::string &value,
                        const std::string &expected) {
  return Status::invalid(std::string("'ffdCacheOptions' field '") + option +
                         "' is " + value + ", expected " + expected);
}

static Status checkRange(const char *option, int64_t value, int64_t least,
                         int64_t most) {
  if (value >= least && value <= most)
    return Status::success();
  return badOption(option, std::to_string(value),
                   std::to_string(least) + " to " + std::to_string(most));
}

Status CacheShape::of(const ffdCacheOptions &o, CacheShape &shape) {
  FFD_RETURN_IF_ERROR(checkSpec(o.spec));
  FFD_RETURN_IF_ERROR(checkRange("layers", o.layers, 1, 65536));
  FFD_RETURN_IF_ERROR(checkRange("kv_heads", o.kv_heads, 1, 65536));
  FFD_RETURN_IF_ERROR(checkRange("sequences", o.sequences, 1, 1 << 20));
  // Tokens that ask must be in the tail.
  FFD_RETURN_IF_ERROR(
      checkRange("lag", o.lag, queryTokens(o.spec) - 1, 1 << 20));
  // Lengths are 32-bit numbers, and a block more must not overflow them.
  FFD_RETURN_IF_ERROR(
      checkRange("max_tokens", o.max_tokens, 1, INT32_MAX - (1 << 21)));
  FFD_RETURN_IF_ERROR(checkRange("pages", o.pages, 0, INT32_MAX));
  if (!(o.delta >= 0))
    return badOption("delta", std::to_string(o.delta),
                     "a number of at least 0, or infinity");
  if (!(o.sm_scale >= 0) || !std::isfinite(o.sm_scale))
    return badOption("sm_scale", std::to_string(o.sm_scale),
                     "a finite number of at least 0");

  if (o.piece_tokens < 0 || o.piece_tokens % o.spec.quant_block != 0 ||
      (o.piece_tokens > 0 && !o.batch_invariant))
    return badOption("piece_tokens", std::to_string(o.piece_tokens),
                     o.batch_invariant
                         ? "a multiple of " +
                               std::to_string(o.spec.quant_block) +
                               ", at least 0"
                         : "0 without batch_invariant");
  shape = CacheShape();
  shape.spec = o.spec;
  const Layout l = shape.layout = layoutOf(o.spec);
  shape.layers = o.layers;
  shape.heads = o.kv_heads;
  shape.slots = o.sequences;
  shape.lag = o.lag;
  shape.maxTokens = o.max_tokens;
  shape.pages = o.pages;
  const int64_t block = o.spec.quant_block;
  shape.tailCapacity = (block + o.lag + 15) / 16 * 16;
  // One more than a sequence can commit, in multiples of 16 bytes.
  shape.pageStride = (o.max_tokens / block + 1 + 3) / 4 * 4;

  ffdCacheSizes &s = shape.sizes;
  s.struct_size = sizeof s;
  s.tail_capacity = shape.tailCapacity;
  bool fits = true;
  const auto product = [&](std::initializer_list<int64_t> factors) {
    int64_t bytes = 0;
    fits &= checkedProduct(factors, bytes);
    return uint64_t(bytes);
  };
  const int64_t rows = shape.rows();
  s.thumbnails = product({o.pages, o.kv_heads, l.thumbnailBytes()});
  s.residuals = product({o.pages, o.kv_heads, l.residualBytes()});
  s.values = product({o.pages, o.kv_heads, l.valueBytes()});
  s.smax = product({rows, l.scaleBytes()});
  const int64_t centreBytes =
      o.spec.centre != FFD_CENTRE_NONE ? 2 * l.headDim : 0;
  s.centre = product({rows, centreBytes});
  s.tail_k = product({rows, shape.tailCapacity, l.headDim, 2});
  s.tail_v = product({rows, shape.tailCapacity, l.valueDim, 2});
  s.page_bytes =
      product({o.layers, o.kv_heads,
               l.thumbnailBytes() + l.residualBytes() + l.valueBytes()});
  const int64_t perRow = l.scaleBytes() + centreBytes +
                         shape.tailCapacity * (l.headDim + l.valueDim) * 2;
  // smax, centre and tails; lengths and counters; page table, capacity and
  // delta.
  s.sequence_bytes = product({o.layers, o.kv_heads, perRow + 8}) +
                     product({o.layers, 4}) + product({shape.pageStride, 4}) +
                     8;
  const uint64_t pages = product({o.pages, int64_t(s.page_bytes)});
  const uint64_t slots = product({o.sequences, int64_t(s.sequence_bytes)});
  s.total_bytes = pages + slots;
  if (!fits || s.total_bytes > uint64_t(INT64_MAX))
    return Status(StatusCode::OutOfMemory,
                  "the size of the cache does not fit in 64 bits, expected "
                  "fewer pages, sequences or layers");
  return Status::success();
}
