//===- RandomCase.h - Random decodes for the tests -*- C++ -*- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A seeded decode: q, K and V of some shape, the cache built from them and the
// arguments of a kernel, with outputs that begin as garbage.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TEST_UNIT_RANDOMCASE_H
#define FFD_TEST_UNIT_RANDOMCASE_H

#include "ffd/Cache.h"
#include "ffd/Kernel.h"
#include "ffd/ThreadPool.h"

#include <memory>
#include <random>
#include <vector>

namespace ffd {

ffdSpec makeSpec(int headDim = 128, int valueDim = 128, int group = 4,
                 int element = FFD_F16, int scanBits = 2, int selectBlock = 16);

struct CaseShape {
  ffdSpec spec = makeSpec();
  int64_t kvHeads = 2;
  std::vector<int64_t> lengths = {300};
  bool sharedKV = false;
  int64_t lag = 0;
  float delta = 5;
  double keySpread = 1;
  uint64_t pageSeed = 0;
};

class RandomCase {
public:
  RandomCase(const CaseShape &shape, uint32_t seed);

  CaseShape shape;
  int64_t tokens = 0; ///< of K and V: some more than the longest length
  std::vector<uint16_t> k, v;
  std::unique_ptr<SplitCache> cache;
  HostBuffer q, out, lse, skipped, kept; ///< skipped: with a certificate
  std::vector<float> delta;
  ffdDecodeArgs args = {};

  int64_t batch() const { return int64_t(shape.lengths.size()); }
  int64_t queryHeads() const { return shape.kvHeads * shape.spec.group; }
  /// Builds the cache again from k and v, and the arguments.
  void build();
  /// Gives all query heads of a kv head the same query, and tokens `from` to
  /// `to` - 1 of a sequence keys that are its opposite, far below all others;
  /// builds again. One query token, K of its own for each sequence.
  void oppose(int64_t sequence, int64_t from, int64_t to);
  /// Float64 attention over the unsplit K: out of one query head, and its lse.
  std::vector<double> denseAttention(int64_t sequence, int64_t queryHead,
                                     double &lse) const;
  float key(int64_t sequence, int64_t token, int64_t head, int64_t c) const;
};

/// Every head dim, both elements, every b: the specs a property runs over.
std::vector<ffdSpec> allSplitSpecs();

/// One pool for all tests.
ThreadPool &testPool();

} // namespace ffd
#endif // FFD_TEST_UNIT_RANDOMCASE_H
