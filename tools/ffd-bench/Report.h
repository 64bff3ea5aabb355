//===- Report.h - The table and the JSON of a benchmark ---------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Prints each point as soon as it is measured, and writes all of them with what
// is needed to repeat the run.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDBENCH_REPORT_H
#define FFD_TOOLS_FFDBENCH_REPORT_H

#include "Bench.h"
#include "Tables.h"
#include "Torch.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <map>

namespace ffd::bench {

class Report {
public:
  Report(const Options &options, Machine &machine, std::string command);

  /// The rivals of one shape.
  void setTorch(const ffdSpec &shape, TorchResult result) {
    torch[shapeOf(shape)] = std::move(result);
  }
  void setEmpty(const Timing &timing) { empty = timing; }

  void printHead(llvm::raw_ostream &os) const;
  /// What the rows that follow have in common.
  void printShape(const Options &shape, llvm::raw_ostream &os) const;
  void add(Point point) { points.push_back(std::move(point)); }
  /// The row of the last point, and its splits if they are profiled.
  void printLast(llvm::raw_ostream &os) const;
  void printNotes(llvm::raw_ostream &os) const;
  void printJson(llvm::raw_ostream &os) const;
  void printTableJson(const TableResult &table, llvm::raw_ostream &os) const;

private:
  /// Head dim and group: what points of one report may differ in.
  using Shape = std::pair<int32_t, int32_t>;
  static Shape shapeOf(const ffdSpec &spec) {
    return {spec.head_dim, spec.group};
  }
  const TorchResult &torchOf(const ffdSpec &spec) const;
  void printCells(llvm::raw_ostream &os, llvm::ArrayRef<std::string> cells,
                  const std::string &asked) const;
  void writeContext(llvm::json::OStream &json) const;
  /// The fastest dense rival of a point: its name and seconds.
  std::pair<std::string, double> bestDense(const Point &point) const;

  const Options &options;
  Machine &machine;
  std::string command, date;
  std::map<Shape, TorchResult> torch;
  Timing empty;
  std::vector<Point> points;
};

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_REPORT_H
