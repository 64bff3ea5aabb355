//===- FFDAttrs.cpp - Attributes of the ffd dialect ------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Verification and helpers of the spec, the selectors and the schedule.
//
//===----------------------------------------------------------------------===//

#include "ffd/Dialect/FFDDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::ffd;

#define GET_ATTRDEF_CLASSES
#include "ffd/Dialect/FFDAttrs.cpp.inc"

void FFDDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "ffd/Dialect/FFDAttrs.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// SpecAttr
//===----------------------------------------------------------------------===//

static bool isOneOf(int64_t value, std::initializer_list<int64_t> allowed) {
  return llvm::is_contained(allowed, value);
}

LogicalResult SpecAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               int64_t headDim, int64_t valueDim, int64_t group,
                               Type element, int64_t scanBits,
                               int64_t quantBlock, int64_t selectBlock,
                               int64_t residualBits, int64_t queryTokens,
                               Centre) {
  auto checkDim = [&](StringRef name, int64_t value) -> LogicalResult {
    if (value == 0 || (value >= 16 && value <= 256 && value % 16 == 0))
      return success();
    return emitError() << name << " is " << value
                       << ", expected a multiple of 16 in 16..256 (spec_c1)";
  };
  if (failed(checkDim("head_dim", headDim)) ||
      failed(checkDim("value_dim", valueDim)))
    return failure();
  if (group < 0 || group > 16)
    return emitError() << "group is " << group << ", expected 1..16 (spec_c2)";
  if (element && !element.isF16() && !element.isBF16())
    return emitError() << "element is " << element
                       << ", expected f16 or bf16 (spec_c3)";
  if (!isOneOf(scanBits, {0, 2, 4, 8, 16}))
    return emitError() << "scan_bits is " << scanBits
                       << ", expected 2, 4, 8 or 16 (spec_c4)";
  if (!isOneOf(quantBlock, {0, 128}))
    return emitError() << "quant_block is " << quantBlock
                       << ", expected 128 (spec_c5)";
  if (!isOneOf(selectBlock, {0, 16, 32, 64, 128}))
    return emitError() << "select_block is " << selectBlock
                       << ", expected 16, 32, 64 or 128 (spec_c6)";
  if (!isOneOf(residualBits, {0, 8}))
    return emitError() << "residual_bits is " << residualBits
                       << ", expected 8 or 0 (spec_c7)";
  if (scanBits == 16 && residualBits != 0)
    return emitError() << "residual_bits is " << residualBits
                       << " with scan_bits = 16, expected 0: keys that are not "
                          "split have no residuals (spec_c7)";
  if (queryTokens < 1 || queryTokens > 8)
    return emitError() << "query_tokens is " << queryTokens
                       << ", expected 1 to 8 (spec_c8)";
  if (group * queryTokens > 16)
    return emitError() << "group * query_tokens is " << group << " * "
                       << queryTokens << ", expected at most 16 (spec_c8)";
  return success();
}

bool SpecAttr::isComplete() const {
  return getHeadDim() && getValueDim() && getGroup() && getElement() &&
         getScanBits() && getQuantBlock() && getSelectBlock();
}

::ffd::Layout SpecAttr::getLayout() const {
  assert(isComplete() && "the layout needs every size");
  return {getHeadDim(),    getValueDim(),    getScanBits(),
          getQuantBlock(), getSelectBlock(), getResidualBits()};
}

std::string SpecAttr::getKernelName() const {
  return llvm::formatv(
      "d{0}-v{1}-g{2}-{3}-b{4}-q{5}-s{6}{7}{8}{9}", getHeadDim(), getValueDim(),
      getGroup(), isBF16() ? "bf16" : "f16", getScanBits(), getQuantBlock(),
      getSelectBlock(), hasResiduals() ? "" : "-r0",
      getQueryTokens() > 1 ? "-n" + std::to_string(getQueryTokens())
                           : std::string(),
      hasCentre() ? "-crow" : "");
}

//===----------------------------------------------------------------------===//
// Selectors and schedule
//===----------------------------------------------------------------------===//

bool mlir::ffd::isRefined(Attribute selector) {
  auto topDelta = dyn_cast_if_present<TopDeltaAttr>(selector);
  return topDelta && topDelta.getPseudoMax() == PseudoMax::refined;
}

Certificate mlir::ffd::getCertificate(Attribute selector) {
  auto topDelta = dyn_cast_if_present<TopDeltaAttr>(selector);
  return topDelta ? topDelta.getCertificate() : Certificate::none;
}

LogicalResult TopKAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               int64_t k) {
  if (k < 1)
    return emitError() << "top_k has k = " << k
                       << ", expected at least 1 (top_k_c1)";
  return success();
}

LogicalResult TopPAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               FloatAttr p) {
  double value = p.getValueAsDouble();
  if (!(value > 0 && value <= 1))
    return emitError() << "top_p has p = " << value
                       << ", expected 0 < p <= 1 (top_p_c1)";
  return success();
}

LogicalResult ScheduleAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   int64_t warps, int64_t ctas, int64_t stages,
                                   int64_t slots) {
  if (!isOneOf(warps, {1, 2, 4, 8, 16}))
    return emitError() << "schedule has warps = " << warps
                       << ", expected 1, 2, 4, 8 or 16 (schedule_c1)";
  if (ctas < 1 || ctas > 8)
    return emitError() << "schedule has ctas = " << ctas
                       << ", expected 1..8 (schedule_c2)";
  if (stages < 1 || stages > 8)
    return emitError() << "schedule has stages = " << stages
                       << ", expected 1..8 (schedule_c3)";
  if (slots < 1 || slots > 8)
    return emitError() << "schedule has slots = " << slots
                       << ", expected 1..8 (schedule_c4)";
  return success();
}
