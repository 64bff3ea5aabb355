//===- ReferenceDecode.h - A slow decode, exactly by the spec -*- C++ -*- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Walks the packed cache in plain scalar code, rule by rule of
// docs/numerics.md: bit-exact in everything that decides what is kept, float64
// in the attention. The oracle for generated kernels.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TEST_UNIT_REFERENCEDECODE_H
#define FFD_TEST_UNIT_REFERENCEDECODE_H

#include "ffd/Spec.h"

#include <cstdint>
#include <vector>

namespace ffd {

class ReferenceDecode {
public:
  /// The arguments (host memory, checked by the caller) outlive the object.
  ReferenceDecode(const ffdSpec &spec, const ffdDecodeArgs &args);

  /// Everything the rules name, of one row.
  struct Row {
    bool nonFinite = false;          ///< query_c5
    int exponent = 0;                ///< k of query_c1
    std::vector<uint16_t> smax;      ///< smax' per channel, f16 bits
    std::vector<float> m, unit;      ///< per head: m of query_c2, F of query_c4
    std::vector<int> e;              ///< per head, query_c3
    std::vector<uint16_t> qh;        ///< [head][channel] f16 bits, query_c3
    std::vector<int32_t> scores;     ///< [head][committed token] a_int
    std::vector<int32_t> refinedMax; ///< per head, over select_c5
    std::vector<float> tailScores;   ///< [head][tail token] tail_c1
    std::vector<int32_t> pseudoMax, threshold; ///< per head, select_c1, c2
    std::vector<uint8_t> kept;                 ///< per selection block
    std::vector<double> out;                   ///< [head][value_dim]
    std::vector<double> lse;                   ///< per head
    std::vector<double> squares; ///< [head][block] sum Q^2 of cert_c2
    /// Per head with a certificate: the least and the largest skipped_lse.
    std::vector<double> skippedLeast, skippedMost;
  };
  Row row(int64_t sequence, int64_t head) const;
  /// Where a head of a row (of any query token) has its output and lse.
  int64_t outputIndex(int64_t sequence, int64_t head, int64_t g) const;

  /// Writes out, lse and kept of one row as a kernel does.
  void run(int64_t row) const;

  /// A CPU kernel entry of this specification, of which piece 0 does all the
  /// work of its row. `spec` stays set until the next call.
  static void entry(const ffdDecodeArgs *args, int64_t row, int64_t split);
  static void setEntrySpec(const ffdSpec &spec);
  /// A launch that follows a plan (args->plan), of the same specification.
  static void launchPlanned(const ffdDecodeArgs *args);

private:
  void prepareQuery(int64_t sequence, int64_t head, Row &r) const;
  void scan(int64_t sequence, int64_t head, Row &r) const;
  void scoreTail(int64_t sequence, int64_t head, Row &r) const;
  void select(int64_t sequence, Row &r) const;
  void attend(int64_t sequence, int64_t head, Row &r) const;
  void certify(int64_t sequence, int64_t head, Row &r) const;
  /// What centre_c4 adds to the lse of a head; 0 over plain keys.
  double centreScore(int64_t sequence, int64_t head, int64_t g) const;

  /// The element bits of q.
  const uint16_t *query(int64_t sequence, int64_t head, int64_t g) const;
  /// Tail tokens that a head sees; not positive if none.
  int64_t seen(int64_t sequence, int64_t g) const;
  const uint8_t *slot(const void *plane, int64_t bytes, int64_t sequence,
                      int64_t block, int64_t head) const;
  float toFloat(uint16_t bits) const;

  const ffdSpec spec;
  const Layout layout;
  const ffdDecodeArgs &args;
};

} // namespace ffd
#endif // FFD_TEST_UNIT_REFERENCEDECODE_H
