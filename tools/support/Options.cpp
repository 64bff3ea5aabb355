//===- Options.cpp - Options that tools share -----------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include "Errors.h"

#include "ffd/Spec.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

#include <algorithm>
#include <cmath>

using namespace llvm;

namespace ffd::tools {

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

Error expectOneOf(StringRef option, StringRef value,
                  ArrayRef<StringRef> choices) {
  if (is_contained(choices, value))
    return Error::success();
  return error("option --{0} is '{1}', expected {2}", option, value,
               join(choices, " or "));
}

Error expectOneOf(StringRef option, int64_t value, ArrayRef<int64_t> choices) {
  if (is_contained(choices, value))
    return Error::success();
  std::string expected;
  for (int64_t choice : choices)
    expected += (expected.empty() ? "" : " or ") + std::to_string(choice);
  return error("option --{0} is {1}, expected {2}", option, value, expected);
}

Error expectRange(StringRef option, int64_t value, int64_t least,
                  int64_t most) {
  if (value >= least && value <= most)
    return Error::success();
  return error("option --{0} is {1}, expected {2} to {3}", option, value, least,
               most);
}

Error expectText(const cl::opt<std::string> &option, StringRef expected) {
  if (!option.getNumOccurrences() || !option.empty())
    return Error::success();
  return error("option --{0} is '', expected {1}", option.ArgStr, expected);
}

Error expectValid(const ffdSpec &spec) {
  const Status status = checkSpec(spec);
  if (status.ok())
    return Error::success();
  StringRef message = status.message();
  if (!message.consume_front("'ffdSpec' field '"))
    return toError(status);
  auto [field, rest] = message.split('\'');
  std::string option = field.str();
  std::replace(option.begin(), option.end(), '_', '-');
  return error("option --{0}{1}", option, rest);
}

Error parseList(StringRef option, ArrayRef<std::string> texts, int64_t most,
                std::vector<int64_t> &values) {
  for (const std::string &text : texts) {
    int64_t value = 0;
    if (StringRef(text).getAsInteger(10, value) || value < 1 || value > most)
      return error("option --{0} has the value '{1}', expected 1 to {2}",
                   option, text, most);
    values.push_back(value);
  }
  return Error::success();
}

Error parseDelta(StringRef text, float &delta) {
  double value = 0;
  if (text.getAsDouble(value) || std::isnan(value) || value < 0)
    return error("option --delta has the value '{0}', expected a number from "
                 "0 to inf",
                 text);
  // The sum makes a 0 of -0, which a report would show.
  delta = static_cast<float>(value) + 0.0f;
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

KernelOptions::KernelOptions(cl::OptionCategory &category,
                             const char *scanBitsHelp,
                             const char *pseudoMaxHelp)
    : target("target", cl::cat(category), cl::init("cpu"),
             cl::value_desc("cpu|cuda|emulate"),
             cl::desc("Where to run (default cpu); 'emulate' runs the GPU's "
                      "kernels on this machine, slowly, and reports races and "
                      "stray accesses, no times")),
      arch("arch", cl::cat(category), cl::init("sm_90a"),
           cl::value_desc("sm_90a|..."),
           cl::desc("Architecture of the kernel with --target=emulate "
                    "(default sm_90a)")),
      centreName("centre", cl::cat(category), cl::init("none"),
                 cl::value_desc("none|row"),
                 cl::desc("What keys are relative to: nothing (default), or "
                          "the mean of the first committed block of their "
                          "row")),
      pseudoMax("pseudo-max", cl::cat(category), cl::value_desc("refined|scan"),
                cl::desc(pseudoMaxHelp)),
      certificateName("certificate", cl::cat(category), cl::init("none"),
                      cl::value_desc("none|plain|noise"),
                      cl::desc("Estimate of the softmax mass that top_delta "
                               "skips: none (default), from the scan's "
                               "scores, or corrected for their noise")),
      kernelDir("kernel-dir", cl::cat(category), cl::value_desc("folder"),
                cl::desc("Folder of compiled kernels (.ffdk); what it lacks "
                         "is compiled on the spot if the compiler is there")),
      json("json", cl::cat(category), cl::value_desc("file"),
           cl::desc("Write the report as JSON; '-' is the standard output")),
      scanBits("scan-bits", cl::cat(category), cl::init(2),
               cl::value_desc("2|4|8"), cl::desc(scanBitsHelp)),
      threads("threads", cl::cat(category), cl::init(0), cl::value_desc("n"),
              cl::desc("Threads to use (default 0: all cores)")) {}

int32_t KernelOptions::centre() const {
  return centreName == "row" ? FFD_CENTRE_ROW : FFD_CENTRE_NONE;
}

int32_t KernelOptions::pseudoMaxOr(int32_t unnamed) const {
  if (!pseudoMax.getNumOccurrences())
    return unnamed;
  return pseudoMax == "refined" ? FFD_PSEUDO_MAX_REFINED : FFD_PSEUDO_MAX_SCAN;
}

int16_t KernelOptions::certificate() const {
  return certificateName == "plain"   ? FFD_CERTIFICATE_PLAIN
         : certificateName == "noise" ? FFD_CERTIFICATE_NOISE
                                      : FFD_CERTIFICATE_NONE;
}

Error KernelOptions::check() const {
  if (Error e = expectOneOf("target", target, {"cpu", "cuda", "emulate"}))
    return e;
  if (Error e = expectOneOf("centre", centreName, {"none", "row"}))
    return e;
  if (pseudoMax.getNumOccurrences())
    if (Error e = expectOneOf("pseudo-max", pseudoMax, {"refined", "scan"}))
      return e;
  if (Error e = expectText(json, "a file, or '-' for the standard output"))
    return e;
  if (Error e = expectOneOf("certificate", certificateName,
                            {"none", "plain", "noise"}))
    return e;
  if (Error e = expectRange("threads", threads, 0, 4096))
    return e;
  if (arch.getNumOccurrences() && !emulated())
    return error("option --arch is given with --target={0}, expected "
                 "--target=emulate",
                 target.getValue());
  if (kernelDir.getNumOccurrences() && !sys::fs::is_directory(kernelDir))
    return error("option --kernel-dir is '{0}', expected a folder",
                 kernelDir.getValue());
  return Error::success();
}

} // namespace ffd::tools
