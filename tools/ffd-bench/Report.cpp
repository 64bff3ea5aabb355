//===- Report.cpp - The table and the JSON of a benchmark -----------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Times are microseconds of one launch in the table, seconds in JSON.
//
//===----------------------------------------------------------------------===//

#include "Report.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cmath>
#include <ctime>
#include <set>

using namespace llvm;

namespace ffd::bench {

/// The first line of a file that starts with `key`, or "".
static std::string lineOf(StringRef path, StringRef key) {
  ErrorOr<std::unique_ptr<MemoryBuffer>> file =
      MemoryBuffer::getFileAsStream(path);
  if (!file)
    return "";
  StringRef rest = (*file)->getBuffer();
  while (!rest.empty()) {
    auto [line, next] = rest.split('\n');
    if (line.starts_with(key))
      return line.substr(key.size()).ltrim(" \t:").str();
    rest = next;
  }
  return "";
}

Report::Report(const Options &options, Machine &machine, std::string command)
    : options(options), machine(machine), command(std::move(command)) {
  char text[64] = {};
  std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  date = text;
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

static std::string text(const char *pattern, double value) {
  std::string result;
  raw_string_ostream(result) << format(pattern, value);
  return result;
}

static std::string micros(double seconds) {
  return text(seconds < 1e-3 ? "%.2f" : "%.1f", seconds * 1e6);
}
static std::string micros(const std::optional<ProgramTiming> &timing) {
  return timing ? micros(timing->best.timing.median) : "-";
}

namespace {
struct Column {
  const char *name;
  int width;
};
} // namespace

static constexpr Column kColumns[] = {
    {"tokens", 7},   {"batch", 6},   {"select", 7},   {"kept", 7},
    {"of 128", 7},   {"splits", 7},  {"MB", 9},       {"us", 9},
    {"p10", 9},      {"p90", 9},     {"GB/s", 8},     {"peak", 7},
    {"read us", 9},  {"all us", 9},  {"exact us", 9}, {"torch us", 9},
    {"backend", 12}, {"speed-up", 9}};

static void printCells(raw_ostream &os, ArrayRef<std::string> cells) {
  for (auto [column, cell] : zip(kColumns, cells))
    os << right_justify(cell, std::max<size_t>(column.width, cell.size() + 1));
  os << "\n";
}

void Report::printHead(raw_ostream &os) const {
  os << machine.name() << ", head dim " << options.spec.head_dim << ", "
     << options.kvHeads << " kv heads, group " << options.spec.group << ", "
     << elementName(options.spec.element) << ", " << options.spec.scan_bits
     << "-bit scan, delta " << text("%g", options.delta) << ", keep "
     << text("%g", options.keep) << ", tail " << options.tail << ", median of "
     << options.reps << "\n";
  os << "read peak " << text("%.1f", machine.peak() * 1e-9)
     << " GB/s; an empty launch takes " << micros(empty.median) << " us\n";
  if (!torch.version.empty())
    os << "rivals: " << torch.version << "\n";
  if (!torch.note.empty())
    os << "note: " << torch.note << "\n";
  if (options.launchOnly)
    return;
  std::vector<std::string> names;
  for (const Column &column : kColumns)
    names.push_back(column.name);
  printCells(os, names);
  os.flush();
}

std::pair<std::string, double> Report::bestDense(const Point &point) const {
  std::pair<std::string, double> best = torch.best(point.tokens, point.batch);
  for (auto [name, timing] :
       {std::pair("exact", &point.exact), std::pair("all", &point.keepAll)})
    if (*timing &&
        (best.first.empty() || (*timing)->best.timing.median < best.second))
      best = {name, (*timing)->best.timing.median};
  return best;
}

void Report::printLast(raw_ostream &os) const {
  const Point &p = points.back();
  const Timing &t = p.decode.best.timing;
  auto [backend, torchSeconds] = torch.best(p.tokens, p.batch);
  auto [rival, rivalSeconds] = bestDense(p);
  double blocks = double(p.check.quantBlocks);
  printCells(os, {std::to_string(p.tokens), std::to_string(p.batch),
                  std::to_string(p.selectBlock),
                  text("%.2f", 100 * p.check.bytes.keepRatio()) + "%",
                  (blocks ? text("%.2f",
                                 100 * double(p.check.keptQuantBlocks) / blocks)
                          : "100") +
                      "%",
                  std::to_string(p.decode.best.splits),
                  text("%.2f", double(p.bytes) * 1e-6), micros(t.median),
                  micros(t.p10), micros(t.p90), text("%.1f", p.rate() * 1e-9),
                  text("%.1f", 100 * p.rate() / machine.peak()) + "%",
                  micros(p.read.median), micros(p.keepAll), micros(p.exact),
                  backend.empty() ? "-" : micros(torchSeconds),
                  backend.empty() ? "-" : backend,
                  rival.empty() ? "-" : text("%.2f", rivalSeconds / t.median)});
  if (options.profileSplits)
    for (const SplitsTiming &one : p.decode.all)
      os << "    splits " << one.splits << ": " << micros(one.timing.median)
         << " us (" << micros(one.timing.p10) << " to "
         << micros(one.timing.p90) << ")\n";
  if (p.plan)
    os << "    planning the batch on the device, once per step: "
       << micros(p.plan->median) << " us\n";
  os.flush();
}

void Report::printNotes(raw_ostream &os) const {
  std::set<std::string> notes;
  for (const Point &p : points) {
    if (!p.exactNote.empty())
      notes.insert("exact attention: " + p.exactNote);
    if (!p.checkNote.empty())
      notes.insert("tokens " + std::to_string(p.tokens) + ", batch " +
                   std::to_string(p.batch) + ", selection block " +
                   std::to_string(p.selectBlock) + ": " + p.checkNote);
    if (p.localBytes)
      notes.insert("the kernel of selection block " +
                   std::to_string(p.selectBlock) + " spills " +
                   std::to_string(p.localBytes) + " bytes per thread");
    if (p.rotations * p.check.bytes.scan < 2 * machine.cacheBytes())
      notes.insert("tokens " + std::to_string(p.tokens) + ", batch " +
                   std::to_string(p.batch) +
                   ": the copies fit, or nearly fit, the cache; its times "
                   "are not those of memory");
  }
  for (const std::string &note : notes)
    os << "note: " << note << "\n";
  if (!points.empty())
    os << "MB: bytes that must move; read: a plain read of as many; all: FFD "
          "with delta inf; exact: 16-bit row-major K and V; speed-up: over the "
          "fastest of all, exact and torch\n";
}

//===----------------------------------------------------------------------===//
// JSON
//===----------------------------------------------------------------------===//

static json::Value number(double value) {
  if (std::isfinite(value))
    return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

static void writeTiming(json::OStream &json, const Timing &t) {
  json.attribute("median", number(t.median));
  json.attribute("min", number(t.fastest));
  json.attribute("p10", number(t.p10));
  json.attribute("p90", number(t.p90));
  json.attribute("launches", t.launches);
  json.attribute("runs", t.runs);
}

static void writeProgram(json::OStream &json, StringRef name,
                         const ProgramTiming &program) {
  json.attributeObject(name, [&] {
    json.attribute("splits", program.best.splits);
    writeTiming(json, program.best.timing);
    if (program.all.size() < 2)
      return;
    json.attributeArray("sweep", [&] {
      for (const SplitsTiming &one : program.all)
        json.object([&] {
          json.attribute("splits", one.splits);
          writeTiming(json, one.timing);
        });
    });
  });
}

static void writePoint(json::OStream &json, const Point &p, double peak,
                       const TorchResult &torch,
                       std::pair<std::string, double> rival) {
  json.attribute("tokens", p.tokens);
  json.attribute("batch", p.batch);
  json.attribute("visible_tokens", p.visibleTokens);
  json.attribute("select_block", p.selectBlock);
  json.attribute("kernel", p.kernel);
  json.attribute("registers", p.registers);
  json.attribute("local_bytes", p.localBytes);
  json.attribute("rotations", p.rotations);
  json.attribute("keep_ratio", p.check.bytes.keepRatio());
  json.attribute("keep_ratio_128", p.check.quantBlocks
                                       ? double(p.check.keptQuantBlocks) /
                                             double(p.check.quantBlocks)
                                       : 1.0);
  if (p.plan)
    json.attributeObject("plan", [&] { writeTiming(json, *p.plan); });
  json.attributeObject("bytes", [&] {
    json.attribute("scan", p.check.bytes.scan);
    json.attribute("kept", p.check.bytes.kept);
    json.attribute("tail", p.check.bytes.tail);
    json.attribute("total", p.bytes);
    json.attribute("dense", p.check.bytes.dense);
  });
  json.attributeObject("check", [&] {
    json.attribute("rows", p.check.rowsChecked);
    json.attribute("relative_error", number(p.check.outError));
    json.attribute("lse_error", number(p.check.lseError));
    json.attribute("mask_errors", p.check.maskErrors);
  });
  writeProgram(json, "decode", p.decode);
  json.attribute("bytes_per_second", number(p.rate()));
  json.attribute("peak_share", number(p.rate() / peak));
  json.attributeObject("read", [&] { writeTiming(json, p.read); });
  if (p.keepAll)
    writeProgram(json, "all", *p.keepAll);
  if (p.exact)
    writeProgram(json, "exact", *p.exact);
  if (auto it = torch.seconds.find({p.tokens, p.batch});
      it != torch.seconds.end())
    json.attributeObject("torch", [&] {
      for (const auto &[name, seconds] : it->second)
        json.attribute(name, number(seconds));
    });
  if (!rival.first.empty()) {
    json.attribute("rival", rival.first);
    json.attribute("speedup",
                   number(rival.second / p.decode.best.timing.median));
  }
}

void Report::printJson(raw_ostream &os) const {
  json::OStream json(os, /*IndentSize=*/1);
  json.object([&] {
    json.attribute("command", json::fixUTF8(command));
    json.attribute("date", date);
    json.attributeObject("machine", [&] {
      json.attribute("target", options.target);
      json.attribute("name", machine.name());
      json.attribute("cpu", lineOf("/proc/cpuinfo", "model name"));
      json.attribute("threads", machine.threads().threads());
      json.attribute("memory_bytes", machine.memoryBytes());
      json.attribute("cache_bytes", machine.cacheBytes());
      if (machine.cuda()) {
        json.attribute("driver",
                       lineOf("/proc/driver/nvidia/version", "NVRM version"));
        json.attribute("driver_cuda", machine.cuda()->driver().version());
      }
      json.attribute("peak_bytes_per_second", number(machine.peak()));
      json.attributeObject("empty_launch", [&] { writeTiming(json, empty); });
    });
    json.attributeObject("settings", [&] {
      json.attribute("head_dim", options.spec.head_dim);
      json.attribute("value_dim", options.spec.value_dim);
      json.attribute("group", options.spec.group);
      json.attribute("kv_heads", options.kvHeads);
      json.attribute("element", elementName(options.spec.element));
      json.attribute("scan_bits", options.spec.scan_bits);
      json.attribute("delta", number(options.delta));
      json.attribute("keep", options.keep);
      json.attribute("tail", options.tail);
      json.attribute("ragged", options.ragged);
      json.attribute("contiguous_pages", options.contiguousPages);
    });
    if (options.torch) {
      json.attribute("torch_version", json::fixUTF8(torch.version));
      json.attribute("torch_note", json::fixUTF8(torch.note));
    }
    json.attributeArray("points", [&] {
      for (const Point &p : points)
        json.object(
            [&] { writePoint(json, p, machine.peak(), torch, bestDense(p)); });
    });
  });
  os << "\n";
}

} // namespace ffd::bench
