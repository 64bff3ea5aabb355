//===- PagedPlan.cpp - Dividing the work of a decode ------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A decode on a GPU follows a plan that a kernel makes of the lengths on the
// device, so that the grid of a captured step is fixed while lengths change.
// The first decode of a step launches it; decodes of other layers take the same
// plan if their lengths are the same. Whether they are, the host knows from its
// own count, or in a capture, where it has none, from what the capture has
// appended to either layer.
//
//===----------------------------------------------------------------------===//

#include "PagedCuda.h"

#include "ffd/Kernel.h"
#include "ffd/Plan.h"

#include <algorithm>

using namespace ffd;

bool PagedCache::DevicePlan::Batch::operator==(const Batch &other) const {
  return count == other.count && deviceSlots == other.deviceSlots &&
         capture == other.capture && appended == other.appended &&
         slots == other.slots && lengths == other.lengths &&
         committed == other.committed;
}

/// Entries of the plan of `count` sequences, which must do for any lengths.
int64_t PagedCache::planEntries(int64_t count) const {
  const int64_t rows = count * shape.heads;
  if (pieceBlocks == 0)
    return raggedPieces(rows, kernels->cuda->residentCtas());
  const int64_t blocks = shape.maxTokens / shape.spec.quant_block;
  return rows * std::max<int64_t>(1, (blocks + pieceBlocks - 1) / pieceBlocks);
}

/// Plans and one workspace for decodes of any number of sequences, so that a
/// capture may be the first: partial results always begin at the same place,
/// and the counters, which every launch leaves zero, end there.
Status PagedCache::createPlans() {
  if (pieceBlocks < 0) {
    // The longest sequence alone keeps the GPU busy.
    const int64_t rowPieces =
        std::max<int64_t>(1, kernels->cuda->residentCtas() / shape.heads);
    const int64_t blocks = shape.maxTokens / shape.spec.quant_block;
    pieceBlocks = int32_t(std::max<int64_t>(
        kMinPieceBlocks, (blocks + rowPieces - 1) / rowPieces));
  }
  const int64_t most = std::min<int64_t>(shape.slots, FFD_PLAN_MAX_BATCH);
  const int64_t entries = planEntries(most);
  if (entries > INT32_MAX)
    return Status::invalid(
        "pieces of " + std::to_string(pieceBlocks * shape.spec.quant_block) +
        " tokens give a decode of " + std::to_string(most) +
        " sequences up to " + std::to_string(entries) +
        " pieces, expected at most 2147483647 (piece_tokens, max_tokens)");
  for (DevicePlan *plan : {&gpu->plan, &gpu->capturedPlan}) {
    void *fresh = nullptr;
    FFD_RETURN_IF_ERROR(memory->allocate("plan",
                                         entries * int64_t(sizeof(ffdPiece)),
                                         CacheMemory::Place::Near, fresh));
    plan->pieces = static_cast<ffdPiece *>(fresh);
  }
  gpu->capturedAppends.assign(size_t(shape.layers), 0);
  const int64_t counters = Layout::partialsOffset(shape.rows());
  return reserveWorkspace("decode",
                          shape.layout.plannedWorkspaceBytes(
                              shape.rows(), entries, rowHeads(shape.spec)),
                          counters, nullptr, gpu->decode);
}

void PagedCache::noteCapture(uint64_t capture) {
  if (gpu->capture == capture)
    return;
  gpu->capture = capture;
  std::fill(gpu->capturedAppends.begin(), gpu->capturedAppends.end(), 0);
  gpu->capturedPlan.batch = {};
}

void PagedCache::noteCapturedAppend(const ffdAppendBatch &batch) {
  uint64_t &state = gpu->capturedAppends[size_t(batch.layer)];
  const auto mix = [&](uint64_t value) { // FNV-1a, eight bytes at a time
    state = (state ^ value) * 0x100000001B3;
    state ^= state >> 29;
  };
  mix(0x5DEECE66D);
  mix(uint64_t(batch.count));
  mix(reinterpret_cast<uintptr_t>(batch.device_sequences));
  mix(reinterpret_cast<uintptr_t>(batch.device_offsets));
  for (int64_t i = 0; batch.sequences && i < batch.count; ++i)
    mix(uint64_t(batch.sequences[i]));
}

Status PagedCache::planDecode(const ffdDecodeBatch &batch, uint64_t capture,
                              void *stream, ffdDecodeArgs &args) {
  if (!kernels->plan)
    return kernels->planStatus;
  if (batch.count > FFD_PLAN_MAX_BATCH)
    return Status(StatusCode::Unsupported,
                  "'ffdDecodeBatch' field 'count' is " +
                      std::to_string(batch.count) + ", expected at most " +
                      std::to_string(FFD_PLAN_MAX_BATCH) + " on a GPU");
  Gpu &g = *gpu;
  if (capture)
    noteCapture(capture);
  DevicePlan::Batch wanted;
  wanted.count = batch.count;
  wanted.deviceSlots = batch.device_sequences;
  wanted.capture = capture;
  if (capture)
    wanted.appended = g.capturedAppends[size_t(batch.layer)];
  for (int64_t i = 0; !wanted.deviceSlots && i < batch.count; ++i) {
    const int32_t slot = batch.sequences ? batch.sequences[i] : int32_t(i);
    wanted.slots.push_back(slot);
    if (capture)
      continue;
    const Sequence &sequence = sequences[size_t(slot)];
    wanted.lengths.push_back(sequence.length[size_t(batch.layer)]);
    wanted.committed.push_back(sequence.committed[size_t(batch.layer)]);
  }

  DevicePlan &plan = capture ? g.capturedPlan : g.plan;
  const int64_t rows = int64_t(batch.count) * shape.heads;
  const int32_t entries = int32_t(planEntries(batch.count));
  if (!(plan.batch == wanted)) {
    plan.batch = {};
    ffdPlanArgs p = {};
    FFD_RETURN_IF_ERROR(listOnDevice("a decode", batch.count, batch.sequences,
                                     batch.device_sequences, g.decoded, capture,
                                     stream, p.slots));
    p.lengths = lengths + batch.layer * shape.slots;
    p.plan = plan.pieces;
    p.batch = batch.count;
    p.kv_heads = int32_t(shape.heads);
    p.lag = int32_t(shape.lag);
    p.pieces = entries;
    p.blocks_per_piece = pieceBlocks;
    p.committed = g.committed;
    p.slot_count = int32_t(shape.slots);
    if (pieceBlocks == 0) {
      p.multiprocessors = owner->cuda()->device().multiprocessors;
      p.resident = int32_t(kernels->cuda->residentCtas());
      p.target = int32_t(raggedPieces(rows, p.resident));
    }
    FFD_RETURN_IF_ERROR(kernels->plan->launchPlan(p, stream));
    plan.batch = std::move(wanted);
  }
  args.plan = plan.pieces;
  args.pieces = entries;
  args.workspace = static_cast<uint8_t *>(g.decode.memory) +
                   Layout::partialsOffset(shape.rows()) -
                   Layout::partialsOffset(rows);
  return Status::success();
}
