//===- Centre.cpp - What lse lacks over centred keys -- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// centre_c4. Every team computes it, while its warps merge their states: the
// one that writes the result needs it at once.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"

using namespace mlir;
using namespace mlir::ffd;

/// A thread per head and eight channels. Its sum goes where the query of the
/// refinement was, which is larger; all warps are done with it, and a barrier
/// follows.
void KernelEmitter::scoreCentre() {
  const int64_t chunks = plan.layout.headDim / 8;
  Value row64 = b.zext64(row);
  auto isGiven = [&](KernelArg which) {
    return b.ne(LLVM::PtrToIntOp::create(b, b.i64(), arg(which)), 0);
  };
  Value given = isGiven(KernelArg::lse);
  if (plan.traits.certified())
    given = b.bor(given, isGiven(KernelArg::skipped_lse));
  Value items = b.select(given, b.c32(plan.group * chunks), b.c32(0));
  b.loop(thread, items, b.c32(plan.threads()), {},
         [&](Value item, ValueRange) -> SmallVector<Value> {
           Value h = b.udiv(item, b.c32(chunks));
           Value chunk = b.sub(item, b.mul(h, chunks));
           auto words = [&](KernelArg which, Value element) {
             Value address = b.at(arg(which), b.shl(element, 1));
             return b.unpack(b.loadConstant(
                 b.words(4), b.at(address, b.shl(chunk, 4)), 16));
           };
           SmallVector<Value> q = words(KernelArg::q, queryOffset(h));
           SmallVector<Value> c =
               words(KernelArg::centre, b.mul(row64, plan.layout.headDim));
           Value sum = b.cf(0);
           for (auto [x, y] : llvm::zip(q, c)) {
             sum = b.fma(b.lowFloat(x, plan.element),
                         b.lowFloat(y, plan.element), sum);
             sum = b.fma(b.highFloat(x, plan.element),
                         b.highFloat(y, plan.element), sum);
           }
           b.store(sum, sharedAt(plan.refineQuery, item, 4), 4);
           return {};
         });
}

/// What is added to the lse of a head.
Value KernelEmitter::centreScore(Value h) {
  const int64_t chunks = plan.layout.headDim / 8;
  Value from = sharedAt(plan.refineQuery, h, 4 * chunks);
  Value sum = b.cf(0);
  for (int64_t i = 0; i < chunks; ++i)
    sum = b.fadd(sum, b.load(b.f32(), b.at(from, 4 * i), 4));
  return b.fmul(arg(KernelArg::sm_scale), sum);
}
