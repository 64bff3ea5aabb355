//===- Options.h - What to measure ------------------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The checked command line of ffd-bench. A grid of points (tokens, batch) is
// measured with each of the selection blocks.
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

struct Options {
  std::string target = "cpu"; ///< as FindKernelOptions::target
  std::string kernelDir;
  std::vector<int64_t> tokens; ///< committed tokens of the longest sequence
  std::vector<int64_t> batches;
  std::vector<int64_t> selectBlocks;
  ffdSpec spec = {}; ///< select_block is set per measurement
  int64_t kvHeads = 8;
  int64_t tail = 64;
  int64_t ragged = 0; ///< sequences of unequal lengths; 0: none
  double keep = 0.064;
  float delta = 5;
  SplitsMode splitsMode = SplitsMode::Auto;
  int64_t splits = 0;
  bool profileSplits = false;
  bool dense = false;
  bool torch = false;
  bool launchOnly = false;
  bool contiguousPages = false;
  int reps = 21;
  int threads = 0;
  std::string python = "python3";
  std::string torchScript;
  std::string program; ///< argv[0], to find the script

  /// Launches follow a plan; splits then count pieces in all.
  bool planned() const { return onGpu() && ragged > 0; }
  bool onGpu() const { return target == "cuda"; }
  /// Newest tokens that stay in 16 bit: the tail, if it exceeds a block.
  int64_t lag() const { return tail >= spec.quant_block ? tail : 0; }
};

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_OPTIONS_H
