//===- EmitSelect.cpp - Thresholds and masks ---------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// select_c1 to select_c4 of docs/numerics.md: tail scores in scan units, the
// threshold, and which selection blocks reach it.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"

using namespace mlir;
using namespace mlir::ffd;

/// Scores lie within +-2^30.
static constexpr double kBound = 0x1p30;

Value mlir::ffd::toUnits(VectorBuilder &b, Value x) {
  x = b.max(x, b.constant(x.getType(), -kBound));
  return b.toInt(b.min(x, b.constant(x.getType(), kBound)));
}

LogicalResult Emitter::emit(TileToUnitsOp op) {
  const QueryValue &query = get<QueryValue>(op.getQuery());
  Value logits = get<LogitsValue>(op.getLogits()).data;
  auto dot = op.getLogits().getDefiningOp<TileDotOp>();
  if (!dot)
    return op.emitOpError("operand 'logits' is not the result of "
                          "'ffd.tile.dot', expected scores of tail tokens");
  const TailValue tail = get<TailValue>(dot.getTail());
  Value data = b.alloca(group * 64);
  Value lowest = b.constant(b.vec(b.getI32Type()), int64_t(-kBound));
  Value bad;
  for (int64_t head = 0; head < group; ++head) {
    Value exists = seenBy(head, tail);
    Value f = b.loadF32(b.at(logits, head * 64));
    Value units = math::FloorOp::create(
        b, b.div(f, b.splat(b.extract(query.unit, head))));
    b.store(b.select(exists, toUnits(b, units), lowest), b.at(data, head * 64),
            64);
    Value here = b.andi(b.notFinite(f), exists);
    bad = bad ? b.ori(bad, here) : here;
  }
  bad = b.bitcast(b.getI16Type(), bad);
  bad = b.cmp(IntCmp::ne, bad, b.constant(b.getI16Type(), int64_t(0)));
  set(op.getResult(), ScoresValue{data, 1, {}, bad, {}});
  return success();
}

LogicalResult Emitter::emit(TileThresholdOp op) {
  const QueryValue &query = get<QueryValue>(op.getQuery());
  const RowMaxValue &rowMax = get<RowMaxValue>(op.getRowMax());
  Value delta = b.load(b.getF32Type(),
                       b.at(arg(KernelArg::delta), b.shl(sequence, 2)), 4);
  // All heads at once, lane = head.
  Value quotient = b.div(b.splat(delta), query.unit);
  Value distance = math::CeilOp::create(b, quotient);
  distance = toUnits(b, distance);
  Value threshold = b.sub(b.loadI32(rowMax.data), distance);
  VectorType words = b.vec(b.getI32Type());
  threshold = b.min(b.max(threshold, b.constant(words, int64_t(-kBound))),
                    b.constant(words, int64_t(kBound)));

  Value bad =
      b.cmp(IntCmp::ne, b.load(b.getI32Type(), rowMax.bad, 4), b.i32(0));
  Value row = b.ori(b.ori(query.nonFinite, bad),
                    b.negate(b.cmp(FloatCmp::OGE, delta, b.f32(0))));
  Value head =
      b.ori(b.notFinite(query.unit),
            b.negate(b.cmp(FloatCmp::OLT, quotient, b.splat(b.f32(kBound)))));
  // Scores of a row with bad numbers mean nothing, so here the threshold that
  // keeps everything is below every integer.
  Value all = b.constant(words, int64_t(INT32_MIN));
  Value data = b.alloca(64);
  b.store(b.select(b.ori(head, b.splat(row)), all, threshold), data, 64);
  set(op.getResult(), ThresholdValue{data});
  return success();
}

LogicalResult Emitter::emit(TileReachOp op) {
  const ScoresValue &scores = get<ScoresValue>(op.getScores());
  Value thresholds = get<ThresholdValue>(op.getThreshold()).data;
  SmallVector<Value> threshold;
  for (int64_t head = 0; head < group; ++head)
    threshold.push_back(
        b.splat(b.load(b.getI32Type(), b.at(thresholds, 4 * head), 4)));
  // Vector v holds tile v in its lower and tile v + 4 in its upper half.
  const int64_t tiles = layout.selectBlock / ::ffd::kTileTokens;
  const int64_t vectors = std::min(tiles, scores.vectors);
  Value bits = b.i32(0);
  auto keep = [&](Value lanes, int64_t mask, int64_t select) {
    Value some = b.andi(lanes, b.constant(lanes.getType(), mask));
    Value any =
        b.cmp(IntCmp::ne, some, b.constant(lanes.getType(), int64_t(0)));
    bits = b.ori(bits, b.select(any, b.i32(int64_t(1) << select), b.i32(0)));
  };
  for (int64_t first = 0; first < scores.vectors; first += vectors) {
    Value any;
    for (int64_t head = 0; head < group; ++head) {
      Value top;
      for (int64_t v = first; v < first + vectors; ++v) {
        Value a =
            b.loadI32(b.at(scores.data, (head * scores.vectors + v) * 64));
        top = top ? b.max(top, a) : a;
      }
      Value here = b.cmp(IntCmp::sge, top, threshold[head]);
      any = any ? b.ori(any, here) : here;
    }
    Value lanes = b.bitcast(b.getI16Type(), any);
    if (tiles > scores.vectors) {
      keep(lanes, 0xFFFF, 0);
      continue;
    }
    keep(lanes, 0x00FF, first / tiles);
    keep(lanes, 0xFF00, (first + scores.vectors) / tiles);
  }
  set(op.getResult(), MaskValue{bits});
  return success();
}

LogicalResult Emitter::emit(TileFullOp op) {
  set(op.getResult(),
      MaskValue{b.i32((int64_t(1) << layout.selectsPerBlock()) - 1)});
  return success();
}

LogicalResult Emitter::emit(TileKeepEndsOp op) {
  Value bits = get<MaskValue>(op.getMask()).bits;
  Value block = index(op.getBlock());
  Value last = b.sub(index(op.getBlocks()), b.i64(1));
  auto keep = [&](Value at, int64_t select) {
    Value more = b.ori(bits, b.i32(int64_t(1) << select));
    bits = b.select(b.cmp(IntCmp::eq, block, at), more, bits);
  };
  keep(b.i64(0), 0);
  keep(last, layout.selectsPerBlock() - 1);
  set(op.getResult(), MaskValue{bits});
  return success();
}

LogicalResult Emitter::emit(TileStoreKeptOp op) {
  Value bits = get<MaskValue>(op.getMask()).bits;
  Value count = LLVM::CtPopOp::create(b, b.getI32Type(), bits);
  b.store(
      b.add(b.load(b.getI64Type(), keptHere, 8), b.zext(count, b.getI64Type())),
      keptHere, 8);
  Value kept = arg(KernelArg::kept);
  Value wanted = LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::ne, kept,
                                      LLVM::ZeroOp::create(b, b.ptrType()));
  Value block = index(op.getBlock());
  b.ifThen(wanted, [&] {
    Value offset = b.add(b.mul(row, arg(KernelArg::kept_stride)),
                         b.mul(block, b.i64(layout.selectsPerBlock())));
    Value to = b.at(kept, offset);
    for (int64_t j = 0; j < layout.selectsPerBlock(); ++j)
      b.store(b.trunc(b.andi(b.shr(bits, j), b.i32(1)), b.getI8Type()),
              b.at(to, j), 1);
  });
  return success();
}

LogicalResult Emitter::emit(TileLoadKeptOp op) {
  Value block = index(op.getBlock());
  Value offset = b.add(b.mul(row, arg(KernelArg::kept_stride)),
                       b.mul(block, b.i64(layout.selectsPerBlock())));
  Value from = b.at(arg(KernelArg::kept), offset);
  Value bits = b.i32(0);
  for (int64_t j = 0; j < layout.selectsPerBlock(); ++j) {
    Value byte = b.load(b.getI8Type(), b.at(from, j), 1);
    Value keep = b.cmp(IntCmp::ne, byte, b.constant(b.getI8Type(), int64_t(0)));
    bits = b.ori(bits, b.select(keep, b.i32(int64_t(1) << j), b.i32(0)));
  }
  set(op.getResult(), MaskValue{bits});
  return success();
}
