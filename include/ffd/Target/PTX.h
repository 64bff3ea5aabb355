//===- PTX.h - From LLVM dialect to PTX and cubin ----------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The way out of MLIR for GPU kernels, in process: LLVM IR, the optimiser, the
// NVPTX back end; and ptxas, where it is found, for machine code. Also the table
// of GPU architectures with the traits that lowering decides by.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TARGET_PTX_H
#define FFD_TARGET_PTX_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringRef.h"
#include <string>
#include <vector>

namespace mlir::ffd {

/// What lowering must know of a GPU architecture.
struct GPUArch {
  llvm::StringLiteral name;  ///< "sm_90a"
  llvm::StringLiteral ptx;   ///< PTX version as an LLVM feature, "+ptx80"
  bool bulkCopies;           ///< cp.async.bulk and mbarrier transactions
  int64_t sharedPerCTA;      ///< bytes of shared memory a CTA can have
  int64_t sharedPerSM;       ///< bytes of shared memory of a multiprocessor
  int64_t registersPerSM;    ///< 32-bit registers of a multiprocessor
  int64_t threadsPerSM;      ///< resident threads of a multiprocessor
  int64_t ctasPerSM;         ///< resident CTAs of a multiprocessor
};

/// The supported architectures, in ascending order.
llvm::ArrayRef<GPUArch> getGPUArchs();

/// Looks an architecture up; an unknown one is reported through `emitError`,
/// with the list of those that are known.
FailureOr<GPUArch> lookupArch(llvm::StringRef name,
                              llvm::function_ref<InFlightDiagnostic()> emitError);

struct PTXOptions {
  /// Verify the LLVM IR (costs some milliseconds).
  bool verify = true;
  /// If set, receives the LLVM IR after optimisation.
  std::string *llvmIR = nullptr;
};

/// Compiles a module of LLVM dialect functions to PTX for an architecture.
/// Failures, also those that the back end treats as fatal, become diagnostics of
/// the module.
FailureOr<std::string> translateToPTX(ModuleOp module, llvm::StringRef arch,
                                      const PTXOptions &options = {});

/// What ptxas reports of one kernel.
struct PtxasReport {
  std::string kernel;
  int registers = 0; ///< of a thread
  int stackBytes = 0, spillStores = 0, spillLoads = 0; ///< bytes of a thread
  int64_t sharedBytes = 0; ///< static shared memory of a CTA
};

/// The path of a program of the CUDA toolkit, such as ptxas: `hint` if not
/// empty, else on PATH, else in the usual places; empty if there is none.
std::string findCudaProgram(llvm::StringRef name, llvm::StringRef hint = {});

/// Assembles PTX to machine code. On failure `error` says what ptxas said, or
/// that there is none. `reports`, if set, receives one report per kernel.
FailureOr<std::string>
assemblePTX(llvm::StringRef ptx, llvm::StringRef arch, std::string &error,
            llvm::StringRef ptxasPath = {},
            std::vector<PtxasReport> *reports = nullptr);

/// Machine code as text, by nvdisasm or cuobjdump, whichever is found. On
/// failure `error` says what it said, or that there is none.
FailureOr<std::string> disassemble(llvm::StringRef cubin, std::string &error);

} // namespace mlir::ffd

#endif // FFD_TARGET_PTX_H
