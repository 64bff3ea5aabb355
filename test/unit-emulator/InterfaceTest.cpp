//===- InterfaceTest.cpp - Launching and reports ------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the C++ interface of the emulator promises.
//
//===----------------------------------------------------------------------===//

#include "TextKernel.h"

using namespace ffd::emulator;

namespace {

TEST(EmulatorInterface, ByValueParameterAndSchedules) {
  // A struct by value; blocks add to one counter in an order that the seed
  // draws: the same seed gives the same order.
  const char *text = R"(
llvm.func @kernel(%args: !llvm.ptr {llvm.byval = !llvm.struct<(ptr, ptr, i32)>, nvvm.grid_constant}) attributes {nvvm.kernel} {
  %block = nvvm.read.ptx.sreg.ctaid.x : i32
  %counter = llvm.load %args : !llvm.ptr -> !llvm.ptr
  %p1 = llvm.getelementptr %args[8] : (!llvm.ptr) -> !llvm.ptr, i8
  %order = llvm.load %p1 : !llvm.ptr -> !llvm.ptr
  %p2 = llvm.getelementptr %args[16] : (!llvm.ptr) -> !llvm.ptr, i8
  %step = llvm.load %p2 : !llvm.ptr -> i32
  %old = llvm.atomicrmw add %counter, %step monotonic : !llvm.ptr, i32
  %o = llvm.getelementptr %order[%old] : (!llvm.ptr, i32) -> !llvm.ptr, i32
  llvm.store %block, %o : i32, !llvm.ptr
  llvm.return
})";
  struct Args {
    void *counter, *order;
    int32_t step;
  };
  auto order = [&](uint64_t seed) {
    DeviceMemory counter(4), result(32 * 4);
    Args args{counter.data(), result.data(), 1};
    LaunchConfig config;
    config.grid = {32, 1, 1};
    config.block = {1, 1, 1};
    Options options;
    options.seed = seed;
    options.residentBlocks = 4;
    Report report = run(text, {Argument::of(args)},
                        {counter.buffer("counter"), result.buffer("order")},
                        config, options);
    EXPECT_TRUE(report.ok) << report.str();
    EXPECT_EQ(*counter.as<int32_t>(), 32);
    return std::vector<int32_t>(result.as<int32_t>(),
                                result.as<int32_t>() + 32);
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

TEST(EmulatorInterface, RejectsBadLaunches) {
  const char *text = R"(
llvm.func @kernel(%x: i32) attributes {nvvm.kernel} { llvm.return })";
  EXPECT_NE(run(text, {}, {}).message.find("has 1 parameters, not 0"),
            std::string::npos);
  EXPECT_NE(run(text, {Argument::of<uint8_t>(1)}, {})
                .message.find("parameter 0 has 4 bytes, not 1"),
            std::string::npos);
  LaunchConfig config;
  config.block = {2048, 1, 1};
  EXPECT_FALSE(run(text, {Argument::of<int32_t>(1)}, {}, config).ok);
}

} // namespace
