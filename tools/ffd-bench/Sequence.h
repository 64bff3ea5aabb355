//===- Sequence.h - A synthetic sequence with a known keep ratio --*- C++
//-*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// K and V of one sequence shaped like what models produce: sinks, a local
// window, heavy hitters in clusters, outlier channels, topics that drift.
// Queries are scaled so that the wanted share of 128-token blocks is kept (the
// method of scripts/make-case, threaded).
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDBENCH_SEQUENCE_H
#define FFD_TOOLS_FFDBENCH_SEQUENCE_H

#include "ffd/Memory.h"
#include "ffd/Spec.h"
#include "ffd/ThreadPool.h"

#include "llvm/Support/Error.h"

#include <memory>
#include <vector>

namespace ffd::bench {

struct SequenceOptions {
  ffdSpec spec = {};
  int64_t kvHeads = 0;
  int64_t tokens = 0; ///< of the longest view
  int64_t lag = 0;
  std::vector<int64_t> lengths; ///< prefixes that have a local window
  int variants = 1;             ///< different queries
  double keep = 0.064;          ///< share of blocks with heavy hitters
  float delta = 5;
  uint64_t seed = 1;
};

class Sequence {
public:
  static llvm::Expected<std::unique_ptr<Sequence>>
  generate(const SequenceOptions &options, ThreadPool &pool);

  /// [kvHeads][tokens][dim], elements. Where the spec has a centre, keys are
  /// relative to it already.
  const uint16_t *k(int64_t head = 0, int64_t token = 0) const {
    return keys.as<uint16_t>() +
           (head * settings.tokens + token) * settings.spec.head_dim;
  }
  const uint16_t *v(int64_t head = 0, int64_t token = 0) const {
    return values.as<uint16_t>() +
           (head * settings.tokens + token) * settings.spec.value_dim;
  }
  /// [kvHeads][head_dim], what keys are relative to; empty for plain ones.
  const std::vector<uint16_t> &centres() const { return centre; }
  /// Writes [kvHeads * group][head_dim] elements: queries that keep the share
  /// `keep` of the blocks of the first `length` tokens.
  void queries(int variant, int64_t length, double keep, uint16_t *q) const;

  const SequenceOptions &options() const { return settings; }

private:
  explicit Sequence(SequenceOptions options) : settings(std::move(options)) {}
  struct Head;
  int64_t queriesPerHead() const {
    return settings.variants * settings.spec.group;
  }
  void makeHead(int64_t head, Head &h);
  void fillKeys(int64_t head, const Head &h, int64_t block);
  void fillValues(int64_t head, const Head &h, int64_t block);
  void centreHead(int64_t head);
  void scanBlock(int64_t head, int64_t block);
  double exactScore(int64_t head, const float *q, int64_t first,
                    int64_t last) const;

  SequenceOptions settings;
  HostBuffer keys, values;
  std::vector<uint16_t> centre;
  std::vector<float> raw;  ///< [head][variant][group][dim], not yet scaled
  std::vector<float> best; ///< [head][block][variant][group] largest scan score
};

/// `count` lengths from 1024 (or fewer) to `tokens` of which most are short.
std::vector<int64_t> raggedLengths(int64_t count, int64_t tokens);

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_SEQUENCE_H
