//===- Compiler.h - From a module to any stage ------ -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What `ffd-compile` and libffd-jit share: runs the pipelines up to a stage and
// produces its text or bytes.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_DRIVER_COMPILER_H
#define FFD_DRIVER_COMPILER_H

#include "ffd/Dialect/FFDDialect.h"
#include "ffd/Driver/Programs.h"
#include "ffd/Pipelines/Pipelines.h"
#include "ffd/Target/CPU.h"
#include "ffd/Target/KernelStats.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::ffd {

/// The stages of a compilation, in order; the last six leave MLIR.
enum class Stage { FFD, Fused, Tile, GPU, NVVM, LLVM, PTX, Cubin, Object, Package };

/// As `ffd-compile --emit` calls it.
llvm::StringRef getStageName(Stage stage);

struct CompilerOptions {
  /// "cpu" or a GPU architecture such as "sm_90a".
  std::string arch = "cpu";
  /// CPU: avx2, avx512, avx512vnni; empty takes what this machine has.
  std::string isa;
  bool fuse = true;
  /// Sizes that complete or contradict the module's specs; 0 is not given.
  int64_t headDim = 0, valueDim = 0, group = 0, scanBits = 0, quantBlock = 0,
          selectBlock = 0;
  std::string element;
  /// Schedule overrides; 0 leaves the choice to the cost model.
  int64_t warps = 0, ctas = 0, stages = 0, slots = 0;
  /// Packages of decodes by any rule: for who asked for the rule and keeps it. A
  /// package does not say it; a loader takes every decode for one by top_delta.
  bool anyRule = false;

  bool isCPU() const { return arch == "cpu"; }
};

/// The dialects and interfaces that compiling needs.
void registerCompilerDialects(DialectRegistry &registry);

/// Checks that arch (and isa) exist and that they have the stage.
LogicalResult checkTarget(const CompilerOptions &options, Stage stage,
                          std::string &error);

/// Lowers `module` to `stage` and returns what the stage emits: IR as text, PTX,
/// or the bytes of an object, cubin or package. Diagnostics go to the context's
/// handler; what is no diagnostic of an op is in `error`.
FailureOr<std::string> compile(ModuleOp module, Stage stage,
                               const CompilerOptions &options,
                               std::string &error);

/// Lowers `module` to PTX for the GPU of `options` and says what its kernels
/// cost, with `assemble` also what ptxas and a disassembler know. A CPU as target
/// is an error, and so are kernels that ptxas refuses.
FailureOr<std::vector<KernelStats>>
compileStats(ModuleOp module, const CompilerOptions &options, bool assemble,
             std::string &error);

/// Compiles a module with one kernel into a function of this process.
FailureOr<std::unique_ptr<CPUKernel>>
compileCPUKernel(ModuleOp module, StringRef entry,
                 const CompilerOptions &options, std::string &error);

} // namespace mlir::ffd

#endif // FFD_DRIVER_COMPILER_H
