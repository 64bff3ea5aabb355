//===- Certificate.cpp - The mass that is skipped ---- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cert_c1 to cert_c4. While a block is scanned, every lane adds up exp2 of its
// scores relative to their thresholds, whose difference the sums of the scan
// are anyway; which of these are of skipped tiles is known after the block. The
// warps' sums, then those of the pieces, are added in ascending order.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"

using namespace mlir;
using namespace mlir::ffd;

static constexpr float kLn2 = 0.693147180559945309417f;
static constexpr float kLog2e = 1.44269504088896340736f;
/// What every skipped token adds, so that none is lost (cert_c3).
static constexpr float kLeast = 0x1p-126f;
/// Tokens of a tile that a lane scores.
static constexpr int64_t kTokensOfLane = 2;
/// Pieces whose sums are loaded together.
static constexpr int64_t kPiecesAtOnce = 8;

Value KernelEmitter::emitCertifiedMask(Value stageAddress,
                                       const ThresholdValue &threshold,
                                       Value ends, SmallVector<Value> &sums) {
  Folded folded = foldScales(loadBlockScales(stageAddress));
  // The sums S of the scan start at minus half of 2 L sum Q + thr, rounded up
  // (emitExactMask): a_int - thr is 2 S, and 1 more where it was rounded. Those
  // of tokens g + 8 come times 2^b.
  SmallVector<Value> starts, wasRounded, units, factors[2];
  for (int64_t i = 0; i < plan.scanTiles; ++i) {
    Value least = b.add(folded.centres[i], threshold.exact[i]);
    starts.push_back(b.sub(b.c32(0), b.sar(b.add(least, 1), 1)));
    wasRounded.push_back(b.ne(b.band(least, 1), 0));
    units.push_back(b.fmul(
        b.load(b.f32(), b.at(shared(plan.unit + 16 * i), b.shl(tq, 2)), 4),
        b.cf(kLog2e)));
    int64_t odd = plan.bits < 8 ? int64_t(1) << plan.bits : 1;
    factors[0].push_back(b.fmul(units[i], b.cf(2)));
    factors[1].push_back(b.fmul(units[i], b.cf(2.0f / float(odd))));
  }
  int64_t selects = plan.layout.selectsPerBlock();
  int64_t tiles = plan.tilesPerBlock() / selects;
  SmallVector<Value> mass(plan.scanTiles, b.cf(0));
  // Unless they are kept, adds the masses of some tokens, which may be infinite
  // if they are.
  auto addUnless = [&](Value kept, MutableArrayRef<Value> to,
                       ArrayRef<Value> masses) {
    for (int64_t i = 0; i < plan.scanTiles; ++i)
      to[i] = b.select(kept, to[i], b.fadd(to[i], masses[i]));
  };
  // With one query tile the parts of all selection blocks wait for the mask;
  // more would fill the registers, so that votes decide about each at once.
  // One per tile: without, the assembler lets many tiles' scores wait.
  const bool votes = plan.scanTiles > 1;
  SmallVector<SmallVector<Value>> parts(
      selects, SmallVector<Value>(plan.scanTiles, b.cf(0)));
  Value kept; // of the selection block, so far
  int64_t tile = plan.tilesPerBlock();
  Value mask = scanBlock(
      stageAddress, plan.layout.selectBlock, [&](Value codes) -> Value {
        --tile; // from the last to the first
        Value scores =
            GPUScanTileOp::create(b, b.words(2 * plan.scanTiles), codes,
                                  folded.tiles, starts, plan.bits);
        SmallVector<Value> masses;
        Value all; // negative if every score is
        for (int64_t i = 0; i < plan.scanTiles; ++i) {
          Value both[2];
          for (int64_t half : {0, 1}) {
            Value score = b.get(scores, 2 * i + half);
            both[half] = exp2(b.fmul(b.toFloat(score), factors[half][i]));
            all = all ? b.band(all, score) : score;
          }
          masses.push_back(b.fadd(both[0], both[1]));
        }
        const bool ofSelect = tile % tiles == 0; // the last one seen of it
        SmallVector<Value> &part = parts[tile / tiles];
        if (!votes) {
          for (int64_t i = 0; i < plan.scanTiles; ++i)
            part[i] = tile % tiles == tiles - 1 ? masses[i]
                                                : b.fadd(part[i], masses[i]);
          return scores;
        }
        Value here = any(b.ge(all, b.c32(0)));
        if (ends)
          here = b.bor(here, b.ne(b.band(ends, int64_t(1) << tile), 0));
        kept = kept ? b.bor(kept, here) : here;
        if (tiles == 1) {
          addUnless(kept, mass, masses);
        } else {
          addUnless(kept, part, masses);
          if (ofSelect)
            addUnless(kept, mass, part);
        }
        if (ofSelect)
          kept = {};
        return scores;
      });
  if (ends)
    mask = b.bor(mask, ends);
  for (int64_t j = 0; j < selects && !votes; ++j)
    addUnless(b.ne(b.band(mask, int64_t(1) << (j * tiles)), 0), mass, parts[j]);
  Value skipped = b.sub(b.c32(plan.tilesPerBlock()),
                        LLVM::CtPopOp::create(b, b.i32(), mask));
  Value least = b.fmul(b.toFloat(skipped), b.cf(kTokensOfLane * kLeast));
  for (int64_t i = 0; i < plan.scanTiles; ++i) {
    // What all tokens of the block have in common, in units of log2.
    Value common = b.select(wasRounded[i], units[i], b.cf(0));
    if (plan.traits.certificate == Certificate::noise) {
      Value squares = GPUSquareSumOp::create(b, b.f32(), folded.tiles[i]);
      Value sixth = b.fmul(b.fmul(units[i], units[i]), b.cf(-kLn2 / 6));
      common = b.fma(sixth, squares, common); // cert_c2
    }
    // The factor is finite, so that it leaves a mass of zero alone; of a block
    // that is kept it may be anything.
    common = b.fmin(common, b.cf(126));
    Value sum = b.fma(exp2(common), mass[i], b.fadd(sums[i], least));
    sums[i] = b.select(b.eq(skipped, 0), sums[i], sum);
  }
  return mask;
}

/// Clears the sums of this warp, and keeps the logarithm of what they are
/// relative to, in natural units.
void KernelEmitter::startSkipped(ArrayRef<Value> exact) {
  int64_t rowBytes = plan.paddedGroup() * 4;
  b.ifThen(b.lt(thread, 4), [&] {
    for (auto [i, threshold] : llvm::enumerate(exact)) {
      Value unit =
          b.load(b.f32(), b.at(shared(plan.unit + 16 * i), b.shl(tq, 2)), 4);
      b.store(b.fmul(unit, b.toFloat(threshold)),
              b.at(shared(plan.skippedReference + 16 * i), b.shl(tq, 2)), 4);
    }
  });
  b.ifThen(b.eq(g, 0), [&] {
    for (int64_t i = 0; i < plan.scanTiles; ++i)
      b.store(b.cf(0),
              b.at(sharedAt(plan.skippedSums + 16 * i, warp, rowBytes),
                   b.shl(tq, 2)),
              4);
  });
}

/// Adds what this warp skipped in a round. Sums wait in shared memory: the
/// refinement needs the registers.
void KernelEmitter::addSkipped(ArrayRef<Value> sums) {
  int64_t rowBytes = plan.paddedGroup() * 4;
  for (auto [i, sum] : llvm::enumerate(sums)) {
    Value total = reduceRows(Reduction::add, sum);
    b.ifThen(b.eq(g, 0), [&] {
      Value at = b.at(sharedAt(plan.skippedSums + 16 * i, warp, rowBytes),
                      b.shl(tq, 2));
      b.store(b.fadd(b.load(b.f32(), at, 4), total), at, 4);
    });
  }
}

/// A thread per head.
void KernelEmitter::mergeSkippedWarps() {
  b.ifThen(b.lt(thread, plan.group), [&] {
    Value sum = b.cf(0);
    for (int64_t w = 0; w < plan.warps; ++w)
      sum = b.fadd(
          sum, b.load(b.f32(),
                      sharedAt(plan.skippedSums + w * plan.paddedGroup() * 4,
                               thread, 4),
                      4));
    auto whole = scf::IfOp::create(b, b.eq(splits, 1), true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(whole.thenYield());
    writeSkipped(thread, sum);
    b.setInsertionPoint(whole.elseYield());
    b.store(sum,
            b.at(partialAddress(split, thread),
                 4 * (plan.layout.paddedValueDim() + 2)),
            4);
  });
}

/// A thread per head, from the last one down: the first ones have more to do.
void KernelEmitter::mergeSkippedPieces() {
  Value h = b.sub(b.c32(plan.threads() - 1), thread);
  b.ifThen(b.lt(h, plan.group), [&] {
    SmallVector<Value> sum = b.loop(
        b.c32(0), splits, b.c32(kPiecesAtOnce), {b.cf(0)},
        [&](Value piece0, ValueRange sofar) -> SmallVector<Value> {
          Value total = sofar[0];
          Value from = b.at(partialAddress(piece0, h),
                            4 * (plan.layout.paddedValueDim() + 2));
          int64_t stride = plan.group * 4 * plan.layout.partialFloats();
          SmallVector<Value> parts;
          for (int64_t p = 0; p < kPiecesAtOnce; ++p)
            parts.push_back(b.get(loadPartial(1, b.at(from, p * stride),
                                              b.lt(b.add(piece0, p), splits)),
                                  0));
          for (Value part : parts) // of pieces that are not there, 0
            total = b.fadd(total, part);
          return {total};
        });
    writeSkipped(h, sum.front());
  });
}

void KernelEmitter::writeSkipped(Value h, Value sum) {
  Value to = arg(KernelArg::skipped_lse);
  b.ifThen(b.ne(LLVM::PtrToIntOp::create(b, b.i64(), to), 0), [&] {
    Value reference = b.load(b.f32(), sharedAt(plan.skippedReference, h, 4), 4);
    Value log = b.fmul(GPULog2Op::create(b, b.f32(), sum), b.cf(kLn2));
    Value result = b.fadd(reference, log);
    if (centred)
      result = b.fadd(result, centreScore(h));
    Value none = b.fcmp(arith::CmpFPredicate::OEQ, sum, b.cf(0));
    result = b.select(none, b.infinity(/*negative=*/true), result);
    b.store(result, b.at(to, b.shl(outputIndex(h), 2)), 4);
  });
}
