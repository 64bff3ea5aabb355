//===- Arithmetic.cpp - Sums, products and functions ----------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Integer and floating-point arithmetic. That on 16-bit floats rounds once;
// approximations are the host's functions, which are within the errors that the
// PTX manual states.
//
//===----------------------------------------------------------------------===//

#include "Float16.h"
#include "Machine.h"
#include "NumberTypes.h"

#include "llvm/ADT/bit.h"

using namespace ffd::emulator;

namespace {
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
} // namespace

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
    // Whatever NaN the host has.
    if (code != Mov && code != Neg && code != Abs && std::isnan(bitsToFloat(r)))
      r = 0x7FFFFFFF;
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

bool ffd::emulator::resolveArithmetic(Instruction &i) {
  llvm::StringRef name = i.part(0);
  size_t n = i.operands.size();
  i.b = i.parts.empty() ? None : typeNamed(i.parts.back());
  i.c = (i.has("ftz") ? Ftz : 0) | (i.has("NaN") ? NaN : 0) |
        (i.has("relu") ? Relu : 0) | (i.has("sat") ? Sat : 0);
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
