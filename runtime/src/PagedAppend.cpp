//===- PagedAppend.cpp - New tokens for a paged cache ------------------ ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On the CPU in parallel loops: rows whose block 0 is committed get their
// centre, if they are to have one; blocks that became full and old enough are
// split, one task per (sequence, block, head); then what is left goes into the
// tails and smax takes the new scales in, one task per (sequence, head).
//
//===----------------------------------------------------------------------===//

#include "PagedCache.h"

#include "ffd/Centre.h"
#include "ffd/Split.h"

#include <algorithm>
#include <cstring>

using namespace ffd;

static Status badField(const std::string &field, const std::string &value,
                       const std::string &expected) {
  return Status::invalid("'ffdAppendBatch' field '" + field + "' is " + value +
                         ", expected " + expected);
}

/// Strides of [rows][heads][dim]: contiguous if both are 0.
static Status takeStrides(const char *name, int64_t heads, int64_t dim,
                          int64_t multiple, int64_t &token, int64_t &head) {
  if (token == 0 && head == 0) {
    head = dim;
    token = heads * dim;
    return Status::success();
  }
  const auto check = [&](const char *which, int64_t stride) {
    if (stride >= 0 && stride % multiple == 0 && stride <= INT64_MAX >> 20)
      return Status::success();
    return badField(std::string(name) + which, std::to_string(stride),
                    "a multiple of " + std::to_string(multiple) +
                        ", at least 0");
  };
  FFD_RETURN_IF_ERROR(check("_token_stride", token));
  FFD_RETURN_IF_ERROR(check("_head_stride", head));
  // Anything smaller would read one head's channels as another's.
  if (heads > 1 && head < dim)
    return badField(std::string(name) + "_head_stride", std::to_string(head),
                    "at least the " + std::to_string(dim) +
                        " channels of a head");
  return Status::success();
}

Status PagedCache::checkAppend(const ffdAppendBatch &b, uint64_t capture,
                               Input &input,
                               std::vector<NewTokens> &tokens) const {
  if (b.layer < 0 || b.layer >= shape.layers)
    return badField("layer", std::to_string(b.layer),
                    "0 to " + std::to_string(shape.layers - 1));
  // In a graph a slot may be empty now and have a sequence later.
  FFD_RETURN_IF_ERROR(
      checkList("an append", b.count, b.sequences, /*anySlot=*/capture != 0));
  FFD_RETURN_IF_ERROR(checkDeviceSequences("ffdAppendBatch", b.sequences,
                                           b.device_sequences, capture));
  if (b.channel_stride != 0 && b.channel_stride != 1)
    return badField("channel_stride", std::to_string(b.channel_stride),
                    "1: the channels of a token lie side by side");
  if (b.device_offsets && owner->onCpu())
    return badField("device_offsets", "given", "NULL for a CPU context");
  if (b.device_offsets && !capture)
    return badField("device_offsets", "given outside of a capture",
                    "'tokens' on the host, which must know how long its "
                    "sequences are");
  if (b.device_offsets && b.tokens)
    return badField("device_offsets", "given beside 'tokens'", "one of them");
  input.layer = b.layer;
  input.kToken = b.k_token_stride;
  input.kHead = b.k_head_stride;
  input.vToken = b.v_token_stride;
  input.vHead = b.v_head_stride;
  const int64_t multiple = owner->onCpu() ? 1 : 8;
  FFD_RETURN_IF_ERROR(takeStrides("k", shape.heads, shape.spec.head_dim,
                                  multiple, input.kToken, input.kHead));
  FFD_RETURN_IF_ERROR(takeStrides("v", shape.heads, shape.spec.value_dim,
                                  multiple, input.vToken, input.vHead));

  int64_t rows = 0;
  for (int64_t i = 0; i < b.count; ++i) {
    const int32_t slot = b.sequences ? b.sequences[i] : int32_t(i);
    const int64_t count = b.tokens ? b.tokens[i] : 1;
    const int64_t length = sequences[size_t(slot)].length[size_t(b.layer)];
    if (!capture && (count < 0 || count > shape.maxTokens - length))
      return badField(
          "tokens[" + std::to_string(i) + "]", std::to_string(count),
          "0 to " + std::to_string(shape.maxTokens - length) + ": sequence " +
              std::to_string(slot) + " has " + std::to_string(length) +
              " and may get " + std::to_string(shape.maxTokens));
    tokens.push_back({slot, count, rows});
    rows += count;
  }
  if (b.device_offsets) // only the device knows how many
    rows = 1;
  const uintptr_t align = owner->onCpu() ? 2 : 16;
  for (const auto &[name, pointer] :
       {std::pair<const char *, const void *>{"k", b.k}, {"v", b.v}})
    if (rows > 0 && (!pointer || uintptr_t(pointer) % align != 0))
      return badField(name, pointer ? "misaligned" : "null",
                      "an address that is a multiple of " +
                          std::to_string(align));
  input.k = static_cast<const uint16_t *>(b.k);
  input.v = static_cast<const uint16_t *>(b.v);
  return Status::success();
}

Status PagedCache::append(const ffdAppendBatch &batch, void *stream) {
  Input input;
  std::vector<NewTokens> tokens;
  uint64_t capture = 0;
  FFD_RETURN_IF_ERROR(memory->capturing(stream, capture));
  FFD_RETURN_IF_ERROR(checkAppend(batch, capture, input, tokens));
  if (capture) // pages are reserved, lengths known when the graph runs
    return appendOnGpu(batch, input, tokens, capture, stream);

  std::vector<int32_t> slots;
  std::vector<int64_t> blocks;
  for (const NewTokens &t : tokens) {
    const Sequence &sequence = sequences[size_t(t.slot)];
    slots.push_back(t.slot);
    blocks.push_back(blocksAt(sequence.length[size_t(input.layer)] + t.count,
                              sequence.committed[size_t(input.layer)]));
  }
  FFD_RETURN_IF_ERROR(takePages(slots, blocks, stream));
  if (owner->onCpu())
    appendOnCpu(input, tokens);
  else
    FFD_RETURN_IF_ERROR(appendOnGpu(batch, input, tokens, 0, stream));
  for (size_t i = 0; i < tokens.size(); ++i) {
    Sequence &sequence = sequences[size_t(tokens[i].slot)];
    int64_t &length = sequence.length[size_t(input.layer)];
    length += tokens[i].count;
    sequence.committed[size_t(input.layer)] = blocks[i];
    if (owner->onCpu()) // a GPU has done so itself
      lengths[input.layer * shape.slots + tokens[i].slot] = int32_t(length);
  }
  return Status::success();
}

//===----------------------------------------------------------------------===//
// The CPU's
//===----------------------------------------------------------------------===//

void PagedCache::appendOnCpu(const Input &input,
                             const std::vector<NewTokens> &tokens) {
  struct Work {
    size_t tokens;
    int64_t block;
  };
  std::vector<Work> work;
  std::vector<size_t> starting; // sequences that commit their block 0
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Sequence &sequence = sequences[size_t(tokens[i].slot)];
    const int64_t done = sequence.committed[size_t(input.layer)];
    const int64_t after =
        blocksAt(sequence.length[size_t(input.layer)] + tokens[i].count, done);
    for (int64_t block = done; block < after; ++block)
      work.push_back({i, block});
    if (centred() && done == 0 && after > 0)
      starting.push_back(i);
  }
  const int64_t heads = shape.heads;
  ThreadPool &pool = owner->pool();
  pool.parallelFor(int64_t(starting.size()) * heads, [&](int64_t task) {
    const NewTokens &row = tokens[starting[size_t(task / heads)]];
    std::vector<uint16_t> joined;
    int64_t stride;
    const uint16_t *k = keysOf(input, row, 0, task % heads, joined, stride);
    centreOf(shape.spec, k, stride,
             centreRow(input.layer, row.slot, task % heads));
  });
  pool.parallelFor(int64_t(work.size()) * heads, [&](int64_t task) {
    const Work &w = work[size_t(task / heads)];
    commitBlock(input, tokens[w.tokens], w.block, task % heads);
  });
  const auto finish = [&](int64_t task) {
    moveTail(input, tokens[size_t(task / heads)], task % heads);
  };
  // Single tokens are not worth waking the threads.
  const int64_t tails = int64_t(tokens.size()) * heads;
  if (work.empty() && tails < 1024)
    for (int64_t task = 0; task < tails; ++task)
      finish(task);
  else
    pool.parallelFor(tails, finish);
}

/// The tokens of a block that is to be committed, K or V, as they are: in the
/// input, or, where it begins in the tail, joined in `joined`.
static const uint16_t *joinBlock(const uint16_t *tail, int64_t old,
                                 const uint16_t *input, int64_t inputStride,
                                 int64_t tokens, int64_t dim,
                                 std::vector<uint16_t> &joined,
                                 int64_t &stride) {
  stride = inputStride;
  if (old == 0)
    return input;
  joined.resize(size_t(tokens * dim));
  std::memcpy(joined.data(), tail, size_t(old * dim) * 2);
  for (int64_t t = old; t < tokens; ++t)
    std::memcpy(joined.data() + t * dim, input + t * inputStride,
                size_t(dim) * 2);
  stride = dim;
  return joined.data();
}

int64_t PagedCache::oldTokens(const Input &input, const NewTokens &tokens,
                              int64_t block) const {
  const int64_t size = shape.spec.quant_block;
  const int64_t length =
      sequences[size_t(tokens.slot)].length[size_t(input.layer)];
  return std::clamp<int64_t>(length - block * size, 0, size);
}

const uint16_t *PagedCache::keysOf(const Input &input, const NewTokens &tokens,
                                   int64_t block, int64_t head,
                                   std::vector<uint16_t> &joined,
                                   int64_t &stride) const {
  const Sequence &sequence = sequences[size_t(tokens.slot)];
  const int64_t size = shape.spec.quant_block, d = shape.spec.head_dim;
  const int64_t length = sequence.length[size_t(input.layer)];
  const int64_t inTail =
      (block - sequence.committed[size_t(input.layer)]) * size;
  // Where the block lies in the input, even if it begins before it.
  const int64_t row = tokens.row + block * size - length;
  return joinBlock(tailK(input.layer, tokens.slot, head) + inTail * d,
                   oldTokens(input, tokens, block),
                   input.k + row * input.kToken + head * input.kHead,
                   input.kToken, size, d, joined, stride);
}

void PagedCache::commitBlock(const Input &input, const NewTokens &tokens,
                             int64_t block, int64_t head) {
  const Sequence &sequence = sequences[size_t(tokens.slot)];
  const int64_t size = shape.spec.quant_block, layer = input.layer;
  const int64_t length = sequence.length[size_t(layer)];
  const int64_t before = sequence.committed[size_t(layer)];
  const int64_t page = sequence.pages[size_t(block)];
  const int64_t d = shape.spec.head_dim, dv = shape.spec.value_dim;
  const int64_t old = oldTokens(input, tokens, block);

  const int64_t row = tokens.row + block * size - length;
  int64_t kStride, vStride;
  std::vector<uint16_t> kJoined, vJoined;
  const uint16_t *k = keysOf(input, tokens, block, head, kJoined, kStride);
  const uint16_t *v =
      joinBlock(tailV(layer, tokens.slot, head) + (block - before) * size * dv,
                old, input.v + row * input.vToken + head * input.vHead,
                input.vToken, size, dv, vJoined, vStride);
  if (centred()) {
    // The tail of a row with committed blocks is relative already.
    const int64_t relative = before > 0 ? old : 0;
    kJoined.resize(size_t(size * d));
    centreKeys(shape.spec, k + relative * kStride, kStride, size - relative,
               centreRow(layer, tokens.slot, head),
               kJoined.data() + relative * d, d);
    k = kJoined.data();
    kStride = d;
  }
  splitBlock(shape.spec, k, kStride, thumbnail(layer, page, head),
             residual(layer, page, head));
  packValues(shape.spec, v, vStride, value(layer, page, head));
}

void PagedCache::moveTail(const Input &input, const NewTokens &tokens,
                          int64_t head) {
  const Sequence &sequence = sequences[size_t(tokens.slot)];
  const int64_t size = shape.spec.quant_block, layer = input.layer;
  const int64_t length = sequence.length[size_t(layer)];
  const int64_t before = sequence.committed[size_t(layer)];
  const int64_t after = blocksAt(length + tokens.count, before);
  const int64_t d = shape.spec.head_dim, dv = shape.spec.value_dim;
  uint16_t *toK = tailK(layer, tokens.slot, head);
  uint16_t *toV = tailV(layer, tokens.slot, head);

  uint16_t *smax = smaxRow(layer, tokens.slot, head);
  for (int64_t block = before; block < after; ++block)
    maximiseScales(shape.spec,
                   thumbnail(layer, sequence.pages[size_t(block)], head), smax);

  // Tail tokens that stay move to the front.
  const int64_t start = after * size;
  const int64_t stay = std::max<int64_t>(0, length - start);
  if (after > before && stay > 0) {
    const int64_t from = start - before * size;
    std::memmove(toK, toK + from * d, size_t(stay * d) * 2);
    std::memmove(toV, toV + from * dv, size_t(stay * dv) * 2);
  }
  const uint16_t *centre =
      centred() && after > 0 ? centreRow(layer, tokens.slot, head) : nullptr;
  if (centre && before == 0 && stay > 0)
    centreKeys(shape.spec, toK, d, stay, centre, toK, d);
  for (int64_t token = std::max(length, start); token < length + tokens.count;
       ++token) {
    const int64_t row = tokens.row + token - length;
    const uint16_t *k = input.k + row * input.kToken + head * input.kHead;
    if (centre)
      centreKeys(shape.spec, k, 0, 1, centre, toK + (token - start) * d, 0);
    else
      std::memcpy(toK + (token - start) * d, k, size_t(d) * 2);
    std::memcpy(toV + (token - start) * dv,
                input.v + row * input.vToken + head * input.vHead,
                size_t(dv) * 2);
  }
}
