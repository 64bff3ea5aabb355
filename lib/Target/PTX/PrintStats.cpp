//===- PrintStats.cpp - Figures of a kernel, printed ----------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The text and the JSON of `ffd-compile --stats`.
//
//===----------------------------------------------------------------------===//

#include "ffd/Target/KernelStats.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::ffd;

namespace {
struct KindName {
  llvm::StringLiteral json, text;
};
} // namespace

static const KindName kindNames[] = {
#define FFD_INSTRUCTION_KIND(NAME, JSON, TEXT) {JSON, TEXT},
    FFD_INSTRUCTION_KINDS
#undef FFD_INSTRUCTION_KIND
};

/// The resources that allow no more CTAs than are resident.
static SmallVector<StringRef> getBounds(const KernelStats &stats) {
  SmallVector<StringRef> bounds;
  int64_t resident = stats.residentCtas();
  if (stats.ctasByRegisters() == resident)
    bounds.push_back("registers");
  if (stats.ctasByShared() == resident)
    bounds.push_back("shared memory");
  if (stats.ctasByThreads() == resident)
    bounds.push_back("threads");
  return bounds;
}

void mlir::ffd::printKernelStats(const KernelStats &stats, raw_ostream &os) {
  os << stats.name << " for " << stats.arch.name << ": " << stats.threads
     << " threads, " << stats.promisedCtas << " CTAs per multiprocessor asked "
     << "for\n";
  os << "  registers      ";
  if (const auto &report = stats.assembled)
    os << report->registers << " of " << stats.registerLimit() << "; "
       << report->spillStores << " bytes spilled, " << report->spillLoads
       << " read back, stack of " << report->stackBytes << "\n";
  else
    os << "at most " << stats.registerLimit() << "\n";
  os << "  shared memory  " << stats.staticShared + stats.dynamicShared
     << " bytes: " << stats.staticShared << " static, " << stats.dynamicShared
     << " dynamic\n";
  os << "  occupancy      " << stats.residentCtas() << " CTAs, "
     << stats.residentCtas() * stats.threads / 32 << " of "
     << stats.arch.threadsPerSM / 32 << " warps, bounded by "
     << llvm::join(getBounds(stats), " and ") << "; registers allow "
     << stats.ctasByRegisters() << (stats.assembled ? "" : " or more")
     << ", shared memory " << stats.ctasByShared() << ", threads "
     << stats.ctasByThreads() << "\n";
  if (stats.scanPTX) {
    os << llvm::left_justify(
              "  scan loop, instructions per block of 128 tokens", 53)
       << "PTX" << (stats.scanSASS ? "  machine code" : "") << "\n";
    auto line = [&](StringRef text, int64_t ptx, int64_t sass) {
      os << "    " << llvm::left_justify(text, 46)
         << llvm::format("%6lld", static_cast<long long>(ptx));
      if (stats.scanSASS)
        os << llvm::format("%14lld", static_cast<long long>(sass));
      os << "\n";
    };
    const InstructionMix &ptx = *stats.scanPTX;
    const InstructionMix sass = stats.scanSASS.value_or(InstructionMix());
    for (size_t i = 0; i < kInstructionKinds; ++i)
      if (ptx.counts[i] || sass.counts[i])
        line(kindNames[i].text, ptx.counts[i], sass.counts[i]);
    line("total", ptx.total, sass.total);
    line("  of these, not in every block", ptx.conditional, sass.conditional);
  } else {
    os << "  no scan loop\n";
  }
  for (const std::string &note : stats.notes)
    os << "  note: " << note << "\n";
}

static void printMix(llvm::json::OStream &json, StringRef name,
                     const std::optional<InstructionMix> &mix) {
  if (!mix) {
    json.attribute(name, nullptr);
    return;
  }
  json.attributeObject(name, [&] {
    for (size_t i = 0; i < kInstructionKinds; ++i)
      json.attribute(kindNames[i].json, mix->counts[i]);
    json.attribute("total", mix->total);
    json.attribute("conditional", mix->conditional);
  });
}

void mlir::ffd::printKernelStatsJson(ArrayRef<KernelStats> all,
                                     raw_ostream &os) {
  llvm::json::OStream json(os, 2);
  auto print = [&](const KernelStats &stats) {
    json.attribute("kernel", stats.name);
    json.attribute("arch", stats.arch.name);
    json.attribute("threads", stats.threads);
    json.attribute("ctas_asked_for", stats.promisedCtas);
    auto reported = [&](StringRef name, auto PtxasReport::*field) {
      if (stats.assembled)
        json.attribute(name, int64_t(*stats.assembled.*field));
      else
        json.attribute(name, nullptr);
    };
    reported("registers", &PtxasReport::registers);
    json.attribute("register_limit", stats.registerLimit());
    reported("spill_store_bytes", &PtxasReport::spillStores);
    reported("spill_load_bytes", &PtxasReport::spillLoads);
    reported("stack_bytes", &PtxasReport::stackBytes);
    json.attribute("shared_static_bytes", stats.staticShared);
    json.attribute("shared_dynamic_bytes", stats.dynamicShared);
    json.attributeObject("occupancy", [&] {
      json.attribute("ctas", stats.residentCtas());
      json.attribute("warps", stats.residentCtas() * stats.threads / 32);
      json.attribute("ctas_by_registers", stats.ctasByRegisters());
      json.attribute("ctas_by_shared_memory", stats.ctasByShared());
      json.attribute("ctas_by_threads", stats.ctasByThreads());
      json.attributeArray("bounded_by", [&] {
        for (StringRef bound : getBounds(stats))
          json.value(bound);
      });
    });
    json.attributeObject("scan_loop", [&] {
      printMix(json, "ptx", stats.scanPTX);
      printMix(json, "machine_code", stats.scanSASS);
    });
    json.attributeArray("notes", [&] {
      for (const std::string &note : stats.notes)
        json.value(note);
    });
  };
  json.object([&] {
    json.attributeArray("kernels", [&] {
      for (const KernelStats &stats : all)
        json.object([&] { print(stats); });
    });
  });
  os << "\n";
}
