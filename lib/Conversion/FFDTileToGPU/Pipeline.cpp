//===- Pipeline.cpp - From tile programs to NVVM --------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The GPU part of the pipelines, as one list of passes.
//
//===----------------------------------------------------------------------===//

#include "ffd/Conversion/GPUPipeline.h"

#include "ffd/Conversion/Passes.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

void mlir::ffd::addGPUToNVVMPasses(OpPassManager &passes, StringRef arch) {
  FFDGPUToNVVMOptions options;
  options.arch = arch.str();
  passes.addPass(createFFDGPUToNVVM(options));
  passes.addPass(createSCFToControlFlowPass());
  passes.addPass(createFFDValuesToLLVM());
}

void mlir::ffd::addTileToNVVMPasses(OpPassManager &passes, StringRef arch) {
  FFDTileToGPUOptions options;
  options.arch = arch.str();
  passes.addPass(createFFDTileToGPU(options));
  addGPUToNVVMPasses(passes, arch);
}
