//===- EmitTail.cpp - Scores of 16-bit tokens ---------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// tail_c1 of docs/numerics.md: the 16 partial sums are the lanes of a vector,
// and folding halves of two vectors at a time is just the prescribed order, so
// that one form serves `ordered` and any order alike. Keys are widened once for
// several heads.
//
//===----------------------------------------------------------------------===//

#include "Emitter.h"

using namespace mlir;
using namespace mlir::ffd;

void Emitter::emitDot(const QueryValue &query, Value keys, Value logits) {
  // Ask for the next tile: one is about a page, where the hardware's prefetcher
  // stops.
  b.headGroups(group, /*atOnce=*/4, [&](Value first, int64_t heads) {
    Value queries = b.at(query.natural, b.mul(first, b.i64(paddedDim * 4)));
    auto leaf = [&](int64_t token) {
      SmallVector<Value> sums(heads, b.zeros());
      b.prefetchRow(keys, token + ::ffd::kTileTokens, layout.headDim * 2);
      for (int64_t c = 0; c < layout.headDim; c += 16) {
        Value k =
            b.widen(b.load(b.vec(b.getI16Type()),
                           b.at(keys, (token * layout.headDim + c) * 2), 2),
                    spec.isBF16());
        for (int64_t h = 0; h < heads; ++h) {
          Value q = b.loadF32(b.at(queries, (h * paddedDim + c) * 4));
          sums[h] = b.fma(q, k, sums[h]);
        }
      }
      return sums;
    };
    SmallVector<Value> sums = b.foldTree(leaf);
    Value to = b.at(logits, b.shl(first, 6));
    for (int64_t h = 0; h < heads; ++h)
      b.store(b.mul(sums[h], b.splat(query.smScale)), b.at(to, h * 64), 64);
  });
}

LogicalResult Emitter::emit(TileDotOp op) {
  Value logits = b.alloca(group * 64);
  emitDot(get<QueryValue>(op.getQuery()), get<TailValue>(op.getTail()).keys,
          logits);
  set(op.getResult(), LogitsValue{logits});
  return success();
}
