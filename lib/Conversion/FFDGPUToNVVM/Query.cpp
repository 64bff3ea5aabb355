//===- Query.cpp - Queries and tail scores ------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The exact parts that happen once per row: quantising the query (query_c1 to
// query_c5), its scaled copy for the refinement, and tail scores in their fixed
// order. Every rounding here is one of the numerics page.
//
//===----------------------------------------------------------------------===//

#include "Lowering.h"

using namespace mlir;
using namespace mlir::ffd;

/// All elements of a fragment in f32: the low halves and the high halves in
/// turn.
static SmallVector<Value> unpackFloats(WarpBuilder &b, Value fragment,
                                       Type element) {
  SmallVector<Value> result;
  for (Value word : b.unpack(fragment)) {
    result.push_back(b.lowFloat(word, element));
    result.push_back(b.highFloat(word, element));
  }
  return result;
}

/// The maximum of all, as a tree: the fewest steps that wait for each other.
static Value maxOf(WarpBuilder &b, SmallVector<Value> values,
                   function_ref<Value(Value, Value)> max) {
  while (values.size() > 1) {
    size_t half = (values.size() + 1) / 2;
    for (size_t i = half; i < values.size(); ++i)
      values[i - half] = max(values[i - half], values[i]);
    values.resize(half);
  }
  return values.front();
}
static Value maxOfNaN(WarpBuilder &b, SmallVector<Value> values) {
  return maxOf(b, std::move(values),
               [&](Value x, Value y) { return b.fmaxNaN(x, y); });
}

/// The maximum over the four lanes that share a fragment; NaN propagates.
static Value reduceQuad(WarpBuilder &b, Value x) {
  x = b.fmaxNaN(x, b.shuffleXor(x, 1));
  return b.fmaxNaN(x, b.shuffleXor(x, 2));
}

/// The same over the eight lanes that share a head of the scan.
static Value reduceEight(WarpBuilder &b, Value x) {
  x = reduceQuad(b, x);
  return b.fmaxNaN(x, b.shuffleXor(x, 4));
}

/// floor(log2(x)) of x >= 0 from the exponent field: -127 for numbers below
/// 2^-126, 128 for infinity and NaN.
static Value exponentOf(WarpBuilder &b, Value x) {
  Value bits = b.bitcast(b.i32(), x);
  return b.add(b.band(b.shr(bits, 23), 0xFF), -127);
}

/// 2^n for -126 <= n <= 127.
static Value powerOfTwo(WarpBuilder &b, Value n) {
  return b.bitcast(b.f32(), b.shl(b.add(n, 127), 23));
}

static Value clamp(WarpBuilder &b, Value x, int64_t low, int64_t high) {
  return b.smax(b.smin(x, b.c32(high)), b.c32(low));
}

static Value isZero(WarpBuilder &b, Value x) {
  return b.fcmp(arith::CmpFPredicate::OEQ, x, b.cf(0));
}

Results mlir::ffd::lower(WarpBuilder &b, GPUQuantizeQueryOp op) {
  Type element = op.getElement();
  Type f16 = b.getF16Type();
  Value zero = b.cf(0);
  SmallVector<Value> q = unpackFloats(b, op.getQuery(), element);
  SmallVector<Value> s = unpackFloats(b, op.getSmax(), element);

  // query_c1: s' and 2^-k.
  Value k = b.c32(0), shift = b.cf(1), unshift = b.cf(1);
  if (element.isBF16()) {
    Value most = reduceEight(b, maxOfNaN(b, s));
    k = b.select(isZero(b, most), b.c32(0),
                 clamp(b, exponentOf(b, most), -126, 126));
    shift = powerOfTwo(b, b.sub(b.c32(0), k));
    unshift = powerOfTwo(b, k);
    for (Value &x : s) {
      Value narrow = arith::TruncFOp::create(b, f16, b.fmul(x, shift));
      x = arith::ExtFOp::create(b, b.f32(), narrow);
    }
  }

  // query_c2.
  SmallVector<Value> products;
  for (auto [x, y] : llvm::zip(q, s))
    products.push_back(b.fabs(b.fmul(x, y)));
  Value m = reduceEight(b, maxOfNaN(b, products));
  Value bad = b.bxor(b.isFinite(m), b.cbool(true));
  m = b.select(b.fcmp(arith::CmpFPredicate::OLT, m, b.cf(0x1p-100f)), zero, m);
  Value inverse = b.select(isZero(b, m), zero, b.fdiv(b.cf(126), m));

  // query_c3.
  SmallVector<Value> sizes;
  for (auto [x, y] : llvm::zip(q, s)) {
    x = b.fmul(x, inverse);
    sizes.push_back(b.select(isZero(b, y), zero, b.fabs(x)));
  }
  Value a = reduceEight(b, maxOfNaN(b, sizes));
  Value e = clamp(b, b.add(exponentOf(b, a), -14), 0, 15);
  Value down = powerOfTwo(b, b.sub(b.c32(0), e));
  SmallVector<Value> qh;
  for (size_t i = 0; i < q.size(); i += 2) {
    Value pair[2];
    for (size_t j : {0, 1})
      pair[j] = b.select(isZero(b, s[i + j]), zero, b.fmul(q[i + j], down));
    qh.push_back(b.packPair(pair[0], pair[1], f16));
  }
  // 2^e as f16, in both halves.
  Value factor = b.mul(b.shl(b.add(e, 15), 10), 0x10001);

  // query_c4, from left to right.
  Value unit = b.fmul(op.getSmScale(), b.fmul(b.fdiv(m, b.cf(126)), unshift));
  unit = b.fmul(unit, b.cf(0x1p-8f));
  return {b.pack(qh), factor, unit, bad, shift};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUScaleQueryOp op) {
  Type element = op.getElement();
  SmallVector<Value> q = unpackFloats(b, op.getQuery(), element);
  SmallVector<Value> s = unpackFloats(b, op.getSmax(), element);
  SmallVector<Value> products, sizes;
  for (auto [x, y] : llvm::zip(q, s)) {
    products.push_back(b.fabs(b.fmul(x, y)));
    sizes.push_back(b.fabs(x));
  }
  auto max = [&](Value x, Value y) { return b.fmax(x, y); };
  Value product = reduceQuad(b, maxOf(b, products, max));
  Value most = reduceQuad(b, maxOf(b, sizes, max));
  // Products up to 2^14, queries within their type.
  int64_t queryBits = element.isBF16() ? 100 : 14;
  Value j = b.smin(b.sub(b.c32(13), exponentOf(b, product)),
                   b.sub(b.c32(queryBits), exponentOf(b, most)));
  j = element.isBF16() ? clamp(b, j, -100, 100) : clamp(b, j, -30, 30);
  Value power = powerOfTwo(b, j);
  SmallVector<Value> scaled;
  for (size_t i = 0; i < q.size(); i += 2)
    scaled.push_back(
        b.packPair(b.fmul(q[i], power), b.fmul(q[i + 1], power), element));
  return {b.pack(scaled), powerOfTwo(b, b.sub(b.c32(0), j))};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUOrderedDotOp op) {
  Type element = op.getElement();
  // Partial sums 2l and 2l + 1 of tail_c1.
  Value even = b.cf(0), odd = b.cf(0);
  for (auto [k, q] :
       llvm::zip(b.unpack(op.getKeys()), b.unpack(op.getQuery()))) {
    even = b.fma(b.lowFloat(q, element), b.lowFloat(k, element), even);
    odd = b.fma(b.highFloat(q, element), b.highFloat(k, element), odd);
  }
  // p_i += p_{i+8}, p_{i+4}, p_{i+2} are lanes l + 4, l + 2, l + 1.
  for (int64_t mask : {4, 2, 1}) {
    even = b.fadd(even, b.shuffleXor(even, mask));
    odd = b.fadd(odd, b.shuffleXor(odd, mask));
  }
  return {b.fadd(even, odd)};
}
