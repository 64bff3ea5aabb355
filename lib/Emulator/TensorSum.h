//===- TensorSum.h - How tensor cores add ---------------------- -*- C++
//-*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The sum of products and an accumulator in f32: rounded once from the exact
// sum, or as a tensor core has it.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_EMULATOR_TENSORSUM_H
#define FFD_LIB_EMULATOR_TENSORSUM_H

#include "ffd/Emulator/Emulator.h"

#include <cstdint>

namespace ffd::emulator {

/// A factor: its value, and the exponent that hardware reads off its bits. A
/// subnormal number has that of the smallest normal one.
struct Factor {
  float value;
  int exponent;
};

/// `smallest` is the exponent of the smallest normal number of the format.
Factor factorOf(float value, int smallest);

/// The sum over `count` products and `c`.
float tensorSum(TensorCores cores, const Factor *a, const Factor *b, int count,
                float c);

} // namespace ffd::emulator

#endif // FFD_LIB_EMULATOR_TENSORSUM_H
