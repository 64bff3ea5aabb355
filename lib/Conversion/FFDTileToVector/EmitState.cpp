//===- EmitState.cpp - The online softmax -------------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// attend_c2 of docs/numerics.md, tile by tile. The reference follows the
// largest score only when that is 8 above it: then the outputs are scaled down,
// which is rare, and weights stay below e^8. Weights are f32, like the outputs.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"

#include <limits>

using namespace mlir;
using namespace mlir::ffd;

static constexpr float kSlack = 8;
static constexpr float kInfinity = std::numeric_limits<float>::infinity();
/// The reference once there are tokens, if none has a higher score. It tells
/// them from no tokens at all, whose reference is -inf, and gives a score of
/// -inf no weight.
static constexpr float kLowest = std::numeric_limits<float>::lowest();

LogicalResult Emitter::emit(TileInitOp op) {
  StateValue state;
  state.plain = b.alloca(group * valueDim * 4);
  state.reference = b.alloca(64);
  state.sums = b.alloca(group * 64);
  state.hasFragments =
      teams.walk([](TileLoadBodyOp) { return WalkResult::interrupt(); })
          .wasInterrupted();
  auto clear = [&](Value buffer, int64_t bytes) {
    b.loop(bytes / 64,
           [&](Value i) { b.store(b.zeros(), b.at(buffer, b.shl(i, 6)), 64); });
  };
  clear(state.plain, group * valueDim * 4);
  clear(state.sums, group * 64);
  b.store(b.splat(b.f32(-kInfinity)), state.reference, 64);
  if (state.hasFragments) {
    state.fragments = b.alloca(group * valueDim / 2 * 64);
    clear(state.fragments, group * valueDim / 2 * 64);
  }
  set(op.getResult(), state);
  return success();
}

/// Raises the references to the scores of a tile (f32 [G][16]) where they are
/// too low. Scores that do not exist are -inf, NaN counts as low.
void Emitter::emitRebase(const StateValue &state, Value logits) {
  SmallVector<Value> tops;
  Value any;
  for (int64_t head = 0; head < group; ++head) {
    Value top =
        b.max(b.reduceMax(b.loadF32(b.at(logits, head * 64))), b.f32(kLowest));
    tops.push_back(top);
    Value reference =
        b.load(b.getF32Type(), b.at(state.reference, 4 * head), 4);
    Value high = b.cmp(FloatCmp::OGT, top, b.add(reference, b.f32(kSlack)));
    any = any ? b.ori(any, high) : high;
  }
  b.ifThen(any, [&] {
    Value buffer = b.alloca(64);
    for (int64_t head = 0; head < group; ++head)
      b.store(tops[head], b.at(buffer, 4 * head), 4);
    b.loop(group, [&](Value head) {
      Value place = b.at(state.reference, b.shl(head, 2));
      Value old = b.load(b.getF32Type(), place, 4);
      Value top = b.load(b.getF32Type(), b.at(buffer, b.shl(head, 2)), 4);
      Value next = b.max(top, old);
      b.store(next, place, 4);
      // Where nothing changes the factor is 1, also between infinities.
      Value factor = b.select(b.cmp(FloatCmp::OEQ, next, old), b.f32(1),
                              b.extract(b.exp(b.splat(b.sub(old, next))), 0));
      Value scale = b.splat(factor);
      auto rescale = [&](Value buffer, int64_t bytesPerHead) {
        Value from = b.at(buffer, b.mul(head, b.i64(bytesPerHead)));
        b.loop(bytesPerHead / 64, [&](Value i) {
          Value at = b.at(from, b.shl(i, 6));
          b.store(b.mul(b.loadF32(at), scale), at, 64);
        });
      };
      rescale(state.sums, 64);
      rescale(state.plain, valueDim * 4);
      if (state.hasFragments)
        rescale(state.fragments, valueDim / 2 * 64);
    });
  });
}

/// exp(f - reference) of a tile, and their sums.
void Emitter::emitWeights(const StateValue &state, Value logits,
                          Value weights) {
  b.headGroups(group, /*atOnce=*/4, [&](Value first, int64_t heads) {
    Value offset = b.shl(first, 6);
    for (int64_t h = 0; h < heads; ++h) {
      Value f = b.loadF32(b.at(b.at(logits, offset), h * 64));
      Value at = b.at(b.at(state.reference, b.shl(first, 2)), 4 * h);
      Value reference = b.splat(b.load(b.getF32Type(), at, 4));
      Value p = b.exp(b.sub(f, reference));
      b.store(p, b.at(b.at(weights, offset), h * 64), 64);
      Value place = b.at(b.at(state.sums, offset), h * 64);
      b.store(b.add(b.loadF32(place), p), place, 64);
    }
  });
}

LogicalResult Emitter::emit(TileAccumulateOp op) {
  const StateValue state = get<StateValue>(op.getState());
  Value logits = get<LogitsValue>(op.getLogits()).data;
  Value weights = b.alloca(group * 64);
  set(op.getResult(), state);

  if (isa<TailType>(op.getValues().getType())) {
    const TailValue tail = get<TailValue>(op.getValues());
    Value masked = b.alloca(group * 64);
    for (int64_t head = 0; head < group; ++head)
      b.store(b.select(seenBy(head, tail), b.loadF32(b.at(logits, head * 64)),
                       b.splat(b.f32(-kInfinity))),
              b.at(masked, head * 64), 64);
    emitRebase(state, masked);
    emitWeights(state, masked, weights);
    accumulateRows(state, weights, tail.values);
    return success();
  }

  const BodyValue &body = get<BodyValue>(op.getValues());
  const int64_t tilesPerSelect = layout.selectBlock / ::ffd::kTileTokens;
  b.loop(layout.tilesPerBlock(), [&](Value tile) {
    Value bit = b.trunc(b.div(tile, b.i64(tilesPerSelect)), b.getI32Type());
    Value kept = b.andi(arith::ShRUIOp::create(b, body.mask, bit), b.i32(1));
    b.ifThen(b.cmp(IntCmp::ne, kept, b.i32(0)), [&] {
      Value scores = b.at(logits, b.mul(tile, b.i64(group * 64)));
      emitRebase(state, scores);
      emitWeights(state, scores, weights);
      accumulateFragments(
          state, weights,
          b.at(body.values, b.mul(tile, b.i64(layout.valueTileBytes()))));
    });
  });
  return success();
}

/// Row-major values: a vector is 16 dims of one token.
void Emitter::accumulateRows(const StateValue &state, Value weights,
                             Value values) {
  // As many weights as fit in half the registers of AVX-512 stay there.
  b.headGroups(group, /*atOnce=*/4, [&](Value first, int64_t heads) {
    const int64_t tokens = heads == 1 ? 16 : heads == 2 ? 8 : 4;
    Value ours = b.at(weights, b.shl(first, 6));
    Value sumsOf = b.at(state.plain, b.mul(first, b.i64(valueDim * 4)));
    b.loop(::ffd::kTileTokens / tokens, [&](Value step) {
      Value from =
          b.at(values, b.mul(step, b.i64(tokens * layout.valueDim * 2)));
      for (int64_t t = 0; t < tokens; ++t)
        b.prefetchRow(from, t + ::ffd::kTileTokens, layout.valueDim * 2);
      SmallVector<Value> p;
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < heads; ++h) {
          Value at =
              b.at(b.at(ours, h * 64 + 4 * t), b.mul(step, b.i64(4 * tokens)));
          p.push_back(b.splat(b.load(b.getF32Type(), at, 4)));
        }
      b.loop(layout.valueDim / 16, [&](Value chunk) {
        SmallVector<Value> sums;
        Value to = b.at(sumsOf, b.shl(chunk, 6));
        for (int64_t h = 0; h < heads; ++h)
          sums.push_back(b.loadF32(b.at(to, h * valueDim * 4)));
        for (int64_t t = 0; t < tokens; ++t) {
          Value at = b.at(b.at(from, t * layout.valueDim * 2), b.shl(chunk, 5));
          Value v =
              b.widen(b.load(b.vec(b.getI16Type()), at, 2), spec.isBF16());
          for (int64_t h = 0; h < heads; ++h)
            sums[h] = b.fma(p[t * heads + h], v, sums[h]);
        }
        for (int64_t h = 0; h < heads; ++h)
          b.store(sums[h], b.at(to, h * valueDim * 4), 64);
      });
    });
  });
}

/// Values in fragment order: 64 bytes are dims 16m + g and 16m + g + 8 of a
/// tile's 16 tokens (Layout::valueOffset). The products stay in that order;
/// `collapse` adds up the lanes of a dim once per row.
void Emitter::accumulateFragments(const StateValue &state, Value weights,
                                  Value values) {
  auto order = [](int64_t half) {
    SmallVector<int64_t> tokens;
    for (int64_t lane = 0; lane < 16; ++lane) {
      int64_t tq = 2 * half + lane / 8, word = lane % 8 / 2;
      tokens.push_back(2 * tq + 8 * (word / 2) + lane % 2);
    }
    return tokens;
  };
  const int64_t fragments = valueDim / 2;
  b.headGroups(group, /*atOnce=*/8, [&](Value first, int64_t heads) {
    Value ours = b.at(weights, b.shl(first, 6));
    Value sumsOf = b.at(state.fragments, b.mul(first, b.i64(fragments * 64)));
    SmallVector<std::array<Value, 2>> p;
    for (int64_t h = 0; h < heads; ++h) {
      Value w = b.loadF32(b.at(ours, h * 64));
      p.push_back({b.shuffle(w, order(0)), b.shuffle(w, order(1))});
    }
    b.loop(fragments, [&](Value fragment) {
      Value offset = b.shl(fragment, 6);
      Value bits = b.load(b.vec(b.getI16Type(), 32), b.at(values, offset), 16);
      Value v[2];
      for (int64_t half = 0; half < 2; ++half)
        v[half] = b.widen(b.slice(bits, 16 * half, 16), spec.isBF16());
      for (int64_t h = 0; h < heads; ++h) {
        Value place = b.at(b.at(sumsOf, h * fragments * 64), offset);
        Value sum = b.fma(p[h][0], v[0], b.loadF32(place));
        b.store(b.fma(p[h][1], v[1], sum), place, 64);
      }
    });
  });
}
