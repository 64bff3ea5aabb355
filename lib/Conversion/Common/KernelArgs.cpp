//===- KernelArgs.cpp - The arguments of a kernel -------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Access to the argument struct, and the check that a tile program can be called
// through it.
//
//===----------------------------------------------------------------------===//

#include "ffd/Conversion/KernelArgs.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include <cstddef>

using namespace mlir;
using namespace mlir::ffd;

namespace {
enum class Kind { ptr, i64, i32, f32 };
struct Field {
  size_t offset;
  Kind kind;
};
} // namespace

static const Field fields[] = {
#define FFD_KERNEL_ARG(FIELD, KIND) {offsetof(ffdDecodeArgs, FIELD), Kind::KIND},
#include "ffd/Conversion/KernelArgs.def"
};

Value mlir::ffd::loadKernelArg(OpBuilder &builder, Location loc, Value args,
                               KernelArg arg) {
  const Field &field = fields[static_cast<unsigned>(arg)];
  Type ptr = LLVM::LLVMPointerType::get(builder.getContext());
  Type type;
  switch (field.kind) {
  case Kind::ptr:
    type = ptr;
    break;
  case Kind::i64:
    type = builder.getI64Type();
    break;
  case Kind::i32:
    type = builder.getI32Type();
    break;
  case Kind::f32:
    type = builder.getF32Type();
    break;
  }
  Value address = LLVM::GEPOp::create(
      builder, loc, ptr, builder.getI8Type(), args,
      ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(field.offset)});
  auto load = LLVM::LoadOp::create(builder, loc, type, address);
  load.setInvariant(true);
  return load;
}

LogicalResult mlir::ffd::checkKernelArguments(TileTeamsOp teams) {
  auto function = teams->getParentOfType<FunctionOpInterface>();
  if (!function)
    return teams.emitOpError("is in no function, expected the function that "
                             "becomes the kernel");
  auto check = [&](Operation *user, StringRef role,
                   Value value) -> LogicalResult {
    auto argument = dyn_cast<BlockArgument>(value);
    if (argument && argument.getOwner() == &function.getFunctionBody().front())
      return success();
    return user->emitOpError("operand '")
           << role << "' is not an argument of function '"
           << function.getName()
           << "', expected one: the kernel receives it from its caller";
  };
  CacheViewOp view;
  WalkResult result = teams.walk([&](Operation *op) -> WalkResult {
    for (Value operand : op->getOperands())
      if (auto other = operand.getDefiningOp<CacheViewOp>()) {
        if (view && view != other)
          return op->emitOpError("uses a second cache, expected one per kernel");
        view = other;
      }
    if (auto query = dyn_cast<TileQueryOp>(op))
      return success(
          succeeded(check(op, "memory", query.getMemory())) &&
          succeeded(check(op, "sm_scale", query.getSmScale())));
    if (auto threshold = dyn_cast<TileThresholdOp>(op))
      return check(op, "delta", threshold.getDelta());
    if (auto finish = dyn_cast<TileFinishOp>(op))
      return success(succeeded(check(op, "out", finish.getOut())) &&
                     succeeded(check(op, "lse", finish.getLse())));
    if (auto kept = dyn_cast<TileStoreKeptOp>(op))
      return check(op, "kept", kept.getKept());
    if (auto kept = dyn_cast<TileLoadKeptOp>(op))
      return check(op, "kept", kept.getKept());
    if (auto tail = dyn_cast<TileLoadTailOp>(op))
      return success(succeeded(check(op, "keys", tail.getKeys())) &&
                     succeeded(check(op, "values", tail.getValues())));
    if (auto extent = dyn_cast<TileExactExtentOp>(op))
      return check(op, "lengths", extent.getLengths());
    return success();
  });
  if (result.wasInterrupted())
    return failure();
  if (!view)
    return success();
  for (auto [role, value] :
       {std::pair<StringRef, Value>{"thumbnails", view.getThumbnails()},
        {"residuals", view.getResiduals()},
        {"values", view.getValues()},
        {"smax", view.getSmax()},
        {"tail_k", view.getTailK()},
        {"tail_v", view.getTailV()},
        {"page_table", view.getPageTable()},
        {"lengths", view.getLengths()},
        {"lag", view.getLag()}})
    if (failed(check(view, role, value)))
      return failure();
  return success();
}
