//===- Prologue.cpp - Before the scan ---------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a row needs before its blocks are scanned: extent, quantised query, the
// pseudo-max over sink, newest block and tail, the threshold. All of it is done
// by every team of the row, with its warps sharing the work.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"

using namespace mlir;
using namespace mlir::ffd;

static constexpr int64_t kNoScore = -(int64_t(1) << 30);
static constexpr float kLog2e = 1.44269504088896340736f;

LogicalResult KernelEmitter::emitExtent(TileExtentOp op) {
  counts[op.getBlocks()] = committed;
  counts[op.getTail()] =
      b.sub(length, b.mul(committed, plan.layout.quantBlock));
  return success();
}

LogicalResult KernelEmitter::emitExactExtent(TileExactExtentOp op) {
  counts[op.getTail()] = length;
  return success();
}

//===----------------------------------------------------------------------===//
// Query
//===----------------------------------------------------------------------===//

Value KernelEmitter::queryToken(Value headInGroup) {
  if (plan.tokens() == 1)
    return {};
  return b.smin(b.udiv(headInGroup, b.c32(plan.tokenHeads())),
                b.c32(plan.tokens() - 1));
}

Value KernelEmitter::seenBy(Value headInGroup, Value tokens) {
  Value token = queryToken(headInGroup);
  return token ? b.add(b.add(tokens, token), 1 - plan.tokens()) : tokens;
}

/// Elements from the first query to that of a head of the row.
Value KernelEmitter::queryOffset(Value headInGroup) {
  Value token = queryToken(headInGroup);
  Value inToken = headInGroup;
  if (token)
    inToken = b.sub(headInGroup, b.mul(token, plan.tokenHeads()));
  Value heads = b.add(b.mul(head, plan.tokenHeads()), inToken);
  Value offset = b.add(b.mul(b.zext64(place), arg(KernelArg::q_batch_stride)),
                       b.mul(b.zext64(heads), arg(KernelArg::q_head_stride)));
  if (token)
    offset =
        b.add(offset, b.mul(b.zext64(token), arg(KernelArg::q_token_stride)));
  return offset;
}

/// The fragment of a head of the group, zero beyond the head dim.
Value KernelEmitter::loadQuery(Value headInGroup) {
  Value offset = queryOffset(headInGroup);
  Value base = b.at(b.at(arg(KernelArg::q), b.shl(offset, 1)), b.shl(tq, 3));
  SmallVector<Value> words;
  for (int64_t channel = 0; channel < 32 * plan.groups; channel += 16) {
    if (channel >= plan.layout.headDim) {
      words.append(2, b.c32(0));
      continue;
    }
    Value pair = b.loadConstant(b.words(2), b.at(base, 2 * channel), 8);
    words.append({b.get(pair, 0), b.get(pair, 1)});
  }
  return b.pack(words);
}

Value KernelEmitter::loadFragment(Value address, int64_t groupStride,
                                  bool constant) {
  SmallVector<Value> words;
  for (int64_t j = 0; j < plan.groups; ++j) {
    Value from = b.at(address, j * groupStride);
    Value four = constant ? b.loadConstant(b.words(4), from, 16)
                          : b.load(b.words(4), from, 16);
    words.append(b.unpack(four));
  }
  return b.pack(words);
}

static void storeFragment(GPUBuilder &b, Value fragment, Value address) {
  SmallVector<Value> words = b.unpack(fragment);
  for (size_t j = 0; j < words.size(); j += 4)
    b.store(b.pack(ArrayRef<Value>(words).slice(j, 4)),
            b.at(address, j / 4 * 512), 16);
}

Value KernelEmitter::loadSmax() {
  return loadFragment(
      b.at(b.at(arg(KernelArg::smax), scaled(row, plan.layout.scaleBytes())),
           b.shl(tq, 4)),
      64, /*constant=*/true);
}

/// Query and smax need no length: their loads go before those that wait for it.
void KernelEmitter::loadEarlyQuery() {
  if (!plan.queryEarly())
    return;
  Value last = b.c32(plan.warps - 1);
  Value scans = b.lt(warp, plan.scanTiles);
  Value refines = b.ge(warp, b.c32(plan.warps - plan.headTiles));
  auto fragment = b.words(4 * plan.groups);
  SmallVector<Value> loaded = b.ifElse(
      b.bor(scans, refines), {fragment, fragment},
      [&]() -> SmallVector<Value> {
        Value h = b.select(scans, b.add(b.shl(warp, 2), b.shr(g, 1)),
                           b.add(b.shl(b.sub(last, warp), 3), g));
        return {loadQuery(b.smin(h, b.c32(plan.group - 1))), loadSmax()};
      },
      [&]() -> SmallVector<Value> {
        return {b.zeros(fragment), b.zeros(fragment)};
      });
  earlyQuery = EarlyQuery{loaded[0], loaded[1]};
}

/// Warp i quantises query tile i for the scan.
void KernelEmitter::emitScanQuery() {
  b.ifThen(b.lt(warp, plan.scanTiles), [&] {
    Value h = b.add(b.shl(warp, 2), b.shr(g, 1));
    Value query = earlyQuery ? earlyQuery->query
                             : loadQuery(b.smin(h, b.c32(plan.group - 1)));
    Value smax = earlyQuery ? earlyQuery->smax : loadSmax();
    auto q = GPUQuantizeQueryOp::create(
        b, query.getType(), b.i32(), b.f32(), b.i1(), b.f32(), query, smax,
        arg(KernelArg::sm_scale), TypeAttr::get(plan.element));
    Value exists = b.lt(h, plan.group);
    Value qh = b.select(exists, q.getQh(),
                        b.zeros(cast<VectorType>(q.getQh().getType())));
    storeFragment(b, qh,
                  b.at(sharedAt(plan.scanQuery, warp, plan.groups * 512),
                       b.shl(lane, 4)));
    b.ifThen(b.eq(b.band(lane, 7), 0), [&] {
      Value badHead = b.band(exists, q.getBad());
      b.store(q.getFactor(), sharedAt(plan.factor, h, 4), 4);
      b.store(q.getUnit(), sharedAt(plan.unit, h, 4), 4);
      b.store(b.zext32(badHead), sharedAt(plan.bad, h, 4), 4);
    });
    if (plan.element.isBF16())
      b.ifThen(b.eq(thread, 0),
               [&] { b.store(q.getShift(), shared(plan.shift), 4); });
  });
}

/// The last warps scale query tiles for the refinement.
void KernelEmitter::emitRefineQuery() {
  b.ifThen(b.ge(warp, b.c32(plan.warps - plan.headTiles)), [&] {
    Value tile = b.sub(b.c32(plan.warps - 1), warp);
    Value h = b.add(b.shl(tile, 3), g);
    Value query = earlyQuery ? earlyQuery->query
                             : loadQuery(b.smin(h, b.c32(plan.group - 1)));
    Value smax = earlyQuery ? earlyQuery->smax : loadSmax();
    auto q = GPUScaleQueryOp::create(b, query.getType(), b.f32(), query, smax,
                                     TypeAttr::get(plan.element));
    Value qs = b.select(b.lt(h, plan.group), q.getScaled(),
                        b.zeros(cast<VectorType>(query.getType())));
    storeFragment(b, qs,
                  b.at(sharedAt(plan.refineQuery, tile, plan.groups * 512),
                       b.shl(lane, 4)));
    b.ifThen(b.eq(tq, 0),
             [&] { b.store(q.getInverse(), sharedAt(plan.inverse, h, 4), 4); });
  });
}

LogicalResult KernelEmitter::emitQuery(TileQueryOp op) {
  // The loads that everything waits for go first, then the rings.
  if (plan.traits.scans && plan.traits.refines)
    loadEarlyQuery();
  TileDistributeOp shareLoop;
  for (Operation &other : *teams.getBody())
    if (auto loop = dyn_cast<TileDistributeOp>(other)) {
      if (loop.getDomain() == Domain::candidates && plan.candidatesEarly())
        if (Value blocks = counts.lookup(loop.getOver().front()))
          loadCandidates(blocks);
      if (loop.getDomain() == Domain::share &&
          counts.count(loop.getOver().front()))
        shareLoop = loop;
    }
  if (plan.scanRing() || plan.traits.refines)
    GPURingInitOp::create(b, plan.copies, warpBarriers, plan.barriersPerWarp());
  if (shareLoop)
    startShare(shareLoop);
  if (plan.sharesCoordinates())
    storeCoordinates();
  if (plan.traits.scans)
    emitScanQuery();
  if (plan.traits.refines)
    emitRefineQuery();
  prefetchTail();
  for (Operation &other : *teams.getBody())
    if (auto loop = dyn_cast<TileDistributeOp>(other))
      if (loop.getDomain() == Domain::tail &&
          counts.count(loop.getOver().front()) && failed(scoreTail(loop)))
        return failure();
  if (plan.traits.scans || plan.traits.refines)
    teamBarrier();
  return success();
}

//===----------------------------------------------------------------------===//
// Pseudo-max
//===----------------------------------------------------------------------===//

Value KernelEmitter::slotOf(Value page) {
  return b.add(b.mul(b.zext64(page), b.zext64(arg(KernelArg::kv_heads))),
               b.zext64(head));
}

/// A tile's code words of this lane, straight from global memory.
Value KernelEmitter::loadTileCodes(Value block, Value tile) {
  Value first = b.mul(tile, plan.codeWords);
  SmallVector<Value> words;
  int64_t unit = plan.codeUnit();
  for (int64_t k = 0; k < plan.codeWords; k += unit) {
    Value n = b.add(first, k);
    Value offset = b.add(b.add(b.shl(b.shr(n, 2), 9), b.shl(lane, 4)),
                         b.shl(b.band(n, 3), 2));
    Value address = b.at(block, b.zext64(offset));
    if (unit == 1)
      words.push_back(b.loadConstant(b.i32(), address, 4));
    else
      words.append(
          b.unpack(b.loadConstant(b.words(unit), address, unsigned(4 * unit))));
  }
  return b.pack(words);
}

/// Half of the warps take the tiles of block 0, half those of the last block.
void KernelEmitter::loadCandidates(Value blocks) {
  int64_t perWarp = 16 / plan.warps;
  Value newest = b.ge(warp, b.c32(plan.warps / 2));
  Value some = b.gt(blocks, b.c32(0));
  SmallVector<Type> types(1, b.words(4 * plan.groups));
  types.append(perWarp, b.words(plan.codeWords));
  SmallVector<Value> loaded = b.ifElse(
      some, types,
      [&] {
        Value block = b.select(newest, b.add(blocks, -1), b.c32(0));
        Value entry =
            b.add(b.mul(b.zext64(sequence), arg(KernelArg::page_stride)),
                  b.zext64(block));
        Value page = b.loadConstant(
            b.i32(), b.at(arg(KernelArg::page_table), b.shl(entry, 2)), 4);
        Value base = b.at(arg(KernelArg::thumbnails),
                          b.mul(slotOf(page), plan.layout.thumbnailBytes()));
        SmallVector<Value> values;
        values.push_back(loadFragment(
            b.at(b.at(base, plan.layout.codeBytes()), b.shl(tq, 4)), 64,
            /*constant=*/true));
        Value first = b.mul(b.band(warp, plan.warps / 2 - 1), perWarp);
        for (int64_t i = 0; i < perWarp; ++i)
          values.push_back(loadTileCodes(base, b.add(first, i)));
        return values;
      },
      [&] {
        SmallVector<Value> values;
        for (Type type : types)
          values.push_back(b.zeros(cast<VectorType>(type)));
        return values;
      });
  candidates = Candidates{some, loaded.front(), {}};
  candidates->codes.append(loaded.begin() + 1, loaded.end());
}

KernelEmitter::Folded KernelEmitter::foldScales(Value scales) {
  Folded folded;
  if (plan.element.isBF16())
    scales = GPUScaleFragmentOp::create(b, scales.getType(), scales,
                                        b.load(b.f32(), shared(plan.shift), 4));
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

LogicalResult KernelEmitter::emitCandidates(TileDistributeOp loop) {
  if (failed(checkBody(loop, {"load_thumbnail", "scan"})))
    return failure();
  if (!candidates)
    loadCandidates(counts.lookup(loop.getOver().front()));
  RowMaxValue value;
  value.tiles = b.ifElse(
      candidates->some, SmallVector<Type>(plan.scanTiles, b.i32()),
      [&] {
        Folded folded = foldScales(candidates->scales);
        SmallVector<Value> starts(plan.scanTiles, b.c32(0)), best;
        for (Value codes : candidates->codes) {
          Value scores =
              GPUScanTileOp::create(b, b.words(2 * plan.scanTiles), codes,
                                    folded.tiles, starts, plan.bits);
          for (int64_t i = 0; i < plan.scanTiles; ++i) {
            Value upper = b.get(scores, 2 * i + 1);
            if (plan.bits < 8)
              upper = b.sar(upper, plan.bits);
            Value most = b.smax(b.get(scores, 2 * i), upper);
            if (i < static_cast<int64_t>(best.size()))
              best[i] = b.smax(best[i], most);
            else
              best.push_back(most);
          }
        }
        // a_int = 2 S - 2 L sum Q.
        for (int64_t i = 0; i < plan.scanTiles; ++i)
          best[i] = b.sub(b.shl(reduceRows(Reduction::max, best[i]), 1),
                          folded.centres[i]);
        return best;
      },
      [&] { return SmallVector<Value>(plan.scanTiles, b.c32(kNoScore)); });
  rowMaxima[loop.getResult()] = value;
  return success();
}

/// Tail scores, eight lanes to a token. They need the exact query only, so the
/// warps score while one of them quantises the query.
LogicalResult KernelEmitter::scoreTail(TileDistributeOp loop) {
  if (failed(checkBody(loop, {"load_tail", "dot", "to_units"})))
    return failure();
  for (Operation &op : *loop.getBody())
    if (auto dot = dyn_cast<TileDotOp>(op); dot && !dot.getOrdered())
      return dot.emitOpError(
          "is not ordered, expected the order of tail_c1 for "
          "the pseudo-max");
  Value tail = counts.lookup(loop.getOver().front());
  int64_t words = plan.layout.headDim / 16;
  Value inToken = b.shl(b.band(lane, 7), 2);
  // Plain loads of the query from an address that is opaque in the loop, and a
  // barrier: hoisted out of it, they would fill the registers.
  Value query =
      b.at(b.at(arg(KernelArg::q), b.shl(queryOffset(b.c32(0)), 1)), inToken);

  SmallVector<Value> carried(plan.group, b.infinity(/*negative=*/true));
  carried.push_back(b.cbool(false));
  // The warp that quantises comes last in the deal.
  Value turn = b.band(b.add(warp, plan.warps - 1), plan.warps - 1);
  carried = b.loop(
      b.shl(turn, 2), tail, b.c32(4 * plan.warps), carried,
      [&](Value first, ValueRange sofar) {
        GPUWarpBarrierOp::create(b);
        Value base = b.opaque(query);
        Value token = b.add(first, b.shr(lane, 3));
        Value valid = b.lt(token, tail);
        Value address = b.at(tailRow(KernelArg::tail_k, plan.layout.headDim,
                                     b.smin(token, b.add(tail, -1))),
                             inToken);
        SmallVector<Value> keys, next;
        for (int64_t n = 0; n < words; ++n)
          keys.push_back(b.loadConstant(b.i32(), b.at(address, 32 * n), 4));
        Value key = b.pack(keys), bad = sofar.back();
        for (int64_t h = 0; h < plan.group; ++h) {
          int64_t ofToken = h / plan.tokenHeads();
          Value offset =
              b.mul(arg(KernelArg::q_head_stride), h % plan.tokenHeads());
          if (ofToken)
            offset =
                b.add(offset, b.mul(arg(KernelArg::q_token_stride), ofToken));
          Value from = b.at(base, b.shl(offset, 1));
          SmallVector<Value> q;
          for (int64_t n = 0; n < words; ++n)
            q.push_back(b.load(b.i32(), b.at(from, 32 * n), 4));
          Value f = GPUOrderedDotOp::create(b, b.f32(), key, b.pack(q),
                                            TypeAttr::get(plan.element));
          f = b.fmul(arg(KernelArg::sm_scale), f);
          Value seen = valid;
          if (plan.tokens() > 1)
            seen = b.lt(token, seenBy(b.c32(h), tail));
          Value wrong = b.bxor(b.isFinite(f), b.cbool(true));
          bad = b.bor(bad, b.band(seen, wrong));
          next.push_back(b.select(seen, b.fmax(sofar[h], f), Value(sofar[h])));
        }
        next.push_back(bad);
        return next;
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
  // The maximum of head 4 i + tq over the four tokens of a step, in scan units.
  for (int64_t i = 0; i < plan.scanTiles; ++i) {
    Value most = carried[std::min(4 * i, plan.group - 1)];
    for (int64_t c = 1; c < 4; ++c)
      most = b.select(b.eq(tq, c), carried[std::min(4 * i + c, plan.group - 1)],
                      most);
    // Lanes of one tq hold all four tokens of a step.
    most = reduceRows(Reduction::max, most);
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
    threshold.push_back(b.select(exists, x, b.c32(limit)));
  }
  thresholds[op.getResult()] = threshold;
  return success();
}

LogicalResult KernelEmitter::emitInit(TileInitOp op) {
  StateValue state;
  for (int64_t t = 0; t < plan.headTiles; ++t) {
    SmallVector<Value> reference(2, b.cf(kNoReference));
    if (op.getRowMax()) {
      // From head 4 i + tq to heads 2 tq and 2 tq + 1 of the tile of eight.
      RowMaxValue &pm = rowMaxima[op.getRowMax()];
      completeRowMax(pm);
      SmallVector<Value> sources;
      for (int64_t i = 2 * t; i < std::min(2 * t + 2, plan.scanTiles); ++i) {
        Value unit =
            b.load(b.f32(), b.at(shared(plan.unit + 16 * i), b.shl(tq, 2)), 4);
        Value x = b.fmul(b.fmul(b.toFloat(pm.tiles[i]), unit), b.cf(kLog2e));
        // Without committed blocks a unit is worth 0 and the pseudo-max says
        // nothing: scores far below 0 would all vanish against it.
        Value known = b.band(b.isFinite(x),
                             b.fcmp(arith::CmpFPredicate::ONE, unit, b.cf(0)));
        sources.push_back(b.select(known, x, b.cf(kNoReference)));
      }
      Value quad = b.band(lane, ~int64_t(3));
      for (int64_t c : {0, 1}) {
        Value from = b.add(quad, b.band(b.add(b.shl(tq, 1), c), 3));
        reference[c] = shuffle(sources[0], from);
        if (sources.size() == 2)
          reference[c] =
              b.select(b.lt(tq, 2), reference[c], shuffle(sources[1], from));
      }
    }
    state.reference.push_back(b.pack(reference));
    state.sum.push_back(b.zeros(b.floats(2)));
    state.output.push_back(b.zeros(b.floats(4 * plan.valueTiles)));
  }
  states[op.getResult()] = state;
  return success();
}
