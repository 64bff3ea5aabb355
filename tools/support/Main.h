//===- Main.h - The frame of a tool -----------------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_SUPPORT_MAIN_H
#define FFD_TOOLS_SUPPORT_MAIN_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Error.h"

namespace ffd::tools {

/// Parses the command line and runs the tool; its error becomes a line of the
/// standard error and status 1, and so does memory that runs out. `name` has to
/// stay.
int runMain(int argc, char **argv, const char *name,
            llvm::cl::OptionCategory &category, const char *overview,
            llvm::function_ref<llvm::Error()> run);

} // namespace ffd::tools
#endif // FFD_TOOLS_SUPPORT_MAIN_H
