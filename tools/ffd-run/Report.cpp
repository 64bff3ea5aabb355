//===- Report.cpp - The table and the JSON of a run -----------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Report.h"

#include "ffd/Spec.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"

#include <cmath>

using namespace llvm;

namespace ffd::run {

//===----------------------------------------------------------------------===//
// Collecting
//===----------------------------------------------------------------------===//

static void addBytes(DecodeBytes &to, const DecodeBytes &from) {
  to.scan += from.scan;
  to.kept += from.kept;
  to.tail += from.tail;
  to.dense += from.dense;
  to.keptBlocks += from.keptBlocks;
  to.selectBlocks += from.selectBlocks;
}

void Report::Row::add(const Row &other) {
  addBytes(bytes, other.bytes);
  accuracy.merge(other.accuracy);
  seconds += other.seconds;
  exactSeconds = exactSeconds && other.exactSeconds
                     ? std::optional(*exactSeconds + *other.exactSeconds)
                     : std::nullopt;
}

std::optional<double> Report::Row::speedup() const {
  if (!exactSeconds)
    return std::nullopt;
  return *exactSeconds / seconds;
}

std::optional<double> Report::Row::exactRate() const {
  if (!exactSeconds)
    return std::nullopt;
  return double(bytes.dense) / *exactSeconds;
}

void Report::add(const CaseResult &result) {
  std::string name = elementName(result.shape.element);
  element = element.empty() || element == name ? name : "f16 and bf16";
  target = result.target;
  exactAccuracy.merge(result.exactAccuracy);
  smallestCase = std::min(smallestCase, result.shape.visibleBytes());
  std::vector<Row> &layer = layers.emplace_back();
  for (const DeltaResult &one : result.deltas) {
    Row &row = layer.emplace_back();
    row.delta = one.delta;
    row.layer = result.shape.layer;
    row.bytes = one.bytes;
    row.accuracy = one.accuracy;
    row.seconds = one.seconds;
    row.exactSeconds = result.exactSeconds;
  }
}

std::vector<Report::Row> Report::rows() const {
  std::vector<Row> result;
  for (size_t i = 0; i < options.deltas.size(); ++i) {
    Row total;
    total.delta = options.deltas[i];
    total.total = true;
    total.exactSeconds = 0;
    for (const std::vector<Row> &layer : layers) {
      result.push_back(layer[i]);
      total.add(layer[i]);
    }
    result.push_back(total);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

/// A number by a printf format.
static std::string text(const char *pattern, double value) {
  if (std::isnan(value))
    return "nan"; // whatever its sign
  std::string result;
  raw_string_ostream(result) << format(pattern, value);
  return result;
}

/// Prints cells in columns, right-aligned, two spaces apart.
static void printColumns(raw_ostream &os,
                         ArrayRef<std::vector<std::string>> lines) {
  std::vector<size_t> widths;
  for (const std::vector<std::string> &line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (auto [width, cell] : zip(widths, line))
      width = std::max(width, cell.size());
  }
  for (const std::vector<std::string> &line : lines) {
    for (auto [width, cell] : zip(widths, line))
      os << std::string(2 + width - cell.size(), ' ') << cell;
    os << "\n";
  }
}

void Report::printBandwidth(raw_ostream &os,
                            const std::vector<Row> &rows) const {
  if (!bandwidth)
    return;
  auto share = [&](double rate) {
    return text("%.0f", 100 * rate / bandwidth->bytesPerSecond) + " %";
  };
  os << "read bandwidth of " << threads << " thread" << (threads > 1 ? "s" : "")
     << ": " << text("%.1f", bandwidth->bytesPerSecond * 1e-9) << " GB/s ("
     << (bandwidth->bufferBytes >> 20) << " MiB buffer)";
  bool first = true;
  for (const Row &row : rows) {
    if (!row.total)
      continue;
    if (std::optional<double> rate = row.exactRate(); rate && first)
      os << "; exact reaches " << share(*rate);
    first = false;
    os << "; FFD at delta " << text("%g", row.delta) << " reaches "
       << share(row.rate());
  }
  os << "\n";
  if (smallestCase < 2 * bandwidth->lastLevelCacheBytes)
    os << "note: K and V of a layer fit, or nearly fit, the last-level cache ("
       << (bandwidth->lastLevelCacheBytes >> 20)
       << " MiB): times and shares are not those of memory\n";
}

void Report::printTable(raw_ostream &os) const {
  os << input << ": " << layers.size()
     << (layers.size() > 1 ? " layers" : " layer") << ", " << target << ", ";
  if (options.emulated())
    os << "seed " << options.seed << ", ";
  else if (!options.onGpu())
    os << threads << (threads > 1 ? " threads, " : " thread, ");
  os << element << ", " << options.scanBits << "-bit scan, selection block "
     << options.selectBlock << ", lag " << options.lag;
  if (!options.residuals && options.scanBits != 16)
    os << ", no residuals";
  if (!options.selector.isDefault())
    os << ", " << options.selector.name()
       << (options.selector.split ? " in split execution" : ", fused");
  if (options.refinedMax)
    os << ", refined pseudo-max";
  if (options.certificate)
    os << ", certificate " << certificateName(options.certificate);
  if (!options.emulated())
    os << ", median of " << options.repeat;
  os << "\n";

  std::vector<std::vector<std::string>> lines;
  lines.push_back({"delta", "layer", "kept", "cosine", "worst", "rel err",
                   "lse err", "MB read", "MB dense", "read", "FFD ms",
                   "exact ms", "speed-up"});
  std::vector<Row> all = rows();
  for (const Row &row : all) {
    if (row.total && layers.size() == 1)
      continue;
    double read = double(row.bytes.total()), dense = double(row.bytes.dense);
    std::optional<double> speedup = row.speedup();
    lines.push_back(
        {text("%g", row.delta),
         row.total   ? "total"
         : row.layer ? std::to_string(*row.layer)
                     : "-",
         text("%.1f", 100 * row.bytes.keepRatio()) + " %",
         text("%.6f", row.accuracy.cosine()),
         text("%.6f", row.accuracy.worstCosine),
         text("%.2e", row.accuracy.relativeError()),
         text("%.2e", row.accuracy.lseError), text("%.2f", read * 1e-6),
         text("%.2f", dense * 1e-6),
         dense == 0 ? "-" : text("%.1f", 100 * read / dense) + " %",
         std::isnan(row.seconds) ? "-" : text("%.3f", row.seconds * 1e3),
         row.exactSeconds ? text("%.3f", *row.exactSeconds * 1e3) : "-",
         speedup ? text("%.2f", *speedup) + "x" : "-"});
  }
  printColumns(os, lines);
  printBandwidth(os, all);
  if (!exactNote.empty())
    os << "note: exact attention was not timed: " << exactNote << "\n";
}

//===----------------------------------------------------------------------===//
// JSON
//===----------------------------------------------------------------------===//

/// JSON has no NaN and no infinity: they become strings.
static json::Value number(double value) {
  if (std::isfinite(value))
    return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

static json::Value number(std::optional<double> value) {
  return value ? number(*value) : json::Value(nullptr);
}

void Report::printJson(raw_ostream &os) const {
  json::OStream json(os, /*IndentSize=*/2);
  json.object([&] {
    json.attribute("input", json::fixUTF8(input));
    json.attribute("target", target);
    if (options.emulated())
      json.attribute("seed", options.seed);
    json.attribute("threads", threads);
    json.attribute("element", element);
    json.attribute("scan_bits", options.scanBits);
    json.attribute("select_block", options.selectBlock);
    json.attribute("residual_bits", options.residuals ? 8 : 0);
    json.attribute("centre", centreName(options.centre));
    json.attribute("selector", options.selector.name());
    json.attribute("pseudo_max", options.refinedMax ? "refined" : "scan");
    json.attribute("certificate", certificateName(options.certificate));
    json.attribute("execution", options.selector.split ? "split" : "fused");
    json.attribute("lag", options.lag);
    json.attribute("repeat", options.repeat);
    if (bandwidth)
      json.attributeObject("bandwidth", [&] {
        json.attribute("bytes_per_second", number(bandwidth->bytesPerSecond));
        json.attribute("buffer_bytes", bandwidth->bufferBytes);
        json.attribute("last_level_cache_bytes",
                       bandwidth->lastLevelCacheBytes);
      });
    if (!exactNote.empty())
      json.attribute("exact_note", json::fixUTF8(exactNote));
    else
      json.attributeObject("exact_kernel", [&] {
        json.attribute("relative_error", number(exactAccuracy.relativeError()));
        json.attribute("lse_error", number(exactAccuracy.lseError));
      });
    json.attributeArray("rows", [&] {
      for (const Row &row : rows())
        json.object([&] {
          json.attribute("delta", number(double(row.delta)));
          json.attribute("layer", row.layer ? json::Value(*row.layer)
                                            : json::Value(nullptr));
          json.attribute("total", row.total);
          json.attribute("keep_ratio", number(row.bytes.keepRatio()));
          json.attribute("kept_blocks", row.bytes.keptBlocks);
          json.attribute("select_blocks", row.bytes.selectBlocks);
          json.attribute("cosine", number(row.accuracy.cosine()));
          json.attribute("worst_cosine", number(row.accuracy.worstCosine));
          json.attribute("relative_error",
                         number(row.accuracy.relativeError()));
          json.attribute("lse_error", number(row.accuracy.lseError));
          json.attribute("bytes_read", row.bytes.total());
          json.attribute("bytes_dense", row.bytes.dense);
          json.attribute("seconds", std::isnan(row.seconds)
                                        ? json::Value(nullptr)
                                        : number(row.seconds));
          json.attribute("exact_seconds", number(row.exactSeconds));
          json.attribute("speedup", number(row.speedup()));
          if (bandwidth) {
            double peak = bandwidth->bytesPerSecond;
            std::optional<double> exact = row.exactRate();
            json.attribute("bandwidth_share", number(row.rate() / peak));
            json.attribute("exact_bandwidth_share", exact
                                                        ? number(*exact / peak)
                                                        : json::Value(nullptr));
          }
        });
    });
  });
  os << "\n";
}

} // namespace ffd::run
