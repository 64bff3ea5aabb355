//===- main.cpp - Decoding real tensors from the command line -------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ffd-run reads q, K and V from a .safetensors file, decodes them with a kernel
// that this compiler generated, writes the result and reports how far it is
// from exact attention and how fast. Options and flow; the parts are in the
// files next to this one.
//
//===----------------------------------------------------------------------===//

#include "Bandwidth.h"
#include "Case.h"
#include "Errors.h"
#include "Report.h"
#include "Runner.h"
#include "Safetensors.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <new>

using namespace llvm;
using namespace ffd;
using namespace ffd::run;
using ffd::safetensors::DType;
using ffd::safetensors::Tensor;

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

static cl::OptionCategory category("ffd-run options");

static cl::opt<std::string>
    inputOpt("input", cl::cat(category), cl::value_desc("case.safetensors"),
             cl::desc("File with tensors q [B,Hq,D], k [B or 1,T,Hkv,D], v [B "
                      "or 1,T,Hkv,Dv] and optionally lengths [B], or with "
                      "layers.<i>.q and so on"));
static cl::opt<std::string>
    outputOpt("output", cl::cat(category), cl::value_desc("result.safetensors"),
              cl::desc("Write o [B,Hq,Dv], lse [B,Hq] and kept "
                       "[B,Hkv,blocks] of the first delta"));
static cl::opt<bool>
    reportOpt("report", cl::cat(category),
              cl::desc("Print a table: distance from exact attention, bytes "
                       "read, times (the default without an output)"));
static cl::opt<std::string> jsonOpt("json", cl::cat(category),
                                    cl::value_desc("file"),
                                    cl::desc("Write the report as JSON; '-' "
                                             "is the standard output"));
static cl::opt<std::string>
    targetOpt("target", cl::cat(category), cl::init("cpu"),
              cl::value_desc("cpu|cuda|emulate"),
              cl::desc("Where to decode (default cpu); 'emulate' runs the "
                       "GPU's kernel on this machine, slowly, and reports "
                       "races and stray accesses"));
static cl::opt<std::string>
    archOpt("arch", cl::cat(category), cl::init("sm_90a"),
            cl::value_desc("sm_90a|..."),
            cl::desc("Architecture of the kernel with --target=emulate "
                     "(default sm_90a)"));
static cl::opt<uint64_t>
    seedOpt("seed", cl::cat(category), cl::init(1), cl::value_desc("n"),
            cl::desc("Draws the order in which blocks and warps run with "
                     "--target=emulate (default 1)"));
static cl::opt<std::string>
    cpuOpt("cpu", cl::cat(category), cl::init("auto"),
           cl::value_desc("auto|avx2|avx512|avx512vnni"),
           cl::desc("Instructions to use with --target=cpu (default auto)"));
static cl::list<std::string>
    deltaOpt("delta", cl::cat(category), cl::CommaSeparated,
             cl::value_desc("d,..."),
             cl::desc("Thresholds in natural-log units, 'inf' keeps "
                      "everything (default 5)"));
static cl::opt<int>
    selectBlockOpt("select-block", cl::cat(category), cl::init(16),
                   cl::value_desc("16|32|64|128"),
                   cl::desc("Tokens kept or skipped together (default 16)"));
static cl::opt<int> scanBitsOpt(
    "scan-bits", cl::cat(category), cl::init(2), cl::value_desc("2|4|8|16"),
    cl::desc("Bits of a thumbnail code (default 2); 16, on the CPU: "
             "keys that are not split"));
static cl::opt<int>
    residualBitsOpt("residual-bits", cl::cat(category), cl::init(8),
                    cl::value_desc("8|0"),
                    cl::desc("Bits of a residual (default 8); 0, on the CPU: "
                             "attention over thumbnails alone"));
static cl::opt<std::string>
    centreOpt("centre", cl::cat(category), cl::init("none"),
              cl::value_desc("none|row"),
              cl::desc("What keys are relative to: nothing (default), or the "
                       "mean of the first committed block of their row"));
static cl::opt<std::string>
    selectorOpt("selector", cl::cat(category), cl::init("top_delta"),
                cl::value_desc("top_delta|top_k=64|top_p=0.9|all"),
                cl::desc("Rule that keeps blocks (default top_delta); others "
                         "are for the CPU and ignore --delta"));
static cl::opt<std::string>
    pseudoMaxOpt("pseudo-max", cl::cat(category), cl::init("scan"),
                 cl::value_desc("scan|refined"),
                 cl::desc("Scores that top_delta takes the pseudo-max from: "
                          "those of the scan (default), or refined ones, for "
                          "the residuals of two blocks"));
static cl::opt<std::string>
    executionOpt("execution", cl::cat(category), cl::value_desc("fused|split"),
                 cl::desc("Selector and computer as one kernel, where the rule "
                          "can be (default), or, on the CPU, as two"));
static cl::opt<int>
    lagOpt("lag", cl::cat(category), cl::init(0), cl::value_desc("n"),
           cl::desc("Newest tokens that stay in 16 bit at least (default 0)"));
static cl::opt<std::string>
    smScaleOpt("sm-scale", cl::cat(category), cl::value_desc("x"),
               cl::desc("Softmax scale (default 1 / sqrt(D))"));
static cl::opt<std::string>
    elementOpt("element", cl::cat(category), cl::value_desc("f16|bf16"),
               cl::desc("Type to decode in (default: that of the input, F32 "
                        "becomes f16)"));
static cl::opt<int>
    threadsOpt("threads", cl::cat(category), cl::init(0), cl::value_desc("n"),
               cl::desc("Threads to use (default 0: all cores)"));
static cl::opt<int>
    splitsOpt("splits", cl::cat(category), cl::init(0), cl::value_desc("n"),
              cl::desc("Pieces to cut a sequence into (default 0: as many as "
                       "keep all threads busy)"));
static cl::opt<int>
    repeatOpt("repeat", cl::cat(category), cl::init(0), cl::value_desc("n"),
              cl::desc("Runs to take the median time of (default 0: 5 for a "
                       "report, else 1)"));
static cl::opt<std::string>
    kernelDirOpt("kernel-dir", cl::cat(category), cl::value_desc("folder"),
                 cl::desc("Folder of compiled kernels (.ffdk); what it lacks "
                          "is compiled on the spot if the compiler is there"));

//===----------------------------------------------------------------------===//
// Checking them
//===----------------------------------------------------------------------===//

static Error expectOneOf(StringRef option, StringRef value,
                         ArrayRef<StringRef> choices) {
  if (is_contained(choices, value))
    return Error::success();
  return error("option --{0} is '{1}', expected {2}", option, value,
               join(choices, " or "));
}

static Error expectOneOf(StringRef option, int value, ArrayRef<int> choices) {
  if (is_contained(choices, value))
    return Error::success();
  std::string expected;
  for (int choice : choices)
    expected += (expected.empty() ? "" : " or ") + std::to_string(choice);
  return error("option --{0} is {1}, expected {2}", option, value, expected);
}

static Error expectRange(StringRef option, int value, int most) {
  if (value >= 0 && value <= most)
    return Error::success();
  return error("option --{0} is {1}, expected 0 to {2}", option, value, most);
}

static Error parseDeltas(std::vector<float> &deltas) {
  for (const std::string &text : deltaOpt) {
    double value = 0;
    if (StringRef(text).getAsDouble(value) || std::isnan(value) || value < 0)
      return error("option --delta has the value '{0}', expected a number from "
                   "0 to inf",
                   text);
    // The sum makes a 0 of -0, which a report would show.
    deltas.push_back(static_cast<float>(value) + 0.0f);
  }
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
  if (outputOpt == "-")
    return error("option --output is '-', expected a file");
  if (jsonOpt == "-" && reportOpt)
    return error("options --report and --json=- both write to the standard "
                 "output, expected a file for --json");
  std::pair<StringRef, StringRef> paths[] = {
      {"input", inputOpt}, {"output", outputOpt}, {"json", jsonOpt}};
  for (auto [i, later] : enumerate(paths))
    for (auto [name, path] : ArrayRef(paths).take_front(i))
      if (!later.second.empty() && later.second != "-" && !path.empty() &&
          isSameFile(path, later.second))
        return error("option --{0} is '{1}', the file of --{2}, expected "
                     "another one",
                     later.first, later.second, name);
  return Error::success();
}

static Error checkKernelDir() {
  if (kernelDirOpt.getNumOccurrences() && !sys::fs::is_directory(kernelDirOpt))
    return error("option --kernel-dir is '{0}', expected a folder",
                 kernelDirOpt.getValue());
  return Error::success();
}

/// Options that only an emulation has, and those that it lacks.
static Error checkEmulation() {
  const bool emulated = targetOpt == "emulate";
  for (auto [name, count] : {std::pair("arch", archOpt.getNumOccurrences()),
                             std::pair("seed", seedOpt.getNumOccurrences())})
    if (count && !emulated)
      return error("option --{0} is given with --target={1}, expected "
                   "--target=emulate",
                   name, targetOpt.getValue());
  for (auto [name, count] :
       {std::pair("kernel-dir", kernelDirOpt.getNumOccurrences()),
        std::pair("repeat", repeatOpt.getNumOccurrences())})
    if (count && emulated)
      return error("option --{0} is given with --target=emulate, which "
                   "compiles its kernel and measures no times; expected "
                   "--target=cpu or --target=cuda",
                   name);
  return Error::success();
}

/// The rule, and how much of K the cache has.
static Error parseSelector(RunOptions &options) {
  if (Error e = toError(
          Selector::parse(selectorOpt, executionOpt, "option --selector",
                          "option --execution", options.selector)))
    return e;
  if (Error e = expectOneOf("scan-bits", scanBitsOpt, {2, 4, 8, 16}))
    return e;
  if (Error e = expectOneOf("residual-bits", residualBitsOpt, {8, 0}))
    return e;
  const bool keys = scanBitsOpt == 16;
  if (keys && residualBitsOpt.getNumOccurrences() && residualBitsOpt != 0)
    return error("option --residual-bits is {0} with --scan-bits=16, expected "
                 "0: keys that are not split have no residuals",
                 residualBitsOpt.getValue());
  if (Error e = expectOneOf("pseudo-max", pseudoMaxOpt, {"scan", "refined"}))
    return e;
  options.refinedMax = pseudoMaxOpt == "refined";
  if (options.refinedMax && options.selector.rule != Rule::TopDelta)
    return error("option --pseudo-max is 'refined' with --selector={0}, "
                 "expected --selector=top_delta",
                 selectorOpt.getValue());
  if (options.refinedMax && (keys || residualBitsOpt == 0))
    return error("option --pseudo-max is 'refined' without residuals, expected "
                 "2, 4 or 8 scan bits and --residual-bits=8");
  options.scanBits = scanBitsOpt;
  options.residuals = residualBitsOpt == 8 && !keys;
  if (Error e = expectOneOf("centre", centreOpt, {"none", "row"}))
    return e;
  options.centre = centreOpt == "row" ? FFD_CENTRE_ROW : FFD_CENTRE_NONE;
  if (targetOpt == "cpu")
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
                   name, targetOpt.getValue());
  return Error::success();
}

static Error parseOptions(RunOptions &options) {
  if (inputOpt.empty())
    return error("option --input is missing, expected a .safetensors file");
  if (Error e = expectOneOf("target", targetOpt, {"cpu", "cuda", "emulate"}))
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
        std::tuple("threads", threadsOpt.getValue(), 4096),
        std::tuple("splits", splitsOpt.getValue(), 1024),
        std::tuple("repeat", repeatOpt.getValue(), 1000000)})
    if (Error e = expectRange(name, value, most))
      return e;
  if (Error e = parseDeltas(options.deltas))
    return e;
  if (Error e = parseScale(options.smScale))
    return e;
  if (Error e = checkKernelDir())
    return e;
  if (Error e = checkOutputs())
    return e;

  if (targetOpt != "cpu" && cpuOpt != "auto")
    return error("option --cpu is '{0}' with --target={1}, expected "
                 "--target=cpu",
                 cpuOpt.getValue(), targetOpt.getValue());
  if (Error e = checkEmulation())
    return e;
  options.target = targetOpt;
  options.arch = archOpt;
  options.seed = seedOpt;
  if (cpuOpt != "auto")
    options.target += ":" + cpuOpt;
  options.kernelDir = kernelDirOpt;
  options.selectBlock = selectBlockOpt;
  options.lag = lagOpt;
  options.splits = splitsOpt;
  // Without an output there would be nothing to see.
  if (outputOpt.empty() && jsonOpt.empty())
    reportOpt = true;
  options.measure = reportOpt || !jsonOpt.empty();
  options.repeat = repeatOpt                                ? repeatOpt
                   : options.measure && !options.emulated() ? 5
                                                            : 1;
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Flow
//===----------------------------------------------------------------------===//

namespace {
/// The results of the first delta, kept until all layers are there.
class Output {
public:
  void add(CaseResult &result) {
    const CaseShape &s = result.shape;
    DeltaResult &first = result.deltas.front();
    // As q was: the axis of tokens is there if they are several.
    std::vector<int64_t> heads = {s.batch, s.queryHeads};
    if (s.queryTokens > 1)
      heads.insert(heads.begin() + 1, s.queryTokens);
    add<float>(s.prefix + "lse", DType::F32, heads, std::move(first.lse));
    heads.push_back(s.valueDim);
    add<float>(s.prefix + "o", DType::F32, heads, std::move(first.out));
    add<uint8_t>(s.prefix + "kept", DType::U8,
                 {s.batch, s.kvHeads, result.maxSelects},
                 std::move(first.kept));
  }

  Error write(StringRef path) { return safetensors::write(path, tensors); }

private:
  template <typename T>
  void add(std::string name, DType type, ArrayRef<int64_t> shape,
           std::vector<T> elements) {
    auto owned = std::make_shared<std::vector<T>>(std::move(elements));
    tensors.push_back({std::move(name),
                       type,
                       {shape.begin(), shape.end()},
                       {reinterpret_cast<const uint8_t *>(owned->data()),
                        owned->size() * sizeof(T)}});
    owners.push_back(std::move(owned));
  }

  std::vector<Tensor> tensors;
  std::vector<std::shared_ptr<void>> owners;
};

/// A line on a terminal that says which layer runs, once that takes a while.
class Progress {
public:
  explicit Progress(size_t total) : total(total) {}
  ~Progress() { clear(); }

  void step(size_t index, StringRef what) {
    if (!enabled ||
        std::chrono::steady_clock::now() - start < std::chrono::seconds(1))
      return;
    clear();
    errs() << "ffd-run: " << what << " (" << index + 1 << " of " << total
           << ") ...";
    shown = true;
  }

private:
  void clear() {
    if (shown)
      errs() << "\r\033[K";
    shown = false;
  }

  size_t total;
  bool enabled = sys::Process::StandardErrIsDisplayed();
  bool shown = false;
  std::chrono::steady_clock::time_point start =
      std::chrono::steady_clock::now();
};
} // namespace

static void noteIgnored(const CaseFile &file) {
  if (file.ignored().empty())
    return;
  std::string name;
  raw_string_ostream os(name);
  printEscapedString(file.ignored().front(), os);
  size_t others = file.ignored().size() - 1;
  note("tensor '" + name + "'" +
       (others ? " and " + std::to_string(others) + " more are" : " is") +
       " no input of a decode and ignored");
}

static Error writeJson(const Report &report) {
  std::string text;
  raw_string_ostream os(text);
  report.printJson(os);
  if (jsonOpt == "-") {
    outs() << text;
    return Error::success();
  }
  return safetensors::writeFile(jsonOpt, arrayRefFromStringRef(text));
}

static Error runAll(const RunOptions &options, const CaseFile &file) {
  ThreadPool pool(threadsOpt);
  Runner runner(options, pool);
  if (Error e = runner.prepare())
    return e;
  Report report(inputOpt, options, pool.threads());
  Output output;
  {
    Progress progress(file.shapes().size());
    for (size_t i = 0; i < file.shapes().size(); ++i) {
      const CaseShape &shape = file.shapes()[i];
      std::string what =
          shape.layer ? "layer " + std::to_string(*shape.layer) : "case";
      progress.step(i, what);
      Expected<Case> loaded = file.load(i, pool);
      if (!loaded)
        return loaded.takeError();
      Expected<CaseResult> result = runner.run(*loaded);
      if (!result)
        return shape.layer
                   ? error("{0}: {1}", what, toString(result.takeError()))
                   : result.takeError();
      report.add(*result);
      output.add(*result);
    }
  }

  if (options.measure) {
    report.setExactNote(runner.exactNote());
    if (!options.onGpu() && !options.emulated()) {
      Expected<Bandwidth> bandwidth = measureReadBandwidth(pool);
      if (!bandwidth)
        return bandwidth.takeError();
      report.setBandwidth(*bandwidth);
    }
  }
  if (!outputOpt.empty()) {
    if (Error e = output.write(outputOpt))
      return e;
    if (options.deltas.size() > 1)
      note("'" + outputOpt + "' holds the results of the first delta, " +
           deltaOpt.front());
  }
  if (!jsonOpt.empty())
    if (Error e = writeJson(report))
      return e;
  if (reportOpt)
    report.printTable(outs());
  return Error::success();
}

static Error runTool() {
  RunOptions options;
  std::optional<int32_t> element;
  if (Error e = parseOptions(options))
    return e;
  if (Error e = parseElement(element))
    return e;
  Expected<CaseFile> file = CaseFile::open(inputOpt, element);
  if (!file)
    return file.takeError();
  noteIgnored(*file);
  // Before the work, not after it.
  if (!outputOpt.empty())
    if (Error e = safetensors::checkWritable(outputOpt))
      return e;
  if (!jsonOpt.empty() && jsonOpt != "-")
    if (Error e = safetensors::checkWritable(jsonOpt))
      return e;
  if (Error e = runAll(options, *file))
    return e;
  outs().flush();
  if (std::error_code ec = outs().error()) {
    outs().clear_error();
    return error("cannot write the standard output: {0}", ec.message());
  }
  return Error::success();
}

int main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  std::set_new_handler([] {
    std::fputs("ffd-run: error: out of memory\n", stderr);
    std::_Exit(1);
  });
  cl::HideUnrelatedOptions(category);
  cl::SetVersionPrinter([](raw_ostream &os) {
    os << "ffd-run, kernel ABI " << FFD_ABI_VERSION << "\n";
  });
  cl::ParseCommandLineOptions(
      argc, argv,
      "FFD: sparse decode attention on the tensors of a .safetensors file\n");
  if (Error e = runTool()) {
    outs().flush();
    errs() << "ffd-run: error: " << toString(std::move(e)) << "\n";
    return 1;
  }
  return 0;
}
