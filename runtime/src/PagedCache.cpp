//===- PagedCache.cpp - Sequences in a paged split cache --------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Creation, and everything that only moves pages, lengths and tables. Each
// operation checks all it needs before it changes anything.
//
//===----------------------------------------------------------------------===//

#include "PagedCuda.h"

#include "ffd/CudaDriver.h"
#include "ffd/Split.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

Status PagedCache::writePages(int32_t slot, int64_t first, void *stream) {
  const Sequence &sequence = sequences[size_t(slot)];
  const int64_t count = int64_t(sequence.pages.size());
  if (count > first)
    FFD_RETURN_IF_ERROR(memory->write(
        pageTable + slot * shape.pageStride + first,
        sequence.pages.data() + first, (count - first) * 4, stream));
  // Kernels refuse to append where not even none is reserved.
  const int32_t blocks = sequence.used ? int32_t(count) : -1;
  return memory->write(capacity + slot, &blocks, 4, stream);
}

Status PagedCache::writeLengths(int32_t slot, void *stream) {
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const int32_t length =
        int32_t(sequences[size_t(slot)].length[size_t(layer)]);
    FFD_RETURN_IF_ERROR(memory->write(lengths + layer * shape.slots + slot,
                                      &length, 4, stream));
  }
  if (!gpu)
    return Status::success();
  // The layers are alike when this is called.
  const int32_t blocks = int32_t(sequences[size_t(slot)].committed[0]);
  return memory->write(gpu->committed + slot, &blocks, 4, stream);
}

Status PagedCache::clearError(int32_t slot, void *stream) {
  return gpu ? memory->fill(gpu->errors + slot, 0, 4, stream)
             : Status::success();
}

Status PagedCache::writeDelta(int32_t slot, void *stream) {
  return memory->write(deltas + slot, &sequences[size_t(slot)].delta, 4,
                       stream);
}

/// Of the committed pages only the scales are read, those of a layer together.
Status PagedCache::recomputeSmax(int32_t slot, void *stream) {
  const Sequence &sequence = sequences[size_t(slot)];
  const Layout &l = shape.layout;
  const int64_t rowBytes = shape.heads * l.scaleBytes();
  const int64_t most =
      *std::max_element(sequence.committed.begin(), sequence.committed.end());
  void *room = nullptr;
  FFD_RETURN_IF_ERROR(memory->allocate("scales", most * rowBytes,
                                       CacheMemory::Place::Host, room));
  auto *scales = static_cast<uint16_t *>(room);
  const auto ofLayer = [&](int64_t layer) -> Status {
    const int64_t blocks = sequence.committed[size_t(layer)];
    for (int64_t block = 0; block < blocks; ++block)
      FFD_RETURN_IF_ERROR(memory->readRows(
          scales + block * rowBytes / 2,
          thumbnail(layer, sequence.pages[size_t(block)], 0) + l.codeBytes(),
          l.scaleBytes(), shape.heads, l.thumbnailBytes(), stream));
    FFD_RETURN_IF_ERROR(memory->finish(stream));
    // An integer maximum, as in maximiseScales.
    std::vector<uint16_t> top(size_t(rowBytes) / 2, 0);
    for (int64_t block = 0; block < blocks; ++block)
      for (size_t i = 0; i < top.size(); ++i)
        top[i] = std::max(top[i], scales[size_t(block) * top.size() + i]);
    return memory->write(smaxRow(layer, slot, 0), top.data(), rowBytes, stream);
  };
  Status status;
  for (int64_t layer = 0; layer < shape.layers && status.ok(); ++layer)
    status = ofLayer(layer);
  memory->release(room);
  return status;
}

Status PagedCache::clearCentres(int32_t slot, void *stream) {
  for (int64_t layer = 0; centred() && layer < shape.layers; ++layer)
    FFD_RETURN_IF_ERROR(memory->fill(centreRow(layer, slot, 0), 0,
                                     shape.heads * shape.layout.headDim * 2,
                                     stream));
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Pages
//===----------------------------------------------------------------------===//

Status PagedCache::takePages(const std::vector<int32_t> &slots,
                             const std::vector<int64_t> &blocks, void *stream) {
  int64_t wanted = 0;
  bool any = false;
  for (size_t i = 0; i < slots.size(); ++i) {
    const int64_t has = int64_t(sequences[size_t(slots[i])].pages.size());
    const int64_t missing = std::max<int64_t>(0, blocks[i] - has);
    if (callerPages && missing > 0)
      return Status(StatusCode::OutOfPages,
                    "sequence " + std::to_string(slots[i]) + " has pages for " +
                        std::to_string(has) + " blocks, expected " +
                        std::to_string(blocks[i]) + " (ffdSequenceSetPages)");
    wanted += missing;
    any |= missing > 0;
  }
  if (wanted > pool.freePages())
    return Status(StatusCode::OutOfPages,
                  "the cache has " + std::to_string(pool.freePages()) + " of " +
                      std::to_string(pool.pages()) +
                      " pages free, expected at least the " +
                      std::to_string(wanted) + " that are needed");
  if (!any)
    return Status::success();
  // Nobody must wait for a stream that cannot take the tables.
  FFD_RETURN_IF_ERROR(checkNotCapturing("taking pages (ffdReserve)", stream));
  for (size_t i = 0; i < slots.size(); ++i) {
    Sequence &sequence = sequences[size_t(slots[i])];
    const int64_t has = int64_t(sequence.pages.size());
    if (blocks[i] <= has)
      continue;
    pool.take(blocks[i] - has, sequence.pages);
    Status written = writePages(slots[i], has, stream);
    if (!written.ok()) {
      givePagesBack(sequence, has);
      return written;
    }
  }
  return Status::success();
}

void PagedCache::givePagesBack(Sequence &sequence, int64_t from) {
  for (int64_t i = int64_t(sequence.pages.size()) - 1; i >= from; --i)
    if (!callerPages)
      pool.giveBack(sequence.pages[size_t(i)]);
  if (from < int64_t(sequence.pages.size()))
    sequence.pages.resize(size_t(from));
}

Status PagedCache::reserve(int64_t count, const int32_t *slots,
                           const int64_t *tokens, void *stream) {
  FFD_RETURN_IF_ERROR(checkList("a reservation", count, slots));
  if (!tokens)
    return Status::invalid("'tokens' of a reservation is null, expected " +
                           std::to_string(count) + " numbers");
  std::vector<int32_t> which;
  std::vector<int64_t> blocks;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t slot = slots ? slots[i] : int32_t(i);
    const Sequence &sequence = sequences[size_t(slot)];
    const int64_t length = longest(sequence);
    if (tokens[i] < 0 || tokens[i] > shape.maxTokens - length)
      return Status::invalid(
          "the reservation of sequence " + std::to_string(slot) + " is " +
          std::to_string(tokens[i]) + " tokens beyond its " +
          std::to_string(length) + ", expected 0 to " +
          std::to_string(shape.maxTokens - length) + " (max_tokens is " +
          std::to_string(shape.maxTokens) + ")");
    which.push_back(slot);
    blocks.push_back(blocksAt(length + tokens[i], 0));
  }
  return takePages(which, blocks, stream);
}

Status PagedCache::setPages(int32_t slot, int64_t first, const int32_t *pages,
                            int64_t count, void *stream) {
  FFD_RETURN_IF_ERROR(checkSlot(slot));
  if (!callerPages)
    return Status::invalid("the cache manages its pages itself, expected one "
                           "created with caller_pages");
  Sequence &sequence = sequences[size_t(slot)];
  const int64_t has = int64_t(sequence.pages.size());
  const int64_t committed =
      *std::max_element(sequence.committed.begin(), sequence.committed.end());
  if (first < committed || first > has)
    return Status::invalid("the first block is " + std::to_string(first) +
                           ", expected " + std::to_string(committed) +
                           " (the committed blocks of sequence " +
                           std::to_string(slot) + ") to " +
                           std::to_string(has) + " (those with pages)");
  if (count < 0 || count > shape.pageStride - first || (count > 0 && !pages))
    return Status::invalid(
        "the number of pages is " + std::to_string(count) + ", expected 0 to " +
        std::to_string(shape.pageStride - first) + " and a list of them");
  for (int64_t i = 0; i < count; ++i)
    if (pages[i] < 0 || pages[i] >= shape.pages)
      return Status::invalid("pages[" + std::to_string(i) + "] is " +
                             std::to_string(pages[i]) + ", expected 0 to " +
                             std::to_string(shape.pages - 1));
  FFD_RETURN_IF_ERROR(checkNotCapturing("ffdSequenceSetPages", stream));
  sequence.pages.resize(size_t(std::max(has, first + count)));
  std::copy_n(pages, count, sequence.pages.begin() + first);
  return writePages(slot, first, stream);
}

//===----------------------------------------------------------------------===//
// Sequences
//===----------------------------------------------------------------------===//

Status PagedCache::takeSlot(int32_t &slot) {
  for (int64_t i = 0; i < shape.slots; ++i)
    if (!sequences[size_t(i)].used) {
      Sequence &sequence = sequences[size_t(i)];
      sequence.used = true;
      sequence.delta = newDelta;
      std::fill(sequence.length.begin(), sequence.length.end(), 0);
      std::fill(sequence.committed.begin(), sequence.committed.end(), 0);
      sequence.pages.clear();
      slot = int32_t(i);
      return Status::success();
    }
  return Status(StatusCode::OutOfSequences,
                "all " + std::to_string(shape.slots) +
                    " sequences of the cache are in use, expected a free one");
}

Status PagedCache::createSequence(void *stream, int32_t &slot) {
  FFD_RETURN_IF_ERROR(checkNotCapturing("ffdSequenceCreate", stream));
  int32_t fresh;
  FFD_RETURN_IF_ERROR(takeSlot(fresh));
  const auto clear = [&]() -> Status {
    for (int64_t layer = 0; layer < shape.layers; ++layer)
      FFD_RETURN_IF_ERROR(memory->fill(smaxRow(layer, fresh, 0), 0,
                                       shape.heads * shape.layout.scaleBytes(),
                                       stream));
    FFD_RETURN_IF_ERROR(clearCentres(fresh, stream));
    FFD_RETURN_IF_ERROR(writeLengths(fresh, stream));
    FFD_RETURN_IF_ERROR(clearError(fresh, stream));
    FFD_RETURN_IF_ERROR(writePages(fresh, 0, stream));
    return writeDelta(fresh, stream);
  };
  Status status = clear();
  if (!status.ok()) {
    sequences[size_t(fresh)].used = false;
    return status;
  }
  slot = fresh;
  return Status::success();
}

Status PagedCache::freeSequence(int32_t slot, void *stream) {
  FFD_RETURN_IF_ERROR(checkSlot(slot));
  FFD_RETURN_IF_ERROR(checkNotCapturing("ffdSequenceFree", stream));
  Sequence &sequence = sequences[size_t(slot)];
  givePagesBack(sequence, 0);
  std::fill(sequence.length.begin(), sequence.length.end(), 0);
  std::fill(sequence.committed.begin(), sequence.committed.end(), 0);
  sequence.used = false;
  // An empty slot in the middle of a batch costs next to nothing.
  FFD_RETURN_IF_ERROR(writeLengths(slot, stream));
  return writePages(slot, 0, stream);
}

Status PagedCache::fork(int32_t slot, void *stream, int32_t &forked) {
  FFD_RETURN_IF_ERROR(checkSlot(slot));
  FFD_RETURN_IF_ERROR(checkEven("fork", slot));
  FFD_RETURN_IF_ERROR(checkNotCapturing("ffdSequenceFork", stream));
  int32_t fresh;
  FFD_RETURN_IF_ERROR(takeSlot(fresh));
  const Sequence &parent = sequences[size_t(slot)];
  Sequence &child = sequences[size_t(fresh)];
  child.delta = parent.delta;
  child.length = parent.length;
  child.committed = parent.committed;
  child.pages.assign(parent.pages.begin(),
                     parent.pages.begin() + parent.committed[0]);
  for (int32_t page : child.pages)
    if (!callerPages)
      pool.share(page);

  const Layout &l = shape.layout;
  const int64_t tail =
      parent.length[0] - parent.committed[0] * shape.spec.quant_block;
  const auto copy = [&]() -> Status {
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      FFD_RETURN_IF_ERROR(memory->copy(smaxRow(layer, fresh, 0),
                                       smaxRow(layer, slot, 0),
                                       shape.heads * l.scaleBytes(), stream));
      if (centred())
        FFD_RETURN_IF_ERROR(memory->copy(centreRow(layer, fresh, 0),
                                         centreRow(layer, slot, 0),
                                         shape.heads * l.headDim * 2, stream));
      for (int64_t head = 0; tail > 0 && head < shape.heads; ++head) {
        FFD_RETURN_IF_ERROR(memory->copy(tailK(layer, fresh, head),
                                         tailK(layer, slot, head),
                                         tail * l.headDim * 2, stream));
        FFD_RETURN_IF_ERROR(memory->copy(tailV(layer, fresh, head),
                                         tailV(layer, slot, head),
                                         tail * l.valueDim * 2, stream));
      }
    }
    FFD_RETURN_IF_ERROR(writeLengths(fresh, stream));
    FFD_RETURN_IF_ERROR(clearError(fresh, stream));
    FFD_RETURN_IF_ERROR(writePages(fresh, 0, stream));
    return writeDelta(fresh, stream);
  };
  Status status = copy();
  if (!status.ok()) {
    givePagesBack(child, 0);
    child.used = false;
    return status;
  }
  forked = fresh;
  return Status::success();
}

Status PagedCache::truncate(int32_t slot, int64_t length, void *stream) {
  FFD_RETURN_IF_ERROR(checkSlot(slot));
  FFD_RETURN_IF_ERROR(checkEven("truncate", slot));
  Sequence &sequence = sequences[size_t(slot)];
  const int64_t block = shape.spec.quant_block;
  const int64_t committed = sequence.committed[0];
  const std::string name = "sequence " + std::to_string(slot);
  if (length < 0 || length > sequence.length[0])
    return Status::invalid("the length to truncate " + name + " to is " +
                           std::to_string(length) + ", expected 0 to its " +
                           std::to_string(sequence.length[0]) + " tokens");
  if (length < committed * block && length % block != 0)
    return Status(StatusCode::Unsupported,
                  "cannot truncate " + name + " to " + std::to_string(length) +
                      " tokens, inside its committed block " +
                      std::to_string(length / block) +
                      " whose 16-bit keys are gone; expected at least " +
                      std::to_string(committed * block) + " or a multiple of " +
                      std::to_string(block));
  const int64_t left = std::min(committed, length / block);
  FFD_RETURN_IF_ERROR(checkNotCapturing("ffdSequenceTruncate", stream));
  std::fill(sequence.length.begin(), sequence.length.end(), length);
  std::fill(sequence.committed.begin(), sequence.committed.end(), left);
  FFD_RETURN_IF_ERROR(writeLengths(slot, stream));
  if (left == committed)
    return Status::success();
  // Shared pages must not be written again; give all of them back.
  givePagesBack(sequence, left);
  FFD_RETURN_IF_ERROR(writePages(slot, left, stream));
  if (left == 0)
    FFD_RETURN_IF_ERROR(clearCentres(slot, stream));
  return recomputeSmax(slot, stream);
}

Status PagedCache::setDelta(int32_t slot, float delta, void *stream) {
  FFD_RETURN_IF_ERROR(checkSlot(slot));
  if (!(delta >= 0))
    return Status::invalid("delta is " + std::to_string(delta) +
                           ", expected a number of at least 0, or infinity");
  FFD_RETURN_IF_ERROR(checkNotCapturing("ffdSequenceSetDelta", stream));
  sequences[size_t(slot)].delta = delta;
  return writeDelta(slot, stream);
}

Status PagedCache::sequenceInfo(int32_t slot, ffdSequenceInfo &info) const {
  FFD_RETURN_IF_ERROR(checkSlot(slot));
  const Sequence &sequence = sequences[size_t(slot)];
  const int64_t block = shape.spec.quant_block;
  info.length =
      *std::min_element(sequence.length.begin(), sequence.length.end());
  info.committed = block * *std::min_element(sequence.committed.begin(),
                                             sequence.committed.end());
  info.reserved =
      std::min(shape.maxTokens,
               (int64_t(sequence.pages.size()) + 1) * block + shape.lag - 1);
  return Status::success();
}

Status PagedCache::advance(int64_t count, const int32_t *slots,
                           const int32_t *tokens) {
  if (!owner->cuda())
    return Status::invalid("ffdAdvance tells of graphs that were replayed on a "
                           "GPU, expected a cache on one: here ffdAppend "
                           "counts tokens itself");
  FFD_RETURN_IF_ERROR(checkList("ffdAdvance", count, slots));
  if (!tokens)
    return Status::invalid("'tokens' of ffdAdvance is null, expected " +
                           std::to_string(count) + " numbers");
  for (int64_t i = 0; i < count; ++i) {
    const int32_t slot = slots ? slots[i] : int32_t(i);
    const Sequence &sequence = sequences[size_t(slot)];
    const int64_t room =
        (int64_t(sequence.pages.size()) + 1) * shape.spec.quant_block +
        shape.lag - 1;
    const int64_t most = std::min(shape.maxTokens, room) - longest(sequence);
    if (tokens[i] < 0 || tokens[i] > most)
      return Status::invalid("sequence " + std::to_string(slot) +
                             " advances by " + std::to_string(tokens[i]) +
                             " tokens, expected 0 to " + std::to_string(most) +
                             ", its reservation");
  }
  for (int64_t i = 0; i < count; ++i) {
    Sequence &sequence = sequences[size_t(slots ? slots[i] : int32_t(i))];
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      int64_t &length = sequence.length[size_t(layer)];
      length += tokens[i];
      int64_t &committed = sequence.committed[size_t(layer)];
      committed = blocksAt(length, committed);
    }
  }
  return Status::success();
}
