//===- Split.cpp - Quantising keys --------------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// split_c1 to split_c5 for a tile of 16 tokens, and what makes its keys
// relative to the centre of their row. Every rounding here is one of the
// numerics page; the codes are bit-identical with those of the CPU.
//
//===----------------------------------------------------------------------===//

#include "Lowering.h"

#include "ffd/layout.h"

using namespace mlir;
using namespace mlir::ffd;

/// The f32 rounded to the element type (to nearest even), as its bits; finite
/// and not negative.
static Value roundToElement(WarpBuilder &b, Value x, Type element) {
  // The pair instruction is the one that all targets have for both types.
  return b.band(b.packPair(x, b.cf(0), element), 0xFFFF);
}

Results mlir::ffd::lower(WarpBuilder &b, GPUKeyMaximaOp op) {
  SmallVector<Value> keys = b.unpack(op.getKeys());
  SmallVector<Value> maxima;
  for (size_t group = 0; group < keys.size() / 8; ++group)
    for (size_t half : {0, 1})
      for (size_t word : {0, 1}) {
        // Registers 2 half (token g) and 2 half + 1 (token g + 8).
        Value a = keys[8 * group + 4 * half + word];
        Value c = keys[8 * group + 4 * half + 2 + word];
        for (int64_t shift : {0, 16}) {
          Value x = b.smax(b.band(b.shr(a, shift), 0x7FFF),
                           b.band(b.shr(c, shift), 0x7FFF));
          for (int64_t mask : {4, 8, 16})
            x = b.smax(x, b.shuffleXor(x, mask));
          maxima.push_back(x);
        }
      }
  return {b.pack(maxima)};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUSplitScaleOp op) {
  Type element = op.getElement();
  bool bf16 = element.isBF16();
  int64_t bits = op.getBits();
  float limit = float((1 << bits) - 1) / 2;
  Value finite = b.lt(op.getMaximum(), bf16 ? 0x7F80 : 0x7C00);
  Value largest = b.lowFloat(op.getMaximum(), element);
  Value scale = roundToElement(b, b.fdiv(largest, b.cf(limit)), element);
  if (bf16)
    scale = b.select(b.fcmp(arith::CmpFPredicate::OLT,
                            b.lowFloat(scale, element), b.cf(0x1p-100f)),
                     b.c32(0), scale);
  Value inverse = b.fdiv(b.cf(1), b.lowFloat(scale, element));
  Value factor = b.select(b.eq(scale, 0), b.cf(0), b.fmul(inverse, b.cf(256)));
  return {b.select(finite, scale, b.c32(bf16 ? 0x7FC0 : 0x7E00)),
          b.select(finite, factor, b.nan())};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUSplitTileOp op) {
  Type element = op.getElement();
  ::ffd::Layout layout;
  layout.scanBits = op.getBits();
  SmallVector<Value> keys = b.unpack(op.getKeys());
  SmallVector<Value> factors = b.unpack(op.getFactors());
  int64_t groups = int64_t(keys.size()) / 8;
  layout.headDim = 32 * groups;
  Value bias = b.cf(float(1 << (layout.scanBits + 7)));
  Value top = b.cf(float((1 << (layout.scanBits + 8)) - 1));

  SmallVector<Value> codes(size_t(layout.wordsPerTile()));
  SmallVector<Value> residuals;
  for (int64_t group = 0; group < groups; ++group)
    for (int64_t i = 0; i < 4; ++i) {
      Value residual;
      Value &code = codes[size_t(layout.codeWord(group, i))];
      for (int64_t byte = 0; byte < 4; ++byte) {
        Value word = keys[size_t((4 * group + i) * 2 + byte / 2)];
        Value k =
            byte % 2 ? b.highFloat(word, element) : b.lowFloat(word, element);
        Value factor = factors[size_t(8 * group + 4 * (i >> 1) + byte)];
        // A factor of NaN ends as 0: the maximum ignores it (split_c3).
        Value x = b.floor(b.fma(k, factor, bias));
        x = b.toInt(b.fmin(b.fmax(x, b.cf(0)), top));
        Value low = b.shl(b.band(x, 0xFF), 8 * byte);
        Value high = b.shl(b.shr(x, 8), 8 * byte + layout.codeBit(group, i));
        residual = residual ? b.bor(residual, low) : low;
        code = code ? b.bor(code, high) : high;
      }
      residuals.push_back(residual);
    }
  return {b.pack(codes), b.pack(residuals)};
}

Results mlir::ffd::lower(WarpBuilder &b, GPURelativeKeysOp op) {
  // c * -1 + k: the instruction that all targets have for both types. One
  // rounding gives what centre_c3 does with two, and NaN is 0x7FFF.
  bool bf16 = op.getElement().isBF16();
  Value minusOne = b.c32(int32_t(bf16 ? 0xBF80BF80 : 0xBC00BC00));
  SmallVector<Value> keys = b.unpack(op.getKeys());
  SmallVector<Value> centre = b.unpack(op.getCentre());
  SmallVector<Value> result;
  for (auto [k, c] : llvm::zip(keys, centre))
    result.push_back(b.ptx(b.i32(),
                           bf16 ? "fma.rn.bf16x2 $0, $1, $2, $3;"
                                : "fma.rn.f16x2 $0, $1, $2, $3;",
                           "=r,r,r,r", {c, minusOne, k}));
  return {b.pack(result)};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUAddKeysOp op) {
  SmallVector<Value> sums = b.unpack(op.getSums());
  SmallVector<Value> keys = b.unpack(op.getKeys());
  for (size_t i = 0; i < keys.size(); ++i) {
    Value &low = sums[2 * i], &high = sums[2 * i + 1];
    low = b.fadd(low, b.lowFloat(keys[i], op.getElement()));
    high = b.fadd(high, b.highFloat(keys[i], op.getElement()));
  }
  return {b.pack(sums)};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUCentreKeyOp op) {
  SmallVector<Value> sums = b.unpack(op.getSums());
  for (size_t width = sums.size() / 2; width > 0; width /= 2)
    for (size_t i = 0; i < width; ++i)
      sums[i] = b.fadd(sums[i], sums[i + width]);
  Value mean = b.fdiv(sums[0], b.cf(float(op.getTokens())));
  Value bits =
      b.band(b.packPair(mean, b.cf(0), op.getElement()), int64_t(0xFFFF));
  Value finite =
      b.lt(b.band(bits, 0x7FFF), op.getElement().isBF16() ? 0x7F80 : 0x7C00);
  return {b.select(finite, bits, b.c32(0))};
}
