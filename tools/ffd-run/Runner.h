//===- Runner.h - Decoding cases and timing them ----------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Takes a case through the runtime library: builds its split cache, finds the
// kernels, runs the decode for every delta and, for a report, exact attention
// on the same machine with the same threads.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDRUN_RUNNER_H
#define FFD_TOOLS_FFDRUN_RUNNER_H

#include "Case.h"
#include "ExactReference.h"

#include "ffd/Cache.h"
#include "ffd/CudaDriver.h"
#include "ffd/Kernel.h"
#include "ffd/Selector.h"
#include "ffd/ThreadPool.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ffd::run {

struct RunOptions {
  /// As FindKernelOptions::target, or "emulate".
  std::string target = "cpu";
  std::string arch = "sm_90a"; ///< of an emulated GPU
  uint64_t seed = 1;           ///< of an emulated schedule
  std::string kernelDir;       ///< folder of packages; empty: none
  std::vector<float> deltas;
  std::optional<float> smScale; ///< default 1 / sqrt(D)
  Selector selector;
  int32_t scanBits = 2;
  bool residuals = true; ///< false: attention over thumbnails alone
  int32_t centre = FFD_CENTRE_NONE; ///< what keys are relative to
  bool refinedMax = false; ///< the pseudo-max is one of refined scores
  int16_t certificate = FFD_CERTIFICATE_NONE; ///< estimate of skipped mass
  int32_t selectBlock = 16;
  int32_t lag = 0;
  int32_t splits = 0; ///< 0: the kernel picks
  int repeat = 1;
  bool measure = false; ///< compare with exact attention and time it

  bool onGpu() const { return target == "cuda"; }
  /// On the emulator, whose times say nothing.
  bool emulated() const { return target == "emulate"; }
};

/// What a decode with one delta gave.
struct DeltaResult {
  float delta = 0;
  std::vector<float> out;    ///< [batch][queryTokens][queryHeads][valueDim]
  std::vector<float> lse;    ///< [batch][queryTokens][queryHeads]
  std::vector<float> skipped; ///< like lse, with a certificate
  std::vector<uint8_t> kept; ///< [batch][kvHeads][maxSelects], zero-padded
  DecodeBytes bytes;
  double seconds = 0; ///< median over the repeats; NaN if emulated
  Accuracy accuracy;  ///< if measured
};

struct CaseResult {
  CaseShape shape;
  int64_t maxSelects = 0; ///< most selection blocks of a sequence
  std::string target;     ///< of the kernel: "cpu:avx512", "sm_90a"
  std::vector<DeltaResult> deltas;
  std::optional<double> exactSeconds; ///< of exact attention, if measured
  Accuracy exactAccuracy;             ///< of the kernel timed above
};

class Runner {
public:
  /// `pool` outlives the runner.
  Runner(RunOptions options, ThreadPool &pool);
  ~Runner();

  /// Opens the device, if the target is one.
  llvm::Error prepare();
  llvm::Expected<CaseResult> run(const Case &c);

  /// Why there is no time of exact attention; empty if there is.
  const std::string &exactNote() const { return noExact; }
  const RunOptions &options() const { return settings; }

private:
  /// Arguments with the memory behind those fields that are not the cache's.
  struct Call;

  Status find(Program program, const ffdSpec &spec, DecodeKernel *&kernel);
  llvm::Error fillCall(const Case &c, int64_t maxSelects, Call &call) const;
  llvm::Expected<double> decode(DecodeKernel &kernel, Call &call,
                                const SplitCache *cache);
  llvm::Error timeExact(const Case &c, const ffdSpec &spec, Call &call,
                        const ExactResult &reference, CaseResult &result);
  float scaleOf(const CaseShape &shape) const;

  RunOptions settings;
  ThreadPool &pool;
  std::shared_ptr<CudaContext> cuda;
  std::map<std::string, std::unique_ptr<DecodeKernel>> kernels;
  std::string noExact;
};

} // namespace ffd::run

#endif // FFD_TOOLS_FFDRUN_RUNNER_H
