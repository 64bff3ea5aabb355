//===- AppendFinish.cpp - The end of an appended row on a GPU ------------ ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What only one piece of a row writes: smax, centre, tail and length.
//
//===----------------------------------------------------------------------===//

#include "Append.h"

using namespace mlir;
using namespace mlir::ffd;

/// smax of the thread's channel, from the largest scale of all pieces.
void AppendEmitter::mergeScales(Value running) {
  Value starts = b.eq(first, 0);
  Value changes = b.bor(starts, b.gt(end, first));
  b.ifThen(b.band(b.lt(thread, plan.channels), changes), [&] {
    Value word = b.at(
        b.at(arg(AppendArg::smax), scaled(cacheRow(), layout.scaleBytes())),
        b.shl(thread, 1));
    Value old = b.zext32(b.load(b.i16(), word, 2));
    Value top = b.smax(running, b.select(starts, b.c32(0), old));
    b.store(b.trunc(b.i16(), top), word, 2);
  });
}

/// The centre of a row that had no committed blocks: that of its block 0, or 0.
/// The tail is stored after a barrier and reads it from there.
void AppendEmitter::storeCentre() {
  Value chunk = b.lt(thread, layout.headDim / 8);
  b.ifThen(b.band(starts, chunk), [&] {
    b.store(b.load(b.words(4), b.at(shared(plan.centre), b.shl(thread, 4)), 16),
            b.at(centreRow(), b.shl(thread, 4)), 16);
  });
  b.ifThen(b.band(b.eq(end, 0), chunk), [&] {
    b.store(b.zeros(b.words(4)), b.at(centreRow(), b.shl(thread, 4)), 16);
  });
}

/// Moves the tokens that stay behind the committed blocks, then adds the new
/// ones. A step's source is the step's own room at the earliest, if blocks were
/// committed, else the input.
void AppendEmitter::storeTail(AppendArg tail, int64_t width, AppendArg input,
                              AppendArg tokenStride, AppendArg headStride) {
  int64_t step = layout.quantBlock, shift = llvm::Log2_64(step);
  int64_t chunks = width / 8;
  Value base = b.shl(end, shift);
  Value tokens = b.sub(b.add(length, count), base);
  Value from = b.select(b.eq(first, end), b.sub(length, base), b.c32(0));
  b.loop(from, tokens, b.c32(step), {},
         [&](Value at, ValueRange) -> SmallVector<Value> {
           // All have read what this step overwrites.
           GPUTeamBarrierOp::create(b);
           Value here = b.smin(b.sub(tokens, at), b.c32(step));
           b.loop(thread, b.mul(here, chunks), b.c32(plan.threads), {},
                  [&](Value i, ValueRange) -> SmallVector<Value> {
                    Value local = b.udiv(i, b.c32(chunks));
                    Value chunk = b.sub(i, b.mul(local, chunks));
                    Value index = b.add(at, local);
                    Value source = tokenRow(b.add(base, index), tail, width,
                                            input, tokenStride, headStride);
                    Value data =
                        b.load(b.words(4), b.at(source, b.shl(chunk, 4)), 16);
                    if (centred() && tail == AppendArg::tail_k) {
                      Value c = b.load(b.words(4),
                                       b.at(centreRow(), b.shl(chunk, 4)), 16);
                      Value isNew = b.ge(b.add(base, index), length);
                      data = relative(
                          data, c,
                          b.band(b.gt(end, b.c32(0)), b.bor(starts, isNew)));
                    }
                    b.store(data,
                            b.at(tailRow(index, tail, width), b.shl(chunk, 4)),
                            16);
                    return {};
                  });
           return {};
         });
}

/// The sequence's new length, by the first team where others read another
/// memory, else by the team that arrives last.
void AppendEmitter::storeLength() {
  auto address = [&](AppendArg which) {
    return LLVM::PtrToIntOp::create(b, b.i64(), arg(which)).getResult();
  };
  Value given = b.band(isGiven(AppendArg::new_lengths), hasSlot);
  Value inPlace =
      b.eq(address(AppendArg::new_lengths), address(AppendArg::lengths));
  Value turn = b.ifElse(
                    inPlace, b.i1(),
                    [&]() -> SmallVector<Value> {
                      Value rows = b.mul(arg(AppendArg::batch),
                                         arg(AppendArg::kv_heads));
                      Value counter = b.at(arg(AppendArg::workspace),
                                           scaled(b.add(rows, sequence), 4));
                      Value teams = b.mul(arg(AppendArg::kv_heads), splits);
                      return {GPUArriveOp::create(b, b.i1(), counter, teams,
                                                  shared(plan.flag))};
                    },
                    [&]() -> SmallVector<Value> {
                      return {b.eq(b.bor(head, split), 0)};
                    })
                   .front();
  b.ifThen(b.band(b.band(given, turn), b.eq(thread, 0)), [&] {
    b.store(b.add(length, count),
            b.at(arg(AppendArg::new_lengths), scaled(slot, 4)), 4);
  });
}

LogicalResult AppendEmitter::emitFinish(TileFinishAppendOp op) {
  Value running = largest.lookup(op.getScales());
  if (!running)
    return op.emitOpError("operand 'scales' is not the result of a 'commit' "
                          "loop, expected one");
  auto finish = [&](Value top) {
    mergeScales(top);
    if (centred())
      storeCentre();
    storeTail(AppendArg::tail_k, layout.headDim, AppendArg::k,
              AppendArg::k_token_stride, AppendArg::k_head_stride);
    storeTail(AppendArg::tail_v, layout.valueDim, AppendArg::v,
              AppendArg::v_token_stride, AppendArg::v_head_stride);
  };
  Value some = b.gt(count, b.c32(0));
  Value whole = b.eq(splits, 1);
  // Without new blocks the first piece is alone with the tail.
  Value alone = b.bor(whole, b.eq(first, end));
  b.ifThen(b.band(some, b.band(alone, b.eq(split, 0))),
           [&] { finish(running); });
  b.ifThen(b.band(some, b.bnot(alone)), [&] {
    Value counters = b.mul(b.zext64(arg(AppendArg::batch)),
                           b.add(b.zext64(arg(AppendArg::kv_heads)), 1));
    Value partials =
        b.at(arg(AppendArg::workspace),
             b.band(b.add(b.shl(counters, 2), 127), ~int64_t(127)));
    Value mine = b.at(partials, b.mul(b.mul(b.zext64(row), b.zext64(splits)),
                                      4 * plan.channels));
    mine = b.at(mine, b.shl(thread, 2));
    Value channel = b.lt(thread, plan.channels);
    b.ifThen(channel, [&] {
      b.store(running, b.at(mine, scaled(split, 4 * plan.channels)), 4);
    });
    Value counter = b.at(arg(AppendArg::workspace), scaled(row, 4));
    Value last =
        GPUArriveOp::create(b, b.i1(), counter, splits, shared(plan.flag));
    b.ifThen(last, [&] {
      Value pieces = b.select(channel, splits, b.c32(0));
      Value top =
          b.loop(b.c32(0), pieces, b.c32(1), {b.c32(0)},
                 [&](Value piece, ValueRange sofar) -> SmallVector<Value> {
                   Value part =
                       b.load(b.i32(),
                              b.at(mine, scaled(piece, 4 * plan.channels)), 4);
                   return {b.smax(sofar[0], part)};
                 })
              .front();
      finish(top);
    });
  });
  storeLength();
  return success();
}
