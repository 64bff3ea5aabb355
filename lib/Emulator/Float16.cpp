//===- Float16.cpp - 16-bit floats, exactly -------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Scalar conversions by the definition of the formats.
//
//===----------------------------------------------------------------------===//

#include "Float16.h"

#include <vector>

using namespace ffd::emulator;

const float *ffd::emulator::halfTable() {
  static const std::vector<float> table = [] {
    std::vector<float> values(65536);
    for (int i = 0; i < 65536; ++i) {
      int exponent = i >> 10 & 31, mantissa = i & 1023;
      float value;
      if (exponent == 31)
        value = mantissa ? NAN : INFINITY;
      else if (exponent)
        value = std::ldexp(float(1024 + mantissa), exponent - 25);
      else
        value = std::ldexp(float(mantissa), -24);
      values[i] = i & 0x8000 ? -value : value;
    }
    return values;
  }();
  return table.data();
}

/// Rounds to `mantissaBits` explicit bits above 2^minExponent.
static uint16_t roundTo(double x, int mantissaBits, int minExponent,
                        uint16_t infinity) {
  if (std::isnan(x))
    return 0x7FFF;
  uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  uint64_t bits = doubleToBits(std::fabs(x));
  if (bits == 0x7FF0000000000000)
    return sign | infinity;
  int exponent = int(bits >> 52) - 1023;
  if (exponent > 128)
    return sign | infinity;
  if (exponent < minExponent - mantissaBits - 2)
    return sign; // also zero and subnormal doubles
  uint64_t significand = (bits & 0xFFFFFFFFFFFFF) | 0x10000000000000;
  int base = exponent < minExponent ? minExponent : exponent;
  int drop = 52 - mantissaBits + (base - exponent);
  uint64_t rest = drop < 64 ? significand & ((uint64_t(1) << drop) - 1) : 0;
  uint64_t kept = significand >> drop, half = uint64_t(1) << (drop - 1);
  if (rest > half || (rest == half && (kept & 1)))
    ++kept;
  uint64_t result = (uint64_t(base - minExponent) << mantissaBits) + kept;
  return result >= infinity ? sign | infinity : sign | uint16_t(result);
}

uint16_t ffd::emulator::doubleToHalf(double x) {
  return roundTo(x, 10, -14, 0x7C00);
}
uint16_t ffd::emulator::doubleToBfloat(double x) {
  return roundTo(x, 7, -126, 0x7F80);
}

double ffd::emulator::fusedToOdd(double a, double b, double c) {
  double product = a * b; // exact for factors of 24 bits
  double sum = product + c;
  if (!std::isfinite(sum))
    return sum;
  double part = sum - product;
  double error = (product - (sum - part)) + (c - part);
  uint64_t bits = doubleToBits(sum);
  if (error == 0 || (bits & 1))
    return sum;
  // The neighbour on the side of the error is odd.
  bool away = (error > 0) == (sum > 0);
  return bitsToDouble(away ? bits + 1 : bits - 1);
}
