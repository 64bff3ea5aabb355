//===- HostModule.h - From GPU code to host code -------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rewriting of a kernel's LLVM IR for the host: GPU operations and memory
// accesses become calls of the run-time (Runtime.cpp).
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_EMULATOR_HOSTMODULE_H
#define FFD_LIB_EMULATOR_HOSTMODULE_H

#include "Machine.h"

#include "llvm/IR/Module.h"

namespace ffd::emulator {

struct HostParameter {
  uint64_t bytes;
  bool byValue; ///< the kernel takes a pointer to a copy
};

/// A global variable of the kernel that is not shared memory.
struct HostGlobal {
  std::string symbol, name;
  uint64_t bytes;
  bool constant;
};

/// Why a kernel cannot run on the host.
struct HostError {
  std::string message;
  uint32_t place; ///< Machine::kNoPlace: none
};

struct HostModule {
  std::vector<HostParameter> parameters;
  std::vector<HostGlobal> globals;
};

/// The symbol of the function that runs one lane: `void(void **parameters)`.
inline constexpr llvm::StringLiteral kEntrySymbol = "ffd_emulator_entry";

/// Lines of debug locations are places + 1. Fills `code.ops` and
/// `code.staticSharedBytes`. The errors are all that the kernel has, unless the
/// first is not about an operation; none: it may run.
std::vector<HostError> rewriteForHost(llvm::Module &module,
                                      llvm::StringRef kernel,
                                      const Options &options, KernelCode &code,
                                      HostModule &host);

/// Name and address of every function of the run-time.
std::vector<std::pair<const char *, void *>> runtimeSymbols();

/// How calls of the run-time describe an access: Machine::AccessFlags, the
/// alignment's logarithm from bit 8 on, and for atomics the order from bit 16.
enum AccessOrder { OrderRelaxed = 0, OrderAcquire = 1, OrderRelease = 2 };

/// Special registers that do not change while a lane runs.
inline constexpr llvm::StringLiteral kConstantRegisters[] = {
    "tid.x",    "tid.y",    "tid.z",   "ntid.x",  "ntid.y",
    "ntid.z",   "ctaid.x",  "ctaid.y", "ctaid.z", "nctaid.x",
    "nctaid.y", "nctaid.z", "laneid",  "warpid",  "warpsize"};

} // namespace ffd::emulator

#endif // FFD_LIB_EMULATOR_HOSTMODULE_H
