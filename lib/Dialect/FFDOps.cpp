//===- FFDOps.cpp - Algorithm level verifiers --------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Verifiers, type inference and side effects of the L1 ops. Every message names
// the operand, what it has and what was expected, and the constraint.
//
//===----------------------------------------------------------------------===//

#include "Checks.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::ffd;

//===----------------------------------------------------------------------===//
// Shared checks
//===----------------------------------------------------------------------===//

LogicalResult mlir::ffd::checkSize(Operation *op, StringRef operand, Type type,
                                   unsigned axis, int64_t expected,
                                   StringRef what, StringRef constraint) {
  int64_t size = cast<ShapedType>(type).getDimSize(axis);
  if (expected <= 0 || ShapedType::isDynamic(expected) ||
      ShapedType::isDynamic(size) || size == expected)
    return success();
  return op->emitOpError("operand '")
         << operand << "' has size " << size << " in axis " << axis
         << ", expected " << what << " = " << expected << " (" << constraint
         << ")";
}

LogicalResult mlir::ffd::checkElement(Operation *op, StringRef operand,
                                      Type type, Type expected,
                                      StringRef constraint) {
  Type element = cast<ShapedType>(type).getElementType();
  if (!expected || element == expected)
    return success();
  return op->emitOpError("operand '")
         << operand << "' has element type " << element << ", expected "
         << expected << " (" << constraint << ")";
}

/// Static sizes of the operands agree with each other and with the spec. B, Hq
/// and Hkv come from the first operand that knows them. With several query
/// tokens the axis of query heads holds those of all tokens.
namespace {
struct RowShapes {
  Operation *op;
  StringRef constraint;
  int64_t group;
  int64_t batch = ShapedType::kDynamic;
  int64_t queryHeads = ShapedType::kDynamic;
  int64_t kvHeads = ShapedType::kDynamic;

  RowShapes(Operation *op, StringRef constraint, SpecAttr spec)
      : op(op), constraint(constraint), group(spec.getRowHeads()) {}

  LogicalResult check(StringRef name, Type type, unsigned axis,
                      int64_t expected, StringRef what) {
    return checkSize(op, name, type, axis, expected, what, constraint);
  }
  LogicalResult query(Type type, SpecAttr spec) {
    return success(
        succeeded(
            checkElement(op, "query", type, spec.getElement(), constraint)) &&
        succeeded(check("query", type, 2, spec.getHeadDim(), "head_dim")) &&
        succeeded(perQueryHead("query", type)));
  }
  LogicalResult perQueryHead(StringRef name, Type type) {
    if (failed(perSequence(name, type)) ||
        failed(agree(name, type, 1, queryHeads, "query heads")))
      return failure();
    if (!group || ShapedType::isDynamic(queryHeads))
      return success();
    if (queryHeads % group)
      return op->emitOpError("operand '")
             << name << "' has " << queryHeads
             << " heads, expected a multiple of group = " << group << " ("
             << constraint << ")";
    if (!ShapedType::isDynamic(kvHeads) && queryHeads != group * kvHeads)
      return op->emitOpError("operand '")
             << name << "' has " << queryHeads << " heads, expected group * "
             << "kv heads = " << group * kvHeads << " (" << constraint << ")";
    kvHeads = queryHeads / group;
    return success();
  }
  LogicalResult perKvHead(StringRef name, Type type) {
    return success(succeeded(perSequence(name, type)) &&
                   succeeded(agree(name, type, 1, kvHeads, "kv heads")));
  }
  LogicalResult perSequence(StringRef name, Type type) {
    return agree(name, type, 0, batch, "batch");
  }

private:
  /// Checks a size against what is known of it, and makes it known.
  LogicalResult agree(StringRef name, Type type, unsigned axis, int64_t &known,
                      StringRef what) {
    if (failed(check(name, type, axis, known, what)))
      return failure();
    if (ShapedType::isDynamic(known))
      known = cast<ShapedType>(type).getDimSize(axis);
    return success();
  }
};
} // namespace

/// In destination style either all inits are tensors or all are memrefs; that
/// there is one result per tensor is verified by the interface (row_c1).
static LogicalResult verifyInits(DestinationStyleOpInterface op) {
  unsigned tensors = llvm::count_if(op.getDpsInits(), [](Value init) {
    return isa<TensorType>(init.getType());
  });
  if (tensors != 0 && tensors != op.getNumDpsInits())
    return op->emitOpError("mixes tensors and memrefs in outs(), expected one "
                           "kind (row_c1)");
  return success();
}

/// Tensors have no effects; the cache and memref operands are memory that is
/// read, memref inits are written.
static void getRowOpEffects(
    DestinationStyleOpInterface op,
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  for (OpOperand &operand : op->getOpOperands()) {
    Type type = operand.get().getType();
    if (!isa<MemRefType, CacheType>(type))
      continue;
    if (op.isDpsInit(&operand)) {
      effects.emplace_back(MemoryEffects::Write::get(), &operand,
                           SideEffects::DefaultResource::get());
      continue;
    }
    // A cache stands for several memrefs, so its read names no single value.
    if (isa<CacheType>(type))
      effects.emplace_back(MemoryEffects::Read::get(),
                           SideEffects::DefaultResource::get());
    else
      effects.emplace_back(MemoryEffects::Read::get(), &operand,
                           SideEffects::DefaultResource::get());
  }
}

#define FFD_ROW_OP_EFFECTS(OP)                                                 \
  void OP::getEffects(                                                         \
      SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>      \
          &effects) {                                                          \
    getRowOpEffects(cast<DestinationStyleOpInterface>(getOperation()),         \
                    effects);                                                  \
  }
FFD_ROW_OP_EFFECTS(PseudoMaxOp)
FFD_ROW_OP_EFFECTS(ScanOp)
FFD_ROW_OP_EFFECTS(SelectOp)
FFD_ROW_OP_EFFECTS(AttendOp)
FFD_ROW_OP_EFFECTS(DecodeOp)
FFD_ROW_OP_EFFECTS(ExactOp)
#undef FFD_ROW_OP_EFFECTS

//===----------------------------------------------------------------------===//
// SplitOp
//===----------------------------------------------------------------------===//

LogicalResult SplitOp::inferReturnTypes(MLIRContext *context,
                                        std::optional<Location> location,
                                        SplitOp::Adaptor adaptor,
                                        SmallVectorImpl<Type> &types) {
  auto keys = dyn_cast<RankedTensorType>(adaptor.getKeys().getType());
  if (!keys || keys.getRank() != 2)
    return failure();
  int64_t tokens = keys.getDimSize(0);
  int64_t block = adaptor.getQuantBlock();
  if (block <= 0)
    return emitOptionalError(location,
                             "'ffd.split' op attribute 'quant_block' is ",
                             block, ", expected at least 1 (split_o1)");
  if (!ShapedType::isDynamic(tokens) && tokens % block)
    return emitOptionalError(
        location, "'ffd.split' op operand 'keys' has ", tokens,
        " tokens, expected a multiple of quant_block = ", block, " (split_o1)");
  int64_t blocks =
      ShapedType::isDynamic(tokens) ? ShapedType::kDynamic : tokens / block;
  auto codes =
      RankedTensorType::get(keys.getShape(), IntegerType::get(context, 8));
  types.assign({codes, codes,
                RankedTensorType::get({blocks, keys.getDimSize(1)},
                                      keys.getElementType())});
  return success();
}

LogicalResult SplitOp::verify() {
  if (!llvm::is_contained({2, 4, 8}, int64_t(getScanBits())))
    return emitOpError("attribute 'scan_bits' is ")
           << int64_t(getScanBits()) << ", expected 2, 4 or 8 (split_o2)";
  if (!getCentre())
    return success();
  auto keys = cast<ShapedType>(getKeys().getType());
  Type centre = getCentre().getType();
  return success(
      succeeded(checkElement(*this, "centre", centre, keys.getElementType(),
                             "split_o3")) &&
      succeeded(checkSize(*this, "centre", centre, 0, keys.getDimSize(1),
                          "channels of the keys", "split_o3")));
}

//===----------------------------------------------------------------------===//
// AppendOp
//===----------------------------------------------------------------------===//

LogicalResult AppendOp::verify() {
  SpecAttr spec = getCache().getType().getSpec();
  StringRef constraint = "append_c1";
  Type keys = getKeys().getType(), values = getValues().getType();
  if (failed(
          checkElement(*this, "keys", keys, spec.getElement(), "append_c2")) ||
      failed(checkElement(*this, "values", values, spec.getElement(),
                          "append_c2")) ||
      failed(checkSize(*this, "keys", keys, 2, spec.getHeadDim(), "head_dim",
                       constraint)) ||
      failed(checkSize(*this, "values", values, 2, spec.getValueDim(),
                       "value_dim", constraint)) ||
      failed(checkSize(*this, "values", values, 0,
                       getKeys().getType().getDimSize(0), "tokens",
                       constraint)) ||
      failed(checkSize(*this, "values", values, 1,
                       getKeys().getType().getDimSize(1), "kv heads",
                       constraint)))
    return failure();
  int64_t batch = getReserved().getType().getDimSize(0);
  return success(
      succeeded(checkSize(*this, "offsets", getOffsets().getType(), 0,
                          ShapedType::isDynamic(batch) ? batch : batch + 1,
                          "batch + 1", constraint)) &&
      succeeded(checkSize(*this, "new_lengths", getNewLengths().getType(), 0,
                          batch, "batch", constraint)) &&
      succeeded(checkSize(*this, "errors", getErrors().getType(), 0, batch,
                          "batch", constraint)));
}

//===----------------------------------------------------------------------===//
// CacheViewOp
//===----------------------------------------------------------------------===//

/// The innermost size of each plane that the spec's layout prescribes, in the
/// order of the operands; 0 where it is not known or any will do.
static SmallVector<std::pair<int64_t, StringRef>>
getPlaneSizes(CacheViewOp view) {
  SpecAttr spec = view.getCache().getType().getSpec();
  ::ffd::Layout layout;
  bool known = spec.isComplete();
  if (known)
    layout = spec.getLayout();
  return {{known ? layout.thumbnailBytes() : 0, "bytes of a thumbnail block"},
          {known ? layout.residualBytes() : 0, "bytes of a residual block"},
          {known ? layout.valueBytes() / 2 : 0, "elements of a value block"},
          {known ? layout.paddedHeadDim() : 0, "padded head_dim"},
          {spec.getHeadDim(), "head_dim"},
          {spec.getValueDim(), "value_dim"},
          {0, "pages"},
          {0, "sequences"},
          {0, "lag"},
          {spec.getHeadDim(), "head_dim"}};
}

static constexpr StringRef kPlaneNames[] = {
    "thumbnails", "residuals",  "values",  "smax", "tail_k",
    "tail_v",     "page_table", "lengths", "lag",  "centre"};

LogicalResult CacheViewOp::verify() {
  SpecAttr spec = getCache().getType().getSpec();
  if (spec.hasCentre() != !!getCentre())
    return emitOpError(getCentre() ? "has a centre" : "has no centre")
           << " with the spec " << spec << ", expected one exactly where that "
           << "has centre = row (cache_c4)";
  SmallVector<std::pair<int64_t, StringRef>> sizes = getPlaneSizes(*this);
  for (unsigned i = 0; i < getNumOperands(); ++i) {
    auto type = dyn_cast<MemRefType>(getOperand(i).getType());
    if (!type) // the lag
      continue;
    auto [size, what] = sizes[i];
    if (failed(checkSize(*this, kPlaneNames[i], type, type.getRank() - 1, size,
                         what, "cache_c1")))
      return failure();
    if (isa<FloatType>(type.getElementType()) &&
        failed(checkElement(*this, kPlaneNames[i], type, spec.getElement(),
                            "cache_c2")))
      return failure();
    if (!type.getLayout().isIdentity())
      return emitOpError("operand '")
             << kPlaneNames[i] << "' has layout " << type.getLayout()
             << ", expected it to be contiguous (cache_c3)";
  }
  return success();
}

/// Takes planes from before a `memref.cast` that only forgets static sizes. A
/// size that the layout contradicts stays hidden: the program is wrong, but
/// rewriting must not make it invalid.
OpFoldResult CacheViewOp::fold(FoldAdaptor) {
  SmallVector<std::pair<int64_t, StringRef>> sizes = getPlaneSizes(*this);
  bool changed = false;
  for (unsigned i = 0; i < getNumOperands(); ++i) {
    OpOperand &operand = getOperation()->getOpOperand(i);
    auto cast = operand.get().getDefiningOp<memref::CastOp>();
    if (!cast || !memref::CastOp::canFoldIntoConsumerOp(cast))
      continue;
    auto source = dyn_cast<MemRefType>(cast.getSource().getType());
    if (!source || !source.getLayout().isIdentity())
      continue;
    int64_t size = source.getShape().back(), expected = sizes[i].first;
    if (expected && !ShapedType::isDynamic(size) && size != expected)
      continue;
    operand.set(cast.getSource());
    changed = true;
  }
  return changed ? getResult() : Value();
}

//===----------------------------------------------------------------------===//
// Row ops
//===----------------------------------------------------------------------===//

/// Refined scores are made of residuals.
static LogicalResult checkRefined(Operation *op, bool refined, SpecAttr spec,
                                  StringRef constraint) {
  if (!refined || spec.hasResiduals())
    return success();
  return op->emitOpError("takes a refined pseudo-max from a cache with "
                         "residual_bits = 0, expected residuals (")
         << constraint << ")";
}

LogicalResult PseudoMaxOp::verify() {
  SpecAttr spec = getCache().getType().getSpec();
  if (failed(checkRefined(*this, getRefined(), spec, "pseudo_max_c2")))
    return failure();
  RowShapes rows(*this, "pseudo_max_c1", spec);
  return success(
      succeeded(rows.query(getQuery().getType(), spec)) &&
      succeeded(rows.perQueryHead("row_max", getRowMax().getType())) &&
      succeeded(rows.perQueryHead("unit", getUnit().getType())) &&
      succeeded(verifyInits(*this)));
}

LogicalResult ScanOp::verify() {
  SpecAttr spec = getCache().getType().getSpec();
  RowShapes rows(*this, "scan_o1", spec);
  return success(succeeded(rows.query(getQuery().getType(), spec)) &&
                 succeeded(rows.perQueryHead("best", getBest().getType())) &&
                 succeeded(verifyInits(*this)));
}

LogicalResult SelectOp::verify() {
  SpecAttr spec = getCache().getType().getSpec();
  if (failed(checkRefined(*this, isRefined(getSelector()), spec, "select_o2")))
    return failure();
  if (getCertificate(getSelector()) != Certificate::none)
    return emitOpError("selector ")
           << getSelector()
           << " has a certificate, expected none: 'best' has no sums over "
              "tokens, and only 'ffd.decode' makes them (select_o3)";
  RowShapes rows(*this, "select_o1", spec);
  int64_t blocks = cast<ShapedType>(getBest().getType()).getDimSize(2);
  return success(
      succeeded(rows.perQueryHead("best", getBest().getType())) &&
      succeeded(rows.perQueryHead("row_max", getRowMax().getType())) &&
      succeeded(rows.perQueryHead("unit", getUnit().getType())) &&
      succeeded(rows.perSequence("delta", getDelta().getType())) &&
      succeeded(rows.perKvHead("mask", getMask().getType())) &&
      succeeded(rows.check("mask", getMask().getType(), 2, blocks, "blocks")) &&
      succeeded(verifyInits(*this)));
}

namespace {
/// `#ffd.all` reads no scores: replace them by the destination they were
/// written to, so that ops that only computed them become dead.
struct SelectAllReadsNoScores : OpRewritePattern<SelectOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(SelectOp select,
                                PatternRewriter &rewriter) const override {
    if (!isa<AllAttr>(select.getSelector()))
      return rewriter.notifyMatchFailure(select, "selector reads scores");
    bool changed = false;
    for (OpOperand *operand :
         {&select.getBestMutable(), &select.getRowMaxMutable(),
          &select.getUnitMutable()}) {
      auto result = dyn_cast<OpResult>(operand->get());
      if (!result || !isa<ScanOp, PseudoMaxOp>(result.getOwner()))
        continue;
      auto writer = cast<DestinationStyleOpInterface>(result.getOwner());
      rewriter.modifyOpInPlace(select, [&] {
        operand->set(writer.getTiedOpOperand(result)->get());
      });
      changed = true;
    }
    return success(changed);
  }
};
} // namespace

void SelectOp::getCanonicalizationPatterns(RewritePatternSet &patterns,
                                           MLIRContext *context) {
  patterns.add<SelectAllReadsNoScores>(context);
}

LogicalResult AttendOp::verify() {
  SpecAttr spec = getCache().getType().getSpec();
  RowShapes rows(*this, "attend_o1", spec);
  return success(succeeded(rows.query(getQuery().getType(), spec)) &&
                 succeeded(rows.perKvHead("mask", getMask().getType())) &&
                 succeeded(rows.perQueryHead("out", getOut().getType())) &&
                 succeeded(rows.check("out", getOut().getType(), 2,
                                      spec.getValueDim(), "value_dim")) &&
                 succeeded(rows.perQueryHead("lse", getLse().getType())) &&
                 succeeded(verifyInits(*this)));
}

LogicalResult DecodeOp::verify() {
  if (!isa<TopDeltaAttr, AllAttr>(getSelector()))
    return emitOpError("selector ")
           << getSelector()
           << " needs a pass over the whole row, expected #ffd.top_delta or "
              "#ffd.all (decode_c2)";
  SpecAttr spec = getCache().getType().getSpec();
  if (failed(checkRefined(*this, isRefined(getSelector()), spec, "decode_c3")))
    return failure();
  const bool certified = getCertificate(getSelector()) != Certificate::none;
  if (certified != bool(getSkippedLse()))
    return emitOpError("has ")
           << (certified ? "no 'skipped_lse'" : "a 'skipped_lse'")
           << " with the selector " << getSelector()
           << ", expected one exactly where that has a certificate (decode_c4)";
  if (certified && spec.scansKeys())
    return emitOpError("has a certificate with scan_bits = 16, expected 2, 4 "
                       "or 8 (decode_c4)");
  RowShapes rows(*this, "decode_c1", spec);
  if (certified &&
      failed(rows.perQueryHead("skipped_lse", getSkippedLse().getType())))
    return failure();
  return success(succeeded(rows.query(getQuery().getType(), spec)) &&
                 succeeded(rows.perSequence("delta", getDelta().getType())) &&
                 succeeded(rows.perQueryHead("out", getOut().getType())) &&
                 succeeded(rows.check("out", getOut().getType(), 2,
                                      spec.getValueDim(), "value_dim")) &&
                 succeeded(rows.perQueryHead("lse", getLse().getType())) &&
                 succeeded(rows.perKvHead("kept", getKept().getType())) &&
                 succeeded(verifyInits(*this)));
}

LogicalResult ExactOp::verify() {
  SpecAttr spec = getSpec();
  RowShapes rows(*this, "exact_c1", spec);
  if (failed(rows.query(getQuery().getType(), spec)))
    return failure();
  Type element = cast<ShapedType>(getQuery().getType()).getElementType();
  int64_t tokens = getKeys().getType().getDimSize(2);
  return success(
      succeeded(checkElement(*this, "keys", getKeys().getType(), element,
                             "exact_c2")) &&
      succeeded(checkElement(*this, "values", getValues().getType(), element,
                             "exact_c2")) &&
      succeeded(rows.perKvHead("keys", getKeys().getType())) &&
      succeeded(rows.check("keys", getKeys().getType(), 3, spec.getHeadDim(),
                           "head_dim")) &&
      succeeded(rows.perKvHead("values", getValues().getType())) &&
      succeeded(
          rows.check("values", getValues().getType(), 2, tokens, "tokens")) &&
      succeeded(rows.check("values", getValues().getType(), 3,
                           spec.getValueDim(), "value_dim")) &&
      succeeded(rows.perSequence("lengths", getLengths().getType())) &&
      succeeded(rows.perQueryHead("out", getOut().getType())) &&
      succeeded(rows.check("out", getOut().getType(), 2, spec.getValueDim(),
                           "value_dim")) &&
      succeeded(rows.perQueryHead("lse", getLse().getType())) &&
      succeeded(verifyInits(*this)));
}
