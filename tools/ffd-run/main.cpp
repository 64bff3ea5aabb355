//===- main.cpp - Decoding real tensors from the command line -------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ffd-run reads q, K and V from a .safetensors file, decodes them with a kernel
// that this compiler generated, writes the result and reports how far it is
// from exact attention and how fast. The flow; the parts are in the files next
// to this one.
//
//===----------------------------------------------------------------------===//

#include "Case.h"
#include "ParseOptions.h"
#include "Report.h"
#include "Runner.h"
#include "Safetensors.h"

#include "support/Bandwidth.h"
#include "support/Errors.h"
#include "support/Main.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>

using namespace llvm;
using namespace ffd;
using namespace ffd::run;
using namespace ffd::tools;
using ffd::safetensors::DType;
using ffd::safetensors::Tensor;

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
    if (!first.skipped.empty())
      add<float>(s.prefix + "skipped_lse", DType::F32, heads,
                 std::move(first.skipped));
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
  note("ffd-run",
       "tensor '" + name + "'" +
           (others ? " and " + std::to_string(others) + " more are" : " is") +
           " no input of a decode and ignored");
}

static Error writeJson(const Report &report, StringRef path) {
  std::string text;
  raw_string_ostream os(text);
  report.printJson(os);
  if (path == "-") {
    outs() << text;
    return Error::success();
  }
  return safetensors::writeFile(path, arrayRefFromStringRef(text));
}

static Error runAll(const Options &tool, const CaseFile &file) {
  const RunOptions &options = tool.run;
  ThreadPool pool(tool.threads);
  Runner runner(options, pool);
  if (Error e = runner.prepare())
    return e;
  Report report(tool.input, options, pool.threads());
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
  if (!tool.output.empty()) {
    if (Error e = output.write(tool.output))
      return e;
    if (options.deltas.size() > 1)
      note("ffd-run", "'" + tool.output +
                          "' holds the results of the first delta, " +
                          tool.firstDelta);
  }
  if (!tool.json.empty())
    if (Error e = writeJson(report, tool.json))
      return e;
  if (tool.report)
    report.printTable(outs());
  return Error::success();
}

static Error runTool() {
  Options tool;
  if (Error e = parseOptions(tool))
    return e;
  Expected<CaseFile> file = CaseFile::open(tool.input, tool.element);
  if (!file)
    return error("option --input: {0}", toString(file.takeError()));
  noteIgnored(*file);
  // Before the work, not after it.
  if (!tool.output.empty())
    if (Error e = safetensors::checkWritable(tool.output))
      return e;
  if (!tool.json.empty() && tool.json != "-")
    if (Error e = safetensors::checkWritable(tool.json))
      return e;
  return runAll(tool, *file);
}

int main(int argc, char **argv) {
  return runMain(
      argc, argv, "ffd-run", optionCategory,
      "FFD: sparse decode attention on the tensors of a .safetensors file\n",
      runTool);
}
