//===- PagedCuda.cpp - Append and decode on a GPU ---------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Batches are ranges of slots, so that a row of a batch is a row of the tables
// and one launch serves all of it. Lengths, page tables, reservations and
// errors are read and written on the device; the host only launches, and keeps
// its own count of what it launched.
//
//===----------------------------------------------------------------------===//

#include "PagedCuda.h"

#include "ArgExtents.h"

#include "ffd/Plan.h"

#include <algorithm>
#include <numeric>

using namespace ffd;

PagedCache::Gpu::~Gpu() {
  if (ownStream)
    context->destroyStream(ownStream);
}

Status PagedCache::createGpu() {
  FFD_RETURN_IF_ERROR(owner->kernels(shape.spec, kernels));
  gpu.reset(new Gpu(owner->cuda()));
  Gpu &g = *gpu;
  const auto allocate = [&](const char *what, int64_t bytes,
                            CacheMemory::Place place, auto *&pointer) {
    void *fresh = nullptr;
    Status status = memory->allocate(what, bytes, place, fresh);
    pointer = static_cast<std::remove_reference_t<decltype(pointer)>>(fresh);
    return status;
  };
  const auto near = CacheMemory::Place::Near, host = CacheMemory::Place::Host;
  const int64_t slots = shape.slots;
  FFD_RETURN_IF_ERROR(allocate("errors", slots * 4, near, g.errors));
  FFD_RETURN_IF_ERROR(allocate("offsets", (slots + 1) * 4, near, g.offsets));
  FFD_RETURN_IF_ERROR(allocate("offsets", (slots + 1) * 4, near, g.oneEach));
  FFD_RETURN_IF_ERROR(allocate("errors", slots * 4, host, g.pinnedErrors));
  FFD_RETURN_IF_ERROR(allocate("counters", shape.layers * shape.rows() * 8,
                               host, g.pinnedCounts));
  std::vector<int32_t> each(size_t(slots) + 1);
  std::iota(each.begin(), each.end(), 0);
  FFD_RETURN_IF_ERROR(
      memory->write(g.oneEach, each.data(), (slots + 1) * 4, nullptr));
  FFD_RETURN_IF_ERROR(memory->fill(g.errors, 0, slots * 4, nullptr));
  // No page is reserved in a slot without a sequence, not even none: an append
  // to it is refused on the device.
  FFD_RETURN_IF_ERROR(memory->fill(capacity, 0xFF, slots * 4, nullptr));
  const int64_t counters = Layout::appendPartialsOffset(slots, shape.heads);
  FFD_RETURN_IF_ERROR(
      reserveWorkspace("append", counters, counters, nullptr, g.append));
  FFD_RETURN_IF_ERROR(createDecodeWorkspace());
  FFD_RETURN_IF_ERROR(g.counted.create(owner->cuda()));
  return owner->cuda()->createStream(g.ownStream);
}

/// Pieces per row of a decode of `rows` rows. The grid must do for any lengths.
/// Results of a row depend on its pieces, so these must not depend on the batch
/// where that is asked for.
int64_t PagedCache::splitsOf(int64_t rows) const {
  const int64_t most = std::max<int64_t>(
      1, shape.maxTokens / shape.spec.quant_block / kMinPieceBlocks);
  const int64_t ctas = kernels->cuda->residentCtas();
  return std::clamp<int64_t>(invariant ? ctas / shape.heads
                                       : (ctas + rows - 1) / rows,
                             1, std::min<int64_t>(most, 1024));
}

/// One workspace for decodes of any number of sequences, so that a capture may
/// be the first: partial results always begin at the same place, and the
/// counters, which every launch leaves zero, end there.
Status PagedCache::createDecodeWorkspace() {
  int64_t pieces = 0, bytes = 0;
  for (int64_t batch = 1; batch <= shape.slots; ++batch)
    pieces =
        std::max(pieces, batch * shape.heads * splitsOf(batch * shape.heads));
  FFD_RETURN_IF_ERROR(workspaceBytes(shape.spec, pieces, 1, bytes));
  const int64_t counters = Layout::partialsOffset(shape.rows());
  return reserveWorkspace("decode", counters + bytes, counters, nullptr,
                          gpu->decode);
}

/// The first of consecutive slots.
Status PagedCache::firstOf(const char *what, int64_t count,
                           const int32_t *slots, int32_t &first) const {
  first = slots ? slots[0] : 0;
  for (int64_t i = 0; slots && i < count; ++i)
    if (slots[i] != first + i)
      return Status::invalid(std::string("sequence ") + std::to_string(i) +
                             " of " + what + " on a GPU is " +
                             std::to_string(slots[i]) + ", expected " +
                             std::to_string(first + i) + ": consecutive slots");
  return Status::success();
}

/// Memory of at least that size whose counters are zero.
Status PagedCache::reserveWorkspace(const char *what, int64_t bytes,
                                    int64_t counterBytes, void *stream,
                                    GpuWorkspace &workspace) {
  if (workspace.bytes >= bytes)
    return Status::success();
  bool capturing = false;
  FFD_RETURN_IF_ERROR(memory->capturing(stream, capturing));
  if (capturing)
    return Status::invalid(std::string("the first ") + what +
                           " of this many sequences is being captured, "
                           "expected one before that allocates its workspace");
  void *fresh = nullptr;
  FFD_RETURN_IF_ERROR(
      memory->allocate("workspace", bytes, CacheMemory::Place::Near, fresh));
  FFD_RETURN_IF_ERROR(memory->fill(fresh, 0, counterBytes, stream));
  // Work under way may still use the old one; it goes with the cache.
  workspace = {fresh, bytes};
  return Status::success();
}

Status PagedCache::appendOnGpu(const ffdAppendBatch &batch, const Input &input,
                               const std::vector<NewTokens> &tokens,
                               bool capturing, void *stream) {
  if (!kernels->append)
    return kernels->appendStatus;
  int32_t first;
  FFD_RETURN_IF_ERROR(
      firstOf("an append", batch.count, batch.sequences, first));
  Gpu &g = *gpu;
  ffdAppendArgs a = {};
  const ffdLayerMemory &m = layerMemory[size_t(input.layer)];
  a.k = input.k;
  a.v = input.v;
  a.thumbnails = m.thumbnails;
  a.residuals = m.residuals;
  a.values = m.values;
  a.smax = smaxRow(input.layer, first, 0);
  a.centre = centred() ? centreRow(input.layer, first, 0) : nullptr;
  a.tail_k = tailK(input.layer, first, 0);
  a.tail_v = tailV(input.layer, first, 0);
  a.page_table = pageTable + first * shape.pageStride;
  a.lengths = a.new_lengths = lengths + input.layer * shape.slots + first;
  a.reserved = capacity + first;
  a.errors = g.errors + first;
  a.k_token_stride = input.kToken;
  a.k_head_stride = input.kHead;
  a.v_token_stride = input.vToken;
  a.v_head_stride = input.vHead;
  a.page_stride = shape.pageStride;
  a.tail_head_stride = shape.tailCapacity;
  a.tail_batch_stride = shape.heads * shape.tailCapacity;
  a.batch = batch.count;
  a.kv_heads = int32_t(shape.heads);
  a.lag = int32_t(shape.lag);
  a.pages = int32_t(shape.pages);
  a.tail_tokens = int32_t(shape.tailCapacity);
  a.splits = 1;

  int64_t most = 0;
  bool oneEach = !batch.device_offsets;
  for (const NewTokens &t : tokens) {
    most = std::max(most, t.count);
    oneEach &= t.count == 1;
  }
  if (batch.device_offsets) {
    a.offsets = batch.device_offsets;
  } else if (oneEach) {
    a.offsets = g.oneEach;
  } else if (capturing) {
    return Status::invalid("'ffdAppendBatch' field 'tokens' is given on a "
                           "stream that is being captured, expected one token "
                           "each (NULL) or device_offsets");
  } else {
    std::vector<int32_t> offsets;
    for (const NewTokens &t : tokens)
      offsets.push_back(int32_t(t.row));
    offsets.push_back(int32_t(tokens.back().row + tokens.back().count));
    FFD_RETURN_IF_ERROR(memory->write(g.offsets, offsets.data(),
                                      int64_t(offsets.size()) * 4, stream));
    a.offsets = g.offsets;
  }
  // Long chunks are worth more than one CTA per row.
  const int64_t blocks = most / shape.spec.quant_block;
  const int64_t rows = int64_t(batch.count) * shape.heads;
  if (blocks > 1) {
    const int64_t wanted =
        2 * int64_t(owner->cuda()->device().multiprocessors) / rows;
    a.splits = int32_t(std::clamp<int64_t>(wanted, 1, blocks));
  }
  const int64_t counters =
      Layout::appendPartialsOffset(batch.count, shape.heads);
  const int64_t bytes =
      shape.layout.appendWorkspaceBytes(batch.count, shape.heads, a.splits);
  a.workspace = g.append.memory;
  if (a.splits > 1) {
    FFD_RETURN_IF_ERROR(
        reserveWorkspace("append", bytes, 0, stream, g.prefill));
    a.workspace = g.prefill.memory;
    FFD_RETURN_IF_ERROR(memory->fill(a.workspace, 0, counters, stream));
  }
  return kernels->append->launchAppend(a, stream);
}

Status PagedCache::decodeOnGpu(const ffdDecodeBatch &batch, void *stream) {
  int32_t first;
  FFD_RETURN_IF_ERROR(firstOf("a decode", batch.count, batch.sequences, first));
  const auto bad = [](const char *field, const std::string &value,
                      const char *expected) {
    return Status::invalid(std::string("'ffdDecodeBatch' field '") + field +
                           "' is " + value + ", expected " + expected);
  };
  for (const auto &[name, pointer] :
       {std::pair<const char *, const void *>{"q", batch.q},
        {"out", batch.out}})
    if (!pointer || uintptr_t(pointer) % 16 != 0)
      return bad(name, pointer ? "not aligned" : "null",
                 "an address that is a multiple of 16");
  for (const auto &[name, stride] :
       {std::pair<const char *, int64_t>{"q_batch_stride",
                                         batch.q_batch_stride},
        {"q_head_stride", batch.q_head_stride}})
    if (stride < 0 || stride % 8 != 0)
      return bad(name, std::to_string(stride), "a multiple of 8, at least 0");
  ffdDecodeArgs a = {};
  fill(batch.layer, first, a);
  a.batch = batch.count;
  a.q = batch.q;
  a.q_batch_stride = batch.q_batch_stride;
  a.q_head_stride = batch.q_head_stride;
  a.q_token_stride = tokenStride(batch);
  a.out = batch.out;
  a.lse = batch.lse;
  const int64_t rows = int64_t(batch.count) * shape.heads;
  a.splits = int32_t(splitsOf(rows));
  a.workspace = static_cast<uint8_t *>(gpu->decode.memory) +
                Layout::partialsOffset(shape.rows()) -
                Layout::partialsOffset(rows);
  return kernels->cuda->launchResidentOn(stream, a);
}
