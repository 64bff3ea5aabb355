//===- AppendBlocks.cpp - Committing blocks on a GPU --------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A warp takes the 16 tokens of a tile from tail and input, splits their keys
// and stores them with their values.
//
//===----------------------------------------------------------------------===//

#include "Append.h"

using namespace mlir;
using namespace mlir::ffd;

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
