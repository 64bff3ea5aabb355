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
  if (seconds == 0)
    return "-"; // not timed
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

/// The cells of the columns, and before what was kept, where keep ratios
/// differ, the one that was asked for.
void Report::printCells(raw_ostream &os, ArrayRef<std::string> cells,
                        const std::string &asked) const {
  for (auto [column, cell] : zip(kColumns, cells)) {
    if (&column == &kColumns[3] && options.keeps.size() > 1)
      os << right_justify(asked, 7);
    os << right_justify(cell, std::max<size_t>(column.width, cell.size() + 1));
  }
  os << "\n";
}

void Report::printHead(raw_ostream &os) const {
  os << machine.name() << ", ";
  if (options.headDims.size() == 1 && options.groups.size() == 1)
    os << "head dim " << options.spec.head_dim << ", " << options.kvHeads
       << " kv heads, group " << options.spec.group;
  else
    os << options.kvHeads << " kv heads";
  os << ", " << elementName(options.spec.element) << ", ";
  if (options.table == Table::None)
    os << options.spec.scan_bits << "-bit scan"
       << (options.spec.centre == FFD_CENTRE_ROW ? " of centred keys, " : ", ");
  if (options.table == Table::None)
    os << (options.spec.pseudo_max ? "refined pseudo-max, "
                                   : "pseudo-max of the scan, ");
  if (options.spec.certificate)
    os << "certificate " << certificateName(options.spec.certificate) << ", ";
  os << "delta " << text("%g", options.delta);
  if (options.keeps.size() == 1)
    os << ", keep " << text("%g", options.keep());
  os << ", tail " << options.tail << ", median of " << options.reps << "\n";
  if (!options.emulated())
    os << "read peak " << text("%.1f", machine.peak() * 1e-9)
       << " GB/s; an empty launch takes " << micros(empty.median) << " us\n";
  os.flush();
}

void Report::printShape(const Options &shape, raw_ostream &os) const {
  if (options.headDims.size() > 1 || options.groups.size() > 1)
    os << "head dim " << shape.spec.head_dim << ", group " << shape.spec.group
       << ":\n";
  const TorchResult &rivals = torchOf(shape.spec);
  if (!rivals.version.empty())
    os << "rivals: " << rivals.version << "\n";
  if (!rivals.note.empty())
    os << "note: " << rivals.note << "\n";
  std::vector<std::string> names;
  for (const Column &column : kColumns)
    names.push_back(column.name);
  printCells(os, names, "asked");
  os.flush();
}

const TorchResult &Report::torchOf(const ffdSpec &spec) const {
  static const TorchResult none;
  auto it = torch.find(shapeOf(spec));
  return it == torch.end() ? none : it->second;
}

std::pair<std::string, double> Report::bestDense(const Point &point) const {
  std::pair<std::string, double> best =
      torchOf(point.spec).best(point.tokens, point.batch);
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
  auto [backend, torchSeconds] = torchOf(p.spec).best(p.tokens, p.batch);
  auto [rival, rivalSeconds] = bestDense(p);
  double blocks = double(p.check.quantBlocks);
  const bool timed = t.median > 0;
  std::vector<std::string> cells = {
      std::to_string(p.tokens),
      std::to_string(p.batch),
      std::to_string(p.selectBlock),
      text("%.2f", 100 * p.check.bytes.keepRatio()) + "%",
      (blocks ? text("%.2f", 100 * double(p.check.keptQuantBlocks) / blocks)
              : "100") +
          "%",
      std::to_string(p.decode.best.splits),
      text("%.2f", double(p.bytes) * 1e-6),
      micros(t.median),
      micros(t.p10),
      micros(t.p90),
      timed ? text("%.1f", p.rate() * 1e-9) : "-",
      timed ? text("%.1f", 100 * p.rate() / machine.peak()) + "%" : "-",
      micros(p.read.median),
      micros(p.keepAll),
      micros(p.exact),
      backend.empty() ? "-" : micros(torchSeconds),
      backend.empty() ? "-" : backend,
      rival.empty() || !timed ? "-" : text("%.2f", rivalSeconds / t.median)};
  printCells(os, cells, text("%g", 100 * p.keep) + "%");
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
    if (p.rotations * p.check.bytes.scan < 2 * machine.cacheBytes() &&
        !options.emulated())
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
  if (t.runs == 0) {
    json.attribute("median", nullptr); // an emulated kernel has no times
    return;
  }
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
  json.attribute("head_dim", p.spec.head_dim);
  json.attribute("value_dim", p.spec.value_dim);
  json.attribute("group", p.spec.group);
  json.attribute("keep", p.keep);
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
  if (p.decode.best.timing.runs) {
    json.attribute("bytes_per_second", number(p.rate()));
    json.attribute("peak_share", number(p.rate() / peak));
  }
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

void Report::writeContext(json::OStream &json) const {
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
    // Of the first shape; points have their own.
    json.attribute("head_dim", options.spec.head_dim);
    json.attribute("value_dim", options.spec.value_dim);
    json.attribute("group", options.spec.group);
    json.attribute("kv_heads", options.kvHeads);
    json.attribute("element", elementName(options.spec.element));
    json.attribute("scan_bits", options.spec.scan_bits);
    json.attribute("centre", centreName(options.spec.centre));
    json.attribute("pseudo_max", options.spec.pseudo_max ? "refined" : "scan");
    json.attribute("certificate", certificateName(options.spec.certificate));
    json.attribute("delta", number(options.delta));
    json.attribute("keep", options.keep());
    json.attribute("tail", options.tail);
    json.attribute("ragged", options.ragged);
    json.attribute("contiguous_pages", options.contiguousPages);
    json.attribute("reps", options.reps);
  });
  if (!torch.empty()) {
    const TorchResult &first = torch.begin()->second;
    json.attribute("torch_version", json::fixUTF8(first.version));
    json.attribute("torch_note", json::fixUTF8(first.note));
  }
}

void Report::printJson(raw_ostream &os) const {
  json::OStream json(os, /*IndentSize=*/1);
  json.object([&] {
    writeContext(json);
    json.attributeArray("points", [&] {
      for (const Point &p : points)
        json.object([&] {
          writePoint(json, p, machine.peak(), torchOf(p.spec), bestDense(p));
        });
    });
  });
  os << "\n";
}

void Report::printTableJson(const TableResult &table, raw_ostream &os) const {
  json::OStream json(os, /*IndentSize=*/1);
  json.object([&] {
    writeContext(json);
    json.attribute("table", table.name);
    json.attribute("tokens", options.tokens.front());
    json.attribute("batch", options.batches.front());
    json.attribute("select_block", options.selectBlocks.front());
    auto seconds = [&](StringRef name, const std::optional<Timing> &timing) {
      if (timing && timing->runs)
        json.attributeObject(name, [&] { writeTiming(json, *timing); });
      else
        json.attribute(name, nullptr);
    };
    json.attributeArray("rows", [&] {
      for (const TableRow &row : table.rows)
        json.object([&] {
          json.attribute("scan_bits", row.scanBits);
          json.attribute("rule", row.rule);
          json.attribute("execution", row.execution);
          json.attribute("kept", row.kept);
          json.attribute("bytes", row.bytes);
          seconds("select", row.select);
          seconds("decode", row.decode);
          if (row.error)
            json.attribute("relative_error", number(*row.error));
          else
            json.attribute("relative_error", nullptr);
          if (!row.note.empty())
            json.attribute("note", row.note);
        });
    });
  });
  os << "\n";
}

} // namespace ffd::bench
