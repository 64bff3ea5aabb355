//===- Fuse.cpp - Fuse selector and computer ------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// --ffd-fuse and its inverse --ffd-decompose.
//
//===----------------------------------------------------------------------===//

#include "ffd/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mlir::ffd {
#define GEN_PASS_DEF_FFDFUSE
#define GEN_PASS_DEF_FFDDECOMPOSE
#include "ffd/Transforms/Passes.h.inc"
} // namespace mlir::ffd

using namespace mlir;
using namespace mlir::ffd;

/// Whether nothing strictly between two ops of one block may write memory:
/// fusing moves the reads of the cache down to the last of them.
static bool nothingWritesBetween(Operation *first, Operation *last) {
  for (Operation *op = first->getNextNode(); op && op != last;
       op = op->getNextNode()) {
    if (isa<MemoryEffectOpInterface>(op)) {
      if (hasEffect<MemoryEffects::Write>(op) ||
          hasEffect<MemoryEffects::Free>(op))
        return false;
    } else if (!isMemoryEffectFree(op)) {
      return false;
    }
  }
  return true;
}

namespace {

/// attend(select(scan, pseudo_max)) -> decode.
struct FuseSelectorAndComputer : OpRewritePattern<AttendOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(AttendOp attend,
                                PatternRewriter &rewriter) const override {
    auto select = attend.getMask().getDefiningOp<SelectOp>();
    if (!select)
      return rewriter.notifyMatchFailure(attend, "mask is not from ffd.select");
    if (!isa<TopDeltaAttr, AllAttr>(select.getSelector()))
      return rewriter.notifyMatchFailure(
          select, "selector needs a pass over the whole row");
    // #ffd.all reads no scores, whatever computes them.
    ScanOp scan;
    PseudoMaxOp pseudoMax;
    Block *block = attend->getBlock();
    Operation *first = select;
    if (isa<TopDeltaAttr>(select.getSelector())) {
      scan = select.getBest().getDefiningOp<ScanOp>();
      pseudoMax = select.getRowMax().getDefiningOp<PseudoMaxOp>();
      if (!scan || !pseudoMax ||
          select.getUnit().getDefiningOp<PseudoMaxOp>() != pseudoMax)
        return rewriter.notifyMatchFailure(
            select, "inputs are not from ffd.scan and one ffd.pseudo_max");
      if (!scan->hasOneUse() || !pseudoMax.getRowMaxResult().hasOneUse() ||
          !pseudoMax.getUnitResult().hasOneUse())
        return rewriter.notifyMatchFailure(
            select, "scores or pseudo-max have another user");
      if (scan.getQuery() != attend.getQuery() ||
          pseudoMax.getQuery() != attend.getQuery() ||
          scan.getCache() != attend.getCache() ||
          pseudoMax.getCache() != attend.getCache() ||
          pseudoMax.getSmScale() != attend.getSmScale())
        return rewriter.notifyMatchFailure(
            attend, "steps differ in query, cache or softmax scale");
      if (pseudoMax.getRefined() != isRefined(select.getSelector()))
        return rewriter.notifyMatchFailure(
            select, "the rule is of another kind of pseudo-max");
      if (scan->getBlock() != block || pseudoMax->getBlock() != block)
        return rewriter.notifyMatchFailure(attend,
                                           "steps are in several blocks");
      first =
          scan->isBeforeInBlock(pseudoMax) ? scan.getOperation() : pseudoMax;
    }
    if (select.getCache() != attend.getCache())
      return rewriter.notifyMatchFailure(attend, "steps differ in cache");
    if (select->getBlock() != block)
      return rewriter.notifyMatchFailure(attend, "steps are in several blocks");
    if (!nothingWritesBetween(first, attend))
      return rewriter.notifyMatchFailure(attend,
                                         "memory is written between the steps");
    // Users of the mask come after select; decode takes attend's place.
    for (Operation *user : select->getUsers())
      if (user != attend &&
          (user->getBlock() != block || user->isBeforeInBlock(attend)))
        return rewriter.notifyMatchFailure(
            select, "the mask has a user before ffd.attend");

    SmallVector<Type> results{attend.getOut().getType(),
                              attend.getLse().getType(),
                              select.getMask().getType()};
    auto decode = DecodeOp::create(
        rewriter, rewriter.getFusedLoc({select.getLoc(), attend.getLoc()}),
        results[0], results[1], results[2], select.getSelector(),
        attend.getQuery(), attend.getCache(), select.getDelta(),
        attend.getSmScale(), attend.getOut(), attend.getLse(),
        select.getMask());
    rewriter.replaceAllUsesExcept(select.getResult(), decode.getKeptResult(),
                                  attend);
    rewriter.replaceOp(attend, {decode.getOutResult(), decode.getLseResult()});
    rewriter.eraseOp(select);
    if (scan)
      rewriter.eraseOp(scan);
    if (pseudoMax)
      rewriter.eraseOp(pseudoMax);
    return success();
  }
};

/// decode -> pseudo_max, scan, select, attend.
struct DecomposeDecode : OpRewritePattern<DecodeOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(DecodeOp decode,
                                PatternRewriter &rewriter) const override {
    if (!decode.getOutResult())
      return rewriter.notifyMatchFailure(decode, "not on tensors");
    if (decode.getSkippedLse())
      return rewriter.notifyMatchFailure(
          decode, "a certificate sums over tokens, which no step hands on");
    Location loc = decode.getLoc();
    auto sizeOf = [&](Value v, int64_t axis) {
      return tensor::getMixedSize(rewriter, loc, v, axis);
    };
    SmallVector<OpFoldResult> heads{sizeOf(decode.getLse(), 0),
                                    sizeOf(decode.getLse(), 1)};
    SmallVector<OpFoldResult> blocks = heads;
    blocks.push_back(sizeOf(decode.getKept(), 2));
    Type i32 = rewriter.getI32Type(), f32 = rewriter.getF32Type();
    Value rowMax = tensor::EmptyOp::create(rewriter, loc, heads, i32);
    Value unit = tensor::EmptyOp::create(rewriter, loc, heads, f32);
    Value best = tensor::EmptyOp::create(rewriter, loc, blocks, i32);
    auto pseudoMax = PseudoMaxOp::create(
        rewriter, loc, rowMax.getType(), unit.getType(), decode.getQuery(),
        decode.getCache(), decode.getSmScale(), rowMax, unit,
        isRefined(decode.getSelector()));
    auto scan = ScanOp::create(rewriter, loc, best.getType(), decode.getQuery(),
                               decode.getCache(), best);
    auto select = SelectOp::create(rewriter, loc, decode.getKept().getType(),
                                   decode.getSelector(), scan.getResult(),
                                   pseudoMax.getRowMaxResult(),
                                   pseudoMax.getUnitResult(), decode.getDelta(),
                                   decode.getCache(), decode.getKept());
    auto attend = AttendOp::create(
        rewriter, loc, decode.getOut().getType(), decode.getLse().getType(),
        decode.getQuery(), decode.getCache(), select.getResult(),
        decode.getSmScale(), decode.getOut(), decode.getLse());
    rewriter.replaceOp(decode, {attend.getOutResult(), attend.getLseResult(),
                                select.getResult()});
    return success();
  }
};

struct FusePass : mlir::ffd::impl::FFDFuseBase<FusePass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<FuseSelectorAndComputer>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

struct DecomposePass : mlir::ffd::impl::FFDDecomposeBase<DecomposePass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<DecomposeDecode>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
