//===- FFDTileToVector.cpp - Tile programs to vectors -------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// --ffd-tile-to-vector: every function that holds a tile program becomes a CPU
// kernel with the signature of ffd/abi.h; then the upstream conversions that
// take the result to the LLVM dialect.
//
//===----------------------------------------------------------------------===//

#include "ffd/Conversion/FFDTileToVector.h"

#include "Emitter.h"
#include "ffd/Conversion/Passes.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

namespace mlir::ffd {
#define GEN_PASS_DEF_FFDTILETOVECTOR
#include "ffd/Conversion/Passes.h.inc"
} // namespace mlir::ffd

using namespace mlir;
using namespace mlir::ffd;

/// Replaces a function with the kernel of its tile program.
static LogicalResult lowerKernel(TileTeamsOp teams, const CpuIsa &isa) {
  auto function = teams->getParentOfType<func::FuncOp>();
  if (!function)
    return teams.emitOpError("is in no 'func.func', expected the function that "
                             "becomes the kernel");
  if (failed(checkKernelArguments(teams, /*ablations=*/true)))
    return failure();
  for (Operation &op : function.getBody().front())
    if (!isa_and_present<TileTeamsOp, CacheViewOp, func::ReturnOp>(&op) &&
        !isMemoryEffectFree(&op))
      return op.emitOpError("stands next to 'ffd.tile.teams', expected the "
                            "tile program to be all that the kernel does");
  if (function.getNumResults() != 0)
    return function.emitOpError("has ")
           << function.getNumResults()
           << " results, expected none: a kernel writes to its arguments";

  OpBuilder builder(function);
  Type ptr = LLVM::LLVMPointerType::get(function.getContext());
  Type i64 = builder.getI64Type();
  auto kernel =
      func::FuncOp::create(builder, function.getLoc(), function.getName(),
                           builder.getFunctionType({ptr, i64, i64}, {}));
  kernel.addEntryBlock();
  Emitter emitter(kernel, teams, isa);
  LogicalResult result = emitter.run();
  if (succeeded(result)) {
    OpBuilder end = OpBuilder::atBlockEnd(&kernel.getBody().front());
    func::ReturnOp::create(end, function.getLoc());
    function.erase();
  } else {
    kernel.erase();
  }
  return result;
}

namespace {
struct FFDTileToVector
    : public mlir::ffd::impl::FFDTileToVectorBase<FFDTileToVector> {
  using FFDTileToVectorBase::FFDTileToVectorBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    std::optional<CpuIsa> target = CpuIsa::parse(isa);
    if (!target) {
      module.emitError("'isa' is '")
          << isa << "', expected avx2, avx512 or avx512vnni";
      return signalPassFailure();
    }
    SmallVector<TileTeamsOp> programs;
    module.walk([&](TileTeamsOp teams) { programs.push_back(teams); });
    for (TileTeamsOp teams : programs)
      if (failed(lowerKernel(teams, *target)))
        return signalPassFailure();
  }
};
} // namespace

void mlir::ffd::addTileToLLVMPasses(OpPassManager &manager, StringRef isa) {
  FFDTileToVectorOptions options;
  options.isa = isa.str();
  manager.addPass(createFFDTileToVector(options));
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  manager.addPass(createSCFToControlFlowPass());
  manager.addPass(createConvertVectorToLLVMPass());
  manager.addPass(createConvertMathToLLVMPass());
  manager.addPass(createArithToLLVMConversionPass());
  manager.addPass(createConvertControlFlowToLLVMPass());
  manager.addPass(createConvertFuncToLLVMPass());
  manager.addPass(createReconcileUnrealizedCastsPass());
}
