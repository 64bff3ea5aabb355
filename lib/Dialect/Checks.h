//===- Checks.h - Checks that verifiers share ---------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One wording for the checks that recur: the operand, what it has, what was
// expected, and the constraint that says so.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_DIALECT_CHECKS_H
#define FFD_LIB_DIALECT_CHECKS_H

#include "ffd/Dialect/FFDDialect.h"

namespace mlir::ffd {

/// Checks one static size of an operand; `expected` 0 or dynamic means unknown.
LogicalResult checkSize(Operation *op, StringRef operand, Type type,
                        unsigned axis, int64_t expected, StringRef what,
                        StringRef constraint);

/// Checks an operand's element type; a null `expected` means unknown.
LogicalResult checkElement(Operation *op, StringRef operand, Type type,
                           Type expected, StringRef constraint);

} // namespace mlir::ffd

#endif // FFD_LIB_DIALECT_CHECKS_H
