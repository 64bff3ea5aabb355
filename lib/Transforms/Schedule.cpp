//===- Schedule.cpp - Choose how teams map to a GPU --------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// --ffd-schedule.
//
//===----------------------------------------------------------------------===//

#include "ffd/Transforms/Passes.h"

namespace mlir::ffd {
#define GEN_PASS_DEF_FFDSCHEDULE
#include "ffd/Transforms/Passes.h.inc"
} // namespace mlir::ffd

using namespace mlir;
using namespace mlir::ffd;

namespace {
struct SchedulePass : mlir::ffd::impl::FFDScheduleBase<SchedulePass> {
  using FFDScheduleBase::FFDScheduleBase;
  void runOnOperation() override {}
};
} // namespace
