//===- Kernel.cpp - Emits one GPU kernel ------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The walk over a tile program, and the coordinates every part uses.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ffd;

SmallVector<Value> StateValue::flat() const {
  SmallVector<Value> values;
  for (size_t i = 0; i < reference.size(); ++i)
    values.append({reference[i], sum[i], output[i]});
  return values;
}

StateValue StateValue::fromFlat(ValueRange values) {
  StateValue state;
  for (size_t i = 0; i < values.size(); i += 3) {
    state.reference.push_back(values[i]);
    state.sum.push_back(values[i + 1]);
    state.output.push_back(values[i + 2]);
  }
  return state;
}

Value KernelEmitter::arg(KernelArg which) {
  Value &value = args[static_cast<int>(which)];
  if (!value) {
    OpBuilder::InsertionGuard guard(b);
    // All arguments are loaded where the coordinates are computed.
    b.setInsertionPointAfter(entry);
    value = loadKernelArg(b, b.getLoc(), function.getArgument(0), which);
    if (isa<LLVM::LLVMPointerType>(value.getType()))
      value = LLVM::AddrSpaceCastOp::create(b, b.pointer(1), value);
  }
  return value;
}

/// Reads a special register anew, whatever was read before.
static Value readAgain(GPUBuilder &b, StringRef name) {
  return LLVM::InlineAsmOp::create(
             b, b.i32(), ValueRange(), ("mov.u32 $0, %" + name + ";").str(),
             "=r", /*has_side_effects=*/true, /*is_align_stack=*/false,
             LLVM::tailcallkind::TailCallKind::None,
             /*asm_dialect=*/LLVM::AsmDialectAttr(),
             /*operand_attrs=*/ArrayAttr())
      .getRes();
}

void KernelEmitter::emitLaneCoordinates(bool again) {
  if (again) {
    thread = readAgain(b, "tid.x");
    warp = b.shr(thread, 5);
    lane = b.band(thread, 31);
  } else {
    thread = GPUIdOp::create(b, b.i32(), LaneId::thread);
    entry = thread.getDefiningOp();
    warp = GPUIdOp::create(b, b.i32(), LaneId::warp);
    lane = GPUIdOp::create(b, b.i32(), LaneId::lane);
  }
  g = b.shr(lane, 2);
  tq = b.band(lane, 3);
  ringBase = sharedAt(plan.ring, warp, plan.ringBytes());
  warpBarriers = sharedAt(plan.barriers, warp, 8 * plan.barriersPerWarp());
}

void KernelEmitter::emitCoordinates(bool again) {
  emitLaneCoordinates(again);
  if (again && plan.sharesCoordinates()) {
    Value low = b.load(b.words(4), shared(plan.coordinates), 16);
    Value high = b.load(b.words(4), shared(plan.coordinates + 16), 16);
    row = b.get(low, 0);
    split = b.get(low, 1);
    splits = b.get(low, 2);
    firstPartial = b.get(low, 3);
    sequence = b.get(high, 0);
    head = b.get(high, 1);
    length = b.get(high, 2);
    place = b.load(b.i32(), shared(plan.place), 4);
    return;
  }
  Value block = again ? readAgain(b, "ctaid.x")
                      : GPUIdOp::create(b, b.i32(), LaneId::block).getResult();
  Value heads = arg(KernelArg::kv_heads);
  Value planned =
      b.ne(LLVM::PtrToIntOp::create(b, b.i64(), arg(KernelArg::plan)), 0);
  SmallVector<Value> piece = b.ifElse(
      planned, SmallVector<Type>(7, b.i32()),
      [&] {
        Value at = b.at(arg(KernelArg::plan), scaled(block, sizeof(ffdPiece)));
        SmallVector<Value> fields =
            b.unpack(b.loadConstant(b.words(4), at, 16));
        fields.push_back(
            b.loadConstant(b.i32(), b.at(at, offsetof(ffdPiece, length)), 4));
        Value more =
            b.loadConstant(b.words(2), b.at(at, offsetof(ffdPiece, place)), 8);
        fields.append({b.get(more, 0), b.get(more, 1)});
        return fields;
      },
      [&]() -> SmallVector<Value> {
        Value splits = arg(KernelArg::splits);
        Value row = b.udiv(block, splits);
        Value first = b.mul(row, splits);
        Value sequence = b.udiv(row, heads);
        Value length = b.loadConstant(
            b.i32(), b.at(arg(KernelArg::lengths), scaled(sequence, 4)), 4);
        Value old = b.smax(b.sub(length, arg(KernelArg::lag)), b.c32(0));
        return {row,
                b.sub(block, first),
                splits,
                first,
                length,
                sequence,
                b.shr(old, llvm::Log2_64(plan.layout.quantBlock))};
      });
  row = piece[0];
  split = piece[1];
  splits = piece[2];
  firstPartial = piece[3];
  length = piece[4];
  place = piece[5];
  committed = piece[6];
  sequence = b.udiv(row, heads);
  head = b.sub(row, b.mul(sequence, heads));
}

void KernelEmitter::loadDelta() {
  delta = b.c32(0);
  if (plan.traits.rings)
    delta = loadWord(b.at(arg(KernelArg::delta), scaled(sequence, 4)),
                     b.eq(thread, 32));
}

void KernelEmitter::storeCoordinates() {
  b.ifThen(b.eq(thread, 32), [&] {
    b.store(b.pack({row, split, splits, firstPartial}),
            shared(plan.coordinates), 16);
    b.store(b.pack({sequence, head, length, delta}),
            shared(plan.coordinates + 16), 16);
    b.store(place, shared(plan.place), 4);
    if (plan.traits.keepsEnds)
      b.store(committed, shared(plan.committed), 4);
    if (plan.traits.refines)
      b.store(b.c32(0), shared(plan.keptSum), 4);
  });
}

LogicalResult KernelEmitter::emit() {
  emitCoordinates(/*again=*/false);
  // Entries of a plan beyond its pieces.
  auto any =
      scf::IfOp::create(b, b.ge(row, b.c32(0)), /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(any.thenYield());
  for (Operation &op : *teams.getBody())
    if (failed(emitOp(&op)))
      return failure();
  // Lists that nobody reads: their loops still write the kept mask.
  SmallVector<TileDistributeOp> unread;
  for (auto &entry : worklists)
    unread.push_back(entry.second);
  for (TileDistributeOp loop : unread)
    if (failed(emitShare(loop, nullptr)))
      return failure();
  return success();
}

LogicalResult KernelEmitter::emitOp(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](TileExtentOp op) { return emitExtent(op); })
      .Case([&](TileExactExtentOp op) { return emitExactExtent(op); })
      .Case([&](TileQueryOp op) { return emitQuery(op); })
      .Case([&](TileDistributeOp op) { return emitDistribute(op); })
      .Case([&](TileThresholdOp op) { return emitThreshold(op); })
      .Case([&](TileInitOp op) { return emitInit(op); })
      .Case([&](TileFinishOp op) { return emitFinish(op); })
      .Default([](Operation *op) {
        return op->emitOpError(
            "has no lowering to the GPU level here, expected "
            "the ops that --ffd-tile makes");
      });
}

LogicalResult KernelEmitter::checkBody(TileDistributeOp loop,
                                       ArrayRef<StringRef> allowed) const {
  for (Operation &op : *loop.getBody()) {
    if (isa<TileYieldOp>(op))
      continue;
    StringRef name = op.getName().stripDialect();
    name.consume_front("tile.");
    if (!llvm::is_contained(allowed, name))
      return op.emitOpError("has no lowering to the GPU level in a '")
             << stringifyDomain(loop.getDomain()) << "' loop that combines by '"
             << stringifyCombiner(loop.getCombiner()) << "'";
  }
  return success();
}

LogicalResult KernelEmitter::emitDistribute(TileDistributeOp loop) {
  switch (loop.getDomain()) {
  case Domain::candidates:
    return emitCandidates(loop);
  case Domain::tail:
    return emitTailMax(loop);
  case Domain::share:
    if (loop.getCombiner() != Combiner::append)
      break;
    worklists[loop.getResult()] = loop;
    return success();
  case Domain::worklist: {
    auto it = worklists.find(loop.getOver().front());
    if (it == worklists.end())
      return loop.emitOpError("reads a work list that another loop has read, "
                              "expected one reader");
    TileDistributeOp share = it->second;
    worklists.erase(it);
    return emitShare(share, loop);
  }
  case Domain::tail_share:
    return emitTailShare(loop);
  case Domain::commit:
    break;
  }
  return loop.emitOpError("over '")
         << stringifyDomain(loop.getDomain()) << "' combines by '"
         << stringifyCombiner(loop.getCombiner())
         << "', which has no lowering to the GPU level";
}
