//===- PagedSequences.cpp - Sequences of a paged cache ------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operations that only move pages, lengths and tables. Each checks all it needs
// before it changes anything.
//
//===----------------------------------------------------------------------===//

#include "CacheMemory.h"
#include "PagedCache.h"

#include <algorithm>

using namespace ffd;

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
