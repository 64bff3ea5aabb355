//===- NumberTypes.h - Types that instructions name ----------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of arithmetic, comparisons and conversions.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_EMULATOR_NUMBERTYPES_H
#define FFD_LIB_EMULATOR_NUMBERTYPES_H

#include "llvm/ADT/StringSwitch.h"

#include <cmath>

namespace ffd::emulator {

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
/// Modifiers of an instruction.
enum NumberFlags { Ftz = 1, NaN = 2, Relu = 4, Sat = 8 };

inline Type typeNamed(llvm::StringRef name) {
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

/// As .ftz does.
inline double flush(double x) {
  return std::fabs(x) < 0x1p-126 ? std::copysign(0.0, x) : x;
}

} // namespace ffd::emulator

#endif // FFD_LIB_EMULATOR_NUMBERTYPES_H
