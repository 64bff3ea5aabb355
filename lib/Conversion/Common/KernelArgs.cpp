//===- KernelArgs.cpp - The arguments of a kernel -------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Access to the argument struct, and the check that a tile program can be
// called through it.
//
//===----------------------------------------------------------------------===//

#include "ffd/Conversion/KernelArgs.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringMap.h"
#include <cstddef>

using namespace mlir;
using namespace mlir::ffd;

namespace {
enum class Kind { ptr, i64, i32, f32 };
struct Field {
  size_t offset;
  Kind kind;
};
} // namespace

static const Field fields[] = {
#define FFD_KERNEL_ARG(FIELD, KIND)                                            \
  {offsetof(ffdDecodeArgs, FIELD), Kind::KIND},
#include "ffd/Conversion/KernelArgs.def"
};
static const Field appendFields[] = {
#define FFD_APPEND_ARG(FIELD, KIND)                                            \
  {offsetof(ffdAppendArgs, FIELD), Kind::KIND},
#include "ffd/Conversion/AppendArgs.def"
};

static Value loadField(OpBuilder &builder, Location loc, Value args,
                       const Field &field) {
  Type ptr = LLVM::LLVMPointerType::get(builder.getContext());
  Type type;
  switch (field.kind) {
  case Kind::ptr:
    type = ptr;
    break;
  case Kind::i64:
    type = builder.getI64Type();
    break;
  case Kind::i32:
    type = builder.getI32Type();
    break;
  case Kind::f32:
    type = builder.getF32Type();
    break;
  }
  Value address = LLVM::GEPOp::create(
      builder, loc, ptr, builder.getI8Type(), args,
      ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(field.offset)});
  auto load = LLVM::LoadOp::create(builder, loc, type, address);
  load.setInvariant(true);
  return load;
}

Value mlir::ffd::loadKernelArg(OpBuilder &builder, Location loc, Value args,
                               KernelArg arg) {
  return loadField(builder, loc, args, fields[static_cast<unsigned>(arg)]);
}

Value mlir::ffd::loadKernelArg(OpBuilder &builder, Location loc, Value args,
                               AppendArg arg) {
  return loadField(builder, loc, args,
                   appendFields[static_cast<unsigned>(arg)]);
}

bool mlir::ffd::isAppend(TileTeamsOp teams) {
  return llvm::any_of(*teams.getBody(),
                      [](Operation &op) { return isa<TileAppendExtentOp>(op); });
}

/// The program must be all that the function does: no branch may decide whether
/// it runs, and no second program may share the function.
static LogicalResult checkPlace(TileTeamsOp teams,
                                FunctionOpInterface function) {
  if (teams->getParentOp() != function.getOperation())
    return teams.emitOpError("is not directly in function '")
           << function.getName() << "', expected nothing around it";
  if (!function.getFunctionBody().hasOneBlock())
    return function.emitOpError("has ")
           << function.getFunctionBody().getBlocks().size()
           << " blocks, expected one: a kernel is its tile program alone";
  WalkResult result = function.walk([&](TileTeamsOp other) -> WalkResult {
    if (other == teams)
      return success();
    return other.emitOpError("is the second in function '")
           << function.getName() << "', expected one per kernel";
  });
  return failure(result.wasInterrupted());
}

/// The lowerings deal the row's own blocks and tail tokens to the team's own
/// pieces, whatever a loop names: it must name those.
static LogicalResult checkDomain(TileDistributeOp loop, TileTeamsOp teams) {
  if (loop.getDomain() == Domain::worklist)
    return success();
  Value count = loop.getOver().front();
  if (loop.getDomain() == Domain::commit) {
    auto extent = count.getDefiningOp<TileAppendExtentOp>();
    if (extent && count == extent.getFirst() &&
        loop.getOver()[1] == extent.getEnd() &&
        loop.getOver()[2] == teams.getSplit() &&
        loop.getOver()[3] == teams.getSplits())
      return success();
    return loop.emitOpError("domain commit runs over other values than its "
                            "team's, expected 'first' and 'end' of "
                            "'ffd.tile.append_extent', and the split and the "
                            "number of splits of 'ffd.tile.teams'");
  }
  bool tail = loop.getDomain() == Domain::tail ||
              loop.getDomain() == Domain::tail_share;
  bool known;
  if (auto extent = count.getDefiningOp<TileExtentOp>())
    known = count == (tail ? extent.getTail() : extent.getBlocks());
  else
    known = tail && count.getDefiningOp<TileExactExtentOp>();
  if (!known)
    return loop.emitOpError("domain ")
           << stringifyDomain(loop.getDomain()) << " runs over a value that is "
           << "not the " << (tail ? "tail tokens" : "committed blocks")
           << " of 'ffd.tile.extent', expected that result";
  if (loop.getOver().size() == 3 && (loop.getOver()[1] != teams.getSplit() ||
                                     loop.getOver()[2] != teams.getSplits()))
    return loop.emitOpError("domain ")
           << stringifyDomain(loop.getDomain())
           << " has other pieces than its team, expected the split and the "
              "number of splits of 'ffd.tile.teams'";
  return success();
}

/// The lowerings know skipped mass as what a team's own loop adds up of the
/// scores and the mask that it yields, against the threshold that made the mask;
/// the one on GPUs takes all of them from there.
static LogicalResult checkSkipped(TileDistributeOp loop, TileTeamsOp teams) {
  Value mass = loop.getSkipped();
  if (!mass)
    return success();
  bool written = llvm::any_of(mass.getUsers(), [&](Operation *user) {
    auto finish = dyn_cast<TileFinishOp>(user);
    return finish && finish.getSkipped() == mass;
  });
  if (!written)
    return loop.emitOpError("has skipped mass that no 'ffd.tile.finish' "
                            "writes, expected one that does");
  TileSkippedOp skipped = loop.getSkippedOp();
  bool known = loop.getDomain() == Domain::share && skipped &&
               skipped->getParentOp() == loop.getOperation() &&
               skipped.getMask() == loop.getYielded();
  if (known) {
    Value mask = skipped.getMask();
    if (auto ends = mask.getDefiningOp<TileKeepEndsOp>())
      mask = ends.getMask();
    auto reach = mask.getDefiningOp<TileReachOp>();
    auto scan = skipped.getScores().getDefiningOp<TileScanOp>();
    known = reach && reach.getScores() == skipped.getScores() &&
            reach.getThreshold() == skipped.getThreshold() && scan &&
            !scan.getBody() && scan.getQuery() == skipped.getQuery() &&
            scan.getThumbnail() == skipped.getThumbnail() &&
            llvm::hasSingleElement(
                teams.getBody()->getOps<TileThresholdOp>());
  }
  if (known)
    return success();
  return loop.emitOpError(
      "has skipped mass that is not the one of an 'ffd.tile.skipped' of the "
      "query, scores, threshold and mask of a loop over the team's share, "
      "expected that");
}

LogicalResult mlir::ffd::checkKernelArguments(TileTeamsOp teams,
                                              bool ablations) {
  SpecAttr spec = teams.getSpec();
  if (!ablations && (spec.scansKeys() || !spec.hasResiduals()))
    return teams.emitOpError("has scan_bits = ")
           << spec.getScanBits()
           << " and residual_bits = " << spec.getResidualBits()
           << ", expected scan bits of 2, 4 or 8 and residuals: only the CPU "
              "lowering takes others";
  auto function = teams->getParentOfType<FunctionOpInterface>();
  if (!function)
    return teams.emitOpError("is in no function, expected the function that "
                             "becomes the kernel");
  if (failed(checkPlace(teams, function)))
    return failure();
  // The kernel reads the fields of a struct, whatever arguments its program
  // names: one field cannot stand for two of them.
  llvm::StringMap<Value> fieldArguments;
  auto check = [&](Operation *user, StringRef role, Value value,
                   StringRef field) -> LogicalResult {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getOwner() != &function.getFunctionBody().front())
      return user->emitOpError("operand '")
             << role << "' is not an argument of function '"
             << function.getName()
             << "', expected one: the kernel receives it from its caller";
    auto [known, isFirst] = fieldArguments.try_emplace(field, value);
    if (!isFirst && known->second != value)
      return user->emitOpError("operand '")
             << role << "' is a second argument for '" << field
             << "', expected one per kernel";
    return success();
  };
  CacheViewOp view;
  TileFinishOp finish;
  WalkResult result = teams.walk([&](Operation *op) -> WalkResult {
    for (Value operand : op->getOperands())
      if (auto other = operand.getDefiningOp<CacheViewOp>()) {
        if (view && view != other)
          return op->emitOpError(
              "uses a second cache, expected one per kernel");
        view = other;
      }
    if (auto loop = dyn_cast<TileDistributeOp>(op))
      return success(succeeded(checkDomain(loop, teams)) &&
                     succeeded(checkSkipped(loop, teams)));
    if (auto skipped = dyn_cast<TileSkippedOp>(op)) {
      auto loop = dyn_cast<TileDistributeOp>(skipped->getParentOp());
      if (!loop || loop.getSkippedOp() != skipped)
        return skipped.emitOpError("is not what its loop yields, expected one "
                                   "per loop, and that yielded");
      return success();
    }
    if (auto query = dyn_cast<TileQueryOp>(op))
      return success(
          succeeded(check(op, "memory", query.getMemory(), "q")) &&
          succeeded(check(op, "sm_scale", query.getSmScale(), "sm_scale")));
    if (auto threshold = dyn_cast<TileThresholdOp>(op))
      return check(op, "delta", threshold.getDelta(), "delta");
    if (auto found = dyn_cast<TileFinishOp>(op)) {
      finish = found;
      if (finish.getSkippedLse() &&
          failed(
              check(op, "skipped_lse", finish.getSkippedLse(), "skipped_lse")))
        return failure();
      return success(succeeded(check(op, "out", finish.getOut(), "out")) &&
                     succeeded(check(op, "lse", finish.getLse(), "lse")));
    }
    if (auto kept = dyn_cast<TileStoreKeptOp>(op))
      return check(op, "kept", kept.getKept(), "kept");
    if (auto choose = dyn_cast<TileChooseOp>(op))
      return check(op, "kept", choose.getKept(), "kept");
    if (auto kept = dyn_cast<TileLoadKeptOp>(op))
      return check(op, "kept", kept.getKept(), "kept");
    if (auto tail = dyn_cast<TileLoadTailOp>(op))
      return success(
          succeeded(check(op, "keys", tail.getKeys(), "tail_k")) &&
          succeeded(check(op, "values", tail.getValues(), "tail_v")));
    if (auto extent = dyn_cast<TileExactExtentOp>(op))
      return check(op, "lengths", extent.getLengths(), "lengths");
    if (auto extent = dyn_cast<TileAppendExtentOp>(op))
      return success(
          succeeded(check(op, "offsets", extent.getOffsets(), "offsets")) &&
          succeeded(check(op, "reserved", extent.getReserved(), "reserved")) &&
          succeeded(check(op, "errors", extent.getErrors(), "errors")));
    if (auto load = dyn_cast<TileLoadTokensOp>(op))
      return success(
          succeeded(check(op, "keys", load.getKeys(), "k")) &&
          succeeded(check(op, "values", load.getValues(), "v")) &&
          succeeded(check(op, "offsets", load.getOffsets(), "offsets")));
    if (auto finish = dyn_cast<TileFinishAppendOp>(op))
      return success(
          succeeded(check(op, "keys", finish.getKeys(), "k")) &&
          succeeded(check(op, "values", finish.getValues(), "v")) &&
          succeeded(check(op, "offsets", finish.getOffsets(), "offsets")) &&
          succeeded(check(op, "new_lengths", finish.getNewLengths(),
                          "new_lengths")));
    return success();
  });
  if (result.wasInterrupted())
    return failure();
  if (!view)
    return success();
  if (finish && spec.hasCentre() && !finish.getCache())
    return finish.emitOpError("has no centre with the spec ")
           << spec << ", expected the one of its cache (centre_c4)";
  if (Value centre = view.getCentre())
    if (failed(check(view, "centre", centre, "centre")))
      return failure();
  for (auto [role, value] :
       {std::pair<StringRef, Value>{"thumbnails", view.getThumbnails()},
        {"residuals", view.getResiduals()},
        {"values", view.getValues()},
        {"smax", view.getSmax()},
        {"tail_k", view.getTailK()},
        {"tail_v", view.getTailV()},
        {"page_table", view.getPageTable()},
        {"lengths", view.getLengths()},
        {"lag", view.getLag()}})
    if (failed(check(view, role, value, role)))
      return failure();
  return success();
}
