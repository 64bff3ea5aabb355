//===- EmitScan.cpp - The integer scan of a block ---------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// scan_c1 and scan_c2 of docs/numerics.md. The 16 words of the four lanes tq of
// one g (64 bytes of codes) are 16 places of the query; 16 such vectors, of the
// 8 g of two tiles, are transposed, so that a vector holds one place of 32
// tokens. Each then meets one word of the folded query, broadcast: no sums
// across lanes, and the work of the transposition is shared by all heads.
//
// Where scores are only compared with a threshold, the high bytes of the query
// decide first: the low ones add at most 64 * D * 2L, and most tokens are
// further than that from the threshold. The decision is exact either way.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"

#include <numeric>

using namespace mlir;
using namespace mlir::ffd;

namespace {

/// The two signed bytes of the folded query.
enum Byte { High, Low };

/// The scan of one block, of codes as `layout` has them.
class Scan {
public:
  Scan(VectorBuilder &b, SpecAttr spec, const ::ffd::Layout &layout,
       const QueryValue &query, const ThumbnailValue &thumbnail)
      : b(b), spec(spec), layout(layout), query(query), thumbnail(thumbnail),
        group(spec.getRowHeads()), dim(layout.paddedHeadDim()),
        words(layout.wordsPerTile()), fields(layout.fieldsPerByte()),
        twiceL((int64_t(1) << layout.scanBits) - 1) {}

  /// Emits the scan; returns the buffer of a ScoresValue. `thresholds` (i32
  /// [16], may be null): scores need not be exact where they are below.
  /// `tokens`, not with thresholds, receives the scores of all tokens.
  Value emit(Value thresholds, Value tokens);
  /// sum Q^2 of each head (cert_c2), f32 [16]; after emit().
  Value squares();

private:
  void widenScales();
  void fold(Byte byte);
  void prefetch(Value chunk);
  /// Called with the tile, the head, and sums [token half][byte].
  using Done = function_ref<void(int64_t, Value, Value[2][2])>;
  void scanSegment(Value first, ArrayRef<Byte> bytes, Done done);
  SmallVector<Value> loadWords(Value first, int64_t chunk);

  VectorBuilder &b;
  SpecAttr spec;
  ::ffd::Layout layout;
  const QueryValue &query;
  const ThumbnailValue &thumbnail;
  const int64_t group, dim, words, fields, twiceL;

  Value scales;    ///< f32 [Dp], s' in scale order
  Value folded[2]; ///< i32 [G][Dp / 4], four bytes a word, in scale order
  Value bias[2];   ///< i32 [16], lane = head: what centres the codes
};

} // namespace

static constexpr int64_t kChunkBytes = ::ffd::kLanes * 16;
/// Two sums per head, four fields and the transposed words fill the registers.
static constexpr int64_t kHeadsAtOnce = 4;

/// s' of query_c1, for all heads.
void Scan::widenScales() {
  scales = b.alloca(dim * 4);
  for (int64_t v = 0; v < dim / 16; ++v) {
    Value s = b.widen(
        b.load(b.vec(b.getI16Type()), b.at(thumbnail.scales, 32 * v), 2),
        spec.isBF16());
    if (spec.isBF16())
      s = b.roundToF16(b.mul(s, b.splat(query.rescale)));
    b.store(s, b.at(scales, 64 * v), 64);
  }
}

/// scan_c1, one of the two bytes for all heads.
void Scan::fold(Byte byte) {
  b.loop(group, [&](Value head) {
    Value power =
        b.splat(b.load(b.getF32Type(), b.at(query.power, b.shl(head, 2)), 4));
    Value qh = b.at(query.quantised, b.mul(head, b.i64(dim * 4)));
    // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves
    // it in the low bits; only the low byte is used, so NaN gives some byte and
    // nothing undefined (such a row keeps everything anyway).
    Value magic = b.splat(b.f32(12582912));
    VectorType wordType = b.vec(b.getI32Type());
    Type bytes = b.vec(b.getI8Type(), 64);
    SmallVector<Value> bits;
    for (int64_t v = 0; v < dim / 16; ++v) {
      Value product = b.roundToF16(
          b.mul(b.loadF32(b.at(qh, 64 * v)), b.loadF32(b.at(scales, 64 * v))));
      Value y = b.mul(product, power);
      Value shifted = b.add(y, magic);
      if (byte == Low) {
        Value rest = b.sub(y, b.sub(shifted, magic));
        shifted = b.fma(rest, b.splat(b.f32(128)), magic);
      }
      bits.push_back(b.bitcast(wordType, shifted));
    }
    Value to = b.at(folded[byte], b.mul(head, b.i64(dim)));
    DotSum total(b, 1);
    for (size_t v = 0; v < bits.size(); v += 4) {
      // The last vectors may be fewer than four.
      SmallVector<Value> four(
          ArrayRef<Value>(bits).slice(v, std::min<size_t>(4, bits.size() - v)));
      four.resize(4, b.constant(wordType, int64_t(0)));
      Value packed = b.trunc(b.concat(four), b.getI8Type());
      b.store(packed, b.at(to, 16 * v), 16);
      total.add(b.constant(bytes, int64_t(1)), packed);
    }
    const int64_t weight = byte == High ? 128 : 1;
    b.store(b.mul(b.reduceAdd(total.get()), b.i32(-twiceL * weight)),
            b.at(bias[byte], b.shl(head, 2)), 4);
  });
}

Value Scan::squares() {
  Value result = b.alloca(64);
  b.store(b.zeros(), result, 64);
  b.loop(group, [&](Value head) {
    Value power =
        b.splat(b.load(b.getF32Type(), b.at(query.power, b.shl(head, 2)), 4));
    Value qh = b.at(query.quantised, b.mul(head, b.i64(dim * 4)));
    Value magic = b.splat(b.f32(12582912)), sum = b.zeros();
    for (int64_t v = 0; v < dim / 16; ++v) {
      Value y = b.mul(b.roundToF16(b.mul(b.loadF32(b.at(qh, 64 * v)),
                                         b.loadF32(b.at(scales, 64 * v)))),
                      power);
      Value hi = b.sub(b.add(y, magic), magic);
      Value lo = b.sub(b.fma(b.sub(y, hi), b.splat(b.f32(128)), magic), magic);
      Value folded = b.fma(hi, b.splat(b.f32(128)), lo);
      sum = b.fma(folded, folded, sum);
    }
    b.store(b.reduceAdd(sum), b.at(result, b.shl(head, 2)), 4);
  });
  return result;
}

/// The transposed words of a chunk and of the same chunk of the tile four
/// further on: lane 8 * (tile / 4) + g of result 4 * tq + position.
SmallVector<Value> Scan::loadWords(Value first, int64_t chunk) {
  SmallVector<Value> vectors;
  for (int64_t tile = 0; tile < 2; ++tile)
    for (int64_t g = 0; g < 8; ++g)
      vectors.push_back(b.load(
          b.vec(b.getI32Type()),
          b.at(first, (chunk + tile * words) * kChunkBytes + g * 64), 16));
  return b.transpose(vectors);
}

/// Tiles whose words fill whole chunks, starting at `first`, and the tiles four
/// further on. Calls `done(tile, head, sums)` for each of them; sums are of
/// [token half][byte], lanes as in loadWords.
void Scan::scanSegment(Value first, ArrayRef<Byte> bytes, Done done) {
  const int64_t chunks = words / std::gcd(words, int64_t(4));
  const int64_t bits = layout.scanBits;
  VectorType wordType = b.vec(b.getI32Type());
  Type byteType = b.vec(b.getI8Type(), 64);
  SmallVector<SmallVector<Value>> transposed(chunks);
  // With several groups of heads, words go through memory.
  Value stored;
  if (group > kHeadsAtOnce) {
    stored = b.alloca(chunks * 16 * 64);
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      for (auto [w, vector] : llvm::enumerate(loadWords(first, chunk)))
        b.store(vector, b.at(stored, (chunk * 16 + w) * 64), 64);
  }
  auto wordAt = [&](int64_t chunk, int64_t w) {
    if (stored)
      return b.loadI32(b.at(stored, (chunk * 16 + w) * 64));
    if (transposed[chunk].empty())
      transposed[chunk] = loadWords(first, chunk);
    return transposed[chunk][w];
  };
  b.headGroups(group, kHeadsAtOnce, [&](Value head, int64_t heads) {
    Value queries[2];
    for (Byte byte : bytes)
      queries[byte] = b.at(folded[byte], b.mul(head, b.i64(dim)));
    SmallVector<DotSum> sums; // [head][token half][byte]
    for (int64_t n = 0; n < 4 * chunks; ++n) {
      const int64_t word = n % words;
      if (word == 0)
        sums.assign(heads * 4, DotSum(b, (1 << bits) - 1));
      for (int64_t tq = 0; tq < 4; ++tq) {
        Value codes = wordAt(n / 4, 4 * tq + n % 4);
        for (int64_t f = 0; f < fields; ++f) {
          Value field = codes;
          if (fields > 1)
            field = b.andi(
                b.shr(codes, f * bits),
                b.constant(wordType, ((1 << bits) - 1) * int64_t(0x01010101)));
          field = b.bitcast(byteType, field);
          const int64_t place = word * fields + f, i = place % 4;
          const int64_t source = (place / 4 * 4 + tq) * 2 + i / 2;
          for (int64_t h = 0; h < heads; ++h)
            for (Byte byte : bytes) {
              Value q = b.load(b.getI32Type(),
                               b.at(queries[byte], h * dim + 4 * source), 4);
              sums[h * 4 + i % 2 * 2 + byte].add(
                  field, b.bitcast(byteType, b.splat(q)));
            }
        }
      }
      if (word < words - 1)
        continue;
      for (int64_t h = 0; h < heads; ++h) {
        Value result[2][2];
        for (int64_t half = 0; half < 2; ++half)
          for (Byte byte : bytes)
            result[half][byte] = sums[h * 4 + half * 2 + byte].get();
        done(n / words, b.add(head, b.i64(h)), result);
      }
    }
  });
}

/// Asks for the next block's part that lies where `chunk` lies in this one.
void Scan::prefetch(Value offset) {
  if (!thumbnail.next)
    return;
  const int64_t chunks = words / std::gcd(words, int64_t(4));
  for (int64_t half = 0; half < 2; ++half)
    for (int64_t line = 0; line < chunks * kChunkBytes; line += 64)
      b.prefetch(b.at(b.at(thumbnail.next, offset),
                      half * words * kChunkBytes + line));
}

Value Scan::emit(Value thresholds, Value tokens) {
  folded[High] = b.alloca(group * dim + 64);
  folded[Low] = b.alloca(group * dim + 64);
  bias[High] = b.alloca(64);
  bias[Low] = b.alloca(64);
  const int64_t pairs = layout.tilesPerBlock() / 2;
  Value scores = b.alloca(group * pairs * 64);
  widenScales();
  fold(High);
  // Whether the low bytes have been folded, too.
  Value ready = b.alloca(4);
  if (thresholds)
    b.store(b.i32(0), ready, 4);
  else
    fold(Low);
  for (int64_t line = 0; thumbnail.next && line < layout.scaleBytes();
       line += 64)
    b.prefetch(b.at(thumbnail.next, layout.codeBytes() + line));

  auto laneOf = [&](Value vector, Value head) {
    return b.splat(b.load(b.getI32Type(), b.at(vector, b.shl(head, 2)), 4));
  };
  const int64_t segment = 4 / std::gcd(words, int64_t(4)); // tiles
  const int64_t segmentBytes = segment * words / 4 * kChunkBytes;
  Value highSums = thresholds ? b.alloca(segment * group * 128) : Value();
  Value possible = thresholds ? b.alloca(4) : Value();
  b.loop(pairs / segment, [&](Value number) {
    Value offset = b.mul(number, b.i64(segmentBytes));
    Value first = b.at(thumbnail.codes, offset);
    Value tiles = b.at(scores, b.mul(number, b.i64(segment * 64)));
    auto scoreAt = [&](int64_t tile, Value head) {
      return b.at(b.at(tiles, tile * 64), b.mul(head, b.i64(pairs * 64)));
    };
    prefetch(offset);
    if (!thresholds) {
      scanSegment(
          first, {High, Low}, [&](int64_t tile, Value head, Value sums[2][2]) {
            Value halves[2];
            for (int64_t half = 0; half < 2; ++half)
              halves[half] =
                  b.add(b.shl(sums[half][High], 8), b.shl(sums[half][Low], 1));
            Value both =
                b.add(laneOf(bias[High], head), laneOf(bias[Low], head));
            b.store(b.add(b.max(halves[0], halves[1]), both),
                    scoreAt(tile, head), 64);
            if (!tokens)
              return;
            Value vector = b.add(b.mul(number, b.i64(segment)), b.i64(tile));
            vector = b.add(vector, b.mul(head, b.i64(pairs)));
            for (int64_t half = 0; half < 2; ++half)
              b.store(b.add(halves[half], both),
                      b.at(b.at(tokens, b.shl(vector, 7)), half * 64), 64);
          });
      return;
    }

    // Upper bounds; the sums of the high bytes stay for those who need them.
    auto highAt = [&](int64_t tile, Value head) {
      return b.at(b.at(highSums, tile * group * 128), b.shl(head, 7));
    };
    Value rest =
        b.constant(b.vec(b.getI32Type()), 64 * layout.headDim * twiceL);
    b.store(b.i32(0), possible, 4);
    scanSegment(first, {High}, [&](int64_t tile, Value head, Value sums[2][2]) {
      Value halves[2] = {b.shl(sums[0][High], 8), b.shl(sums[1][High], 8)};
      b.store(halves[0], highAt(tile, head), 64);
      b.store(halves[1], b.at(highAt(tile, head), 64), 64);
      Value bound = b.add(b.max(halves[0], halves[1]),
                          b.add(laneOf(bias[High], head), rest));
      b.store(bound, scoreAt(tile, head), 64);
      Value here = b.cmp(IntCmp::sge, bound, laneOf(thresholds, head));
      here = b.zext(b.bitcast(b.getI16Type(), here), b.getI32Type());
      b.store(b.ori(b.load(b.getI32Type(), possible, 4), here), possible, 4);
    });
    auto isSet = [&](Value flag) {
      return b.cmp(IntCmp::ne, b.load(b.getI32Type(), flag, 4), b.i32(0));
    };
    b.ifThen(isSet(possible), [&] {
      b.ifThen(b.negate(isSet(ready)), [&] {
        fold(Low);
        b.store(b.i32(1), ready, 4);
      });
      scanSegment(
          first, {Low}, [&](int64_t tile, Value head, Value sums[2][2]) {
            Value halves[2];
            for (int64_t half = 0; half < 2; ++half)
              halves[half] =
                  b.add(b.loadI32(b.at(highAt(tile, head), half * 64)),
                        b.shl(sums[half][Low], 1));
            Value both =
                b.add(laneOf(bias[High], head), laneOf(bias[Low], head));
            b.store(b.add(b.max(halves[0], halves[1]), both),
                    scoreAt(tile, head), 64);
          });
    });
  });
  return scores;
}

bool mlir::ffd::wantsTokens(TileScanOp op) {
  auto loop = dyn_cast<TileDistributeOp>(op->getParentOp());
  return loop && loop.getCombiner() == Combiner::rank &&
         llvm::any_of(loop.getResult().getUsers(), [](Operation *user) {
           auto choose = dyn_cast<TileChooseOp>(user);
           return choose && isa<TopPAttr>(choose.getSelector());
         });
}

TileSkippedOp mlir::ffd::skippedOf(TileScanOp op) {
  for (Operation *user : op.getResult().getUsers())
    if (auto skipped = dyn_cast<TileSkippedOp>(user))
      return skipped;
  return {};
}

/// select_c5. Residuals lie as codes of eight bits would, so that they are
/// scanned likewise.
Value Emitter::scanRefined(const QueryValue &query,
                           const ThumbnailValue &thumbnail,
                           const BodyValue &body) {
  const int64_t vectors = layout.tilesPerBlock() / 2;
  ::ffd::Layout wide = layout;
  wide.scanBits = layout.residualBits;
  const ThumbnailValue residuals{body.residuals, thumbnail.scales, Value()};
  Value coarse = b.alloca(group * vectors * 128),
        fine = b.alloca(group * vectors * 128),
        scores = b.alloca(group * vectors * 64);
  Scan(b, spec, layout, query, thumbnail).emit({}, coarse);
  Scan(b, spec, wide, query, residuals).emit({}, fine);
  b.loop(group * vectors, [&](Value i) {
    Value from = b.shl(i, 7);
    Value halves[2];
    for (int64_t half = 0; half < 2; ++half) {
      Value rest = b.loadI32(b.at(b.at(fine, from), 64 * half));
      halves[half] = b.add(b.loadI32(b.at(b.at(coarse, from), 64 * half)),
                           b.sar(rest, layout.residualBits));
    }
    b.store(b.max(halves[0], halves[1]), b.at(scores, b.shl(i, 6)), 64);
  });
  return scores;
}

LogicalResult Emitter::emit(TileScanOp op) {
  const QueryValue &query = get<QueryValue>(op.getQuery());
  const ThumbnailValue &thumbnail = get<ThumbnailValue>(op.getThumbnail());
  if (spec.scansKeys()) {
    scanKeys(op);
    return success();
  }
  const int64_t vectors = layout.tilesPerBlock() / 2;
  if (op.getBody()) {
    // Whoever wants the scores of all tokens does not want refined ones.
    if (wantsTokens(op))
      return op.emitOpError("has a body in a ranking by #ffd.top_p, which has "
                            "no lowering for the CPU");
    Value scores = scanRefined(query, thumbnail, get<BodyValue>(op.getBody()));
    set(op.getResult(), ScoresValue{scores, vectors, {}, {}, {}});
    return success();
  }
  // The one threshold that the scores are compared with, if that is all that
  // happens to them.
  Value thresholds;
  if (op.getResult().hasOneUse())
    if (auto reach = dyn_cast<TileReachOp>(*op.getResult().user_begin()))
      if (values.contains(reach.getThreshold()))
        thresholds = get<ThresholdValue>(reach.getThreshold()).data;
  Value tokens;
  TileSkippedOp skipped = skippedOf(op);
  if (wantsTokens(op) || skipped)
    tokens = b.alloca(group * vectors * 128);
  Scan scan(b, spec, layout, query, thumbnail);
  Value scores = scan.emit(thresholds, tokens), squares;
  if (skipped && skipped.getNoise())
    squares = scan.squares();
  set(op.getResult(), ScoresValue{scores, vectors, tokens, {}, squares});
  return success();
}
