//===- Report.h - The table and the JSON of a run ---------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collects the numbers of every layer and delta, adds them up per delta, and
// shows them as a table for people or as JSON for programs.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDRUN_REPORT_H
#define FFD_TOOLS_FFDRUN_REPORT_H

#include "Runner.h"
#include "support/Bandwidth.h"

#include "llvm/Support/raw_ostream.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace ffd::run {

class Report {
public:
  Report(std::string input, const RunOptions &options, int threads)
      : input(std::move(input)), options(options), threads(threads) {}

  void add(const CaseResult &result);
  void setBandwidth(const tools::Bandwidth &measured) { bandwidth = measured; }
  /// Why exact attention has no time.
  void setExactNote(const std::string &note) { exactNote = note; }

  void printTable(llvm::raw_ostream &os) const;
  void printJson(llvm::raw_ostream &os) const;

private:
  /// One line: a layer, or the total of all.
  struct Row {
    float delta = 0;
    std::optional<int64_t> layer;
    bool total = false;
    DecodeBytes bytes;
    Accuracy accuracy;
    double seconds = 0;
    std::optional<double> exactSeconds;

    void add(const Row &other);
    /// How many times faster than exact attention, if that was timed.
    std::optional<double> speedup() const;
    /// Bytes per second of the decode and of exact attention.
    double rate() const { return double(bytes.total()) / seconds; }
    std::optional<double> exactRate() const;
  };

  /// The rows in order: per delta its layers, then their total.
  std::vector<Row> rows() const;
  void printBandwidth(llvm::raw_ostream &os,
                      const std::vector<Row> &rows) const;

  std::string input;
  const RunOptions &options;
  int threads;
  std::string target, element;
  std::vector<std::vector<Row>> layers; ///< per layer, per delta
  Accuracy exactAccuracy;
  int64_t smallestCase = std::numeric_limits<int64_t>::max(); ///< K, V bytes
  std::optional<tools::Bandwidth> bandwidth;
  std::string exactNote;
};

} // namespace ffd::run

#endif // FFD_TOOLS_FFDRUN_REPORT_H
