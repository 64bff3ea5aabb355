//===- main.cpp - How fast decodes are ------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ffd-bench times the generated decode kernels over a grid of contexts and
// batches on synthetic data with a known keep ratio, next to a plain read of
// the same size and to dense attention, ours and PyTorch's. Options and flow;
// the parts are in the files next to this one.
//
//===----------------------------------------------------------------------===//

#include "Report.h"

#include "../ffd-run/Errors.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <new>

using namespace llvm;
using namespace ffd;
using namespace ffd::bench;
using ffd::run::error;

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

static cl::OptionCategory category("ffd-bench options");

static cl::opt<std::string> targetOpt("target", cl::cat(category),
                                      cl::init("cpu"),
                                      cl::value_desc("cpu|cuda"),
                                      cl::desc("Where to run (default cpu)"));
static cl::list<std::string>
    tokensOpt("tokens", cl::cat(category), cl::CommaSeparated,
              cl::value_desc("n,..."),
              cl::desc("Contexts, before the tail (default 4096)"));
static cl::list<std::string> batchOpt("batch", cl::cat(category),
                                      cl::CommaSeparated,
                                      cl::value_desc("n,..."),
                                      cl::desc("Sequences (default 1)"));
static cl::list<std::string>
    selectOpt("select-block", cl::cat(category), cl::CommaSeparated,
              cl::value_desc("n,..."),
              cl::desc("Tokens kept or skipped together: 16, 32, 64 or 128 "
                       "(default 16)"));
static cl::opt<int> headDimOpt("head-dim", cl::cat(category), cl::init(128),
                               cl::value_desc("n"),
                               cl::desc("Dimension of K (default 128)"));
static cl::opt<int> valueDimOpt("value-dim", cl::cat(category), cl::init(0),
                                cl::value_desc("n"),
                                cl::desc("Dimension of V (default: of K)"));
static cl::opt<int> groupOpt("group", cl::cat(category), cl::init(4),
                             cl::value_desc("n"),
                             cl::desc("Query heads per kv head (default 4)"));
static cl::opt<int> kvHeadsOpt("kv-heads", cl::cat(category), cl::init(8),
                               cl::value_desc("n"),
                               cl::desc("Heads of K and V (default 8)"));
static cl::opt<std::string> kvTypeOpt("kv-type", cl::cat(category),
                                      cl::init("f16"),
                                      cl::value_desc("f16|bf16"),
                                      cl::desc("Element type (default f16)"));
static cl::opt<int> scanBitsOpt("scan-bits", cl::cat(category), cl::init(2),
                                cl::value_desc("2|4|8"),
                                cl::desc("Bits of a thumbnail code (default "
                                         "2)"));
static cl::opt<double>
    keepOpt("keep", cl::cat(category), cl::init(0.064), cl::value_desc("x"),
            cl::desc("Share of the 128-token blocks that the queries keep "
                     "(default 0.064)"));
static cl::opt<double>
    deltaOpt("delta", cl::cat(category), cl::init(5), cl::value_desc("d"),
             cl::desc("Threshold, natural-log units (default 5)"));
static cl::opt<int> tailOpt("tail", cl::cat(category), cl::init(64),
                            cl::value_desc("n"),
                            cl::desc("16-bit tokens after the committed ones "
                                     "(default 64)"));
static cl::opt<int>
    raggedOpt("ragged", cl::cat(category), cl::init(0), cl::value_desc("n"),
              cl::desc("Instead of --batch: n sequences with lengths from 1024 "
                       "to --tokens, most of them short"));
static cl::opt<std::string>
    splitsOpt("splits", cl::cat(category), cl::init("auto"),
              cl::value_desc("auto|sweep|n"),
              cl::desc("Pieces to cut a sequence into: as the runtime does, "
                       "the best of several, or that many (default auto)"));
static cl::opt<bool> profileOpt("profile-splits", cl::cat(category),
                                cl::desc("Print the time of every choice of "
                                         "--splits=sweep"));
static cl::opt<bool>
    denseOpt("dense", cl::cat(category),
             cl::desc("Time dense attention too: ours over 16-bit K and V, and "
                      "FFD with delta inf"));
static cl::opt<std::string>
    againstOpt("against", cl::cat(category), cl::value_desc("torch"),
               cl::desc("Time PyTorch's attention too, in a child process"));
static cl::opt<bool> launchOpt("launch-only", cl::cat(category),
                               cl::desc("Only the read peak and an empty "
                                        "launch"));
static cl::opt<std::string>
    pagesOpt("pages", cl::cat(category), cl::init("shuffled"),
             cl::value_desc("shuffled|contiguous"),
             cl::desc("Order of a sequence's pages in memory (default "
                      "shuffled)"));
static cl::opt<std::string> jsonOpt("json", cl::cat(category),
                                    cl::value_desc("file"),
                                    cl::desc("Write everything as JSON; '-' "
                                             "is the standard output"));
static cl::opt<int> repsOpt("reps", cl::cat(category), cl::init(21),
                            cl::value_desc("n"),
                            cl::desc("Runs to take the median of (default "
                                     "21)"));
static cl::opt<int> threadsOpt("threads", cl::cat(category), cl::init(0),
                               cl::value_desc("n"),
                               cl::desc("Host threads (default 0: all cores)"));
static cl::opt<bool>
    noCheckOpt("no-check", cl::cat(category),
               cl::desc("A result that is far off is a note, not an error"));
static cl::opt<std::string>
    kernelDirOpt("kernel-dir", cl::cat(category), cl::value_desc("folder"),
                 cl::desc("Folder of compiled kernels (.ffdk); what it lacks "
                          "is compiled on the spot if the compiler is there"));
static cl::opt<std::string> pythonOpt("python", cl::cat(category),
                                      cl::init("python3"),
                                      cl::value_desc("program"),
                                      cl::desc("Python with PyTorch (default "
                                               "python3)"));
static cl::opt<std::string>
    torchScriptOpt("torch-script", cl::cat(category), cl::value_desc("file"),
                   cl::desc("torch_sdpa.py (default: next to the program)"));

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

static Error expectRange(StringRef option, int64_t value, int64_t least,
                         int64_t most) {
  if (value >= least && value <= most)
    return Error::success();
  return error("option --{0} is {1}, expected {2} to {3}", option, value, least,
               most);
}

static Error parseList(StringRef option, ArrayRef<std::string> texts,
                       int64_t fallback, int64_t most,
                       std::vector<int64_t> &values) {
  for (const std::string &text : texts) {
    int64_t value = 0;
    if (StringRef(text).getAsInteger(10, value) || value < 1 || value > most)
      return error("option --{0} has the value '{1}', expected 1 to {2}",
                   option, text, most);
    values.push_back(value);
  }
  if (values.empty())
    values.push_back(fallback);
  return Error::success();
}

static Error parseSplits(Options &options) {
  StringRef text = splitsOpt;
  if (text == "auto")
    return Error::success();
  if (text == "sweep") {
    options.splitsMode = SplitsMode::Sweep;
    return Error::success();
  }
  options.splitsMode = SplitsMode::Fixed;
  if (text.getAsInteger(10, options.splits) || options.splits < 1 ||
      options.splits > 1024)
    return error("option --splits is '{0}', expected auto, sweep or 1 to 1024",
                 text);
  return Error::success();
}

static Error parseOptions(Options &o) {
  if (Error e = expectOneOf("target", targetOpt, {"cpu", "cuda"}))
    return e;
  if (Error e = expectOneOf("kv-type", kvTypeOpt, {"f16", "bf16"}))
    return e;
  if (Error e = expectOneOf("pages", pagesOpt, {"shuffled", "contiguous"}))
    return e;
  if (!againstOpt.empty())
    if (Error e = expectOneOf("against", againstOpt, {"torch"}))
      return e;
  if (!againstOpt.empty() && targetOpt != "cuda")
    return error("option --against is '{0}' with --target={1}, expected "
                 "--target=cuda",
                 againstOpt.getValue(), targetOpt.getValue());
  if (Error e = parseList("tokens", tokensOpt, 4096, 1 << 24, o.tokens))
    return e;
  if (Error e = parseList("batch", batchOpt, 1, 4096, o.batches))
    return e;
  if (Error e = parseList("select-block", selectOpt, 16, 128, o.selectBlocks))
    return e;
  for (auto [name, value, least, most] :
       {std::tuple("kv-heads", kvHeadsOpt.getValue(), 1, 1024),
        std::tuple("tail", tailOpt.getValue(), 0, 1 << 20),
        std::tuple("ragged", raggedOpt.getValue(), 0, 4096),
        std::tuple("reps", repsOpt.getValue(), 1, 100000),
        std::tuple("threads", threadsOpt.getValue(), 0, 4096)})
    if (Error e = expectRange(name, value, least, most))
      return e;
  if (raggedOpt && batchOpt.getNumOccurrences())
    return error("options --ragged and --batch are both given, expected one");
  if (!(keepOpt > 0) || keepOpt > 1)
    return error("option --keep is {0}, expected a number above 0, at most 1",
                 keepOpt.getValue());
  if (!(deltaOpt >= 0))
    return error("option --delta is {0}, expected a number from 0 to inf",
                 deltaOpt.getValue());
  if (Error e = parseSplits(o))
    return e;

  o.spec.head_dim = headDimOpt;
  o.spec.value_dim = valueDimOpt ? valueDimOpt : headDimOpt;
  o.spec.group = groupOpt;
  o.spec.element = kvTypeOpt == "bf16" ? FFD_BF16 : FFD_F16;
  o.spec.scan_bits = scanBitsOpt;
  o.spec.quant_block = 128;
  for (int64_t select : o.selectBlocks) {
    o.spec.select_block = int32_t(select);
    if (Error e = run::toError(checkSpec(o.spec)))
      return e;
  }
  o.target = targetOpt;
  o.kernelDir = kernelDirOpt;
  o.kvHeads = kvHeadsOpt;
  o.tail = tailOpt;
  o.ragged = raggedOpt;
  if (o.ragged)
    o.batches = {o.ragged};
  o.keep = keepOpt;
  o.delta = float(deltaOpt);
  o.profileSplits = profileOpt;
  o.dense = denseOpt;
  o.torch = !againstOpt.empty();
  o.launchOnly = launchOpt;
  o.contiguousPages = pagesOpt == "contiguous";
  o.reps = repsOpt;
  o.threads = threadsOpt;
  o.python = pythonOpt;
  o.torchScript = torchScriptOpt;
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Flow
//===----------------------------------------------------------------------===//

static Error writeJson(const Report &report) {
  if (jsonOpt.empty())
    return Error::success();
  std::error_code ec;
  raw_fd_ostream os(jsonOpt, ec);
  if (ec)
    return error("cannot write '{0}': {1}", jsonOpt.getValue(), ec.message());
  report.printJson(os);
  return Error::success();
}

/// Measures all points. One that fails is reported, and the others go on.
static Error runPoints(const Options &options, Machine &machine, Report &report,
                       raw_ostream &os) {
  Bench bench(options, machine, noCheckOpt);
  int failed = 0;
  for (int64_t tokens : options.tokens)
    for (int64_t batch : options.batches)
      for (int64_t select : options.selectBlocks) {
        Expected<Point> point = bench.measure(tokens, batch, select);
        if (!point) {
          ++failed;
          errs() << "ffd-bench: error: tokens " << tokens << ", batch " << batch
                 << ", selection block " << select << ": "
                 << toString(point.takeError()) << "\n";
          continue;
        }
        report.add(std::move(*point));
        report.printLast(os);
        // Points that are measured survive whatever happens to the next.
        if (jsonOpt != "-")
          if (Error e = writeJson(report))
            return e;
      }
  report.printNotes(os);
  if (failed)
    return error("{0} of {1} points could not be measured", failed,
                 options.tokens.size() * options.batches.size() *
                     options.selectBlocks.size());
  return Error::success();
}

static Error runTool(std::string program, std::string command) {
  Options options;
  options.program = std::move(program);
  if (Error e = parseOptions(options))
    return e;
  ThreadPool pool(options.threads);
  Expected<std::unique_ptr<Machine>> machine = Machine::open(options, pool);
  if (!machine)
    return machine.takeError();
  Report report(options, **machine, std::move(command));
  if (Error e = writeJson(report)) // before the work, not after it
    return e;
  if (options.torch && !options.launchOnly)
    report.setTorch(runTorch(options));
  if (Error e = (*machine)->measurePeak())
    return e;
  Expected<Timing> empty = (*machine)->timeEmpty();
  if (!empty)
    return empty.takeError();
  report.setEmpty(*empty);

  raw_ostream &os = jsonOpt == "-" ? errs() : outs();
  report.printHead(os);
  Error result = options.launchOnly ? Error::success()
                                    : runPoints(options, **machine, report, os);
  if (Error e = writeJson(report))
    return joinErrors(std::move(result), std::move(e));
  return result;
}

int main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  std::set_new_handler([] {
    std::fputs("ffd-bench: error: out of memory\n", stderr);
    std::_Exit(1);
  });
  cl::HideUnrelatedOptions(category);
  cl::SetVersionPrinter([](raw_ostream &os) {
    os << "ffd-bench, kernel ABI " << FFD_ABI_VERSION << "\n";
  });
  cl::ParseCommandLineOptions(argc, argv,
                              "FFD: how fast sparse decode attention is\n");
  std::string command = join(ArrayRef<char *>(argv, argc), " ");
  if (Error e = runTool(argv[0], command)) {
    outs().flush();
    errs() << "ffd-bench: error: " << toString(std::move(e)) << "\n";
    return 1;
  }
  return 0;
}
