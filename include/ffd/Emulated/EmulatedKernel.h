//===- EmulatedKernel.h - Generated GPU kernels on the emulator -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiles a decode for a GPU as far as the NVVM dialect and runs it on the
// emulator (ffd/Emulator), over arguments in host memory: every buffer is
// copied to memory with guard zones, sized as the arguments say.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_EMULATED_EMULATEDKERNEL_H
#define FFD_EMULATED_EMULATEDKERNEL_H

#include "ffd/Emulator/Emulator.h"
#include "ffd/Spec.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <memory>
#include <string>
#include <vector>

namespace ffd {

/// Not thread-safe; the emulator itself runs on one thread.
class EmulatedKernel {
public:
  struct Options {
    Program program = Program::Decode;
    std::string arch = "sm_90a"; ///< as ffd-compile's --arch
    /// False: the two kernels of the split execution, selector and computer,
    /// launched one after the other.
    bool fuse = true;
    /// Text of a selector attribute; empty: the rule of the specification.
    std::string selector;
    /// Where the NVVM kernel is written, so that reports name its lines; empty:
    /// nowhere.
    std::string locationFile;
    /// May change the kernel before it runs.
    llvm::function_ref<void(mlir::ModuleOp)> mutate = nullptr;
  };

  /// Null if there is no such kernel; `error` then says why.
  static std::unique_ptr<EmulatedKernel>
  create(const ffdSpec &spec, const Options &options, std::string &error);

  /// Runs over host memory, as `plan` says if it has pieces, with the tensor
  /// cores of the architecture. With `args.splits` 0 the pieces are those of a
  /// GPU with 264 CTAs; a workspace is made here and must be none in `args`.
  /// Runs `launches` times over the same workspace, with seeds that ascend.
  /// Page ids begin at `firstPage`, as if the planes had so many pages more.
  /// Writes out, lse, kept and kept_count where all went well. The report names
  /// bad arguments, what the emulator found, and counters left behind.
  emulator::Report run(const ffdDecodeArgs &args,
                       const emulator::Options &options, int launches = 1,
                       llvm::ArrayRef<ffdPiece> plan = {},
                       int32_t firstPage = 0);

  /// The module with the kernels, in the LLVM and NVVM dialects.
  mlir::ModuleOp module() { return *nvvm; }

private:
  struct Kernel {
    std::unique_ptr<emulator::CompiledKernel> code;
    uint32_t threads = 0, sharedBytes = 0;
  };

  explicit EmulatedKernel(const ffdSpec &spec, Program program);
  bool lower(const Options &options, std::string &error);
  bool compile(std::string &error);

  ffdSpec spec;
  Program program;
  emulator::TensorCores cores = emulator::TensorCores::Exact;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> nvvm;
  std::vector<Kernel> kernels;
};

} // namespace ffd
#endif // FFD_EMULATED_EMULATEDKERNEL_H
