//===- Schedule.cpp - Choose how teams map to a GPU -------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// --ffd-schedule: writes down, as an attribute that can be read and edited, the
// choice that makePlan makes.
//
//===----------------------------------------------------------------------===//

#include "Plan.h"
#include "ffd/Conversion/KernelArgs.h"
#include "ffd/Conversion/Passes.h"

namespace mlir::ffd {
#define GEN_PASS_DEF_FFDSCHEDULE
#include "ffd/Conversion/Passes.h.inc"
} // namespace mlir::ffd

using namespace mlir;
using namespace mlir::ffd;

namespace {
struct SchedulePass : mlir::ffd::impl::FFDScheduleBase<SchedulePass> {
  using FFDScheduleBase::FFDScheduleBase;

  void runOnOperation() override {
    FailureOr<GPUArch> target =
        lookupArch(arch, [&] { return getOperation().emitError(); });
    if (failed(target))
      return signalPassFailure();
    WalkResult result =
        getOperation().walk([&](TileTeamsOp teams) -> WalkResult {
          // An append has one schedule.
          if (isAppend(teams))
            return WalkResult::advance();
          FailureOr<KernelPlan> plan = makePlan(teams, *target);
          if (failed(plan))
            return failure();
          auto pick = [](int64_t option, int64_t chosen) {
            return option ? option : chosen;
          };
          auto schedule = ScheduleAttr::getChecked(
              llvm::function_ref<InFlightDiagnostic()>(
                  [&] { return teams.emitOpError(); }),
              &getContext(), pick(warps, plan->warps), pick(ctas, plan->ctas),
              pick(stages, plan->stages), pick(slots, plan->slots));
          if (!schedule)
            return failure();
          teams.setScheduleAttr(schedule);
          return success();
        });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
