//===- Pipelines.h - Named pipelines ---------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The pipelines `ffd-to-cpu` and `ffd-to-ptx`, built from registered passes
// alone, and the part that they share.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_PIPELINES_PIPELINES_H
#define FFD_PIPELINES_PIPELINES_H

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassOptions.h"

namespace mlir::ffd {

/// Options that both pipelines have.
struct TilePipelineOptions : PassPipelineOptions<TilePipelineOptions> {
  Option<bool> fuse{*this, "fuse",
                    llvm::cl::desc("one kernel (true) or the paper's split "
                                   "execution: a selector and a computer"),
                    llvm::cl::init(true)};
  Option<int64_t> headDim{*this, "head-dim", llvm::cl::desc("head_dim"),
                          llvm::cl::init(0)};
  Option<int64_t> valueDim{*this, "value-dim", llvm::cl::desc("value_dim"),
                           llvm::cl::init(0)};
  Option<int64_t> group{*this, "group", llvm::cl::desc("group"),
                        llvm::cl::init(0)};
  Option<std::string> element{*this, "element",
                              llvm::cl::desc("element: f16 or bf16"),
                              llvm::cl::init("")};
  Option<int64_t> scanBits{*this, "scan-bits", llvm::cl::desc("scan_bits"),
                           llvm::cl::init(0)};
  Option<int64_t> quantBlock{*this, "quant-block",
                             llvm::cl::desc("quant_block"), llvm::cl::init(0)};
  Option<int64_t> selectBlock{*this, "select-block",
                              llvm::cl::desc("select_block"),
                              llvm::cl::init(0)};
};

struct CPUPipelineOptions : TilePipelineOptions {
  Option<std::string> isa{
      *this, "isa", llvm::cl::desc("avx2, avx512 or avx512vnni"),
      llvm::cl::init("avx2")};
};

struct PTXPipelineOptions : TilePipelineOptions {
  Option<std::string> arch{*this, "arch",
                           llvm::cl::desc("GPU architecture, e.g. sm_90a"),
                           llvm::cl::init("sm_90a")};
  Option<int64_t> warps{*this, "warps", llvm::cl::desc("warps per CTA"),
                        llvm::cl::init(0)};
  Option<int64_t> ctas{*this, "ctas", llvm::cl::desc("CTAs per multiprocessor"),
                       llvm::cl::init(0)};
  Option<int64_t> stages{*this, "stages", llvm::cl::desc("scan ring stages"),
                         llvm::cl::init(0)};
  Option<int64_t> slots{*this, "slots", llvm::cl::desc("refine ring slots"),
                        llvm::cl::init(0)};
};

/// L1 on tensors to specialised L1 (fused, where asked for and legal).
void buildFusePipeline(OpPassManager &pm, const TilePipelineOptions &options);
/// Fused L1 on tensors to tile programs.
void buildTilePipeline(OpPassManager &pm);
/// Tile programs to the GPU level.
void buildGPUPipeline(OpPassManager &pm, const PTXPipelineOptions &options);
/// Tile programs to the LLVM dialect for the CPU.
void addCPULoweringPasses(OpPassManager &pm, const CPUPipelineOptions &options);
/// L1 to the LLVM dialect for the CPU: pipeline `ffd-to-cpu`.
void buildCPUPipeline(OpPassManager &pm, const CPUPipelineOptions &options);
/// L1 to the NVVM dialect, ready for translation to PTX: pipeline `ffd-to-ptx`.
void buildPTXPipeline(OpPassManager &pm, const PTXPipelineOptions &options);

void registerPipelines();

} // namespace mlir::ffd

#endif // FFD_PIPELINES_PIPELINES_H
