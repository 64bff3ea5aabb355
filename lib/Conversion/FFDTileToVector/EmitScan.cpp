//===- EmitScan.cpp - The integer scan of a block ---------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// scan_c1 and scan_c2 of docs/numerics.md. 64 bytes of codes are the four lanes
// tq of one g, four words each: 16 words (tq, position). Every field of a word
// belongs to one token (g or g + 8) and one half of a channel group, so the
// folded query is brought into the same (tq, position) order once per block, as
// *patterns*, and the scan is shifts, masks and dot products. Sums across tq and
// position are folded as in tail_c1's tree, which leaves tokens in order.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"

#include <numeric>

using namespace mlir;
using namespace mlir::ffd;

namespace {

/// How the words of a lane fall into chunks of four, for one layout.
struct ScanShape {
  explicit ScanShape(const ::ffd::Layout &layout)
      : layout(layout), words(layout.wordsPerTile()),
        fields(layout.fieldsPerByte()), whole(words % 4 == 0),
        phases(words / std::gcd(words, int64_t(4))),
        halves(fields == 4 ? 2 : 1) {}

  const ::ffd::Layout &layout;
  int64_t words;  ///< of a lane in a tile
  int64_t fields; ///< codes that share a byte
  bool whole;     ///< chunks do not straddle tiles
  int64_t phases; ///< chunks after which (chunk, position) -> word repeats
  int64_t halves; ///< patterns per phase: one per half of a channel group
                  ///< where one word holds both

  int64_t patterns() const { return phases * halves; }
  /// Which of the phase's patterns a field needs.
  int64_t halfOf(int64_t field) const { return halves == 2 ? field / 2 : 0; }

  /// The word of the folded query (in scale order) that belongs at `lane` of a
  /// pattern.
  int64_t source(int64_t phase, int64_t half, int64_t lane) const {
    int64_t tq = lane / 4, word = (4 * phase + lane % 4) % words;
    int64_t place = word * fields + (halves == 2 ? 2 * half : 0);
    int64_t channelGroup = place / 4, r = place % 4 / 2;
    return (channelGroup * 4 + tq) * 2 + r;
  }
};

/// The folded query of one head: patterns [hi, lo][pattern], 64 bytes each.
struct Patterns {
  Value data; ///< [G][patterns][hi, lo] 64 bytes
  Value bias; ///< i32 [16], lane = head: -2L * sum Q
};

} // namespace

/// Picks 16 words of many: `indices` run through the concatenated vectors.
static Value pickWords(VectorBuilder &b, ArrayRef<Value> vectors,
                       ArrayRef<int64_t> indices) {
  Value result;
  SmallVector<int64_t> from(16, -1);
  for (auto [v, vector] : llvm::enumerate(vectors)) {
    SmallVector<int64_t> step(16);
    bool used = false;
    for (int64_t lane = 0; lane < 16; ++lane) {
      bool here = indices[lane] / 16 == int64_t(v);
      used |= here;
      step[lane] = here ? 16 + indices[lane] % 16 : lane;
    }
    if (!used)
      continue;
    if (result) {
      result = b.shuffle(result, vector, step);
      continue;
    }
    for (int64_t lane = 0; lane < 16; ++lane)
      step[lane] = indices[lane] / 16 == int64_t(v) ? indices[lane] % 16 : 0;
    result = b.shuffle(vector, step);
  }
  return result;
}

/// scan_c1 for all heads.
static Patterns foldScales(VectorBuilder &b, const ScanShape &shape,
                           const QueryValue &query, Value scales, SpecAttr spec,
                           int64_t group) {
  const int64_t dim = shape.layout.paddedHeadDim(), vectors = dim / 16;
  Patterns patterns{b.alloca(group * shape.patterns() * 128), b.alloca(64)};

  Value scaleBuffer = b.alloca(dim * 4);
  for (int64_t v = 0; v < vectors; ++v) {
    Value s = b.widen(
        b.load(b.vec(b.getI16Type()), b.at(scales, 32 * v), 2), spec.isBF16());
    if (spec.isBF16())
      s = b.roundToF16(b.mul(s, b.splat(query.rescale)));
    b.store(s, b.at(scaleBuffer, 64 * v), 64);
  }

  b.loop(group, [&](Value head) {
    Value power =
        b.splat(b.load(b.getF32Type(), b.at(query.power, b.shl(head, 2)), 4));
    Value qh = b.at(query.quantised, b.mul(head, b.i64(dim * 4)));
    // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves
    // it in the low bits; only the low byte is used, so NaN gives some byte and
    // nothing undefined (such a row keeps everything anyway).
    Value magic = b.splat(b.f32(12582912));
    SmallVector<Value> hi, lo; // words in scale order
    SmallVector<Value> hiBits, loBits;
    VectorType words = b.vec(b.getI32Type());
    for (int64_t v = 0; v < vectors; ++v) {
      Value s = b.loadF32(b.at(scaleBuffer, 64 * v));
      Value product =
          b.roundToF16(b.mul(b.loadF32(b.at(qh, 64 * v)), s));
      Value y = b.mul(product, power);
      Value shifted = b.add(y, magic);
      hiBits.push_back(b.bitcast(words, shifted));
      Value rest = b.sub(y, b.sub(shifted, magic));
      loBits.push_back(
          b.bitcast(words, b.fma(rest, b.splat(b.f32(128)), magic)));
    }
    auto pack = [&](SmallVector<Value> &bits, SmallVector<Value> &packed) {
      while (bits.size() % 4)
        bits.push_back(b.constant(words, int64_t(0)));
      for (size_t v = 0; v < bits.size(); v += 4)
        packed.push_back(b.bitcast(
            words, b.trunc(b.concat(ArrayRef<Value>(bits).slice(v, 4)),
                           b.getI8Type())));
    };
    pack(hiBits, hi);
    pack(loBits, lo);

    // sum Q, from the packed bytes.
    Type bytes = b.vec(b.getI8Type(), 64);
    auto total = [&](ArrayRef<Value> packed) {
      SmallVector<VectorBuilder::DotTerm> terms;
      for (Value word : packed)
        terms.push_back({b.constant(bytes, int64_t(1)), b.bitcast(bytes, word)});
      return b.dot(terms, 1);
    };
    Value sum = b.reduceAdd(b.add(b.shl(total(hi), 7), total(lo)));
    b.store(b.mul(sum, b.i32(-spec.getTwiceL())),
            b.at(patterns.bias, b.shl(head, 2)), 4);

    Value to =
        b.at(patterns.data, b.mul(head, b.i64(shape.patterns() * 128)));
    for (int64_t phase = 0; phase < shape.phases; ++phase)
      for (int64_t half = 0; half < shape.halves; ++half) {
        SmallVector<int64_t> indices;
        for (int64_t lane = 0; lane < 16; ++lane)
          indices.push_back(shape.source(phase, half, lane));
        int64_t offset = (phase * shape.halves + half) * 128;
        b.store(pickWords(b, hi, indices), b.at(to, offset), 64);
        b.store(pickWords(b, lo, indices), b.at(to, offset + 64), 64);
      }
  });
  return patterns;
}

/// The fields of 64 bytes of codes, as bytes.
static SmallVector<Value> splitFields(VectorBuilder &b, const ScanShape &shape,
                                      Value codes) {
  Type bytes = b.vec(b.getI8Type(), 64);
  if (shape.fields == 1)
    return {b.bitcast(bytes, codes)};
  const int64_t bits = shape.layout.scanBits;
  const int64_t mask = ((1 << bits) - 1) * 0x01010101;
  SmallVector<Value> fields;
  for (int64_t f = 0; f < shape.fields; ++f)
    fields.push_back(b.bitcast(
        bytes, b.andi(b.shr(codes, f * bits),
                      b.constant(codes.getType(), mask))));
  return fields;
}

/// The dot products of some chunks with the patterns of their phases, for all
/// heads, folded down to `stride`: 1 gives one vector per head with a token per
/// lane, 4 four vectors that still have the position in the lane.
static SmallVector<Value> scanChunks(VectorBuilder &b, const ScanShape &shape,
                                     ArrayRef<Value> chunks,
                                     ArrayRef<Value> patterns, int64_t heads,
                                     int64_t stride, int64_t lane) {
  const int64_t limit = (1 << shape.layout.scanBits) - 1;
  VectorType words = b.vec(b.getI32Type());
  Type bytes = b.vec(b.getI8Type(), 64);
  SmallVector<SmallVector<Value>> fields; // of the g in work, by chunk
  SmallVector<Value> both;                // one field: both tokens of a g
  auto leaf = [&](int64_t token) {
    const int64_t g = token % 8, second = token / 8;
    if (!second) { // tokens g and g + 8 follow each other
      fields.clear();
      both.clear();
      for (Value chunk : chunks)
        fields.push_back(
            splitFields(b, shape, b.load(words, b.at(chunk, g * 64), 16)));
    }
    SmallVector<Value> sums;
    for (int64_t head = 0; head < heads; ++head) {
      auto dot = [&](bool low, Value accumulator) {
        SmallVector<VectorBuilder::DotTerm> terms;
        for (auto [chunk, codes] : llvm::enumerate(fields))
          for (auto [f, field] : llvm::enumerate(codes)) {
            if (shape.fields > 1 && int64_t(f % 2) != second)
              continue;
            int64_t offset = head * shape.patterns() * 128 +
                             shape.halfOf(f) * 128 + low * 64;
            terms.push_back(
                {field, b.load(bytes, b.at(patterns[chunk], offset), 64)});
          }
        return b.dot(terms, limit, accumulator);
      };
      Value sum;
      if (shape.fields > 1 || !second)
        sum = dot(true, b.shl(dot(false, {}), 7));
      if (shape.fields == 1) {
        // Even positions hold token g, odd ones g + 8.
        if (!second)
          both.push_back(sum);
        SmallVector<int64_t> mask;
        for (int64_t i = 0; i < 16; ++i)
          mask.push_back(i % 2 == second ? -1 : 0);
        sum = b.andi(both[head], b.constantVector(b.getI32Type(), mask));
      }
      sums.push_back(sum);
    }
    return sums;
  };
  return b.foldTree(leaf, stride, lane);
}

LogicalResult Emitter::emit(TileScanOp op) {
  const QueryValue &query = get<QueryValue>(op.getQuery());
  const ThumbnailValue &thumbnail = get<ThumbnailValue>(op.getThumbnail());
  const ScanShape shape(layout);
  const int64_t tiles = layout.tilesPerBlock();
  Patterns patterns =
      foldScales(b, shape, query, thumbnail.scales, spec, group);
  Value scores = b.alloca(group * tiles * 64);
  // Twice the dot product, and the bias that centres the codes.
  auto finish = [&](Value sum, int64_t head, Value tile) {
    Value bias = b.splat(
        b.load(b.getI32Type(), b.at(patterns.bias, 4 * head), 4));
    b.store(b.add(b.shl(sum, 1), bias),
            b.at(b.at(scores, head * tiles * 64), b.shl(tile, 6)), 64);
  };
  const int64_t chunkBytes = ::ffd::kLanes * 16;
  auto prefetch = [&](Value offset) {
    for (int64_t line = 0; line < chunkBytes; line += 64)
      b.prefetch(b.at(b.at(thumbnail.next, offset), line));
  };
  for (int64_t line = 0; line < layout.scaleBytes(); line += 64)
    b.prefetch(b.at(thumbnail.next, layout.codeBytes() + line));

  if (shape.whole) {
    const int64_t count = shape.words / 4; // chunks of a tile
    b.loop(tiles, [&](Value tile) {
      SmallVector<Value> chunks, phases;
      Value offset = b.mul(tile, b.i64(count * chunkBytes));
      for (int64_t chunk = 0; chunk < count; ++chunk) {
        Value at = b.add(offset, b.i64(chunk * chunkBytes));
        prefetch(at);
        chunks.push_back(b.at(thumbnail.codes, at));
        phases.push_back(b.at(patterns.data, chunk * shape.halves * 128));
      }
      SmallVector<Value> sums =
          scanChunks(b, shape, chunks, phases, group, 1, 0);
      for (int64_t head = 0; head < group; ++head)
        finish(sums[head], head, tile);
    });
    set(op.getResult(), ScoresValue{scores, tiles, {}});
    return success();
  }

  // Chunks straddle tiles: keep a vector of tokens per word, add up the words
  // of each tile afterwards.
  const int64_t blockWords = tiles * shape.words;
  Value sums = b.alloca(group * blockWords * 64);
  b.loop(blockWords / 4 / shape.phases, [&](Value repeat) {
    b.loop(shape.phases, [&](Value phase) {
      Value chunk = b.add(b.mul(repeat, b.i64(shape.phases)), phase);
      Value offset = b.mul(chunk, b.i64(chunkBytes));
      prefetch(offset);
      Value data =
          b.at(patterns.data, b.mul(phase, b.i64(shape.halves * 128)));
      Value codes = b.at(thumbnail.codes, offset);
      SmallVector<SmallVector<Value>> folded;
      for (int64_t lane = 0; lane < 4; ++lane)
        folded.push_back(
            scanChunks(b, shape, codes, data, group, 4, lane));
      for (int64_t head = 0; head < group; ++head) {
        Value to = b.at(b.at(sums, head * blockWords * 64), b.shl(chunk, 8));
        // Transpose: lane 4s + q of word p comes from lane 4s + p of fold q.
        auto unpack = [&](Value x, Value y, int64_t pair) {
          SmallVector<int64_t> indices;
          for (int64_t s = 0; s < 16; s += 4)
            indices.append({s + pair, 16 + s + pair, s + pair + 1,
                            16 + s + pair + 1});
          return b.shuffle(x, y, indices);
        };
        auto join = [&](Value x, Value y, int64_t pair) {
          SmallVector<int64_t> indices;
          for (int64_t s = 0; s < 16; s += 4)
            indices.append({s + pair, s + pair + 1, 16 + s + pair,
                            16 + s + pair + 1});
          return b.shuffle(x, y, indices);
        };
        for (int64_t pair = 0; pair < 4; pair += 2) {
          Value low = unpack(folded[0][head], folded[1][head], pair);
          Value high = unpack(folded[2][head], folded[3][head], pair);
          b.store(join(low, high, 0), b.at(to, pair * 64), 64);
          b.store(join(low, high, 2), b.at(to, pair * 64 + 64), 64);
        }
      }
    });
  });
  b.loop(tiles, [&](Value tile) {
    for (int64_t head = 0; head < group; ++head) {
      Value from = b.at(b.at(sums, head * blockWords * 64),
                        b.mul(tile, b.i64(shape.words * 64)));
      Value sum;
      for (int64_t word = 0; word < shape.words; ++word) {
        Value x = b.loadI32(b.at(from, word * 64));
        sum = sum ? b.add(sum, x) : x;
      }
      finish(sum, head, tile);
    }
  });
  set(op.getResult(), ScoresValue{scores, tiles, {}});
  return success();
}
