//===- Append.cpp - Appends on a GPU ----------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Blocks are dealt to the pieces of a row; only the piece that arrives last
// touches what all of them read or share: smax and tail. What does not depend
// on the order (a maximum, disjoint stores) needs no more, so a launch has one
// result.
//
//===----------------------------------------------------------------------===//

#include "Append.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ffd;

AppendPlan::AppendPlan(SpecAttr spec) : spec(spec), layout(spec.getLayout()) {
  channels = layout.paddedHeadDim();
  warps = layout.tilesPerBlock();
  threads = 32 * warps;
  // Keys of a tile take a register per four channels of a lane.
  ctas = channels <= 128 ? 2 : 1;
  maxima = 0;
  factors = maxima + warps * channels * 4;
  flags = factors + channels * 4;
  flag = flags + warps * 4;
  centre = flag + 16;
  sharedBytes = centre + (spec.hasCentre() ? 2 * layout.headDim : 0);
}

Value AppendEmitter::arg(AppendArg which) {
  Value &value = args[static_cast<int>(which)];
  if (!value) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfter(entry);
    value = loadKernelArg(b, b.getLoc(), function.getArgument(0), which);
    if (isa<LLVM::LLVMPointerType>(value.getType()))
      value = LLVM::AddrSpaceCastOp::create(b, b.pointer(1), value);
  }
  return value;
}

/// The slot's entry of an array that no one writes meanwhile.
Value AppendEmitter::perSlot(AppendArg which) {
  return b.loadConstant(b.i32(), b.at(arg(which), scaled(slot, 4)), 4);
}

/// Whether the caller gave an array that may be absent.
Value AppendEmitter::isGiven(AppendArg which) {
  return b.ne(LLVM::PtrToIntOp::create(b, b.i64(), arg(which)), 0);
}

/// Where the sequence is. What is no slot reads slot 0 and changes nothing.
void AppendEmitter::findSlot() {
  SmallVector<Value> found = b.ifElse(
      isGiven(AppendArg::slots), {b.i32(), b.i1()},
      [&]() -> SmallVector<Value> {
        Value listed = b.loadConstant(
            b.i32(), b.at(arg(AppendArg::slots), scaled(sequence, 4)), 4);
        Value exists = b.cmp(arith::CmpIPredicate::ult, listed,
                             arg(AppendArg::slot_count));
        return {b.select(exists, listed, b.c32(0)), exists};
      },
      [&]() -> SmallVector<Value> { return {sequence, b.cbool(true)}; });
  slot = found[0];
  hasSlot = found[1];
}

LogicalResult AppendEmitter::emit() {
  thread = GPUIdOp::create(b, b.i32(), LaneId::thread);
  entry = thread.getDefiningOp();
  warp = GPUIdOp::create(b, b.i32(), LaneId::warp);
  lane = GPUIdOp::create(b, b.i32(), LaneId::lane);
  g = b.shr(lane, 2);
  tq = b.band(lane, 3);
  Value block = GPUIdOp::create(b, b.i32(), LaneId::block);
  splits = arg(AppendArg::splits);
  row = b.udiv(block, splits);
  split = b.sub(block, b.mul(row, splits));
  Value heads = arg(AppendArg::kv_heads);
  sequence = b.udiv(row, heads);
  head = b.sub(row, b.mul(sequence, heads));
  findSlot();
  for (Operation &op : *teams.getBody())
    if (failed(emitOp(&op)))
      return failure();
  return success();
}

LogicalResult AppendEmitter::emitOp(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](TileAppendExtentOp op) { return emitExtent(op); })
      .Case([&](TileFinishAppendOp op) { return emitFinish(op); })
      .Case([&](TileDistributeOp loop) -> LogicalResult {
        if (loop.getDomain() == Domain::commit)
          return emitCommit(loop);
        return loop.emitOpError("over '")
               << stringifyDomain(loop.getDomain())
               << "' has no lowering to the GPU level in an append";
      })
      .Default([](Operation *op) {
        return op->emitOpError("has no lowering to the GPU level in an append, "
                               "expected the ops that --ffd-tile makes");
      });
}

//===----------------------------------------------------------------------===//
// What an append does
//===----------------------------------------------------------------------===//

/// Whether a page id of a block that is to be committed is no page, in all
/// threads.
Value AppendEmitter::checkPages() {
  Value table =
      b.at(arg(AppendArg::page_table),
           b.shl(b.mul(b.zext64(slot), arg(AppendArg::page_stride)), 2));
  Value bad =
      b.loop(b.add(first, thread), end, b.c32(plan.threads), {b.cbool(false)},
             [&](Value block, ValueRange sofar) -> SmallVector<Value> {
               Value page =
                   b.loadConstant(b.i32(), b.at(table, scaled(block, 4)), 4);
               // Unsigned: also those below 0.
               Value outside = b.cmp(arith::CmpIPredicate::uge, page,
                                     arg(AppendArg::pages));
               return {b.bor(sofar[0], outside)};
             })
          .front();
  Value any = GPUAnyOp::create(b, b.i1(), bad);
  b.ifThen(b.eq(lane, 0),
           [&] { b.store(b.zext32(any), sharedAt(plan.flags, warp, 4), 4); });
  GPUTeamBarrierOp::create(b);
  Value found = b.c32(0);
  for (int64_t w = 0; w < plan.warps; ++w)
    found = b.bor(found, b.load(b.i32(), shared(plan.flags + 4 * w), 4));
  return found;
}

LogicalResult AppendEmitter::emitExtent(TileAppendExtentOp op) {
  // The last team may write it.
  length =
      b.ifElse(
           hasSlot, b.i32(),
           [&]() -> SmallVector<Value> {
             return {b.load(b.i32(),
                            b.at(arg(AppendArg::lengths), scaled(slot, 4)), 4)};
           },
           [&]() -> SmallVector<Value> { return {b.c32(0)}; })
          .front();
  Value from = b.at(arg(AppendArg::offsets), scaled(sequence, 4));
  begin = b.loadConstant(b.i32(), from, 4);
  Value wanted = b.sub(b.loadConstant(b.i32(), b.at(from, 4), 4), begin);
  wanted = b.select(hasSlot, wanted, b.c32(0));
  Value sum = b.add(length, wanted);
  int64_t shift = llvm::Log2_64(layout.quantBlock);
  Value least = b.ifElse(
                     isGiven(AppendArg::committed), b.i32(),
                     [&]() -> SmallVector<Value> {
                       return {perSlot(AppendArg::committed)};
                     },
                     [&]() -> SmallVector<Value> { return {b.c32(0)}; })
                    .front();
  auto committed = [&](Value tokens) {
    Value old = b.smax(b.sub(tokens, arg(AppendArg::lag)), b.c32(0));
    return b.smax(b.shr(old, shift), least);
  };
  auto bit = [&](Value condition, int64_t error) {
    return b.select(condition, b.c32(error), b.c32(0));
  };
  first = committed(length);
  Value after = committed(sum);

  // The sum of two numbers that are not negative wraps below zero.
  Value signs = b.bor(b.bor(length, begin), b.bor(wanted, sum));
  Value status = bit(b.lt(signs, 0), FFD_APPEND_BAD_LENGTH);
  Value commits = b.gt(after, first);
  Value sane = b.eq(status, 0);
  // 64 bits: a stride may have more. A negative reservation is that of a slot
  // without a sequence, which takes not even a tail.
  Value reserved = perSlot(AppendArg::reserved);
  Value beyond = b.bor(b.gt(after, reserved),
                       b.gt(b.zext64(after), arg(AppendArg::page_stride)));
  beyond = b.bor(b.band(commits, beyond), b.lt(reserved, 0));
  status =
      b.bor(status, bit(b.band(sane, beyond), FFD_APPEND_BEYOND_RESERVATION));
  Value rest = b.sub(sum, b.shl(after, shift));
  status =
      b.bor(status, bit(b.band(sane, b.gt(rest, arg(AppendArg::tail_tokens))),
                        FFD_APPEND_TAIL_TOO_SHORT));
  end = after;
  // The same for all threads of the sequence's teams.
  Value reads = b.band(b.eq(status, 0), commits);
  Value pages = b.ifElse(
                     reads, b.i32(),
                     [&]() -> SmallVector<Value> { return {checkPages()}; },
                     [&]() -> SmallVector<Value> { return {b.c32(0)}; })
                    .front();
  status = b.bor(status, bit(b.ne(pages, 0), FFD_APPEND_BAD_PAGE));
  // No tokens, no errors: nothing is asked of the sequence.
  status = b.select(b.eq(wanted, 0), b.c32(0), status);
  Value taken = b.band(b.eq(status, 0), b.ne(wanted, 0));
  count = b.select(taken, wanted, b.c32(0));
  end = b.select(taken, after, first);

  Value speaks = b.band(b.eq(thread, 0), b.eq(b.bor(head, split), 0));
  b.ifThen(b.band(speaks, b.ne(status, 0)), [&] {
    Value word = b.at(arg(AppendArg::errors), scaled(slot, 4));
    b.store(b.bor(b.load(b.i32(), word, 4), status), word, 4);
  });
  return success();
}

//===----------------------------------------------------------------------===//
// Committing blocks
//===----------------------------------------------------------------------===//

Value AppendEmitter::tailRow(Value index, AppendArg tail, int64_t width) {
  Value rows =
      b.add(b.add(b.mul(b.zext64(slot), arg(AppendArg::tail_batch_stride)),
                  b.mul(b.zext64(head), arg(AppendArg::tail_head_stride))),
            b.zext64(index));
  return b.at(arg(tail), b.mul(rows, 2 * width));
}

Value AppendEmitter::tokenRow(Value token, AppendArg tail, int64_t width,
                              AppendArg input, AppendArg tokenStride,
                              AppendArg headStride) {
  Value inTail = b.lt(token, length);
  int64_t shift = llvm::Log2_64(layout.quantBlock);
  Value old =
      tailRow(b.select(inTail, b.sub(token, b.shl(first, shift)), b.c32(0)),
              tail, width);
  Value number = b.select(inTail, b.c32(0), b.add(begin, b.sub(token, length)));
  Value offset = b.add(b.mul(b.zext64(number), arg(tokenStride)),
                       b.mul(b.zext64(head), arg(headStride)));
  return b.select(inTail, old, b.at(arg(input), b.shl(offset, 1)));
}

Value AppendEmitter::plane(AppendArg which, Value place, int64_t bytes) {
  return b.at(arg(which), b.mul(place, bytes));
}

/// The row in smax and centres.
Value AppendEmitter::cacheRow() {
  return b.add(b.mul(slot, arg(AppendArg::kv_heads)), head);
}

/// The row's centre in memory.
Value AppendEmitter::centreRow() {
  return b.at(arg(AppendArg::centre), scaled(cacheRow(), 2 * layout.headDim));
}

/// Words of keys, relative to those of the centre where they are not yet.
Value AppendEmitter::relative(Value words, Value centre, Value isRaw) {
  Value d = GPURelativeKeysOp::create(b, words.getType(), words, centre,
                                      plan.spec.getElement());
  return b.select(isRaw, d, words);
}

/// centre_c1 from block 0, whose tokens are as they came: a thread has eight
/// channels of every eighth token; then one channel.
void AppendEmitter::computeCentre() {
  const int64_t chunks = layout.headDim / 8, sums = 8;
  Type element = plan.spec.getElement();
  b.ifThen(b.lt(thread, chunks * sums), [&] {
    Value part = b.udiv(thread, b.c32(chunks));
    Value chunk = b.sub(thread, b.mul(part, b.c32(chunks)));
    // Loads of four tokens are under way at a time.
    const int64_t together = 4;
    Value total =
        b.loop(part, b.c32(layout.quantBlock), b.c32(together * sums),
               {b.zeros(b.floats(8))},
               [&](Value token, ValueRange sofar) -> SmallVector<Value> {
                 SmallVector<Value> keys;
                 for (int64_t i = 0; i < together; ++i)
                   keys.push_back(b.load(
                       b.words(4),
                       b.at(tokenRow(b.add(token, i * sums), AppendArg::tail_k,
                                     layout.headDim, AppendArg::k,
                                     AppendArg::k_token_stride,
                                     AppendArg::k_head_stride),
                            b.shl(chunk, 4)),
                       16));
                 Value sum = sofar[0];
                 for (Value k : keys)
                   sum =
                       GPUAddKeysOp::create(b, sum.getType(), sum, k, element);
                 return {sum};
               })
            .front();
    SmallVector<Value> entries = b.unpack(total);
    Value to =
        b.at(sharedAt(plan.maxima, part, 4 * layout.headDim), b.shl(chunk, 5));
    for (size_t i = 0; i < entries.size(); i += 4)
      b.store(b.pack(ArrayRef<Value>(entries).slice(i, 4)),
              b.at(to, int64_t(4 * i)), 16);
  });
  GPUTeamBarrierOp::create(b);
  b.ifThen(b.lt(thread, layout.headDim), [&] {
    SmallVector<Value> parts;
    for (int64_t i = 0; i < sums; ++i)
      parts.push_back(b.load(
          b.f32(),
          b.at(shared(plan.maxima + 4 * layout.headDim * i), b.shl(thread, 2)),
          4));
    Value c = GPUCentreKeyOp::create(b, b.i32(), b.pack(parts),
                                     layout.quantBlock, element);
    b.store(b.trunc(b.i16(), c), b.at(shared(plan.centre), b.shl(thread, 1)),
            2);
  });
}

/// Puts the row's centre into shared memory where blocks are committed. Pieces
/// of a row that has none yet compute it each: the tail and the input stay as
/// they are until all have.
void AppendEmitter::findCentre() {
  starts = b.band(b.eq(first, 0), b.gt(end, b.c32(0)));
  b.ifThen(b.gt(end, first), [&] {
    b.ifThen(starts, [&] { computeCentre(); });
    Value chunk = b.lt(thread, layout.headDim / 8);
    b.ifThen(b.band(b.bnot(starts), chunk), [&] {
      b.store(b.load(b.words(4), b.at(centreRow(), b.shl(thread, 4)), 16),
              b.at(shared(plan.centre), b.shl(thread, 4)), 16);
    });
    GPUTeamBarrierOp::create(b);
  });
}

/// The lane's keys of its warp's tile: per group and register two words.
Value AppendEmitter::loadKeys(Value block) {
  Value token =
      b.add(b.add(b.mul(block, layout.quantBlock), b.shl(warp, 4)), g);
  SmallVector<Value> rows, isRaw;
  for (int64_t half : {0, 8}) {
    Value number = b.add(token, half);
    rows.push_back(
        b.at(tokenRow(number, AppendArg::tail_k, layout.headDim, AppendArg::k,
                      AppendArg::k_token_stride, AppendArg::k_head_stride),
             b.shl(tq, 3)));
    if (centred())
      isRaw.push_back(b.bor(starts, b.ge(number, length)));
  }
  SmallVector<Value> words;
  for (int64_t group = 0; group < layout.channelGroups(); ++group)
    for (int64_t i = 0; i < 4; ++i) {
      int64_t channel = 32 * group + 16 * (i >> 1);
      if (channel >= layout.headDim) {
        words.append(2, b.c32(0));
        continue;
      }
      Value pair = b.load(b.words(2), b.at(rows[i & 1], 2 * channel), 8);
      if (centred())
        pair = relative(
            pair,
            b.load(b.words(2),
                   b.at(shared(plan.centre + 2 * channel), b.shl(tq, 3)), 8),
            isRaw[i & 1]);
      words.append({b.get(pair, 0), b.get(pair, 1)});
    }
  return b.pack(words);
}

/// Scales of the block, to its page and as factors to shared memory; returns
/// the largest scale so far of the thread's channel.
Value AppendEmitter::splitKeys(Value keys, Value place, Value running) {
  Value maxima = GPUKeyMaximaOp::create(b, keys.getType(), keys);
  b.ifThen(b.eq(g, 0), [&] {
    SmallVector<Value> words = b.unpack(maxima);
    Value to =
        b.at(sharedAt(plan.maxima, warp, 4 * plan.channels), b.shl(tq, 5));
    for (size_t i = 0; i < words.size(); i += 4)
      b.store(b.pack(ArrayRef<Value>(words).slice(i, 4)),
              b.at(to, int64_t(i) / 8 * 128 + int64_t(i) % 8 * 4), 16);
  });
  GPUTeamBarrierOp::create(b);
  Value mine = b.lt(thread, plan.channels);
  running =
      b.ifElse(
           mine, b.i32(),
           [&]() -> SmallVector<Value> {
             Value from = b.at(shared(plan.maxima), b.shl(thread, 2));
             Value maximum = b.c32(0);
             for (int64_t w = 0; w < plan.warps; ++w)
               maximum = b.smax(
                   maximum,
                   b.load(b.i32(), b.at(from, 4 * w * plan.channels), 4));
             auto scale = GPUSplitScaleOp::create(b, b.i32(), b.f32(), maximum,
                                                  plan.spec.getScanBits(),
                                                  plan.spec.getElement());
             Value factor = scale.getFactor();
             // Channels that only pad have code 0 (split_c7), not the code of
             // 0.
             if (plan.channels != layout.headDim) {
               Value half = b.bor(b.shl(b.shr(thread, 5), 5),
                                  b.shl(b.band(thread, 4), 2));
               factor = b.select(b.lt(half, layout.headDim), factor, b.nan());
             }
             b.store(factor, b.at(shared(plan.factors), b.shl(thread, 2)), 4);
             Value to = b.at(
                 plane(AppendArg::thumbnails, place, layout.thumbnailBytes()),
                 layout.codeBytes());
             b.store(b.trunc(b.i16(), scale.getScale()),
                     b.at(to, b.shl(thread, 1)), 2);
             // Scales are not negative and NaN is canonical: they order
             // like their bits.
             return {b.smax(running, scale.getScale())};
           },
           [&]() -> SmallVector<Value> { return {running}; })
          .front();
  GPUTeamBarrierOp::create(b);
  return running;
}

/// Codes and residuals of the warp's tile.
void AppendEmitter::storeKeys(Value keys, Value place) {
  SmallVector<Value> factors;
  for (int64_t group = 0; group < layout.channelGroups(); ++group)
    for (int64_t half : {0, 16})
      llvm::append_range(
          factors,
          b.unpack(b.load(b.floats(4),
                          b.at(b.at(shared(plan.factors), 128 * group + half),
                               b.shl(tq, 5)),
                          16)));
  auto split = GPUSplitTileOp::create(
      b, b.words(layout.wordsPerTile()), b.words(4 * layout.channelGroups()),
      keys, b.pack(factors), plan.spec.getScanBits(), plan.spec.getElement());

  SmallVector<Value> residuals = b.unpack(split.getResiduals());
  Value to =
      b.at(b.at(plane(AppendArg::residuals, place, layout.residualBytes()),
                b.mul(warp, layout.residualTileBytes())),
           b.shl(lane, 4));
  for (size_t i = 0; i < residuals.size(); i += 4)
    b.store(b.pack(ArrayRef<Value>(residuals).slice(i, 4)),
            b.at(to, int64_t(i) / 4 * 512), 16);

  // A lane's words run on from tile to tile, four to a chunk.
  SmallVector<Value> codes = b.unpack(split.getCodes());
  int64_t perTile = layout.wordsPerTile();
  to = b.at(plane(AppendArg::thumbnails, place, layout.thumbnailBytes()),
            b.shl(lane, 4));
  if (perTile % 4 == 0) {
    to = b.at(to, b.mul(warp, perTile / 4 * 512));
    for (int64_t i = 0; i < perTile; i += 4)
      b.store(b.pack(ArrayRef<Value>(codes).slice(i, 4)), b.at(to, i / 4 * 512),
              16);
    return;
  }
  for (int64_t i = 0; i < perTile; ++i) {
    Value number = b.add(b.mul(warp, perTile), i);
    b.store(codes[i],
            b.at(to, b.add(b.shl(b.shr(number, 2), 9),
                           b.shl(b.band(number, 3), 2))),
            4);
  }
}

/// The warp's tile of V: a word holds two tokens of one dim, so every 8 x 8
/// matrix is transposed.
void AppendEmitter::storeValues(Value block, Value place) {
  Value token =
      b.add(b.add(b.mul(block, layout.quantBlock), b.shl(warp, 4)), g);
  SmallVector<Value> rows;
  for (int64_t half : {0, 8})
    rows.push_back(
        b.at(tokenRow(b.add(token, half), AppendArg::tail_v, layout.valueDim,
                      AppendArg::v, AppendArg::v_token_stride,
                      AppendArg::v_head_stride),
             b.shl(tq, 2)));
  Value to = b.at(b.at(plane(AppendArg::values, place, layout.valueBytes()),
                       b.mul(warp, layout.valueTileBytes())),
                  b.shl(lane, 4));
  for (int64_t m = 0; m < layout.paddedValueDim() / 16; ++m) {
    SmallVector<Value> pairs;
    for (int64_t word = 0; word < 4; ++word)
      pairs.push_back(
          b.load(b.i32(), b.at(rows[word >> 1], 32 * m + 16 * (word & 1)), 4));
    Value words = b.pack(pairs);
    words = GPUTransposeOp::create(b, words.getType(), words);
    b.store(words, b.at(to, 512 * m), 16);
  }
}

LogicalResult AppendEmitter::emitCommit(TileDistributeOp loop) {
  TileSplitOp split;
  bool stores = false;
  for (Operation &op : *loop.getBody()) {
    if (isa<TileLoadTokensOp, TileYieldOp>(op))
      continue;
    if (auto found = dyn_cast<TileSplitOp>(op); found && !split) {
      split = found;
      continue;
    }
    if (auto store = dyn_cast<TileStoreBlockOp>(op);
        store && split && store.getThumbnail() == split.getThumbnail() &&
        store.getBody() == split.getBody() &&
        store.getBlock() == loop.getIndex() && !stores) {
      stores = true;
      continue;
    }
    return op.emitOpError("has no lowering to the GPU level in a 'commit' loop "
                          "here, expected the tokens of its block to be "
                          "loaded, split and stored");
  }
  auto load = split ? split.getTokens().getDefiningOp<TileLoadTokensOp>()
                    : TileLoadTokensOp();
  if (!stores || !load || load.getBlock() != loop.getIndex() ||
      load.getRow() != teams.getRow() ||
      loop.getYielded() != split.getThumbnail())
    return loop.emitOpError("does not load, split, store and yield its block, "
                            "expected what --ffd-tile makes");

  if (centred())
    findCentre();
  Value from = b.add(first, this->split);
  largest[loop.getResult()] =
      b.loop(from, end, splits, {b.c32(0)},
             [&](Value block, ValueRange sofar) -> SmallVector<Value> {
               Value entry =
                   b.add(b.mul(b.zext64(slot), arg(AppendArg::page_stride)),
                         b.zext64(block));
               Value page = b.loadConstant(
                   b.i32(), b.at(arg(AppendArg::page_table), b.shl(entry, 2)),
                   4);
               Value place = b.add(
                   b.mul(b.zext64(page), b.zext64(arg(AppendArg::kv_heads))),
                   b.zext64(head));
               Value keys = loadKeys(block);
               Value running = splitKeys(keys, place, sofar[0]);
               storeKeys(keys, place);
               storeValues(block, place);
               return {running};
             })
          .front();
  return success();
}

//===----------------------------------------------------------------------===//
// The end of a row
//===----------------------------------------------------------------------===//

/// smax of the thread's channel, from the largest scale of all pieces.
void AppendEmitter::mergeScales(Value running) {
  Value starts = b.eq(first, 0);
  Value changes = b.bor(starts, b.gt(end, first));
  b.ifThen(b.band(b.lt(thread, plan.channels), changes), [&] {
    Value word = b.at(
        b.at(arg(AppendArg::smax), scaled(cacheRow(), layout.scaleBytes())),
        b.shl(thread, 1));
    Value old = b.zext32(b.load(b.i16(), word, 2));
    Value top = b.smax(running, b.select(starts, b.c32(0), old));
    b.store(b.trunc(b.i16(), top), word, 2);
  });
}

/// The centre of a row that had no committed blocks: that of its block 0, or 0.
/// The tail is stored after a barrier and reads it from there.
void AppendEmitter::storeCentre() {
  Value chunk = b.lt(thread, layout.headDim / 8);
  b.ifThen(b.band(starts, chunk), [&] {
    b.store(b.load(b.words(4), b.at(shared(plan.centre), b.shl(thread, 4)), 16),
            b.at(centreRow(), b.shl(thread, 4)), 16);
  });
  b.ifThen(b.band(b.eq(end, 0), chunk), [&] {
    b.store(b.zeros(b.words(4)), b.at(centreRow(), b.shl(thread, 4)), 16);
  });
}

/// Moves the tokens that stay behind the committed blocks, then adds the new
/// ones. A step's source is the step's own room at the earliest, if blocks were
/// committed, else the input.
void AppendEmitter::storeTail(AppendArg tail, int64_t width, AppendArg input,
                              AppendArg tokenStride, AppendArg headStride) {
  int64_t step = layout.quantBlock, shift = llvm::Log2_64(step);
  int64_t chunks = width / 8;
  Value base = b.shl(end, shift);
  Value tokens = b.sub(b.add(length, count), base);
  Value from = b.select(b.eq(first, end), b.sub(length, base), b.c32(0));
  b.loop(from, tokens, b.c32(step), {},
         [&](Value at, ValueRange) -> SmallVector<Value> {
           // All have read what this step overwrites.
           GPUTeamBarrierOp::create(b);
           Value here = b.smin(b.sub(tokens, at), b.c32(step));
           b.loop(thread, b.mul(here, chunks), b.c32(plan.threads), {},
                  [&](Value i, ValueRange) -> SmallVector<Value> {
                    Value local = b.udiv(i, b.c32(chunks));
                    Value chunk = b.sub(i, b.mul(local, chunks));
                    Value index = b.add(at, local);
                    Value source = tokenRow(b.add(base, index), tail, width,
                                            input, tokenStride, headStride);
                    Value data =
                        b.load(b.words(4), b.at(source, b.shl(chunk, 4)), 16);
                    if (centred() && tail == AppendArg::tail_k) {
                      Value c = b.load(b.words(4),
                                       b.at(centreRow(), b.shl(chunk, 4)), 16);
                      Value isNew = b.ge(b.add(base, index), length);
                      data = relative(
                          data, c,
                          b.band(b.gt(end, b.c32(0)), b.bor(starts, isNew)));
                    }
                    b.store(data,
                            b.at(tailRow(index, tail, width), b.shl(chunk, 4)),
                            16);
                    return {};
                  });
           return {};
         });
}

/// The sequence's new length, by the first team where others read another
/// memory, else by the team that arrives last.
void AppendEmitter::storeLength() {
  auto address = [&](AppendArg which) {
    return LLVM::PtrToIntOp::create(b, b.i64(), arg(which)).getResult();
  };
  Value given = b.band(isGiven(AppendArg::new_lengths), hasSlot);
  Value inPlace =
      b.eq(address(AppendArg::new_lengths), address(AppendArg::lengths));
  Value turn = b.ifElse(
                    inPlace, b.i1(),
                    [&]() -> SmallVector<Value> {
                      Value rows = b.mul(arg(AppendArg::batch),
                                         arg(AppendArg::kv_heads));
                      Value counter = b.at(arg(AppendArg::workspace),
                                           scaled(b.add(rows, sequence), 4));
                      Value teams = b.mul(arg(AppendArg::kv_heads), splits);
                      return {GPUArriveOp::create(b, b.i1(), counter, teams,
                                                  shared(plan.flag))};
                    },
                    [&]() -> SmallVector<Value> {
                      return {b.eq(b.bor(head, split), 0)};
                    })
                   .front();
  b.ifThen(b.band(b.band(given, turn), b.eq(thread, 0)), [&] {
    b.store(b.add(length, count),
            b.at(arg(AppendArg::new_lengths), scaled(slot, 4)), 4);
  });
}

LogicalResult AppendEmitter::emitFinish(TileFinishAppendOp op) {
  Value running = largest.lookup(op.getScales());
  if (!running)
    return op.emitOpError("operand 'scales' is not the result of a 'commit' "
                          "loop, expected one");
  auto finish = [&](Value top) {
    mergeScales(top);
    if (centred())
      storeCentre();
    storeTail(AppendArg::tail_k, layout.headDim, AppendArg::k,
              AppendArg::k_token_stride, AppendArg::k_head_stride);
    storeTail(AppendArg::tail_v, layout.valueDim, AppendArg::v,
              AppendArg::v_token_stride, AppendArg::v_head_stride);
  };
  Value some = b.gt(count, b.c32(0));
  Value whole = b.eq(splits, 1);
  // Without new blocks the first piece is alone with the tail.
  Value alone = b.bor(whole, b.eq(first, end));
  b.ifThen(b.band(some, b.band(alone, b.eq(split, 0))),
           [&] { finish(running); });
  b.ifThen(b.band(some, b.bnot(alone)), [&] {
    Value counters = b.mul(b.zext64(arg(AppendArg::batch)),
                           b.add(b.zext64(arg(AppendArg::kv_heads)), 1));
    Value partials =
        b.at(arg(AppendArg::workspace),
             b.band(b.add(b.shl(counters, 2), 127), ~int64_t(127)));
    Value mine = b.at(partials, b.mul(b.mul(b.zext64(row), b.zext64(splits)),
                                      4 * plan.channels));
    mine = b.at(mine, b.shl(thread, 2));
    Value channel = b.lt(thread, plan.channels);
    b.ifThen(channel, [&] {
      b.store(running, b.at(mine, scaled(split, 4 * plan.channels)), 4);
    });
    Value counter = b.at(arg(AppendArg::workspace), scaled(row, 4));
    Value last =
        GPUArriveOp::create(b, b.i1(), counter, splits, shared(plan.flag));
    b.ifThen(last, [&] {
      Value pieces = b.select(channel, splits, b.c32(0));
      Value top =
          b.loop(b.c32(0), pieces, b.c32(1), {b.c32(0)},
                 [&](Value piece, ValueRange sofar) -> SmallVector<Value> {
                   Value part =
                       b.load(b.i32(),
                              b.at(mine, scaled(piece, 4 * plan.channels)), 4);
                   return {b.smax(sofar[0], part)};
                 })
              .front();
      finish(top);
    });
  });
  storeLength();
  return success();
}
