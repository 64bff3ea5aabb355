//===- Tables.h - Tables of the FFD paper -----------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// --table: at one context, what a selection rule costs (the paper's Table 3),
// 2, 4 and 8 scan bits (Table 4), and scan, rule and execution one by one
// (Table 9). What a target has no kernel for is a row that says so.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDBENCH_TABLES_H
#define FFD_TOOLS_FFDBENCH_TABLES_H

#include "Machine.h"

#include "llvm/Support/raw_ostream.h"

#include <optional>

namespace ffd::bench {

struct TableRow {
  int64_t scanBits = 0;
  std::string rule;             ///< "top_k=38", "exact", ...
  std::string execution;        ///< "fused", "split", or empty
  double kept = 1;              ///< share of the selection blocks
  int64_t bytes = 0;            ///< that a fused kernel must move
  std::optional<Timing> select; ///< the selector alone
  std::optional<Timing> decode;
  std::optional<double> error; ///< relative, to exact attention, of a row
  std::string note;            ///< why there is nothing
};

struct TableResult {
  std::string name;
  std::vector<TableRow> rows;
};

/// Measures the table of `options` and prints its rows.
llvm::Expected<TableResult> makeTable(const Options &options, Machine &machine,
                                      llvm::raw_ostream &os);

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_TABLES_H
