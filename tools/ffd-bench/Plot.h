//===- Plot.h - Time against context, drawn ---------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDBENCH_PLOT_H
#define FFD_TOOLS_FFDBENCH_PLOT_H

#include "Report.h"

namespace ffd::bench {

/// Writes `options.plot` with plot.py, next to the program or where the source
/// has it. An error says what is missing, or what the script said.
llvm::Error plot(const Options &options, const Report &report);

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_PLOT_H
