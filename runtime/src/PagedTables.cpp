//===- PagedTables.cpp - Tables and pages of a paged cache --------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What kernels read of a sequence: its pages, lengths, delta, largest scales
// and centre, written on a stream; and who has which page.
//
//===----------------------------------------------------------------------===//

#include "PagedCuda.h"

#include <algorithm>

using namespace ffd;

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
