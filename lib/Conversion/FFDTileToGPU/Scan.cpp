//===- Scan.cpp - The share of a team --------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A team's part of the committed blocks, in rounds: its warps scan up to 32
// blocks each from their rings and leave a byte of keep bits per block; then
// the kept tiles, in ascending order, are refined. Blocks are dealt to the
// pieces of a row and to warps in turn, so that pieces of a clustered row get
// equal work.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"

using namespace mlir;
using namespace mlir::ffd;

Value KernelEmitter::loadPages(Value firstIteration) {
  Value i = b.add(firstIteration, lane);
  Value block = b.add(b.add(share->first, warp), b.mul(i, share->stride));
  Value entry = b.add(b.mul(b.zext64(sequence), arg(KernelArg::page_stride)),
                      b.zext64(block));
  return loadWord(b.at(arg(KernelArg::page_table), b.shl(entry, 2)),
                  b.lt(i, share->warpCount));
}

void KernelEmitter::fillStage(Value stage, Value page, Value condition) {
  int64_t bytes = plan.layout.thumbnailBytes();
  Value source = b.at(arg(KernelArg::thumbnails), b.mul(slotOf(page), bytes));
  GPURingFillOp::create(b, plan.copies, b.at(warpBarriers, b.shl(stage, 3)),
                        condition,
                        ValueRange{b.at(ringBase, b.mul(stage, bytes))},
                        ValueRange{source}, ArrayRef<int64_t>{bytes});
}

void KernelEmitter::fillStages(Value firstIteration, Value pages,
                               Value firstStage) {
  for (int64_t s = 0; s < plan.stages; ++s) {
    Value stage = b.add(firstStage, s);
    stage =
        b.select(b.lt(stage, plan.stages), stage, b.add(stage, -plan.stages));
    fillStage(stage, shuffle(pages, b.c32(s)),
              b.lt(b.add(firstIteration, s), share->warpCount));
  }
}

void KernelEmitter::startShare(TileDistributeOp loop) {
  Value blocks = counts.lookup(loop.getOver().front());
  share.emplace();
  share->first = b.mul(split, plan.warps);
  share->stride = b.mul(splits, plan.warps);
  Value rest = b.sub(blocks, share->first);
  Value zero = b.c32(0);
  share->teamCount = b.ceilDiv(b.smax(rest, zero), share->stride);
  share->warpCount = b.ceilDiv(b.smax(b.sub(rest, warp), zero), share->stride);
  if (plan.traits.rings || plan.traits.refines)
    share->pages = loadPages(zero);
}

void KernelEmitter::storeKept(Value mask, Value block, Value condition) {
  int64_t selects = plan.layout.selectsPerBlock();
  int64_t tiles = plan.tilesPerBlock() / selects;
  b.ifThen(b.band(condition, b.lt(lane, selects)), [&] {
    Value bit = b.band(b.shr(mask, b.mul(lane, tiles)), 1);
    Value offset = b.add(b.mul(b.zext64(row), arg(KernelArg::kept_stride)),
                         b.zext64(b.add(b.mul(block, selects), lane)));
    b.store(b.trunc(b.getI8Type(), bit), b.at(arg(KernelArg::kept), offset), 1);
  });
}

/// Selection blocks of a mask, which has a bit for each of their tiles.
Value KernelEmitter::countSelects(Value mask) {
  int64_t tiles = plan.layout.selectBlock / 16, first = 0;
  for (int64_t tile = 0; tile < plan.tilesPerBlock(); tile += tiles)
    first |= int64_t(1) << tile;
  return LLVM::CtPopOp::create(b, b.i32(), b.band(mask, first));
}

/// Adds to the row's counter, if there is one, from one lane of the warp.
void KernelEmitter::addKeptCount(Value count) {
  // Whether there is one is asked anew each time: the answer would take a
  // register through the loops.
  Value counter = b.opaque(arg(KernelArg::kept_count));
  Value given = b.ne(LLVM::PtrToIntOp::create(b, b.i64(), counter), 0);
  b.ifThen(b.band(given, b.band(b.eq(lane, 0), b.ne(count, 0))), [&] {
    // Read again, so that it need not live through the loops.
    Value here = plan.sharesCoordinates()
                     ? b.load(b.i32(), shared(plan.coordinates), 4)
                     : row;
    GPUAddCounterOp::create(b, b.at(counter, scaled(here, 8)), b.zext64(count));
  });
}

Value KernelEmitter::loadBlockScales(Value stageAddress) {
  return loadFragment(
      b.at(b.at(stageAddress, plan.layout.codeBytes()), b.shl(tq, 4)), 64,
      /*constant=*/false);
}

/// A bit per tile of a block: whether `scan` of its codes gives a score that is
/// not negative.
Value KernelEmitter::scanBlock(Value stageAddress, int64_t selectBlock,
                               function_ref<Value(Value)> scan) {
  Value codes = b.at(stageAddress, b.shl(lane, 4));
  DenseMap<int64_t, SmallVector<Value>> chunks;
  auto word = [&](int64_t n) {
    SmallVector<Value> &chunk = chunks[n / 4];
    if (chunk.empty()) {
      Value from = b.at(codes, n / 4 * 512);
      chunk = b.unpack(b.load(b.words(4), from, 16));
    }
    return chunk[n % 4];
  };
  Value bits = b.c32(0);
  for (int64_t tile = plan.tilesPerBlock() - 1; tile >= 0; --tile) {
    // Keeps the codes of a block, all read at once, from filling the registers.
    if (plan.direct)
      GPUWarpBarrierOp::create(b);
    SmallVector<Value> words;
    for (int64_t k = 0; k < plan.codeWords; ++k)
      words.push_back(word(tile * plan.codeWords + k));
    bits = GPUPushKeepOp::create(b, b.i32(), bits, scan(b.pack(words)));
  }
  return GPUKeepMaskOp::create(b, b.i32(), bits, selectBlock);
}

Value KernelEmitter::emitExactMask(Value stageAddress,
                                   const ThresholdValue &threshold) {
  Folded folded = foldScales(loadBlockScales(stageAddress));
  // a_int >= thr is 2 S >= 2 L sum Q + thr: the sums start at minus half of
  // that, rounded up, and the sign of S answers.
  SmallVector<Value> starts;
  for (auto [centre, thr] : llvm::zip(folded.centres, threshold.exact))
    starts.push_back(b.sub(b.c32(0), b.sar(b.add(b.add(centre, thr), 1), 1)));
  return scanBlock(
      stageAddress, plan.layout.selectBlock, [&](Value codes) -> Value {
        return GPUScanTileOp::create(b, b.words(2 * plan.scanTiles), codes,
                                     folded.tiles, starts, plan.bits);
      });
}

Value KernelEmitter::keptEnds(Value iteration0) {
  int64_t blockTiles = plan.tilesPerBlock();
  int64_t tiles = blockTiles / plan.layout.selectsPerBlock();
  int64_t first = (int64_t(1) << tiles) - 1;
  int64_t last = first << (blockTiles - tiles);
  Value block = b.add(b.add(share->first, warp),
                      b.mul(b.add(iteration0, lane), share->stride));
  // A round has blocks, so block 0 is one, and what a lane without a block
  // has here nobody asks for.
  Value newest = b.add(b.load(b.i32(), shared(plan.committed), 4), -1);
  return b.bor(b.select(b.eq(block, 0), b.c32(first), b.c32(0)),
               b.select(b.eq(block, newest), b.c32(last), b.c32(0)));
}

/// Scans `count` blocks of this warp; returns the ring's stage and parities.
SmallVector<Value> KernelEmitter::emitScanLoop(TileDistributeOp loop,
                                               Value iteration0, Value count,
                                               Value pages, Value stage,
                                               Value parity) {
  bool keeps = false;
  ThresholdValue threshold;
  Value ends;
  for (Operation &op : *loop.getBody()) {
    keeps |= isa<TileStoreKeptOp>(op);
    if (auto reach = dyn_cast<TileReachOp>(op))
      threshold = thresholds.lookup(reach.getThreshold());
    if (isa<TileKeepEndsOp>(op))
      ends = keptEnds(iteration0);
  }
  SmallVector<Value> initial = {stage, parity};
  initial.append(plan.traits.certified() ? plan.scanTiles : 0, b.cf(0));
  SmallVector<Value> results = b.loop(
      b.c32(0), count, b.c32(1), initial,
      [&](Value i, ValueRange carried) -> SmallVector<Value> {
        Value stage = carried[0], parity = carried[1];
        SmallVector<Value> sums(carried.drop_front(2));
        auto maskOf = [&](Value at) {
          if (!plan.traits.certified())
            return emitExactMask(at, threshold);
          return emitCertifiedMask(at, threshold,
                                   ends ? shuffle(ends, i) : Value(), sums);
        };
        int64_t bytes = plan.layout.thumbnailBytes();
        Value mask;
        if (plan.direct) {
          Value place = slotOf(shuffle(pages, i));
          mask = maskOf(b.at(arg(KernelArg::thumbnails), b.mul(place, bytes)));
        } else {
          GPURingWaitOp::create(
              b, plan.copies, b.at(warpBarriers, b.shl(stage, 3)),
              b.band(b.shr(parity, stage), 1), plan.stages - 1);
          Value at = b.at(ringBase, b.mul(stage, bytes));
          mask = plan.screens() ? emitScreenedMask(at, threshold, parity)
                                : maskOf(at);
          // All lanes have read the stage.
          GPUWarpBarrierOp::create(b);
          Value next = b.add(i, plan.stages);
          fillStage(stage, shuffle(pages, next), b.lt(next, count));
        }
        if (ends && !plan.traits.certified())
          mask = b.bor(mask, shuffle(ends, i));
        if (plan.traits.refines)
          b.ifThen(b.band(b.eq(lane, 0), b.ne(mask, 0)), [&] {
            Value slot = b.add(b.mul(i, plan.warps), warp);
            b.store(b.trunc(b.getI8Type(), mask), b.at(shared(plan.keep), slot),
                    1);
          });
        if (keeps) {
          Value block = b.add(b.add(share->first, warp),
                              b.mul(b.add(iteration0, i), share->stride));
          storeKept(mask, block, keptGiven);
          if (!plan.traits.refines)
            addKeptCount(countSelects(mask));
        }
        Value following = b.add(stage, 1);
        following = b.select(b.lt(following, plan.stages), following, b.c32(0));
        SmallVector<Value> next = {following,
                                   b.bxor(parity, b.shl(b.c32(1), stage))};
        next.append(sums);
        return next;
      });
  if (plan.traits.certified())
    addSkipped(ArrayRef<Value>(results).drop_front(2));
  return {results[0], results[1]};
}

/// Masks that cost no scan: a lane per block.
void KernelEmitter::emitPlainMasks(TileDistributeOp loop, Value iteration0,
                                   Value count) {
  bool keeps = false, loads = false;
  for (Operation &op : *loop.getBody()) {
    keeps |= isa<TileStoreKeptOp>(op);
    loads |= isa<TileLoadKeptOp>(op);
  }
  int64_t selects = plan.layout.selectsPerBlock();
  int64_t tiles = plan.tilesPerBlock() / selects;
  Value valid = b.lt(lane, count);
  Value block = b.add(b.add(share->first, warp),
                      b.mul(b.add(iteration0, lane), share->stride));
  auto keptAddress = [&] {
    return b.at(arg(KernelArg::kept),
                b.add(b.mul(b.zext64(row), arg(KernelArg::kept_stride)),
                      b.zext64(b.mul(block, selects))));
  };
  Value mask;
  if (loads) {
    mask = b.ifElse(
                valid, b.i32(),
                [&]() -> SmallVector<Value> {
                  Value bits = b.c32(0), from = keptAddress();
                  for (int64_t k = 0; k < selects; ++k) {
                    Value byte = b.load(b.getI8Type(), b.at(from, k), 1);
                    Value set = b.ne(b.zext32(byte), 0);
                    int64_t value = ((int64_t(1) << tiles) - 1) << (k * tiles);
                    bits = b.bor(bits, b.select(set, b.c32(value), b.c32(0)));
                  }
                  return {bits};
                },
                [&]() -> SmallVector<Value> { return {b.c32(0)}; })
               .front();
  } else {
    mask = b.select(valid, b.c32(0xFF), b.c32(0));
    if (keeps)
      b.ifThen(b.band(valid, keptGiven), [&] {
        Value to = keptAddress();
        for (int64_t k = 0; k < selects; ++k)
          b.store(b.trunc(b.getI8Type(), b.c32(1)), b.at(to, k), 1);
      });
    if (keeps && !plan.traits.refines)
      addKeptCount(b.mul(count, selects));
  }
  if (plan.traits.refines)
    b.store(b.trunc(b.getI8Type(), mask),
            b.at(shared(plan.keep), b.add(b.mul(lane, plan.warps), warp)), 1);
}

/// Leaves the outputs in the part of the ring that the scan does not use.
void KernelEmitter::park(StateValue &state) {
  Value to = b.at(b.at(ringBase, plan.parkOffset()), b.shl(lane, 4));
  for (int64_t t = 0; t < plan.headTiles; ++t) {
    SmallVector<Value> floats = b.unpack(state.output[t]);
    for (int64_t m = 0; m < plan.valueTiles; ++m)
      b.store(b.pack(ArrayRef<Value>(floats).slice(4 * m, 4)),
              b.at(to, (t * plan.valueTiles + m) * 512), 16);
  }
}

/// Takes them back before copies overwrite them.
void KernelEmitter::unpark(StateValue &state) {
  Value from = b.at(b.at(ringBase, plan.parkOffset()), b.shl(lane, 4));
  for (int64_t t = 0; t < plan.headTiles; ++t) {
    SmallVector<Value> floats;
    for (int64_t m = 0; m < plan.valueTiles; ++m)
      floats.append(b.unpack(b.load(
          b.floats(4), b.at(from, (t * plan.valueTiles + m) * 512), 16)));
    state.output[t] = b.pack(floats);
  }
}

/// A block has one mask here, so its ends are in it wherever it is used.
static LogicalResult checkKeepEnds(TileDistributeOp loop) {
  for (auto ends : loop.getBody()->getOps<TileKeepEndsOp>()) {
    if (!ends.getMask().hasOneUse())
      return ends.emitOpError("adds to a mask that is also used without the "
                              "ends, expected no other use");
    if (ends.getBlocks() != loop.getOver().front() ||
        ends.getBlock() != loop.getBody()->getArgument(0))
      return ends.emitOpError("is of another block or row than the loop's, "
                              "expected that of the loop");
  }
  return success();
}

LogicalResult KernelEmitter::emitShare(TileDistributeOp loop,
                                       TileDistributeOp refine) {
  bool scans = plan.traits.rings;
  SmallVector<StringRef> allowed = {"load_kept", "full", "store_kept"};
  if (scans)
    allowed = {"load_thumbnail", "scan", "reach", "keep_ends", "store_kept"};
  if (loop.getSkipped())
    allowed.push_back("skipped");
  if (failed(checkBody(loop, allowed)) || failed(checkKeepEnds(loop)))
    return failure();
  if (refine && failed(checkBody(refine, {"load_thumbnail", "load_body",
                                          "refine", "accumulate"})))
    return failure();
  if (!share) {
    startShare(loop);
    if (plan.scanRing())
      fillStages(b.c32(0), share->pages, b.c32(0));
  }
  bool stores = false;
  for (Operation &op : *loop.getBody())
    stores |= isa<TileStoreKeptOp>(op);
  if (stores && !keptGiven) {
    Value number = LLVM::PtrToIntOp::create(b, b.i64(), arg(KernelArg::kept));
    keptGiven = b.ne(number, 0);
    countsKept = true;
  }

  Value zero = b.c32(0);
  bool needPages = scans || refine;
  SmallVector<Value> carried = {zero, zero, zero,
                                needPages ? share->pages : zero};
  // The state, less the outputs where they are parked.
  StateValue state;
  auto carry = [&](SmallVector<Value> &values) {
    if (!refine)
      return;
    if (!plan.parksOutput()) {
      values.append(state.flat());
      return;
    }
    park(state);
    values.append(state.reference);
    values.append(state.sum);
  };
  auto resume = [&](ValueRange values) {
    if (!plan.parksOutput()) {
      state = StateValue::fromFlat(values);
      return;
    }
    state.reference.assign(values.begin(), values.begin() + plan.headTiles);
    state.sum.assign(values.begin() + plan.headTiles, values.end());
    unpark(state);
  };
  if (refine)
    state = states[refine.getInit()];
  carry(carried);
  carried = b.loop(
      zero, share->teamCount, b.c32(32), carried,
      [&](Value iteration0, ValueRange values) {
        Value stage = values[0], parity = values[1], phase = values[2],
              pages = values[3];
        // The scan and the refinement need not keep each other's coordinates.
        emitLaneCoordinates(/*again=*/true);
        Value count = b.smin(b.smax(b.sub(share->warpCount, iteration0), zero),
                             b.c32(32));
        if (refine) {
          Value slot = b.add(b.mul(lane, plan.warps), warp);
          b.store(pages, b.at(shared(plan.pages), b.shl(slot, 2)), 4);
          if (scans)
            b.store(b.trunc(b.getI8Type(), zero), b.at(shared(plan.keep), slot),
                    1);
          GPUWarpBarrierOp::create(b);
        }
        if (scans) {
          SmallVector<Value> ring =
              emitScanLoop(loop, iteration0, count, pages, stage, parity);
          stage = ring[0];
          parity = ring[1];
        } else {
          emitPlainMasks(loop, iteration0, count);
        }
        // For the next round; arrives during the refinement.
        Value nextIteration = b.add(iteration0, 32);
        if (needPages)
          pages = loadPages(nextIteration);
        SmallVector<Value> next = {stage, parity, phase, pages};
        if (refine) {
          emitLaneCoordinates(/*again=*/true);
          resume(values.drop_front(4));
          GPURingHandoverOp::create(b, plan.copies);
          teamBarrier();
          SmallVector<Value> after =
              emitRefineRound(refine, phase, state.flat());
          next[2] = after[0];
          state = StateValue::fromFlat(ValueRange(after).drop_front());
          carry(next);
        }
        // Before the next round; after the last one a warp goes on by itself.
        b.ifThen(b.lt(nextIteration, share->teamCount), [&] {
          if (refine) {
            GPURingHandoverOp::create(b, plan.copies);
            teamBarrier();
          }
          if (plan.scanRing())
            fillStages(nextIteration, pages, stage);
        });
        return next;
      });
  emitLaneCoordinates(/*again=*/true);
  if (refine) {
    resume(ValueRange(carried).drop_front(4));
    states[refine.getResult()] = state;
  }
  return success();
}
