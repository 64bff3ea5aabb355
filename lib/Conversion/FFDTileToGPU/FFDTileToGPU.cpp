//===- FFDTileToGPU.cpp - From tile programs to the GPU level -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The pass: every function that holds `ffd.tile.teams` becomes a kernel.
//
//===----------------------------------------------------------------------===//

#include "Append.h"
#include "Kernel.h"

#include "ffd/Conversion/GPUPipeline.h"
#include "ffd/Conversion/Passes.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace mlir::ffd {
#define GEN_PASS_DEF_FFDTILETOGPU
#include "ffd/Conversion/Passes.h.inc"
} // namespace mlir::ffd

using namespace mlir;
using namespace mlir::ffd;

/// The argument struct of ffd/abi.h; its last field, which is younger than the
/// others, only for kernels that read it.
static LLVM::LLVMStructType argumentStruct(Builder &b, bool certified) {
  Type ptr = LLVM::LLVMPointerType::get(b.getContext());
  Type i64 = b.getI64Type(), i32 = b.getI32Type(), f32 = b.getF32Type();
  Type types[] = {
#define FFD_KERNEL_ARG(FIELD, KIND) KIND,
#include "ffd/Conversion/KernelArgs.def"
  };
  return LLVM::LLVMStructType::getLiteral(
      b.getContext(), ArrayRef<Type>(types).drop_back(certified ? 0 : 1));
}

/// The same of an append.
static LLVM::LLVMStructType appendStruct(Builder &b) {
  Type ptr = LLVM::LLVMPointerType::get(b.getContext());
  Type i64 = b.getI64Type(), i32 = b.getI32Type();
  Type types[] = {
#define FFD_APPEND_ARG(FIELD, KIND) KIND,
#include "ffd/Conversion/AppendArgs.def"
  };
  return LLVM::LLVMStructType::getLiteral(b.getContext(), types);
}

/// An empty kernel with its launch attributes, named like the function.
static LLVM::LLVMFuncOp createKernel(OpBuilder &b, FunctionOpInterface function,
                                     int64_t threads, int64_t ctas,
                                     int64_t sharedBytes,
                                     LLVM::LLVMStructType arguments) {
  MLIRContext *context = b.getContext();
  auto type = LLVM::LLVMFunctionType::get(
      LLVM::LLVMVoidType::get(context), {LLVM::LLVMPointerType::get(context)});
  auto kernel =
      LLVM::LLVMFuncOp::create(b, function.getLoc(), function.getName(), type);
  kernel->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
  kernel->setAttr("nvvm.reqntid",
                  b.getDenseI32ArrayAttr({static_cast<int32_t>(threads)}));
  kernel->setAttr("nvvm.minctasm", b.getI32IntegerAttr(ctas));
  kernel->setAttr(kThreadsAttr, b.getI64IntegerAttr(threads));
  kernel->setAttr(kSharedBytesAttr, b.getI64IntegerAttr(sharedBytes));
  kernel->setAttr(kCtasAttr, b.getI64IntegerAttr(ctas));
  kernel.setArgAttr(0, "llvm.byval", TypeAttr::get(arguments));
  kernel.setArgAttr(0, "llvm.align", b.getI64IntegerAttr(8));
  kernel.setArgAttr(0, "nvvm.grid_constant", b.getUnitAttr());
  return kernel;
}

static LogicalResult lowerKernel(TileTeamsOp teams, const GPUArch &arch) {
  auto function = teams->getParentOfType<FunctionOpInterface>();
  if (failed(checkKernelArguments(teams)))
    return failure();
  for (Operation &op : function.getFunctionBody().front())
    if (!isa<TileTeamsOp, CacheViewOp>(op) &&
        !op.hasTrait<OpTrait::IsTerminator>())
      return op.emitOpError(
          "stands beside ffd.tile.teams, expected nothing but "
          "the team's program in a kernel");
  OpBuilder builder(function);
  LLVM::LLVMFuncOp kernel;
  LogicalResult result = success();
  if (isAppend(teams)) {
    AppendPlan plan(teams.getSpec());
    kernel = createKernel(builder, function, plan.threads, plan.ctas,
                          plan.sharedBytes, appendStruct(builder));
    builder.setInsertionPointToStart(kernel.addEntryBlock(builder));
    result = AppendEmitter(builder, teams, plan, kernel).emit();
  } else {
    FailureOr<KernelPlan> plan = makePlan(teams, arch);
    if (failed(plan))
      return failure();
    kernel = createKernel(builder, function, plan->threads(), plan->ctas,
                          plan->sharedBytes,
                          argumentStruct(builder, plan->traits.certified()));
    builder.setInsertionPointToStart(kernel.addEntryBlock(builder));
    result = KernelEmitter(builder, teams, *plan, kernel).emit();
  }
  if (failed(result)) {
    kernel.erase();
    return failure();
  }
  builder.setInsertionPointToEnd(&kernel.getBody().back());
  LLVM::ReturnOp::create(builder, function.getLoc(), ValueRange());
  function.erase();
  return success();
}

namespace {
class FFDTileToGPUPass
    : public ::mlir::ffd::impl::FFDTileToGPUBase<FFDTileToGPUPass> {
public:
  using FFDTileToGPUBase::FFDTileToGPUBase;

  void runOnOperation() override {
    FailureOr<GPUArch> target =
        lookupArch(arch, [&] { return getOperation().emitError(); });
    if (failed(target))
      return signalPassFailure();
    SmallVector<TileTeamsOp> all;
    getOperation().walk([&](TileTeamsOp teams) { all.push_back(teams); });
    for (TileTeamsOp teams : all)
      if (failed(lowerKernel(teams, *target)))
        return signalPassFailure();
  }
};
} // namespace
