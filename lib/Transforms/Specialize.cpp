//===- Specialize.cpp - Complete the specs of a program -- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// --ffd-specialize: sizes from the IR, from options, from defaults become the
// constants of the program.
//
//===----------------------------------------------------------------------===//

#include "ffd/Transforms/Passes.h"

#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/Builders.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::ffd {
#define GEN_PASS_DEF_FFDSPECIALIZE
#include "ffd/Transforms/Passes.h.inc"
} // namespace mlir::ffd

using namespace mlir;
using namespace mlir::ffd;

namespace {

/// The sizes of one spec while they are being collected; 0 is unknown.
class Sizes {
public:
  Sizes() = default;
  explicit Sizes(SpecAttr spec)
      : values{spec.getHeadDim(),  spec.getValueDim(),   spec.getGroup(),
               spec.getScanBits(), spec.getQuantBlock(), spec.getSelectBlock()},
        residualBits(spec.getResidualBits()),
        queryTokens(spec.getQueryTokens()), centre(spec.getCentre()),
        element(spec.getElement()) {}

  enum Field { headDim, valueDim, group, scanBits, quantBlock, selectBlock };
  static StringRef getName(Field field) {
    static const char *names[] = {"head_dim",  "value_dim",   "group",
                                  "scan_bits", "quant_block", "select_block"};
    return names[field];
  }

  /// Records a size; a different one that is already known is an error at `op`.
  LogicalResult set(Operation *op, StringRef source, Field field,
                    int64_t value) {
    if (value <= 0)
      return success();
    if (values[field] && values[field] != value)
      return op->emitError("'ffd.spec' has ")
             << getName(field) << " = " << values[field] << ", but " << source
             << " gives " << value << "; expected one value";
    values[field] = value;
    return success();
  }
  LogicalResult setElement(Operation *op, StringRef source, Type type) {
    if (!type)
      return success();
    if (element && element != type)
      return op->emitError("'ffd.spec' has element = ")
             << element << ", but " << source << " gives " << type
             << "; expected one type";
    element = type;
    return success();
  }
  void setDefault(Field field, int64_t value) {
    if (!values[field])
      values[field] = value;
  }
  int64_t get(Field field) const { return values[field]; }
  int64_t getQueryTokens() const { return queryTokens; }

  FailureOr<SpecAttr> getSpec(Operation *op) const {
    for (Field field : {headDim, group})
      if (!values[field])
        return op->emitError("'ffd.spec' has no ")
               << getName(field)
               << ", expected it from static shapes or from an option of "
                  "--ffd-specialize";
    if (!element)
      return op->emitError("'ffd.spec' has no element, expected it from "
                           "operand types or from an option of "
                           "--ffd-specialize");
    auto spec = SpecAttr::getChecked(
        [&] { return op->emitError(); }, op->getContext(), values[headDim],
        values[valueDim], values[group], element, values[scanBits],
        values[quantBlock], values[selectBlock], residualBits, queryTokens,
        centre);
    if (!spec)
      return failure();
    return spec;
  }

private:
  int64_t values[6] = {};
  int64_t residualBits = 8, queryTokens = 1;
  Centre centre = Centre::none;
  Type element;
};

struct SpecializePass : mlir::ffd::impl::FFDSpecializeBase<SpecializePass> {
  using FFDSpecializeBase::FFDSpecializeBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    llvm::MapVector<SpecAttr, std::pair<Sizes, Operation *>> specs;
    WalkResult walk = module.walk([&](Operation *op) -> WalkResult {
      SpecAttr spec = getSpecOf(op);
      if (!spec)
        return WalkResult::advance();
      auto [it, inserted] = specs.insert({spec, {Sizes(spec), op}});
      return collect(op, it->second.first);
    });
    if (walk.wasInterrupted())
      return signalPassFailure();

    AttrTypeReplacer replacer;
    DenseMap<SpecAttr, SpecAttr> completed;
    for (auto &[spec, entry] : specs) {
      auto &[sizes, op] = entry;
      if (failed(addOptions(op, sizes)))
        return signalPassFailure();
      FailureOr<SpecAttr> complete = sizes.getSpec(op);
      if (failed(complete))
        return signalPassFailure();
      completed[spec] = *complete;
    }
    replacer.addReplacement([&](SpecAttr spec) -> std::optional<Attribute> {
      auto it = completed.find(spec);
      if (it == completed.end())
        return std::nullopt;
      return it->second;
    });
    replacer.recursivelyReplaceElementsIn(module, /*replaceAttrs=*/true,
                                          /*replaceLocs=*/false,
                                          /*replaceTypes=*/true);
    module.walk([&](CacheViewOp view) { refinePlanes(view, module); });
  }

private:
  /// The spec that an L1 op is about.
  static SpecAttr getSpecOf(Operation *op) {
    if (auto exact = dyn_cast<ExactOp>(op))
      return exact.getSpec();
    if (auto view = dyn_cast<CacheViewOp>(op))
      return view.getCache().getType().getSpec();
    if (isa<PseudoMaxOp, ScanOp, SelectOp, AttendOp, DecodeOp>(op))
      for (Value operand : op->getOperands())
        if (auto cache = dyn_cast<CacheType>(operand.getType()))
          return cache.getSpec();
    return {};
  }

  /// Reads sizes off static shapes and element types.
  static LogicalResult collect(Operation *op, Sizes &sizes) {
    auto size = [&](Sizes::Field field, StringRef operand, Value value,
                    unsigned axis) {
      int64_t n = cast<ShapedType>(value.getType()).getDimSize(axis);
      return sizes.set(op, ("operand '" + operand + "'").str(), field,
                       ShapedType::isDynamic(n) ? 0 : n);
    };
    auto group = [&](Value perQueryHead, Value perKvHead) {
      int64_t hq = cast<ShapedType>(perQueryHead.getType()).getDimSize(1);
      int64_t hkv = cast<ShapedType>(perKvHead.getType()).getDimSize(1);
      int64_t shared = hkv * sizes.getQueryTokens();
      if (ShapedType::isDynamic(hq) || ShapedType::isDynamic(hkv) || !hkv ||
          hq % shared)
        return success();
      return sizes.set(op, "the number of heads", Sizes::group, hq / shared);
    };
    auto element = [&](StringRef operand, Value value) {
      return sizes.setElement(
          op, ("operand '" + operand + "'").str(),
          cast<ShapedType>(value.getType()).getElementType());
    };
    auto query = [&](Value value) {
      return success(succeeded(element("query", value)) &&
                     succeeded(size(Sizes::headDim, "query", value, 2)));
    };
    if (auto view = dyn_cast<CacheViewOp>(op))
      return success(
          succeeded(element("values", view.getValues())) &&
          succeeded(size(Sizes::headDim, "tail_k", view.getTailK(), 3)) &&
          succeeded(size(Sizes::valueDim, "tail_v", view.getTailV(), 3)));
    if (auto pseudoMax = dyn_cast<PseudoMaxOp>(op))
      return query(pseudoMax.getQuery());
    if (auto scan = dyn_cast<ScanOp>(op))
      return query(scan.getQuery());
    if (auto select = dyn_cast<SelectOp>(op))
      return group(select.getBest(), select.getMask());
    if (auto attend = dyn_cast<AttendOp>(op))
      return success(
          succeeded(query(attend.getQuery())) &&
          succeeded(group(attend.getQuery(), attend.getMask())) &&
          succeeded(size(Sizes::valueDim, "out", attend.getOut(), 2)));
    if (auto decode = dyn_cast<DecodeOp>(op))
      return success(
          succeeded(query(decode.getQuery())) &&
          succeeded(group(decode.getQuery(), decode.getKept())) &&
          succeeded(size(Sizes::valueDim, "out", decode.getOut(), 2)));
    auto exact = cast<ExactOp>(op);
    return success(
        succeeded(query(exact.getQuery())) &&
        succeeded(size(Sizes::headDim, "keys", exact.getKeys(), 3)) &&
        succeeded(size(Sizes::valueDim, "values", exact.getValues(), 3)) &&
        succeeded(group(exact.getQuery(), exact.getKeys())));
  }

  LogicalResult addOptions(Operation *op, Sizes &sizes) {
    Type type;
    if (element == "f16")
      type = Float16Type::get(&getContext());
    else if (element == "bf16")
      type = BFloat16Type::get(&getContext());
    else if (!element.empty())
      return op->emitError("option 'element' is '")
             << element << "', expected f16 or bf16";
    for (auto [field, name, value] :
         {std::tuple<Sizes::Field, StringRef, int64_t>{
              Sizes::headDim, "option 'head-dim'", headDim},
          {Sizes::valueDim, "option 'value-dim'", valueDim},
          {Sizes::group, "option 'group'", group},
          {Sizes::scanBits, "option 'scan-bits'", scanBits},
          {Sizes::quantBlock, "option 'quant-block'", quantBlock},
          {Sizes::selectBlock, "option 'select-block'", selectBlock}}) {
      if (value < 0)
        return op->emitError()
               << name << " is " << value << ", expected a positive number";
      if (failed(sizes.set(op, name, field, value)))
        return failure();
    }
    if (failed(sizes.setElement(op, "option 'element'", type)))
      return failure();
    sizes.setDefault(Sizes::valueDim, sizes.get(Sizes::headDim));
    sizes.setDefault(Sizes::scanBits, 2);
    sizes.setDefault(Sizes::quantBlock, 128);
    sizes.setDefault(Sizes::selectBlock, 16);
    return success();
  }

  /// Gives planes that are function arguments the innermost size that the
  /// layout prescribes. The types of a function that is called, and of an
  /// argument that something else uses, stay: their other ends are typed too.
  static void refinePlanes(CacheViewOp view, ModuleOp module) {
    SpecAttr spec = view.getCache().getType().getSpec();
    ::ffd::Layout layout = spec.getLayout();
    auto refine = [&](Value plane, int64_t size) {
      auto type = cast<MemRefType>(plane.getType());
      auto argument = dyn_cast<BlockArgument>(plane);
      if (!argument || !type.isDynamicDim(type.getRank() - 1) ||
          !type.getLayout().isIdentity())
        return;
      auto function =
          dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
      if (!function || !argument.getOwner()->isEntryBlock() ||
          !SymbolTable::symbolKnownUseEmpty(function, module) ||
          !llvm::all_of(argument.getUsers(),
                        [](Operation *user) { return isa<CacheViewOp>(user); }))
        return;
      SmallVector<int64_t> shape(type.getShape());
      shape.back() = size;
      argument.setType(MemRefType::Builder(type).setShape(shape));
      function.setType(
          function.cloneTypeWith(function.getFunctionBody().getArgumentTypes(),
                                 function.getResultTypes()));
    };
    refine(view.getThumbnails(), layout.thumbnailBytes());
    refine(view.getResiduals(), layout.residualBytes());
    refine(view.getValues(), layout.valueBytes() / 2);
    refine(view.getSmax(), layout.paddedHeadDim());
    refine(view.getTailK(), spec.getHeadDim());
    refine(view.getTailV(), spec.getValueDim());
    if (Value centre = view.getCentre())
      refine(centre, spec.getHeadDim());
  }
};

} // namespace
