//===- PagedCache.cpp - Sequences in a paged split cache --------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Creation, what operations check of their arguments, and where things are.
//
//===----------------------------------------------------------------------===//

#include "PagedCuda.h"

#include "ffd/CudaDriver.h"
#include "ffd/Split.h"

#include <algorithm>
#include <cmath>

using namespace ffd;

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

PagedCache::~PagedCache() = default; // of Gpu too

Status PagedCache::create(std::shared_ptr<Context> context,
                          const ffdCacheOptions &options,
                          std::unique_ptr<PagedCache> &result) {
  std::unique_ptr<PagedCache> cache(new PagedCache);
  PagedCache &c = *cache;
  FFD_RETURN_IF_ERROR(CacheShape::of(options, c.shape));
  const CacheShape &s = c.shape;
  if (options.host_pages && context->onCpu())
    return Status::invalid("'ffdCacheOptions' field 'host_pages' is set, "
                           "expected 0 for a CPU context");
  c.smScale = options.sm_scale != 0 ? options.sm_scale
                                    : 1 / std::sqrt(float(s.spec.head_dim));
  c.newDelta = options.delta;
  c.callerPages = options.caller_pages != 0;
  c.memory = context->onCpu() ? CacheMemory::host()
                              : CacheMemory::cuda(context->cuda());
  c.owner = std::move(context);

  // Memory of the layers.
  const auto pages =
      options.host_pages ? CacheMemory::Place::Host : CacheMemory::Place::Near;
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    ffdLayerMemory m = {};
    if (options.memory) {
      m = options.memory[layer];
      for (const void *p :
           {m.thumbnails, m.residuals, m.values, m.smax, m.tail_k, m.tail_v,
            c.centred() ? m.centre : m.smax})
        if (!p || uintptr_t(p) % 16 != 0)
          return Status::invalid(
              "'ffdCacheOptions' field 'memory[" + std::to_string(layer) +
              "]' has a pointer that is " + (p ? "not aligned" : "null") +
              ", expected addresses that are multiples of 16");
    } else {
      const auto near = CacheMemory::Place::Near;
      CacheMemory &from = *c.memory;
      FFD_RETURN_IF_ERROR(from.allocate(
          "thumbnails", int64_t(s.sizes.thumbnails), near, m.thumbnails));
      FFD_RETURN_IF_ERROR(from.allocate("residuals", int64_t(s.sizes.residuals),
                                        pages, m.residuals));
      FFD_RETURN_IF_ERROR(
          from.allocate("values", int64_t(s.sizes.values), pages, m.values));
      FFD_RETURN_IF_ERROR(
          from.allocate("smax", int64_t(s.sizes.smax), near, m.smax));
      if (c.centred())
        FFD_RETURN_IF_ERROR(
            from.allocate("centres", int64_t(s.sizes.centre), near, m.centre));
      FFD_RETURN_IF_ERROR(
          from.allocate("tails of K", int64_t(s.sizes.tail_k), near, m.tail_k));
      FFD_RETURN_IF_ERROR(
          from.allocate("tails of V", int64_t(s.sizes.tail_v), near, m.tail_v));
    }
    FFD_RETURN_IF_ERROR(
        c.memory->fill(m.smax, 0, int64_t(s.sizes.smax), nullptr));
    if (c.centred())
      FFD_RETURN_IF_ERROR(
          c.memory->fill(m.centre, 0, int64_t(s.sizes.centre), nullptr));
    c.layerMemory.push_back(m);
  }

  // Tables.
  const auto table = [&](const char *what, int64_t bytes, int fill,
                         auto *&pointer) -> Status {
    void *fresh = nullptr;
    FFD_RETURN_IF_ERROR(
        c.memory->allocate(what, bytes, CacheMemory::Place::Near, fresh));
    pointer = static_cast<std::remove_reference_t<decltype(pointer)>>(fresh);
    return c.memory->fill(fresh, uint8_t(fill), bytes, nullptr);
  };
  FFD_RETURN_IF_ERROR(
      table("page tables", s.slots * s.pageStride * 4, 0xFF, c.pageTable));
  FFD_RETURN_IF_ERROR(table("lengths", s.layers * s.slots * 4, 0, c.lengths));
  FFD_RETURN_IF_ERROR(table("capacities", s.slots * 4, 0, c.capacity));
  FFD_RETURN_IF_ERROR(table("deltas", s.slots * 4, 0, c.deltas));
  FFD_RETURN_IF_ERROR(
      table("counters", s.layers * s.rows() * 8, 0, c.keptCount));

  c.pool = PagePool(c.callerPages ? 0 : s.pages);
  c.sequences.resize(size_t(s.slots));
  for (Sequence &sequence : c.sequences) {
    sequence.length.assign(size_t(s.layers), 0);
    sequence.committed.assign(size_t(s.layers), 0);
  }
  c.scanned.assign(size_t(s.layers), 0);
  if (!c.owner->onCpu()) {
    if (options.batch_invariant)
      c.pieceBlocks = options.piece_tokens > 0
                          ? options.piece_tokens / s.spec.quant_block
                          : -1;
    FFD_RETURN_IF_ERROR(c.createGpu());
    FFD_RETURN_IF_ERROR(c.owner->cuda()->synchronize());
  }
  result = std::move(cache);
  return Status::success();
}

void PagedCache::info(ffdCacheInfo &info) const {
  info.pages = shape.pages;
  info.free_pages = pool.freePages();
  info.sequences = int32_t(
      std::count_if(sequences.begin(), sequences.end(),
                    [](const Sequence &sequence) { return sequence.used; }));
}

//===----------------------------------------------------------------------===//
// Checks and places
//===----------------------------------------------------------------------===//

Status PagedCache::checkSlot(int32_t slot) const {
  if (slot < 0 || slot >= shape.slots)
    return Status::invalid("sequence is " + std::to_string(slot) +
                           ", expected 0 to " +
                           std::to_string(shape.slots - 1));
  if (!sequences[size_t(slot)].used)
    return Status::invalid("sequence " + std::to_string(slot) +
                           " does not exist, expected one that was created "
                           "and not freed");
  return Status::success();
}

Status PagedCache::checkNotCapturing(const char *what, void *stream) const {
  uint64_t capture = 0;
  FFD_RETURN_IF_ERROR(memory->capturing(stream, capture));
  if (capture)
    return Status::invalid(std::string(what) +
                           " is called on a stream that is being captured, "
                           "expected a call before the capture or between "
                           "replays");
  return Status::success();
}

Status PagedCache::checkEven(const char *what, int32_t slot) const {
  const Sequence &sequence = sequences[size_t(slot)];
  for (int64_t layer = 1; layer < shape.layers; ++layer)
    if (sequence.length[size_t(layer)] != sequence.length[0])
      return Status::invalid(
          std::string("cannot ") + what + " sequence " + std::to_string(slot) +
          ": layer " + std::to_string(layer) + " has " +
          std::to_string(sequence.length[size_t(layer)]) +
          " tokens, expected " + std::to_string(sequence.length[0]) +
          " as in layer 0");
  return Status::success();
}

Status PagedCache::checkList(const char *what, int64_t count,
                             const int32_t *slots, bool anySlot) const {
  if (count < 1 || count > shape.slots)
    return Status::invalid(std::string("the number of sequences of ") + what +
                           " is " + std::to_string(count) + ", expected 1 to " +
                           std::to_string(shape.slots));
  std::vector<bool> seen(size_t(shape.slots), false);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t slot = slots ? slots[i] : int32_t(i);
    if (!anySlot || slot < 0 || slot >= shape.slots)
      FFD_RETURN_IF_ERROR(checkSlot(slot));
    if (seen[size_t(slot)])
      return Status::invalid("sequence " + std::to_string(slot) +
                             " is listed twice in " + what + ", expected once");
    seen[size_t(slot)] = true;
  }
  return Status::success();
}

Status PagedCache::checkDeviceSequences(const char *batch, const int32_t *slots,
                                        const int32_t *given,
                                        uint64_t capture) const {
  if (!given)
    return Status::success();
  const std::string field =
      std::string("'") + batch + "' field 'device_sequences' is given ";
  if (owner->onCpu())
    return Status::invalid(field + "to a CPU context, expected NULL");
  if (!capture)
    return Status::invalid(field + "outside of a capture, expected 'sequences' "
                                   "on the host, which must know them");
  if (slots)
    return Status::invalid(field + "beside 'sequences', expected one of them");
  return Status::success();
}

uint8_t *PagedCache::thumbnail(int64_t layer, int64_t page,
                               int64_t head) const {
  return static_cast<uint8_t *>(layerMemory[size_t(layer)].thumbnails) +
         (page * shape.heads + head) * shape.layout.thumbnailBytes();
}
uint8_t *PagedCache::residual(int64_t layer, int64_t page, int64_t head) const {
  return static_cast<uint8_t *>(layerMemory[size_t(layer)].residuals) +
         (page * shape.heads + head) * shape.layout.residualBytes();
}
uint8_t *PagedCache::value(int64_t layer, int64_t page, int64_t head) const {
  return static_cast<uint8_t *>(layerMemory[size_t(layer)].values) +
         (page * shape.heads + head) * shape.layout.valueBytes();
}
uint16_t *PagedCache::smaxRow(int64_t layer, int64_t slot, int64_t head) const {
  return static_cast<uint16_t *>(layerMemory[size_t(layer)].smax) +
         (slot * shape.heads + head) * shape.layout.paddedHeadDim();
}
uint16_t *PagedCache::centreRow(int64_t layer, int64_t slot,
                                int64_t head) const {
  return static_cast<uint16_t *>(layerMemory[size_t(layer)].centre) +
         (slot * shape.heads + head) * shape.layout.headDim;
}
uint16_t *PagedCache::tailK(int64_t layer, int64_t slot, int64_t head) const {
  return static_cast<uint16_t *>(layerMemory[size_t(layer)].tail_k) +
         (slot * shape.heads + head) * shape.tailCapacity *
             shape.layout.headDim;
}
uint16_t *PagedCache::tailV(int64_t layer, int64_t slot, int64_t head) const {
  return static_cast<uint16_t *>(layerMemory[size_t(layer)].tail_v) +
         (slot * shape.heads + head) * shape.tailCapacity *
             shape.layout.valueDim;
}

int64_t PagedCache::blocksAt(int64_t length, int64_t already) const {
  return std::max(already, committedBlocks(shape.spec, length, shape.lag));
}

int64_t PagedCache::longest(const Sequence &sequence) const {
  return *std::max_element(sequence.length.begin(), sequence.length.end());
}
