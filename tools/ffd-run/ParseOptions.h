//===- ParseOptions.h - The command line of ffd-run -------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDRUN_PARSEOPTIONS_H
#define FFD_TOOLS_FFDRUN_PARSEOPTIONS_H

#include "Runner.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Error.h"

#include <optional>
#include <string>

namespace ffd::run {

/// The checked command line.
struct Options {
  RunOptions run;
  std::string input;
  std::string output, json; ///< files to write; empty: none, json "-": stdout
  bool report = false;      ///< print a table
  int threads = 0;
  std::optional<int32_t> element; ///< to decode in; default: of the input
  std::string firstDelta;         ///< as it was written
};

/// The options of this tool, among those that LLVM brings.
extern llvm::cl::OptionCategory optionCategory;

/// What was parsed, checked; an error names the option, its value and what was
/// expected.
llvm::Error parseOptions(Options &options);

} // namespace ffd::run

#endif // FFD_TOOLS_FFDRUN_PARSEOPTIONS_H
