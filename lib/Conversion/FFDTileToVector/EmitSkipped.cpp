//===- EmitSkipped.cpp - The certificate of skipped mass ----- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cert_c1 to cert_c4 of docs/numerics.md. The scan leaves the scores of all
// tokens of a block; once its mask is known, those of tiles that are not kept
// are added up, relative to the threshold, which none of them reaches.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"

#include <limits>

using namespace mlir;
using namespace mlir::ffd;

/// What every skipped token adds, so that none is lost (cert_c3).
static constexpr float kLeast = 0x1p-126f;
/// Where exp is as good as nothing beside that.
static constexpr float kLowest = -100;

void Emitter::startSkipped(TileDistributeOp loop) {
  SkippedValue skipped{b.alloca(group * 64)};
  b.loop(group, [&](Value head) {
    b.store(b.zeros(), b.at(skipped.sums, b.shl(head, 6)), 64);
  });
  set(loop.getSkipped(), skipped);
}

LogicalResult Emitter::emit(TileSkippedOp op) {
  auto loop = dyn_cast<TileDistributeOp>(op->getParentOp());
  if (!loop || loop.getSkippedOp() != op)
    return op.emitOpError("is not what its loop yields, expected that");
  const QueryValue &query = get<QueryValue>(op.getQuery());
  const ScoresValue &scores = get<ScoresValue>(op.getScores());
  Value thresholds = get<ThresholdValue>(op.getThreshold()).data;
  Value bits = get<MaskValue>(op.getMask()).bits;
  Value sums = get<SkippedValue>(loop.getSkipped()).sums;
  if (!scores.tokens)
    return op.emitOpError("operand 'scores' is not the result of an "
                          "'ffd.tile.scan' of codes alone, expected that");
  const int64_t vectors = scores.vectors;
  const int64_t perSelect = layout.selectBlock / ::ffd::kTileTokens;
  const int64_t full = (int64_t(1) << layout.selectsPerBlock()) - 1;
  Type f32 = b.getF32Type();
  Value units = b.alloca(64);
  b.store(query.unit, units, 64);
  b.ifThen(b.cmp(IntCmp::ne, bits, b.i32(full)), [&] {
    b.loop(group, [&](Value head) {
      Value lane = b.shl(head, 2);
      Value threshold =
          b.splat(b.load(b.getI32Type(), b.at(thresholds, lane), 4));
      Value unit = b.load(f32, b.at(units, lane), 4);
      Value correction = b.zeros();
      if (op.getNoise()) {
        Value sixth = b.mul(b.mul(unit, unit), b.f32(1.0f / 6));
        correction =
            b.splat(b.mul(sixth, b.load(f32, b.at(scores.squares, lane), 4)));
      }
      Value place = b.at(sums, b.shl(head, 6)), sum = b.loadF32(place);
      Value tokens = b.at(scores.tokens, b.mul(head, b.i64(vectors * 128)));
      for (int64_t v = 0; v < vectors; ++v) {
        // Lanes 0 to 7 belong to tile v, the others to the tile four further.
        Value kept;
        for (int64_t half : {0, 1}) {
          const int64_t bit = (v + half * vectors) / perSelect;
          Value some = b.cmp(IntCmp::ne, b.andi(bits, b.i32(int64_t(1) << bit)),
                             b.i32(0));
          Value lanes = b.andi(
              b.splat(some),
              b.constantVector(b.getI1Type(),
                               llvm::map_to_vector(llvm::seq<int64_t>(0, 16),
                                                   [&](int64_t i) -> int64_t {
                                                     return i / 8 == half;
                                                   })));
          kept = kept ? b.ori(kept, lanes) : lanes;
        }
        for (int64_t half : {0, 1}) {
          Value a = b.loadI32(b.at(tokens, (2 * v + half) * 64));
          Value below = b.mul(b.toFloat(b.sub(a, threshold)), b.splat(unit));
          below = b.max(b.sub(below, correction), b.splat(b.f32(kLowest)));
          // Of kept tokens, whose exp may be anything, nothing is taken.
          below = b.min(below, b.zeros());
          Value mass = b.add(b.exp(below), b.splat(b.f32(kLeast)));
          sum = b.add(sum, b.select(kept, b.zeros(), mass));
        }
      }
      b.store(sum, place, 64);
    });
  });
  set(op.getResult(), SkippedValue{sums});
  return success();
}

void Emitter::writeSkipped(Value head, Value sum, TileFinishOp op,
                           const QueryValue *centred) {
  TileSkippedOp skipped =
      op.getSkipped().getDefiningOp<TileDistributeOp>().getSkippedOp();
  const QueryValue &query = get<QueryValue>(skipped.getQuery());
  Value thresholds = get<ThresholdValue>(skipped.getThreshold()).data;
  Value to = arg(KernelArg::skipped_lse);
  Value wanted = LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::ne, to,
                                      LLVM::ZeroOp::create(b, b.ptrType()));
  b.ifThen(wanted, [&] {
    Value lane = b.shl(head, 2);
    Value units = b.alloca(64);
    b.store(query.unit, units, 64);
    Value unit = b.load(b.getF32Type(), b.at(units, lane), 4);
    Value threshold = b.load(b.getI32Type(), b.at(thresholds, lane), 4);
    Value result = b.add(b.mul(unit, b.toFloat(threshold)),
                         b.extract(b.log(b.splat(sum)), 0));
    if (centred)
      result = b.add(result, centreScore(head, *centred));
    Value nothing = b.cmp(FloatCmp::OEQ, sum, b.f32(0));
    const float infinity = std::numeric_limits<float>::infinity();
    b.store(b.select(nothing, b.f32(-infinity), result),
            b.at(to, b.shl(outputNumber(head), 2)), 4);
  });
}
