//===- ParseOptions.cpp - The command line of ffd-bench -------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every value is checked before anything is measured. --grid and --table change
// what an option is where it is not given.
//
//===----------------------------------------------------------------------===//

#include "ParseOptions.h"

#include "support/Errors.h"
#include "support/Options.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"

#include <cmath>

using namespace llvm;
using namespace ffd;
using namespace ffd::bench;
using namespace ffd::tools;

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

cl::OptionCategory ffd::bench::optionCategory("ffd-bench options");

static KernelOptions kernel(optionCategory,
                            "Bits of a thumbnail code: 2 (default), 4 or 8",
                            "Scores that the pseudo-max is taken from: those "
                            "of the scan (default: recorded figures are of "
                            "it), or refined ones, the default of the other "
                            "tools");

static cl::opt<bool>
    gridOpt("grid", cl::cat(optionCategory),
            cl::desc("The large grid: contexts 4K to 1M, batches 1, 8 and 32, "
                     "keep ratios 3 to 100 %, head dims 64 to 256, groups 1 to "
                     "8; options that are given narrow it. Checks fewer "
                     "results, and leaves out what memory does not hold"));
static cl::opt<std::string>
    tableOpt("table", cl::cat(optionCategory),
             cl::value_desc("selection|scan-depth|ablation"),
             cl::desc("Instead of a grid, a table of the FFD paper at one "
                      "context (default 16384): what a selection rule costs; "
                      "2, 4 and 8 scan bits; scan, rule and execution"));
static cl::opt<int> limitOpt("time-limit", cl::cat(optionCategory), cl::init(0),
                             cl::value_desc("s"),
                             cl::desc("Seconds after which no further point "
                                      "begins (default: none; 420 with "
                                      "--grid)"));
static cl::opt<std::string>
    plotOpt("plot", cl::cat(optionCategory), cl::value_desc("file.svg"),
            cl::desc("Draw time against context, by plot.py next to the "
                     "program"));
static cl::list<std::string>
    tokensOpt("tokens", cl::cat(optionCategory), cl::CommaSeparated,
              cl::value_desc("n,..."),
              cl::desc("Contexts, before the tail (default 4096)"));
static cl::list<std::string> batchOpt("batch", cl::cat(optionCategory),
                                      cl::CommaSeparated,
                                      cl::value_desc("n,..."),
                                      cl::desc("Sequences (default 1)"));
static cl::list<std::string>
    selectOpt("select-block", cl::cat(optionCategory), cl::CommaSeparated,
              cl::value_desc("n,..."),
              cl::desc("Tokens kept or skipped together: 16, 32, 64 or 128 "
                       "(default 16)"));
static cl::list<std::string> headDimOpt("head-dim", cl::cat(optionCategory),
                                        cl::CommaSeparated,
                                        cl::value_desc("n,..."),
                                        cl::desc("Dimension of K (default "
                                                 "128)"));
static cl::opt<int> valueDimOpt("value-dim", cl::cat(optionCategory),
                                cl::init(0), cl::value_desc("n"),
                                cl::desc("Dimension of V (default: of K)"));
static cl::list<std::string> groupOpt("group", cl::cat(optionCategory),
                                      cl::CommaSeparated,
                                      cl::value_desc("n,..."),
                                      cl::desc("Query heads per kv head "
                                               "(default 4)"));
static cl::opt<int> kvHeadsOpt("kv-heads", cl::cat(optionCategory), cl::init(8),
                               cl::value_desc("n"),
                               cl::desc("Heads of K and V (default 8)"));
static cl::opt<std::string> kvTypeOpt("kv-type", cl::cat(optionCategory),
                                      cl::init("f16"),
                                      cl::value_desc("f16|bf16"),
                                      cl::desc("Element type (default f16)"));
static cl::list<std::string>
    keepOpt("keep", cl::cat(optionCategory), cl::CommaSeparated,
            cl::value_desc("x,..."),
            cl::desc("Share of the 128-token blocks that the queries keep "
                     "(default 0.064); 1: everything, by an infinite delta"));
static cl::opt<std::string>
    deltaOpt("delta", cl::cat(optionCategory), cl::init("5"),
             cl::value_desc("d"),
             cl::desc("Threshold, natural-log units (default 5)"));
static cl::opt<int> tailOpt("tail", cl::cat(optionCategory), cl::init(64),
                            cl::value_desc("n"),
                            cl::desc("16-bit tokens after the committed ones "
                                     "(default 64)"));
static cl::opt<int>
    raggedOpt("ragged", cl::cat(optionCategory), cl::init(0),
              cl::value_desc("n"),
              cl::desc("Instead of --batch: n sequences with lengths from 1024 "
                       "to --tokens, most of them short"));
static cl::opt<std::string>
    splitsOpt("splits", cl::cat(optionCategory), cl::init("auto"),
              cl::value_desc("auto|sweep|n"),
              cl::desc("Pieces to cut a sequence into: as the runtime does, "
                       "the best of several, or that many (default auto)"));
static cl::opt<bool> profileOpt("profile-splits", cl::cat(optionCategory),
                                cl::desc("Print the time of every choice of "
                                         "--splits=sweep"));
static cl::opt<bool>
    denseOpt("dense", cl::cat(optionCategory),
             cl::desc("Time dense attention too: ours over 16-bit K and V, and "
                      "FFD with delta inf"));
static cl::opt<std::string>
    againstOpt("against", cl::cat(optionCategory), cl::value_desc("torch"),
               cl::desc("Time PyTorch's attention too, in a child process"));
static cl::opt<bool> launchOpt("launch-only", cl::cat(optionCategory),
                               cl::desc("Only the read peak and an empty "
                                        "launch"));
static cl::opt<std::string>
    pagesOpt("pages", cl::cat(optionCategory), cl::init("shuffled"),
             cl::value_desc("shuffled|contiguous"),
             cl::desc("Order of a sequence's pages in memory (default "
                      "shuffled)"));
static cl::opt<int> repsOpt("reps", cl::cat(optionCategory), cl::init(21),
                            cl::value_desc("n"),
                            cl::desc("Runs to take the median of (default "
                                     "21)"));
static cl::opt<bool>
    noCheckOpt("no-check", cl::cat(optionCategory),
               cl::desc("A result that is far off is a note, not an error"));
static cl::opt<std::string> pythonOpt("python", cl::cat(optionCategory),
                                      cl::init("python3"),
                                      cl::value_desc("program"),
                                      cl::desc("Python with PyTorch (default "
                                               "python3)"));
static cl::opt<std::string>
    torchScriptOpt("torch-script", cl::cat(optionCategory),
                   cl::value_desc("file"),
                   cl::desc("torch_sdpa.py (default: next to the program)"));

//===----------------------------------------------------------------------===//
// Checking them
//===----------------------------------------------------------------------===//

/// A list of numbers, or what stands for it where it is not given.
static Error parseListOr(StringRef option, ArrayRef<std::string> texts,
                         std::vector<int64_t> fallback, int64_t most,
                         std::vector<int64_t> &values) {
  if (Error e = parseList(option, texts, most, values))
    return e;
  if (values.empty())
    values = std::move(fallback);
  return Error::success();
}

static Error parseKeeps(std::vector<double> fallback,
                        std::vector<double> &values) {
  for (const std::string &text : keepOpt) {
    double value = 0;
    if (StringRef(text).getAsDouble(value) || !(value > 0) || value > 1)
      return error(
          "option --keep has the value '{0}', expected a number above 0, "
          "at most 1",
          text);
    values.push_back(value);
  }
  if (values.empty())
    values = std::move(fallback);
  return Error::success();
}

static Error parseTable(Options &o) {
  if (!tableOpt.getNumOccurrences())
    return Error::success();
  if (Error e = expectOneOf("table", tableOpt,
                            {"selection", "scan-depth", "ablation"}))
    return e;
  o.table = tableOpt == "selection"    ? Table::Selection
            : tableOpt == "scan-depth" ? Table::ScanDepth
                                       : Table::Ablation;
  for (auto [name, given] :
       {std::pair("grid", bool(gridOpt)), std::pair("ragged", raggedOpt > 0),
        std::pair("against", !againstOpt.empty()),
        std::pair("plot", !plotOpt.empty()), std::pair("dense", bool(denseOpt)),
        std::pair("launch-only", bool(launchOpt)),
        std::pair("splits", splitsOpt.getNumOccurrences() > 0),
        std::pair("profile-splits", bool(profileOpt)),
        std::pair("kernel-dir", !kernel.kernelDir.empty()),
        std::pair("time-limit", limitOpt > 0)})
    if (given)
      return error("options --table and --{0} are both given, expected one",
                   name);
  if (kernel.centre() == FFD_CENTRE_ROW)
    return error("options --table and --centre=row are both given, expected "
                 "plain keys");
  if (kernel.scanBits.getNumOccurrences())
    return error("options --table and --scan-bits are both given, expected "
                 "one: a table has scan bits of its own");
  if (kernel.pseudoMaxOr(FFD_PSEUDO_MAX_SCAN) == FFD_PSEUDO_MAX_REFINED)
    return error("options --table and --pseudo-max=refined are both given, "
                 "expected one: a table compares rules of which only one has a "
                 "pseudo-max");
  if (kernel.certificate())
    return error("options --table and --certificate={0} are both given, "
                 "expected one: a table compares rules of which only one has a "
                 "certificate",
                 kernel.certificateName.getValue());
  for (auto [name, count] :
       {std::pair("tokens", o.tokens.size()),
        std::pair("batch", o.batches.size()),
        std::pair("select-block", o.selectBlocks.size()),
        std::pair("head-dim", o.headDims.size()),
        std::pair("group", o.groups.size()), std::pair("keep", o.keeps.size())})
    if (count > 1)
      return error("option --{0} has {1} values with --table, expected one",
                   name, count);
  if (o.keep() >= 1)
    return error("option --keep is {0} with --table, expected a number below 1",
                 o.keep());
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

Error ffd::bench::parseOptions(Options &o) {
  if (Error e = kernel.check())
    return e;
  if (Error e = expectOneOf("kv-type", kvTypeOpt, {"f16", "bf16"}))
    return e;
  if (Error e = expectOneOf("pages", pagesOpt, {"shuffled", "contiguous"}))
    return e;
  if (againstOpt.getNumOccurrences())
    if (Error e = expectOneOf("against", againstOpt, {"torch"}))
      return e;
  if (!againstOpt.empty() && kernel.target != "cuda")
    return error("option --against is '{0}' with --target={1}, expected "
                 "--target=cuda",
                 againstOpt.getValue(), kernel.target.getValue());
  if (Error e = expectText(plotOpt, "a name that ends in .svg"))
    return e;
  if (Error e = expectText(pythonOpt, "a program"))
    return e;
  if (Error e = expectText(torchScriptOpt, "a file"))
    return e;
  if (pythonOpt.getNumOccurrences() && againstOpt.empty() && plotOpt.empty())
    return error("option --python is given without --against or --plot, "
                 "expected one of them");
  if (torchScriptOpt.getNumOccurrences() && againstOpt.empty())
    return error("option --torch-script is given without --against=torch, "
                 "expected both");
  for (auto [name, given] : {std::pair("plot", !plotOpt.empty()),
                             std::pair("against", !againstOpt.empty()),
                             std::pair("dense", bool(denseOpt))})
    if (given && launchOpt)
      return error("options --launch-only and --{0} are both given, expected "
                   "one",
                   name);
  using List = std::vector<int64_t>;
  const bool table = !tableOpt.empty(), selection = tableOpt == "selection";
  // The paper compares rules that keep 27.3 % of the blocks at 16K tokens.
  if (Error e = parseListOr("tokens", tokensOpt,
                            gridOpt ? List{4096, 16384, 65536, 262144, 1048576}
                            : table ? List{16384}
                                    : List{4096},
                            1 << 24, o.tokens))
    return e;
  if (Error e =
          parseListOr("batch", batchOpt, gridOpt ? List{1, 8, 32} : List{1},
                      4096, o.batches))
    return e;
  if (Error e =
          parseListOr("select-block", selectOpt,
                      selection ? List{128} : List{16}, 128, o.selectBlocks))
    return e;
  if (Error e = parseListOr("head-dim", headDimOpt,
                            gridOpt ? List{128, 64, 256} : List{128}, 1 << 20,
                            o.headDims))
    return e;
  if (Error e =
          parseListOr("group", groupOpt, gridOpt ? List{4, 1, 8} : List{4},
                      1 << 20, o.groups))
    return e;
  using Shares = std::vector<double>;
  if (Error e = parseKeeps(gridOpt     ? Shares{0.064, 0.03, 0.18, 0.27, 1}
                           : selection ? Shares{0.273}
                                       : Shares{0.064},
                           o.keeps))
    return e;
  for (auto [name, value, least, most] :
       {std::tuple("kv-heads", kvHeadsOpt.getValue(), 1, 1024),
        std::tuple("tail", tailOpt.getValue(), 0, 1 << 20),
        std::tuple("ragged", raggedOpt.getValue(), 0, 4096),
        std::tuple("reps", repsOpt.getValue(), 1, 100000),
        std::tuple("time-limit", limitOpt.getValue(), 0, 1 << 20),
        std::tuple("value-dim", valueDimOpt.getValue(), 0, 1 << 20)})
    if (Error e = expectRange(name, value, least, most))
      return e;
  if (raggedOpt && batchOpt.getNumOccurrences())
    return error("options --ragged and --batch are both given, expected one");
  if (Error e = parseDelta(deltaOpt, o.delta))
    return e;
  if (Error e = parseSplits(o))
    return e;

  if (Error e = parseTable(o))
    return e;
  if (!plotOpt.empty() && !StringRef(plotOpt).ends_with(".svg"))
    return error("option --plot is '{0}', expected a name that ends in .svg",
                 plotOpt.getValue());

  o.valueDim = valueDimOpt;
  o.spec.element = kvTypeOpt == "bf16" ? FFD_BF16 : FFD_F16;
  o.spec.scan_bits = kernel.scanBits;
  o.spec.quant_block = 128;
  o.spec.centre = kernel.centre();
  // Recorded figures are of the scan's, and so are the paper's.
  o.spec.pseudo_max = kernel.pseudoMaxOr(FFD_PSEUDO_MAX_SCAN);
  o.spec.certificate = kernel.certificate();
  for (int64_t headDim : o.headDims)
    for (int64_t group : o.groups)
      for (int64_t select : o.selectBlocks) {
        o.spec = o.of(headDim, group).spec;
        o.spec.select_block = int32_t(select);
        if (Error e = expectValid(o.spec))
          return e;
      }
  o.spec = o.of(o.headDims.front(), o.groups.front()).spec;
  o.target = kernel.target;
  o.kernelDir = kernel.kernelDir;
  o.kvHeads = kvHeadsOpt;
  o.tail = tailOpt;
  o.ragged = raggedOpt;
  if (o.ragged)
    o.batches = {o.ragged};
  o.profileSplits = profileOpt;
  o.dense = denseOpt;
  o.torch = !againstOpt.empty();
  o.launchOnly = launchOpt;
  o.contiguousPages = pagesOpt == "contiguous";
  o.reps = repsOpt.getNumOccurrences() || !gridOpt ? repsOpt : 9;
  o.grid = gridOpt;
  o.secondsAllowed = limitOpt || !gridOpt ? limitOpt : 420;
  o.arch = kernel.arch;
  o.json = kernel.json;
  o.plot = plotOpt;
  o.tolerant = noCheckOpt;
  o.threads = kernel.threads;
  o.python = pythonOpt;
  o.torchScript = torchScriptOpt;
  return Error::success();
}

Options Options::of(int64_t headDim, int64_t group) const {
  Options one = *this;
  one.spec.head_dim = int32_t(headDim);
  one.spec.value_dim = int32_t(valueDim ? valueDim : headDim);
  one.spec.group = int32_t(group);
  return one;
}
