//===- Pipelines.cpp - Named pipelines -------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every pipeline is a list of registered passes, so that ffd-opt can run any
// part of it.
//
//===----------------------------------------------------------------------===//

#include "ffd/Pipelines/Pipelines.h"

#include "ffd/Conversion/Passes.h"
#include "ffd/Conversion/FFDTileToVector.h"
#include "ffd/Conversion/GPUPipeline.h"
#include "ffd/Transforms/Passes.h"

#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ffd;

void mlir::ffd::buildFusePipeline(OpPassManager &pm,
                                  const TilePipelineOptions &options) {
  if (options.fuse)
    pm.addPass(createFFDFuse());
  FFDSpecializeOptions sizes;
  sizes.headDim = options.headDim;
  sizes.valueDim = options.valueDim;
  sizes.group = options.group;
  sizes.element = options.element;
  sizes.scanBits = options.scanBits;
  sizes.quantBlock = options.quantBlock;
  sizes.selectBlock = options.selectBlock;
  pm.addPass(createFFDSpecialize(sizes));
  pm.addPass(createCSEPass());
}

void mlir::ffd::buildTilePipeline(OpPassManager &pm) {
  bufferization::OneShotBufferizePassOptions bufferize;
  bufferize.bufferizeFunctionBoundaries = true;
  // Kernel arguments carry their strides in the ABI struct, not in their type.
  bufferize.functionBoundaryTypeConversion =
      bufferization::LayoutMapOption::IdentityLayoutMap;
  pm.addPass(bufferization::createOneShotBufferizePass(bufferize));
  pm.addPass(createFFDTile());
  pm.addPass(createCSEPass());
  pm.addPass(createCanonicalizerPass());
}

void mlir::ffd::buildGPUPipeline(OpPassManager &pm, const PTXPipelineOptions &options) {
  FFDScheduleOptions schedule;
  schedule.arch = options.arch;
  schedule.warps = options.warps;
  schedule.ctas = options.ctas;
  schedule.stages = options.stages;
  schedule.slots = options.slots;
  pm.addPass(createFFDSchedule(schedule));
  FFDTileToGPUOptions gpu;
  gpu.arch = options.arch;
  pm.addPass(createFFDTileToGPU(gpu));
}

void mlir::ffd::addCPULoweringPasses(OpPassManager &pm,
                                     const CPUPipelineOptions &options) {
  addTileToLLVMPasses(pm, options.isa);
}

void mlir::ffd::buildCPUPipeline(OpPassManager &pm,
                                 const CPUPipelineOptions &options) {
  buildFusePipeline(pm, options);
  buildTilePipeline(pm);
  addCPULoweringPasses(pm, options);
}

void mlir::ffd::buildPTXPipeline(OpPassManager &pm, const PTXPipelineOptions &options) {
  buildFusePipeline(pm, options);
  buildTilePipeline(pm);
  buildGPUPipeline(pm, options);
  addGPUToNVVMPasses(pm, options.arch);
}

void mlir::ffd::registerPipelines() {
  PassPipelineRegistration<CPUPipelineOptions>(
      "ffd-to-cpu",
      "Compile a decode to the LLVM dialect for the CPU: specialise, fuse, "
      "bufferise, tile, vectorise.",
      buildCPUPipeline);
  PassPipelineRegistration<PTXPipelineOptions>(
      "ffd-to-ptx",
      "Compile a decode to the NVVM dialect, ready for translation to PTX: "
      "specialise, fuse, bufferise, tile, schedule, lower to warps.",
      buildPTXPipeline);
}
