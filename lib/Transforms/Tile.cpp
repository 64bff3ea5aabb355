//===- Tile.cpp - Row ops to tile programs --------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// --ffd-tile: every kernel-sized group of row ops becomes a function with one
// `ffd.tile.teams`.
//
//===----------------------------------------------------------------------===//

#include "TileBuilder.h"
#include "ffd/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/SymbolTable.h"

namespace mlir::ffd {
#define GEN_PASS_DEF_FFDTILE
#include "ffd/Transforms/Passes.h.inc"
} // namespace mlir::ffd

using namespace mlir;
using namespace mlir::ffd;

/// The op that wrote the whole of `buffer` before `reader`: the last one in the
/// block that has it as an init.
template <typename Op>
static Op findWriter(Value buffer, Operation *reader) {
  Op writer;
  for (Operation *user : buffer.getUsers()) {
    auto candidate = dyn_cast<Op>(user);
    if (!candidate || candidate->getBlock() != reader->getBlock() ||
        !candidate->isBeforeInBlock(reader))
      continue;
    if (!writer || writer->isBeforeInBlock(candidate))
      writer = candidate;
  }
  return writer;
}

/// What every root needs: sizes, memory, and a place in the function's body.
static LogicalResult checkReady(Operation *op, SpecAttr spec) {
  if (!spec.isComplete())
    return op->emitOpError("has the incomplete spec ")
           << spec << ", expected --ffd-specialize to have run";
  for (Value operand : op->getOperands()) {
    if (isa<TensorType>(operand.getType()))
      return op->emitOpError("has tensor operands, expected memrefs; bufferise "
                             "first");
    if (isa<CacheType>(operand.getType()) &&
        !operand.getDefiningOp<CacheViewOp>())
      return op->emitOpError("operand 'cache' is not the result of "
                             "'ffd.cache.view', expected one");
  }
  if (!isa<func::FuncOp>(op->getParentOp()))
    return op->emitOpError("is nested in '")
           << op->getParentOp()->getName()
           << "', expected it in the body of a function";
  return success();
}

/// Scores and pseudo-max stay in registers, so nothing but the selection may
/// read the buffers that an unfused program has for them.
static LogicalResult checkScoresStayLocal(func::FuncOp function) {
  WalkResult result = function.walk([](Operation *op) -> WalkResult {
    if (!isa<ScanOp, PseudoMaxOp>(op))
      return success();
    for (Value buffer : cast<DestinationStyleOpInterface>(op).getDpsInits())
      if (!buffer.getDefiningOp<memref::AllocOp>() ||
          !llvm::all_of(buffer.getUsers(), [&](Operation *user) {
            return user == op || isa<SelectOp, memref::DeallocOp>(user);
          }))
        return op->emitOpError("writes memory that others see, expected a "
                               "'memref.alloc' that only 'ffd.select' reads: "
                               "a kernel keeps scores in registers");
    return success();
  });
  return failure(result.wasInterrupted());
}

static LogicalResult tileDecode(DecodeOp op) {
  OpBuilder builder(op);
  SpecAttr spec = op.getCache().getType().getSpec();
  TileProgram program(builder, op.getLoc(), spec);
  program.begin();
  program.extent(op.getCache());
  program.loadQuery(op.getQuery(), op.getSmScale(), op.getCache());
  Value threshold;
  if (isa<TopDeltaAttr>(op.getSelector())) {
    Value rowMax =
        program.pseudoMax(op.getCache(), isRefined(op.getSelector()));
    threshold = program.threshold(rowMax, op.getDelta());
  }
  Value worklist = program.select(op.getCache(), threshold, op.getKept(),
                                  isRefined(op.getSelector()),
                                  getCertificate(op.getSelector()));
  program.finish(program.attend(op.getCache(), worklist), op.getOut(),
                 op.getLse(), op.getCache(), op.getSkippedLse());
  op.erase();
  return success();
}

static LogicalResult tileExact(ExactOp op) {
  OpBuilder builder(op);
  TileProgram program(builder, op.getLoc(), op.getSpec());
  program.begin();
  program.exactExtent(op.getLengths());
  program.loadQuery(op.getQuery(), op.getSmScale());
  program.finish(
      program.attendTail(op.getKeys(), op.getValues(), program.init()),
      op.getOut(), op.getLse());
  op.erase();
  return success();
}

static LogicalResult tileAppend(AppendOp op) {
  OpBuilder builder(op);
  TileProgram program(builder, op.getLoc(), op.getCache().getType().getSpec());
  program.begin();
  program.append(op);
  op.erase();
  return success();
}

static LogicalResult tileAttend(AttendOp op) {
  OpBuilder builder(op);
  TileProgram program(builder, op.getLoc(), op.getCache().getType().getSpec());
  program.begin();
  program.extent(op.getCache());
  program.loadQuery(op.getQuery(), op.getSmScale(), op.getCache());
  Value worklist = program.loadSelection(op.getMask());
  program.finish(program.attend(op.getCache(), worklist), op.getOut(),
                 op.getLse(), op.getCache());
  op.erase();
  return success();
}

/// The scan and the pseudo-max whose results a selection reads: one kernel
/// computes all three.
static LogicalResult findSteps(SelectOp op, ScanOp &scan,
                               PseudoMaxOp &pseudoMax) {
  scan = findWriter<ScanOp>(op.getBest(), op);
  if (!scan)
    return op.emitOpError("operand 'best' is not written by an 'ffd.scan' "
                          "before it in its block, expected one");
  pseudoMax = findWriter<PseudoMaxOp>(op.getRowMax(), op);
  if (!pseudoMax || pseudoMax.getUnit() != op.getUnit())
    return op.emitOpError("operands 'row_max' and 'unit' are not written by "
                          "one 'ffd.pseudo_max' before it in its block, "
                          "expected one");
  if (scan.getCache() != op.getCache() ||
      pseudoMax.getCache() != op.getCache() ||
      scan.getQuery() != pseudoMax.getQuery())
    return op.emitOpError("and its 'ffd.scan' and 'ffd.pseudo_max' differ in "
                          "query or cache, expected the same");
  if (isa<TopDeltaAttr>(op.getSelector()) &&
      pseudoMax.getRefined() != isRefined(op.getSelector()))
    return op.emitOpError("has the selector ")
           << op.getSelector() << " with the row_max of an 'ffd.pseudo_max' "
           << (pseudoMax.getRefined() ? "that is" : "that is not")
           << " refined, expected one kind of pseudo-max";
  return success();
}

/// One kernel of pseudo_max, scan and select: scores stay in registers, the
/// mask is what it writes.
static LogicalResult tileSelect(SelectOp op) {
  ScanOp scan;
  PseudoMaxOp pseudoMax;
  const bool all = isa<AllAttr>(op.getSelector());
  if (!all && failed(findSteps(op, scan, pseudoMax)))
    return failure();

  OpBuilder builder(op);
  TileProgram program(builder, op.getLoc(), op.getCache().getType().getSpec());
  program.begin();
  program.extent(op.getCache());
  if (!all)
    program.loadQuery(scan.getQuery(), pseudoMax.getSmScale(), op.getCache());
  if (isa<TopKAttr, TopPAttr>(op.getSelector())) {
    program.choose(op.getSelector(), program.rank(op.getCache()), op.getMask());
  } else {
    const bool refined = isRefined(op.getSelector());
    Value threshold;
    if (!all)
      threshold = program.threshold(program.pseudoMax(op.getCache(), refined),
                                    op.getDelta());
    program.select(op.getCache(), threshold, op.getMask(), refined);
  }
  op.erase();
  return success();
}

namespace {
struct TilePass : mlir::ffd::impl::FFDTileBase<TilePass> {
  void runOnOperation() override {
    SmallVector<func::FuncOp> functions(getOperation().getOps<func::FuncOp>());
    SymbolTable symbols(getOperation());
    for (func::FuncOp function : functions)
      if (failed(tileFunction(function, symbols)))
        return signalPassFailure();
  }

private:
  static bool isRoot(Operation *op) {
    return isa<DecodeOp, ExactOp, AttendOp, SelectOp, AppendOp>(op);
  }
  static SmallVector<Operation *> getRoots(func::FuncOp function) {
    SmallVector<Operation *> roots;
    function.walk([&](Operation *op) {
      if (isRoot(op))
        roots.push_back(op);
    });
    return roots;
  }

  static LogicalResult tileRoot(Operation *root) {
    if (auto decode = dyn_cast<DecodeOp>(root))
      return tileDecode(decode);
    if (auto exact = dyn_cast<ExactOp>(root))
      return tileExact(exact);
    if (auto attend = dyn_cast<AttendOp>(root))
      return tileAttend(attend);
    if (auto append = dyn_cast<AppendOp>(root))
      return tileAppend(append);
    return tileSelect(cast<SelectOp>(root));
  }

  /// A kernel writes its results into arguments: bufferised functions return
  /// those arguments again, which is dropped.
  static LogicalResult dropReturnedArguments(func::FuncOp function) {
    auto isArgument = [&](Value value) {
      auto argument = dyn_cast<BlockArgument>(value);
      return argument && argument.getOwner() == &function.front();
    };
    auto terminator = cast<func::ReturnOp>(function.front().getTerminator());
    for (Value value : terminator.getOperands())
      if (!isArgument(value))
        return function.emitError("function '")
               << function.getName() << "' returns a value of type "
               << value.getType()
               << " that is not one of its arguments, expected results to be "
                  "written into arguments";
    terminator->setOperands(ValueRange());
    function.setFunctionType(FunctionType::get(
        function.getContext(), function.getArgumentTypes(), {}));
    function.removeResAttrsAttr();
    return success();
  }

  /// Removes row ops that other kernels compute, and buffers that only they
  /// used.
  static void removeLeftovers(func::FuncOp function) {
    SmallVector<Operation *> dead;
    function.walk([&](Operation *op) {
      if (isRoot(op) || isa<ScanOp, PseudoMaxOp>(op))
        dead.push_back(op);
    });
    for (Operation *op : dead)
      op->erase();
    dead.clear();
    function.walk([&](memref::AllocOp alloc) {
      if (llvm::all_of(alloc->getUsers(), [](Operation *user) {
            return isa<memref::DeallocOp>(user);
          }))
        dead.push_back(alloc);
    });
    for (Operation *alloc : dead) {
      for (Operation *user : llvm::make_early_inc_range(alloc->getUsers()))
        user->erase();
      alloc->erase();
    }
  }

  /// Several kernels share nothing but memory that the caller gave: what one
  /// reads from another is an argument, and no other op writes memory.
  static LogicalResult checkSeparable(func::FuncOp function) {
    WalkResult result = function.walk([](Operation *op) -> WalkResult {
      if (auto attend = dyn_cast<AttendOp>(op))
        if (attend.getMask().getDefiningOp<memref::AllocOp>())
          return attend.emitOpError(
              "operand 'mask' is a local buffer, expected an argument of the "
              "function: another kernel writes it");
      if (isa<PseudoMaxOp, ScanOp, memref::DeallocOp>(op) || isRoot(op) ||
          op->hasTrait<OpTrait::HasRecursiveMemoryEffects>())
        return success();
      auto interface = dyn_cast<MemoryEffectOpInterface>(op);
      if (interface ? interface.hasEffect<MemoryEffects::Write>()
                    : !isMemoryEffectFree(op) && !isa<func::FuncOp>(op))
        return op->emitOpError("writes memory in a function that becomes "
                               "several kernels, expected row ops only");
      return success();
    });
    return failure(result.wasInterrupted());
  }

  static LogicalResult tileFunction(func::FuncOp function,
                                    SymbolTable &symbols) {
    SmallVector<Operation *> roots = getRoots(function);
    if (roots.empty())
      return success();
    if (!function.getBody().hasOneBlock())
      return function.emitError("function '")
             << function.getName() << "' has "
             << function.getBody().getBlocks().size()
             << " blocks, expected one";
    for (Operation *root : roots) {
      SpecAttr spec;
      if (auto exact = dyn_cast<ExactOp>(root))
        spec = exact.getSpec();
      for (Value operand : root->getOperands())
        if (auto cache = dyn_cast<CacheType>(operand.getType()))
          spec = cache.getSpec();
      if (failed(checkReady(root, spec)))
        return failure();
    }
    if (failed(checkScoresStayLocal(function)) ||
        (roots.size() > 1 && failed(checkSeparable(function))))
      return failure();
    if (failed(dropReturnedArguments(function)))
      return failure();
    if (roots.size() == 1) {
      if (failed(tileRoot(roots.front())))
        return failure();
      removeLeftovers(function);
      return success();
    }
    // Several kernels: a function for each, with the arguments of the original.
    for (unsigned i = 0; i < roots.size(); ++i) {
      func::FuncOp kernel = function.clone();
      StringRef step = roots[i]->getName().stripDialect();
      kernel.setName((function.getName() + "_" + step).str());
      symbols.insert(kernel, Block::iterator(function));
      if (failed(tileRoot(getRoots(kernel)[i])))
        return failure();
      removeLeftovers(kernel);
    }
    symbols.erase(function);
    return success();
  }
};
} // namespace
