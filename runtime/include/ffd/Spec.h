//===- Spec.h - Checks and names of a kernel specialisation -----*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Helpers around ffdSpec: its limits, its layout, its equality and the short
// name that file names use. Header only.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SPEC_H
#define FFD_SPEC_H

#include "ffd/Status.h"
#include "ffd/abi.h"
#include "ffd/layout.h"

#include <string>

namespace ffd {

/// Which program a kernel runs: the sparse decode over a split cache, exact
/// attention over row-major 16-bit K and V, or the append to a split cache
/// (GPU only; of the spec, group and select_block do not matter to it), or the
/// planning of a ragged batch (GPU only; of the spec nothing matters to it).
enum class Program { Decode, Exact, Append, Plan };

inline const char *programName(Program program) {
  switch (program) {
  case Program::Decode:
    return "decode";
  case Program::Exact:
    return "exact";
  case Program::Append:
    return "append";
  case Program::Plan:
    return "plan";
  }
  return "unknown";
}

inline const char *elementName(int32_t element) {
  return element == FFD_F16 ? "f16" : element == FFD_BF16 ? "bf16" : "unknown";
}

inline const char *centreName(int32_t centre) {
  return centre == FFD_CENTRE_NONE  ? "none"
         : centre == FFD_CENTRE_ROW ? "row"
                                    : "unknown";
}

inline const char *certificateName(int32_t certificate) {
  return certificate == FFD_CERTIFICATE_NONE    ? "none"
         : certificate == FFD_CERTIFICATE_PLAIN ? "plain"
         : certificate == FFD_CERTIFICATE_NOISE ? "noise"
                                                : "unknown";
}

inline Layout layoutOf(const ffdSpec &spec) {
  Layout layout;
  layout.headDim = spec.head_dim;
  layout.valueDim = spec.value_dim;
  layout.scanBits = spec.scan_bits;
  layout.quantBlock = spec.quant_block;
  layout.selectBlock = spec.select_block;
  layout.residualBits = spec.no_residuals ? 0 : 8;
  return layout;
}

/// Newest tokens of a sequence that ask at once: 0 in the field is 1.
inline int32_t queryTokens(const ffdSpec &spec) {
  return spec.query_tokens == 0 ? 1 : spec.query_tokens;
}
/// Queries that share a kv head: those of its group, of all query tokens.
inline int32_t rowHeads(const ffdSpec &spec) {
  return spec.group * queryTokens(spec);
}

inline bool operator==(const ffdSpec &a, const ffdSpec &b) {
  return a.head_dim == b.head_dim && a.value_dim == b.value_dim &&
         a.group == b.group && a.element == b.element &&
         a.scan_bits == b.scan_bits && a.quant_block == b.quant_block &&
         a.select_block == b.select_block && a.no_residuals == b.no_residuals &&
         queryTokens(a) == queryTokens(b) && a.centre == b.centre &&
         a.pseudo_max == b.pseudo_max && a.certificate == b.certificate;
}
inline bool operator!=(const ffdSpec &a, const ffdSpec &b) { return !(a == b); }

/// `d128-v128-g4-f16-b2-q128-s16`, with `-r0` where there are no residuals,
/// `-n4` where four tokens ask at once, `-crow` where keys are centred,
/// `-refined` with that pseudo-max and `-certplain` or `-certnoise` with a
/// certificate.
inline std::string specName(const ffdSpec &spec) {
  return "d" + std::to_string(spec.head_dim) + "-v" +
         std::to_string(spec.value_dim) + "-g" + std::to_string(spec.group) +
         "-" + elementName(spec.element) + "-b" +
         std::to_string(spec.scan_bits) + "-q" +
         std::to_string(spec.quant_block) + "-s" +
         std::to_string(spec.select_block) + (spec.no_residuals ? "-r0" : "") +
         (queryTokens(spec) > 1 ? "-n" + std::to_string(queryTokens(spec))
                                : "") +
         (spec.centre == FFD_CENTRE_ROW ? "-crow" : "") +
         (spec.pseudo_max ? "-refined" : "") +
         (spec.certificate
              ? std::string("-cert") + certificateName(spec.certificate)
              : "");
}

/// The specification of the kernel that another program than a decode needs:
/// the rule of the decode does not matter to it.
inline ffdSpec withoutRule(ffdSpec spec) {
  spec.pseudo_max = FFD_PSEUDO_MAX_SCAN;
  spec.certificate = FFD_CERTIFICATE_NONE;
  return spec;
}

/// Checks the limits that abi.h states; with `ablations` those of what only CPU
/// kernels have.
inline Status checkSpec(const ffdSpec &spec, bool ablations = false) {
  auto bad = [](const char *field, int64_t value, const char *expected) {
    return Status::invalid(std::string("'ffdSpec' field '") + field + "' is " +
                           std::to_string(value) + ", expected " + expected);
  };
  const int32_t d = spec.head_dim, sb = spec.select_block;
  if (d != 64 && d != 80 && d != 96 && d != 128 && d != 192 && d != 256)
    return bad("head_dim", d, "64, 80, 96, 128, 192 or 256");
  if (spec.value_dim < 16 || spec.value_dim > 256 || spec.value_dim % 16)
    return bad("value_dim", spec.value_dim, "a multiple of 16 from 16 to 256");
  if (spec.group < 1 || spec.group > 16)
    return bad("group", spec.group, "1 to 16");
  if (spec.element != FFD_F16 && spec.element != FFD_BF16)
    return bad("element", spec.element, "0 (f16) or 1 (bf16)");
  const bool keys = ablations && spec.scan_bits == 16;
  if (spec.scan_bits != 2 && spec.scan_bits != 4 && spec.scan_bits != 8 &&
      !keys)
    return bad("scan_bits", spec.scan_bits,
               ablations ? "2, 4, 8 or 16" : "2, 4 or 8");
  if (keys && spec.no_residuals != 1)
    return bad("no_residuals", spec.no_residuals, "1 with scan_bits 16");
  if (spec.no_residuals != 0 && !(ablations && spec.no_residuals == 1))
    return bad("no_residuals", spec.no_residuals, ablations ? "0 or 1" : "0");
  if (spec.pseudo_max != FFD_PSEUDO_MAX_SCAN &&
      spec.pseudo_max != FFD_PSEUDO_MAX_REFINED)
    return bad("pseudo_max", spec.pseudo_max, "0 (scan) or 1 (refined)");
  if (spec.pseudo_max && spec.no_residuals)
    return bad("pseudo_max", spec.pseudo_max, "0 (scan) without residuals");
  if (spec.certificate < FFD_CERTIFICATE_NONE ||
      spec.certificate > FFD_CERTIFICATE_NOISE)
    return bad("certificate", spec.certificate,
               "0 (none), 1 (plain) or 2 (noise)");
  if (spec.certificate && keys)
    return bad("certificate", spec.certificate, "0 (none) with scan_bits 16");
  if (spec.query_tokens < 0 || spec.query_tokens > 8)
    return bad("query_tokens", spec.query_tokens, "1 to 8");
  if (rowHeads(spec) > 16)
    return Status::invalid("'ffdSpec' field 'query_tokens' is " +
                           std::to_string(spec.query_tokens) + " with group " +
                           std::to_string(spec.group) +
                           ", expected at most 16 / group");
  if (spec.centre != FFD_CENTRE_NONE && spec.centre != FFD_CENTRE_ROW)
    return bad("centre", spec.centre, "0 (none) or 1 (row)");
  if (spec.quant_block != 128)
    return bad("quant_block", spec.quant_block, "128");
  if (sb != 16 && sb != 32 && sb != 64 && sb != 128)
    return bad("select_block", sb, "16, 32, 64 or 128");
  return Status::success();
}

/// Committed quantisation blocks of a sequence of `length` visible tokens.
inline int64_t committedBlocks(const ffdSpec &spec, int64_t length,
                               int64_t lag) {
  return length > lag ? (length - lag) / spec.quant_block : 0;
}
/// Tokens of its 16-bit tail.
inline int64_t tailTokens(const ffdSpec &spec, int64_t length, int64_t lag) {
  return length - committedBlocks(spec, length, lag) * spec.quant_block;
}

} // namespace ffd
#endif // FFD_SPEC_H
