//===- TileBuilder.cpp - Write tile programs ------------ -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The phases of a decode as tile programs.
//
//===----------------------------------------------------------------------===//

#include "TileBuilder.h"

using namespace mlir;
using namespace mlir::ffd;

TileProgram::TileProgram(OpBuilder &builder, Location loc, SpecAttr spec)
    : b(loc, builder), spec(spec) {}

TileTeamsOp TileProgram::begin() {
  auto teams = TileTeamsOp::create(b, spec, ScheduleAttr());
  Type index = b.getIndexType();
  Block *block = b.createBlock(&teams.getRegion(), {}, {index, index, index},
                               SmallVector<Location>(3, b.getLoc()));
  row = block->getArgument(0);
  split = block->getArgument(1);
  splits = block->getArgument(2);
  return teams;
}

void TileProgram::extent(Value cache) {
  Type index = b.getIndexType();
  auto op = TileExtentOp::create(b, index, index, cache, row);
  blocks = op.getBlocks();
  tail = op.getTail();
}

void TileProgram::exactExtent(Value lengths) {
  tail = TileExactExtentOp::create(b, b.getIndexType(), lengths, row);
}

void TileProgram::loadQuery(Value memory, Value smScale, Value cache) {
  query =
      TileQueryOp::create(b, type<QueryType>(), memory, row, smScale, cache);
}

Value TileProgram::distribute(Domain domain, ValueRange over, Combiner combiner,
                              Value init, Type result, TypeRange extraArguments,
                              function_ref<Value(ValueRange)> body,
                              Type skippedType) {
  auto op = TileDistributeOp::create(b, result, skippedType, domain, over,
                                     combiner, init);
  SmallVector<Type> arguments{b.getIndexType()};
  llvm::append_range(arguments, extraArguments);
  OpBuilder::InsertionGuard guard(b);
  Block *block =
      b.createBlock(&op.getRegion(), {}, arguments,
                    SmallVector<Location>(arguments.size(), b.getLoc()));
  Value value = body(block->getArguments());
  TileYieldOp::create(b, value, skippedType ? skipped : Value());
  if (skippedType)
    skipped = op.getSkipped();
  return op.getResult();
}

Value TileProgram::pseudoMax(Value cache, bool refined) {
  auto view = cache.getDefiningOp<CacheViewOp>();
  Value fromBlocks = distribute(
      Domain::candidates, blocks, Combiner::max, {}, type<RowMaxType>(), {},
      [&](ValueRange arguments) -> Value {
        Value codes = TileLoadThumbnailOp::create(b, type<ThumbnailType>(),
                                                  cache, row, arguments[0]);
        Value body;
        if (refined) {
          Value whole = TileFullOp::create(b, type<MaskType>());
          body = TileLoadBodyOp::create(b, type<BodyType>(), cache, row,
                                        arguments[0], whole);
        }
        return TileScanOp::create(b, type<ScoresType>(), query, codes, body);
      });
  return distribute(
      Domain::tail, tail, Combiner::max, fromBlocks, type<RowMaxType>(), {},
      [&](ValueRange arguments) -> Value {
        Value tile =
            TileLoadTailOp::create(b, type<TailType>(), view.getTailK(),
                                   view.getTailV(), row, arguments[0], tail);
        Value logits = TileDotOp::create(b, type<LogitsType>(), query, tile,
                                         /*ordered=*/true);
        return TileToUnitsOp::create(b, type<ScoresType>(), query, logits);
      });
}

Value TileProgram::threshold(Value rowMax, Value delta) {
  return TileThresholdOp::create(b, type<ThresholdType>(), query, rowMax, delta,
                                 row);
}

Value TileProgram::select(Value cache, Value threshold, Value kept,
                          bool keepEnds, Certificate certificate) {
  const bool certified = certificate != Certificate::none;
  return distribute(
      Domain::share, {blocks, split, splits}, Combiner::append, {},
      type<WorklistType>(), {},
      [&](ValueRange arguments) -> Value {
        Value mask, codes, scores;
        if (threshold) {
          codes = TileLoadThumbnailOp::create(b, type<ThumbnailType>(), cache,
                                              row, arguments[0]);
          scores =
              TileScanOp::create(b, type<ScoresType>(), query, codes, Value());
          mask = TileReachOp::create(b, type<MaskType>(), scores, threshold);
        } else {
          mask = TileFullOp::create(b, type<MaskType>());
        }
        if (keepEnds)
          mask = TileKeepEndsOp::create(b, type<MaskType>(), mask, arguments[0],
                                        blocks);
        if (certified)
          skipped = TileSkippedOp::create(
              b, type<SkippedType>(), query, codes, scores, threshold, mask,
              /*noise=*/certificate == Certificate::noise);
        if (kept)
          TileStoreKeptOp::create(b, mask, kept, row, arguments[0]);
        return mask;
      },
      certified ? type<SkippedType>() : Type());
}

Value TileProgram::rank(Value cache) {
  return distribute(
      Domain::share, {blocks, split, splits}, Combiner::rank, {},
      type<RankingType>(), {}, [&](ValueRange arguments) -> Value {
        Value codes = TileLoadThumbnailOp::create(b, type<ThumbnailType>(),
                                                  cache, row, arguments[0]);
        return TileScanOp::create(b, type<ScoresType>(), query, codes, Value());
      });
}

void TileProgram::choose(Attribute selector, Value ranking, Value kept) {
  TileChooseOp::create(b, selector, query, ranking, kept, row);
}

Value TileProgram::loadSelection(Value kept) {
  return distribute(Domain::share, {blocks, split, splits}, Combiner::append,
                    {}, type<WorklistType>(), {},
                    [&](ValueRange arguments) -> Value {
                      return TileLoadKeptOp::create(b, type<MaskType>(), kept,
                                                    row, arguments[0]);
                    });
}

Value TileProgram::init() {
  return TileInitOp::create(b, type<StateType>(), query);
}

Value TileProgram::attend(Value cache, Value worklist) {
  auto view = cache.getDefiningOp<CacheViewOp>();
  Value state = distribute(
      Domain::worklist, worklist, Combiner::state, init(),
      type<StateType>(), {type<MaskType>(), type<StateType>()},
      [&](ValueRange arguments) -> Value {
        Value codes = TileLoadThumbnailOp::create(b, type<ThumbnailType>(),
                                                  cache, row, arguments[0]);
        Value body = TileLoadBodyOp::create(b, type<BodyType>(), cache, row,
                                            arguments[0], arguments[1]);
        Value logits =
            TileRefineOp::create(b, type<LogitsType>(), query, codes, body);
        return TileAccumulateOp::create(b, type<StateType>(), arguments[2],
                                        logits, body);
      });
  return attendTail(view.getTailK(), view.getTailV(), state);
}

Value TileProgram::attendTail(Value keys, Value values, Value state) {
  return distribute(
      Domain::tail_share, {tail, split, splits}, Combiner::state, state,
      type<StateType>(), {type<StateType>()},
      [&](ValueRange arguments) -> Value {
        Value tile = TileLoadTailOp::create(b, type<TailType>(), keys, values,
                                            row, arguments[0], tail);
        Value logits = TileDotOp::create(b, type<LogitsType>(), query, tile,
                                         /*ordered=*/false);
        return TileAccumulateOp::create(b, type<StateType>(), arguments[1],
                                        logits, tile);
      });
}

void TileProgram::finish(Value state, Value out, Value lse, Value cache,
                         Value skippedLse) {
  const bool centred = cache && spec.hasCentre();
  TileFinishOp::create(b, state, out, lse, row, split, splits,
                       centred ? query : Value(), centred ? cache : Value(),
                       skippedLse ? skipped : Value(), skippedLse);
}

void TileProgram::append(AppendOp op) {
  Type index = b.getIndexType();
  Value cache = op.getCache(), keys = op.getKeys(), values = op.getValues(),
        offsets = op.getOffsets();
  auto extent =
      TileAppendExtentOp::create(b, index, index, index, cache, row, offsets,
                                 op.getReserved(), op.getErrors());
  Value scales = distribute(
      Domain::commit, {extent.getFirst(), extent.getEnd(), split, splits},
      Combiner::scales, {}, type<ScalesType>(), {},
      [&](ValueRange arguments) -> Value {
        Value block = arguments[0];
        Value tokens = TileLoadTokensOp::create(
            b, type<TokensType>(), cache, row, block, keys, values, offsets);
        auto parts = TileSplitOp::create(b, type<ThumbnailType>(),
                                         type<BodyType>(), tokens);
        TileStoreBlockOp::create(b, parts.getThumbnail(), parts.getBody(),
                                 cache, row, block);
        return parts.getThumbnail();
      });
  TileFinishAppendOp::create(b, scales, cache, row, extent.getFirst(),
                             extent.getEnd(), extent.getCount(), keys, values,
                             offsets, op.getNewLengths(), split, splits);
}
