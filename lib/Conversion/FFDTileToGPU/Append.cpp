//===- Append.cpp - Appends on a GPU ----------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Blocks are dealt to the pieces of a row; only the piece that arrives last
// touches what all of them read or share: smax and tail. What does not depend
// on the order (a maximum, disjoint stores) needs no more, so a launch has one
// result.
//
//===----------------------------------------------------------------------===//

#include "Append.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ffd;

AppendPlan::AppendPlan(SpecAttr spec) : spec(spec), layout(spec.getLayout()) {
  channels = layout.paddedHeadDim();
  warps = layout.tilesPerBlock();
  threads = 32 * warps;
  // Keys of a tile take a register per four channels of a lane.
  ctas = channels <= 128 ? 2 : 1;
  maxima = 0;
  factors = maxima + warps * channels * 4;
  flags = factors + channels * 4;
  flag = flags + warps * 4;
  centre = flag + 16;
  sharedBytes = centre + (spec.hasCentre() ? 2 * layout.headDim : 0);
}

Value AppendEmitter::arg(AppendArg which) {
  Value &value = args[static_cast<int>(which)];
  if (!value) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfter(entry);
    value = loadKernelArg(b, b.getLoc(), function.getArgument(0), which);
    if (isa<LLVM::LLVMPointerType>(value.getType()))
      value = LLVM::AddrSpaceCastOp::create(b, b.pointer(1), value);
  }
  return value;
}

/// The slot's entry of an array that no one writes meanwhile.
Value AppendEmitter::perSlot(AppendArg which) {
  return b.loadConstant(b.i32(), b.at(arg(which), scaled(slot, 4)), 4);
}

/// Whether the caller gave an array that may be absent.
Value AppendEmitter::isGiven(AppendArg which) {
  return b.ne(LLVM::PtrToIntOp::create(b, b.i64(), arg(which)), 0);
}

/// Where the sequence is. What is no slot reads slot 0 and changes nothing.
void AppendEmitter::findSlot() {
  SmallVector<Value> found = b.ifElse(
      isGiven(AppendArg::slots), {b.i32(), b.i1()},
      [&]() -> SmallVector<Value> {
        Value listed = b.loadConstant(
            b.i32(), b.at(arg(AppendArg::slots), scaled(sequence, 4)), 4);
        Value exists = b.cmp(arith::CmpIPredicate::ult, listed,
                             arg(AppendArg::slot_count));
        return {b.select(exists, listed, b.c32(0)), exists};
      },
      [&]() -> SmallVector<Value> { return {sequence, b.cbool(true)}; });
  slot = found[0];
  hasSlot = found[1];
}

LogicalResult AppendEmitter::emit() {
  thread = GPUIdOp::create(b, b.i32(), LaneId::thread);
  entry = thread.getDefiningOp();
  warp = GPUIdOp::create(b, b.i32(), LaneId::warp);
  lane = GPUIdOp::create(b, b.i32(), LaneId::lane);
  g = b.shr(lane, 2);
  tq = b.band(lane, 3);
  Value block = GPUIdOp::create(b, b.i32(), LaneId::block);
  splits = arg(AppendArg::splits);
  row = b.udiv(block, splits);
  split = b.sub(block, b.mul(row, splits));
  Value heads = arg(AppendArg::kv_heads);
  sequence = b.udiv(row, heads);
  head = b.sub(row, b.mul(sequence, heads));
  findSlot();
  for (Operation &op : *teams.getBody())
    if (failed(emitOp(&op)))
      return failure();
  return success();
}

LogicalResult AppendEmitter::emitOp(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](TileAppendExtentOp op) { return emitExtent(op); })
      .Case([&](TileFinishAppendOp op) { return emitFinish(op); })
      .Case([&](TileDistributeOp loop) -> LogicalResult {
        if (loop.getDomain() == Domain::commit)
          return emitCommit(loop);
        return loop.emitOpError("over '")
               << stringifyDomain(loop.getDomain())
               << "' has no lowering to the GPU level in an append";
      })
      .Default([](Operation *op) {
        return op->emitOpError("has no lowering to the GPU level in an append, "
                               "expected the ops that --ffd-tile makes");
      });
}

//===----------------------------------------------------------------------===//
// What an append does
//===----------------------------------------------------------------------===//

/// Whether a page id of a block that is to be committed is no page, in all
/// threads.
Value AppendEmitter::checkPages() {
  Value table =
      b.at(arg(AppendArg::page_table),
           b.shl(b.mul(b.zext64(slot), arg(AppendArg::page_stride)), 2));
  Value bad =
      b.loop(b.add(first, thread), end, b.c32(plan.threads), {b.cbool(false)},
             [&](Value block, ValueRange sofar) -> SmallVector<Value> {
               Value page =
                   b.loadConstant(b.i32(), b.at(table, scaled(block, 4)), 4);
               // Unsigned: also those below 0.
               Value outside = b.cmp(arith::CmpIPredicate::uge, page,
                                     arg(AppendArg::pages));
               return {b.bor(sofar[0], outside)};
             })
          .front();
  Value any = GPUAnyOp::create(b, b.i1(), bad);
  b.ifThen(b.eq(lane, 0),
           [&] { b.store(b.zext32(any), sharedAt(plan.flags, warp, 4), 4); });
  GPUTeamBarrierOp::create(b);
  Value found = b.c32(0);
  for (int64_t w = 0; w < plan.warps; ++w)
    found = b.bor(found, b.load(b.i32(), shared(plan.flags + 4 * w), 4));
  return found;
}

LogicalResult AppendEmitter::emitExtent(TileAppendExtentOp op) {
  // The last team may write it.
  length =
      b.ifElse(
           hasSlot, b.i32(),
           [&]() -> SmallVector<Value> {
             return {b.load(b.i32(),
                            b.at(arg(AppendArg::lengths), scaled(slot, 4)), 4)};
           },
           [&]() -> SmallVector<Value> { return {b.c32(0)}; })
          .front();
  Value from = b.at(arg(AppendArg::offsets), scaled(sequence, 4));
  begin = b.loadConstant(b.i32(), from, 4);
  Value wanted = b.sub(b.loadConstant(b.i32(), b.at(from, 4), 4), begin);
  wanted = b.select(hasSlot, wanted, b.c32(0));
  Value sum = b.add(length, wanted);
  int64_t shift = llvm::Log2_64(layout.quantBlock);
  Value least = b.ifElse(
                     isGiven(AppendArg::committed), b.i32(),
                     [&]() -> SmallVector<Value> {
                       return {perSlot(AppendArg::committed)};
                     },
                     [&]() -> SmallVector<Value> { return {b.c32(0)}; })
                    .front();
  auto committed = [&](Value tokens) {
    Value old = b.smax(b.sub(tokens, arg(AppendArg::lag)), b.c32(0));
    return b.smax(b.shr(old, shift), least);
  };
  auto bit = [&](Value condition, int64_t error) {
    return b.select(condition, b.c32(error), b.c32(0));
  };
  first = committed(length);
  Value after = committed(sum);

  // The sum of two numbers that are not negative wraps below zero.
  Value signs = b.bor(b.bor(length, begin), b.bor(wanted, sum));
  Value status = bit(b.lt(signs, 0), FFD_APPEND_BAD_LENGTH);
  Value commits = b.gt(after, first);
  Value sane = b.eq(status, 0);
  // 64 bits: a stride may have more. A negative reservation is that of a slot
  // without a sequence, which takes not even a tail.
  Value reserved = perSlot(AppendArg::reserved);
  Value beyond = b.bor(b.gt(after, reserved),
                       b.gt(b.zext64(after), arg(AppendArg::page_stride)));
  beyond = b.bor(b.band(commits, beyond), b.lt(reserved, 0));
  status =
      b.bor(status, bit(b.band(sane, beyond), FFD_APPEND_BEYOND_RESERVATION));
  Value rest = b.sub(sum, b.shl(after, shift));
  status =
      b.bor(status, bit(b.band(sane, b.gt(rest, arg(AppendArg::tail_tokens))),
                        FFD_APPEND_TAIL_TOO_SHORT));
  end = after;
  // The same for all threads of the sequence's teams.
  Value reads = b.band(b.eq(status, 0), commits);
  Value pages = b.ifElse(
                     reads, b.i32(),
                     [&]() -> SmallVector<Value> { return {checkPages()}; },
                     [&]() -> SmallVector<Value> { return {b.c32(0)}; })
                    .front();
  status = b.bor(status, bit(b.ne(pages, 0), FFD_APPEND_BAD_PAGE));
  // No tokens, no errors: nothing is asked of the sequence.
  status = b.select(b.eq(wanted, 0), b.c32(0), status);
  Value taken = b.band(b.eq(status, 0), b.ne(wanted, 0));
  count = b.select(taken, wanted, b.c32(0));
  end = b.select(taken, after, first);

  Value speaks = b.band(b.eq(thread, 0), b.eq(b.bor(head, split), 0));
  b.ifThen(b.band(speaks, b.ne(status, 0)), [&] {
    Value word = b.at(arg(AppendArg::errors), scaled(slot, 4));
    b.store(b.bor(b.load(b.i32(), word, 4), status), word, 4);
  });
  return success();
}
