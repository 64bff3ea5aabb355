//===- Passes.h - Transformations within the ffd dialect  -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Constructors and registration of the passes of Passes.td.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TRANSFORMS_PASSES_H
#define FFD_TRANSFORMS_PASSES_H

#include "ffd/Dialect/FFDDialect.h"
#include "mlir/Pass/Pass.h"

namespace mlir::ffd {
#define GEN_PASS_DECL
#include "ffd/Transforms/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "ffd/Transforms/Passes.h.inc"
} // namespace mlir::ffd

#endif // FFD_TRANSFORMS_PASSES_H
