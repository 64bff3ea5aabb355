//===- Float16.h - 16-bit floats, exactly --------------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Conversions and arithmetic of f16 and bf16 that round once, to nearest even,
// with subnormals, whatever the host's instructions do.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_EMULATOR_FLOAT16_H
#define FFD_LIB_EMULATOR_FLOAT16_H

#include <cmath>
#include <cstdint>
#include <cstring>

namespace ffd::emulator {

inline float bitsToFloat(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
inline uint32_t floatToBits(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}
inline double bitsToDouble(uint64_t bits) {
  double d;
  std::memcpy(&d, &bits, 8);
  return d;
}
inline uint64_t doubleToBits(double d) {
  uint64_t bits;
  std::memcpy(&bits, &d, 8);
  return bits;
}

/// All values of f16.
const float *halfTable();
inline float halfToFloat(uint16_t bits) { return halfTable()[bits]; }
inline float bfloatToFloat(uint16_t bits) {
  return bitsToFloat(uint32_t(bits) << 16);
}

/// One rounding from double. NaN becomes PTX's canonical one (0x7FFF).
uint16_t doubleToHalf(double x);
uint16_t doubleToBfloat(double x);
inline uint16_t floatToHalf(float x) { return doubleToHalf(double(x)); }
inline uint16_t floatToBfloat(float x) {
  uint32_t bits = floatToBits(x);
  if ((bits & 0x7FFFFFFF) > 0x7F800000)
    return 0x7FFF;
  return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/// a * b + c as a double from which one more rounding to a type of at most 24
/// bits is the rounding of the exact value (the sum is rounded to odd).
double fusedToOdd(double a, double b, double c);

} // namespace ffd::emulator

#endif // FFD_LIB_EMULATOR_FLOAT16_H
