//===- EmitRow.cpp - A team's row: extents and loads ------ -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The walk over a tile program, how long a row is, and where its blocks and
// tails lie in memory.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ffd;

Emitter::Emitter(func::FuncOp kernel, TileTeamsOp teams, const CpuIsa &isa)
    : kernel(kernel), teams(teams), b(teams.getLoc(), kernel, isa),
      spec(teams.getSpec()), layout(spec.getLayout()),
      group(spec.getRowHeads()), paddedDim(layout.paddedHeadDim()),
      valueDim(layout.paddedValueDim()) {}

LogicalResult Emitter::run() {
  // Fields are loaded once, at the start: the struct does not change, but LLVM
  // cannot know that the kernel's stores leave it alone.
  Value args = kernel.getArgument(0);
#define FFD_KERNEL_ARG(FIELD, KIND)                                            \
  arguments.push_back(loadKernelArg(b, b.getLoc(), args, KernelArg::FIELD));
#include "ffd/Conversion/KernelArgs.def"

  row = kernel.getArgument(1);
  split = kernel.getArgument(2);
  splits = b.sext(arg(KernelArg::splits), b.getI64Type());
  Value heads = b.sext(arg(KernelArg::kv_heads), b.getI64Type());
  sequence = b.div(row, heads);
  kvHead = b.sub(row, b.mul(sequence, heads));
  indices[teams.getRow()] = row;
  indices[teams.getSplit()] = split;
  indices[teams.getSplits()] = splits;
  bool keeps =
      teams.walk([](TileStoreKeptOp) { return WalkResult::interrupt(); })
          .wasInterrupted();
  if (keeps) {
    keptHere = b.alloca(64);
    b.store(b.i64(0), keptHere, 8);
  }
  if (failed(emitBlock(teams.getRegion().front())))
    return failure();
  if (keeps)
    addKeptCount();
  return success();
}

/// One addition per piece: threads of many pieces meet at the row's counter.
void Emitter::addKeptCount() {
  Value counts = arg(KernelArg::kept_count);
  Value wanted = LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::ne, counts,
                                      LLVM::ZeroOp::create(b, b.ptrType()));
  b.ifThen(wanted, [&] {
    LLVM::AtomicRMWOp::create(
        b, LLVM::AtomicBinOp::add, b.at(counts, b.shl(row, 3)),
        b.load(b.getI64Type(), keptHere, 8), LLVM::AtomicOrdering::monotonic,
        /*syncscope=*/StringRef(), /*alignment=*/8);
  });
}

Value Emitter::seenBy(int64_t head, const TailValue &tail) {
  const int64_t hidden = spec.getQueryTokens() - 1 - head / spec.getGroup();
  SmallVector<int64_t> lanes = llvm::to_vector(llvm::seq<int64_t>(0, 16));
  Value count =
      hidden ? b.min(tail.valid, b.sub(tail.left, b.i64(hidden))) : tail.valid;
  return b.cmp(IntCmp::slt, b.constantVector(b.getI32Type(), lanes),
               b.splat(b.trunc(count, b.getI32Type())));
}

Value Emitter::arg(KernelArg field) {
  return arguments[static_cast<unsigned>(field)];
}

LogicalResult Emitter::emitBlock(Block &block) {
  for (Operation &op : block) {
    b.setLoc(op.getLoc());
    if (failed(emitOp(&op)))
      return failure();
  }
  return success();
}

LogicalResult Emitter::emitOp(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<TileAccumulateOp, TileChooseOp, TileDistributeOp, TileDotOp,
            TileExactExtentOp, TileExtentOp, TileFinishOp, TileFullOp,
            TileInitOp, TileKeepEndsOp, TileLoadBodyOp, TileLoadKeptOp,
            TileLoadTailOp, TileLoadThumbnailOp, TileQueryOp, TileReachOp,
            TileRefineOp, TileScanOp, TileSkippedOp, TileStoreKeptOp,
            TileThresholdOp, TileToUnitsOp>([&](auto op) { return emit(op); })
      // Whoever emits a loop reads what it yields.
      .Case<TileYieldOp>([](auto) { return success(); })
      .Case<arith::ConstantOp>([&](arith::ConstantOp op) -> LogicalResult {
        auto value = dyn_cast<IntegerAttr>(op.getValue());
        if (!op.getType().isIndex() || !value)
          return op.emitOpError("cannot be lowered for the CPU inside a tile "
                                "program, expected an index constant");
        indices[op.getResult()] = b.i64(value.getInt());
        return success();
      })
      .Default([](Operation *op) {
        return op->emitOpError("cannot be lowered for the CPU inside a tile "
                               "program, expected a tile operation");
      });
}

//===--- Extents
//-----------------------------------------------------------===//

LogicalResult Emitter::emit(TileExtentOp op) {
  Value address = b.at(arg(KernelArg::lengths), b.mul(sequence, b.i64(4)));
  Value length = b.sext(b.load(b.getI32Type(), address, 4), b.getI64Type());
  Value lag = b.sext(arg(KernelArg::lag), b.getI64Type());
  Value committable = b.max(b.sub(length, lag), b.i64(0));
  Value blocks = b.div(committable, b.i64(layout.quantBlock));
  indices[op.getBlocks()] = blocks;
  indices[op.getTail()] =
      b.sub(length, b.mul(blocks, b.i64(layout.quantBlock)));
  visibleBlocks = blocks;
  return success();
}

LogicalResult Emitter::emit(TileExactExtentOp op) {
  Value address = b.at(arg(KernelArg::lengths), b.mul(sequence, b.i64(4)));
  indices[op.getTail()] =
      b.sext(b.load(b.getI32Type(), address, 4), b.getI64Type());
  return success();
}

//===--- Blocks
//------------------------------------------------------------===//

Value Emitter::slot(KernelArg plane, int64_t bytes, Value block) {
  Value entry = b.add(b.mul(sequence, arg(KernelArg::page_stride)), block);
  Value page = b.load(b.getI32Type(),
                      b.at(arg(KernelArg::page_table), b.shl(entry, 2)), 4);
  Value heads = b.sext(arg(KernelArg::kv_heads), b.getI64Type());
  Value number = b.add(b.mul(b.sext(page, b.getI64Type()), heads), kvHead);
  return b.at(arg(plane), b.mul(number, b.i64(bytes)));
}

LogicalResult Emitter::emit(TileLoadThumbnailOp op) {
  Value block = index(op.getBlock());
  ThumbnailValue thumbnail;
  thumbnail.codes = slot(KernelArg::thumbnails, layout.thumbnailBytes(), block);
  thumbnail.scales = b.at(thumbnail.codes, layout.codeBytes());
  // Pages lie anywhere, so the hardware's prefetcher loses the thread at the
  // end of each; the scan asks for the next block itself.
  thumbnail.next = thumbnail.codes;
  if (visibleBlocks) {
    Value last = b.sub(visibleBlocks, b.i64(1));
    thumbnail.next = slot(KernelArg::thumbnails, layout.thumbnailBytes(),
                          b.min(b.add(block, b.i64(1)), last));
  }
  set(op.getResult(), thumbnail);
  return success();
}

LogicalResult Emitter::emit(TileLoadBodyOp op) {
  Value block = index(op.getBlock());
  set(op.getResult(),
      BodyValue{spec.hasResiduals()
                    ? slot(KernelArg::residuals, layout.residualBytes(), block)
                    : Value(),
                slot(KernelArg::values, layout.valueBytes(), block),
                get<MaskValue>(op.getMask()).bits});
  return success();
}

//===--- Tails
//-------------------------------------------------------------===//

LogicalResult Emitter::emit(TileLoadTailOp op) {
  Value first = b.shl(index(op.getTile()), 4);
  Value left = b.sub(index(op.getTail()), first);
  Value valid = b.min(left, b.i64(::ffd::kTileTokens));
  Value token = b.add(b.add(b.mul(sequence, arg(KernelArg::tail_batch_stride)),
                            b.mul(kvHead, arg(KernelArg::tail_head_stride))),
                      first);
  Value whole = b.cmp(IntCmp::eq, valid, b.i64(::ffd::kTileTokens));

  // A tile that is not full goes through a copy padded with zeros, so that
  // nothing at or after the end is read and the arithmetic knows one shape.
  auto rows = [&](KernelArg plane, int64_t dim) {
    Value memory = b.at(arg(plane), b.mul(token, b.i64(2 * dim)));
    Value copy = b.alloca(::ffd::kTileTokens * 2 * dim);
    VectorType chunk = b.vec(b.getI16Type());
    b.ifThen(b.negate(whole), [&] {
      Value limit = b.mul(valid, b.i64(dim / 16));
      b.loop(::ffd::kTileTokens * dim / 16, [&](Value i) {
        Value offset = b.shl(i, 5);
        b.ifThen(
            b.cmp(IntCmp::slt, i, limit),
            [&] {
              b.store(b.load(chunk, b.at(memory, offset), 2),
                      b.at(copy, offset), 32);
            },
            [&] {
              b.store(b.constant(chunk, int64_t(0)), b.at(copy, offset), 32);
            });
      });
    });
    return b.select(whole, memory, copy);
  };
  set(op.getResult(),
      TailValue{rows(KernelArg::tail_k, layout.headDim),
                rows(KernelArg::tail_v, layout.valueDim), valid, left});
  return success();
}
