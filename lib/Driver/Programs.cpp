//===- Programs.cpp - The programs that the compiler knows  -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The programs are kept as text: it is what a reader would write by hand, and
// what `ffd-compile --emit=ffd` prints.
//
//===----------------------------------------------------------------------===//

#include "ffd/Driver/Programs.h"

#include "PlanProgram.h"

#include "ffd/Spec.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::ffd;

SpecAttr
mlir::ffd::getSpecAttr(MLIRContext *context, const ffdSpec &spec,
                       llvm::function_ref<InFlightDiagnostic()> emitError) {
  Type element = spec.element == FFD_BF16 ? Type(BFloat16Type::get(context))
                                          : Type(Float16Type::get(context));
  auto make = [&](auto &&create) {
    return create(context, int64_t(spec.head_dim), int64_t(spec.value_dim),
                  int64_t(spec.group), element, int64_t(spec.scan_bits),
                  int64_t(spec.quant_block), int64_t(spec.select_block),
                  int64_t(spec.no_residuals ? 0 : 8),
                  int64_t(::ffd::queryTokens(spec)),
                  spec.centre == FFD_CENTRE_ROW ? Centre::row : Centre::none);
  };
  if (!emitError)
    return make([](auto... fields) { return SpecAttr::get(fields...); });
  return make([&](auto... fields) {
    return SpecAttr::getChecked(emitError, fields...);
  });
}

static const char decodeText[] = R"mlir(
!query = tensor<?x?x$Dx$E>
!heads_i32 = tensor<?x?xi32>
!heads_f32 = tensor<?x?xf32>
!blocks_i32 = tensor<?x?x?xi32>
!mask = tensor<?x?x?xi8>
!out = tensor<?x?x$Vxf32>
!cache = !ffd.cache<$SPEC>

func.func @decode(%q: !query, %thumbnails: memref<?x?x$TBxi8>,
    %residuals: memref<?x?x$RBxi8>, %values: memref<?x?x$VNx$E>,
    %smax: memref<?x?x$PDx$E>, %tail_k: memref<?x?x?x$Dx$E>,
    %tail_v: memref<?x?x?x$Vx$E>, %pages: memref<?x?xi32>,
    %lengths: memref<?xi32>, %lag: i32$CARG, %delta: tensor<?xf32>,
    %sm_scale: f32, %out: !out, %lse: !heads_f32, %kept: !mask$SARG)
    -> (!out, !heads_f32, !mask$SRES) {
  %cache = ffd.cache.view thumbnails(%thumbnails) residuals(%residuals)
      values(%values) smax(%smax) tails(%tail_k, %tail_v) pages(%pages)
      lengths(%lengths) lag(%lag)$CVIEW
      : memref<?x?x$TBxi8>, memref<?x?x$RBxi8>, memref<?x?x$VNx$E>,
        memref<?x?x$PDx$E>, memref<?x?x?x$Dx$E>, memref<?x?x?x$Vx$E>,
        memref<?x?xi32>, memref<?xi32> -> !cache
$BODY}
)mlir";

static const char stepsText[] = R"mlir(  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %batch = tensor.dim %lse, %c0 : !heads_f32
  %heads = tensor.dim %lse, %c1 : !heads_f32
  %blocks = tensor.dim %kept, %c2 : !mask
  %max0 = tensor.empty(%batch, %heads) : !heads_i32
  %unit0 = tensor.empty(%batch, %heads) : !heads_f32
  %best0 = tensor.empty(%batch, %heads, %blocks) : !blocks_i32
  %max, %unit = ffd.pseudo_max $REFINED ins(%q, %cache, %sm_scale : !query, !cache)
      outs(%max0, %unit0 : !heads_i32, !heads_f32) -> !heads_i32, !heads_f32
  %best = ffd.scan ins(%q, %cache : !query, !cache) outs(%best0 : !blocks_i32)
      -> !blocks_i32
  %mask = ffd.select $SELECTOR
      ins(%best, %max, %unit, %delta, %cache
          : !blocks_i32, !heads_i32, !heads_f32, tensor<?xf32>, !cache)
      outs(%kept : !mask) -> !mask
  %o, %l = ffd.attend ins(%q, %cache, %mask, %sm_scale : !query, !cache, !mask)
      outs(%out, %lse : !out, !heads_f32) -> !out, !heads_f32
  return %o, %l, %mask : !out, !heads_f32, !mask)mlir";

/// With a certificate, which no step hands on.
static const char fusedText[] =
    R"mlir(  %o, %l, %mask, %s = ffd.decode $SELECTOR
      ins(%q, %cache, %delta, %sm_scale : !query, !cache, tensor<?xf32>)
      outs(%out, %lse, %kept, %skipped : !out, !heads_f32, !mask, !heads_f32)
      -> !out, !heads_f32, !mask, !heads_f32
  return %o, %l, %mask, %s : !out, !heads_f32, !mask, !heads_f32)mlir";

static const char exactText[] = R"mlir(
!query = tensor<?x?x$Dx$E>
!keys = memref<?x?x?x$Dx$E>
!values = memref<?x?x?x$Vx$E>
!out = tensor<?x?x$Vxf32>
!lse = tensor<?x?xf32>

func.func @exact(%q: !query, %keys: !keys, %values: !values,
    %lengths: memref<?xi32>, %sm_scale: f32, %out: !out, %lse: !lse)
    -> (!out, !lse) {
  %o, %l = ffd.exact $SPEC
      ins(%q, %keys, %values, %lengths, %sm_scale
          : !query, !keys, !values, memref<?xi32>)
      outs(%out, %lse : !out, !lse) -> !out, !lse
  return %o, %l : !out, !lse
}
)mlir";

static const char appendText[] = R"mlir(
!keys = memref<?x?x$Dx$E>
!vals = memref<?x?x$Vx$E>
!cache = !ffd.cache<$SPEC>

func.func @append(%keys: !keys, %vals: !vals, %offsets: memref<?xi32>,
    %reserved: memref<?xi32>, %thumbnails: memref<?x?x$TBxi8>,
    %residuals: memref<?x?x$RBxi8>, %values: memref<?x?x$VNx$E>,
    %smax: memref<?x?x$PDx$E>, %tail_k: memref<?x?x?x$Dx$E>,
    %tail_v: memref<?x?x?x$Vx$E>, %pages: memref<?x?xi32>,
    %lengths: memref<?xi32>, %lag: i32$CARG, %new_lengths: memref<?xi32>,
    %errors: memref<?xi32>) {
  %cache = ffd.cache.view thumbnails(%thumbnails) residuals(%residuals)
      values(%values) smax(%smax) tails(%tail_k, %tail_v) pages(%pages)
      lengths(%lengths) lag(%lag)$CVIEW
      : memref<?x?x$TBxi8>, memref<?x?x$RBxi8>, memref<?x?x$VNx$E>,
        memref<?x?x$PDx$E>, memref<?x?x?x$Dx$E>, memref<?x?x?x$Vx$E>,
        memref<?x?xi32>, memref<?xi32> -> !cache
  ffd.append ins(%keys, %vals, %offsets, %reserved
      : !keys, !vals, memref<?xi32>, memref<?xi32>) into %cache : !cache
      outs(%new_lengths, %errors : memref<?xi32>, memref<?xi32>)
  return
}
)mlir";

static StringRef programText(Program program) {
  switch (program) {
  case Program::Decode:
    return decodeText;
  case Program::Exact:
    return exactText;
  case Program::Append:
    return appendText;
  case Program::Plan:
    return planText;
  }
  llvm_unreachable("all programs have a text");
}

OwningOpRef<ModuleOp> mlir::ffd::buildProgram(MLIRContext *context,
                                              Program program, SpecAttr spec,
                                              StringRef selector) {
  // The pseudo-max is another step than the selection.
  Attribute rule = parseAttribute(selector, context);
  if (!rule)
    return {};
  ::ffd::Layout layout = spec.getLayout();
  std::string specText;
  llvm::raw_string_ostream(specText) << spec;
  const bool centred = spec.hasCentre();
  const bool certified = getCertificate(rule) != Certificate::none;
  // Longer names first: $TB must not be read as $T. $D and $E are in others'
  // text.
  std::pair<StringRef, std::string> replacements[] = {
      {"$BODY", certified ? fusedText : stepsText},
      {"$SARG", certified ? ", %skipped: !heads_f32" : ""},
      {"$SRES", certified ? ", !heads_f32" : ""},
      {"$CARG", centred ? ", %centre: memref<?x?x$Dx$E>" : ""},
      {"$CVIEW", centred ? " centre(%centre : memref<?x?x$Dx$E>)" : ""},
      {"$SELECTOR", selector.str()},
      {"$REFINED", isRefined(rule) ? "refined" : ""},
      {"$SPEC", specText},
      {"$TB", std::to_string(layout.thumbnailBytes())},
      {"$RB", std::to_string(layout.residualBytes())},
      {"$VN", std::to_string(layout.valueBytes() / 2)},
      {"$PD", std::to_string(layout.paddedHeadDim())},
      {"$D", std::to_string(spec.getHeadDim())},
      {"$V", std::to_string(spec.getValueDim())},
      {"$E", spec.isBF16() ? "bf16" : "f16"}};
  std::string text = programText(program).str();
  for (auto &[name, value] : replacements)
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos;
         at += value.size())
      text.replace(at, name.size(), value);
  return parseSourceString<ModuleOp>(text, context);
}
