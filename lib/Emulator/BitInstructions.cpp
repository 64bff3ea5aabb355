//===- BitInstructions.cpp - Moves, selections, comparisons ---------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Instructions that move, pick, permute or compare the bits of registers.
//
//===----------------------------------------------------------------------===//

#include "Float16.h"
#include "Machine.h"
#include "NumberTypes.h"

using namespace ffd::emulator;

// mov with vectors packs or unpacks.
static void movVector(Machine &m, Lane &lane, const Instruction &i,
                      uint64_t *regs) {
  const Operand &d = i.operands[0], &a = i.operands[1];
  uint64_t bits = 0;
  if (a.kind == Operand::Vector) {
    unsigned width = unsigned(i.c / a.parts.size());
    uint64_t mask = (uint64_t(1) << width) - 1;
    for (size_t k = 0; k < a.parts.size(); ++k)
      bits |= (read(m, lane, a.parts[k], regs) & mask) << width * k;
  } else {
    bits = read(m, lane, a, regs);
  }
  if (d.kind != Operand::Vector) {
    write(d, regs, bits);
    return;
  }
  unsigned width = unsigned(i.c / d.parts.size());
  uint64_t mask = (uint64_t(1) << width) - 1;
  for (size_t k = 0; k < d.parts.size(); ++k)
    write(d.parts[k], regs, bits >> width * k & mask);
}

static void selp(Machine &m, Lane &lane, const Instruction &i, uint64_t *regs) {
  bool p = read(m, lane, i.operands[3], regs) & 1;
  write(i.operands[0], regs, read(m, lane, i.operands[p ? 1 : 2], regs));
}

// setp.cmp.type p{|q}, a, b (a: comparison, b: type).
static void setp(Machine &m, Lane &lane, const Instruction &i, uint64_t *regs) {
  size_t first = i.operands.size() - 2;
  uint64_t a = read(m, lane, i.operands[first], regs);
  uint64_t b = read(m, lane, i.operands[first + 1], regs);
  int order; // -1, 0, 1; 2 unordered
  auto compare = [](auto x, auto y) { return x < y ? -1 : x == y ? 0 : 1; };
  auto compareFloat = [&](double x, double y) {
    return std::isnan(x) || std::isnan(y) ? 2 : compare(x, y);
  };
  switch (Type(i.b)) {
  case Float:
    order = compareFloat(bitsToFloat(a), bitsToFloat(b));
    break;
  case Double:
    order = compareFloat(bitsToDouble(a), bitsToDouble(b));
    break;
  case Half:
    order = compareFloat(halfToFloat(uint16_t(a)), halfToFloat(uint16_t(b)));
    break;
  case Sign16:
    order = compare(int16_t(a), int16_t(b));
    break;
  case Sign32:
    order = compare(int32_t(a), int32_t(b));
    break;
  case Sign64:
    order = compare(int64_t(a), int64_t(b));
    break;
  case I16:
    order = compare(uint16_t(a), uint16_t(b));
    break;
  case I32:
    order = compare(uint32_t(a), uint32_t(b));
    break;
  default:
    order = compare(a, b);
  }
  bool result = order == 2 ? i.a & 8 : i.a >> (order + 1) & 1;
  write(i.operands[0], regs, result);
  if (first == 2)
    write(i.operands[1], regs, !result);
}

// prmt.b32{.mode} d, a, b, c
static void prmt(Machine &m, Lane &lane, const Instruction &i, uint64_t *regs) {
  uint32_t a = uint32_t(read(m, lane, i.operands[1], regs));
  uint32_t b = uint32_t(read(m, lane, i.operands[2], regs));
  uint32_t c = uint32_t(read(m, lane, i.operands[3], regs));
  uint64_t pool = uint64_t(b) << 32 | a;
  uint32_t result = 0;
  for (unsigned k = 0; k < 4; ++k) {
    unsigned from = 0, s = c & 3;
    bool sign = false;
    switch (i.a) {
    case 0:
      from = c >> 4 * k & 7;
      sign = c >> (4 * k + 3) & 1;
      break;
    case 1: // f4e
      from = s + k;
      break;
    case 2: // b4e
      from = (s - k) & 7;
      break;
    case 3: // rc8
      from = s;
      break;
    case 4: // ecl
      from = std::max(k, s);
      break;
    case 5: // ecr
      from = std::min(k, s);
      break;
    default: // rc16
      from = (s & 1) * 2 + (k & 1);
      break;
    }
    uint8_t byte = uint8_t(pool >> 8 * from);
    if (sign)
      byte = byte & 0x80 ? 0xFF : 0;
    result |= uint32_t(byte) << 8 * k;
  }
  write(i.operands[0], regs, result);
}

static void lop3(Machine &m, Lane &lane, const Instruction &i, uint64_t *regs) {
  uint32_t in[4];
  for (unsigned k = 0; k < 4; ++k)
    in[k] = uint32_t(read(m, lane, i.operands[k + 1], regs));
  uint32_t result = 0;
  for (unsigned bit = 0; bit < 32; ++bit) {
    unsigned index =
        (in[0] >> bit & 1) << 2 | (in[1] >> bit & 1) << 1 | (in[2] >> bit & 1);
    result |= (in[3] >> index & 1) << bit;
  }
  write(i.operands[0], regs, result);
}

// dp4a.atype.btype d, a, b, c
static void dp4a(Machine &m, Lane &lane, const Instruction &i, uint64_t *regs) {
  uint32_t a = uint32_t(read(m, lane, i.operands[1], regs));
  uint32_t b = uint32_t(read(m, lane, i.operands[2], regs));
  uint32_t sum = uint32_t(read(m, lane, i.operands[3], regs));
  auto byte = [](uint32_t word, unsigned k, bool isSigned) {
    uint8_t x = uint8_t(word >> 8 * k);
    return isSigned ? int(int8_t(x)) : int(x);
  };
  for (unsigned k = 0; k < 4; ++k)
    sum += uint32_t(byte(a, k, i.a) * byte(b, k, i.b));
  write(i.operands[0], regs, sum);
}

// bfe.type d, a, position, length
static void bfe(Machine &m, Lane &lane, const Instruction &i, uint64_t *regs) {
  uint32_t a = uint32_t(read(m, lane, i.operands[1], regs));
  unsigned position = read(m, lane, i.operands[2], regs) & 255;
  unsigned length = read(m, lane, i.operands[3], regs) & 255;
  bool isSigned = i.has("s32");
  uint32_t result = 0;
  unsigned top = std::min(31u, position + length - 1);
  uint32_t sign = isSigned && length ? a >> top & 1 : 0;
  for (unsigned bit = 0; bit < 32; ++bit) {
    bool inside = bit < length && position + bit <= 31;
    result |= (inside ? a >> (position + bit) & 1 : sign) << bit;
  }
  write(i.operands[0], regs, result);
}

bool ffd::emulator::resolveBits(Instruction &i) {
  llvm::StringRef name = i.part(0);
  size_t n = i.operands.size();
  i.b = i.parts.empty() ? None : typeNamed(i.parts.back());
  if (name == "prmt") {
    llvm::StringRef mode = i.part(2);
    i.a = llvm::StringSwitch<int>(mode)
              .Case("f4e", 1)
              .Case("b4e", 2)
              .Case("rc8", 3)
              .Case("ecl", 4)
              .Case("ecr", 5)
              .Case("rc16", 6)
              .Default(0);
    i.execute = prmt;
    return n == 4;
  }
  if (name == "lop3") {
    i.execute = lop3;
    return n == 5;
  }
  if (name == "dp4a") {
    i.a = i.part(1) == "s32";
    i.b = i.part(2) == "s32";
    i.execute = dp4a;
    return n == 4;
  }
  if (name == "bfe") {
    i.execute = bfe;
    return n == 4 && (i.b == I32 || i.b == Sign32);
  }
  if (name == "selp") {
    i.execute = selp;
    return n == 4;
  }
  if (name == "setp") {
    // Bits: less, equal, greater, unordered.
    llvm::StringRef cmp = i.part(1);
    i.a = llvm::StringSwitch<int>(cmp)
              .Cases({"lt", "lo"}, 1)
              .Case("eq", 2)
              .Cases({"le", "ls"}, 3)
              .Cases({"gt", "hi"}, 4)
              .Case("ne", 5)
              .Cases({"ge", "hs"}, 6)
              .Case("num", 7)
              .Case("nan", 8)
              .Case("ltu", 9)
              .Case("equ", 10)
              .Case("leu", 11)
              .Case("gtu", 12)
              .Case("neu", 13)
              .Case("geu", 14)
              .Default(-1);
    i.execute = setp;
    return i.a >= 0 && (n == 3 || n == 4) && i.parts.size() == 3;
  }
  if (name == "mov" && n == 2 &&
      (i.operands[0].kind == Operand::Vector ||
       i.operands[1].kind == Operand::Vector)) {
    i.c = i.b == I64 || i.b == Sign64 ? 64 : i.b == I16 ? 16 : 32;
    i.execute = movVector;
    return true;
  }
  return false;
}
