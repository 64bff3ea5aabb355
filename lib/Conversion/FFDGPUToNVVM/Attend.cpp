//===- Attend.cpp - Refined scores, softmax, output ------ -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The computer on the tensor cores: scores from 16-bit keys or from codes and
// residuals, the online softmax, and the product with V.
//
//===----------------------------------------------------------------------===//

#include "Lowering.h"

using namespace mlir;
using namespace mlir::ffd;

SmallVector<Value> WarpBuilder::mma(Type element, ArrayRef<Value> a,
                                    ArrayRef<Value> b, ArrayRef<Value> c) {
  Type type = LLVM::LLVMStructType::getLiteral(getContext(),
                                               SmallVector<Type>(4, f32()));
  SmallVector<Value> left(a), right(b);
  if (element.isF16()) {
    Type pair = VectorType::get({2}, element);
    for (SmallVector<Value> *operands : {&left, &right})
      for (Value &value : *operands)
        value = bitcast(pair, value);
  }
  NVVM::MMATypes ptxType =
      element.isF16() ? NVVM::MMATypes::f16 : NVVM::MMATypes::bf16;
  Value result = NVVM::MmaOp::create(
      *this, type, left, right, c, ArrayRef<int64_t>{16, 8, 16}, std::nullopt,
      std::nullopt, std::array<NVVM::MMATypes, 2>{ptxType, ptxType},
      std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row,
                                     NVVM::MMALayout::col});
  SmallVector<Value> values;
  for (int64_t i = 0; i < 4; ++i)
    values.push_back(LLVM::ExtractValueOp::create(*this, result, i));
  return values;
}

Results mlir::ffd::lower(WarpBuilder &b, GPUDotTileOp op) {
  SmallVector<Value> keys = b.unpack(op.getKeys()), results;
  for (Value query : op.getQueries()) {
    SmallVector<Value> q = b.unpack(query);
    // Two chains: less waiting.
    SmallVector<Value> c0(4, b.cf(0)), c1(4, b.cf(0));
    for (size_t j = 0; j < q.size(); j += 4) {
      ArrayRef<Value> k = ArrayRef<Value>(keys).slice(2 * j, 8);
      c0 = b.mma(op.getElement(), {k[0], k[4], k[2], k[6]}, {q[j], q[j + 2]},
                 c0);
      c1 = b.mma(op.getElement(), {k[1], k[5], k[3], k[7]},
                 {q[j + 1], q[j + 3]}, c1);
    }
    for (auto [x, y] : llvm::zip(c0, c1))
      results.push_back(b.fadd(x, y));
  }
  return {b.pack(results)};
}

namespace {
/// Sums over the channels, of 16 tokens and eight heads, that grow by mma.
struct Chain {
  SmallVector<Value> c;
  explicit Chain(WarpBuilder &b) : c(4, b.cf(0)) {}
  void add(WarpBuilder &b, ArrayRef<Value> a, ArrayRef<Value> q) {
    c = b.mma(b.getF16Type(), a, q, c);
  }
};

/// q times s as f16: once rounded, and what that lost.
struct Product {
  Value high, low;
};
} // namespace

static Product multiply(WarpBuilder &b, Value q, Value s, Type element,
                        bool needLow) {
  Type f16 = b.getF16Type();
  Product p;
  if (element.isF16()) {
    p.high = b.mul2(q, s);
    if (needLow)
      p.low = b.fma2(q, s, b.bxor(p.high, b.c32(0x80008000)));
    return p;
  }
  Value x = b.fmul(b.lowFloat(q, element), b.lowFloat(s, element));
  Value y = b.fmul(b.highFloat(q, element), b.highFloat(s, element));
  p.high = b.packPair(x, y, f16);
  if (needLow)
    p.low = b.packPair(b.fsub(x, b.lowFloat(p.high, f16)),
                       b.fsub(y, b.highFloat(p.high, f16)), f16);
  return p;
}

/// The codes that belong to A register `i` of a channel group, a byte each.
static Value codesOf(WarpBuilder &b, ArrayRef<Value> codes, int64_t group,
                     int64_t i, int64_t bits) {
  int64_t n = 4 * group + i, fields = 8 / bits;
  Value word = codes[n / fields];
  if (bits == 8)
    return word;
  int64_t field = ((int64_t(1) << bits) - 1) * 0x01010101;
  return b.band(b.shr(word, n % fields * bits), field);
}

Results mlir::ffd::lower(WarpBuilder &b, GPURefineTileOp op) {
  int64_t bits = op.getBits();
  Type element = op.getElement();
  bool wide = bits > 2;
  SmallVector<Value> codes = b.unpack(op.getCodes());
  SmallVector<Value> residuals = b.unpack(op.getResiduals());
  SmallVector<Value> scales = b.unpack(op.getScales());
  Value zero = b.c32(0);
  // An f16 whose bits are a small integer n is n * 2^-24, exactly.
  Value ulp = b.c32(0x00010001);
  SmallVector<Value> ones(4, ulp);
  int64_t groups = residuals.size() / 4;

  struct Sums {
    SmallVector<Value> query;
    Chain codes, residuals, weights;
  };
  SmallVector<Sums> sums;
  for (Value query : op.getQueries())
    sums.push_back({b.unpack(query), Chain(b), Chain(b), Chain(b)});

  for (int64_t j = 0; j < groups; ++j) {
    // A operands of the two steps of 16 channels.
    SmallVector<Value> x[2], r[2];
    for (int64_t i = 0; i < 4; ++i) {
      Value code = codesOf(b, codes, j, i, bits), rest = residuals[4 * j + i];
      if (wide) {
        // Codes and residuals apart: together they exceed 11 bits.
        x[0].push_back(b.permute(code, zero, 0x4140));
        x[1].push_back(b.permute(code, zero, 0x4342));
        r[0].push_back(b.permute(rest, zero, 0x4140));
        r[1].push_back(b.permute(rest, zero, 0x4342));
      } else {
        // 256 t + r.
        x[0].push_back(b.permute(rest, code, 0x5140));
        x[1].push_back(b.permute(rest, code, 0x7362));
      }
    }
    for (Sums &s : sums) {
      Product p[4];
      for (int64_t i = 0; i < 4; ++i)
        p[i] =
            multiply(b, s.query[4 * j + i], scales[4 * j + i], element, wide);
      for (int64_t step : {0, 1}) {
        Value high[2] = {p[step].high, p[step + 2].high};
        s.codes.add(b, x[step], high);
        s.weights.add(b, ones, high);
        if (!wide)
          continue;
        Value low[2] = {p[step].low, p[step + 2].low};
        s.residuals.add(b, r[step], high);
        s.codes.add(b, x[step], low);
        s.residuals.add(b, r[step], low);
        s.weights.add(b, ones, low);
      }
    }
  }
  // ((256 t + r) - (256 L + 127.5)) / 256, and 2^24 for the subnormals.
  float centre = 128.0f * ((1 << bits) - 1) + 127.5f;
  SmallVector<Value> results;
  for (Sums &s : sums)
    for (int64_t i = 0; i < 4; ++i) {
      Value x = s.codes.c[i];
      if (wide)
        x = b.fma(x, b.cf(256), s.residuals.c[i]);
      x = b.fma(s.weights.c[i], b.cf(-centre), x);
      results.push_back(b.fmul(x, b.cf(65536)));
    }
  return {b.pack(results)};
}

/// New reference, sum and output where scores exceed the reference by far.
static SmallVector<Value> rescale(WarpBuilder &b, ArrayRef<Value> scores,
                                  ArrayRef<Value> m, ArrayRef<Value> l,
                                  ArrayRef<Value> o) {
  SmallVector<Value> newM, newL, newO(o), factor;
  for (int64_t c : {0, 1}) {
    Value x = b.fmax(scores[c], scores[c + 2]);
    for (int64_t mask : {4, 8, 16})
      x = b.fmax(x, b.shuffleXor(x, mask));
    x = b.fmax(x, m[c]);
    factor.push_back(b.exp2(b.fsub(m[c], x)));
    newM.push_back(x);
    newL.push_back(b.fmul(l[c], factor[c]));
  }
  for (size_t i = 0; i < newO.size(); ++i)
    newO[i] = b.fmul(newO[i], factor[i % 2]);
  return {b.pack(newM), b.pack(newL), b.pack(newO)};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUSoftmaxStepOp op) {
  SmallVector<Value> s = b.unpack(op.getScores());
  SmallVector<Value> m = b.unpack(op.getReference());
  Value above = b.fmax(b.fsub(b.fmax(s[0], s[2]), m[0]),
                       b.fsub(b.fmax(s[1], s[3]), m[1]));
  Value rare = b.any(b.fcmp(arith::CmpFPredicate::OGT, above, b.cf(8)));
  SmallVector<Value> old = {op.getReference(), op.getSum(), op.getOutput()};
  SmallVector<Value> state = b.ifElse(
      rare,
      {op.getReference().getType(), op.getSum().getType(),
       op.getOutput().getType()},
      [&] {
        return rescale(b, s, m, b.unpack(op.getSum()),
                       b.unpack(op.getOutput()));
      },
      [&] { return old; });
  m = b.unpack(state[0]);
  SmallVector<Value> l = b.unpack(state[1]), p;
  for (int64_t i = 0; i < 4; ++i)
    p.push_back(b.exp2(b.fsub(s[i], m[i % 2])));
  for (int64_t c : {0, 1})
    l[c] = b.fadd(l[c], b.fadd(p[c], p[c + 2]));
  Value p0 = b.transpose(b.packPair(p[0], p[1], op.getElement()));
  Value p1 = b.transpose(b.packPair(p[2], p[3], op.getElement()));
  return {b.pack({p0, p1}), state[0], b.pack(l), state[2]};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUAccumulateOp op) {
  SmallVector<Value> o = b.unpack(op.getOutput());
  SmallVector<Value> v = b.unpack(op.getValues()), p = b.unpack(op.getP());
  for (size_t i = 0; i < o.size(); i += 4) {
    SmallVector<Value> c =
        b.mma(op.getElement(), ArrayRef<Value>(v).slice(i, 4), p,
              ArrayRef<Value>(o).slice(i, 4));
    std::copy(c.begin(), c.end(), o.begin() + i);
  }
  return {b.pack(o)};
}
