//===- FFDGPUToNVVM.cpp - From the GPU level to NVVM ----- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The pass: replaces every ffd.gpu op by the instructions that its `lower`
// function emits. Control flow, arithmetic and vectors stay for the upstream
// conversions that follow it in the pipeline.
//
//===----------------------------------------------------------------------===//

#include "Lowering.h"

#include "ffd/Conversion/Passes.h"
#include "ffd/Target/PTX.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::ffd {
#define GEN_PASS_DEF_FFDGPUTONVVM
#include "ffd/Conversion/Passes.h.inc"
} // namespace mlir::ffd

using namespace mlir;
using namespace mlir::ffd;

/// Lowers one op; std::nullopt if it is not an ffd.gpu op.
static std::optional<Results> lowerOp(WarpBuilder &b, Operation *op) {
  return llvm::TypeSwitch<Operation *, std::optional<Results>>(op)
      .Case<GPUIdOp, GPUSharedOp, GPUTeamBarrierOp, GPUWarpBarrierOp,
            GPUReduceRowsOp, GPUShuffleOp, GPUAnyOp, GPUBallotOp, GPUExp2Op,
            GPUTransposeOp, GPUPrefetchOp, GPULoadIfOp, GPUCopyIfOp,
            GPUCopyWaitOp, GPULog2Op, GPUQueueTakeOp, GPUArriveOp,
            GPURingInitOp, GPURingFillOp, GPURingWaitOp, GPURingHandoverOp,
            GPUQuantizeQueryOp, GPUScaleQueryOp, GPUOrderedDotOp,
            GPUScaleFragmentOp, GPUFoldOp, GPUCentreOp, GPUSquareSumOp,
            GPUScanTileOp, GPUFoldHighOp, GPUCentreHighOp, GPUScreenTileOp,
            GPUPushKeepOp, GPUKeepMaskOp, GPUDotTileOp, GPURefineTileOp,
            GPUSoftmaxStepOp, GPUAccumulateOp, GPUKeyMaximaOp, GPUSplitScaleOp,
            GPUSplitTileOp, GPURelativeKeysOp, GPUAddKeysOp, GPUCentreKeyOp,
            GPUAddCounterOp>(
          [&](auto concrete) { return std::optional(lower(b, concrete)); })
      .Default([](Operation *) { return std::nullopt; });
}

/// The symbol whose address is the CTA's dynamic shared memory; its size comes
/// from the launch.
static void declareSharedMemory(ModuleOp module) {
  if (module.lookupSymbol(kSharedMemorySymbol))
    return;
  OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
  auto type = LLVM::LLVMArrayType::get(b.getI8Type(), 0);
  LLVM::GlobalOp::create(b, module.getLoc(), type, /*isConstant=*/false,
                         LLVM::Linkage::External, kSharedMemorySymbol,
                         Attribute(), /*alignment=*/128, /*addrSpace=*/3);
}

/// Whether a read of shared memory may move past the op.
static bool leavesMemoryAlone(Operation *op) {
  return isMemoryEffectFree(op) || isa<LLVM::LoadOp, NVVM::MmaOp>(op);
}

/// Moves reads of shared memory, and what takes words out of them, down to
/// their first use in the block. The ops of the GPU level take whole fragments;
/// read all at once, they would fill the registers.
static void sinkSharedLoads(Block &block) {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(block.getOperations()))) {
    // Fragments that were only a notation.
    if (isOpTriviallyDead(&op)) {
      op.erase();
      continue;
    }
    auto load = dyn_cast<LLVM::LoadOp>(op);
    bool sinks = isa<vector::ExtractOp>(op) ||
                 (load && isPointerTo(load.getAddr().getType(), 3));
    if (!sinks)
      continue;
    Operation *first = nullptr;
    for (Operation *user : op.getUsers()) {
      user = block.findAncestorOpInBlock(*user);
      if (!user) {
        first = nullptr;
        break;
      }
      if (!first || user->isBeforeInBlock(first))
        first = user;
    }
    if (!first)
      continue;
    Operation *to = op.getNextNode();
    while (to != first && (!load || leavesMemoryAlone(to)))
      to = to->getNextNode();
    op.moveBefore(to);
  }
}

namespace {
class FFDGPUToNVVMPass
    : public ::mlir::ffd::impl::FFDGPUToNVVMBase<FFDGPUToNVVMPass> {
public:
  using FFDGPUToNVVMBase::FFDGPUToNVVMBase;

  void runOnOperation() override {
    FailureOr<GPUArch> target =
        lookupArch(arch, [&] { return getOperation().emitError(); });
    if (failed(target))
      return signalPassFailure();
    SmallVector<Operation *> ops;
    bool usesShared = false;
    WalkResult result = getOperation().walk([&](Operation *op) -> WalkResult {
      if (!op->getName().getStringRef().starts_with("ffd.gpu."))
        return success();
      ops.push_back(op);
      usesShared |= isa<GPUSharedOp>(op);
      bool bulk = false;
      llvm::TypeSwitch<Operation *>(op)
          .Case<GPURingInitOp, GPURingFillOp, GPURingWaitOp, GPURingHandoverOp>(
              [&](auto ring) { bulk = ring.getKind() == CopyKind::bulk; });
      if (bulk && !target->bulkCopies)
        return op->emitOpError("copies in bulk, which ")
               << arch << " cannot do, expected 'async'";
      return success();
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    if (usesShared)
      declareSharedMemory(getOperation());
    for (Operation *op : ops) {
      WarpBuilder b(op->getLoc(), op);
      std::optional<Results> results = lowerOp(b, op);
      if (!results) {
        op->emitOpError("has no lowering to NVVM");
        return signalPassFailure();
      }
      op->replaceAllUsesWith(*results);
      op->erase();
    }
    getOperation().walk([](Operation *op) {
      if (isa<ModuleOp>(op))
        return;
      for (Region &region : op->getRegions())
        for (Block &block : region)
          sinkSharedLoads(block);
    });
  }
};
} // namespace
