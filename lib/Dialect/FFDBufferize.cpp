//===- FFDBufferize.cpp - Bufferisation of the L1 ops ------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The destination-style ops of L1 bufferise in place: same op, memref operands.
//
//===----------------------------------------------------------------------===//

#include "ffd/Dialect/FFDDialect.h"

#include "mlir/Dialect/Bufferization/IR/DstBufferizableOpInterfaceImpl.h"

using namespace mlir;
using namespace mlir::ffd;

namespace {
template <typename Op>
struct RowOpInterface
    : bufferization::DstBufferizableOpInterfaceExternalModel<RowOpInterface<Op>,
                                                             Op> {
  /// Inits are overwritten, never read, except a mask: its bytes beyond the
  /// committed blocks stay.
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand,
                              const bufferization::AnalysisState &) const {
    if (auto select = dyn_cast<SelectOp>(op))
      if (&operand == &select.getMaskMutable())
        return true;
    if (auto decode = dyn_cast<DecodeOp>(op))
      if (&operand == &decode.getKeptMutable())
        return true;
    return !cast<DestinationStyleOpInterface>(op).isDpsInit(&operand);
  }
  bool bufferizesToElementwiseAccess(Operation *,
                                     const bufferization::AnalysisState &,
                                     ArrayRef<OpOperand *>) const {
    return false;
  }
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const bufferization::BufferizationOptions &options,
                          bufferization::BufferizationState &state) const {
    SmallVector<Value> operands, buffers;
    auto dps = cast<DestinationStyleOpInterface>(op);
    for (OpOperand &operand : op->getOpOperands()) {
      if (!isa<TensorType>(operand.get().getType())) {
        operands.push_back(operand.get());
        continue;
      }
      FailureOr<Value> buffer =
          bufferization::getBuffer(rewriter, operand.get(), options, state);
      if (failed(buffer))
        return failure();
      operands.push_back(*buffer);
      if (dps.isDpsInit(&operand))
        buffers.push_back(*buffer);
    }
    OperationState newState(op->getLoc(), op->getName());
    newState.addOperands(operands);
    newState.addAttributes(llvm::to_vector(op->getDiscardableAttrs()));
    newState.propertiesAttr = op->getPropertiesAsAttribute();
    Operation *created = rewriter.create(newState);
    // Without results the result segments are all empty.
    if constexpr (Op::template hasTrait<OpTrait::AttrSizedResultSegments>())
      cast<Op>(created).getProperties().resultSegmentSizes = {};
    bufferization::replaceOpWithBufferizedValues(rewriter, op, buffers);
    return success();
  }
};
} // namespace

void mlir::ffd::registerBufferizableOpInterfaceExternalModels(
    DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, FFDDialect *) {
    PseudoMaxOp::attachInterface<RowOpInterface<PseudoMaxOp>>(*context);
    ScanOp::attachInterface<RowOpInterface<ScanOp>>(*context);
    SelectOp::attachInterface<RowOpInterface<SelectOp>>(*context);
    AttendOp::attachInterface<RowOpInterface<AttendOp>>(*context);
    DecodeOp::attachInterface<RowOpInterface<DecodeOp>>(*context);
    ExactOp::attachInterface<RowOpInterface<ExactOp>>(*context);
  });
}
