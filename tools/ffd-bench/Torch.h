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

TorchResult runTorch(const Options &options);

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_TORCH_H
