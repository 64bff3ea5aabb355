//===- ffd-opt.cpp - The ffd pass driver ------------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// mlir-opt with the ffd dialect, its passes and pipelines, and the upstream
// dialects that they meet.
//
//===----------------------------------------------------------------------===//

#include "ffd/Conversion/Passes.h"
#include "ffd/Dialect/FFDDialect.h"
#include "ffd/Pipelines/Pipelines.h"
#include "ffd/Transforms/Passes.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  registry.insert<mlir::ffd::FFDDialect>();
  mlir::ffd::registerBufferizableOpInterfaceExternalModels(registry);
  mlir::registerAllPasses();
  mlir::ffd::registerFFDTransformsPasses();
  mlir::ffd::registerFFDConversionPasses();
  mlir::ffd::registerPipelines();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "FFD optimizer driver\n", registry));
}
