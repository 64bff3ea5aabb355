//===- CheckCase.cpp - One case of the matrix, emulated -------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// See CheckCase.h.
//
//===----------------------------------------------------------------------===//

#include "CheckCase.h"
#include "ReferenceDecode.h"

#include "ffd/Driver/Compiler.h"
#include "ffd/Driver/Programs.h"
#include "ffd/Float16.h"
#include "ffd/Selector.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace ffd;

static void fillContent(RandomCase &c, Content content) {
  const ffdSpec &spec = c.shape.spec;
  const uint16_t nan = spec.element == FFD_F16 ? 0x7E00 : 0x7FC0;
  const uint16_t infinity = spec.element == FFD_F16 ? 0x7C00 : 0x7F80;
  switch (content) {
  case Content::Plain:
    break;
  case Content::ZeroQuery:
    for (int i = 0; i < spec.head_dim; ++i)
      c.q.as<uint16_t>()[i] = 0;
    break;
  case Content::NaNQuery:
    c.q.as<uint16_t>()[3] = nan;
    break;
  case Content::InfiniteQuery:
    c.q.as<uint16_t>()[5] = infinity;
    break;
  case Content::NaNKey:
    c.k[c.k.size() / 3] = nan;
    c.build();
    break;
  case Content::ZeroKeys:
    std::fill(c.k.begin(), c.k.end(), 0);
    c.build();
    break;
  }
}

testing::AssertionResult ffd::checkCase(const MatrixCase &c,
                                        EmulatedDecode &decode) {
  CaseShape shape;
  shape.spec = c.spec;
  shape.lengths = c.lengths;
  shape.delta = c.delta;
  shape.lag = c.lag;
  shape.kvHeads = 2;
  shape.pageSeed = 7;
  shape.keySpread = 0.5;
  RandomCase random(shape, 11);
  fillContent(random, c.content);
  emulator::Options options;
  options.seed = 3;
  // Twice: a launch must leave the workspace as it found it.
  const emulator::Report report = decode.run(random, c.splits, options, 2);
  if (!report.ok)
    return testing::AssertionFailure() << report.str();
  return matchesReference(random);
}

//===--- Scores
//------------------------------------------------------------===//

/// ceil(delta / F) as select_c2 has it.
static double unitsOf(float delta, float unit) {
  return std::ceil(double(float(delta / unit)));
}

/// The smallest delta that is worth at least `units` of a head, or NaN.
static float smallestDelta(int64_t units, float unit) {
  float delta = float(double(units - 1) * double(unit));
  for (int i = 0; i < 8 && unitsOf(delta, unit) >= double(units); ++i)
    delta = std::nextafter(delta, -INFINITY);
  for (int i = 0; i < 16; ++i) {
    if (delta >= 0 && unitsOf(delta, unit) >= double(units))
      return delta;
    delta = std::nextafter(delta, INFINITY);
  }
  return std::nanf("");
}

/// The smallest delta with which a row keeps a selection block; NaN if it is
/// kept whatever delta is, or the row keeps everything.
static float decidingDelta(const ffdSpec &spec, const ReferenceDecode::Row &row,
                           int64_t block) {
  if (spec.pseudo_max &&
      (block == 0 || block == int64_t(row.kept.size()) - 1)) // select_c6
    return std::nanf("");
  const int64_t tokens = int64_t(row.scores.size()) / spec.group;
  float least = INFINITY;
  for (int64_t g = 0; g < spec.group; ++g) {
    const int32_t *scores =
        row.scores.data() + g * tokens + block * spec.select_block;
    const int64_t missing =
        int64_t(row.pseudoMax[size_t(g)]) -
        *std::max_element(scores, scores + spec.select_block);
    if (missing <= 0 || !(row.unit[size_t(g)] > 0))
      return std::nanf("");
    const float delta = smallestDelta(missing, row.unit[size_t(g)]);
    if (std::isnan(delta))
      return delta;
    least = std::min(least, delta);
  }
  return least;
}

bool ffd::hasCpuKernel() { return mlir::ffd::isSupportedISA("avx2"); }

/// Kept sets of the CPU's kernel.
static testing::AssertionResult keptOnCpu(const RandomCase &c,
                                          std::vector<uint8_t> &kept) {
  const ffdSpec &spec = c.shape.spec;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  mlir::DialectRegistry registry;
  mlir::ffd::registerCompilerDialects(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
  auto module = mlir::ffd::buildProgram(&context, mlir::ffd::Program::Decode,
                                        mlir::ffd::getSpecAttr(&context, spec),
                                        Selector().attribute(spec.pseudo_max));
  mlir::ffd::CompilerOptions options;
  options.isa = "avx2";
  std::string error;
  auto kernel = mlir::ffd::compileCPUKernel(*module, "decode", options, error);
  if (mlir::failed(kernel))
    return testing::AssertionFailure() << "no CPU kernel: " << error;
  const int64_t rows = c.cache->rows(), outputs = c.out.size();
  HostBuffer workspace, out, lse;
  if (!workspace
           .allocate("workspace",
                     layoutOf(spec).workspaceBytes(rows, 1, spec.group), 0)
           .ok() ||
      !out.allocate("out", outputs, 0).ok() ||
      !lse.allocate("lse", c.lse.size(), 0).ok())
    return testing::AssertionFailure() << "out of memory";
  kept.assign(size_t(c.kept.size()), 0);
  ffdDecodeArgs args = c.args;
  args.out = out.as<float>();
  args.lse = lse.as<float>();
  args.kept = kept.data();
  args.workspace = workspace.data();
  args.splits = 1;
  for (int64_t row = 0; row < rows; ++row)
    (*kernel)->getEntry()(&args, row, 0);
  return testing::AssertionSuccess();
}

/// Makes the first token score above all others for every head, as attention
/// sinks do: without it many heads keep every block whatever delta is.
static void plantSink(RandomCase &c) {
  const ffdSpec &spec = c.shape.spec;
  const auto sign = [](int64_t channel) {
    return channel * 2654435761u >> 16 & 1 ? 1.0f : -1.0f;
  };
  for (int64_t i = 0; i < c.q.size() / 2; ++i) {
    uint16_t &q = c.q.as<uint16_t>()[i];
    q = f32ToElement(spec.element,
                     elementToF32(spec.element, q) + sign(i % spec.head_dim));
  }
  for (int64_t i = 0; i < spec.head_dim; ++i)
    c.k[size_t(i)] = f32ToElement(spec.element, 2 * sign(i));
  c.build();
}

testing::AssertionResult ffd::checkScores(const MatrixCase &c,
                                          EmulatedDecode &decode, bool onCpu) {
  constexpr int64_t kTargets = 3;
  CaseShape shape;
  shape.spec = c.spec;
  // A first block with the sink, two to look at, and a tail.
  shape.lengths.assign(2 * kTargets, 3 * 128 + c.lag + 37);
  shape.lag = c.lag;
  shape.kvHeads = 1;
  shape.sharedKV = true;
  shape.keySpread = 0.5;
  RandomCase random(shape, 5);
  plantSink(random);
  // Sequences 2 i and 2 i + 1 ask the same.
  const int64_t bytes = c.spec.group * c.spec.head_dim * 2;
  for (int64_t i = 0; i < kTargets; ++i)
    std::memcpy(random.q.data() + (2 * i + 1) * bytes,
                random.q.data() + 2 * i * bytes, size_t(bytes));
  const ReferenceDecode reference(c.spec, random.args);
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < kTargets; ++i) {
    const ReferenceDecode::Row row = reference.row(2 * i, 0);
    const auto blocks = int64_t(row.kept.size());
    for (int64_t k = 0; k < blocks; ++k) {
      const int64_t block = (k + i * blocks / kTargets) % blocks;
      const float delta = decidingDelta(c.spec, row, block);
      // Below 0 there is nothing to try.
      if (std::isnan(delta) || delta <= 0)
        continue;
      random.delta[size_t(2 * i)] = delta;
      random.delta[size_t(2 * i + 1)] = std::nextafter(delta, 0.0f);
      targets.push_back(block);
      break;
    }
    if (targets.size() != size_t(i) + 1)
      return testing::AssertionFailure()
             << "no block of sequence " << 2 * i << " is at a threshold";
  }
  emulator::Options options;
  options.seed = 4;
  const emulator::Report report = decode.run(random, c.splits, options);
  if (!report.ok)
    return testing::AssertionFailure() << report.str();
  for (int64_t i = 0; i < kTargets; ++i)
    for (int64_t below : {0, 1}) {
      const int64_t s = 2 * i + below;
      if (random.kept.data()[s * random.args.kept_stride +
                             targets[size_t(i)]] != 1 - below)
        return testing::AssertionFailure()
               << "selection block " << targets[size_t(i)] << " of sequence "
               << s << " is " << (below ? "kept" : "skipped") << " at delta "
               << random.delta[size_t(s)]
               << (below ? ", one below" : ", just enough for")
               << " its best score";
    }
  if (onCpu) {
    std::vector<uint8_t> kept;
    if (auto result = keptOnCpu(random, kept); !result)
      return result;
    if (std::memcmp(kept.data(), random.kept.data(), kept.size()))
      return testing::AssertionFailure()
             << "the kept sets of CPU and GPU differ";
  }
  return matchesReference(random);
}
