//===- Plan.cpp - The sizes of one GPU kernel -------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The schedule and the map of shared memory.
//
//===----------------------------------------------------------------------===//

#include "Plan.h"

using namespace mlir;
using namespace mlir::ffd;

ProgramTraits ProgramTraits::of(TileTeamsOp teams) {
  ProgramTraits traits;
  teams.walk([&](Operation *op) {
    traits.scans |= isa<TileScanOp>(op);
    if (auto scan = dyn_cast<TileScanOp>(op))
      traits.refinedMax |= bool(scan.getBody());
    traits.keepsEnds |= isa<TileKeepEndsOp>(op);
    traits.refines |= isa<TileRefineOp>(op);
    if (auto skipped = dyn_cast<TileSkippedOp>(op))
      traits.certificate =
          skipped.getNoise() ? Certificate::noise : Certificate::plain;
    auto loop = dyn_cast<TileDistributeOp>(op);
    if (loop && loop.getDomain() == Domain::share)
      for (Operation &inner : *loop.getBody())
        traits.rings |= isa<TileLoadThumbnailOp>(inner);
  });
  return traits;
}

int64_t KernelPlan::ringBytesWithoutTail() const {
  int64_t bytes = 0;
  if (scanRing())
    bytes = stages * layout.thumbnailBytes();
  if (parksOutput())
    bytes = parkOffset() + parkBytes();
  if (traits.refines)
    bytes = std::max(bytes, slots * slotBytes());
  return llvm::alignTo(bytes, 128);
}

int64_t KernelPlan::tailTokens() const {
  int64_t room = ringBytesWithoutTail() - parkOffset();
  int64_t tokens = room / (2 * layout.headDim) / 8 * 8;
  return std::clamp<int64_t>(tokens, 8, 16);
}

int64_t KernelPlan::ringBytes() const {
  int64_t bytes = ringBytesWithoutTail();
  if (traits.scans)
    bytes = std::max(bytes, parkOffset() + tailBytes());
  return llvm::alignTo(bytes, 128);
}

void KernelPlan::assignOffsets() {
  int64_t next = 0;
  auto take = [&](int64_t bytes) {
    int64_t offset = next;
    next = llvm::alignTo(next + bytes, 16);
    return offset;
  };
  // The rings; later, in their place, the states of the warps, then the parts
  // of merged pieces.
  int64_t states = warps * mergeHeads() * mergeStride() * 4;
  mergeSums = states;
  ring = take(std::max({warps * ringBytes(), states + warps * mergeHeads() * 8,
                        threads() * kMergedPartBytes}));
  scanQuery = take(traits.scans ? scanTiles * groups * 512 : 0);
  refineQuery = take(traits.refines ? headTiles * groups * 512 : 0);
  pages = take(traits.refines ? roundBlocks() * 4 : 0);
  keep = take(traits.refines ? roundBlocks() : 0);
  queue = take(traits.refines ? roundBlocks() * tilesPerBlock() * 2 : 0);
  barriers = take(warps * barriersPerWarp() * 8);
  unit = take(paddedGroup() * 4);
  bad = take(paddedGroup() * 4);
  factor = take(paddedGroup() * 4);
  inverse = take(paddedGroup() * 4);
  rowMax = take(warps * paddedGroup() * 4);
  tailBad = take(warps * 4);
  shift = take(4);
  flag = take(4);
  coordinates = take(32);
  // The row's committed blocks stand after its place.
  place = take(traits.keepsEnds ? 8 : 4);
  committed = place + 4;
  keptSum = take(4);
  skippedSums = take(traits.certified() ? warps * paddedGroup() * 4 : 0);
  skippedReference = take(traits.certified() ? paddedGroup() * 4 : 0);
  sharedBytes = next;
}

/// Whether a thread can do with the 128 registers that two CTAs of eight warps
/// leave it.
static bool fitsFewRegisters(const KernelPlan &plan) {
  // As measured: the assembler spills a register or two of these.
  if (plan.element.isBF16() && plan.scanTiles == 2 && plan.groups == 3)
    return false;
  return plan.headTiles == 1 && plan.groups <= 4 && plan.valueTiles <= 8;
}

FailureOr<KernelPlan> mlir::ffd::makePlan(TileTeamsOp teams,
                                          const GPUArch &arch) {
  KernelPlan plan;
  plan.spec = teams.getSpec();
  plan.element = plan.spec.getElement();
  plan.layout = plan.spec.getLayout();
  plan.traits = ProgramTraits::of(teams);
  plan.copies = arch.bulkCopies ? CopyKind::bulk : CopyKind::async;
  plan.group = plan.spec.getRowHeads();
  plan.bits = plan.spec.getScanBits();
  plan.groups = plan.layout.channelGroups();
  plan.valueTiles = plan.layout.paddedValueDim() / 16;
  plan.scanTiles = llvm::divideCeil(plan.group, 4);
  plan.headTiles = llvm::divideCeil(plan.group, 8);
  plan.codeWords = plan.layout.wordsPerTile();

  auto fits = [&] {
    plan.assignOffsets();
    // The system takes 1 KB of every CTA.
    return plan.sharedBytes <= arch.sharedPerCTA &&
           plan.ctas * (plan.sharedBytes + 1024) <= arch.sharedPerSM;
  };
  auto set = [&](int64_t warps, int64_t ctas, int64_t stages, int64_t slots) {
    plan.warps = warps;
    plan.ctas = ctas;
    plan.stages = stages;
    plan.slots = slots;
  };

  if (std::optional<ScheduleAttr> schedule = teams.getSchedule()) {
    set(schedule->getWarps(), schedule->getCtas(), schedule->getStages(),
        schedule->getSlots());
    if (!llvm::is_contained({4, 8, 16}, plan.warps))
      return teams.emitOpError("schedule has ")
             << plan.warps << " warps, expected 4, 8 or 16";
    if (plan.stages > 8 || plan.slots > 8)
      return teams.emitOpError("schedule has ")
             << plan.stages << " stages and " << plan.slots
             << " slots, expected at most 8 of each";
    if (!fits()) {
      plan.direct = true;
      if (fits())
        return plan;
      return teams.emitOpError("schedule needs ")
             << plan.sharedBytes << " bytes of shared memory in each of "
             << plan.ctas << " CTAs, expected what " << arch.name
             << " has: " << arch.sharedPerCTA << " per CTA, "
             << arch.sharedPerSM << " in all";
    }
    return plan;
  }

  static const int64_t choices[][4] = {{8, 2, 2, 2}, {4, 2, 2, 2}, {8, 1, 2, 2},
                                       {8, 1, 2, 1}, {8, 1, 1, 1}, {4, 1, 2, 1},
                                       {4, 1, 1, 1}};
  for (const auto &[warps, ctas, stages, slots] : choices) {
    if (ctas > 1 && warps > 4 && !fitsFewRegisters(plan))
      continue;
    set(warps, ctas, stages, slots);
    if (fits())
      return plan;
  }
  plan.direct = true;
  for (int64_t warps : {8, 4}) {
    set(warps, 1, 1, 1);
    if (fits())
      return plan;
  }
  return teams.emitOpError("needs ")
         << plan.sharedBytes << " bytes of shared memory at least, expected "
         << "what a CTA has on " << arch.name << ": " << arch.sharedPerCTA;
}
