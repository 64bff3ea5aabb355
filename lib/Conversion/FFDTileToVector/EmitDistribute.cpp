//===- EmitDistribute.cpp - Loops of a team ------------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `ffd.tile.distribute`: the domain gives the loop, the combiner what happens
// to what the body yields. Rows are cut into contiguous pieces.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"

using namespace mlir;
using namespace mlir::ffd;

/// Blocks that are selected before the kept ones are attended to: few enough
/// that their thumbnails are still in the second-level cache then.
static constexpr int64_t kStrip = 64;

LogicalResult Emitter::emit(TileDistributeOp op) {
  if (op.getDomain() == Domain::worklist) {
    if (op.getCombiner() != Combiner::state)
      return op.emitOpError("combines a work list by ")
             << stringifyCombiner(op.getCombiner())
             << ", expected state on the CPU";
    return emitWorklist(op);
  }
  switch (op.getCombiner()) {
  case Combiner::max:
    return emitMax(op);
  case Combiner::append: {
    set(op.getResult(), WorklistValue{op});
    if (op.getSkipped())
      startSkipped(op);
    if (!op.getResult().use_empty())
      return success(); // emitted with its consumer
    auto [first, last] = emitShare(op);
    return emitAppend(op, first, last, {});
  }
  case Combiner::rank:
    return emitRank(op);
  case Combiner::state: {
    set(op.getState(), get<StateValue>(op.getInit()));
    set(op.getResult(), get<StateValue>(op.getInit()));
    return emitDomain(op);
  }
  case Combiner::scales:
    return op.emitOpError("combines by scales, which cannot be lowered for the "
                          "CPU: the runtime appends there itself");
  }
  llvm_unreachable("unknown combiner");
}

/// The iterations of a domain other than `worklist`, as a range.
std::pair<Value, Value> Emitter::emitShare(TileDistributeOp op) {
  Value count = index(op.getOver()[0]);
  if (op.getDomain() == Domain::tail || op.getDomain() == Domain::tail_share)
    count = b.shr(b.add(count, b.i64(15)), 4);
  if (op.getDomain() == Domain::candidates)
    count = b.min(count, b.i64(2));
  if (op.getOver().size() == 1)
    return {b.i64(0), count};
  Value split = index(op.getOver()[1]), splits = index(op.getOver()[2]);
  auto bound = [&](Value piece) { return b.div(b.mul(count, piece), splits); };
  return {bound(split), bound(b.add(split, b.i64(1)))};
}

/// The body once per iteration; `after`, if given, sees to what it yields.
LogicalResult Emitter::emitDomain(TileDistributeOp op,
                                  function_ref<void()> after) {
  auto [first, last] = emitShare(op);
  LogicalResult result = success();
  b.loop(first, last, [&](Value i) {
    Value which = i;
    if (op.getDomain() == Domain::candidates)
      which = b.select(b.cmp(IntCmp::eq, i, b.i64(0)), i,
                       b.sub(index(op.getOver()[0]), b.i64(1)));
    indices[op.getIndex()] = which;
    result = emitBlock(*op.getBody());
    if (succeeded(result) && after)
      after();
  });
  return result;
}

LogicalResult Emitter::emitMax(TileDistributeOp op) {
  RowMaxValue rowMax{b.alloca(64), b.alloca(64)};
  VectorType words = b.vec(b.getI32Type());
  Value lowest = b.constant(words, -(int64_t(1) << 30));
  Value bad = b.i32(0);
  if (op.getInit()) {
    const RowMaxValue &init = get<RowMaxValue>(op.getInit());
    lowest = b.loadI32(init.data);
    bad = b.load(b.getI32Type(), init.bad, 4);
  }
  b.store(lowest, rowMax.data, 64);
  b.store(bad, rowMax.bad, 4);
  set(op.getResult(), rowMax);
  return emitDomain(op, [&] {
    const ScoresValue &scores = get<ScoresValue>(op.getYielded());
    for (int64_t head = 0; head < group; ++head) {
      Value top;
      for (int64_t v = 0; v < scores.vectors; ++v) {
        Value a =
            b.loadI32(b.at(scores.data, (head * scores.vectors + v) * 64));
        top = top ? b.max(top, a) : a;
      }
      Value place = b.at(rowMax.data, 4 * head);
      b.store(b.max(b.reduceMax(top), b.load(b.getI32Type(), place, 4)), place,
              4);
    }
    if (scores.bad)
      b.store(b.ori(b.load(b.getI32Type(), rowMax.bad, 4),
                    b.zext(scores.bad, b.getI32Type())),
              rowMax.bad, 4);
  });
}

/// Blocks [first, last): their masks go, a byte each, to `masks` if given.
LogicalResult Emitter::emitAppend(TileDistributeOp op, Value first, Value last,
                                  Value masks) {
  LogicalResult result = success();
  b.loop(first, last, [&](Value block) {
    indices[op.getIndex()] = block;
    result = emitBlock(*op.getBody());
    if (failed(result) || !masks)
      return;
    Value bits = get<MaskValue>(op.getYielded()).bits;
    b.store(b.trunc(bits, b.getI8Type()), b.at(masks, b.sub(block, first)), 1);
  });
  return result;
}

/// Producer and consumer of a work list take turns over strips of blocks, so
/// that the list needs no more than a strip's memory.
LogicalResult Emitter::emitWorklist(TileDistributeOp op) {
  TileDistributeOp producer = get<WorklistValue>(op.getOver().front()).producer;
  set(op.getState(), get<StateValue>(op.getInit()));
  set(op.getResult(), get<StateValue>(op.getInit()));
  auto [begin, end] = emitShare(producer);
  Value masks = b.alloca(kStrip);
  Value strips =
      b.div(b.add(b.sub(end, begin), b.i64(kStrip - 1)), b.i64(kStrip));
  LogicalResult result = success();
  b.loop(b.i64(0), strips, [&](Value strip) {
    Value first = b.add(begin, b.mul(strip, b.i64(kStrip)));
    Value last = b.min(b.add(first, b.i64(kStrip)), end);
    result = emitAppend(producer, first, last, masks);
    if (failed(result))
      return;
    b.loop(first, last, [&](Value block) {
      Value byte = b.load(b.getI8Type(), b.at(masks, b.sub(block, first)), 1);
      Value bits = b.zext(byte, b.getI32Type());
      b.ifThen(b.cmp(IntCmp::ne, bits, b.i32(0)), [&] {
        indices[op.getIndex()] = block;
        set(op.getMask(), MaskValue{bits});
        result = emitBlock(*op.getBody());
      });
    });
  });
  return result;
}
