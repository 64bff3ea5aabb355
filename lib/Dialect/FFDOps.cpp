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

#include "ffd/Dialect/FFDDialect.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::ffd;

//===----------------------------------------------------------------------===//
// Shared checks
//===----------------------------------------------------------------------===//

/// Checks one static size of an operand; `expected` 0 or dynamic means unknown.
static LogicalResult checkSize(Operation *op, StringRef operand, Type type,
                               unsigned axis, int64_t expected, StringRef what,
                               StringRef constraint) {
  int64_t size = cast<ShapedType>(type).getDimSize(axis);
  if (expected <= 0 || ShapedType::isDynamic(expected) ||
      ShapedType::isDynamic(size) || size == expected)
    return success();
  return op->emitOpError("operand '")
         << operand << "' has size " << size << " in axis " << axis
         << ", expected " << what << " = " << expected << " (" << constraint
         << ")";
}

static LogicalResult checkElement(Operation *op, StringRef operand, Type type,
                                  Type expected, StringRef constraint) {
  Type element = cast<ShapedType>(type).getElementType();
  if (!expected || element == expected)
    return success();
  return op->emitOpError("operand '")
         << operand << "' has element type " << element << ", expected "
         << expected << " (" << constraint << ")";
}

/// Static sizes of the common operands agree with the query and with the spec.
/// Collects B, Hq and Hkv from whichever operand knows them.
namespace {
struct RowShapes {
  Operation *op;
  StringRef constraint;
  int64_t batch = ShapedType::kDynamic;
  int64_t queryHeads = ShapedType::kDynamic;
  int64_t kvHeads = ShapedType::kDynamic;

  LogicalResult query(Type type, SpecAttr spec) {
    auto shaped = cast<ShapedType>(type);
    batch = shaped.getDimSize(0);
    queryHeads = shaped.getDimSize(1);
    if (failed(checkElement(op, "query", type, spec.getElement(), constraint)))
      return failure();
    if (failed(checkSize(op, "query", type, 2, spec.getHeadDim(), "head_dim",
                         constraint)))
      return failure();
    if (spec.getGroup() && !ShapedType::isDynamic(queryHeads)) {
      if (queryHeads % spec.getGroup())
        return op->emitOpError("operand 'query' has ")
               << queryHeads << " heads, expected a multiple of group = "
               << spec.getGroup() << " (" << constraint << ")";
      kvHeads = queryHeads / spec.getGroup();
    }
    return success();
  }
  LogicalResult check(StringRef name, Type type, unsigned axis,
                      int64_t expected, StringRef what) {
    return checkSize(op, name, type, axis, expected, what, constraint);
  }
  LogicalResult perQueryHead(StringRef name, Type type) {
    return success(
        succeeded(check(name, type, 0, batch, "batch")) &&
        succeeded(check(name, type, 1, queryHeads, "query heads")));
  }
  LogicalResult perKvHead(StringRef name, Type type) {
    return success(succeeded(check(name, type, 0, batch, "batch")) &&
                   succeeded(check(name, type, 1, kvHeads, "kv heads")));
  }
};
} // namespace

/// In destination style either all inits are tensors and there is one result
/// of each init's type, or all are memrefs and there is none.
static LogicalResult verifyResults(DestinationStyleOpInterface op) {
  unsigned tensors = 0;
  for (OpOperand &init : op.getDpsInitsMutable())
    tensors += isa<TensorType>(init.get().getType());
  unsigned inits = op.getNumDpsInits();
  if (tensors != 0 && tensors != inits)
    return op->emitOpError("mixes tensors and memrefs in outs(), expected one "
                           "kind");
  if (op->getNumResults() != tensors)
    return op->emitOpError("has ") << op->getNumResults()
                                   << " results, expected " << tensors
                                   << ", one per tensor in outs()";
  for (auto [result, init] :
       llvm::zip(op->getResultTypes(), op.getDpsInits()))
    if (result != init.getType())
      return op->emitOpError("result type ")
             << result << " differs from its init " << init.getType();
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
  if (!keys || keys.getRank() != 2 || adaptor.getQuantBlock() <= 0)
    return failure();
  int64_t tokens = keys.getDimSize(0);
  int64_t blocks = ShapedType::isDynamic(tokens)
                       ? ShapedType::kDynamic
                       : tokens / int64_t(adaptor.getQuantBlock());
  auto codes =
      RankedTensorType::get(keys.getShape(), IntegerType::get(context, 8));
  types.assign({codes, codes,
                RankedTensorType::get({blocks, keys.getDimSize(1)},
                                      keys.getElementType())});
  return success();
}

LogicalResult SplitOp::verify() {
  int64_t tokens = getKeys().getType().getDimSize(0);
  int64_t block = getQuantBlock();
  if (block <= 0)
    return emitOpError("attribute 'quant_block' is ")
           << block << ", expected a positive number of tokens (split_o1)";
  if (!ShapedType::isDynamic(tokens) && tokens % block)
    return emitOpError("operand 'keys' has ")
           << tokens << " tokens, expected a multiple of quant_block = "
           << block << " (split_o1)";
  if (!llvm::is_contained({2, 4, 8}, int64_t(getScanBits())))
    return emitOpError("attribute 'scan_bits' is ")
           << getScanBits() << ", expected 2, 4 or 8 (split_o2)";
  return success();
}

//===----------------------------------------------------------------------===//
// CacheViewOp
//===----------------------------------------------------------------------===//

LogicalResult CacheViewOp::verify() {
  SpecAttr spec = getCache().getType().getSpec();
  Operation *op = getOperation();
  for (auto [name, value] :
       {std::pair<StringRef, Value>{"values", getValues()},
        {"smax", getSmax()},
        {"tail_k", getTailK()},
        {"tail_v", getTailV()}})
    if (failed(checkElement(op, name, value.getType(), spec.getElement(),
                            "cache_c2")))
      return failure();
  int64_t thumbnail = 0, residual = 0, value = 0, padded = 0;
  if (spec.isComplete()) {
    ::ffd::Layout layout = spec.getLayout();
    thumbnail = layout.thumbnailBytes();
    residual = layout.residualBytes();
    value = layout.valueBytes() / 2;
    padded = layout.paddedHeadDim();
  }
  auto size = [&](StringRef name, Value v, unsigned axis, int64_t expected,
                  StringRef what) {
    return checkSize(op, name, v.getType(), axis, expected, what, "cache_c1");
  };
  return success(
      succeeded(size("thumbnails", getThumbnails(), 2, thumbnail,
                     "bytes of a thumbnail block")) &&
      succeeded(size("residuals", getResiduals(), 2, residual,
                     "bytes of a residual block")) &&
      succeeded(size("values", getValues(), 2, value,
                     "elements of a value block")) &&
      succeeded(size("smax", getSmax(), 2, padded, "padded head_dim")) &&
      succeeded(size("tail_k", getTailK(), 3, spec.getHeadDim(), "head_dim")) &&
      succeeded(size("tail_v", getTailV(), 3, spec.getValueDim(),
                     "value_dim")));
}

//===----------------------------------------------------------------------===//
// Row ops
//===----------------------------------------------------------------------===//

LogicalResult PseudoMaxOp::verify() {
  RowShapes rows{getOperation(), "pseudo_max_c1"};
  return success(
      succeeded(rows.query(getQuery().getType(),
                           getCache().getType().getSpec())) &&
      succeeded(rows.perQueryHead("row_max", getRowMax().getType())) &&
      succeeded(rows.perQueryHead("unit", getUnit().getType())) &&
      succeeded(verifyResults(*this)));
}

LogicalResult ScanOp::verify() {
  RowShapes rows{getOperation(), "scan_o1"};
  return success(succeeded(rows.query(getQuery().getType(),
                                      getCache().getType().getSpec())) &&
                 succeeded(rows.perQueryHead("best", getBest().getType())) &&
                 succeeded(verifyResults(*this)));
}

LogicalResult SelectOp::verify() {
  RowShapes rows{getOperation(), "select_o1"};
  auto best = cast<ShapedType>(getBest().getType());
  rows.batch = best.getDimSize(0);
  rows.queryHeads = best.getDimSize(1);
  int64_t group = getCache().getType().getSpec().getGroup();
  if (group && !ShapedType::isDynamic(rows.queryHeads)) {
    if (rows.queryHeads % group)
      return emitOpError("operand 'best' has ")
             << rows.queryHeads << " heads, expected a multiple of group = "
             << group << " (select_o1)";
    rows.kvHeads = rows.queryHeads / group;
  }
  return success(
      succeeded(rows.perQueryHead("row_max", getRowMax().getType())) &&
      succeeded(rows.perQueryHead("unit", getUnit().getType())) &&
      succeeded(rows.check("delta", getDelta().getType(), 0, rows.batch,
                           "batch")) &&
      succeeded(rows.perKvHead("mask", getMask().getType())) &&
      succeeded(rows.check("mask", getMask().getType(), 2, best.getDimSize(2),
                           "blocks")) &&
      succeeded(verifyResults(*this)));
}

LogicalResult AttendOp::verify() {
  RowShapes rows{getOperation(), "attend_o1"};
  SpecAttr spec = getCache().getType().getSpec();
  return success(succeeded(rows.query(getQuery().getType(), spec)) &&
                 succeeded(rows.perKvHead("mask", getMask().getType())) &&
                 succeeded(rows.perQueryHead("out", getOut().getType())) &&
                 succeeded(rows.check("out", getOut().getType(), 2,
                                      spec.getValueDim(), "value_dim")) &&
                 succeeded(rows.perQueryHead("lse", getLse().getType())) &&
                 succeeded(verifyResults(*this)));
}

LogicalResult DecodeOp::verify() {
  if (!isa<TopDeltaAttr, AllAttr>(getSelector()))
    return emitOpError("selector ")
           << getSelector()
           << " needs a pass over the whole row, expected #ffd.top_delta or "
              "#ffd.all (decode_c2)";
  RowShapes rows{getOperation(), "decode_c1"};
  SpecAttr spec = getCache().getType().getSpec();
  return success(succeeded(rows.query(getQuery().getType(), spec)) &&
                 succeeded(rows.check("delta", getDelta().getType(), 0,
                                      rows.batch, "batch")) &&
                 succeeded(rows.perQueryHead("out", getOut().getType())) &&
                 succeeded(rows.check("out", getOut().getType(), 2,
                                      spec.getValueDim(), "value_dim")) &&
                 succeeded(rows.perQueryHead("lse", getLse().getType())) &&
                 succeeded(rows.perKvHead("kept", getKept().getType())) &&
                 succeeded(verifyResults(*this)));
}

LogicalResult ExactOp::verify() {
  RowShapes rows{getOperation(), "exact_c1"};
  SpecAttr spec = getSpec();
  if (failed(rows.query(getQuery().getType(), spec)))
    return failure();
  Type element = cast<ShapedType>(getQuery().getType()).getElementType();
  return success(
      succeeded(checkElement(*this, "keys", getKeys().getType(), element,
                             "exact_c2")) &&
      succeeded(checkElement(*this, "values", getValues().getType(), element,
                             "exact_c2")) &&
      succeeded(rows.perKvHead("keys", getKeys().getType())) &&
      succeeded(rows.check("keys", getKeys().getType(), 3, spec.getHeadDim(),
                           "head_dim")) &&
      succeeded(rows.perKvHead("values", getValues().getType())) &&
      succeeded(rows.check("values", getValues().getType(), 3,
                           spec.getValueDim(), "value_dim")) &&
      succeeded(rows.check("lengths", getLengths().getType(), 0, rows.batch,
                           "batch")) &&
      succeeded(rows.perQueryHead("out", getOut().getType())) &&
      succeeded(rows.check("out", getOut().getType(), 2, spec.getValueDim(),
                           "value_dim")) &&
      succeeded(rows.perQueryHead("lse", getLse().getType())) &&
      succeeded(verifyResults(*this)));
}
