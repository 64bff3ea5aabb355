//===- EmitKeys.cpp - Blocks of keys that are not split -------- -*- C++
//-*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// scan_bits = 16: a block holds its keys in 16 bits, row-major, as a tail does.
// scan_c3 of docs/numerics.md.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"

using namespace mlir;
using namespace mlir::ffd;

Value Emitter::emitKeys(const QueryValue &query, Value keys, Value mask) {
  const int64_t tiles = layout.tilesPerBlock();
  const int64_t tilesPerSelect = layout.selectBlock / ::ffd::kTileTokens;
  Value logits = b.alloca(tiles * group * 64);
  b.loop(tiles, [&](Value tile) {
    auto dot = [&] {
      Value from = b.at(
          keys, b.mul(tile, b.i64(::ffd::kTileTokens * layout.headDim * 2)));
      emitDot(query, from, b.at(logits, b.mul(tile, b.i64(group * 64))));
    };
    if (!mask)
      return dot();
    Value bit = b.trunc(b.div(tile, b.i64(tilesPerSelect)), b.getI32Type());
    Value kept = b.andi(arith::ShRUIOp::create(b, mask, bit), b.i32(1));
    b.ifThen(b.cmp(IntCmp::ne, kept, b.i32(0)), dot);
  });
  return logits;
}

void Emitter::scanKeys(TileScanOp op) {
  const QueryValue &query = get<QueryValue>(op.getQuery());
  Value keys = get<ThumbnailValue>(op.getThumbnail()).codes;
  Value logits = emitKeys(query, keys, {});
  const int64_t vectors = layout.tilesPerBlock() / 2;
  ScoresValue scores{b.alloca(group * vectors * 64), vectors, {}, {}};
  if (wantsTokens(op))
    scores.tokens = b.alloca(group * vectors * 128);
  for (int64_t head = 0; head < group; ++head) {
    Value unit = b.splat(b.extract(query.unit, head));
    auto unitsOf = [&](int64_t tile) {
      Value f = b.loadF32(b.at(logits, (tile * group + head) * 64));
      return toUnits(b, math::FloorOp::create(b, b.div(f, unit)));
    };
    for (int64_t v = 0; v < vectors; ++v) {
      // Tokens g of both tiles, then tokens g + 8.
      Value first = unitsOf(v), second = unitsOf(v + vectors), halves[2];
      for (int64_t half = 0; half < 2; ++half) {
        SmallVector<int64_t> lanes;
        for (int64_t lane = 0; lane < 16; ++lane)
          lanes.push_back(lane / 8 * 16 + half * 8 + lane % 8);
        halves[half] = b.shuffle(first, second, lanes);
        if (scores.tokens)
          b.store(halves[half],
                  b.at(scores.tokens, ((head * vectors + v) * 2 + half) * 64),
                  64);
      }
      b.store(b.max(halves[0], halves[1]),
              b.at(scores.data, (head * vectors + v) * 64), 64);
    }
  }
  set(op.getResult(), scores);
}
