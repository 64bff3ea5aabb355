//===- PagedDecode.cpp - Decoding over a paged cache ------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On the CPU every sequence of a batch is a decode of its own, cut into pieces
// by its own length, and all pieces of all sequences are one parallel loop:
// sequences may be anywhere in the cache, and their bits do not depend on each
// other.
//
//===----------------------------------------------------------------------===//

#include "ArgExtents.h"
#include "PagedCache.h"

#include "ffd/ThreadPool.h"

#include <algorithm>

using namespace ffd;

static Status badField(const std::string &field, const std::string &value,
                       const std::string &expected) {
  return Status::invalid("'ffdDecodeBatch' field '" + field + "' is " + value +
                         ", expected " + expected);
}

void PagedCache::fill(int64_t layer, int64_t slot, ffdDecodeArgs &a) const {
  const ffdLayerMemory &m = layerMemory[size_t(layer)];
  a.thumbnails = m.thumbnails;
  a.residuals = m.residuals;
  a.values = m.values;
  a.smax = smaxRow(layer, slot, 0);
  a.centre = centred() ? centreRow(layer, slot, 0) : nullptr;
  a.tail_k = tailK(layer, slot, 0);
  a.tail_v = tailV(layer, slot, 0);
  a.page_table = pageTable + slot * shape.pageStride;
  a.lengths = lengths + layer * shape.slots + slot;
  a.delta = deltas + slot;
  a.kept_count = keptCount + layer * shape.rows() + slot * shape.heads;
  a.page_stride = shape.pageStride;
  a.tail_head_stride = shape.tailCapacity;
  a.tail_batch_stride = shape.heads * shape.tailCapacity;
  a.kv_heads = int32_t(shape.heads);
  a.lag = int32_t(shape.lag);
  a.sm_scale = smScale;
}

int64_t PagedCache::tokenStride(const ffdDecodeBatch &batch) const {
  return shape.heads * shape.spec.group * batch.q_head_stride;
}

int64_t PagedCache::tailOf(int32_t slot, int64_t layer) const {
  const Sequence &sequence = sequences[size_t(slot)];
  return sequence.length[size_t(layer)] -
         sequence.committed[size_t(layer)] * shape.spec.quant_block;
}

Status PagedCache::decode(const ffdDecodeBatch &given, void *stream) {
  ffdDecodeBatch batch = given;
  if (batch.layer < 0 || batch.layer >= shape.layers)
    return badField("layer", std::to_string(batch.layer),
                    "0 to " + std::to_string(shape.layers - 1));
  FFD_RETURN_IF_ERROR(checkList("a decode", batch.count, batch.sequences,
                                /*anySlot=*/!owner->onCpu()));
  const int64_t queryHeads = shape.heads * rowHeads(shape.spec);
  if (batch.q_batch_stride == 0 && batch.q_head_stride == 0) {
    batch.q_head_stride = shape.spec.head_dim;
    batch.q_batch_stride = queryHeads * shape.spec.head_dim;
  }
  if (queryHeads > 1 && batch.q_head_stride < shape.spec.head_dim)
    return badField("q_head_stride", std::to_string(batch.q_head_stride),
                    "at least the " + std::to_string(shape.spec.head_dim) +
                        " channels of a head");
  if (batch.skipped_lse && !shape.spec.certificate)
    return badField("skipped_lse", "given",
                    "NULL: the cache's spec has certificate 0 (none)");
  if (!kernels)
    FFD_RETURN_IF_ERROR(owner->kernels(shape.spec, kernels));
  uint64_t capture = 0;
  FFD_RETURN_IF_ERROR(memory->capturing(stream, capture));
  FFD_RETURN_IF_ERROR(checkDeviceSequences("ffdDecodeBatch", batch.sequences,
                                           batch.device_sequences, capture));
  for (int64_t i = 0; !capture && i < batch.count; ++i) {
    const int32_t slot = batch.sequences ? batch.sequences[i] : int32_t(i);
    const int64_t tail = tailOf(slot, batch.layer);
    if (sequences[size_t(slot)].committed[size_t(batch.layer)] > 0 &&
        tail < queryTokens(shape.spec) - 1)
      return Status::invalid(
          "sequence " + std::to_string(slot) + " has " + std::to_string(tail) +
          " tokens that are not committed, expected at least query_tokens - 1 "
          "= " +
          std::to_string(queryTokens(shape.spec) - 1) + " for a decode");
  }
  FFD_RETURN_IF_ERROR(owner->onCpu() ? decodeOnCpu(batch, *kernels)
                                     : decodeOnGpu(batch, capture, stream));
  for (int64_t i = 0; !capture && i < batch.count; ++i) {
    const int32_t slot = batch.sequences ? batch.sequences[i] : int32_t(i);
    scanned[size_t(batch.layer)] +=
        uint64_t(sequences[size_t(slot)].committed[size_t(batch.layer)] *
                 shape.layout.selectsPerBlock());
  }
  return Status::success();
}

Status PagedCache::decodeOnCpu(const ffdDecodeBatch &batch,
                               const KernelSet &set) {
  const CpuKernel &kernel = *set.cpu;
  const int64_t queryHeads = shape.heads * rowHeads(shape.spec);
  const int64_t count = batch.count;
  const int threads = owner->pool().threads();
  std::vector<ffdDecodeArgs> calls(static_cast<size_t>(count));
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t slot = batch.sequences ? batch.sequences[i] : int32_t(i);
    const Sequence &sequence = sequences[size_t(slot)];
    const int64_t length = sequence.length[size_t(batch.layer)];
    ffdDecodeArgs &a = calls[size_t(i)];
    fill(batch.layer, slot, a);
    a.batch = 1;
    // After a truncation the tail may be shorter than the lag; the committed
    // blocks stay what they are.
    a.lag = int32_t(sequence.committed[size_t(batch.layer)] > 0
                        ? std::min(shape.lag, tailOf(slot, batch.layer))
                        : shape.lag);
    a.q = batch.q ? static_cast<const uint16_t *>(batch.q) +
                        i * batch.q_batch_stride
                  : nullptr;
    a.q_batch_stride = batch.q_batch_stride;
    a.q_head_stride = batch.q_head_stride;
    a.q_token_stride = tokenStride(batch);
    a.out =
        batch.out ? batch.out + i * queryHeads * shape.spec.value_dim : nullptr;
    a.lse = batch.lse ? batch.lse + i * queryHeads : nullptr;
    a.skipped_lse =
        batch.skipped_lse ? batch.skipped_lse + i * queryHeads : nullptr;
    a.splits = pickSplits(shape.spec, shape.heads, length,
                          threads == 1 ? 1 : 4 * threads);
    int64_t needed;
    FFD_RETURN_IF_ERROR(
        workspaceBytes(shape.spec, shape.heads, a.splits, needed));
    offsets.push_back(bytes);
    bytes += (needed + 127) / 128 * 128;
  }
  if (workspace.size() < bytes)
    FFD_RETURN_IF_ERROR(workspace.allocate("workspace", bytes, 0));
  for (int64_t i = 0; i < count; ++i)
    calls[size_t(i)].workspace = workspace.data() + offsets[size_t(i)];
  return kernel.decodeAll(calls.data(), count);
}
