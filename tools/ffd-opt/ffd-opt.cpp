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
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

/// Upstream's --help lists hundreds of passes; ours come first.
static void printOwnHelp() {
  llvm::outs() << "FFD optimizer driver\n\nFFD pipelines:\n";
  for (StringRef name : {"ffd-to-cpu", "ffd-to-ptx"})
    if (const PassPipelineInfo *info = PassPipelineInfo::lookup(name))
      info->printHelpStr(/*indent=*/2, /*descIndent=*/36);
  llvm::outs() << "\nFFD passes:\n";
  for (StringRef name :
       {"ffd-decompose", "ffd-fuse", "ffd-gpu-to-nvvm", "ffd-schedule",
        "ffd-specialize", "ffd-split-to-linalg", "ffd-tile", "ffd-tile-to-gpu",
        "ffd-tile-to-vector", "ffd-values-to-llvm"})
    if (const PassInfo *info = PassInfo::lookup(name))
      info->printHelpStr(/*indent=*/2, /*descIndent=*/36);
  llvm::outs() << "\nEverything, upstream's included:\n\n";
  llvm::outs().flush();
}

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
  for (int i = 1; i < argc; ++i)
    if (StringRef(argv[i]) == "--help" || StringRef(argv[i]) == "-help")
      printOwnHelp();
  // A diagnostic says what is wrong and where; a failing pass need not print its
  // whole module after it. --mlir-print-op-on-diagnostic brings that back.
  mlir::registerMLIRContextCLOptions();
  auto &options = llvm::cl::getRegisteredOptions();
  if (auto it = options.find("mlir-print-op-on-diagnostic");
      it != options.end())
    static_cast<llvm::cl::opt<bool> *>(it->second)
        ->setValue(false, /*initial=*/true);
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "FFD optimizer driver\n", registry));
}
