//===- Conversion.cpp - cvt -----------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Between integers and floats of all sizes, with the roundings that are to
// nearest or to an integer.
//
//===----------------------------------------------------------------------===//

#include "Float16.h"
#include "Machine.h"
#include "NumberTypes.h"

using namespace ffd::emulator;

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
