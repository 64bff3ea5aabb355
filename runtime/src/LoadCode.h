//===- LoadCode.h - Packages of CPU code ------------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SRC_LOADCODE_H
#define FFD_SRC_LOADCODE_H

#include "ffd/Kernel.h"
#include "ffd/Package.h"

#include <memory>

namespace ffd {

/// Makes the machine code of a package callable: an ELF shared object, through
/// the system's loader, or a relocatable object as the compiler writes it.
/// `owner` keeps the code in memory.
Status loadCode(const Package &package, std::shared_ptr<void> &owner,
                CpuEntry &entry);

/// The second kind, LoadObject.cpp. Links against memset, memcpy and memmove
/// only; whatever else an object asks for is an error.
Status loadRelocatable(const std::string &name, const std::string &bytes,
                       const std::string &symbol, std::shared_ptr<void> &owner,
                       CpuEntry &entry);

} // namespace ffd
#endif // FFD_SRC_LOADCODE_H
