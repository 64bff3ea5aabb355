//===- Screen.cpp - High bytes first ---------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Above four query heads the high and low bytes of the query fill more columns
// than one product has. High bytes alone take a column per head, half the
// products, and bound every score; so a block is scanned exactly only where a
// tile may be kept. What is kept does not depend on whether it was screened.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"

using namespace mlir;
using namespace mlir::ffd;

// Screening costs more than it saves where many blocks pass: it was faster with
// 6 % of the blocks kept and slower with 18 %. The limit lies between, at a
// fifth that pass, which are more than are kept. A saturating counter per warp
// tells: a block that passes adds, one that does not takes 1, and from
// kScreenLimit on blocks are scanned exactly at once, until kept ones are rare.
static constexpr int64_t kScreenLimit = 8, kPass = 4, kMostPasses = 24;
/// The counter stands above the parities of the ring, which are at most eight.
static constexpr int64_t kCounterShift = 16;

/// What 2 sum (hi (t - L)) must reach for a score to be able to reach its
/// threshold: low bytes are at most 64 in magnitude, codes at most L from the
/// centre, and high bytes count 128. `limit` is the threshold that no score
/// reaches.
SmallVector<Value> KernelEmitter::screenThresholds(ArrayRef<Value> exact,
                                                   int64_t limit) {
  int64_t channels = 32 * plan.groups, twiceL = plan.spec.getTwiceL();
  int64_t slack = 64 * twiceL * channels;
  assert((limit - slack) / 128 > 127 * twiceL * channels &&
         "no high bytes may reach the threshold that no score reaches");
  // From head 4 i + tq to heads 2 tq and 2 tq + 1 of the tile of eight.
  Value quad = b.band(lane, ~int64_t(3));
  SmallVector<Value> result;
  for (int64_t t = 0; t < plan.headTiles; ++t) {
    SmallVector<Value> pair;
    for (int64_t c : {0, 1}) {
      Value from = b.add(quad, b.band(b.add(b.shl(tq, 1), c), 3));
      Value x = shuffle(exact[2 * t], from);
      Value upper = 2 * t + 1 < plan.scanTiles ? shuffle(exact[2 * t + 1], from)
                                               : b.c32(limit);
      x = b.select(b.lt(tq, 2), x, upper);
      pair.push_back(b.sar(b.add(x, -slack), 7));
    }
    result.push_back(b.pack(pair));
  }
  return result;
}

/// A bit per tile: whether it may be kept.
Value KernelEmitter::emitScreen(Value stageAddress,
                                const ThresholdValue &threshold) {
  Value scales = halfScales(loadBlockScales(stageAddress));
  SmallVector<Value> tiles, starts;
  for (int64_t t = 0; t < plan.headTiles; ++t) {
    // The query tile of four stands for two columns per head: lanes of odd g
    // read the second one, which keeps them off the banks of their neighbours.
    Value head = b.smin(b.add(g, 8 * t), b.c32(4 * plan.scanTiles - 1));
    Value column = b.add(b.shl(b.band(head, 3), 1), b.band(g, 1));
    Value from = b.add(b.mul(b.shr(head, 2), plan.groups * 512),
                       b.add(b.shl(column, 6), b.shl(tq, 4)));
    Value query = loadFragment(b.at(shared(plan.scanQuery), from), 512,
                               /*constant=*/false);
    Value factor =
        b.load(b.i32(), b.at(shared(plan.factor), b.shl(head, 2)), 4);
    tiles.push_back(GPUFoldHighOp::create(b, b.words(2 * plan.groups), query,
                                          scales, factor));
    Value centre =
        GPUCentreHighOp::create(b, b.words(2), tiles.back(), plan.bits);
    SmallVector<Value> start;
    for (int64_t c : {0, 1}) {
      Value least = b.add(b.get(centre, c), b.get(threshold.screen[t], c));
      start.push_back(b.sub(b.c32(0), b.sar(b.add(least, 1), 1)));
    }
    starts.push_back(b.pack(start));
  }
  return scanBlock(stageAddress, /*selectBlock=*/16, [&](Value codes) -> Value {
    return GPUScreenTileOp::create(b, b.words(4 * plan.headTiles), codes, tiles,
                                   starts, plan.bits);
  });
}

/// The mask of a block, by way of the screen where that pays.
Value KernelEmitter::emitScreenedMask(Value stageAddress,
                                      const ThresholdValue &threshold,
                                      Value &parity) {
  Value counter = b.shr(parity, kCounterShift);
  auto screen = [&]() -> SmallVector<Value> {
    return {b.ne(emitScreen(stageAddress, threshold), 0)};
  };
  auto exact = [&]() -> SmallVector<Value> {
    // Neither the loads nor the address are those of the screen: what it read,
    // kept until here, would take all registers.
    GPUWarpBarrierOp::create(b);
    return {emitExactMask(b.opaque(stageAddress), threshold)};
  };
  auto always = [&](Value value) {
    return [=]() -> SmallVector<Value> { return {value}; };
  };
  Value screened = b.lt(counter, kScreenLimit);
  Value maybe =
      b.ifElse(screened, b.getI1Type(), screen, always(b.cbool(true))).front();
  Value mask = b.ifElse(maybe, b.i32(), exact, always(b.c32(0))).front();
  // Without the screen, what is kept says how much would pass it.
  Value passed = b.select(screened, maybe, b.ne(mask, 0));
  counter = b.select(passed, b.smin(b.add(counter, kPass), b.c32(kMostPasses)),
                     b.smax(b.add(counter, -1), b.c32(0)));
  parity = b.bor(b.band(parity, (int64_t(1) << kCounterShift) - 1),
                 b.shl(counter, kCounterShift));
  return mask;
}
