//===- Arithmetic.cpp - Instructions of one lane --- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Integer and floating-point instructions that touch registers only. Those on
// 16-bit floats round once; approximations are the host's functions, which are
// within the errors that the PTX manual states.
//
//===----------------------------------------------------------------------===//

#include "Float16.h"
#include "Machine.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/bit.h"

using namespace ffd::emulator;

namespace {
enum Type {
  None,
  Pred,
  I16,
  I32,
  I64,
  Sign16,
  Sign32,
  Sign64,
  Float,
  Double,
  Half,
  Half2,
  Bfloat,
  Bfloat2
};
enum Code {
  Add,
  Sub,
  Mul,
  MulHi,
  MulWide,
  Mad,
  Fma,
  Min,
  Max,
  And,
  Or,
  Xor,
  Not,
  Shl,
  Shr,
  Neg,
  Abs,
  Mov,
  Selp,
  Popc,
  Clz,
  Rcp,
  Rsqrt,
  Sqrt,
  Ex2,
  Lg2,
  Tanh,
  Div,
  Rem
};
enum Flags { Ftz = 1, NaN = 2, Relu = 4, Sat = 8, Low = 16 };
} // namespace

static Type typeNamed(llvm::StringRef name) {
  return llvm::StringSwitch<Type>(name)
      .Case("pred", Pred)
      .Cases({"b16", "u16"}, I16)
      .Cases({"b32", "u32"}, I32)
      .Cases({"b64", "u64"}, I64)
      .Case("s16", Sign16)
      .Case("s32", Sign32)
      .Case("s64", Sign64)
      .Case("f32", Float)
      .Case("f64", Double)
      .Case("f16", Half)
      .Case("f16x2", Half2)
      .Case("bf16", Bfloat)
      .Case("bf16x2", Bfloat2)
      .Default(None);
}

static double flush(double x) {
  return std::fabs(x) < 0x1p-126 ? std::copysign(0.0, x) : x;
}

/// Minimum and maximum of PTX: a NaN loses unless asked for, -0 < +0.
static double extreme(double a, double b, bool max, bool nan) {
  if (std::isnan(a) || std::isnan(b)) {
    if (nan || (std::isnan(a) && std::isnan(b)))
      return NAN;
    return std::isnan(a) ? b : a;
  }
  if (a == b)
    return std::signbit(a) == max ? b : a;
  return (a < b) == max ? b : a;
}

/// The result before its rounding to at most 24 bits; sums of products of f32
/// are rounded by the caller.
static double compute(Code code, double a, double b, double c, int flags) {
  switch (code) {
  case Add:
    return a + b;
  case Sub:
    return a - b;
  case Mul:
    return a * b;
  case Fma:
    return fusedToOdd(a, b, c);
  case Min:
  case Max:
    return extreme(a, b, code == Max, flags & NaN);
  case Neg:
    return -a;
  case Abs:
    return std::fabs(a);
  case Rcp:
    return 1 / a;
  case Rsqrt:
    return 1 / std::sqrt(a);
  case Sqrt:
    return std::sqrt(a);
  case Ex2:
    return std::exp2(a);
  case Lg2:
    return std::log2(a);
  case Tanh:
    return std::tanh(a);
  case Div:
    return a / b;
  default:
    return a;
  }
}

static float computeFloat(Code code, float a, float b, float c, int flags) {
  if (flags & Ftz) {
    a = float(flush(a));
    b = float(flush(b));
    c = float(flush(c));
  }
  float r =
      code == Fma ? std::fma(a, b, c) : float(compute(code, a, b, c, flags));
  if (flags & Ftz)
    r = float(flush(r));
  if (flags & Sat)
    r = std::isnan(r) ? 0.0f : std::fmin(std::fmax(r, 0.0f), 1.0f);
  return r;
}

static uint16_t compute16(Code code, uint16_t a, uint16_t b, uint16_t c,
                          int flags, bool bfloat) {
  auto widen = [&](uint16_t x) {
    return double(bfloat ? bfloatToFloat(x) : halfToFloat(x));
  };
  double r = compute(code, widen(a), widen(b), widen(c), flags);
  if ((flags & Relu) && (r < 0 || std::isnan(r)))
    r = 0;
  if (flags & Sat)
    r = std::isnan(r) ? 0.0 : std::fmin(std::fmax(r, 0.0), 1.0);
  if ((flags & Ftz) && std::fabs(r) < 0x1p-14 && !bfloat)
    r = std::copysign(0.0, r);
  return bfloat ? doubleToBfloat(r) : doubleToHalf(r);
}

template <typename T>
static uint64_t computeInt(Code code, T a, T b, T c, uint64_t shift) {
  using U = std::make_unsigned_t<T>;
  constexpr unsigned bits = sizeof(T) * 8;
  switch (code) {
  case Add:
    return U(U(a) + U(b));
  case Sub:
    return U(U(a) - U(b));
  case Mul:
    return U(U(a) * U(b));
  case MulHi:
    return U(T((__int128(a) * __int128(b)) >> bits));
  case MulWide:
    return uint64_t(int64_t(__int128(a) * __int128(b)));
  case Mad:
    return U(U(a) * U(b) + U(c));
  case Min:
    return U(a < b ? a : b);
  case Max:
    return U(a < b ? b : a);
  case And:
    return U(a & b);
  case Or:
    return U(a | b);
  case Xor:
    return U(a ^ b);
  case Not:
    return U(~a);
  case Shl:
    return shift >= bits ? 0 : U(U(a) << shift);
  case Shr:
    return U(T(a >> (shift >= bits ? bits - 1 : shift))) &
           (shift >= bits && std::is_unsigned_v<T> ? 0 : ~uint64_t(0));
  case Neg:
    return U(-U(a));
  case Abs:
    return U(a < 0 ? -U(a) : U(a));
  case Div:
    return b ? U(a / b) : ~U(0);
  case Rem:
    return b ? U(a % b) : U(a);
  case Popc:
    return uint64_t(llvm::popcount(U(a)));
  case Clz:
    return uint64_t(llvm::countl_zero(U(a)));
  default:
    return U(a);
  }
}

static void arithmetic(Machine &m, Lane &lane, const Instruction &i,
                       uint64_t *regs) {
  uint64_t in[3] = {};
  for (size_t k = 1; k < i.operands.size() && k < 4; ++k)
    in[k - 1] = read(m, lane, i.operands[k], regs);
  Code code = Code(i.a);
  uint64_t r = 0;
  auto half = [&](bool bfloat, int part) {
    return uint64_t(compute16(code, uint16_t(in[0] >> 16 * part),
                              uint16_t(in[1] >> 16 * part),
                              uint16_t(in[2] >> 16 * part), i.c, bfloat))
           << 16 * part;
  };
  switch (Type(i.b)) {
  case Pred:
    r = computeInt<uint64_t>(code, in[0], in[1], in[2], in[1]) & 1;
    break;
  case I16:
    r = computeInt<uint16_t>(code, in[0], in[1], in[2], uint32_t(in[1]));
    break;
  case Sign16:
    r = computeInt<int16_t>(code, in[0], in[1], in[2], uint32_t(in[1]));
    break;
  case I32:
    r = computeInt<uint32_t>(code, in[0], in[1], in[2], uint32_t(in[1]));
    break;
  case Sign32:
    r = computeInt<int32_t>(code, in[0], in[1], in[2], uint32_t(in[1]));
    break;
  case I64:
    r = computeInt<uint64_t>(code, in[0], in[1], in[2], uint32_t(in[1]));
    break;
  case Sign64:
    r = computeInt<int64_t>(code, in[0], in[1], in[2], uint32_t(in[1]));
    break;
  case Float:
    r = code == Mov ? uint32_t(in[0])
                    : floatToBits(computeFloat(code, bitsToFloat(in[0]),
                                               bitsToFloat(in[1]),
                                               bitsToFloat(in[2]), i.c));
    break;
  case Double: {
    double a = bitsToDouble(in[0]), b = bitsToDouble(in[1]),
           c = bitsToDouble(in[2]);
    r = code == Mov ? in[0]
                    : doubleToBits(code == Fma ? std::fma(a, b, c)
                                               : compute(code, a, b, c, i.c));
    break;
  }
  case Half:
    r = half(false, 0);
    break;
  case Half2:
    r = half(false, 0) | half(false, 1);
    break;
  case Bfloat:
    r = half(true, 0);
    break;
  case Bfloat2:
    r = half(true, 0) | half(true, 1);
    break;
  case None:
    break;
  }
  write(i.operands[0], regs, r);
}

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

//===--- Conversions
//-------------------------------------------------------===//

static double toDouble(uint64_t bits, int type) {
  switch (Type(type)) {
  case I16:
    return double(uint16_t(bits));
  case I32:
    return double(uint32_t(bits));
  case I64:
    return double(bits);
  case Sign16:
    return double(int16_t(bits));
  case Sign32:
    return double(int32_t(bits));
  case Sign64:
    return double(int64_t(bits));
  case Float:
    return bitsToFloat(uint32_t(bits));
  case Half:
    return halfToFloat(uint16_t(bits));
  case Bfloat:
    return bfloatToFloat(uint16_t(bits));
  default:
    return bitsToDouble(bits);
  }
}

static uint64_t saturate(double x, int type) {
  if (std::isnan(x))
    return 0;
  auto clamp = [&](double low, double high) {
    return std::fmin(std::fmax(x, low), high);
  };
  switch (Type(type)) {
  case I16:
    return uint16_t(clamp(0, 65535));
  case I32:
    return uint32_t(clamp(0, 4294967295.0));
  case Sign16:
    return uint16_t(int16_t(clamp(-32768, 32767)));
  case Sign32:
    return uint32_t(int32_t(clamp(-2147483648.0, 2147483647.0)));
  case Sign64:
    return x >= 0x1p63   ? uint64_t(INT64_MAX)
           : x < -0x1p63 ? uint64_t(INT64_MIN)
                         : uint64_t(int64_t(x));
  default:
    return x < 0 ? 0 : x >= 0x1p64 ? ~uint64_t(0) : uint64_t(x);
  }
}

// cvt{.rounding}{.ftz}{.sat|.relu}.to.from d, a{, b} (a: to, b: from, c: flags,
// d: integer rounding).
static void convert(Machine &m, Lane &lane, const Instruction &i,
                    uint64_t *regs) {
  auto one = [&](size_t operand, int to) -> uint64_t {
    uint64_t bits = read(m, lane, i.operands[operand], regs);
    bool fromInt = i.b >= I16 && i.b <= Sign64,
         toInt = to >= I16 && to <= Sign64;
    if (fromInt && toInt && !(i.c & Sat)) {
      switch (Type(i.b)) {
      case I16:
        bits = uint16_t(bits);
        break;
      case I32:
        bits = uint32_t(bits);
        break;
      case Sign16:
        bits = uint64_t(int64_t(int16_t(bits)));
        break;
      case Sign32:
        bits = uint64_t(int64_t(int32_t(bits)));
        break;
      default:
        break;
      }
      return to == I16 || to == Sign16   ? uint16_t(bits)
             : to == I32 || to == Sign32 ? uint32_t(bits)
                                         : bits;
    }
    double x = toDouble(bits, i.b);
    if ((i.c & Ftz) && i.b == Float)
      x = flush(x);
    switch (i.d) {
    case 1:
      x = std::nearbyint(x);
      break;
    case 2:
      x = std::trunc(x);
      break;
    case 3:
      x = std::floor(x);
      break;
    case 4:
      x = std::ceil(x);
      break;
    }
    if (toInt)
      return saturate(x, to);
    if ((i.c & Relu) && (x < 0 || std::isnan(x)))
      x = 0;
    if (i.c & Sat)
      x = std::isnan(x) ? 0.0 : std::fmin(std::fmax(x, 0.0), 1.0);
    switch (Type(to)) {
    case Half:
      return doubleToHalf(x);
    case Bfloat:
      return doubleToBfloat(x);
    case Float:
      return i.b == I64 || i.b == Sign64
                 ? floatToBits(i.b == I64 ? float(bits) : float(int64_t(bits)))
                 : floatToBits(float(x));
    default:
      return doubleToBits(x);
    }
  };
  uint64_t result;
  if (i.a == Half2 || i.a == Bfloat2) {
    int to = i.a == Half2 ? Half : Bfloat;
    result = one(1, to) << 16 | one(2, to);
  } else {
    result = one(1, i.a);
  }
  write(i.operands[0], regs, result);
}

bool ffd::emulator::resolveConversion(Instruction &i) {
  if (i.part(0) != "cvt" || i.parts.size() < 3)
    return false;
  i.a = typeNamed(i.parts[i.parts.size() - 2]);
  i.b = typeNamed(i.parts.back());
  i.c = (i.has("ftz") ? Ftz : 0) | (i.has("relu") ? Relu : 0) |
        (i.has("sat") ? Sat : 0);
  i.d = i.has("rni")   ? 1
        : i.has("rzi") ? 2
        : i.has("rmi") ? 3
        : i.has("rpi") ? 4
                       : 0;
  bool pair = i.a == Half2 || i.a == Bfloat2;
  if (!i.a || !i.b || i.has("rz") || i.has("rm") || i.has("rp") ||
      i.has("rs") || i.has("satfinite") || (pair && i.b != Float))
    return false;
  i.execute = convert;
  return i.operands.size() == (pair ? 3u : 2u);
}

bool ffd::emulator::resolveArithmetic(Instruction &i) {
  llvm::StringRef name = i.part(0);
  size_t n = i.operands.size();
  i.c = (i.has("ftz") ? Ftz : 0) | (i.has("NaN") ? NaN : 0) |
        (i.has("relu") ? Relu : 0) | (i.has("sat") ? Sat : 0);
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
  if (i.b == None || i.has("rz") || i.has("rm") || i.has("rp"))
    return false;
  bool isInt = i.b <= Sign64;
  int code = llvm::StringSwitch<int>(name)
                 .Case("add", Add)
                 .Case("sub", Sub)
                 .Case("mul", i.has("hi")     ? MulHi
                              : i.has("wide") ? MulWide
                                              : Mul)
                 .Case("mad", isInt ? Mad : Fma)
                 .Case("fma", Fma)
                 .Case("min", Min)
                 .Case("max", Max)
                 .Case("and", And)
                 .Case("or", Or)
                 .Case("xor", Xor)
                 .Case("not", Not)
                 .Case("shl", Shl)
                 .Case("shr", Shr)
                 .Case("neg", Neg)
                 .Case("abs", Abs)
                 .Case("mov", Mov)
                 .Case("popc", Popc)
                 .Case("clz", Clz)
                 .Case("rcp", Rcp)
                 .Case("rsqrt", Rsqrt)
                 .Case("sqrt", Sqrt)
                 .Case("ex2", Ex2)
                 .Case("lg2", Lg2)
                 .Case("tanh", Tanh)
                 .Case("div", Div)
                 .Case("rem", Rem)
                 .Default(-1);
  if (code < 0 || n < 2 || n > 4)
    return false;
  if (code == Mad && (i.has("hi") || i.has("wide")))
    return false;
  if (isInt ? (code >= Rcp && code <= Tanh)
            : (code >= And && code <= Shr) || code == Popc || code == Clz ||
                  code == Rem || code == MulHi || code == MulWide)
    return false;
  i.a = code;
  i.execute = arithmetic;
  return true;
}
