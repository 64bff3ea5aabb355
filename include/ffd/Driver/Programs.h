//===- Programs.h - The programs that the compiler knows  -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Builds the L1 IR of a decode, of its exact rival, or of an append to a cache,
// from nothing but a spec: what `ffd-compile` and the JIT start from when they
// are given no file.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_DRIVER_PROGRAMS_H
#define FFD_DRIVER_PROGRAMS_H

#include "ffd/Dialect/FFDDialect.h"
#include "ffd/abi.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace mlir::ffd {

enum class Program { Decode, Exact, Append, Plan };

/// The attribute of a specification of the runtime's interface, which is valid;
/// with `emitError` it need not be, and the result is null after an error.
SpecAttr
getSpecAttr(MLIRContext *context, const ffdSpec &spec,
            llvm::function_ref<InFlightDiagnostic()> emitError = nullptr);

/// The program for a complete spec, as a module with one function named after
/// it ("decode", "exact" or "append"): the algorithm in steps for a decode
/// (fusing is the pipeline's business), `ffd.exact` or `ffd.append`; for
/// Program::Plan ("plan"), a kernel at the GPU level. `selector` is the text of
/// a selector attribute. The context must have the ffd, func and tensor dialects.
OwningOpRef<ModuleOp> buildProgram(MLIRContext *context, Program program,
                                   SpecAttr spec,
                                   StringRef selector = "#ffd.top_delta");

} // namespace mlir::ffd

#endif // FFD_DRIVER_PROGRAMS_H
