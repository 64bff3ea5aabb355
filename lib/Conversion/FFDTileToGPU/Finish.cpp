//===- Finish.cpp - The end of a piece -------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Warps merge their states through shared memory; the CTA leaves a partial
// result in the workspace, and the one that arrives last merges those of all
// pieces in a fixed order (attend_c4). References are in units of log2 here
// and in natural log in the workspace.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"

using namespace mlir;
using namespace mlir::ffd;

static constexpr float kLn2 = 0.693147180559945309417f;
static constexpr float kLog2e = 1.44269504088896340736f;
/// Pieces whose partial results are loaded together. Two threads share the usual
/// 16 or 33 pieces: one or two rounds.
static constexpr int64_t kPiecesAtOnce = 9;

void KernelEmitter::storeWarpState(const StateValue &state, int64_t headTile) {
  SmallVector<Value> output = b.unpack(state.output[headTile]);
  for (int64_t c : {0, 1}) {
    Value sum = reduceRows(Reduction::add, b.get(state.sum[headTile], c));
    Value reference = b.get(state.reference[headTile], c);
    Value h = b.add(b.shl(tq, 1), c);
    b.ifThen(b.lt(b.add(h, 8 * headTile), plan.group), [&] {
      Value index = b.add(b.mul(warp, plan.mergeHeads()), h);
      Value to =
          b.at(sharedAt(plan.ring, index, 4 * plan.mergeStride()), b.shl(g, 2));
      for (int64_t m = 0; m < plan.valueTiles; ++m)
        for (int64_t half : {0, 1})
          b.store(output[4 * m + 2 * half + c],
                  b.at(to, 4 * (16 * m + 8 * half)), 4);
      b.ifThen(b.eq(g, 0), [&] {
        b.store(b.pack({reference, sum}), sharedAt(plan.mergeSums, index, 8),
                8);
      });
    });
  }
}

/// The row in q, out, lse and among the counters.
Value KernelEmitter::placeRow() {
  return b.add(b.mul(place, arg(KernelArg::kv_heads)), head);
}

Value KernelEmitter::outputIndex(Value h) {
  Value index = b.add(b.mul(b.zext64(placeRow()), plan.group), b.zext64(h));
  if (Value token = queryToken(h)) {
    // [sequence][query token][kv head][head of the group]
    Value place = b.add(b.mul(this->place, plan.tokens()), token);
    Value inToken = b.sub(h, b.mul(token, plan.tokenHeads()));
    index = b.add(b.mul(b.zext64(place), b.zext64(arg(KernelArg::kv_heads))),
                  b.zext64(head));
    index = b.add(b.mul(index, plan.tokenHeads()), b.zext64(inToken));
  }
  return index;
}

void KernelEmitter::writeOutput(Value h, Value dim, ArrayRef<Value> output,
                                Value sum, Value reference) {
  // No token: zero. A sum of 0 is not enough: scores of -inf alone give NaN.
  Value token = queryToken(h);
  Value empty = token ? b.lt(seenBy(h, length), 1) : b.eq(length, 0);
  Value inverse = b.select(empty, b.cf(0), b.fdiv(b.cf(1), sum));
  SmallVector<Value> scaledOutput;
  for (Value x : output)
    scaledOutput.push_back(b.fmul(x, inverse));
  Value index = outputIndex(h);
  Value to =
      b.at(arg(KernelArg::out),
           b.shl(b.add(b.mul(index, plan.layout.valueDim), b.zext64(dim)), 2));
  b.store(b.pack(scaledOutput), to, 16);
  Value given =
      b.ne(LLVM::PtrToIntOp::create(b, b.i64(), arg(KernelArg::lse)), 0);
  b.ifThen(b.band(given, b.eq(dim, 0)), [&] {
    Value log = GPULog2Op::create(b, b.f32(), sum);
    Value lse = b.fmul(b.fadd(reference, log), b.cf(kLn2));
    if (centred)
      lse = b.fadd(lse, centreScore(h));
    lse = b.select(empty, b.infinity(/*negative=*/true), lse);
    b.store(lse, b.at(arg(KernelArg::lse), b.shl(index, 2)), 4);
  });
}

/// partials[first of the row + piece][head]
Value KernelEmitter::partialAddress(Value piece, Value h) {
  Value rows = b.mul(b.zext64(arg(KernelArg::batch)),
                     b.zext64(arg(KernelArg::kv_heads)));
  Value base = b.band(b.add(b.shl(rows, 2), 127), ~int64_t(127));
  Value index = b.add(b.zext64(firstPartial), b.zext64(piece));
  index = b.add(b.mul(index, plan.group), b.zext64(h));
  return b.at(b.at(arg(KernelArg::workspace), base),
              b.mul(index, 4 * plan.layout.partialFloats()));
}

Value KernelEmitter::loadPartial(int64_t floats, Value address,
                                 Value condition) {
  Value words = GPULoadIfOp::create(b, b.words(floats), condition, address,
                                    /*written=*/true);
  SmallVector<Value> values;
  for (Value word : b.unpack(words))
    values.push_back(b.bitcast(b.f32(), word));
  return b.pack(values);
}

/// A thread per head of the tile and four dims.
void KernelEmitter::mergeWarps(int64_t headTile) {
  int64_t heads = std::min<int64_t>(8, plan.group - 8 * headTile);
  int64_t quads = plan.layout.paddedValueDim() / 4;
  b.loop(thread, b.c32(heads * quads), b.c32(plan.threads()), {},
         [&](Value i, ValueRange) -> SmallVector<Value> {
           Value local = b.udiv(i, b.c32(quads));
           Value dim = b.shl(b.sub(i, b.mul(local, quads)), 2);
           Value h = b.add(local, 8 * headTile);
           SmallVector<Value> references, sums;
           Value reference = b.cf(kNoReference);
           for (int64_t w = 0; w < plan.warps; ++w) {
             Value pair = b.load(b.floats(2),
                                 b.at(sharedAt(plan.mergeSums, local, 8),
                                      8 * w * plan.mergeHeads()),
                                 8);
             references.push_back(b.get(pair, 0));
             sums.push_back(b.get(pair, 1));
             reference = b.fmax(reference, references.back());
           }
           SmallVector<Value> output(4, b.cf(0));
           Value sum = b.cf(0);
           Value from = b.at(sharedAt(plan.ring, local, 4 * plan.mergeStride()),
                             b.shl(dim, 2));
           for (int64_t w = 0; w < plan.warps; ++w) {
             Value factor = exp2(b.fsub(references[w], reference));
             Value part = b.load(
                 b.floats(4),
                 b.at(from, 4 * w * plan.mergeHeads() * plan.mergeStride()),
                 16);
             for (int64_t k = 0; k < 4; ++k)
               output[k] = b.fma(factor, b.get(part, k), output[k]);
             sum = b.fma(factor, sums[w], sum);
           }
           auto whole = scf::IfOp::create(b, b.eq(splits, 1), true);
           OpBuilder::InsertionGuard guard(b);
           b.setInsertionPoint(whole.thenYield());
           writeOutput(h, dim, output, sum, reference);
           b.setInsertionPoint(whole.elseYield());
           Value to = partialAddress(split, h);
           b.store(b.pack(output), b.at(to, b.shl(dim, 2)), 16);
           b.ifThen(b.eq(dim, 0), [&] {
             b.store(b.pack({b.fmul(reference, b.cf(kLn2)), sum}),
                     b.at(to, 4 * plan.layout.paddedValueDim()), 8);
           });
           return {};
         });
}

/// The sum of pieces first, first + step, ... of a head for four dims: outputs,
/// sum and reference. Several loads go ahead.
SmallVector<Value> KernelEmitter::mergeSomePieces(Value h, Value dim,
                                                  Value first, int64_t step) {
  SmallVector<Value> carried(5, b.cf(0));
  carried.push_back(b.cf(kNoReference));
  return b.loop(
      first, splits, b.c32(step * kPiecesAtOnce), carried,
      [&](Value piece0, ValueRange sofar) {
        SmallVector<Value> parts, references, sums;
        Value reference = sofar[5];
        // Addresses in equal steps from one, and no branch: the loads of all
        // pieces go at once, and those of pieces that are not there not at all.
        Value base = partialAddress(piece0, h);
        int64_t stride = step * plan.group * 4 * plan.layout.partialFloats();
        for (int64_t k = 0; k < kPiecesAtOnce; ++k) {
          Value exists = b.lt(b.add(piece0, k * step), splits);
          Value from = b.at(base, k * stride);
          parts.push_back(loadPartial(4, b.at(from, b.shl(dim, 2)), exists));
          Value pair = loadPartial(
              2, b.at(from, 4 * plan.layout.paddedValueDim()), exists);
          references.push_back(b.select(exists,
                                        b.fmul(b.get(pair, 0), b.cf(kLog2e)),
                                        b.infinity(/*negative=*/true)));
          sums.push_back(b.get(pair, 1));
          reference = b.fmax(reference, references.back());
        }
        SmallVector<Value> next;
        Value factor = exp2(b.fsub(sofar[5], reference));
        for (int64_t k = 0; k < 5; ++k)
          next.push_back(b.fmul(sofar[k], factor));
        for (int64_t p = 0; p < kPiecesAtOnce; ++p) {
          Value weight = exp2(b.fsub(references[p], reference));
          for (int64_t k = 0; k < 4; ++k)
            next[k] = b.fma(weight, b.get(parts[p], k), next[k]);
          next[4] = b.fma(weight, sums[p], next[4]);
        }
        next.push_back(reference);
        return next;
      });
}

/// Merges the pieces of the row. Where there are more threads than heads and
/// dims, several share the pieces and leave their parts in shared memory.
void KernelEmitter::mergePieces() {
  int64_t quads = plan.layout.paddedValueDim() / 4;
  int64_t items = plan.group * quads, parts = plan.mergeParts();
  auto place = [&](Value item, Value &h, Value &dim) {
    h = b.udiv(item, b.c32(quads));
    dim = b.shl(b.sub(item, b.mul(h, quads)), 2);
  };
  if (parts == 1) {
    b.loop(thread, b.c32(items), b.c32(plan.threads()), {},
           [&](Value item, ValueRange) -> SmallVector<Value> {
             Value h, dim;
             place(item, h, dim);
             SmallVector<Value> all = mergeSomePieces(h, dim, b.c32(0), 1);
             writeOutput(h, dim, ArrayRef<Value>(all).take_front(4), all[4],
                         all[5]);
             return {};
           });
    return;
  }
  Value part = b.udiv(thread, b.c32(items));
  Value item = b.sub(thread, b.mul(part, items));
  Value h, dim;
  place(item, h, dim);
  b.ifThen(b.lt(part, parts), [&] {
    SmallVector<Value> some = mergeSomePieces(h, dim, part, parts);
    Value to = sharedAt(plan.ring, thread, kMergedPartBytes);
    b.store(b.pack(ArrayRef<Value>(some).take_front(4)), to, 16);
    b.store(b.pack({some[4], some[5]}), b.at(to, 16), 8);
  });
  teamBarrier();
  b.ifThen(b.eq(part, 0), [&] {
    SmallVector<Value> outputs, pairs;
    Value reference = b.cf(kNoReference);
    for (int64_t p = 0; p < parts; ++p) {
      Value from = b.at(sharedAt(plan.ring, item, kMergedPartBytes),
                        p * items * kMergedPartBytes);
      outputs.push_back(b.load(b.floats(4), from, 16));
      pairs.push_back(b.load(b.floats(2), b.at(from, 16), 8));
      reference = b.fmax(reference, b.get(pairs.back(), 1));
    }
    SmallVector<Value> output(4, b.cf(0));
    Value sum = b.cf(0);
    for (int64_t p = 0; p < parts; ++p) {
      Value weight = exp2(b.fsub(b.get(pairs[p], 1), reference));
      for (int64_t k = 0; k < 4; ++k)
        output[k] = b.fma(weight, b.get(outputs[p], k), output[k]);
      sum = b.fma(weight, b.get(pairs[p], 0), sum);
    }
    writeOutput(h, dim, output, sum, reference);
  });
}

LogicalResult KernelEmitter::emitFinish(TileFinishOp op) {
  emitCoordinates(/*again=*/true);
  centred = bool(op.getCache());
  if (centred && !plan.traits.refines)
    return op.emitOpError("has a centre in a program that refines nothing, "
                          "expected the ops that --ffd-tile makes");
  const StateValue &state = states[op.getState()];
  for (int64_t t = 0; t < plan.headTiles; ++t) {
    // Nobody uses the rings, or the tile before, any more.
    teamBarrier();
    if (centred && t == 0)
      scoreCentre();
    storeWarpState(state, t);
    teamBarrier();
    mergeWarps(t);
  }
  if (op.getSkipped())
    mergeSkippedWarps();
  if (countsKept && plan.traits.refines)
    b.ifThen(b.eq(warp, 0), [&] {
      Value tiles = b.load(b.i32(), shared(plan.keptSum), 4);
      addKeptCount(b.shr(tiles, llvm::Log2_64(plan.layout.selectBlock / 16)));
    });
  b.ifThen(b.gt(splits, b.c32(1)), [&] {
    Value counter = b.at(arg(KernelArg::workspace), scaled(placeRow(), 4));
    Value last =
        GPUArriveOp::create(b, b.i1(), counter, splits, shared(plan.flag));
    b.ifThen(last, [&] {
      if (op.getSkipped())
        mergeSkippedPieces();
      mergePieces();
    });
  });
  return success();
}
