//===- ValuesToLLVM.cpp - Arithmetic and branches to LLVM --*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The pass after ffd-gpu-to-nvvm. Kernels are written with some thirty ops of
// the arith, vector and cf dialects, all on types that LLVM has: each is one op
// of the LLVM dialect, with no types to convert and nothing to legalise. Doing
// it in one walk takes a tenth of what the upstream conversions take.
//
//===----------------------------------------------------------------------===//

#include "ffd/Conversion/Passes.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::ffd {
#define GEN_PASS_DEF_FFDVALUESTOLLVM
#include "ffd/Conversion/Passes.h.inc"
} // namespace mlir::ffd

using namespace mlir;
using namespace mlir::ffd;

/// Ops with an op of the LLVM dialect that has the same operands and results.
#define FFD_SAME_OPS(OP)                                                       \
  OP(arith::AddFOp, LLVM::FAddOp)                                              \
  OP(arith::AddIOp, LLVM::AddOp)                                               \
  OP(arith::AndIOp, LLVM::AndOp)                                               \
  OP(arith::DivFOp, LLVM::FDivOp)                                              \
  OP(arith::DivSIOp, LLVM::SDivOp)                                             \
  OP(arith::DivUIOp, LLVM::UDivOp)                                             \
  OP(arith::ExtFOp, LLVM::FPExtOp)                                             \
  OP(arith::ExtSIOp, LLVM::SExtOp)                                             \
  OP(arith::ExtUIOp, LLVM::ZExtOp)                                             \
  OP(arith::FPToSIOp, LLVM::FPToSIOp)                                          \
  OP(arith::MaxSIOp, LLVM::SMaxOp)                                             \
  OP(arith::MinSIOp, LLVM::SMinOp)                                             \
  OP(arith::MulFOp, LLVM::FMulOp)                                              \
  OP(arith::MulIOp, LLVM::MulOp)                                               \
  OP(arith::OrIOp, LLVM::OrOp)                                                 \
  OP(arith::RemSIOp, LLVM::SRemOp)                                             \
  OP(arith::RemUIOp, LLVM::URemOp)                                             \
  OP(arith::SIToFPOp, LLVM::SIToFPOp)                                          \
  OP(arith::SelectOp, LLVM::SelectOp)                                          \
  OP(arith::ShLIOp, LLVM::ShlOp)                                               \
  OP(arith::ShRSIOp, LLVM::AShrOp)                                             \
  OP(arith::ShRUIOp, LLVM::LShrOp)                                             \
  OP(arith::SubFOp, LLVM::FSubOp)                                              \
  OP(arith::SubIOp, LLVM::SubOp)                                               \
  OP(arith::TruncFOp, LLVM::FPTruncOp)                                         \
  OP(arith::TruncIOp, LLVM::TruncOp)                                           \
  OP(arith::XOrIOp, LLVM::XOrOp)

/// Whether LLVM has the type as it is.
static bool isPlain(Type type) {
  if (auto vector = dyn_cast<VectorType>(type))
    return vector.getRank() == 1 && !vector.isScalable() &&
           vector.getElementType().isIntOrFloat();
  return type.isIntOrFloat() || isa<LLVM::LLVMPointerType>(type);
}

/// Whether an op says nothing but what it computes: kernels need no flags.
static bool isPlain(Operation *op) {
  if (auto math = dyn_cast<arith::ArithFastMathInterface>(op))
    if (auto flags = math.getFastMathFlagsAttr())
      if (flags.getValue() != arith::FastMathFlags::none)
        return false;
  if (auto integer = dyn_cast<arith::ArithIntegerOverflowFlagsInterface>(op))
    if (auto flags = integer.getOverflowAttr())
      if (flags.getValue() != arith::IntegerOverflowFlags::none)
        return false;
  return op->getDiscardableAttrDictionary().empty() &&
         llvm::all_of(op->getOperandTypes(),
                      [](Type type) { return isPlain(type); }) &&
         llvm::all_of(op->getResultTypes(),
                      [](Type type) { return isPlain(type); });
}

/// Whether this pass has an LLVM op for an op of another dialect.
static bool isKnown(Operation *op) {
  bool known = llvm::TypeSwitch<Operation *, bool>(op)
#define OP(FROM, TO) .Case([](FROM) { return true; })
                   FFD_SAME_OPS(OP)
#undef OP
                       .Case<arith::ConstantOp, arith::CmpFOp, arith::CmpIOp,
                             vector::FromElementsOp, cf::BranchOp>(
                           [](auto) { return true; })
                       .Case([](vector::ExtractOp extract) {
                         return extract.getStaticPosition().size() == 1 &&
                                extract.getDynamicPosition().empty();
                       })
                       .Case([](cf::CondBranchOp branch) {
                         return !branch.getBranchWeightsAttr();
                       })
                       .Default(false);
  if (auto shift = dyn_cast<arith::ShRUIOp>(op))
    known &= !shift.getIsExact();
  else if (auto shift = dyn_cast<arith::ShRSIOp>(op))
    known &= !shift.getIsExact();
  else if (auto division = dyn_cast<arith::DivUIOp>(op))
    known &= !division.getIsExact();
  else if (auto division = dyn_cast<arith::DivSIOp>(op))
    known &= !division.getIsExact();
  else if (auto truncate = dyn_cast<arith::TruncFOp>(op))
    known &= !truncate.getRoundingmode();
  return known && isPlain(op);
}

namespace {
/// Rewrites the known ops of one function.
class Rewriter {
public:
  explicit Rewriter(LLVM::LLVMFuncOp function)
      : builder(function.getContext()), entry(function.getBody().front()) {}

  void run(ArrayRef<Operation *> ops);

private:
  /// One per value and function: the walk to LLVM IR pays for each.
  Value constant(TypedAttr value);
  Value lower(vector::FromElementsOp op);
  Value lower(vector::ExtractOp op);
  void rewrite(Operation *op);

  OpBuilder builder;
  Block &entry;
  llvm::DenseMap<TypedAttr, Value> constants;
  Operation *lastConstant = nullptr;
};
} // namespace

Value Rewriter::constant(TypedAttr value) {
  Value &known = constants[value];
  if (known)
    return known;
  OpBuilder::InsertionGuard guard(builder);
  if (lastConstant)
    builder.setInsertionPointAfter(lastConstant);
  else
    builder.setInsertionPointToStart(&entry);
  auto op = LLVM::ConstantOp::create(builder, entry.getParentOp()->getLoc(),
                                     value.getType(), value);
  lastConstant = op;
  return known = op;
}

Value Rewriter::lower(vector::FromElementsOp op) {
  Value result = LLVM::PoisonOp::create(builder, op.getLoc(), op.getType());
  for (auto [i, element] : llvm::enumerate(op.getElements()))
    result =
        LLVM::InsertElementOp::create(builder, op.getLoc(), result, element,
                                      constant(builder.getI64IntegerAttr(i)));
  return result;
}

Value Rewriter::lower(vector::ExtractOp op) {
  return LLVM::ExtractElementOp::create(
      builder, op.getLoc(), op.getSource(),
      constant(builder.getI64IntegerAttr(op.getStaticPosition()[0])));
}

void Rewriter::rewrite(Operation *op) {
  builder.setInsertionPoint(op);
  Value value =
      llvm::TypeSwitch<Operation *, Value>(op)
#define OP(FROM, TO)                                                           \
  .Case([&](FROM) {                                                            \
    return TO::create(builder, op->getLoc(), op->getResultTypes(),             \
                      op->getOperands());                                      \
  })
          FFD_SAME_OPS(OP)
#undef OP
              .Case([&](arith::ConstantOp from) {
                return constant(from.getValue());
              })
              .Case([&](arith::CmpIOp from) {
                // The predicates of both dialects are LLVM's, in one order.
                return LLVM::ICmpOp::create(
                    builder, from.getLoc(),
                    static_cast<LLVM::ICmpPredicate>(from.getPredicate()),
                    from.getLhs(), from.getRhs());
              })
              .Case([&](arith::CmpFOp from) {
                return LLVM::FCmpOp::create(
                    builder, from.getLoc(),
                    static_cast<LLVM::FCmpPredicate>(from.getPredicate()),
                    from.getLhs(), from.getRhs());
              })
              .Case<vector::FromElementsOp, vector::ExtractOp>(
                  [&](auto from) { return lower(from); })
              .Case([&](cf::BranchOp from) {
                LLVM::BrOp::create(builder, from.getLoc(),
                                   from.getDestOperands(), from.getDest());
                return Value();
              })
              .Case([&](cf::CondBranchOp from) {
                LLVM::CondBrOp::create(
                    builder, from.getLoc(), from.getCondition(),
                    from.getTrueDest(), from.getTrueDestOperands(),
                    from.getFalseDest(), from.getFalseDestOperands());
                return Value();
              });
  if (value)
    op->getResult(0).replaceAllUsesWith(value);
  op->erase();
}

void Rewriter::run(ArrayRef<Operation *> ops) {
  // An element of a vector that was put together is the element that went in.
  SmallVector<Operation *> rest;
  for (Operation *op : ops) {
    auto extract = dyn_cast<vector::ExtractOp>(op);
    auto whole =
        extract ? extract.getSource().getDefiningOp<vector::FromElementsOp>()
                : vector::FromElementsOp();
    if (!whole) {
      rest.push_back(op);
      continue;
    }
    extract.replaceAllUsesWith(
        whole.getElements()[extract.getStaticPosition()[0]]);
    extract.erase();
  }
  for (Operation *op : rest) {
    if (isa<vector::FromElementsOp>(op) && op->use_empty())
      op->erase();
    else
      rewrite(op);
  }
}

namespace {
class FFDValuesToLLVMPass
    : public ::mlir::ffd::impl::FFDValuesToLLVMBase<FFDValuesToLLVMPass> {
public:
  using FFDValuesToLLVMBase::FFDValuesToLLVMBase;

  void runOnOperation() override {
    SmallVector<std::pair<LLVM::LLVMFuncOp, SmallVector<Operation *>>>
        functions;
    bool known = true;
    for (Operation &op : *getOperation().getBody()) {
      auto function = dyn_cast<LLVM::LLVMFuncOp>(op);
      known &= function || isa<LLVM::LLVMDialect>(op.getDialect());
      if (!function || function.isExternal())
        continue;
      auto &ops = functions.emplace_back(function, 0).second;
      function.getBody().walk([&](Operation *op) {
        if (isa<LLVM::LLVMDialect, NVVM::NVVMDialect>(op->getDialect()))
          return;
        known &= isKnown(op);
        ops.push_back(op);
      });
    }
    if (known) {
      for (auto &[function, ops] : functions)
        Rewriter(function).run(ops);
      return;
    }
    OpPassManager upstream(ModuleOp::getOperationName());
    upstream.addPass(createConvertVectorToLLVMPass());
    upstream.addPass(createArithToLLVMConversionPass());
    upstream.addPass(createConvertControlFlowToLLVMPass());
    upstream.addPass(createReconcileUnrealizedCastsPass());
    if (failed(runPipeline(upstream, getOperation())))
      signalPassFailure();
  }
};
} // namespace
