//===- SplitToLinalg.cpp - Lower ffd.split --------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// --ffd-split-to-linalg: the quantiser as linalg on tensors, constraint by
// constraint.
//
//===----------------------------------------------------------------------===//

#include "ffd/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::ffd {
#define GEN_PASS_DEF_FFDSPLITTOLINALG
#include "ffd/Transforms/Passes.h.inc"
} // namespace mlir::ffd

using namespace mlir;
using namespace mlir::ffd;

namespace {

/// Scalar steps of the quantiser, inside the bodies of linalg ops.
struct Quantiser {
  ImplicitLocOpBuilder &b;
  FloatType element;
  int64_t scanBits;

  Value f32(double value) {
    return arith::ConstantOp::create(b, b.getF32FloatAttr(value));
  }
  Value i32(int64_t value) {
    return arith::ConstantOp::create(b, b.getI32IntegerAttr(value));
  }
  /// centre_c3: a key relative to its row's centre.
  Value centre(Value k, Value c) {
    Value d = arith::SubFOp::create(b, extend(k), extend(c));
    return arith::TruncFOp::create(b, element, d);
  }
  Value extend(Value v) { return arith::ExtFOp::create(b, b.getF32Type(), v); }
  Value compare(arith::CmpFPredicate predicate, Value lhs, Value rhs) {
    return arith::CmpFOp::create(b, predicate, lhs, rhs);
  }
  Value select(Value condition, Value yes, Value no) {
    return arith::SelectOp::create(b, condition, yes, no);
  }

  /// split_c1 to split_c3: the scale of a channel from its largest magnitude.
  Value scale(Value amax) {
    double l = ((int64_t(1) << scanBits) - 1) / 2.0;
    Value s = arith::TruncFOp::create(
        b, element, arith::DivFOp::create(b, amax, f32(l)).getResult());
    if (element.isBF16()) {
      Value tiny =
          compare(arith::CmpFPredicate::OLT, extend(s), f32(0x1p-100));
      s = select(tiny, elementConstant(APFloat(0.0f)), s);
    }
    // Ordered and below infinity: false for NaN too.
    Value finite =
        compare(arith::CmpFPredicate::OLT, amax, f32(APFloat::getInf(
            APFloat::IEEEsingle()).convertToFloat()));
    return select(finite, s,
                  elementConstant(APFloat::getNaN(APFloat::IEEEsingle())));
  }

  /// split_c4: the uniform code of `k`, an i32.
  Value code(Value k, Value scale) {
    Value s = extend(scale);
    Value zero = f32(0.0);
    Value inv = select(compare(arith::CmpFPredicate::OEQ, s, zero), zero,
                       arith::DivFOp::create(b, f32(1.0), s));
    Value scaled = arith::MulFOp::create(b, inv, f32(256.0));
    double half = double(int64_t(1) << (scanBits + 7));
    double top = double((int64_t(1) << (scanBits + 8)) - 1);
    Value x = math::FloorOp::create(
        b, math::FmaOp::create(b, extend(k), scaled, f32(half)).getResult());
    x = arith::MaximumFOp::create(b, x, zero);
    x = arith::MinimumFOp::create(b, x, f32(top));
    // NaN only where the scale is: such a channel has code 0 (split_c3).
    Value isNaN = compare(arith::CmpFPredicate::UNO, s, s);
    x = select(isNaN, zero, x);
    return arith::FPToUIOp::create(b, b.getI32Type(), x);
  }

private:
  Value elementConstant(APFloat value) {
    bool lost;
    value.convert(element.getFloatSemantics(), APFloat::rmNearestTiesToEven,
                  &lost);
    return arith::ConstantOp::create(b, b.getFloatAttr(element, value));
  }
};

struct LowerSplit : OpRewritePattern<SplitOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SplitOp op,
                                PatternRewriter &rewriter) const override {
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    auto keysType = cast<RankedTensorType>(op.getKeys().getType());
    auto element = cast<FloatType>(keysType.getElementType());
    int64_t block = op.getQuantBlock();
    Quantiser quantiser{b, element, int64_t(op.getScanBits())};

    // [T, D] -> [T / block, block, D].
    OpFoldResult tokens =
        tensor::getMixedSize(b, op.getLoc(), op.getKeys(), 0);
    OpFoldResult channels =
        tensor::getMixedSize(b, op.getLoc(), op.getKeys(), 1);
    OpFoldResult blocks;
    if (auto size = dyn_cast<Attribute>(tokens))
      blocks = b.getIndexAttr(cast<IntegerAttr>(size).getInt() / block);
    else
      blocks = arith::DivUIOp::create(
                   b, cast<Value>(tokens),
                   arith::ConstantIndexOp::create(b, block).getResult())
                   .getResult();
    SmallVector<OpFoldResult> shape{blocks, b.getIndexAttr(block), channels};
    SmallVector<ReassociationIndices> reassociation{{0, 1}, {2}};
    auto expandedType = RankedTensorType::get(
        {op.getScales().getType().getDimSize(0), block, keysType.getDimSize(1)},
        element);
    Value keys = tensor::ExpandShapeOp::create(b, expandedType, op.getKeys(),
                                               reassociation, shape);

    MLIRContext *context = b.getContext();
    AffineExpr d0 = b.getAffineDimExpr(0), d1 = b.getAffineDimExpr(1),
               d2 = b.getAffineDimExpr(2);
    AffineMap perElement = AffineMap::get(3, 0, {d0, d1, d2}, context);
    AffineMap perChannel = AffineMap::get(3, 0, {d0, d2}, context);
    auto parallel = utils::IteratorType::parallel;
    auto reduction = utils::IteratorType::reduction;
    auto body = [&](function_ref<SmallVector<Value>(ValueRange)> compute) {
      return [&, compute](OpBuilder &nested, Location loc, ValueRange args) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(nested.getInsertionBlock());
        linalg::YieldOp::create(b, compute(args));
      };
    };
    if (Value centre = op.getCentre()) {
      AffineMap perRow = AffineMap::get(3, 0, {d2}, context);
      Value init = tensor::EmptyOp::create(b, shape, element);
      keys = linalg::GenericOp::create(
                 b, init.getType(), ValueRange{keys, centre}, ValueRange{init},
                 ArrayRef<AffineMap>{perElement, perRow, perElement},
                 ArrayRef<utils::IteratorType>{parallel, parallel, parallel},
                 body([&](ValueRange args) -> SmallVector<Value> {
                   return {quantiser.centre(args[0], args[1])};
                 }))
                 .getResult(0);
    }
    // split_c1: the largest magnitude, NaN propagates.
    Value amaxInit =
        linalg::FillOp::create(
            b, quantiser.f32(0.0),
            tensor::EmptyOp::create(b, ArrayRef<OpFoldResult>{blocks, channels},
                                    b.getF32Type())
                .getResult())
            .getResult(0);
    Value amax =
        linalg::GenericOp::create(
            b, amaxInit.getType(), ValueRange{keys}, ValueRange{amaxInit},
            ArrayRef<AffineMap>{perElement, perChannel},
            ArrayRef<utils::IteratorType>{parallel, reduction, parallel},
            body([&](ValueRange args) -> SmallVector<Value> {
              Value magnitude =
                  math::AbsFOp::create(b, quantiser.extend(args[0]));
              return {arith::MaximumFOp::create(b, args[1], magnitude)};
            }))
            .getResult(0);

    AffineMap identity2 = AffineMap::getMultiDimIdentityMap(2, context);
    Value scalesInit = tensor::EmptyOp::create(
        b, ArrayRef<OpFoldResult>{blocks, channels}, element);
    Value scales =
        linalg::GenericOp::create(
            b, scalesInit.getType(), ValueRange{amax}, ValueRange{scalesInit},
            ArrayRef<AffineMap>{identity2, identity2},
            ArrayRef<utils::IteratorType>{parallel, parallel},
            body([&](ValueRange args) -> SmallVector<Value> {
              return {quantiser.scale(args[0])};
            }))
            .getResult(0);

    // split_c4, split_c5.
    Value bytesInit = tensor::EmptyOp::create(b, shape, b.getI8Type());
    auto codes = linalg::GenericOp::create(
        b, TypeRange{bytesInit.getType(), bytesInit.getType()},
        ValueRange{keys, scales}, ValueRange{bytesInit, bytesInit},
        ArrayRef<AffineMap>{perElement, perChannel, perElement, perElement},
        ArrayRef<utils::IteratorType>{parallel, parallel, parallel},
        body([&](ValueRange args) -> SmallVector<Value> {
          Value x = quantiser.code(args[0], args[1]);
          Value high = arith::ShRUIOp::create(b, x, quantiser.i32(8));
          return {arith::TruncIOp::create(b, b.getI8Type(), high),
                  arith::TruncIOp::create(b, b.getI8Type(), x)};
        }));
    auto flatten = [&](Value v, Type type) -> Value {
      return tensor::CollapseShapeOp::create(b, type, v, reassociation);
    };
    rewriter.replaceOp(op,
                       {flatten(codes.getResult(0), op.getCodes().getType()),
                        flatten(codes.getResult(1),
                                op.getResiduals().getType()),
                        scales});
    return success();
  }
};

struct SplitToLinalgPass : mlir::ffd::impl::FFDSplitToLinalgBase<SplitToLinalgPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<LowerSplit>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
