//===- ApiCase.h - A cache under test and what it should hold -*- C++ -*- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Drives an ffdCache through the C interface and keeps the plain tokens of
// every sequence beside it. check() decodes and compares bit for bit with the
// reference decode over a cache that is built afresh from those tokens, so
// nothing that happened on the way may show.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TEST_UNIT_APICASE_H
#define FFD_TEST_UNIT_APICASE_H

#include "RandomCase.h"

#include "ffd/ffd.h"

#include <map>
#include <random>
#include <string>
#include <vector>

namespace ffd {

/// A context whose kernels are the reference decode.
ffdContext *referenceContext();

class ApiCase {
public:
  explicit ApiCase(const ffdCacheOptions &options, uint32_t seed = 1,
                   ffdContext *context = referenceContext());
  ~ApiCase() { ffdCacheDestroy(cache); }

  /// Options of a small cache.
  static ffdCacheOptions small(const ffdSpec &spec = makeSpec());

  struct Tokens {
    std::vector<std::vector<uint16_t>> k, v; ///< per layer, [token][head][dim]
    int64_t length = 0, committed = 0;
  };

  int32_t create();
  int32_t fork(int32_t sequence);
  void free(int32_t sequence);
  /// Appends random tokens to all layers; returns the status of the last call.
  ffdStatus append(const std::vector<int32_t> &sequences,
                   const std::vector<int32_t> &counts);
  ffdStatus truncate(int32_t sequence, int64_t length);
  /// Decodes the sequences in one batch per layer and compares.
  void check(const std::vector<int32_t> &sequences);
  /// Compares gathered tokens with what was appended.
  void checkGather(int32_t sequence);
  /// Decodes and returns the bits of out and lse of one layer.
  std::vector<float> decode(const std::vector<int32_t> &sequences,
                            const std::vector<uint16_t> &q, int32_t layer = 0);
  std::vector<uint16_t> queries(size_t sequences);
  /// A cache of that sequence and layer, built from its tokens.
  std::unique_ptr<SplitCache> fresh(int32_t sequence, int64_t layer);

  int64_t queryHeads() const {
    return int64_t(options.kv_heads) * options.spec.group;
  }

  ffdCacheOptions options;
  ffdCache *cache = nullptr;
  std::map<int32_t, Tokens> tokens;
  std::mt19937 random;
  float keySpread = 1, keyMean = 0;
};

} // namespace ffd

#define FFD_OK(call) ASSERT_EQ(call, FFD_SUCCESS) << ffdLastErrorMessage()

#endif // FFD_TEST_UNIT_APICASE_H
