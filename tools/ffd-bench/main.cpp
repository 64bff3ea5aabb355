//===- main.cpp - How fast decodes are ------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ffd-bench times the generated decode kernels over a grid of shapes, contexts
// and batches on synthetic data with known keep ratios, next to a plain read of
// the same size and to dense attention, ours and PyTorch's; or it makes one of
// the paper's tables. The flow; the parts are in the files next to this one.
//
//===----------------------------------------------------------------------===//

#include "ParseOptions.h"
#include "Plot.h"
#include "Report.h"
#include "Tables.h"

#include "support/Errors.h"
#include "support/Main.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>

using namespace llvm;
using namespace ffd;
using namespace ffd::bench;
using namespace ffd::tools;

//===----------------------------------------------------------------------===//
// Flow
//===----------------------------------------------------------------------===//

static Error writeFile(const Options &options,
                       function_ref<void(raw_ostream &)> print) {
  if (options.json.empty())
    return Error::success();
  std::error_code ec;
  raw_fd_ostream os(options.json, ec);
  if (ec)
    return error("option --json: cannot write '{0}': {1}", options.json,
                 ec.message());
  print(os);
  return Error::success();
}

static Error writeJson(const Options &options, const Report &report) {
  return writeFile(options, [&](raw_ostream &os) { report.printJson(os); });
}

static constexpr double kRivalSeconds = 300;

namespace {
/// How far a run is: a line now and then, and the time that is allowed.
class Progress {
public:
  Progress(const Options &options, int64_t points)
      : options(options), points(points) {}

  double seconds() const {
    std::chrono::duration<double> passed =
        std::chrono::steady_clock::now() - start;
    return passed.count();
  }
  bool outOfTime() const {
    return options.secondsAllowed > 0 && seconds() > options.secondsAllowed;
  }
  /// Half of what is left of the time, for the rivals of one shape.
  double secondsForRivals() const {
    return options.secondsAllowed > 0
               ? std::min(kRivalSeconds,
                          (options.secondsAllowed - seconds()) / 2)
               : kRivalSeconds;
  }
  /// Points that are dealt with, measured or not.
  void add(int64_t count) {
    done += count;
    if (options.grid)
      errs() << formatv("ffd-bench: {0} of {1} points, {2:f0} s\n", done,
                        points, seconds());
  }

private:
  const Options &options;
  int64_t points, done = 0;
  std::chrono::steady_clock::time_point start =
      std::chrono::steady_clock::now();
};

/// What became of the points of a run.
struct Outcome {
  int64_t points = 0, failed = 0, tooLarge = 0, late = 0;
};
} // namespace

/// The points of one shape. One that fails is reported, and the others go on.
static Error runShape(const Options &options, Machine &machine, Report &report,
                      Progress &progress, Outcome &outcome, raw_ostream &os) {
  const int64_t keeps = int64_t(options.keeps.size());
  if (progress.outOfTime()) {
    outcome.late +=
        keeps * int64_t(options.tokens.size() * options.batches.size() *
                        options.selectBlocks.size());
    return Error::success();
  }
  Bench bench(options, machine, options.tolerant);
  double written = progress.seconds();
  if (options.torch)
    report.setTorch(options.spec,
                    runTorch(options, progress.secondsForRivals()));
  report.printShape(options, os);
  for (int64_t tokens : options.tokens)
    for (int64_t batch : options.batches)
      for (int64_t select : options.selectBlocks) {
        if (progress.outOfTime()) {
          outcome.late += keeps;
          continue;
        }
        std::string where =
            formatv("tokens {0}, batch {1}, selection block {2}", tokens, batch,
                    select);
        std::string large =
            options.grid ? bench.tooLarge(tokens, batch) : std::string();
        if (!large.empty()) {
          outcome.tooLarge += keeps;
          os << "    left out: " << where << ": " << large << "\n";
          progress.add(keeps);
          continue;
        }
        Error failed = bench.measure(tokens, batch, select, [&](Point point) {
          report.add(std::move(point));
          report.printLast(os);
        });
        if (failed) {
          outcome.failed += keeps;
          errs() << "ffd-bench: error: " << where << ": "
                 << toString(std::move(failed)) << "\n";
        }
        progress.add(keeps);
        // Points that are measured survive whatever happens to the next.
        if (options.json != "-" &&
            (!options.grid || progress.seconds() - written > 5)) {
          written = progress.seconds();
          if (Error e = writeJson(options, report))
            return e;
        }
      }
  return Error::success();
}

static Error runPoints(const Options &options, Machine &machine, Report &report,
                       raw_ostream &os) {
  Outcome outcome;
  outcome.points = int64_t(options.headDims.size() * options.groups.size() *
                           options.tokens.size() * options.batches.size() *
                           options.selectBlocks.size() * options.keeps.size());
  Progress progress(options, outcome.points);
  for (int64_t headDim : options.headDims)
    for (int64_t group : options.groups)
      if (Error e = runShape(options.of(headDim, group), machine, report,
                             progress, outcome, os))
        return e;
  report.printNotes(os);
  if (outcome.tooLarge)
    os << "note: " << outcome.tooLarge << " of " << outcome.points
       << " points do not fit the memory\n";
  if (outcome.late)
    os << "note: " << outcome.late << " of " << outcome.points
       << " points were not measured within "
       << formatv("{0:f0}", options.secondsAllowed) << " s\n";
  if (outcome.failed)
    return error("{0} of {1} points could not be measured", outcome.failed,
                 outcome.points);
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
  if (Error e = writeJson(options, report)) // before the work, not after it
    return e;
  if (Error e = (*machine)->measurePeak())
    return e;
  Expected<Timing> empty = (*machine)->timeEmpty();
  if (!empty)
    return empty.takeError();
  report.setEmpty(*empty);

  raw_ostream &os = options.json == "-" ? errs() : outs();
  report.printHead(os);
  if (options.launchOnly)
    return writeJson(options, report);
  if (options.table != Table::None) {
    Expected<TableResult> table = makeTable(options, **machine, os);
    if (!table)
      return table.takeError();
    return writeFile(
        options, [&](raw_ostream &to) { report.printTableJson(*table, to); });
  }
  Error result = runPoints(options, **machine, report, os);
  if (Error e = writeJson(options, report))
    result = joinErrors(std::move(result), std::move(e));
  if (!options.plot.empty())
    if (Error e = plot(options, report))
      result = joinErrors(std::move(result), std::move(e));
  return result;
}

int main(int argc, char **argv) {
  std::string command = join(ArrayRef<char *>(argv, argc), " ");
  return runMain(argc, argv, "ffd-bench", optionCategory,
                 "FFD: how fast sparse decode attention is\n",
                 [&] { return runTool(argv[0], command); });
}
