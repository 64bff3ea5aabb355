//===- HostModule.h - From GPU code to host code --- -*- C++ -*-===//
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

struct HostModule {
  std::vector<HostParameter> parameters;
  std::vector<HostGlobal> globals;
};

/// The symbol of the function that runs one lane: `void(void **parameters)`.
inline constexpr llvm::StringLiteral kEntrySymbol = "ffd_emulator_entry";

/// Lines of debug locations are places + 1. Fills `code.ops` and
/// `code.staticSharedBytes`. On failure `error` has a message and `place` the
/// operation at fault (Machine::kNoPlace: none).
bool rewriteForHost(llvm::Module &module, llvm::StringRef kernel,
                    const Options &options, KernelCode &code, HostModule &host,
                    std::string &error, uint32_t &place);

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
