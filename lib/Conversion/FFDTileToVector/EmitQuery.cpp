//===- EmitQuery.cpp - Loading and quantising a row's queries -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// query_c1 to query_c5 of docs/numerics.md. Once per team, so the code is
// compact rather than fast; maxima are taken over the bits of absolute values,
// where NaN is above everything and thus propagates.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"

using namespace mlir;
using namespace mlir::ffd;

/// Indices that bring 32 channels, as two vectors of 16, into scale order
/// (Layout::scaleIndex): the first or second 16 of them.
static SmallVector<int64_t> toScaleOrder(bool second) {
  SmallVector<int64_t> indices(16);
  for (int64_t channel = 0; channel < 32; ++channel) {
    int64_t place = ::ffd::Layout::scaleIndex(channel);
    if (place / 16 == second)
      indices[place % 16] = channel;
  }
  return indices;
}

LogicalResult Emitter::emit(TileQueryOp op) {
  QueryValue query;
  query.smScale = arg(KernelArg::sm_scale);
  query.natural = b.alloca(group * paddedDim * 4);
  const int64_t perToken = spec.getGroup();
  Value first = b.mul(kvHead, b.i64(perToken));
  Value base = b.add(b.mul(sequence, arg(KernelArg::q_batch_stride)),
                     b.mul(first, arg(KernelArg::q_head_stride)));
  b.loop(group, [&](Value head) {
    Value element = b.add(base, b.mul(head, arg(KernelArg::q_head_stride)));
    if (group > perToken) {
      Value token = b.div(head, b.i64(perToken));
      Value inToken = b.sub(head, b.mul(token, b.i64(perToken)));
      element = b.add(b.add(base, b.mul(token, arg(KernelArg::q_token_stride))),
                      b.mul(inToken, arg(KernelArg::q_head_stride)));
    }
    Value from = b.at(arg(KernelArg::q), b.shl(element, 1));
    Value to = b.at(query.natural, b.mul(head, b.i64(paddedDim * 4)));
    for (int64_t c = 0; c < paddedDim; c += 16) {
      Value q =
          c < layout.headDim
              ? b.widen(b.load(b.vec(b.getI16Type()), b.at(from, 2 * c), 2),
                        spec.isBF16())
              : b.zeros();
      b.store(q, b.at(to, 4 * c), 64);
    }
  });
  if (op.getCache())
    quantiseQuery(query);
  set(op.getResult(), query);
  return success();
}

/// floor(log2(x)) of positive numbers given by their bits; -127 of subnormals.
static Value exponentOf(VectorBuilder &b, Value bits) {
  return b.sub(b.shr(bits, 23), b.constant(bits.getType(), int64_t(127)));
}

/// 2^n of an i32, -126 <= n <= 127.
static Value powerOfTwo(VectorBuilder &b, Value n) {
  return b.bitcast(b.withElement(n.getType(), b.getF32Type()),
                   b.shl(b.add(n, b.constant(n.getType(), int64_t(127))), 23));
}

static Value clampInt(VectorBuilder &b, Value x, int64_t low, int64_t high) {
  return b.min(b.max(x, b.constant(x.getType(), low)),
               b.constant(x.getType(), high));
}

void Emitter::quantiseQuery(QueryValue &query) {
  const int64_t vectors = paddedDim / 16;
  Type f32 = b.getF32Type();
  VectorType words = b.vec(b.getI32Type());
  query.quantised = b.alloca(group * paddedDim * 4);
  query.power = b.alloca(64);
  Value maxima = b.alloca(64);
  b.store(b.zeros(), query.power, 64);
  b.store(b.zeros(), maxima, 64);

  // query_c1. Channels that pad the head dimension count as zero whatever is
  // in memory there.
  Value smaxRow = b.at(arg(KernelArg::smax), b.mul(row, b.i64(2 * paddedDim)));
  SmallVector<Value> smax;
  Value top = b.constant(words, int64_t(0));
  for (int64_t v = 0; v < vectors; ++v) {
    Value s = b.widen(b.load(b.vec(b.getI16Type()), b.at(smaxRow, 32 * v), 2),
                      spec.isBF16());
    if (layout.headDim % 32 && v >= vectors - 2) {
      SmallVector<int64_t> real;
      for (int64_t place = 16 * v; place < 16 * v + 16; ++place)
        real.push_back(place % 8 < 4);
      s = b.select(b.constantVector(b.getI1Type(), real), s, b.zeros());
    }
    smax.push_back(s);
    top = b.max(top, b.absBits(s));
  }
  query.rescale = b.f32(1);
  Value exponent = b.i32(0);
  if (spec.isBF16()) {
    Value bits = b.reduceMax(top);
    Value usable = b.andi(b.cmp(IntCmp::sgt, bits, b.i32(0)),
                          b.cmp(IntCmp::slt, bits, b.i32(0x7F800000)));
    exponent =
        b.select(usable, clampInt(b, exponentOf(b, bits), -126, 126), b.i32(0));
    query.rescale = powerOfTwo(b, b.sub(b.i32(0), exponent));
    for (Value &s : smax)
      s = b.roundToF16(b.mul(s, b.splat(query.rescale)));
  }
  Value smaxBuffer = b.alloca(paddedDim * 4);
  for (int64_t v = 0; v < vectors; ++v)
    b.store(smax[v], b.at(smaxBuffer, 64 * v), 64);

  b.loop(group, [&](Value head) {
    Value offset = b.mul(head, b.i64(paddedDim * 4));
    Value natural = b.at(query.natural, offset);
    Value quantised = b.at(query.quantised, offset);
    Value lane = b.shl(head, 2);
    // query_c2
    Value bits = b.constant(words, int64_t(0));
    for (int64_t v = 0; v < vectors; v += 2) {
      Value low = b.loadF32(b.at(natural, 64 * v));
      Value high = b.loadF32(b.at(natural, 64 * v + 64));
      for (int64_t half = 0; half < 2; ++half) {
        Value q = b.shuffle(low, high, toScaleOrder(half));
        b.store(q, b.at(quantised, 64 * (v + half)), 64);
        Value s = b.loadF32(b.at(smaxBuffer, 64 * (v + half)));
        bits = b.max(bits, b.absBits(b.mul(q, s)));
      }
    }
    Value m = b.bitcast(f32, b.reduceMax(bits));
    b.store(m, b.at(maxima, lane), 4);
    Value small = b.cmp(FloatCmp::OLT, m, b.f32(0x1p-100f));
    Value inverse = b.select(small, b.f32(0), b.div(b.f32(126), m));
    // query_c3
    Value largest = b.constant(words, int64_t(0));
    b.loop(vectors, [&](Value v) {
      Value place = b.at(quantised, b.shl(v, 6));
      b.store(b.mul(b.loadF32(place), b.splat(inverse)), place, 64);
    });
    auto isZero = [&](int64_t v) {
      Value s = b.loadF32(b.at(smaxBuffer, 64 * v));
      return b.cmp(IntCmp::eq, b.absBits(s), b.constant(words, int64_t(0)));
    };
    for (int64_t v = 0; v < vectors; ++v) {
      Value x = b.absBits(b.loadF32(b.at(quantised, 64 * v)));
      largest =
          b.max(largest, b.select(isZero(v), b.constant(words, int64_t(0)), x));
    }
    Value a = b.reduceMax(largest);
    Value e = clampInt(b, b.sub(exponentOf(b, a), b.i32(14)), 0, 15);
    e = b.select(b.cmp(IntCmp::slt, a, b.i32(0x7F800000)), e, b.i32(0));
    b.store(powerOfTwo(b, e), b.at(query.power, lane), 4);
    Value down = b.splat(powerOfTwo(b, b.sub(b.i32(0), e)));
    for (int64_t v = 0; v < vectors; ++v) {
      Value place = b.at(quantised, 64 * v);
      Value qh = b.roundToF16(b.mul(b.loadF32(place), down));
      b.store(b.select(isZero(v), b.zeros(), qh), place, 64);
    }
  });

  // query_c4 and c5, lane = head.
  Value m = b.loadF32(maxima);
  query.nonFinite =
      b.cmp(IntCmp::sge, b.reduceMax(b.absBits(m)), b.i32(0x7F800000));
  Value small = b.cmp(FloatCmp::OLT, m, b.splat(b.f32(0x1p-100f)));
  m = b.select(small, b.zeros(), m);
  Value unit = b.div(m, b.splat(b.f32(126)));
  unit = b.mul(unit, b.splat(powerOfTwo(b, exponent)));
  unit = b.mul(unit, b.splat(query.smScale));
  query.unit = b.mul(unit, b.splat(b.f32(0x1p-8f)));
}
