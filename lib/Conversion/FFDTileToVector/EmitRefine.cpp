//===- EmitRefine.cpp - Refined scores of kept tokens ------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// attend_c1 of docs/numerics.md: thumbnail and residual together are a 16-bit
// integer, whose product with q * s is accumulated in f32 without rounding
// either factor further. One permutation brings 64 bytes of a plane from the
// order of mma lanes into that of channels.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"

using namespace mlir;
using namespace mlir::ffd;

/// Lane 4i + tq of the result is word i of lane tq.
static SmallVector<int64_t> registerOrder() {
  SmallVector<int64_t> indices;
  for (int64_t lane = 0; lane < 16; ++lane)
    indices.push_back(lane % 4 * 4 + lane / 4);
  return indices;
}

/// The thumbnail codes of channel group `channelGroup` of tokens g and g + 8, a
/// byte each: quarter i is register i, channels ascending within it. `codes`
/// points to the words of lane 4g in the block's first chunk.
static Value loadThumbnail(VectorBuilder &b, const ::ffd::Layout &layout,
                           Value codes, Value tile, int64_t channelGroup) {
  VectorType words = b.vec(b.getI32Type());
  const int64_t perTile = layout.wordsPerTile();
  const int64_t chunkBytes = ::ffd::kLanes * 16;
  SmallVector<int64_t> shifts;
  Value result;
  for (int64_t i = 0; i < 4; ++i) {
    int64_t word = layout.codeWord(channelGroup, i), position;
    Value from;
    if (perTile % 4 == 0) {
      position = word % 4;
      Value chunk = b.add(b.mul(tile, b.i64(perTile / 4)), b.i64(word / 4));
      from = b.at(codes, b.mul(chunk, b.i64(chunkBytes)));
    } else {
      // The position varies with the tile: start the load there. It ends up to
      // 12 bytes behind the lane, in the worst case in the block's scales.
      position = 0;
      Value n = b.add(b.mul(tile, b.i64(perTile)), b.i64(word));
      from = b.at(codes, b.add(b.mul(b.shr(n, 2), b.i64(chunkBytes)),
                               b.shl(b.andi(n, b.i64(3)), 2)));
    }
    Value loaded = b.load(words, from, 4);
    SmallVector<int64_t> pick;
    for (int64_t lane = 0; lane < 16; ++lane) {
      bool here = lane / 4 >= i;
      pick.push_back(here ? 16 + lane % 4 * 4 + position : lane);
    }
    // Later registers overwrite the quarters behind them.
    result = b.shuffle(result ? result : loaded, loaded, pick);
    shifts.append(4, layout.codeBit(channelGroup, i));
  }
  if (layout.scanBits == 8)
    return result;
  result = arith::ShRUIOp::create(b, result,
                                  b.constantVector(b.getI32Type(), shifts));
  return b.andi(result, b.constant(words, ((1 << layout.scanBits) - 1) *
                                              int64_t(0x01010101)));
}

/// The codes x - 2^(b+7) of the same tokens and channels, in the same order:
/// vector<64xi16>. `residual` points to lane 4g of the tile's residuals;
/// without residuals, x is 256 t.
static Value loadCodes(VectorBuilder &b, const ::ffd::Layout &layout,
                       Value residual, Value codes, Value tile,
                       int64_t channelGroup) {
  Type bytes = b.vec(b.getI8Type(), 64);
  Value r = b.constant(b.vec(b.getI32Type()), int64_t(0));
  if (layout.residualBits)
    r = b.shuffle(b.load(r.getType(),
                         b.at(residual, channelGroup * ::ffd::kLanes * 16), 16),
                  registerOrder());
  Value t = loadThumbnail(b, layout, codes, tile, channelGroup);
  SmallVector<int64_t> interleave;
  for (int64_t i = 0; i < 64; ++i)
    interleave.append({i, 64 + i});
  Value x = b.bitcast(
      b.vec(b.getI16Type(), 64),
      b.shuffle(b.bitcast(bytes, r), b.bitcast(bytes, t), interleave));
  return b.sub(x, b.constant(x.getType(), int64_t(1) << (layout.scanBits + 7)));
}

LogicalResult Emitter::emit(TileRefineOp op) {
  const QueryValue &query = get<QueryValue>(op.getQuery());
  const ThumbnailValue &thumbnail = get<ThumbnailValue>(op.getThumbnail());
  const BodyValue &body = get<BodyValue>(op.getBody());
  if (spec.scansKeys()) {
    set(op.getResult(),
        LogitsValue{emitKeys(query, thumbnail.codes, body.mask)});
    return success();
  }
  const int64_t chunks = layout.headDim / 16;
  const int64_t tiles = layout.tilesPerBlock();

  // k~ = s * (x + 0.5 - 2^(b+7)) / 256, so with w = q * s * sm_scale / 256 a
  // score is sum w * (x - 2^(b+7)) + sum w / 2. The last part starts the sums.
  // Without residuals k~ = s * (t + 0.5 - 2^(b-1)): sum w * 128 in its place.
  Value weights = b.alloca(group * paddedDim * 4);
  Value starts = b.alloca(group * 64);
  Value scaleBuffer = b.alloca(paddedDim * 4);
  for (int64_t v = 0; v < paddedDim / 16; v += 2) {
    Value s[2];
    for (int64_t half = 0; half < 2; ++half)
      s[half] = b.widen(b.load(b.vec(b.getI16Type()),
                               b.at(thumbnail.scales, 32 * (v + half)), 2),
                        spec.isBF16());
    for (int64_t half = 0; half < 2; ++half) {
      SmallVector<int64_t> indices;
      for (int64_t c = 0; c < 16; ++c)
        indices.push_back(::ffd::Layout::scaleIndex(16 * half + c));
      b.store(b.shuffle(s[0], s[1], indices),
              b.at(scaleBuffer, 64 * (v + half)), 64);
    }
  }
  Value factor = b.splat(b.mul(query.smScale, b.f32(1.0f / 256)));
  b.loop(group, [&](Value head) {
    Value offset = b.mul(head, b.i64(paddedDim * 4));
    Value start;
    for (int64_t v = 0; v < chunks; ++v) {
      Value q = b.loadF32(b.at(b.at(query.natural, offset), 64 * v));
      Value w = b.mul(b.mul(q, factor), b.loadF32(b.at(scaleBuffer, 64 * v)));
      b.store(w, b.at(b.at(weights, offset), 64 * v), 64);
      start = start ? b.add(start, w) : w;
    }
    b.store(b.mul(start, b.splat(b.f32(spec.hasResiduals() ? 0.5 : 128))),
            b.at(starts, b.shl(head, 6)), 64);
  });

  Value logits = b.alloca(tiles * group * 64);
  Value folded = b.alloca(group * 8 * 64);
  const int64_t tilesPerSelect = layout.selectBlock / ::ffd::kTileTokens;
  b.loop(tiles, [&](Value tile) {
    Value bit = b.trunc(b.div(tile, b.i64(tilesPerSelect)), b.getI32Type());
    Value kept = b.andi(arith::ShRUIOp::create(b, body.mask, bit), b.i32(1));
    b.ifThen(b.cmp(IntCmp::ne, kept, b.i32(0)), [&] {
      Value residuals;
      if (layout.residualBits)
        residuals = b.at(body.residuals,
                         b.mul(tile, b.i64(layout.residualTileBytes())));
      b.loop(8, [&](Value g) {
        Value lane = b.shl(g, 6);
        Value residual = residuals ? b.at(residuals, lane) : Value();
        Value codes = b.at(thumbnail.codes, lane);
        // Two sums per head stay in registers.
        b.headGroups(group, /*atOnce=*/4, [&](Value first, int64_t heads) {
          SmallVector<std::array<Value, 2>> sums; // tokens g and g + 8
          for (int64_t h = 0; h < heads; ++h) {
            Value start =
                b.loadF32(b.at(b.at(starts, b.shl(first, 6)), h * 64));
            sums.push_back({start, start});
          }
          Value ours = b.at(weights, b.mul(first, b.i64(paddedDim * 4)));
          for (int64_t j = 0; j < layout.channelGroups(); ++j) {
            Value x = loadCodes(b, layout, residual, codes, tile, j);
            for (int64_t i = 0; i < 4; ++i) {
              int64_t chunk = 2 * j + i / 2;
              if (chunk >= chunks)
                continue;
              Value f =
                  b.toFloat(b.sext(b.slice(x, 16 * i, 16), b.getI32Type()));
              for (int64_t h = 0; h < heads; ++h) {
                Value w =
                    b.loadF32(b.at(ours, (h * paddedDim + chunk * 16) * 4));
                sums[h][i % 2] = b.fma(w, f, sums[h][i % 2]);
              }
            }
          }
          Value to = b.at(b.at(folded, b.shl(first, 9)), lane);
          for (int64_t h = 0; h < heads; ++h)
            b.store(b.foldPair(sums[h][0], sums[h][1], 8), b.at(to, h * 512),
                    64);
        });
      });
      Value to = b.at(logits, b.mul(tile, b.i64(group * 64)));
      b.loop(group, [&](Value head) {
        Value from = b.at(folded, b.shl(head, 9));
        auto leaf = [&](int64_t g) -> SmallVector<Value> {
          return {b.loadF32(b.at(from, g * 64))};
        };
        b.store(b.foldTree(leaf, 1, 0, 8)[0], b.at(to, b.shl(head, 6)), 64);
      });
    });
  });
  set(op.getResult(), LogitsValue{logits});
  return success();
}
