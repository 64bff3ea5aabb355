//===- EmitRank.cpp - Rules over the whole row ---------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// #ffd.top_k and #ffd.top_p. The ranking lies in the workspace, a key and a
// mass per selection block. Nothing is sorted: the key of the last block to
// keep is found by bisection over all keys, a pass each, and blocks of that key
// are taken in ascending order.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"

using namespace mlir;
using namespace mlir::ffd;

/// Between the bits of a float and an integer that orders like it; its own
/// inverse.
static Value flipNegative(VectorBuilder &b, Value bits) {
  Type type = bits.getType();
  Value sign = arith::ShRSIOp::create(b, bits, b.constant(type, int64_t(31)));
  return b.xori(bits, b.andi(sign, b.constant(type, int64_t(0x7FFFFFFF))));
}
static Value keyOf(VectorBuilder &b, Value score) {
  // -0 + 0 = 0: both zeros are one key.
  score = b.add(score, b.constant(score.getType(), 0.0));
  return flipNegative(
      b, b.bitcast(b.withElement(score.getType(), b.getI32Type()), score));
}
static Value scoreOf(VectorBuilder &b, Value key) {
  return b.bitcast(b.withElement(key.getType(), b.getF32Type()),
                   flipNegative(b, key));
}

/// Vectors of 16 for `count` elements.
static Value vectorsOf(VectorBuilder &b, Value count) {
  return b.shr(b.add(count, b.i64(15)), 4);
}

/// Writes keys, and masses if tokens are there, of a block's selection blocks
/// at index `first` and after.
void Emitter::rankBlock(const ScoresValue &scores, Value unit, Value first,
                        const RankingValue &ranking) {
  // Vector v holds tile v in its lower and tile v + 4 in its upper half.
  const int64_t tiles = layout.selectBlock / ::ffd::kTileTokens;
  const int64_t vectors = std::min(tiles, scores.vectors);
  VectorType words = b.vec(b.getI32Type());
  auto rank = [&](int64_t begin, int64_t lanes, int64_t select) {
    SmallVector<int64_t> counted;
    for (int64_t lane = 0; lane < 16; ++lane)
      counted.push_back(lanes >> lane & 1);
    Value mine = b.constantVector(b.getI1Type(), counted);
    auto a = [&](int64_t head, Value from) {
      return b.mul(b.splat(b.extract(unit, head)), b.toFloat(b.loadI32(from)));
    };
    Value best = b.constant(words, int64_t(INT32_MIN));
    for (int64_t head = 0; head < group; ++head)
      for (int64_t v = begin; v < begin + vectors; ++v) {
        Value from = b.at(scores.data, (head * scores.vectors + v) * 64);
        best = b.max(best, keyOf(b, a(head, from)));
      }
    best = b.select(mine, best, b.constant(words, int64_t(INT32_MIN)));
    Value key = b.reduceMax(best);
    Value offset = b.shl(b.add(first, b.i64(select)), 2);
    b.store(key, b.at(ranking.keys, offset), 4);
    if (!scores.tokens)
      return;
    Value top = b.splat(scoreOf(b, key)), sum = b.zeros();
    for (int64_t head = 0; head < group; ++head)
      for (int64_t v = begin; v < begin + vectors; ++v)
        for (int64_t half = 0; half < 2; ++half) {
          Value from = b.at(scores.tokens,
                            ((head * scores.vectors + v) * 2 + half) * 64);
          sum = b.add(sum, b.exp(b.sub(a(head, from), top)));
        }
    b.store(b.reduceAdd(b.select(mine, sum, b.zeros())),
            b.at(ranking.mass, offset), 4);
  };
  for (int64_t begin = 0; begin < scores.vectors; begin += vectors) {
    if (tiles > scores.vectors) {
      rank(begin, 0xFFFF, 0);
      continue;
    }
    rank(begin, 0x00FF, begin / tiles);
    rank(begin, 0xFF00, (begin + scores.vectors) / tiles);
  }
}

LogicalResult Emitter::emitRank(TileDistributeOp op) {
  auto scan = op.getYielded().getDefiningOp<TileScanOp>();
  if (!scan)
    return op.emitOpError("ranks what is not the result of 'ffd.tile.scan', "
                          "expected the scores of a block");
  const int64_t perBlock = layout.selectsPerBlock();
  // A row of the workspace: keys, then masses, of as many blocks as a row of
  // `kept` has, up to a multiple of 16.
  Value capacity = b.shl(vectorsOf(b, arg(KernelArg::kept_stride)), 6);
  RankingValue ranking;
  ranking.keys =
      b.at(arg(KernelArg::workspace), b.mul(row, b.shl(capacity, 1)));
  ranking.mass = b.at(ranking.keys, capacity);
  ranking.count = b.mul(index(op.getOver()[0]), b.i64(perBlock));
  Value end = b.shl(vectorsOf(b, ranking.count), 4);
  b.loop(ranking.count, end, [&](Value i) {
    b.store(b.i32(INT32_MIN), b.at(ranking.keys, b.shl(i, 2)), 4);
    b.store(b.f32(0), b.at(ranking.mass, b.shl(i, 2)), 4);
  });
  set(op.getResult(), ranking);
  return emitDomain(op, [&] {
    rankBlock(get<ScoresValue>(op.getYielded()),
              get<QueryValue>(scan.getQuery()).unit,
              b.mul(index(op.getIndex()), b.i64(perBlock)), ranking);
  });
}

namespace {
/// Keeps blocks of a ranking. What they add up to is a number of blocks or a
/// mass, f64 in both cases.
class Choice {
public:
  Choice(VectorBuilder &b, const RankingValue &ranking, Value kept)
      : b(b), ranking(ranking), kept(kept), f64(b.getF64Type()) {}

  void keepAll() {
    b.loop(b.i64(0), ranking.count, [&](Value i) { keep(i, b.i32(1)); });
  }
  void topK(int64_t k) {
    byMass = false;
    choose(b.constant(f64, double(k)));
  }
  void topP(double p) {
    byMass = true;
    weigh();
    Value total = upFrom(b.i32(INT32_MIN));
    choose(b.mul(b.constant(f64, p), total));
  }

private:
  void keep(Value i, Value bit) {
    b.store(b.trunc(bit, b.getI8Type()), b.at(kept, i), 1);
  }
  Value key(Value i) {
    return b.load(b.getI32Type(), b.at(ranking.keys, b.shl(i, 2)), 4);
  }
  Value keysOf(Value vector) {
    return b.loadI32(b.at(ranking.keys, b.shl(vector, 6)));
  }

  /// Turns masses into those of exp(score - largest score of the row).
  void weigh() {
    Value top = b.alloca(64);
    b.store(b.constant(b.vec(b.getI32Type()), int64_t(INT32_MIN)), top, 64);
    Value vectors = vectorsOf(b, ranking.count);
    b.loop(b.i64(0), vectors, [&](Value v) {
      b.store(b.max(b.loadI32(top), keysOf(v)), top, 64);
    });
    Value best = b.splat(scoreOf(b, b.reduceMax(b.loadI32(top))));
    b.loop(b.i64(0), vectors, [&](Value v) {
      Value place = b.at(ranking.mass, b.shl(v, 6));
      Value weight = b.exp(b.sub(scoreOf(b, keysOf(v)), best));
      // The key that fills up is that of no number.
      Value real = b.cmp(IntCmp::ne, keysOf(v),
                         b.constant(b.vec(b.getI32Type()), int64_t(INT32_MIN)));
      b.store(b.select(real, b.mul(b.loadF32(place), weight), b.zeros()), place,
              64);
    });
  }

  /// What block i adds.
  Value worth(Value i) {
    if (!byMass)
      return b.constant(f64, 1.0);
    return arith::ExtFOp::create(
        b, f64, b.load(b.getF32Type(), b.at(ranking.mass, b.shl(i, 2)), 4));
  }

  /// What the blocks of at least a key add up to.
  Value upFrom(Value least) {
    VectorType doubles = b.vec(f64);
    Value sum = b.alloca(128);
    b.store(b.constant(doubles, 0.0), sum, 64);
    b.loop(b.i64(0), vectorsOf(b, ranking.count), [&](Value v) {
      Value reached = b.cmp(IntCmp::sge, keysOf(v), b.splat(least));
      Value worth = b.constant(doubles, 1.0);
      if (byMass)
        worth = arith::ExtFOp::create(
            b, doubles, b.loadF32(b.at(ranking.mass, b.shl(v, 6))));
      worth = b.select(reached, worth, b.constant(doubles, 0.0));
      b.store(b.add(b.load(doubles, sum, 64), worth), sum, 64);
    });
    return b.reduceAdd(b.load(doubles, sum, 64));
  }

  /// Keeps the fewest blocks of highest key that add up to `target`, all if
  /// none do.
  void choose(Value target) {
    Type i64 = b.getI64Type();
    // upFrom(low) reaches the target, or low is no key; upFrom(high) does not.
    Value low = b.alloca(8), high = b.alloca(8);
    b.store(b.i64(INT32_MIN), low, 8);
    b.store(b.i64(int64_t(1) << 31), high, 8);
    b.loop(32, [&](Value) {
      Value from = b.load(i64, low, 8), to = b.load(i64, high, 8);
      Value middle = b.add(from, b.shr(b.sub(to, from), 1));
      Value reached =
          b.cmp(FloatCmp::OGE, upFrom(b.trunc(middle, b.getI32Type())), target);
      b.store(b.select(reached, middle, from), low, 8);
      b.store(b.select(reached, to, middle), high, 8);
    });
    Value last = b.trunc(b.load(i64, low, 8), b.getI32Type());
    Value sum = b.alloca(8);
    b.store(upFrom(b.trunc(b.load(i64, high, 8), b.getI32Type())), sum, 8);
    b.loop(b.i64(0), ranking.count, [&](Value i) {
      Value above = b.cmp(IntCmp::sgt, key(i), last);
      Value so = b.load(f64, sum, 8);
      Value tied = b.andi(b.cmp(IntCmp::eq, key(i), last),
                          b.cmp(FloatCmp::OLT, so, target));
      b.store(b.select(tied, b.add(so, worth(i)), so), sum, 8);
      keep(i, b.zext(b.ori(above, tied), b.getI32Type()));
    });
  }

  VectorBuilder &b;
  const RankingValue &ranking;
  Value kept;
  Type f64;
  bool byMass = false;
};
} // namespace

LogicalResult Emitter::emit(TileChooseOp op) {
  const QueryValue &query = get<QueryValue>(op.getQuery());
  Value kept =
      b.at(arg(KernelArg::kept), b.mul(row, arg(KernelArg::kept_stride)));
  Choice choice(b, get<RankingValue>(op.getRanking()), kept);
  // A rule that keeps everything, or a row whose scores mean nothing.
  auto topP = dyn_cast<TopPAttr>(op.getSelector());
  if (topP && topP.getP().getValueAsDouble() >= 1) {
    choice.keepAll();
    return success();
  }
  Value all = query.nonFinite;
  for (int64_t head = 0; head < group; ++head)
    all = b.ori(all, b.notFinite(b.extract(query.unit, head)));
  b.ifThen(
      all, [&] { choice.keepAll(); },
      [&] {
        if (topP)
          choice.topP(topP.getP().getValueAsDouble());
        else
          choice.topK(cast<TopKAttr>(op.getSelector()).getK());
      });
  return success();
}
