//===- Cache.h - Split caches of Python callers -----------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A split cache built from the caller's arrays, and the decodes over it. A
// cache does not change once it is built, so threads may share it.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_PYTHON_CACHE_H
#define FFD_PYTHON_CACHE_H

#include "Arrays.h"
#include "Runtime.h"

#include <memory>
#include <optional>
#include <vector>

namespace ffd::python {

using ConstFloats1 = HostArray<const float, 1>;
using Lengths = HostArray<const int64_t, 1>;
using ConstKept = HostArray<const uint8_t, 3>;

/// The rule and execution of a call; "" is the default of an execution.
Selector parseSelector(const std::string &selector,
                       const std::string &execution);

class Cache {
public:
  /// k [1 or batch, tokens, kv heads, head dim], v likewise; lengths [batch],
  /// or none for all tokens; centre an ffdCentre.
  Cache(Runtime &runtime, nb::handle k, nb::handle v,
        std::optional<Lengths> lengths, int scanBits, bool residuals,
        int64_t lag, int centre);

  /// (out [batch, heads, value dim], lse [batch, heads], kept [batch, kv heads,
  /// selects(selectBlock)], 0 beyond the sequence, skipped lse [batch, heads]
  /// or None without a certificate, an ffdCertificate). With an axis of query
  /// tokens in q, [batch, query tokens, heads, head dim], all but kept have one
  /// too.
  nb::tuple decode(Runtime &runtime, nb::handle q, const ConstFloats1 &delta,
                   float smScale, int selectBlock, int splits,
                   const std::string &selector, const std::string &execution,
                   bool refinedMax, int certificate) const;

  /// (units [batch, heads, committed tokens] or None, unit [batch, heads],
  /// scores [batch, heads, tokens] or None, pseudo-max [batch, heads]), as
  /// ScanOutputs says; the sizes are those of the longest sequence. Query
  /// tokens as of decode.
  nb::tuple scan(Runtime &runtime, nb::handle q, float smScale, bool units,
                 bool scores, bool refinedMax) const;

  /// Bits of c, [batch, kv heads, head dim], or None without centres.
  nb::object centres() const;

  const SplitCache &split() const { return *cache; }
  /// Most selection blocks of a sequence.
  int64_t selects(int selectBlock) const {
    return cache->maxBlocks() * (cache->spec().quant_block / selectBlock);
  }
  /// kept [batch, kv heads, selects(16)], or none: everything.
  DecodeBytes bytes(const std::optional<ConstKept> &kept) const;

private:
  /// The query in aligned memory of its own, and the fields that describe it.
  struct Call;

  std::unique_ptr<SplitCache> cache;
};

/// (out, lse) of exact attention over 16-bit K and V, compiled by FFD too.
nb::tuple exact(Runtime &runtime, nb::handle q, nb::handle k, nb::handle v,
                std::optional<Lengths> lengths, float smScale);

} // namespace ffd::python
#endif // FFD_PYTHON_CACHE_H
