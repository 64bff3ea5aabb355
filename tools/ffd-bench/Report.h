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
#include "Torch.h"

#include "llvm/Support/raw_ostream.h"

namespace ffd::bench {

class Report {
public:
  Report(const Options &options, Machine &machine, std::string command);

  void setTorch(TorchResult result) { torch = std::move(result); }
  void setEmpty(const Timing &timing) { empty = timing; }

  void printHead(llvm::raw_ostream &os) const;
  void add(Point point) { points.push_back(std::move(point)); }
  /// The row of the last point, and its splits if they are profiled.
  void printLast(llvm::raw_ostream &os) const;
  void printNotes(llvm::raw_ostream &os) const;
  void printJson(llvm::raw_ostream &os) const;

private:
  /// The fastest dense rival of a point: its name and seconds.
  std::pair<std::string, double> bestDense(const Point &point) const;

  const Options &options;
  Machine &machine;
  std::string command, date;
  TorchResult torch;
  Timing empty;
  std::vector<Point> points;
};

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_REPORT_H
