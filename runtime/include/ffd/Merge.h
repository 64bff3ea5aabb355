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

/// `o = sum p v`, `l = sum p` with `p = exp(f - ref)`. NaN in a score or a
/// value ends in the output, never disappears.
template <typename Real>
struct Partial {
  std::vector<Real> o;
  Real ref = -std::numeric_limits<Real>::infinity();
  Real l = 0;

  explicit Partial(size_t valueDim) : o(valueDim, Real(0)) {}

  /// Adds one token of score `f` and value `v[valueDim]`.
  template <typename Value>
  void add(Real f, const Value *v) {
    rebase(f);
    const Real p = weight(f);
    for (size_t i = 0; i < o.size(); ++i)
      o[i] += p * Real(v[i]);
    l += p;
  }

  /// Adds the tokens of another state.
  void merge(const Partial &other) {
    if (other.empty())
      return;
    rebase(other.ref);
    const Real p = weight(other.ref);
    for (size_t i = 0; i < o.size(); ++i)
      o[i] += p * other.o[i];
    l += p * other.l;
  }

  /// No token so far: its output is 0 and its lse -inf (attend_c3).
  bool empty() const {
    return l == 0 && ref == -std::numeric_limits<Real>::infinity();
  }

  Real output(size_t i) const { return empty() ? Real(0) : o[i] / l; }
  Real lse() const { return empty() ? ref : ref + std::log(l); }

private:
  /// exp(f - ref); 1 where both are the same infinity.
  Real weight(Real f) const { return f == ref ? Real(1) : std::exp(f - ref); }

  /// Makes `f` the reference if it is larger or NaN.
  void rebase(Real f) {
    if (f <= ref)
      return;
    const Real old = ref;
    ref = f;
    if (l == 0 && old == -std::numeric_limits<Real>::infinity())
      return;
    const Real p = std::exp(old - ref);
    for (Real &value : o)
      value *= p;
    l *= p;
  }
};

} // namespace ffd
#endif // FFD_MERGE_H
