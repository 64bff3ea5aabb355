//===- PagedCuda.cpp - Append and decode on a GPU ---------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lengths, page tables, reservations and errors are read and written on the
// device; the host only launches, and keeps its own count of what it launched.
// Where the sequences of a batch are is a list in device memory.
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
  FFD_RETURN_IF_ERROR(allocate("lists", slots * 4, near, g.appended));
  FFD_RETURN_IF_ERROR(allocate("lists", slots * 4, near, g.decoded));
  FFD_RETURN_IF_ERROR(allocate("blocks", slots * 4, near, g.committed));
  FFD_RETURN_IF_ERROR(allocate("errors", slots * 4, host, g.pinnedErrors));
  FFD_RETURN_IF_ERROR(allocate("counters", shape.layers * shape.rows() * 8,
                               host, g.pinnedCounts));
  std::vector<int32_t> each(size_t(slots) + 1);
  std::iota(each.begin(), each.end(), 0);
  FFD_RETURN_IF_ERROR(
      memory->write(g.oneEach, each.data(), (slots + 1) * 4, nullptr));
  FFD_RETURN_IF_ERROR(memory->fill(g.errors, 0, slots * 4, nullptr));
  FFD_RETURN_IF_ERROR(memory->fill(g.committed, 0, slots * 4, nullptr));
  // No page is reserved in a slot without a sequence, not even none: an append
  // to it is refused on the device.
  FFD_RETURN_IF_ERROR(memory->fill(capacity, 0xFF, slots * 4, nullptr));
  const int64_t counters = Layout::appendPartialsOffset(slots, shape.heads);
  FFD_RETURN_IF_ERROR(
      reserveWorkspace("append", counters, counters, nullptr, g.append));
  FFD_RETURN_IF_ERROR(createPlans());
  FFD_RETURN_IF_ERROR(g.counted.create(owner->cuda()));
  return owner->cuda()->createStream(g.ownStream);
}

bool PagedCache::consecutive(int64_t count, const int32_t *slots) {
  for (int64_t i = 1; slots && i < count; ++i)
    if (slots[i] != slots[0] + i)
      return false;
  return true;
}

Status PagedCache::listOnDevice(const char *what, int64_t count,
                                const int32_t *slots, const int32_t *given,
                                int32_t *room, uint64_t capture, void *stream,
                                const int32_t *&list) const {
  list = given;
  if (given)
    return Status::success();
  if (consecutive(count, slots)) {
    list = gpu->oneEach + (slots ? slots[0] : 0);
    return Status::success();
  }
  // A copy in a graph would read the host's list whenever the graph runs.
  if (capture)
    return Status::invalid(
        std::string("'sequences' of ") + what +
        " are in no row on a stream that is being captured, expected "
        "consecutive, ascending slots or device_sequences");
  list = room;
  return memory->write(room, slots, count * 4, stream);
}

/// Memory of at least that size whose counters are zero.
Status PagedCache::reserveWorkspace(const char *what, int64_t bytes,
                                    int64_t counterBytes, void *stream,
                                    GpuWorkspace &workspace) {
  if (workspace.bytes >= bytes)
    return Status::success();
  uint64_t capture = 0;
  FFD_RETURN_IF_ERROR(memory->capturing(stream, capture));
  if (capture)
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
                               uint64_t capture, void *stream) {
  if (!kernels->append)
    return kernels->appendStatus;
  Gpu &g = *gpu;
  // Without a list the kernel has one load less to wait for.
  const bool inRow =
      !batch.device_sequences && consecutive(batch.count, batch.sequences);
  const int32_t first = inRow && batch.sequences ? batch.sequences[0] : 0;
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
  a.committed = g.committed + first;
  a.slot_count = int32_t(shape.slots);
  if (!inRow)
    FFD_RETURN_IF_ERROR(listOnDevice("an append", batch.count, batch.sequences,
                                     batch.device_sequences, g.appended,
                                     capture, stream, a.slots));
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
  } else if (capture) {
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
  FFD_RETURN_IF_ERROR(kernels->append->launchAppend(a, stream));
  if (capture) {
    noteCapture(capture);
    noteCapturedAppend(batch);
  }
  return Status::success();
}

Status PagedCache::decodeOnGpu(const ffdDecodeBatch &batch, uint64_t capture,
                               void *stream) {
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
  fill(batch.layer, 0, a);
  a.batch = batch.count;
  a.q = batch.q;
  a.q_batch_stride = batch.q_batch_stride;
  a.q_head_stride = batch.q_head_stride;
  a.q_token_stride = tokenStride(batch);
  a.out = batch.out;
  a.lse = batch.lse;
  a.skipped_lse = batch.skipped_lse;
  FFD_RETURN_IF_ERROR(planDecode(batch, capture, stream, a));
  return kernels->cuda->launchResidentOn(stream, a);
}
