//===- EmulatedTarget.h - GPU kernels without a GPU -------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// --target=emulate: a kernel of the runtime's interface that compiles for a GPU
// and runs on the emulator of libffd-emulate, which is loaded on demand.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_SUPPORT_EMULATEDTARGET_H
#define FFD_TOOLS_SUPPORT_EMULATEDTARGET_H

#include "ffd/Kernel.h"

#include <memory>
#include <string>

namespace ffd::tools {

/// Compiles `program` for `arch`, such as "sm_90a". Every decode of the kernel
/// is one launch whose schedule is drawn from `seed`; of a decode in split
/// execution, one of the selector and one of the computer.
Status makeEmulatedKernel(const ffdSpec &spec, Program program,
                          const std::string &arch, uint64_t seed,
                          std::unique_ptr<DecodeKernel> &kernel,
                          bool split = false);

} // namespace ffd::tools
#endif // FFD_TOOLS_SUPPORT_EMULATEDTARGET_H
