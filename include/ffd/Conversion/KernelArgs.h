//===- KernelArgs.h - The arguments of a kernel ------ -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How lowered kernels reach their arguments: fields of the `ffdDecodeArgs`
// struct (ffd/abi.h). In a tile program the same things are operands with fixed
// roles (the planes of `ffd.cache.view`, the query of `ffd.tile.query`, ...);
// they must be arguments of the function that becomes the kernel.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_CONVERSION_KERNELARGS_H
#define FFD_CONVERSION_KERNELARGS_H

#include "ffd/Dialect/FFDDialect.h"
#include "ffd/abi.h"
#include "mlir/IR/Builders.h"

namespace mlir::ffd {

/// One field of `ffdDecodeArgs`.
enum class KernelArg {
#define FFD_KERNEL_ARG(FIELD, KIND) FIELD,
#include "ffd/Conversion/KernelArgs.def"
};

/// One field of `ffdAppendArgs`.
enum class AppendArg {
#define FFD_APPEND_ARG(FIELD, KIND) FIELD,
#include "ffd/Conversion/AppendArgs.def"
};

/// Whether the program appends to a cache: its kernel gets `ffdAppendArgs`.
bool isAppend(TileTeamsOp teams);

/// Loads a field of the argument struct that `args` (!llvm.ptr) points to: an
/// !llvm.ptr, i64, i32 or f32.
Value loadKernelArg(OpBuilder &builder, Location loc, Value args,
                    KernelArg arg);
Value loadKernelArg(OpBuilder &builder, Location loc, Value args,
                    AppendArg arg);

/// Checks that everything the teams op takes from outside is an argument of its
/// function in a role that the kernel ABI has, and says which is not. Without
/// `ablations` the spec must be one that every target has.
LogicalResult checkKernelArguments(TileTeamsOp teams, bool ablations = false);

} // namespace mlir::ffd

#endif // FFD_CONVERSION_KERNELARGS_H
