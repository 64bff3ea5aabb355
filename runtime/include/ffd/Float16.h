//===- Float16.h - Exact conversions of 16-bit floats -----------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Conversions between f32 and the two element types, f16 and bf16, carried as
// their bit patterns. Round to nearest even with gradual underflow; a NaN
// becomes the canonical NaN of the narrower type. Portable integer code, header
// only: the same bits on every machine, whatever its instructions.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_FLOAT16_H
#define FFD_FLOAT16_H

#include "ffd/abi.h"

#include <cstdint>
#include <cstring>

namespace ffd {

inline constexpr uint16_t kF16NaN = 0x7E00;
inline constexpr uint16_t kBF16NaN = 0x7FC0;

inline uint32_t floatBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float floatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float f16ToF32(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000) << 16;
  uint32_t exponent = h >> 10 & 0x1F, mantissa = h & 0x3FF;
  if (exponent == 0x1F) // infinity or NaN; the payload is kept
    return floatFromBits(sign | 0x7F800000 | mantissa << 13);
  if (exponent != 0)
    return floatFromBits(sign | (exponent + 112) << 23 | mantissa << 13);
  // A subnormal is its mantissa in units of 2^-24, exact in f32.
  float magnitude = float(mantissa) * 0x1p-24f;
  return floatFromBits(sign | floatBits(magnitude));
}

inline uint16_t f32ToF16(float value) {
  uint32_t bits = floatBits(value);
  uint16_t sign = bits >> 16 & 0x8000;
  uint32_t abs = bits & 0x7FFFFFFF;
  if (abs > 0x7F800000)
    return kF16NaN;
  if (abs >= 0x477FF000) // 65520 and above round to infinity
    return sign | 0x7C00;
  if (abs >= 0x38800000) { // normal: rebias, round the 13 bits that go
    uint32_t rebased = abs - (112u << 23);
    return sign | (rebased + 0xFFF + (rebased >> 13 & 1)) >> 13;
  }
  if (abs < 0x33000000) // below 2^-25: zero (2^-25 itself ties to zero)
    return sign;
  // Subnormal: the value in units of 2^-24.
  uint32_t mantissa = (abs & 0x7FFFFF) | 0x800000;
  uint32_t shift = 126 - (abs >> 23); // 14..24
  uint32_t half = 1u << (shift - 1), rest = mantissa & ((1u << shift) - 1);
  uint32_t rounded = mantissa >> shift;
  rounded += rest > half || (rest == half && (rounded & 1));
  return sign | rounded;
}

inline float bf16ToF32(uint16_t h) { return floatFromBits(uint32_t(h) << 16); }

inline uint16_t f32ToBF16(float value) {
  uint32_t bits = floatBits(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000)
    return kBF16NaN;
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

/// The same for an element type chosen at run time (an ffdElement).
inline float elementToF32(int32_t element, uint16_t bits) {
  return element == FFD_F16 ? f16ToF32(bits) : bf16ToF32(bits);
}
inline uint16_t f32ToElement(int32_t element, float value) {
  return element == FFD_F16 ? f32ToF16(value) : f32ToBF16(value);
}
inline constexpr uint16_t canonicalNaN(int32_t element) {
  return element == FFD_F16 ? kF16NaN : kBF16NaN;
}

} // namespace ffd
#endif // FFD_FLOAT16_H
