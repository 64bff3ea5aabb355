//===- Merge.h - Log-sum-exp merge of partial results -----------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The state of a softmax-weighted sum over some of the tokens, and its merge
// with the state over others (attend_c2 to attend_c4). Header only; generated
// kernels do the same in their own code.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_MERGE_H
#define FFD_MERGE_H

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace ffd {

/// `o = sum p v`, `l = sum p` with `p = exp(f - ref)`. The result is that of
/// exp(f - max f) over all tokens at once, bad numbers included: NaN in a score
/// or a value, an infinite score and nothing but scores of -inf give NaN; a
/// score of -inf beside finite ones has no weight.
template <typename Real>
struct Partial {
  std::vector<Real> o;
  Real ref = -std::numeric_limits<Real>::infinity();
  Real l = 0;
  bool seen = false; ///< any token so far

  explicit Partial(size_t valueDim) : o(valueDim, Real(0)) {}

  /// Adds one token of score `f` and value `v[valueDim]`.
  template <typename Value>
  void add(Real f, const Value *v) {
    seen = true;
    rebase(f);
    const Real p = weight(f);
    for (size_t i = 0; i < o.size(); ++i)
      o[i] += p * Real(v[i]);
    l += p;
  }

  /// Adds the tokens of another state.
  void merge(const Partial &other) {
    seen |= other.seen;
    rebase(other.ref);
    const Real p = weight(other.ref);
    for (size_t i = 0; i < o.size(); ++i)
      o[i] += p * other.o[i];
    l += p * other.l;
  }

  /// No token gives an output of 0 and an lse of -inf (attend_c3).
  Real output(size_t i) const { return seen ? o[i] / l : Real(0); }
  Real lse() const { return seen ? ref + std::log(l) : ref; }

private:
  static bool isNone(Real f) {
    return f == -std::numeric_limits<Real>::infinity();
  }
  /// exp(f - ref), NaN for an infinite reference that is not -inf.
  Real weight(Real f) const { return isNone(f) ? Real(0) : std::exp(f - ref); }

  /// Makes `f` the reference if it is larger or NaN.
  void rebase(Real f) {
    if (f <= ref)
      return;
    const Real p = isNone(ref) ? Real(0) : std::exp(ref - f);
    ref = f;
    for (Real &value : o)
      value *= p;
    l *= p;
  }
};

} // namespace ffd
#endif // FFD_MERGE_H
