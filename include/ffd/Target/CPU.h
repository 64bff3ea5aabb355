//===- CPU.h - From the LLVM dialect to x86-64 code --- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Translation of lowered kernels to machine code of the CPU: as an object file,
// or as a function of this process.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TARGET_CPU_H
#define FFD_TARGET_CPU_H

#include "ffd/abi.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringRef.h"

#include <memory>
#include <string>

namespace mlir::ffd {

/// The instruction sets that kernels are generated for, best last: avx2 (with
/// FMA and F16C), avx512 (F, BW, DQ, VL), avx512vnni.
llvm::ArrayRef<llvm::StringRef> getISAs();

/// The best instruction set of this machine; fails with a message if it has not
/// even AVX2.
FailureOr<llvm::StringRef> detectISA(std::string &error);

/// Whether this machine runs code of an instruction set.
bool isSupportedISA(llvm::StringRef isa);

/// The optimised LLVM IR of a module in the LLVM dialect, as text.
FailureOr<std::string> translateToLLVMText(ModuleOp module, llvm::StringRef isa,
                                           std::string &error);

/// The bytes of a relocatable ELF object of a module in the LLVM dialect.
FailureOr<std::string> translateToObject(ModuleOp module, llvm::StringRef isa,
                                         std::string &error);

/// A compiled kernel that this process can call.
class CPUKernel {
public:
  using Entry = void (*)(const ffdDecodeArgs *args, int64_t row, int64_t split);

  /// Compiles a module in the LLVM dialect; `entry` names its kernel.
  static FailureOr<std::unique_ptr<CPUKernel>>
  create(ModuleOp module, llvm::StringRef isa, llvm::StringRef entry,
         std::string &error);
  ~CPUKernel();

  Entry getEntry() const { return entry; }
  llvm::StringRef getISA() const { return isa; }
  /// The relocatable object that it was made of.
  const std::string &getObject() const { return object; }

private:
  CPUKernel();
  struct Impl;
  std::unique_ptr<Impl> impl;
  Entry entry = nullptr;
  std::string isa, object;
};

} // namespace mlir::ffd

#endif // FFD_TARGET_CPU_H
