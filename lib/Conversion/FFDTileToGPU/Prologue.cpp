//===- Prologue.cpp - Before the scan ---------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What happens before the first barrier: all first loads, and the query. Every
// team of a row does it, with its warps sharing the work.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"

using namespace mlir;
using namespace mlir::ffd;

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

Value KernelEmitter::loadWords(int64_t words, Value address, Value condition) {
  Type type = b.words(words);
  if (condition)
    return GPULoadIfOp::create(b, type, condition, address, /*written=*/false);
  return b.loadConstant(type, address, unsigned(4 * words));
}

Value KernelEmitter::loadFragment(Value address, int64_t groupStride,
                                  bool constant, Value condition) {
  SmallVector<Value> words;
  for (int64_t j = 0; j < plan.groups; ++j) {
    Value from = b.at(address, j * groupStride);
    Value four =
        constant ? loadWords(4, from, condition) : b.load(b.words(4), from, 16);
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

/// Half of the channel groups of a head of the scan, those of the parity of g,
/// which is as much as a lane quantises: two columns of the product have one
/// head. Groups beyond the last are zero.
KernelEmitter::ScanQuery KernelEmitter::loadScanQuery(Value condition) {
  Value h = b.smin(b.add(b.shl(warp, 2), b.shr(g, 1)), b.c32(plan.group - 1));
  Value odd = b.band(g, 1);
  Value query = b.at(b.at(arg(KernelArg::q), b.shl(queryOffset(h), 1)),
                     b.add(b.shl(tq, 3), b.shl(odd, 6)));
  Value smax =
      b.at(b.at(arg(KernelArg::smax), scaled(row, plan.layout.scaleBytes())),
           b.add(b.shl(tq, 4), b.shl(odd, 6)));
  SmallVector<Value> q, s;
  for (int64_t pair = 0; pair < plan.groups; pair += 2) {
    // What lanes of g even have, and perhaps not those of g odd.
    auto given = [&](int64_t channelOfOdd, int64_t limit) {
      return channelOfOdd < limit ? condition : b.band(condition, b.eq(odd, 0));
    };
    for (int64_t half : {0, 16}) {
      int64_t channel = 32 * pair + half;
      if (channel >= plan.layout.headDim) {
        q.append(2, b.c32(0));
        continue;
      }
      q.append(b.unpack(loadWords(2, b.at(query, 2 * channel),
                                  given(channel + 32, plan.layout.headDim))));
    }
    s.append(b.unpack(
        loadWords(4, b.at(smax, 64 * pair), given(pair + 1, plan.groups))));
  }
  return {b.pack(q), b.pack(s)};
}

/// Warp i quantises query tile i for the scan.
void KernelEmitter::emitScanQuery() {
  b.ifThen(b.lt(warp, plan.scanTiles), [&] {
    ScanQuery part = earlyQuery ? *earlyQuery : loadScanQuery(b.cbool(true));
    Value h = b.add(b.shl(warp, 2), b.shr(g, 1)), odd = b.band(g, 1);
    auto q = GPUQuantizeQueryOp::create(
        b, part.query.getType(), b.i32(), b.f32(), b.i1(), b.f32(), part.query,
        part.smax, arg(KernelArg::sm_scale), TypeAttr::get(plan.element));
    Value exists = b.lt(h, plan.group);
    Value qh = b.select(exists, q.getQh(),
                        b.zeros(cast<VectorType>(q.getQh().getType())));
    // To both columns of the head.
    Value to = b.at(sharedAt(plan.scanQuery, warp, plan.groups * 512),
                    b.add(b.shl(b.band(lane, ~int64_t(4)), 4), b.shl(odd, 9)));
    SmallVector<Value> words = b.unpack(qh);
    for (int64_t pair = 0; pair < plan.groups; pair += 2) {
      Value four = b.pack(ArrayRef<Value>(words).slice(2 * pair, 4));
      auto store = [&] {
        b.store(four, b.at(to, 512 * pair), 16);
        b.store(four, b.at(to, 512 * pair + 64), 16);
      };
      if (pair + 1 < plan.groups)
        store();
      else
        b.ifThen(b.eq(odd, 0), store);
    }
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
    Value query = loadQuery(b.smin(h, b.c32(plan.group - 1)));
    auto q = GPUScaleQueryOp::create(b, query.getType(), b.f32(), query,
                                     loadSmax(), TypeAttr::get(plan.element));
    Value qs = b.select(b.lt(h, plan.group), q.getScaled(),
                        b.zeros(cast<VectorType>(query.getType())));
    storeFragment(b, qs,
                  b.at(sharedAt(plan.refineQuery, tile, plan.groups * 512),
                       b.shl(lane, 4)));
    b.ifThen(b.eq(tq, 0),
             [&] { b.store(q.getInverse(), sharedAt(plan.inverse, h, 4), 4); });
  });
}

/// Everything that waits for memory later on is asked for first, without a
/// branch in between: at the end of a branch a warp would wait for its loads.
/// Page ids come first: other loads wait for them.
void KernelEmitter::startLoads() {
  TileDistributeOp candidateLoop, shareLoop, tailLoop;
  for (Operation &other : *teams.getBody()) {
    auto loop = dyn_cast<TileDistributeOp>(other);
    if (!loop || !counts.count(loop.getOver().front()))
      continue;
    if (loop.getDomain() == Domain::candidates)
      candidateLoop = loop;
    if (loop.getDomain() == Domain::share)
      shareLoop = loop;
    if (loop.getDomain() == Domain::tail)
      tailLoop = loop;
  }
  if (candidateLoop)
    loadCandidatePage(counts.lookup(candidateLoop.getOver().front()));
  if (shareLoop)
    startShare(shareLoop);
  if (plan.traits.scans && plan.queryEarly())
    earlyQuery = loadScanQuery(b.lt(warp, plan.scanTiles));
  if (tailLoop)
    startTail(counts.lookup(tailLoop.getOver().front()));
  if (plan.sharesCoordinates())
    loadDelta();
  prefetchTail();
  if (plan.scanRing() || plan.traits.refines)
    GPURingInitOp::create(b, plan.copies, warpBarriers, plan.barriersPerWarp());
  if (candidateLoop && plan.candidatesEarly())
    loadCandidates();
  if (candidateLoop && plan.traits.refinedMax && !plan.residualsEarly())
    prefetchResiduals();
}

LogicalResult KernelEmitter::emitQuery(TileQueryOp op) {
  startLoads();
  if (plan.sharesCoordinates())
    storeCoordinates();
  if (plan.traits.scans)
    emitScanQuery();
  if (plan.traits.refines)
    emitRefineQuery();
  for (Operation &other : *teams.getBody())
    if (auto loop = dyn_cast<TileDistributeOp>(other))
      if (loop.getDomain() == Domain::tail &&
          counts.count(loop.getOver().front()) && failed(scoreTail(loop)))
        return failure();
  // Not earlier: these copies keep the memory busy for so long that every load
  // after them is late.
  if (share && plan.scanRing())
    fillStages(b.c32(0), share->pages, b.c32(0));
  if (plan.traits.scans || plan.traits.refines)
    teamBarrier();
  return success();
}
