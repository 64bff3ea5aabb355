//===- PlanProgram.h - Dividing a batch on the device ------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_DRIVER_PLANPROGRAM_H
#define FFD_LIB_DRIVER_PLANPROGRAM_H

namespace mlir::ffd {

/// The kernel `plan` at the GPU level.
extern const char *const planText;

} // namespace mlir::ffd

#endif // FFD_LIB_DRIVER_PLANPROGRAM_H
