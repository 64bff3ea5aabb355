//===- TensorSum.cpp - How tensor cores add -------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A tensor core takes some products and the accumulator at a time. It aligns
// them to the largest exponent among them, cuts off what lies more than some
// bits below, adds exactly, and cuts the sum to 24 bits.
//
//===----------------------------------------------------------------------===//

#include "TensorSum.h"
#include "Float16.h"

#include <algorithm>
#include <cmath>

using namespace ffd::emulator;

static int exponentOf(float value, int smallest) {
  int exponent = int(floatToBits(value) >> 23 & 0xFF) - 127;
  return std::max(exponent, smallest);
}

Factor ffd::emulator::factorOf(float value, int smallest) {
  return {value, exponentOf(value, smallest)};
}

/// Towards zero; numbers beyond the largest become infinite.
static float cut(double x) {
  float near = float(x);
  if (std::fabs(double(near)) > std::fabs(x) && std::isfinite(near))
    near = std::nextafter(near, 0.0f);
  return near;
}

/// 2^n for n from -1022 to 1023.
static double powerOfTwo(int n) {
  return bitsToDouble(uint64_t(n + 1023) << 52);
}

/// One step. All numbers are finite.
static float addStep(const Factor *a, const Factor *b, int count, float c,
                     int bits) {
  // Exponents of products are sums of exponents, so that their significands lie
  // below 4.
  int top = c == 0 ? -1000 : exponentOf(c, -126);
  for (int i = 0; i < count; ++i)
    if (a[i].value != 0 && b[i].value != 0)
      top = std::max(top, a[i].exponent + b[i].exponent);
  if (top == -1000)
    return c;
  const double scale = powerOfTwo(bits - top);
  int64_t sum = int64_t(double(c) * scale);
  for (int i = 0; i < count; ++i)
    sum += int64_t(double(a[i].value) * double(b[i].value) * scale);
  return cut(double(sum) * powerOfTwo(top - bits));
}

float ffd::emulator::tensorSum(TensorCores cores, const Factor *a,
                               const Factor *b, int count, float c) {
  double exact = 0;
  for (int i = 0; i < count; ++i)
    exact += double(a[i].value) * double(b[i].value);
  exact += double(c);
  // Not finite: the order does not matter.
  if (cores == TensorCores::Exact || !std::isfinite(exact))
    return float(exact);
  const bool hopper = cores == TensorCores::Hopper;
  const int step = hopper ? 16 : 8, bits = hopper ? 25 : 24;
  for (int i = 0; i < count; i += step)
    c = addStep(a + i, b + i, std::min(step, count - i), c, bits);
  return c;
}
