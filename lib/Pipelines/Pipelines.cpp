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
#include "ffd/Conversion/TileToLLVM.h"
#include "ffd/Conversion/TileToNVVM.h"
#include "ffd/Transforms/Passes.h"

#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::ffd;

void mlir::ffd::buildFusePipeline(OpPassManager &pm,
                                  const TileOptions &options) {
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

void mlir::ffd::buildGPUPipeline(OpPassManager &pm, const PTXOptions &options) {
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

void mlir::ffd::buildCPUPipeline(OpPassManager &pm, const CPUOptions &options) {
  buildFusePipeline(pm, options);
  buildTilePipeline(pm);
  FFDTileToVectorOptions vector;
  vector.isa = options.isa;
  pm.addPass(createFFDTileToVector(vector));
  addTileToLLVMPasses(pm);
}

void mlir::ffd::buildPTXPipeline(OpPassManager &pm, const PTXOptions &options) {
  buildFusePipeline(pm, options);
  buildTilePipeline(pm);
  buildGPUPipeline(pm, options);
  addTileToNVVMPasses(pm, options.arch);
}

void mlir::ffd::registerPipelines() {
  PassPipelineRegistration<CPUOptions>(
      "ffd-to-cpu",
      "Compile a decode to the LLVM dialect for the CPU: specialise, fuse, "
      "bufferise, tile, vectorise.",
      buildCPUPipeline);
  PassPipelineRegistration<PTXOptions>(
      "ffd-to-ptx",
      "Compile a decode to the NVVM dialect, ready for translation to PTX: "
      "specialise, fuse, bufferise, tile, schedule, lower to warps.",
      buildPTXPipeline);
}
