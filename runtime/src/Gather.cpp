//===- Gather.cpp - Reading a cache back, and its counters ------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Block by block through host memory; nothing that runs every step.
//
//===----------------------------------------------------------------------===//

#include "PagedCache.h"

#include "ffd/Centre.h"
#include "ffd/Float16.h"
#include "ffd/Split.h"

#include <algorithm>
#include <cstring>

using namespace ffd;

Status PagedCache::gather(int64_t layer, int32_t slot, int64_t first,
                          int64_t count, uint16_t *k, uint16_t *v,
                          void *stream) {
  FFD_RETURN_IF_ERROR(checkSlot(slot));
  if (layer < 0 || layer >= shape.layers)
    return Status::invalid("the layer to gather is " + std::to_string(layer) +
                           ", expected 0 to " +
                           std::to_string(shape.layers - 1));
  const Sequence &sequence = sequences[size_t(slot)];
  const int64_t length = sequence.length[size_t(layer)];
  if (first < 0 || first > length || count < 0 || count > length - first)
    return Status::invalid(
        "the tokens to gather are " + std::to_string(count) + " from " +
        std::to_string(first) + ", expected a range of the " +
        std::to_string(length) + " tokens of sequence " + std::to_string(slot));
  FFD_RETURN_IF_ERROR(checkNotCapturing("ffdGather", stream));
  const Layout &l = shape.layout;
  const int64_t size = shape.spec.quant_block, d = l.headDim, dv = l.valueDim;
  const int64_t committed = sequence.committed[size_t(layer)];
  const size_t heads = size_t(shape.heads);
  std::vector<uint8_t> thumbnails(heads * size_t(l.thumbnailBytes())),
      residuals(heads * size_t(l.residualBytes())),
      values(heads * size_t(l.valueBytes()));
  std::vector<uint16_t> kRow, vRow; // of one block or tail, all heads
  int64_t next = 0;
  for (int64_t at = first; at < first + count; at = next) {
    const int64_t block = std::min(at / size, committed);
    next = block == committed ? first + count
                              : std::min(first + count, (block + 1) * size);
    const int64_t n = next - at, start = at - block * size;
    kRow.resize(size_t(n * shape.heads * d));
    vRow.resize(size_t(n * shape.heads * dv));
    std::vector<uint16_t> tail(size_t(n * std::max(d, dv)));
    if (block < committed) { // all heads of a page at once
      const int64_t page = sequence.pages[size_t(block)];
      const auto read = [&](std::vector<uint8_t> &to, const uint8_t *from) {
        return memory->read(to.data(), from, int64_t(to.size()), stream);
      };
      if (k) {
        FFD_RETURN_IF_ERROR(read(thumbnails, thumbnail(layer, page, 0)));
        FFD_RETURN_IF_ERROR(read(residuals, residual(layer, page, 0)));
      }
      if (v)
        FFD_RETURN_IF_ERROR(read(values, value(layer, page, 0)));
    }
    for (int64_t head = 0; head < shape.heads; ++head) {
      // centre_c5; 0 for plain keys and for rows without committed blocks.
      std::vector<uint16_t> centre(static_cast<size_t>(d), 0);
      if (centred() && committed > 0)
        FFD_RETURN_IF_ERROR(memory->read(
            centre.data(), centreRow(layer, slot, head), d * 2, stream));
      if (block == committed) {
        FFD_RETURN_IF_ERROR(memory->read(tail.data(),
                                         tailK(layer, slot, head) + start * d,
                                         n * d * 2, stream));
        for (int64_t t = 0; t < n; ++t) {
          uint16_t *toK = &kRow[size_t((t * shape.heads + head) * d)];
          std::memcpy(toK, &tail[size_t(t * d)], size_t(d) * 2);
          for (int64_t c = 0; centred() && committed > 0 && c < d; ++c)
            toK[c] = f32ToElement(
                shape.spec.element,
                uncentred(shape.spec, elementToF32(shape.spec.element, toK[c]),
                          centre[size_t(c)]));
        }
        FFD_RETURN_IF_ERROR(memory->read(tail.data(),
                                         tailV(layer, slot, head) + start * dv,
                                         n * dv * 2, stream));
        for (int64_t t = 0; t < n; ++t)
          std::memcpy(&vRow[size_t((t * shape.heads + head) * dv)],
                      &tail[size_t(t * dv)], size_t(dv) * 2);
        continue;
      }
      const uint8_t *thumbnailOf =
          thumbnails.data() + head * l.thumbnailBytes();
      const uint8_t *residualOf = residuals.data() + head * l.residualBytes();
      const uint8_t *valueOf = values.data() + head * l.valueBytes();
      for (int64_t t = 0; t < n; ++t) {
        uint16_t *toK = &kRow[size_t((t * shape.heads + head) * d)];
        for (int64_t c = 0; k && c < d; ++c)
          toK[c] = f32ToElement(
              shape.spec.element,
              uncentred(shape.spec,
                        float(reconstructAt(shape.spec, thumbnailOf, residualOf,
                                            start + t, c)),
                        centre[size_t(c)]));
        uint16_t *toV = &vRow[size_t((t * shape.heads + head) * dv)];
        for (int64_t c = 0; v && c < dv; ++c)
          toV[c] = valueAt(l, valueOf, start + t, c);
      }
    }
    const int64_t done = at - first;
    if (k)
      FFD_RETURN_IF_ERROR(memory->write(k + done * shape.heads * d, kRow.data(),
                                        int64_t(kRow.size()) * 2, stream));
    if (v)
      FFD_RETURN_IF_ERROR(memory->write(v + done * shape.heads * dv,
                                        vRow.data(), int64_t(vRow.size()) * 2,
                                        stream));
  }
  return Status::success();
}
