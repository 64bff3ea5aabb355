//===- PseudoMax.cpp - Pseudo-max and threshold -------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The pseudo-max over sink, newest block and tail, and what follows from it:
// the threshold and the first state of the softmax. Every team of a row does
// all of it, with its warps sharing the work.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"

using namespace mlir;
using namespace mlir::ffd;

static constexpr int64_t kNoScore = -(int64_t(1) << 30);
static constexpr int64_t kResidualBits = 8;

Value KernelEmitter::slotOf(Value page) {
  return b.add(b.mul(b.zext64(page), b.zext64(arg(KernelArg::kv_heads))),
               b.zext64(head));
}

/// A tile's code words of this lane, straight from global memory.
Value KernelEmitter::loadTileCodes(Value block, Value tile, Value condition) {
  Value first = b.mul(tile, plan.codeWords);
  SmallVector<Value> words;
  int64_t unit = plan.codeUnit();
  for (int64_t k = 0; k < plan.codeWords; k += unit) {
    Value n = b.add(first, k);
    Value offset = b.add(b.add(b.shl(b.shr(n, 2), 9), b.shl(lane, 4)),
                         b.shl(b.band(n, 3), 2));
    words.append(
        b.unpack(loadWords(unit, b.at(block, b.zext64(offset)), condition)));
  }
  return b.pack(words);
}

/// A tile's residuals, of a page's part of their plane.
Value KernelEmitter::loadTileResiduals(Value residuals, Value tile,
                                       Value condition) {
  Value first = b.at(residuals, scaled(tile, plan.layout.residualTileBytes()));
  return loadFragment(b.at(first, b.shl(lane, 4)), 512, /*constant=*/true,
                      condition);
}

/// Half of the warps take the tiles of block 0, half those of the last block.
void KernelEmitter::loadCandidatePage(Value blocks) {
  candidates.emplace();
  candidates->some = b.gt(blocks, b.c32(0));
  Value newest = b.ge(warp, b.c32(plan.warps / 2));
  Value block = b.select(newest, b.smax(b.add(blocks, -1), b.c32(0)), b.c32(0));
  Value entry = b.add(b.mul(b.zext64(sequence), arg(KernelArg::page_stride)),
                      b.zext64(block));
  candidates->page = loadWord(b.at(arg(KernelArg::page_table), b.shl(entry, 2)),
                              candidates->some);
}

/// The first of the tiles that this warp scores of its candidate block.
Value KernelEmitter::firstCandidateTile() {
  return b.mul(b.band(warp, plan.warps / 2 - 1), 16 / plan.warps);
}

Value KernelEmitter::candidateResiduals() {
  return b.at(arg(KernelArg::residuals),
              b.mul(slotOf(candidates->page), plan.layout.residualBytes()));
}

void KernelEmitter::loadCandidates() {
  int64_t perWarp = 16 / plan.warps;
  Value base =
      b.at(arg(KernelArg::thumbnails),
           b.mul(slotOf(candidates->page), plan.layout.thumbnailBytes()));
  candidates->scales =
      loadFragment(b.at(b.at(base, plan.layout.codeBytes()), b.shl(tq, 4)), 64,
                   /*constant=*/true, candidates->some);
  Value first = firstCandidateTile();
  for (int64_t i = 0; i < perWarp; ++i)
    candidates->codes.push_back(
        loadTileCodes(base, b.add(first, i), candidates->some));
  if (!plan.traits.refinedMax || !plan.residualsEarly())
    return;
  for (int64_t i = 0; i < perWarp; ++i)
    candidates->residuals.push_back(loadTileResiduals(
        candidateResiduals(), b.add(first, i), candidates->some));
}

/// The tiles of a warp lie one after the other: a lane for each line.
void KernelEmitter::prefetchResiduals() {
  int64_t tileBytes = plan.layout.residualTileBytes();
  int64_t bytes = 16 / plan.warps * tileBytes;
  Value from =
      b.at(candidateResiduals(), b.add(scaled(firstCandidateTile(), tileBytes),
                                       b.zext64(b.shl(lane, 7))));
  for (int64_t line = 0; line < bytes; line += 32 * 128) {
    Value wanted = candidates->some;
    if (int64_t rest = (bytes - line) / 128; rest < 32)
      wanted = b.band(wanted, b.lt(lane, rest));
    b.ifThen(wanted, [&] { GPUPrefetchOp::create(b, b.at(from, line)); });
  }
}

Value KernelEmitter::halfScales(Value scales) {
  if (plan.element.isF16())
    return scales;
  return GPUScaleFragmentOp::create(b, scales.getType(), scales,
                                    b.load(b.f32(), shared(plan.shift), 4));
}

KernelEmitter::Folded KernelEmitter::foldScales(Value scales) {
  Folded folded;
  scales = halfScales(scales);
  for (int64_t i = 0; i < plan.scanTiles; ++i) {
    Value query = loadFragment(
        b.at(shared(plan.scanQuery + i * plan.groups * 512), b.shl(lane, 4)),
        512, /*constant=*/false);
    Value factor = b.load(
        b.i32(), b.at(shared(plan.factor + 16 * i), b.shl(b.shr(g, 1), 2)), 4);
    folded.tiles.push_back(
        GPUFoldOp::create(b, b.words(2 * plan.groups), query, scales, factor));
    folded.centres.push_back(
        GPUCentreOp::create(b, b.i32(), folded.tiles.back(), plan.bits));
  }
  return folded;
}

void KernelEmitter::scoreCandidateTile(const Folded &folded, Value codes,
                                       Value residuals,
                                       SmallVector<Value> &best) {
  SmallVector<Value> zeros(plan.scanTiles, b.c32(0));
  Type type = b.words(2 * plan.scanTiles);
  Value sums = GPUScanTileOp::create(b, type, codes, folded.tiles, zeros,
                                     plan.bits),
        rests;
  // Residuals lie as codes of eight bits would.
  if (residuals)
    rests = GPUScanTileOp::create(b, type, residuals, folded.tiles, zeros,
                                  kResidualBits);
  // 255 sum Q, from (2^b - 1) sum Q.
  int64_t wider = ((int64_t(1) << kResidualBits) - 1) / plan.spec.getTwiceL();
  for (int64_t i = 0; i < plan.scanTiles; ++i) {
    SmallVector<Value> scores;
    for (int64_t half : {0, 1}) {
      Value sum = b.get(sums, 2 * i + half);
      if (half == 1 && plan.bits < 8)
        sum = b.sar(sum, plan.bits);
      if (!residuals) {
        scores.push_back(sum);
        continue;
      }
      // r_int, and what of it is whole units (select_c5).
      Value rest = b.sub(b.shl(b.get(rests, 2 * i + half), 1),
                         b.mul(folded.centres[i], wider));
      scores.push_back(b.add(b.shl(sum, 1), b.sar(rest, kResidualBits)));
    }
    Value most = b.smax(scores[0], scores[1]);
    if (i < static_cast<int64_t>(best.size()))
      best[i] = b.smax(best[i], most);
    else
      best.push_back(most);
  }
}

LogicalResult KernelEmitter::emitCandidates(TileDistributeOp loop) {
  SmallVector<StringRef> allowed = {"load_thumbnail", "scan"};
  bool refined = plan.traits.refinedMax;
  if (refined)
    allowed.append({"full", "load_body"});
  if (failed(checkBody(loop, allowed)))
    return failure();
  for (TileScanOp scan : loop.getBody()->getOps<TileScanOp>())
    if (refined && !scan.getBody())
      return scan.emitOpError("takes no residuals, expected them of all "
                              "candidates: another scan takes some");
  if (!candidates)
    loadCandidatePage(counts.lookup(loop.getOver().front()));
  if (!candidates->scales)
    loadCandidates();
  RowMaxValue value;
  value.tiles = b.ifElse(
      candidates->some, SmallVector<Type>(plan.scanTiles, b.i32()),
      [&] {
        SmallVector<Value> residuals = candidates->residuals;
        for (size_t i = 0; refined && i < candidates->codes.size(); ++i)
          if (residuals.size() == i)
            residuals.push_back(loadTileResiduals(
                candidateResiduals(), b.add(firstCandidateTile(), i)));
        Folded folded = foldScales(candidates->scales);
        SmallVector<Value> best;
        for (auto [i, codes] : llvm::enumerate(candidates->codes))
          scoreCandidateTile(folded, codes, refined ? residuals[i] : Value(),
                             best);
        // a_int = 2 S - 2 L sum Q.
        for (int64_t i = 0; i < plan.scanTiles; ++i) {
          Value most = reduceRows(Reduction::max, best[i]);
          best[i] = b.sub(refined ? most : b.shl(most, 1), folded.centres[i]);
        }
        return best;
      },
      [&] { return SmallVector<Value>(plan.scanTiles, b.c32(kNoScore)); });
  rowMaxima[loop.getResult()] = value;
  return success();
}

/// Eight lanes share the score of one head and token. A warp takes the heads of
/// a query tile at once, so that a lane keeps the query of one head, and as
/// many tokens as there are lanes for. Warps that prepare the query take none,
/// unless they are most of them.
KernelEmitter::TailDeal KernelEmitter::dealTail() {
  TailDeal deal;
  deal.heads = std::min<int64_t>(4, llvm::PowerOf2Ceil(plan.group));
  deal.tokens = 4 / deal.heads;
  int64_t quantise = plan.traits.scans ? plan.scanTiles : 0;
  int64_t scale = plan.traits.refines ? plan.headTiles : 0;
  if (2 * (quantise + scale) > plan.warps)
    quantise = scale = 0;
  deal.stride = (plan.warps - quantise - scale) * deal.tokens;
  deal.steps = plan.tailTokens() / deal.tokens;
  Value part = b.shr(lane, 3);
  deal.head = b.band(part, deal.heads - 1);
  deal.token = b.shr(part, llvm::Log2_64(deal.heads));
  Value busy =
      b.bor(b.lt(warp, b.c32(quantise)), b.ge(warp, b.c32(plan.warps - scale)));
  deal.warpFirst = b.select(busy, b.c32(1 << 30),
                            b.mul(b.add(warp, -quantise), deal.tokens));
  return deal;
}

/// Starts the copies of the keys of the steps from token `first` on, one row
/// after the other, to the place of this warp.
void KernelEmitter::copyTailKeys(const TailDeal &deal, Value first,
                                 Value tail) {
  int64_t rowBytes = 2 * plan.layout.headDim, chunks = rowBytes / 16;
  int64_t all = deal.steps * deal.tokens * chunks;
  Value rows = tailRow(KernelArg::tail_k, plan.layout.headDim, b.c32(0));
  Value to = b.at(ringBase, plan.parkOffset());
  for (int64_t i = 0; i < all; i += 32) {
    Value chunk = b.add(lane, i);
    Value keyRow = b.udiv(chunk, b.c32(chunks));
    Value inRow = b.sub(chunk, b.mul(keyRow, chunks));
    Value step = b.shr(keyRow, llvm::Log2_64(deal.tokens));
    Value token = b.add(b.add(first, b.mul(step, deal.stride)),
                        b.band(keyRow, deal.tokens - 1));
    Value valid = b.lt(token, tail);
    if (i + 32 > all)
      valid = b.band(valid, b.lt(chunk, all));
    Value from =
        b.at(rows, b.add(scaled(token, rowBytes), b.zext64(b.shl(inRow, 4))));
    GPUCopyIfOp::create(b, valid, from, b.at(to, b.shl(chunk, 4)));
  }
}

/// The words of a head's query that belong to this lane, of eight per head.
Value KernelEmitter::loadTailQuery(Value headInGroup, Value condition) {
  Value offset = queryOffset(b.smin(headInGroup, b.c32(plan.group - 1)));
  Value address = b.at(b.at(arg(KernelArg::q), b.shl(offset, 1)),
                       b.shl(b.band(lane, 7), 2));
  SmallVector<Value> words;
  for (int64_t n = 0; n < plan.layout.headDim / 16; ++n)
    words.push_back(loadWord(b.at(address, 32 * n), condition));
  return b.pack(words);
}

void KernelEmitter::startTail(Value tail) {
  TailDeal deal = dealTail();
  copyTailKeys(deal, deal.warpFirst, tail);
  tailQuery = loadTailQuery(deal.head, b.lt(deal.warpFirst, tail));
}

/// Tail scores need the exact query only, so most warps score while others
/// prepare it.
LogicalResult KernelEmitter::scoreTail(TileDistributeOp loop) {
  if (failed(checkBody(loop, {"load_tail", "dot", "to_units"})))
    return failure();
  for (Operation &op : *loop.getBody())
    if (auto dot = dyn_cast<TileDotOp>(op); dot && !dot.getOrdered())
      return dot.emitOpError(
          "is not ordered, expected the order of tail_c1 for "
          "the pseudo-max");
  Value tail = counts.lookup(loop.getOver().front());
  if (!tailQuery)
    startTail(tail);
  TailDeal deal = dealTail();
  int64_t rowBytes = 2 * plan.layout.headDim;
  Value keys =
      b.at(b.at(ringBase, plan.parkOffset()), b.shl(b.band(lane, 7), 2));
  SmallVector<Value> carried(plan.scanTiles, b.infinity(/*negative=*/true));
  carried.push_back(b.cbool(false));
  carried = b.loop(
      deal.warpFirst, tail, b.c32(deal.tokensAtOnce()), carried,
      [&](Value first, ValueRange sofar) {
        GPUCopyWaitOp::create(b);
        SmallVector<Value> scores(sofar);
        Value rest = b.ceilDiv(b.sub(tail, first), b.c32(deal.stride));
        Value steps = b.smin(rest, b.c32(deal.steps));
        for (int64_t i = 0; i < plan.scanTiles; ++i) {
          Value h = b.add(deal.head, 4 * i);
          Value query = i ? loadTailQuery(h, b.cbool(true)) : tailQuery;
          Value seenTokens = seenBy(b.smin(h, b.c32(plan.group - 1)), tail);
          // Two steps at a time: their sums wait for each other less.
          SmallVector<Value> both = b.loop(
              b.c32(0), steps, b.c32(2), {scores[i], scores.back()},
              [&](Value step, ValueRange sofar) -> SmallVector<Value> {
                Value most = sofar[0], bad = sofar[1];
                for (int64_t k : {0, 1}) {
                  Value at = b.add(step, k);
                  Value token =
                      b.add(b.add(first, b.mul(at, deal.stride)), deal.token);
                  Value keyRow = b.add(b.mul(at, deal.tokens), deal.token);
                  // What was not copied is not read.
                  keyRow = b.select(b.lt(token, tail), keyRow, b.c32(0));
                  Value from = b.at(keys, b.mul(keyRow, rowBytes));
                  SmallVector<Value> words;
                  for (int64_t n = 0; n < plan.layout.headDim / 16; ++n)
                    words.push_back(b.load(b.i32(), b.at(from, 32 * n), 4));
                  Value f =
                      GPUOrderedDotOp::create(b, b.f32(), b.pack(words), query,
                                              TypeAttr::get(plan.element));
                  f = b.fmul(arg(KernelArg::sm_scale), f);
                  Value seen = b.lt(token, seenTokens);
                  Value wrong = b.bxor(b.isFinite(f), b.cbool(true));
                  bad = b.bor(bad, b.band(seen, wrong));
                  most = b.select(seen, b.fmax(most, f), most);
                }
                return {most, bad};
              });
          scores[i] = both[0];
          scores.back() = both[1];
        }
        // All lanes have read the keys.
        GPUWarpBarrierOp::create(b);
        copyTailKeys(deal, b.add(first, deal.tokensAtOnce()), tail);
        return scores;
      });
  tailScores[loop] = carried;
  return success();
}

/// The maximum is taken before the conversion to scan units: both orders agree,
/// since the conversion is monotone.
LogicalResult KernelEmitter::emitTailMax(TileDistributeOp loop) {
  if (!tailScores.count(loop) && failed(scoreTail(loop)))
    return failure();
  SmallVector<Value> carried = tailScores.lookup(loop);
  RowMaxValue value;
  value.bad = any(carried.back());
  if (loop.getInit()) {
    RowMaxValue &init = rowMaxima[loop.getInit()];
    value.tiles = init.tiles;
    if (init.bad)
      value.bad = b.bor(value.bad, init.bad);
  } else {
    value.tiles.assign(plan.scanTiles, b.c32(kNoScore));
  }
  // From the lanes of a head, which hold the maxima of some tokens each, to
  // those with its tq.
  TailDeal deal = dealTail();
  for (int64_t i = 0; i < plan.scanTiles; ++i) {
    Value most = carried[i];
    for (int64_t other = 8 * deal.heads; other < 32; other *= 2)
      most = b.fmax(most, shuffle(most, b.bxor(lane, b.c32(other))));
    most = shuffle(most, b.shl(b.smin(tq, b.c32(deal.heads - 1)), 3));
    Value unit =
        b.load(b.f32(), b.at(shared(plan.unit + 16 * i), b.shl(tq, 2)), 4);
    Value x = b.floor(b.fdiv(most, unit));
    x = b.fmin(b.fmax(x, b.cf(-0x1p30f)), b.cf(0x1p30f));
    value.tiles[i] = b.smax(value.tiles[i], b.toInt(x));
  }
  rowMaxima[loop.getResult()] = value;
  return success();
}

/// Exchanges the warps' parts of a row maximum. Afterwards all lanes have the
/// team's.
void KernelEmitter::completeRowMax(RowMaxValue &value) {
  if (value.complete)
    return;
  value.complete = true;
  if (!value.bad)
    value.bad = b.cbool(false);
  int64_t rowBytes = plan.paddedGroup() * 4;
  b.ifThen(b.eq(g, 0), [&] {
    Value base = b.at(sharedAt(plan.rowMax, warp, rowBytes), b.shl(tq, 2));
    for (auto [i, tile] : llvm::enumerate(value.tiles))
      b.store(tile, b.at(base, 16 * i), 4);
  });
  b.ifThen(b.eq(lane, 0), [&] {
    b.store(b.zext32(value.bad), sharedAt(plan.tailBad, warp, 4), 4);
  });
  teamBarrier();
  for (auto [i, tile] : llvm::enumerate(value.tiles))
    for (int64_t w = 0; w < plan.warps; ++w) {
      Value other = b.load(
          b.i32(),
          b.at(shared(plan.rowMax + w * rowBytes + 16 * i), b.shl(tq, 2)), 4);
      tile = w ? b.smax(tile, other) : other;
    }
  Value bad = b.load(
      b.i32(), sharedAt(plan.tailBad, b.band(lane, plan.warps - 1), 4), 4);
  value.bad = any(b.ne(bad, 0));
}

//===----------------------------------------------------------------------===//
// Threshold and state
//===----------------------------------------------------------------------===//

LogicalResult KernelEmitter::emitThreshold(TileThresholdOp op) {
  RowMaxValue &pm = rowMaxima[op.getRowMax()];
  completeRowMax(pm);
  Value delta = b.load(b.f32(), shared(plan.coordinates + 28), 4);
  // Conditions of the whole row (select_c3).
  Value headIndex = b.smin(lane, b.c32(plan.group - 1));
  Value badHead = b.ne(b.load(b.i32(), sharedAt(plan.bad, headIndex, 4), 4), 0);
  Value all = b.bor(any(badHead), pm.bad);
  all = b.bor(all, b.bxor(b.fcmp(arith::CmpFPredicate::OGE, delta, b.cf(0)),
                          b.cbool(true)));
  // Beyond what scores can reach, a threshold need not go: so the scan's sums
  // cannot overflow, whatever factor they carry.
  int64_t bound = 16512 * plan.spec.getTwiceL() * 32 * plan.groups + 1;
  Value everything = b.c32(-bound);
  int64_t limit = std::min(bound, int64_t(1) << 30);
  ThresholdValue threshold;
  for (int64_t i = 0; i < plan.scanTiles; ++i) {
    Value unit =
        b.load(b.f32(), b.at(shared(plan.unit + 16 * i), b.shl(tq, 2)), 4);
    Value quotient = b.fdiv(delta, unit);
    Value sane = b.band(b.isFinite(unit), b.fcmp(arith::CmpFPredicate::OLT,
                                                 quotient, b.cf(0x1p30f)));
    // What is not sane must not reach the conversion to an integer.
    Value d = b.toInt(b.ceil(b.select(sane, quotient, b.cf(0))));
    Value x = b.sub(pm.tiles[i], d);
    // The lowest threshold there is means everything, as in the other cases.
    Value none = b.cmp(arith::CmpIPredicate::sle, x, b.c32(kNoScore));
    x = b.smin(b.smax(x, b.c32(-limit)), b.c32(limit));
    Value keepAll = b.bor(b.bor(all, none), b.bxor(sane, b.cbool(true)));
    x = b.select(keepAll, everything, x);
    // Columns without a head keep nothing.
    Value exists = b.lt(b.add(tq, 4 * i), plan.group);
    threshold.exact.push_back(b.select(exists, x, b.c32(limit)));
  }
  if (plan.screens())
    threshold.screen = screenThresholds(threshold.exact, limit);
  if (plan.traits.certified())
    startSkipped(threshold.exact);
  thresholds[op.getResult()] = threshold;
  return success();
}

LogicalResult KernelEmitter::emitInit(TileInitOp op) {
  StateValue state;
  for (int64_t t = 0; t < plan.headTiles; ++t) {
    state.reference.push_back(
        b.pack({b.cf(kNoReference), b.cf(kNoReference)}));
    state.sum.push_back(b.zeros(b.floats(2)));
    state.output.push_back(b.zeros(b.floats(4 * plan.valueTiles)));
  }
  states[op.getResult()] = state;
  return success();
}
