//===- ReferenceAppend.cpp - A slow append, exactly by the spec ------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Joins the old tail and the new tokens of a row in one vector and cuts blocks
// off its front.
//
//===----------------------------------------------------------------------===//

#include "ReferenceAppend.h"

#include "ffd/Centre.h"
#include "ffd/Spec.h"
#include "ffd/Split.h"

#include <algorithm>
#include <cstring>
#include <vector>

using namespace ffd;

static int64_t blocksOf(const ffdSpec &spec, const ffdAppendArgs &a,
                        int64_t slot, int64_t length) {
  return std::max<int64_t>(committedBlocks(spec, length, a.lag),
                           a.committed ? a.committed[slot] : 0);
}

static int32_t refusal(const ffdSpec &spec, const ffdAppendArgs &a, int64_t b,
                       int64_t count, int64_t &after) {
  const int64_t length = a.lengths[b];
  if (length < 0 || count < 0 || length + count > INT32_MAX)
    return FFD_APPEND_BAD_LENGTH;
  after = blocksOf(spec, a, b, length + count);
  int32_t bits = 0;
  if (after > a.reserved[b])
    bits |= FFD_APPEND_BEYOND_RESERVATION;
  if (length + count - after * spec.quant_block > a.tail_tokens)
    bits |= FFD_APPEND_TAIL_TOO_SHORT;
  const int64_t before = blocksOf(spec, a, b, length);
  for (int64_t block = before; !bits && block < after; ++block) {
    const int32_t page = a.page_table[b * a.page_stride + block];
    if (page < 0 || page >= a.pages)
      bits |= FFD_APPEND_BAD_PAGE;
  }
  return bits;
}

void ffd::referenceAppend(const ffdSpec &spec, const ffdAppendArgs &a) {
  const Layout l = layoutOf(spec);
  const int64_t d = l.headDim, dv = l.valueDim, size = spec.quant_block;
  for (int64_t i = 0; i < a.batch; ++i) {
    const int64_t b = a.slots ? a.slots[i] : i;
    if (a.slots && (b < 0 || b >= a.slot_count))
      continue;
    const int64_t first = a.offsets[i], end = a.offsets[i + 1];
    if (first == end) {
      a.new_lengths[b] = a.lengths[b];
      continue;
    }
    int64_t after = 0;
    if (const int32_t bits = refusal(spec, a, b, end - first, after)) {
      a.errors[b] |= bits;
      a.new_lengths[b] = a.lengths[b];
      continue;
    }
    const int64_t length = a.lengths[b];
    const int64_t before = blocksOf(spec, a, b, length);
    const int64_t tail = length - before * size;
    for (int64_t h = 0; h < a.kv_heads; ++h) {
      const int64_t row = b * a.kv_heads + h;
      const int64_t at = b * a.tail_batch_stride + h * a.tail_head_stride;
      auto *tailK = static_cast<uint16_t *>(a.tail_k) + at * d;
      auto *tailV = static_cast<uint16_t *>(a.tail_v) + at * dv;
      std::vector<uint16_t> k(tailK, tailK + tail * d);
      std::vector<uint16_t> v(tailV, tailV + tail * dv);
      for (int64_t t = first; t < end; ++t) {
        const uint16_t *newK = static_cast<const uint16_t *>(a.k) +
                               t * a.k_token_stride + h * a.k_head_stride;
        const uint16_t *newV = static_cast<const uint16_t *>(a.v) +
                               t * a.v_token_stride + h * a.v_head_stride;
        k.insert(k.end(), newK, newK + d);
        v.insert(v.end(), newV, newV + dv);
      }
      if (spec.centre == FFD_CENTRE_ROW) {
        uint16_t *c = static_cast<uint16_t *>(a.centre) + row * d;
        const int64_t tokens = int64_t(k.size()) / d;
        if (before == 0)
          std::fill_n(c, d, uint16_t(0));
        if (before == 0 && after > 0)
          centreOf(spec, k.data(), d, c);
        // What was relative before stays so.
        const int64_t relative = before > 0 ? tail : 0;
        if (after > 0)
          centreKeys(spec, &k[size_t(relative * d)], d, tokens - relative, c,
                     &k[size_t(relative * d)], d);
      }
      auto *smax = static_cast<uint16_t *>(a.smax) + row * l.paddedHeadDim();
      if (before == 0 && after > 0)
        std::fill_n(smax, l.paddedHeadDim(), uint16_t(0));
      for (int64_t block = before; block < after; ++block) {
        const int64_t slot =
            int64_t(a.page_table[b * a.page_stride + block]) * a.kv_heads + h;
        const int64_t from = (block - before) * size;
        auto *thumbnail =
            static_cast<uint8_t *>(a.thumbnails) + slot * l.thumbnailBytes();
        splitBlock(spec, &k[size_t(from * d)], d, thumbnail,
                   static_cast<uint8_t *>(a.residuals) +
                       slot * l.residualBytes());
        packValues(spec, &v[size_t(from * dv)], dv,
                   static_cast<uint8_t *>(a.values) + slot * l.valueBytes());
        maximiseScales(spec, thumbnail, smax);
      }
      const int64_t gone = (after - before) * size;
      std::copy(k.begin() + gone * d, k.end(), tailK);
      std::copy(v.begin() + gone * dv, v.end(), tailV);
    }
    a.new_lengths[b] = int32_t(length + end - first);
  }
}
