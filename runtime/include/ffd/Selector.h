//===- Selector.h - Which blocks a decode keeps -----------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rule of a decode and whether selector and computer are one kernel, for
// ablations: the default is the product. docs/numerics.md, "Selectors", has the
// rules.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SELECTOR_H
#define FFD_SELECTOR_H

#include "ffd/Spec.h"

#include <cstdint>
#include <string>

namespace ffd {

enum class Rule { TopDelta, TopK, TopP, All };

struct Selector {
  Rule rule = Rule::TopDelta;
  int64_t k = 0; ///< of Rule::TopK, at least 1
  double p = 0;  ///< of Rule::TopP, above 0 and at most 1
  /// Two kernels that meet in the mask: the paper's split execution. Rules over
  /// the whole row, top_k and top_p, know no other.
  bool split = false;

  bool needsRow() const { return rule == Rule::TopK || rule == Rule::TopP; }
  bool isDefault() const { return rule == Rule::TopDelta && !split; }

  /// The ffdPseudoMax of who names none, in the tools and in Python
  /// (docs/quality.md, "Defaults"): refined scores where the rule has a
  /// pseudo-max and keys have the residuals that refine it, else the scan's. In
  /// the C interface a field that is 0 remains the scan's.
  int32_t defaultPseudoMax(bool residuals) const;

  /// As parse() takes it: "top_delta", "top_k=64", "top_p=0.9" or "all".
  std::string name() const;
  /// As attribute of the compiler's dialect: "#ffd.top_k<64>"; of top_delta,
  /// the only rule that has a pseudo-max, with an ffdPseudoMax.
  std::string attribute(int32_t pseudoMax = 0, int32_t certificate = 0) const;
  /// The same of a specification.
  std::string attribute(const ffdSpec &spec) const {
    return attribute(spec.pseudo_max, spec.certificate);
  }

  /// Parses a rule and, if it is not empty, an execution ("fused" or "split");
  /// by default a rule is fused if it can be. The messages of errors start with
  /// `ruleName` and `executionName`, what the caller calls the two.
  static Status parse(const std::string &rule, const std::string &execution,
                      const std::string &ruleName,
                      const std::string &executionName, Selector &selector);
};

} // namespace ffd
#endif // FFD_SELECTOR_H
