//===- EmulatedDecode.cpp - The generated decode on the emulator ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// See EmulatedDecode.h.
//
//===----------------------------------------------------------------------===//

#include "EmulatedDecode.h"
#include "ReferenceDecode.h"

#include "ffd/Float16.h"
#include "ffd/Plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace ffd;

EmulatedDecode::EmulatedDecode(const ffdSpec &spec, const std::string &arch,
                               std::string &error,
                               llvm::function_ref<void(mlir::ModuleOp)> mutate)
    : EmulatedDecode(
          spec,
          [&] {
            EmulatedKernel::Options options;
            options.arch = arch;
            options.mutate = mutate;
            return options;
          }(),
          error) {}

EmulatedDecode::EmulatedDecode(const ffdSpec &spec,
                               EmulatedKernel::Options options,
                               std::string &error) {
  options.locationFile =
      testing::TempDir() + "ffd-" + specName(spec) + "-" + options.arch +
      (options.program == Program::Exact ? "-exact" : "") + ".mlir";
  kernel = EmulatedKernel::create(spec, options, error);
}

emulator::Report EmulatedDecode::run(RandomCase &c, int splits,
                                     const emulator::Options &options,
                                     int launches) {
  std::memset(c.out.data(), 0xFF, size_t(c.out.size()));
  std::memset(c.lse.data(), 0xFF, size_t(c.lse.size()));
  std::memset(c.skipped.data(), 0xFF, size_t(c.skipped.size()));
  std::memset(c.kept.data(), 0, size_t(c.kept.size()));
  ffdDecodeArgs args = c.args;
  args.splits = splits;
  args.workspace = nullptr;
  std::vector<ffdPiece> plan;
  if (splits == 0) {
    PlanOptions request;
    request.batch = args.batch;
    request.kvHeads = args.kv_heads;
    request.lag = args.lag;
    request.target = 7;
    // And one piece that has nothing to do.
    plan.resize(size_t(std::max<int64_t>(7, c.cache->rows()) + 1));
    if (Status status = planPieces(c.shape.spec, request, args.lengths,
                                   plan.data(), int64_t(plan.size()));
        !status.ok()) {
      emulator::Report report;
      report.ok = false;
      report.message = status.message();
      return report;
    }
  }
  // Counts are added to what is there.
  std::vector<uint64_t> counts(size_t(c.cache->rows()), 3);
  args.kept_count = counts.data();
  emulator::Report report = kernel->run(args, options, launches, plan);
  for (int64_t row = 0; report.ok && row < c.cache->rows(); ++row) {
    const int64_t selects = c.cache->selects(row / c.shape.kvHeads);
    const uint8_t *kept = c.kept.data() + row * c.args.kept_stride;
    uint64_t expected = 3;
    for (int64_t i = 0; i < selects; ++i)
      expected += uint64_t(launches) * (kept[i] != 0);
    if (counts[size_t(row)] == expected)
      continue;
    report.ok = false;
    report.message = "kept_count of row " + std::to_string(row) + " is " +
                     std::to_string(counts[size_t(row)]) + ", expected " +
                     std::to_string(expected);
  }
  return report;
}

emulator::Report EmulatedDecode::run(RandomCase &c, const PlanOptions &request,
                                     const emulator::Options &options,
                                     int32_t firstPage) {
  ffdDecodeArgs args = c.args;
  args.workspace = nullptr;
  std::vector<ffdPiece> plan(200);
  if (Status status = planPieces(c.shape.spec, request, args.lengths,
                                 plan.data(), int64_t(plan.size()));
      !status.ok()) {
    emulator::Report report;
    report.ok = false;
    report.message = status.message();
    return report;
  }
  return kernel->run(args, options, /*launches=*/1, plan, firstPage);
}

testing::AssertionResult ffd::matchesReference(RandomCase &c) {
  const ffdSpec &spec = c.shape.spec;
  const ReferenceDecode reference(spec, c.args);
  const bool half = spec.element == FFD_F16;
  const auto failure = [&](int64_t sequence, int64_t head) {
    return testing::AssertionFailure()
           << "sequence " << sequence << " kv head " << head << ": ";
  };
  for (int64_t s = 0; s < c.batch(); ++s) {
    double difference = 0, norm = 0, slack = 0;
    for (int64_t head = 0; head < c.shape.kvHeads; ++head) {
      const ReferenceDecode::Row row = reference.row(s, head);
      const int64_t r = s * c.shape.kvHeads + head;
      const uint8_t *kept = c.kept.data() + r * c.args.kept_stride;
      for (size_t j = 0; j < row.kept.size(); ++j)
        if (bool(kept[j]) != bool(row.kept[j]))
          return failure(s, head)
                 << "selection block " << j << " of " << row.kept.size()
                 << " is " << (kept[j] ? "kept" : "skipped");
      for (int64_t g = 0; g < rowHeads(spec); ++g) {
        const int64_t h = reference.outputIndex(s, head, g);
        // The bar on a score, of the 11-bit rounding that b = 2 allows.
        double bar = 0;
        if (spec.scan_bits == 2) {
          for (int64_t ch = 0; ch < spec.head_dim; ++ch)
            bar +=
                std::fabs(elementToF32(
                    spec.element, c.q.as<uint16_t>()[h * spec.head_dim + ch])) *
                std::ldexp(double(elementToF32(FFD_F16, row.smax[size_t(ch)])),
                           row.exponent);
          bar *= double(c.args.sm_scale) * 0x1p-10;
        }
        slack = std::fmax(slack, bar / 32);
        const double lse = row.lse[size_t(g)];
        const float got = c.args.lse ? c.lse.as<float>()[h] : 0;
        const double limit = 2e-3 + 1e-6 * std::fabs(lse) + bar / 8;
        if (std::isnan(lse) != std::isnan(got) ||
            (std::isinf(lse) ? double(got) != lse
                             : std::fabs(got - lse) > limit))
          return failure(s, head)
                 << "head " << g << ": lse is " << got << ", expected " << lse
                 << " within " << limit;
        if (spec.certificate) {
          const float mass = c.skipped.as<float>()[h];
          const double least = row.skippedLeast[size_t(g)],
                       most = row.skippedMost[size_t(g)];
          const double slack = 2e-3 + 1e-6 * std::fabs(most);
          if (std::isinf(least)
                  ? double(mass) != least
                  : !(mass >= least - slack && mass <= most + slack))
            return failure(s, head)
                   << "head " << g << ": skipped_lse is " << mass
                   << ", expected " << least << " to " << most;
        }
        for (int64_t i = 0; i < spec.value_dim; ++i) {
          const double o = row.out[size_t(g * spec.value_dim + i)];
          const float x = c.out.as<float>()[h * spec.value_dim + i];
          if (std::isnan(o) != std::isnan(x))
            return failure(s, head) << "head " << g << " dim " << i << " is "
                                    << x << ", expected " << o;
          if (std::isnan(o) || (std::isinf(o) && o == x))
            continue;
          difference += (x - o) * (x - o);
          norm += o * o;
        }
      }
    }
    const double error =
        norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
    if (!(error <= (half ? 2e-3 : 1e-2) + slack))
      return testing::AssertionFailure()
             << "sequence " << s << ": relative error " << error;
  }
  return testing::AssertionSuccess();
}
