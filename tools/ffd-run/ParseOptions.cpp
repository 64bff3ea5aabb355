//===- ParseOptions.cpp - The command line of ffd-run ---------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ParseOptions.h"

#include "support/Errors.h"
#include "support/Options.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <cmath>

using namespace llvm;
using namespace ffd;
using namespace ffd::run;
using namespace ffd::tools;

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

cl::OptionCategory ffd::run::optionCategory("ffd-run options");

static KernelOptions kernel(optionCategory,
                            "Bits of a thumbnail code: 2 (default), 4 or 8; "
                            "16, on the CPU: keys that are not split",
                            "Scores that top_delta takes the pseudo-max from: "
                            "refined ones, for the residuals of two blocks "
                            "(default where there are residuals), or those of "
                            "the scan");

static cl::opt<std::string>
    inputOpt("input", cl::cat(optionCategory),
             cl::value_desc("case.safetensors"),
             cl::desc("File with tensors q [B,Hq,D], k [B or 1,T,Hkv,D], v [B "
                      "or 1,T,Hkv,Dv] and optionally lengths [B], or with "
                      "layers.<i>.q and so on"));
static cl::opt<std::string>
    outputOpt("output", cl::cat(optionCategory),
              cl::value_desc("result.safetensors"),
              cl::desc("Write o [B,Hq,Dv], lse [B,Hq] and kept "
                       "[B,Hkv,blocks] of the first delta"));
static cl::opt<bool>
    reportOpt("report", cl::cat(optionCategory),
              cl::desc("Print a table: distance from exact attention, bytes "
                       "read, times (the default without an output)"));
static cl::opt<uint64_t>
    seedOpt("seed", cl::cat(optionCategory), cl::init(1), cl::value_desc("n"),
            cl::desc("Draws the order in which blocks and warps run with "
                     "--target=emulate (default 1)"));
static cl::opt<std::string>
    cpuOpt("cpu", cl::cat(optionCategory), cl::init("auto"),
           cl::value_desc("auto|avx2|avx512|avx512vnni"),
           cl::desc("Instructions to use with --target=cpu (default auto)"));
static cl::list<std::string>
    deltaOpt("delta", cl::cat(optionCategory), cl::CommaSeparated,
             cl::value_desc("d,..."),
             cl::desc("Thresholds in natural-log units, 'inf' keeps "
                      "everything (default 5)"));
static cl::opt<int>
    selectBlockOpt("select-block", cl::cat(optionCategory), cl::init(16),
                   cl::value_desc("16|32|64|128"),
                   cl::desc("Tokens kept or skipped together (default 16)"));
static cl::opt<int>
    residualBitsOpt("residual-bits", cl::cat(optionCategory), cl::init(8),
                    cl::value_desc("8|0"),
                    cl::desc("Bits of a residual (default 8); 0, on the CPU: "
                             "attention over thumbnails alone"));
static cl::opt<std::string>
    selectorOpt("selector", cl::cat(optionCategory), cl::init("top_delta"),
                cl::value_desc("top_delta|top_k=64|top_p=0.9|all"),
                cl::desc("Rule that keeps blocks (default top_delta); others "
                         "are for the CPU and ignore --delta"));
static cl::opt<std::string>
    executionOpt("execution", cl::cat(optionCategory),
                 cl::value_desc("fused|split"),
                 cl::desc("Selector and computer as one kernel, where the rule "
                          "can be (default), or, on the CPU, as two"));
static cl::opt<int>
    lagOpt("lag", cl::cat(optionCategory), cl::init(0), cl::value_desc("n"),
           cl::desc("Newest tokens that stay in 16 bit at least (default 0)"));
static cl::opt<std::string>
    smScaleOpt("sm-scale", cl::cat(optionCategory), cl::value_desc("x"),
               cl::desc("Softmax scale (default 1 / sqrt(D))"));
static cl::opt<std::string>
    elementOpt("element", cl::cat(optionCategory), cl::value_desc("f16|bf16"),
               cl::desc("Type to decode in (default: that of the input, F32 "
                        "becomes f16)"));
static cl::opt<int>
    splitsOpt("splits", cl::cat(optionCategory), cl::init(0),
              cl::value_desc("n"),
              cl::desc("Pieces to cut a sequence into (default 0: as many as "
                       "keep all threads busy)"));
static cl::opt<int>
    repeatOpt("repeat", cl::cat(optionCategory), cl::init(0),
              cl::value_desc("n"),
              cl::desc("Runs to take the median time of (default 0: 5 for a "
                       "report, else 1)"));

//===----------------------------------------------------------------------===//
// Checking them
//===----------------------------------------------------------------------===//

static Error parseDeltas(std::vector<float> &deltas) {
  for (const std::string &text : deltaOpt)
    if (Error e = parseDelta(text, deltas.emplace_back()))
      return e;
  if (deltas.empty())
    deltas.push_back(5);
  return Error::success();
}

static Error parseScale(std::optional<float> &scale) {
  if (!smScaleOpt.getNumOccurrences())
    return Error::success();
  double value = 0;
  bool bad = StringRef(smScaleOpt).getAsDouble(value);
  float narrow = static_cast<float>(value);
  if (bad || !(narrow > 0) || !std::isfinite(narrow))
    return error("option --sm-scale is '{0}', expected a finite number above 0",
                 smScaleOpt.getValue());
  scale = narrow;
  return Error::success();
}

static Error parseElement(std::optional<int32_t> &element) {
  if (!elementOpt.getNumOccurrences())
    return Error::success();
  if (Error e = expectOneOf("element", elementOpt, {"f16", "bf16"}))
    return e;
  element = elementOpt == "bf16" ? FFD_BF16 : FFD_F16;
  return Error::success();
}

/// Whether writing to one path would change what the other names. Devices and
/// pipes take the output of several writers.
static bool isSameFile(StringRef a, StringRef b) {
  sys::fs::file_status status;
  if (!sys::fs::status(a, status) && sys::fs::exists(status) &&
      !sys::fs::is_regular_file(status))
    return false;
  bool same = false;
  if (!sys::fs::equivalent(a, b, same))
    return same;
  // Neither may exist yet.
  auto placeOf = [](StringRef path) {
    SmallString<128> folder(sys::path::parent_path(path)), place;
    if (sys::fs::real_path(folder.empty() ? "." : folder.str(), place))
      place = folder;
    sys::path::append(place, sys::path::filename(path));
    return place;
  };
  return placeOf(a) == placeOf(b);
}

/// Nothing that is written may overwrite the input or another output.
static Error checkOutputs() {
  if (Error e = expectText(outputOpt, "a file"))
    return e;
  if (outputOpt == "-")
    return error("option --output is '-', expected a file");
  if (kernel.json == "-" && reportOpt)
    return error("options --report and --json=- both write to the standard "
                 "output, expected a file for --json");
  std::pair<StringRef, StringRef> paths[] = {
      {"input", inputOpt}, {"output", outputOpt}, {"json", kernel.json}};
  for (auto [i, later] : enumerate(paths))
    for (auto [name, path] : ArrayRef(paths).take_front(i))
      if (!later.second.empty() && later.second != "-" && !path.empty() &&
          isSameFile(path, later.second))
        return error("option --{0} is '{1}', the file of --{2}, expected "
                     "another one",
                     later.first, later.second, name);
  return Error::success();
}

/// Options that only an emulation has, and those that it lacks.
static Error checkEmulation() {
  if (seedOpt.getNumOccurrences() && !kernel.emulated())
    return error("option --seed is given with --target={0}, expected "
                 "--target=emulate",
                 kernel.target.getValue());
  for (auto [name, count] :
       {std::pair("kernel-dir", kernel.kernelDir.getNumOccurrences()),
        std::pair("repeat", repeatOpt.getNumOccurrences())})
    if (count && kernel.emulated())
      return error("option --{0} is given with --target=emulate, which "
                   "compiles its kernel and measures no times; expected "
                   "--target=cpu or --target=cuda",
                   name);
  return Error::success();
}

/// The rule, and how much of K the cache has.
static Error parseSelector(RunOptions &options) {
  if (Error e = expectText(executionOpt, "fused or split"))
    return e;
  if (Error e = toError(
          Selector::parse(selectorOpt, executionOpt, "option --selector",
                          "option --execution", options.selector)))
    return e;
  if (Error e = expectOneOf("scan-bits", kernel.scanBits, {2, 4, 8, 16}))
    return e;
  if (Error e = expectOneOf("residual-bits", residualBitsOpt, {8, 0}))
    return e;
  const bool keys = kernel.scanBits == 16;
  if (keys && residualBitsOpt.getNumOccurrences() && residualBitsOpt != 0)
    return error("option --residual-bits is {0} with --scan-bits=16, expected "
                 "0: keys that are not split have no residuals",
                 residualBitsOpt.getValue());
  options.residuals = residualBitsOpt == 8 && !keys;
  options.refinedMax = kernel.pseudoMaxOr(options.selector.defaultPseudoMax(
                           options.residuals)) == FFD_PSEUDO_MAX_REFINED;
  if (options.refinedMax && options.selector.rule != Rule::TopDelta)
    return error("option --pseudo-max is 'refined' with --selector={0}, "
                 "expected --selector=top_delta",
                 selectorOpt.getValue());
  if (options.refinedMax && !options.residuals)
    return error("option --pseudo-max is 'refined' without residuals, expected "
                 "2, 4 or 8 scan bits and --residual-bits=8");
  options.certificate = kernel.certificate();
  if (options.certificate && !options.selector.isDefault())
    return error("option --certificate is '{0}' with --selector={1}{2}, "
                 "expected --selector=top_delta in fused execution",
                 kernel.certificateName.getValue(), selectorOpt.getValue(),
                 options.selector.split ? " in split execution" : "");
  if (options.certificate && keys)
    return error("option --certificate is '{0}' with --scan-bits=16, expected "
                 "2, 4 or 8 scan bits",
                 kernel.certificateName.getValue());
  options.scanBits = kernel.scanBits;
  options.centre = kernel.centre();
  if (kernel.target == "cpu")
    return Error::success();
  for (auto [name, special] :
       {std::pair("selector", options.selector.rule != Rule::TopDelta),
        std::pair("execution", options.selector.split),
        std::pair("scan-bits", keys),
        std::pair("residual-bits", !options.residuals)})
    if (special)
      return error("option --{0} is given with --target={1}, expected "
                   "--target=cpu: GPU kernels have top_delta, fused, 2, 4 or 8 "
                   "scan bits and residuals",
                   name, kernel.target.getValue());
  return Error::success();
}

Error ffd::run::parseOptions(Options &tool) {
  RunOptions &options = tool.run;
  if (inputOpt.empty())
    return error("option --input is missing, expected a .safetensors file");
  if (Error e = kernel.check())
    return e;
  if (Error e =
          expectOneOf("cpu", cpuOpt, {"auto", "avx2", "avx512", "avx512vnni"}))
    return e;
  if (Error e = expectOneOf("select-block", selectBlockOpt, {16, 32, 64, 128}))
    return e;
  if (Error e = parseSelector(options))
    return e;
  for (auto [name, value, most] :
       {std::tuple("lag", lagOpt.getValue(), INT32_MAX),
        std::tuple("splits", splitsOpt.getValue(), 1024),
        std::tuple("repeat", repeatOpt.getValue(), 1000000)})
    if (Error e = expectRange(name, value, 0, most))
      return e;
  if (Error e = parseDeltas(options.deltas))
    return e;
  if (Error e = parseScale(options.smScale))
    return e;
  if (Error e = checkOutputs())
    return e;

  if (kernel.target != "cpu" && cpuOpt != "auto")
    return error("option --cpu is '{0}' with --target={1}, expected "
                 "--target=cpu",
                 cpuOpt.getValue(), kernel.target.getValue());
  if (Error e = checkEmulation())
    return e;
  options.target = kernel.target;
  options.arch = kernel.arch;
  options.seed = seedOpt;
  if (cpuOpt != "auto")
    options.target += ":" + cpuOpt;
  options.kernelDir = kernel.kernelDir;
  options.selectBlock = selectBlockOpt;
  options.lag = lagOpt;
  options.splits = splitsOpt;
  // Without an output there would be nothing to see.
  if (outputOpt.empty() && kernel.json.empty())
    reportOpt = true;
  options.measure = reportOpt || !kernel.json.empty();
  options.repeat = repeatOpt                                ? repeatOpt
                   : options.measure && !options.emulated() ? 5
                                                            : 1;

  tool.input = inputOpt;
  tool.output = outputOpt;
  tool.json = kernel.json;
  tool.report = reportOpt;
  tool.threads = kernel.threads;
  tool.firstDelta = deltaOpt.empty() ? "" : deltaOpt.front();
  return parseElement(tool.element);
}
