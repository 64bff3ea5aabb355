//===- Passes.h - Conversions out of the tile level -------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Constructors and registration of the conversion passes, generated from
// Passes.td. A library that implements one defines GEN_PASS_DEF_<NAME> before it
// includes Passes.h.inc.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_CONVERSION_PASSES_H
#define FFD_CONVERSION_PASSES_H

#include "ffd/Dialect/FFDDialect.h"
#include "mlir/Pass/Pass.h"

namespace mlir::ffd {
#define GEN_PASS_DECL
#include "ffd/Conversion/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "ffd/Conversion/Passes.h.inc"
} // namespace mlir::ffd

#endif // FFD_CONVERSION_PASSES_H
