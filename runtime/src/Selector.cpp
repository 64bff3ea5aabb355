//===- Selector.cpp - Which blocks a decode keeps -------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ffd/Selector.h"

#include "ffd/abi.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>

using namespace ffd;

/// The shortest text of a number that reads back as itself, with a point or an
/// exponent.
static std::string textOf(double value) {
  char text[32];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value)
      break;
  }
  std::string result = text;
  return result.find_first_of(".e") == std::string::npos ? result + ".0"
                                                         : result;
}

std::string Selector::name() const {
  switch (rule) {
  case Rule::TopDelta:
    return "top_delta";
  case Rule::TopK:
    return "top_k=" + std::to_string(k);
  case Rule::TopP:
    return "top_p=" + textOf(p);
  case Rule::All:
    return "all";
  }
  return "";
}

int32_t Selector::defaultPseudoMax(bool residuals) const {
  return rule == Rule::TopDelta && residuals ? FFD_PSEUDO_MAX_REFINED
                                             : FFD_PSEUDO_MAX_SCAN;
}

std::string Selector::attribute(int32_t pseudoMax, int32_t certificate) const {
  switch (rule) {
  case Rule::TopDelta: {
    std::string text = pseudoMax ? "pseudo_max = refined" : "";
    if (certificate)
      text += std::string(pseudoMax ? ", " : "") +
              "certificate = " + certificateName(certificate);
    return text.empty() ? "#ffd.top_delta" : "#ffd.top_delta<" + text + ">";
  }
  case Rule::TopK:
    return "#ffd.top_k<" + std::to_string(k) + ">";
  case Rule::TopP: {
    // MLIR's numbers have a point.
    char text[48];
    std::snprintf(text, sizeof text, "%.17e", p);
    return std::string("#ffd.top_p<") + text + " : f64>";
  }
  default:
    return "#ffd." + name();
  }
}

Status Selector::parse(const std::string &rule, const std::string &execution,
                       const std::string &ruleName,
                       const std::string &executionName, Selector &selector) {
  Selector result;
  const auto bad = [&](const char *expected) {
    return Status::invalid(ruleName + " is '" + rule + "', expected " +
                           expected);
  };
  const auto valueOf = [&](const char *prefix) -> const char * {
    const std::string start = prefix;
    return rule.compare(0, start.size(), start) == 0
               ? rule.c_str() + start.size()
               : nullptr;
  };
  char *end = nullptr;
  if (rule == "all") {
    result.rule = Rule::All;
  } else if (const char *text = valueOf("top_k=")) {
    result.rule = Rule::TopK;
    errno = 0;
    result.k = std::strtoll(text, &end, 10);
    if (end == text || *end || errno || result.k < 1)
      return bad("top_k=K with a whole number K of at least 1");
  } else if (const char *text = valueOf("top_p=")) {
    result.rule = Rule::TopP;
    result.p = std::strtod(text, &end);
    if (end == text || *end || !(result.p > 0 && result.p <= 1))
      return bad("top_p=P with a number P above 0 and at most 1");
  } else if (rule != "top_delta") {
    return bad("top_delta, top_k=K, top_p=P or all");
  }
  if (!execution.empty() && execution != "fused" && execution != "split")
    return Status::invalid(executionName + " is '" + execution +
                           "', expected fused or split");
  if (execution == "fused" && result.needsRow())
    return Status::invalid(executionName + " is 'fused' with " + ruleName +
                           " '" + rule +
                           "', expected split: the rule needs the scores of "
                           "the whole row before it keeps a block");
  result.split = execution == "split" || result.needsRow();
  selector = result;
  return Status::success();
}
