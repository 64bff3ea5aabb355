//===- FFDTileOps.cpp - Tile level verifiers ---------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Verifiers of the tile ops (L2).
//
//===----------------------------------------------------------------------===//

#include "Checks.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::ffd;

LogicalResult TileTeamsOp::verify() {
  Block &block = getRegion().front();
  if (block.getNumArguments() != 3 ||
      llvm::any_of(block.getArgumentTypes(),
                   [](Type t) { return !t.isIndex(); }))
    return emitOpError("block arguments are (")
           << block.getArgumentTypes()
           << "), expected (index, index, index): row, split, splits "
              "(teams_c1)";
  if (!getSpec().isComplete())
    return emitOpError("spec is ")
           << getSpec()
           << ", expected every size to be known; run --ffd-specialize "
              "(teams_c2)";
  return success();
}

LogicalResult TileTeamsOp::verifyRegions() {
  WalkResult result = getRegion().walk([&](Operation *op) -> WalkResult {
    auto check = [&](TypeRange types) -> LogicalResult {
      for (Type type : types)
        if (SpecAttr spec = ffd::getSpec(type))
          if (spec != getSpec())
            return op->emitOpError("has the spec ")
                   << spec << ", expected that of its teams, " << getSpec()
                   << " (teams_c3)";
      return success();
    };
    return success(succeeded(check(op->getOperandTypes())) &&
                   succeeded(check(op->getResultTypes())));
  });
  return failure(result.wasInterrupted());
}

/// Whether each operand of a domain is an index; otherwise it is a work list.
static SmallVector<bool> domainIsIndex(Domain domain) {
  switch (domain) {
  case Domain::candidates:
  case Domain::tail:
    return {true};
  case Domain::share:
  case Domain::tail_share:
    return {true, true, true};
  case Domain::commit:
    return {true, true, true, true};
  case Domain::worklist:
    return {false};
  }
  llvm_unreachable("unknown domain");
}

LogicalResult TileDistributeOp::verify() {
  SmallVector<bool> isIndex = domainIsIndex(getDomain());
  bool match = isIndex.size() == getOver().size();
  for (unsigned i = 0; match && i < isIndex.size(); ++i)
    match = isIndex[i] ? getOver()[i].getType().isIndex()
                       : isa<WorklistType>(getOver()[i].getType());
  if (!match)
    return emitOpError("domain ")
           << stringifyDomain(getDomain()) << " runs over ("
           << getOver().getTypes() << "), expected "
           << (!isIndex[0]           ? "a work list"
               : isIndex.size() == 1 ? "(index)"
               : isIndex.size() == 3 ? "(index, index, index)"
                                     : "(index, index, index, index)")
           << " (distribute_c1)";

  Block &block = getRegion().front();
  bool worklist = getDomain() == Domain::worklist;
  bool state = getCombiner() == Combiner::state;
  unsigned expected = 1 + worklist + state;
  if (block.getNumArguments() != expected ||
      !block.getArgument(0).getType().isIndex() ||
      (worklist && !isa<MaskType>(block.getArgument(1).getType())) ||
      (state && !isa<StateType>(block.getArguments().back().getType())))
    return emitOpError("block arguments are (")
           << block.getArgumentTypes() << "), expected an index"
           << (worklist ? ", a mask" : "") << (state ? ", a state" : "")
           << " (distribute_c1)";

  auto yield = dyn_cast<TileYieldOp>(block.getTerminator());
  if (!yield)
    return emitOpError("body ends in '")
           << block.getTerminator()->getName()
           << "', expected 'ffd.tile.yield' (distribute_c2)";
  if (bool(yield.getSkipped()) != bool(getSkipped()))
    return emitOpError("yields ")
           << (getSkipped() ? "no skipped mass, but has"
                            : "skipped mass, but does not have")
           << " it as a result, expected both or neither (distribute_c2)";
  if (getSkipped() && getCombiner() != Combiner::append)
    return emitOpError("combiner ")
           << stringifyCombiner(getCombiner())
           << " has skipped mass, expected it with append only "
              "(distribute_c2)";
  Type yielded = yield.getValue().getType();
  Type result = getResult().getType();
  Type init = getInit() ? getInit().getType() : Type();
  bool fits = false;
  switch (getCombiner()) {
  case Combiner::max:
    fits = isa<ScoresType>(yielded) && isa<RowMaxType>(result) &&
           (!init || init == result);
    break;
  case Combiner::append:
    fits = isa<MaskType>(yielded) && isa<WorklistType>(result) && !init;
    break;
  case Combiner::state:
    fits = isa<StateType>(yielded) && yielded == result && init == result;
    break;
  case Combiner::rank:
    fits = isa<ScoresType>(yielded) && isa<RankingType>(result) && !init;
    break;
  case Combiner::scales:
    fits = isa<ThumbnailType>(yielded) && isa<ScalesType>(result) && !init;
    break;
  }
  if (!fits) {
    InFlightDiagnostic diag = emitOpError("combiner ")
                              << stringifyCombiner(getCombiner()) << " yields "
                              << yielded << " and results in " << result;
    if (init)
      diag << " from init " << init;
    return diag << ", expected "
                << (getCombiner() == Combiner::max ? "scores and a row maximum"
                    : getCombiner() == Combiner::rank
                        ? "scores and a ranking, without init"
                    : getCombiner() == Combiner::append
                        ? "a mask and a work list, without init"
                    : getCombiner() == Combiner::scales
                        ? "a thumbnail and scales, without init"
                        : "a state, with a state as init")
                << " (distribute_c2)";
  }
  SmallVector<Type> types{yielded, result};
  if (getSkipped())
    types.append({yield.getSkipped().getType(), getSkipped().getType()});
  llvm::append_range(types, block.getArgumentTypes());
  if (!haveOneSpec(types, getOver().getTypes()))
    return emitOpError("mixes specs, expected all types to have one spec "
                       "(tile_c1)");
  return success();
}

LogicalResult TileScanOp::verify() {
  SpecAttr spec = getQuery().getType().getSpec();
  if (!getBody() || spec.hasResiduals())
    return success();
  return emitOpError("takes a body with residual_bits = 0, expected residuals "
                     "(scan_t1)");
}

void TileDistributeOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  if (getSkipped())
    setName(getSkipped(), "skipped");
}

TileSkippedOp TileDistributeOp::getSkippedOp() {
  if (!getSkipped())
    return {};
  auto yield = cast<TileYieldOp>(getBody()->getTerminator());
  return yield.getSkipped().getDefiningOp<TileSkippedOp>();
}

LogicalResult TileSkippedOp::verify() {
  if (!getQuery().getType().getSpec().scansKeys())
    return success();
  return emitOpError("has a spec with scan_bits = 16, expected 2, 4 or 8 "
                     "(skipped_c1)");
}

LogicalResult TileChooseOp::verify() {
  if (isa<TopKAttr, TopPAttr>(getSelector()))
    return success();
  return emitOpError("selector is ")
         << getSelector() << ", expected #ffd.top_k or #ffd.top_p (choose_c1)";
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

LogicalResult TileQueryOp::verify() {
  SpecAttr spec = getResult().getType().getSpec();
  Type memory = getMemory().getType();
  return success(
      succeeded(checkElement(*this, "memory", memory, spec.getElement(),
                             "tile_c2")) &&
      succeeded(checkSize(*this, "memory", memory, 2, spec.getHeadDim(),
                          "head_dim", "tile_c2")));
}

LogicalResult TileFinishOp::verify() {
  if (!getQuery() != !getCache())
    return emitOpError("has only one of 'query' and 'cache', expected both or "
                       "neither (finish_c1)");
  if (getCache() && !getCache().getType().getSpec().hasCentre())
    return emitOpError("has a centre with the spec ")
           << getCache().getType().getSpec()
           << ", expected one only with centre = row (finish_c1)";
  if (!getSkipped() != !getSkippedLse())
    return emitOpError("has only one of 'skipped' and 'skipped_lse', expected "
                       "both or neither (finish_c2)");
  if (getSkipped() && !getSkipped().getDefiningOp<TileDistributeOp>())
    return emitOpError("operand 'skipped' is not a result of "
                       "'ffd.tile.distribute', expected one (finish_c2)");
  return checkSize(*this, "out", getOut().getType(), 2,
                   getState().getType().getSpec().getValueDim(), "value_dim",
                   "tile_c2");
}

LogicalResult TileLoadTailOp::verify() {
  SpecAttr spec = getResult().getType().getSpec();
  Type keys = getKeys().getType(), values = getValues().getType();
  return success(
      succeeded(
          checkElement(*this, "keys", keys, spec.getElement(), "tile_c2")) &&
      succeeded(checkElement(*this, "values", values, spec.getElement(),
                             "tile_c2")) &&
      succeeded(checkSize(*this, "keys", keys, 3, spec.getHeadDim(), "head_dim",
                          "tile_c2")) &&
      succeeded(checkSize(*this, "values", values, 3, spec.getValueDim(),
                          "value_dim", "tile_c2")));
}

/// New tokens fit the spec.
static LogicalResult checkTokens(Operation *op, SpecAttr spec, Type keys,
                                 Type values) {
  return success(
      succeeded(checkElement(op, "keys", keys, spec.getElement(), "tile_c2")) &&
      succeeded(
          checkElement(op, "values", values, spec.getElement(), "tile_c2")) &&
      succeeded(checkSize(op, "keys", keys, 2, spec.getHeadDim(), "head_dim",
                          "tile_c2")) &&
      succeeded(checkSize(op, "values", values, 2, spec.getValueDim(),
                          "value_dim", "tile_c2")));
}

LogicalResult TileLoadTokensOp::verify() {
  return checkTokens(*this, getResult().getType().getSpec(),
                     getKeys().getType(), getValues().getType());
}

LogicalResult TileFinishAppendOp::verify() {
  return checkTokens(*this, getScales().getType().getSpec(),
                     getKeys().getType(), getValues().getType());
}
