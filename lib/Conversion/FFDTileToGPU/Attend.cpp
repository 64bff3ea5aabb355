//===- Attend.cpp - Refinement and tail ------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where the online softmax grows: the kept tiles of a round, which come through
// the refinement slots of a warp's ring, and the tiles of the tail, straight
// from global memory.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"

using namespace mlir;
using namespace mlir::ffd;

static constexpr float kLog2e = 1.44269504088896340736f;

/// One step of the softmax for all query tiles. `scores` are in units of log2;
/// values are loaded after the probabilities are known, when the registers of
/// the scores are free again.
void KernelEmitter::stepState(StateValue &state, Value scores,
                              function_ref<Value()> loadValues) {
  SmallVector<Value> all = b.unpack(scores), probabilities;
  TypeAttr element = TypeAttr::get(plan.element);
  for (int64_t t = 0; t < plan.headTiles; ++t) {
    auto step = GPUSoftmaxStepOp::create(
        b, b.words(2), b.floats(2), b.floats(2), state.output[t].getType(),
        b.pack(ArrayRef<Value>(all).slice(4 * t, 4)), state.reference[t],
        state.sum[t], state.output[t], element);
    state.reference[t] = step.getNewReference();
    state.sum[t] = step.getNewSum();
    state.output[t] = step.getNewOutput();
    probabilities.push_back(step.getP());
  }
  Value values = loadValues();
  for (int64_t t = 0; t < plan.headTiles; ++t)
    state.output[t] =
        GPUAccumulateOp::create(b, state.output[t].getType(), state.output[t],
                                values, probabilities[t], element);
}

SmallVector<Value> KernelEmitter::emitRefineRound(TileDistributeOp loop,
                                                  Value phase,
                                                  ValueRange stateValues) {
  auto take = GPUQueueTakeOp::create(b, b.i32(), b.i32(), shared(plan.keep),
                                     shared(plan.queue), plan.warps);
  Value begin = take.getBegin(), end = take.getEnd();
  // The last warp's part ends with the list. The sum waits in shared memory for
  // the end of the piece, where registers are free.
  if (countsKept)
    b.ifThen(b.eq(thread, plan.threads() - 1), [&] {
      Value sum = shared(plan.keptSum);
      b.store(b.add(b.load(b.i32(), sum, 4), end), sum, 4);
    });
  int64_t slots = plan.slots, firstBarrier = 8 * plan.stages;
  const ::ffd::Layout &layout = plan.layout;
  Value laneOffset = b.shl(lane, 4);

  // Starts the copies of tile `index` of the list (the last one if there is no
  // such) and returns its codes, if they do not come with the copies.
  auto fetch = [&](Value index, Value slot) -> Value {
    Value exists = b.lt(index, end);
    Value position = b.smin(index, b.add(end, -1));
    Value tile = b.zext32(
        b.load(b.i16(), b.at(shared(plan.queue), b.shl(position, 1)), 2));
    Value page =
        b.load(b.i32(), b.at(shared(plan.pages), b.shl(b.shr(tile, 3), 2)), 4);
    tile = b.band(tile, 7);
    Value place = slotOf(page);
    Value residuals = b.at(
        b.at(arg(KernelArg::residuals), b.mul(place, layout.residualBytes())),
        scaled(tile, layout.residualTileBytes()));
    Value values =
        b.at(b.at(arg(KernelArg::values), b.mul(place, layout.valueBytes())),
             scaled(tile, layout.valueTileBytes()));
    Value thumbnail =
        b.at(arg(KernelArg::thumbnails), b.mul(place, layout.thumbnailBytes()));
    Value to = b.at(ringBase, b.mul(slot, plan.slotBytes()));
    SmallVector<Value> targets = {b.at(to, plan.slotValues()), to,
                                  b.at(to, plan.slotScales())};
    SmallVector<Value> sources = {values, residuals,
                                  b.at(thumbnail, layout.codeBytes())};
    SmallVector<int64_t> sizes = {layout.valueTileBytes(),
                                  layout.residualTileBytes(),
                                  layout.scaleBytes()};
    if (plan.codesInSlot()) {
      targets.push_back(b.at(to, plan.slotCodes()));
      sources.push_back(b.at(thumbnail, scaled(tile, 128 * plan.codeWords)));
      sizes.push_back(128 * plan.codeWords);
    }
    GPURingFillOp::create(
        b, plan.copies, b.at(warpBarriers, b.add(b.shl(slot, 3), firstBarrier)),
        exists, targets, sources, sizes);
    return plan.codesInSlot() ? Value() : loadTileCodes(thumbnail, tile);
  };

  auto refineAll = [&]() -> SmallVector<Value> {
    Value scale = b.fmul(arg(KernelArg::sm_scale), b.cf(kLog2e));
    SmallVector<Value> factors;
    for (int64_t t = 0; t < plan.headTiles; ++t) {
      Value inverse = b.load(
          b.floats(2), b.at(shared(plan.inverse + 32 * t), b.shl(tq, 3)), 8);
      for (int64_t c : {0, 1})
        factors.push_back(b.fmul(b.get(inverse, c), scale));
    }
    SmallVector<Value> carried = {b.c32(0), phase};
    for (int64_t s = 0; s < slots; ++s)
      if (Value codes = fetch(b.add(begin, s), b.c32(s)))
        carried.push_back(codes);
    size_t firstState = carried.size();
    carried.append(stateValues.begin(), stateValues.end());
    carried =
        b.loop(begin, end, b.c32(1), carried, [&](Value i, ValueRange values) {
          Value slot = values[0], phase = values[1];
          StateValue state =
              StateValue::fromFlat(values.drop_front(firstState));
          Value at = b.at(ringBase, b.mul(slot, plan.slotBytes()));
          GPURingWaitOp::create(
              b, plan.copies,
              b.at(warpBarriers, b.add(b.shl(slot, 3), firstBarrier)),
              b.band(b.shr(phase, slot), 1), slots - 1);
          Value codes;
          if (plan.codesInSlot()) {
            SmallVector<Value> words;
            for (int64_t k = 0; k < plan.codeWords; k += 4)
              words.append(b.unpack(b.load(
                  b.words(4),
                  b.at(b.at(at, plan.slotCodes() + k * 128), laneOffset), 16)));
            codes = b.pack(words);
          } else {
            codes = values[2];
          }
          Value residuals =
              loadFragment(b.at(at, laneOffset), 512, /*constant=*/false);
          Value scales =
              loadFragment(b.at(b.at(at, plan.slotScales()), b.shl(tq, 4)), 64,
                           /*constant=*/false);
          SmallVector<Value> queries;
          for (int64_t t = 0; t < plan.headTiles; ++t)
            queries.push_back(loadFragment(
                b.at(shared(plan.refineQuery + t * plan.groups * 512),
                     laneOffset),
                512, /*constant=*/false));
          Value f = GPURefineTileOp::create(b, b.floats(4 * plan.headTiles),
                                            codes, residuals, scales, queries,
                                            plan.bits, plan.element);
          SmallVector<Value> scores = b.unpack(f);
          for (size_t k = 0; k < scores.size(); ++k)
            scores[k] = b.fmul(scores[k], factors[k / 4 * 2 + k % 2]);
          stepState(state, b.pack(scores), [&] {
            SmallVector<Value> words;
            for (int64_t m = 0; m < plan.valueTiles; ++m)
              words.append(b.unpack(b.load(
                  b.words(4),
                  b.at(b.at(at, plan.slotValues() + m * 512), laneOffset),
                  16)));
            return b.pack(words);
          });
          // All lanes have read the slot.
          GPUWarpBarrierOp::create(b);
          Value newCodes = fetch(b.add(i, slots), slot);
          Value following = b.add(slot, 1);
          following = b.select(b.lt(following, slots), following, b.c32(0));
          SmallVector<Value> next = {following,
                                     b.bxor(phase, b.shl(b.c32(1), slot))};
          if (newCodes) {
            for (int64_t s = 1; s < slots; ++s)
              next.push_back(values[2 + s]);
            next.push_back(newCodes);
          }
          SmallVector<Value> flat = state.flat();
          next.append(flat.begin(), flat.end());
          return next;
        });
    SmallVector<Value> results = {carried[1]};
    results.append(carried.begin() + firstState, carried.end());
    return results;
  };

  SmallVector<Value> unchanged = {phase};
  unchanged.append(stateValues.begin(), stateValues.end());
  SmallVector<Type> types;
  for (Value value : unchanged)
    types.push_back(value.getType());
  return b.ifElse(b.lt(begin, end), types, refineAll,
                  [&] { return unchanged; });
}

//===----------------------------------------------------------------------===//
// Tail
//===----------------------------------------------------------------------===//

Value KernelEmitter::tailRow(KernelArg plane, int64_t width, Value token) {
  Value rows =
      b.add(b.add(b.mul(b.zext64(sequence), arg(KernelArg::tail_batch_stride)),
                  b.mul(b.zext64(head), arg(KernelArg::tail_head_stride))),
            b.zext64(token));
  return b.at(arg(plane), b.mul(rows, 2 * width));
}

/// Keys of tokens g and g + 8 of a tile, eight words per channel group. Rows
/// past the tail are never read; their lanes read the last row.
Value KernelEmitter::loadTailKeys(Value tile, Value tail) {
  Value last = b.add(tail, -1);
  Value rows[2];
  for (int64_t i : {0, 1}) {
    Value token = b.add(b.add(b.shl(tile, 4), g), 8 * i);
    rows[i] = b.at(
        tailRow(KernelArg::tail_k, plan.layout.headDim, b.smin(token, last)),
        b.shl(tq, 3));
  }
  SmallVector<Value> words;
  for (int64_t j = 0; j < plan.groups; ++j)
    for (Value row : rows)
      for (int64_t channel : {32 * j, 32 * j + 16}) {
        if (channel >= plan.layout.headDim) {
          words.append(2, b.c32(0));
          continue;
        }
        words.append(
            b.unpack(b.loadConstant(b.words(2), b.at(row, 2 * channel), 8)));
      }
  return b.pack(words);
}

/// Values of a tile in the order of the cache, from row-major rows; zero past
/// the tail.
Value KernelEmitter::loadTailValues(Value tile, Value tail) {
  Value last = b.add(tail, -1);
  Value rows[2], valid[2];
  for (int64_t i : {0, 1}) {
    Value token = b.add(b.add(b.shl(tile, 4), g), 8 * i);
    valid[i] = b.lt(token, tail);
    rows[i] = b.at(
        tailRow(KernelArg::tail_v, plan.layout.valueDim, b.smin(token, last)),
        b.shl(tq, 2));
  }
  // Words of dims 16 m + 2 tq (+ 8) of tokens g (+ 8), which the transposition
  // turns into dim 16 m + g of tokens 2 tq and 2 tq + 1.
  SmallVector<Value> words;
  for (int64_t m = 0; m < plan.valueTiles; ++m)
    for (int64_t i = 0; i < 4; ++i) {
      int64_t dim = 16 * m + i % 2 * 8;
      if (dim >= plan.layout.valueDim) {
        words.push_back(b.c32(0));
        continue;
      }
      Value word = b.load(b.i32(), b.at(rows[i / 2], 2 * dim), 4);
      words.push_back(b.select(valid[i / 2], word, b.c32(0)));
    }
  Value packed = b.pack(words);
  return GPUTransposeOp::create(b, packed.getType(), packed);
}

/// Tiles of the tail are dealt from the last piece, which has the fewest
/// blocks, and from the first warp, which has the fewest kept tiles.
Value KernelEmitter::firstTailTile() {
  return b.add(b.sub(b.add(splits, -1), split), b.mul(warp, splits));
}

/// Values of the tail are read last of all, from memory that nobody read
/// before.
void KernelEmitter::prefetchTail() {
  TileDistributeOp loop;
  for (Operation &op : *teams.getBody())
    if (auto other = dyn_cast<TileDistributeOp>(op))
      if (other.getDomain() == Domain::tail_share)
        loop = other;
  if (!loop || !plan.traits.refines)
    return;
  Value tail = counts.lookup(loop.getOver().front());
  Value token = b.add(b.shl(firstTailTile(), 4), b.shr(lane, 1));
  b.ifThen(b.lt(token, tail), [&] {
    // Two lanes to a row, a line each in turn.
    Value from = tailRow(KernelArg::tail_v, plan.layout.valueDim, token);
    int64_t lines = llvm::divideCeil(2 * plan.layout.valueDim, 128);
    for (int64_t first = 0; first < lines; first += 2) {
      Value line = b.add(b.band(lane, 1), first);
      b.ifThen(b.lt(line, lines),
               [&] { GPUPrefetchOp::create(b, b.at(from, b.shl(line, 7))); });
    }
  });
}

LogicalResult KernelEmitter::emitTailShare(TileDistributeOp loop) {
  if (failed(checkBody(loop, {"load_tail", "dot", "accumulate"})))
    return failure();
  emitCoordinates(/*again=*/true);
  Value tail = counts.lookup(loop.getOver().front());
  Value tiles = b.shr(b.add(tail, 15), 4);
  Value first = firstTailTile();
  Value scale = b.fmul(arg(KernelArg::sm_scale), b.cf(kLog2e));
  SmallVector<Value> queries;
  for (int64_t t = 0; t < plan.headTiles; ++t) {
    Value h = b.add(g, 8 * t);
    Value query = loadQuery(b.smin(h, b.c32(plan.group - 1)));
    queries.push_back(b.select(b.lt(h, plan.group), query,
                               b.zeros(cast<VectorType>(query.getType()))));
  }
  SmallVector<Value> result = b.loop(
      first, tiles, b.mul(splits, plan.warps), states[loop.getInit()].flat(),
      [&](Value tile, ValueRange values) {
        StateValue state = StateValue::fromFlat(values);
        Value keys = loadTailKeys(tile, tail);
        // Where the tail is all there is, values are loaded ahead. Else it is
        // short, and registers are dear: the barrier keeps the loads down.
        bool early = !plan.traits.refines;
        Value words = early ? loadTailValues(tile, tail) : Value();
        Value f = GPUDotTileOp::create(b, b.floats(4 * plan.headTiles), keys,
                                       queries, TypeAttr::get(plan.element));
        SmallVector<Value> scores = b.unpack(f);
        Value token = b.add(b.shl(tile, 4), g);
        Value valid[2] = {b.lt(token, tail), b.lt(b.add(token, 8), tail)};
        for (size_t k = 0; k < scores.size(); ++k) {
          Value seen = valid[k / 2 % 2];
          if (plan.tokens() > 1) {
            int64_t first = int64_t(k) / 4 * 8 + int64_t(k) % 2;
            Value limit = seenBy(b.add(b.shl(tq, 1), first), tail);
            seen = b.lt(b.add(token, int64_t(k) / 2 % 2 * 8), limit);
          }
          scores[k] = b.select(seen, b.fmul(scores[k], scale),
                               b.infinity(/*negative=*/true));
        }
        stepState(state, b.pack(scores), [&] {
          if (early)
            return words;
          GPUWarpBarrierOp::create(b);
          return loadTailValues(tile, tail);
        });
        return state.flat();
      });
  states[loop.getResult()] = StateValue::fromFlat(result);
  return success();
}
