//===- MatrixInstructions.cpp - Tensor cores and their loads -------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// mma.sync, ldmatrix, stmatrix and movmatrix with the fragment layouts of the
// PTX manual. Products are exact; an f32 accumulator is the exact sum up to
// double's rounding, rounded once (hardware truncates on the way and in another
// order, see docs/emulator.md).
//
//===----------------------------------------------------------------------===//

#include "Float16.h"
#include "Machine.h"
#include "TensorSum.h"

using namespace ffd::emulator;

namespace {
enum Element { U8, S8, F16, BF16, TF32 };
} // namespace

static uint64_t part(Machine &m, Warp &w, const Operand &operand, size_t k,
                     uint64_t *const *regs, unsigned lane) {
  const Operand &word =
      operand.kind == Operand::Vector ? operand.parts[k] : operand;
  return read(m, *w.lanes[lane], word, regs[lane]);
}
static void setPart(const Operand &operand, size_t k, uint64_t *regs,
                    uint64_t value) {
  write(operand.kind == Operand::Vector ? operand.parts[k] : operand, regs,
        value);
}

static float elementOf(uint32_t word, unsigned index, int element) {
  switch (element) {
  case F16:
    return halfToFloat(uint16_t(word >> 16 * index));
  case BF16:
    return bfloatToFloat(uint16_t(word >> 16 * index));
  default: // TF32: the tensor core drops the low bits
    return bitsToFloat(word & 0xFFFFE000);
  }
}
static int byteOf(uint32_t word, unsigned index, int element) {
  uint8_t byte = uint8_t(word >> 8 * index);
  return element == S8 ? int(int8_t(byte)) : int(byte);
}

// mma.sync.aligned.m16n8kK.row.col.D.A.B.C d, a, b, c: a, b: elements,
// c: K, d: bit 0 the accumulator is f16, bit 1 saturating.
//
// Word i of A: rows g + 8 (i & 1), columns tq * perWord + (i >> 1) * K / 2.
// Word i of B: rows tq * perWord + i * K / 2, column g. Result i: row
// g + 8 (i >> 1), column 2 tq + (i & 1).
static void mma(Machine &m, Warp &w, const Instruction &i,
                uint64_t *const *regs, uint32_t mask) {
  if (mask != ~0u)
    m.fail(*w.lanes[0], w.lanes[0]->place, "mma.sync in an incomplete warp");
  const Operand &d = i.operands[0], &a = i.operands[1], &b = i.operands[2],
                &c = i.operands[3];
  bool isInt = i.a == U8 || i.a == S8;
  int k = i.c, perWord = isInt ? 4 : i.a == TF32 ? 1 : 2;
  int halves = k / (4 * perWord); // words per lane along K: 1 or 2
  Factor fa[16][32], fb[8][32];
  int smallest = i.a == F16 ? -14 : -126;
  int ia[16][32], ib[8][32];
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned g = lane >> 2, tq = lane & 3;
    for (int word = 0; word < 2 * halves; ++word) {
      uint32_t bits = uint32_t(part(m, w, a, word, regs, lane));
      unsigned row = g + 8 * (word & 1);
      for (int e = 0; e < perWord; ++e) {
        int column = int(tq) * perWord + (word >> 1) * 4 * perWord + e;
        if (isInt)
          ia[row][column] = byteOf(bits, e, i.a);
        else
          fa[row][column] = factorOf(elementOf(bits, e, i.a), smallest);
      }
    }
    for (int word = 0; word < halves; ++word) {
      uint32_t bits = uint32_t(part(m, w, b, word, regs, lane));
      for (int e = 0; e < perWord; ++e) {
        int row = int(tq) * perWord + word * 4 * perWord + e;
        if (isInt)
          ib[g][row] = byteOf(bits, e, i.b);
        else
          fb[g][row] = factorOf(elementOf(bits, e, i.b), smallest);
      }
    }
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned g = lane >> 2, tq = lane & 3;
    uint32_t results[4];
    for (unsigned r = 0; r < 4; ++r) {
      unsigned row = g + 8 * (r >> 1), column = 2 * tq + (r & 1);
      if (isInt) {
        int64_t sum = int32_t(part(m, w, c, r, regs, lane));
        for (int x = 0; x < k; ++x)
          sum += ia[row][x] * ib[column][x];
        if (i.d & 2)
          sum = std::min<int64_t>(std::max<int64_t>(sum, INT32_MIN), INT32_MAX);
        results[r] = uint32_t(sum);
        continue;
      }
      if (i.d & 1) {
        double sum = 0;
        for (int x = 0; x < k; ++x)
          sum += double(fa[row][x].value) * double(fb[column][x].value);
        uint32_t word = uint32_t(part(m, w, c, r >> 1, regs, lane));
        results[r] = doubleToHalf(
            sum + double(halfToFloat(uint16_t(word >> 16 * (r & 1)))));
      } else {
        float old = bitsToFloat(uint32_t(part(m, w, c, r, regs, lane)));
        results[r] = floatToBits(
            tensorSum(m.options.tensorCores, fa[row], fb[column], k, old));
      }
    }
    if (i.d & 1) {
      setPart(d, 0, regs[lane], results[0] | results[1] << 16);
      setPart(d, 1, regs[lane], results[2] | results[3] << 16);
    } else {
      for (unsigned r = 0; r < 4; ++r)
        setPart(d, r, regs[lane], results[r]);
    }
  }
}

static size_t count(const Operand &operand) {
  return operand.kind == Operand::Vector ? operand.parts.size() : 1;
}

static bool resolveMma(Instruction &i) {
  // mma.sync.aligned.shape.row.col{.satfinite}.d.a.b.c
  auto parts = llvm::ArrayRef(i.parts).drop_front(3);
  if (parts.size() < 7 || parts[1] != "row" || parts[2] != "col" ||
      i.operands.size() != 4)
    return false;
  auto types = parts.take_back(4);
  auto element = [](llvm::StringRef name) {
    return name == "u8"     ? int(U8)
           : name == "s8"   ? int(S8)
           : name == "f16"  ? int(F16)
           : name == "bf16" ? int(BF16)
           : name == "tf32" ? int(TF32)
                            : -1;
  };
  i.a = element(types[1]);
  i.b = element(types[2]);
  if (i.a < 0 || i.b < 0 || types[0] != types[3] ||
      llvm::StringRef(parts[0]).consume_front("m16n8k") == false)
    return false;
  if (llvm::StringRef(parts[0]).drop_front(6).getAsInteger(10, i.c))
    return false;
  bool isInt = i.a <= S8;
  int perWord = isInt ? 4 : i.a == TF32 ? 1 : 2;
  if (isInt != (i.b <= S8) || (!isInt && i.a != i.b) ||
      (i.c != 4 * perWord && i.c != 8 * perWord))
    return false;
  i.d = (types[0] == "f16" ? 1 : 0) | (i.has("satfinite") ? 2 : 0);
  size_t halves = size_t(i.c / (4 * perWord)), accumulators = i.d & 1 ? 2 : 4;
  if (count(i.operands[1]) != 2 * halves || count(i.operands[2]) != halves ||
      count(i.operands[0]) != accumulators ||
      count(i.operands[3]) != accumulators)
    return false;
  i.collective = mma;
  return true;
}

/// Lane `l` holds elements (row l / 4, columns 2 (l & 3) and + 1) of an 8 x 8
/// matrix; transposed if asked for.
static uint32_t fragment(const uint16_t (&matrix)[8][8], unsigned lane,
                         bool transposed) {
  unsigned row = lane >> 2, column = 2 * (lane & 3);
  uint32_t low = transposed ? matrix[column][row] : matrix[row][column];
  uint32_t high =
      transposed ? matrix[column + 1][row] : matrix[row][column + 1];
  return low | high << 16;
}

// movmatrix.sync.aligned.m8n8.trans.b16 d, a
static void movmatrix(Machine &m, Warp &w, const Instruction &i,
                      uint64_t *const *regs, uint32_t mask) {
  uint16_t matrix[8][8] = {};
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1))
      m.fail(*w.lanes[0], w.lanes[0]->place, "movmatrix in an incomplete warp");
    uint32_t word = uint32_t(part(m, w, i.operands[1], 0, regs, lane));
    matrix[lane >> 2][2 * (lane & 3)] = uint16_t(word);
    matrix[lane >> 2][2 * (lane & 3) + 1] = uint16_t(word >> 16);
  }
  for (unsigned lane = 0; lane < 32; ++lane)
    write(i.operands[0], regs[lane], fragment(matrix, lane, true));
}

// ldmatrix (c = 0: d, [address]) and stmatrix (c = 1: [address], d) of a
// matrices of 8 rows of 16 bytes; b: transposed. Lane 8 m + r has the address
// of row r of matrix m; its access counts as that lane's.
static void moveMatrices(Machine &m, Warp &w, const Instruction &i,
                         uint64_t *const *regs, uint32_t mask) {
  if (mask != ~0u)
    m.fail(*w.lanes[0], w.lanes[0]->place, "ldmatrix in an incomplete warp");
  const Operand &address = i.operands[i.c ? 0 : 1];
  const Operand &data = i.operands[i.c ? 1 : 0];
  for (int n = 0; n < i.a; ++n) {
    uint16_t matrix[8][8];
    if (i.c)
      for (unsigned lane = 0; lane < 32; ++lane) {
        uint32_t word = uint32_t(part(m, w, data, n, regs, lane));
        unsigned row = lane >> 2, column = 2 * (lane & 3);
        for (unsigned e = 0; e < 2; ++e) {
          uint16_t x = uint16_t(word >> 16 * e);
          (i.b ? matrix[column + e][row] : matrix[row][column + e]) = x;
        }
      }
    for (unsigned row = 0; row < 8; ++row) {
      unsigned source = unsigned(8 * n) + row;
      uintptr_t at = addressOf(address, regs[source]);
      Lane &lane = *w.lanes[source];
      if (!m.isShared(at, *lane.block))
        m.fail(lane, lane.place,
               "'" + i.text + "' with an address outside of shared memory");
      m.accessFor(lane, at, 16, 16, i.c ? Machine::Write : Machine::Read,
                  lane.place);
      if (i.c)
        std::memcpy(reinterpret_cast<void *>(at), matrix[row], 16);
      else
        std::memcpy(matrix[row], reinterpret_cast<const void *>(at), 16);
    }
    if (!i.c)
      for (unsigned lane = 0; lane < 32; ++lane)
        setPart(data, n, regs[lane], fragment(matrix, lane, i.b));
  }
}

bool ffd::emulator::resolveMatrix(Instruction &i) {
  llvm::StringRef name = i.part(0);
  if (name == "mma")
    return resolveMma(i);
  if (name == "movmatrix") {
    i.collective = movmatrix;
    return i.operands.size() == 2;
  }
  if (name != "ldmatrix" && name != "stmatrix")
    return false;
  if (!i.has("m8n8") || !i.has("b16") || i.operands.size() != 2)
    return false;
  i.c = name == "stmatrix";
  i.b = i.has("trans");
  i.a = i.has("x4") ? 4 : i.has("x2") ? 2 : 1;
  i.collective = moveMatrices;
  return count(i.operands[i.c ? 1 : 0]) == size_t(i.a);
}
