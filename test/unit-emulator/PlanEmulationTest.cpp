//===- PlanEmulationTest.cpp - The planning kernel, emulated ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The plan that the kernel writes is, byte by byte, the one that the host makes
// of the same lengths.
//
//===----------------------------------------------------------------------===//

#include "ffd/Conversion/GPUPipeline.h"
#include "ffd/Driver/Compiler.h"
#include "ffd/Driver/Programs.h"
#include "ffd/Emulator/Emulator.h"
#include "ffd/Plan.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cstring>
#include <random>

using namespace ffd;
using emulator::DeviceMemory;

namespace {

class PlanEmulation : public testing::Test {
protected:
  void SetUp() override {
    mlir::DialectRegistry registry;
    mlir::ffd::registerCompilerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    auto attribute = mlir::ffd::getSpecAttr(&context, spec);
    module =
        mlir::ffd::buildProgram(&context, mlir::ffd::Program::Plan, attribute);
    ASSERT_TRUE(module);
    mlir::PassManager passes(&context);
    mlir::ffd::addGPUToNVVMPasses(passes, "sm_80");
    ASSERT_TRUE(mlir::succeeded(passes.run(*module)));
    emulator::Report report;
    kernel = emulator::CompiledKernel::create(*module, "plan", {}, report);
    ASSERT_TRUE(kernel) << report.str();
  }

  /// Plans on both; `error` is what the kernel left there. `lengths` is by
  /// slot.
  void compare(const std::vector<int32_t> &lengths, PlanOptions options,
               int64_t capacity, int32_t expectedError) {
    std::vector<ffdPiece> expected{size_t(capacity)};
    const bool fits =
        planPieces(spec, options, lengths.data(), expected.data(), capacity)
            .ok();
    if (!fits)
      std::fill(expected.begin(), expected.end(), emptyPiece());
    DeviceMemory in(lengths.data(), lengths.size() * 4);
    DeviceMemory slots(options.slots ? options.slots : lengths.data(),
                       size_t(options.batch) * 4);
    DeviceMemory committed(options.committed ? options.committed
                                             : lengths.data(),
                           lengths.size() * 4);
    DeviceMemory plan(expected.size() * sizeof(ffdPiece), 0xFF), error(4, 0);
    ffdPlanArgs args = {};
    args.lengths = in.as<int32_t>();
    args.plan = plan.as<ffdPiece>();
    args.error = error.as<int32_t>();
    args.batch = options.batch;
    args.kv_heads = options.kvHeads;
    args.lag = options.lag;
    args.pieces = int32_t(capacity);
    args.target = int32_t(options.target);
    args.blocks_per_piece = options.blocksPerPiece;
    args.slots = options.slots ? slots.as<int32_t>() : nullptr;
    args.slot_count = options.slotCount;
    args.committed = options.committed ? committed.as<int32_t>() : nullptr;
    args.multiprocessors = options.multiprocessors;
    args.resident = options.resident;
    emulator::LaunchConfig config;
    config.grid = {1, 1, 1};
    config.block = {1024, 1, 1};
    config.dynamicSharedBytes = 65568;
    const emulator::Report report =
        kernel->launch(config, {emulator::Argument::of(args)},
                       {in.buffer("lengths", /*readOnly=*/true),
                        slots.buffer("slots", /*readOnly=*/true),
                        committed.buffer("committed", /*readOnly=*/true),
                        plan.buffer("plan"), error.buffer("error")},
                       emulator::Options());
    ASSERT_TRUE(report.ok) << report.str();
    EXPECT_EQ(*error.as<int32_t>(), expectedError);
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(
          std::memcmp(&plan.as<ffdPiece>()[i], &expected[i], sizeof(ffdPiece)),
          0)
          << "piece " << i << " of batch " << options.batch;
  }

  const ffdSpec spec = {64, 64, 1, FFD_F16, 2, 128, 16, 0};
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::unique_ptr<emulator::CompiledKernel> kernel;
};

TEST_F(PlanEmulation, IsTheHosts) {
  std::mt19937 random(11);
  for (int i = 0; i < 8; ++i) {
    PlanOptions options;
    options.batch = i == 0 ? 1 : 1 + int32_t(random() % 70);
    options.kvHeads = 1 + int32_t(random() % 8);
    options.lag = int32_t(random() % 2) * 130;
    options.target = int64_t(random() % 500);
    std::vector<int32_t> lengths(size_t(options.batch));
    for (int32_t &length : lengths)
      length = int32_t(random() % (1u << (random() % 19)));
    const int64_t rows = int64_t(options.batch) * options.kvHeads;
    compare(lengths, options, std::max(options.target, rows) + i % 3, 0);
  }
}

/// Some of the slots in any order, entries that are none, blocks committed
/// before their time, and the choice between numbers of pieces.
TEST_F(PlanEmulation, OfListedSlotsAndAGpu) {
  std::mt19937 random(5);
  for (int i = 0; i < 12; ++i) {
    PlanOptions options;
    options.slotCount = 1 + int32_t(random() % 60);
    options.batch = 1 + int32_t(random() % uint32_t(options.slotCount));
    options.kvHeads = 1 + int32_t(random() % 8);
    options.lag = int32_t(random() % 2) * 130;
    options.multiprocessors = 132;
    options.resident = 264;
    options.target = 396;
    std::vector<int32_t> lengths(size_t(options.slotCount)), committed, slots;
    const uint32_t longest = 1u << (8 + random() % 12);
    const int kind = i % 3; // as long as each other, nearly, or not at all
    for (int32_t &length : lengths) {
      length = kind == 0   ? int32_t(longest)
               : kind == 1 ? int32_t(longest + random() % 1000)
                           : int32_t(random() % (1u << (random() % 19)));
      committed.push_back(int32_t(random() % 3 ? 0 : length / 128));
      slots.push_back(int32_t(slots.size()));
    }
    std::shuffle(slots.begin(), slots.end(), random);
    if (i % 4 == 3) {
      slots[0] = -1;
      slots[size_t(options.batch) / 2] = options.slotCount;
    }
    options.slots = slots.data();
    options.committed = committed.data();
    const int64_t rows = int64_t(options.batch) * options.kvHeads;
    compare(lengths, options, std::max(options.target, rows), 0);
  }
}

TEST_F(PlanEmulation, GivenSizesMayNotFit) {
  PlanOptions options;
  options.batch = 3;
  options.kvHeads = 2;
  options.blocksPerPiece = 10;
  compare({128 * 35, 0, 128 * 90}, options, 40, 0);
  compare({128 * 35, 0, 128 * 90}, options, 27, 1); // 28 pieces
}

} // namespace
