//===- Torch.h - Dense rivals from PyTorch ----------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs torch_sdpa.py, which times PyTorch's attention backends (and FlashInfer,
// if importable) the same way on the same device, and reads its JSON.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDBENCH_TORCH_H
#define FFD_TOOLS_FFDBENCH_TORCH_H

#include "Options.h"

#include <map>
#include <string>
#include <utility>

namespace ffd::bench {

struct TorchResult {
  /// Seconds of a launch by (tokens, batch), then by backend.
  std::map<std::pair<int64_t, int64_t>, std::map<std::string, double>> seconds;
  std::string version; ///< of PyTorch, and more of its description
  std::string note;    ///< why there is nothing, or what is missing

  /// The fastest backend of a point; an empty name and 0 if there is none.
  std::pair<std::string, double> best(int64_t tokens, int64_t batch) const;
};

/// `seconds`: how long the child process may take.
TorchResult runTorch(const Options &options, double seconds);

/// The path of a script of this tool: next to the program, or where the source
/// has it.
std::string findScript(const Options &options, const char *name);

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_TORCH_H
