//===- Options.h - What to measure ------------------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The checked command line of ffd-bench. A grid of points (head dim, group,
// tokens, batch) is measured with each of the selection blocks and keep ratios;
// or one of the tables of the FFD paper is made.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDBENCH_OPTIONS_H
#define FFD_TOOLS_FFDBENCH_OPTIONS_H

#include "ffd/Spec.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ffd::bench {

enum class SplitsMode {
  Auto,  ///< what the runtime picks
  Fixed, ///< Options::splits
  Sweep, ///< the fastest of several, which are reported
};

/// Tables of the FFD paper.
enum class Table {
  None,
  Selection, ///< its Table 3: what a rule costs
  ScanDepth, ///< its Table 4: 2 + 8, 4 + 8 and 8 + 8 bits
  Ablation,  ///< its Table 9: scan, rule and execution
};

struct Options {
  /// As FindKernelOptions::target, or "emulate".
  std::string target = "cpu";
  std::string arch = "sm_90a"; ///< of an emulated kernel
  std::string kernelDir;
  std::vector<int64_t> tokens; ///< committed tokens of the longest sequence
  std::vector<int64_t> batches;
  std::vector<int64_t> selectBlocks;
  std::vector<int64_t> headDims, groups;
  /// Shares of 128-token blocks that queries keep; 1 keeps everything, by an
  /// infinite delta. Data is planted for the first, others scale the queries.
  std::vector<double> keeps;
  int64_t valueDim = 0; ///< 0: of the head
  /// That of one shape: head_dim, value_dim and group are set per shape,
  /// select_block per measurement.
  ffdSpec spec = {};
  int64_t kvHeads = 8;
  int64_t tail = 64;
  int64_t ragged = 0; ///< sequences of unequal lengths; 0: none
  float delta = 5;
  SplitsMode splitsMode = SplitsMode::Auto;
  int64_t splits = 0;
  bool profileSplits = false;
  bool dense = false;
  bool torch = false;
  bool launchOnly = false;
  Table table = Table::None;
  /// Many points: of each shape, context and batch, only the first keep ratio
  /// is held against float64, and what does not fit the memory is left out.
  bool grid = false;
  double secondsAllowed = 0; ///< after which no further point begins; 0: any
  bool contiguousPages = false;
  int reps = 21;
  int threads = 0;
  std::string python = "python3";
  std::string torchScript;
  std::string program;    ///< argv[0], to find the scripts
  std::string json, plot; ///< files to write; empty: none, "-": standard output
  bool tolerant = false;  ///< a result that is far off is a note

  /// Launches follow a plan; splits then count pieces in all.
  bool planned() const { return onGpu() && ragged > 0; }
  bool onGpu() const { return target == "cuda"; }
  bool emulated() const { return target == "emulate"; } ///< has no times
  double keep() const { return keeps.front(); }
  /// The options of one shape.
  Options of(int64_t headDim, int64_t group) const;
  /// Newest tokens that stay in 16 bit: the tail, if it exceeds a block.
  int64_t lag() const { return tail >= spec.quant_block ? tail : 0; }
};

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_OPTIONS_H
