//===- Scan.cpp - The integer scan ------------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// scan_c1, scan_c2 and select_c4 on the tensor cores: unsigned codes times the
// two signed bytes of a folded query, exactly, in int32.
//
//===----------------------------------------------------------------------===//

#include "Lowering.h"

using namespace mlir;
using namespace mlir::ffd;

SmallVector<Value> WarpBuilder::mmaInt(ArrayRef<Value> a, ArrayRef<Value> b,
                                       ArrayRef<Value> c, bool signedA) {
  Type type = LLVM::LLVMStructType::getLiteral(getContext(),
                                               SmallVector<Type>(4, i32()));
  Value result =
      NVVM::MmaOp::create(*this, type, a, b, c, ArrayRef<int64_t>{16, 8, 32},
                          std::nullopt, NVVM::MMAIntOverflow::wrapped,
                          std::array<NVVM::MMATypes, 2>{
                              signedA ? NVVM::MMATypes::s8 : NVVM::MMATypes::u8,
                              NVVM::MMATypes::s8},
                          std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row,
                                                         NVVM::MMALayout::col});
  SmallVector<Value> values;
  for (int64_t i = 0; i < 4; ++i)
    values.push_back(LLVM::ExtractValueOp::create(*this, result, i));
  return values;
}

Results mlir::ffd::lower(WarpBuilder &b, GPUScaleFragmentOp op) {
  Type bf16 = b.getBF16Type();
  SmallVector<Value> words;
  for (Value word : b.unpack(op.getScales()))
    words.push_back(b.packPair(b.fmul(b.lowFloat(word, bf16), op.getShift()),
                               b.fmul(b.highFloat(word, bf16), op.getShift()),
                               b.getF16Type()));
  return {b.pack(words)};
}

/// 1536 in both halves: added to an f16 below 512 in magnitude it rounds it to an
/// integer, ties to even, and leaves that in the low byte.
static constexpr uint32_t kRoundToByte = 0x66006600;

Results mlir::ffd::lower(WarpBuilder &b, GPUFoldOp op) {
  // y = 2^e t, t = qh s. Adding 1536 to y rounds it to an integer, ties to
  // even, and leaves it in the low byte: hi. The lanes of the low byte go on
  // with d = y - hi, exactly, and round 128 d the same way. Both do it in the
  // same five instructions, with constants that depend on the lane.
  auto pair = [&](uint32_t half) { return b.c32(half * 0x10001u); };
  constexpr uint32_t one = 0x3C00, minusOne = 0xBC00, times128 = 0x5800;
  Value thread = NVVM::ThreadIdXOp::create(b, b.i32());
  Value isLow = b.ne(b.band(thread, 4), 0);
  Value takeHi = b.select(isLow, pair(minusOne), b.c32(0));
  Value undoMagic = b.select(isLow, b.c32(kRoundToByte), b.c32(0));
  Value stretch = b.select(isLow, pair(times128), pair(one));
  Value round = b.c32(kRoundToByte), factor = op.getFactor();
  auto fold = [&](Value q, Value s) {
    Value t = b.mul2(q, s);
    Value rounded = b.fma2(t, factor, round);
    Value minusHi = b.fma2(rounded, takeHi, undoMagic);
    Value d = b.fma2(t, factor, minusHi);
    return b.fma2(d, stretch, round);
  };
  SmallVector<Value> q = b.unpack(op.getQuery()), s = b.unpack(op.getScales());
  SmallVector<Value> words;
  for (size_t i = 0; i < q.size(); i += 2)
    words.push_back(
        b.permute(fold(q[i], s[i]), fold(q[i + 1], s[i + 1]), 0x6420));
  return {b.pack(words)};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUFoldHighOp op) {
  // The first step of `fold`.
  Value round = b.c32(kRoundToByte), factor = op.getFactor();
  SmallVector<Value> q = b.unpack(op.getQuery()), s = b.unpack(op.getScales());
  auto high = [&](size_t i) {
    return b.fma2(b.mul2(q[i], s[i]), factor, round);
  };
  SmallVector<Value> words;
  for (size_t i = 0; i < q.size(); i += 2)
    words.push_back(b.permute(high(i), high(i + 1), 0x6420));
  return {b.pack(words)};
}

/// 2 L times the sums of two columns of a folded query.
static SmallVector<Value> sumColumns(WarpBuilder &b, Value operand,
                                     int64_t bits) {
  int64_t twiceL = (int64_t(1) << bits) - 1;
  Value a = b.c32(twiceL * 0x01010101);
  SmallVector<Value> folded = b.unpack(operand);
  SmallVector<Value> c(4, b.c32(0));
  for (size_t i = 0; i < folded.size(); i += 2)
    c = b.mmaInt({a, a, a, a}, {folded[i], folded[i + 1]}, c);
  return c;
}

Results mlir::ffd::lower(WarpBuilder &b, GPUCentreOp op) {
  SmallVector<Value> c = sumColumns(b, op.getFolded(), op.getBits());
  return {b.add(b.shl(c[0], 7), c[1])};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUSquareSumOp op) {
  // Column n of B lies where row n of A does, so B is its own transpose: the
  // products of all columns with each other. Head h has hi in column 2h and lo
  // in column 2h + 1: Q^2 = 2^14 hi^2 + 2^8 hi lo + lo^2. Lane 9 tq has the
  // first two of head tq, the lane of the next row the last.
  SmallVector<Value> folded = b.unpack(op.getFolded());
  Value zero = b.c32(0);
  SmallVector<Value> c(4, zero);
  for (size_t i = 0; i < folded.size(); i += 2)
    c = b.mmaInt({folded[i], zero, folded[i + 1], zero},
                 {folded[i], folded[i + 1]}, c, /*signedA=*/true);
  // Read again, so that nothing of it lives through a loop: registers are dear.
  Value thread = b.ptxVolatile(b.i32(), "mov.u32 $0, %tid.x;", "=r", {});
  Value isLow = b.ne(b.band(thread, 4), 0);
  Value high = b.fma(b.toFloat(c[0]), b.cf(0x1p14f),
                     b.fmul(b.toFloat(c[1]), b.cf(0x1p8f)));
  Value part = b.select(isLow, b.toFloat(c[1]), high);
  Value sum = b.fadd(part, b.shuffleXor(part, 4));
  return {b.shuffleFrom(sum, b.mul(b.band(thread, 3), 9))};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUCentreHighOp op) {
  SmallVector<Value> c = sumColumns(b, op.getFolded(), op.getBits());
  return {b.pack({c[0], c[1]})};
}

/// The A operand (four registers) of channel group `group`.
static SmallVector<Value> codeOperand(WarpBuilder &b, ArrayRef<Value> codes,
                                      int64_t group, int64_t bits) {
  if (bits == 8)
    return SmallVector<Value>(codes.slice(4 * group, 4));
  int64_t field = ((int64_t(1) << bits) - 1) * 0x01010101;
  Value even = b.c32(field), odd = b.c32(field << bits);
  Value low = bits == 2 ? codes[group] : codes[2 * group];
  Value high = bits == 2 ? b.shr(codes[group], 4) : codes[2 * group + 1];
  return {b.band(low, even), b.band(low, odd), b.band(high, even),
          b.band(high, odd)};
}

/// The products of a tile's codes with folded queries, on top of `c`.
static void multiplyCodes(WarpBuilder &b, Value codesOperand, int64_t bits,
                          ValueRange folded,
                          SmallVector<SmallVector<Value>> &c) {
  SmallVector<Value> codes = b.unpack(codesOperand);
  SmallVector<SmallVector<Value>> queries;
  for (Value tile : folded)
    queries.push_back(b.unpack(tile));
  int64_t groups = queries.front().size() / 2;
  for (int64_t group = 0; group < groups; ++group) {
    SmallVector<Value> a = codeOperand(b, codes, group, bits);
    for (size_t i = 0; i < c.size(); ++i)
      c[i] = b.mmaInt(a, ArrayRef<Value>(queries[i]).slice(2 * group, 2), c[i]);
  }
}

Results mlir::ffd::lower(WarpBuilder &b, GPUScanTileOp op) {
  int64_t bits = op.getBits();
  SmallVector<SmallVector<Value>> c;
  Value zero = b.c32(0);
  for (Value start : op.getStarts())
    c.push_back({zero, start, zero, bits == 8 ? start : b.shl(start, bits)});
  multiplyCodes(b, op.getCodes(), bits, op.getFolded(), c);
  SmallVector<Value> scores;
  for (ArrayRef<Value> tile : c) {
    scores.push_back(b.add(b.shl(tile[0], 7), tile[1]));
    scores.push_back(b.add(b.shl(tile[2], 7), tile[3]));
  }
  return {b.pack(scores)};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUScreenTileOp op) {
  int64_t bits = op.getBits();
  SmallVector<SmallVector<Value>> c;
  for (Value starts : op.getStarts()) {
    SmallVector<Value> tile = b.unpack(starts);
    for (int64_t i : {0, 1})
      tile.push_back(bits == 8 ? tile[i] : b.shl(tile[i], bits));
    c.push_back(tile);
  }
  multiplyCodes(b, op.getCodes(), bits, op.getFolded(), c);
  SmallVector<Value> scores;
  for (ArrayRef<Value> tile : c)
    scores.append(tile.begin(), tile.end());
  return {b.pack(scores)};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUPushKeepOp op) {
  SmallVector<Value> scores = b.unpack(op.getScores());
  Value all = scores.front();
  for (Value score : ArrayRef<Value>(scores).drop_front())
    all = b.band(all, score);
  return {LLVM::FshlOp::create(b, b.i32(), op.getBits(), all, b.c32(1))};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUKeepMaskOp op) {
  Value skipped = NVVM::ReduxOp::create(b, b.i32(), op.getBits(),
                                        NVVM::ReduxKind::AND, b.fullMask());
  Value mask = b.band(b.bnot(skipped), 0xFF);
  Value one;
  switch (op.getSelectBlock()) {
  case 32:
    one = b.band(b.bor(mask, b.shr(mask, 1)), 0x55);
    return {b.mul(one, 3)};
  case 64:
    one = b.bor(mask, b.shr(mask, 1));
    one = b.band(b.bor(one, b.shr(one, 2)), 0x11);
    return {b.mul(one, 15)};
  case 128:
    return {b.select(b.ne(mask, 0), b.c32(0xFF), b.c32(0))};
  default:
    return {mask};
  }
}
