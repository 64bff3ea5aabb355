//===- ParseOptions.h - The command line of ffd-bench -----------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDBENCH_PARSEOPTIONS_H
#define FFD_TOOLS_FFDBENCH_PARSEOPTIONS_H

#include "Options.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Error.h"

namespace ffd::bench {

/// The options of this tool, among those that LLVM brings.
extern llvm::cl::OptionCategory optionCategory;

/// What was parsed, checked; an error names the option, its value and what was
/// expected.
llvm::Error parseOptions(Options &options);

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_PARSEOPTIONS_H
