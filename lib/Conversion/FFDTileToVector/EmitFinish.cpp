//===- EmitFinish.cpp - Results, and the merge of pieces ----- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// attend_c2 to attend_c4 of docs/numerics.md. With several pieces per row, each
// team leaves its state in the workspace (Layout::partialsOffset) and counts
// itself; the last to arrive merges all in ascending order and leaves the
// counter at zero for the next launch.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"

#include <limits>

using namespace mlir;
using namespace mlir::ffd;

static constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The outputs of one head, in plain order, and returns the sum of its weights.
Value Emitter::collapse(const StateValue &state, Value head, Value out) {
  for (int64_t m = 0; m < valueDim / 16; ++m) {
    Value result = b.loadF32(
        b.at(b.at(state.plain, b.mul(head, b.i64(valueDim * 4))), m * 64));
    if (state.hasFragments) {
      Value from = b.at(state.fragments, b.mul(head, b.i64(valueDim * 32)));
      // Lanes of odd words belong to dim + 8.
      auto leaf = [&](int64_t dim) -> SmallVector<Value> {
        Value sum = b.loadF32(b.at(from, (m * 8 + dim % 8) * 64));
        SmallVector<int64_t> lanes;
        for (int64_t lane = 0; lane < 16; ++lane)
          lanes.push_back(lane / 2 % 2 == dim / 8);
        return {
            b.select(b.constantVector(b.getI1Type(), lanes), sum, b.zeros())};
      };
      result = b.add(result, b.foldTree(leaf)[0]);
    }
    b.store(result, b.at(out, m * 64), 4);
  }
  return b.reduceAdd(b.loadF32(b.at(state.sums, b.shl(head, 6))));
}

/// centre_c4: what lse of a head lacks where keys are relative to the centre.
Value Emitter::centreScore(Value head, const QueryValue &query) {
  Value centre =
      b.at(arg(KernelArg::centre), b.mul(row, b.i64(2 * layout.headDim)));
  Value q = b.at(query.natural, b.mul(head, b.i64(paddedDim * 4)));
  Value sum = b.zeros();
  for (int64_t c = 0; c < layout.headDim; c += 16) {
    Value part = b.widen(b.load(b.vec(b.getI16Type()), b.at(centre, 2 * c), 2),
                         spec.isBF16());
    sum = b.fma(b.loadF32(b.at(q, 4 * c)), part, sum);
  }
  return b.mul(query.smScale, b.reduceAdd(sum));
}

Value Emitter::outputNumber(Value head) {
  const int64_t tokens = spec.getQueryTokens(), perToken = spec.getGroup();
  if (tokens == 1)
    return b.add(b.mul(row, b.i64(group)), head);
  Value token = b.div(head, b.i64(perToken));
  Value inToken = b.sub(head, b.mul(token, b.i64(perToken)));
  Value heads =
      b.mul(b.sext(arg(KernelArg::kv_heads), b.getI64Type()), b.i64(perToken));
  return b.add(b.mul(b.add(b.mul(sequence, b.i64(tokens)), token), heads),
               b.add(b.mul(kvHead, b.i64(perToken)), inToken));
}

/// Writes output and lse of one head of this row.
void Emitter::writeResult(Value head, Value outputs, Value reference, Value sum,
                          const QueryValue *centred) {
  Value empty = b.cmp(FloatCmp::OEQ, reference, b.f32(-kInfinity));
  Value number = outputNumber(head);
  if (const int64_t tokens = spec.getQueryTokens(); tokens > 1) {
    // A query token from before the sequence sees nothing, in tiles that others
    // see.
    Value token = b.div(head, b.i64(spec.getGroup()));
    Value address = b.at(arg(KernelArg::lengths), b.shl(sequence, 2));
    Value length = b.sext(b.load(b.getI32Type(), address, 4), b.getI64Type());
    empty = b.cmp(IntCmp::sle, b.add(length, token), b.i64(tokens - 1));
  }
  Value to =
      b.at(arg(KernelArg::out), b.mul(number, b.i64(layout.valueDim * 4)));
  for (int64_t m = 0; m < layout.valueDim / 16; ++m) {
    Value o = b.div(b.load(b.vec(b.getF32Type()), b.at(outputs, m * 64), 4),
                    b.splat(sum));
    b.store(b.select(empty, b.zeros(), o), b.at(to, m * 64), 4);
  }
  Value lse = arg(KernelArg::lse);
  Value wanted = LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::ne, lse,
                                      LLVM::ZeroOp::create(b, b.ptrType()));
  b.ifThen(wanted, [&] {
    Value log = b.extract(b.log(b.splat(sum)), 0);
    Value nothing = b.ori(empty, b.cmp(FloatCmp::OEQ, sum, b.f32(0)));
    Value result = b.add(reference, log);
    if (centred)
      result = b.add(result, centreScore(head, *centred));
    b.store(b.select(nothing, b.f32(-kInfinity), result),
            b.at(lse, b.shl(number, 2)), 4);
  });
}

LogicalResult Emitter::emit(TileFinishOp op) {
  const StateValue state = get<StateValue>(op.getState());
  const QueryValue *centred =
      op.getCache() ? &get<QueryValue>(op.getQuery()) : nullptr;
  Type f32 = b.getF32Type();
  const int64_t headBytes = layout.partialFloats() * 4;
  const int64_t sumOffset = valueDim * 4 + 4, referenceOffset = valueDim * 4,
                skippedOffset = valueDim * 4 + 8;
  const bool certified = bool(op.getSkipped());
  auto skippedOf = [&](Value head) {
    return b.reduceAdd(b.loadF32(
        b.at(get<SkippedValue>(op.getSkipped()).sums, b.shl(head, 6))));
  };
  Value outputs = b.alloca(valueDim * 4);
  auto referenceOf = [&](Value head) {
    return b.load(f32, b.at(state.reference, b.shl(head, 2)), 4);
  };

  Value alone = b.cmp(IntCmp::eq, splits, b.i64(1));
  auto finishAlone = [&] {
    b.loop(group, [&](Value head) {
      Value sum = collapse(state, head, outputs);
      writeResult(head, outputs, referenceOf(head), sum, centred);
      if (certified)
        writeSkipped(head, skippedOf(head), op, centred);
    });
  };

  auto finishShared = [&] {
    Value workspace = arg(KernelArg::workspace);
    Value rows = b.mul(b.sext(arg(KernelArg::batch), b.getI64Type()),
                       b.sext(arg(KernelArg::kv_heads), b.getI64Type()));
    Value counters = b.andi(b.add(b.shl(rows, 2), b.i64(127)), b.i64(-128));
    Value pieceBytes = b.i64(group * headBytes);
    Value pieces =
        b.at(b.at(workspace, counters), b.mul(b.mul(row, splits), pieceBytes));
    Value mine = b.at(pieces, b.mul(split, pieceBytes));
    b.loop(group, [&](Value head) {
      Value to = b.at(mine, b.mul(head, b.i64(headBytes)));
      Value sum = collapse(state, head, to);
      b.store(referenceOf(head), b.at(to, referenceOffset), 4);
      b.store(sum, b.at(to, sumOffset), 4);
      if (certified)
        b.store(skippedOf(head), b.at(to, skippedOffset), 4);
    });

    Value counter = b.at(workspace, b.shl(row, 2));
    Value before = LLVM::AtomicRMWOp::create(
        b, LLVM::AtomicBinOp::add, counter, b.i32(1),
        LLVM::AtomicOrdering::acq_rel, /*syncscope=*/StringRef(),
        /*alignment=*/4);
    Value last = b.cmp(IntCmp::eq, b.sext(before, b.getI64Type()),
                       b.sub(splits, b.i64(1)));
    b.ifThen(last, [&] {
      b.store(b.i32(0), counter, 4);
      b.loop(group, [&](Value head) {
        Value heads = b.at(pieces, b.mul(head, b.i64(headBytes)));
        auto piece = [&](Value s) { return b.at(heads, b.mul(s, pieceBytes)); };
        Value top = b.alloca(64), total = b.alloca(64);
        b.store(b.f32(-kInfinity), top, 4);
        b.loop(b.i64(0), splits, [&](Value s) {
          Value reference = b.load(f32, b.at(piece(s), referenceOffset), 4);
          b.store(b.max(reference, b.load(f32, top, 4)), top, 4);
        });
        Value reference = b.load(f32, top, 4);
        b.store(b.f32(0), total, 4);
        for (int64_t m = 0; m < valueDim / 16; ++m)
          b.store(b.zeros(), b.at(outputs, m * 64), 64);
        b.loop(b.i64(0), splits, [&](Value s) {
          Value from = piece(s);
          Value other = b.load(f32, b.at(from, referenceOffset), 4);
          Value sum = b.load(f32, b.at(from, sumOffset), 4);
          Value weight = b.exp(b.splat(b.sub(other, reference)));
          weight = b.select(b.cmp(FloatCmp::OEQ, other, b.f32(-kInfinity)),
                            b.zeros(), weight); // an empty piece
          b.store(b.fma(b.extract(weight, 0), sum, b.load(f32, total, 4)),
                  total, 4);
          for (int64_t m = 0; m < valueDim / 16; ++m) {
            Value o = b.load(b.vec(f32), b.at(from, m * 64), 4);
            Value place = b.at(outputs, m * 64);
            b.store(b.fma(weight, o, b.loadF32(place)), place, 64);
          }
        });
        writeResult(head, outputs, reference, b.load(f32, total, 4), centred);
        if (!certified)
          return;
        b.store(b.f32(0), total, 4);
        b.loop(b.i64(0), splits, [&](Value s) {
          Value part = b.load(f32, b.at(piece(s), skippedOffset), 4);
          b.store(b.add(b.load(f32, total, 4), part), total, 4);
        });
        writeSkipped(head, b.load(f32, total, 4), op, centred);
      });
    });
  };
  b.ifThen(alone, finishAlone, finishShared);
  return success();
}
