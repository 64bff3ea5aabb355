//===- Ring.cpp - Asynchronous copies -------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rings, for the two ways in which NVIDIA chips copy to shared memory in the
// background: bulk copies that report to an mbarrier (from sm_90 on), and
// 16-byte cp.async in groups (from sm_80 on).
//
//===----------------------------------------------------------------------===//

#include "Lowering.h"

using namespace mlir;
using namespace mlir::ffd;

static Value lane(WarpBuilder &b) {
  return b.band(NVVM::ThreadIdXOp::create(b, b.i32()), 31);
}

Results mlir::ffd::lower(WarpBuilder &b, GPURingInitOp op) {
  if (op.getKind() == CopyKind::async)
    return {};
  b.ifThen(b.eq(lane(b), 0), [&] {
    Value base = b.sharedAddress(op.getBarriers());
    for (int64_t i = 0, e = op.getCount(); i < e; ++i)
      b.ptxVolatile({}, "mbarrier.init.shared::cta.b64 [$0], 1;", "r",
                    {b.add(base, 8 * i)});
    b.ptxVolatile({},
                  "fence.mbarrier_init.release.cluster; "
                  "fence.proxy.async.shared::cta;",
                  "", {});
  });
  NVVM::SyncWarpOp::create(b, b.fullMask());
  return {};
}

/// One lane issues. Predicates instead of a branch: the warp stays together,
/// and the assembler can move other work between the copies.
static void fillBulk(WarpBuilder &b, GPURingFillOp op) {
  Value issue = b.band(op.getCondition(), b.eq(lane(b), 0));
  SmallVector<Value> operands = {b.zext32(issue),
                                 b.sharedAddress(op.getBarrier())};
  int64_t total = 0;
  for (int64_t size : op.getSizes())
    total += size;
  std::string text =
      "{\n\t.reg .pred one;\n"
      "\tsetp.ne.b32 one, $0, 0;\n"
      "\t@one mbarrier.arrive.expect_tx.shared::cta.b64 _, [$1], " +
      std::to_string(total) + ";\n";
  std::string constraints = "r,r";
  for (auto [target, source, size] :
       llvm::zip(op.getTargets(), op.getSources(), op.getSizes())) {
    std::string n = std::to_string(operands.size());
    std::string next = std::to_string(operands.size() + 1);
    text += "\t@one cp.async.bulk.shared::cluster.global.mbarrier::"
            "complete_tx::bytes [$" +
            n + "], [$" + next + "], " + std::to_string(size) + ", [$1];\n";
    constraints += ",r,l";
    operands.append({b.sharedAddress(target), source});
  }
  b.ptxVolatile({}, text + "\t}", constraints, operands);
}

static void fillAsync(WarpBuilder &b, GPURingFillOp op) {
  Value own = b.shl(lane(b), 4);
  b.ifThen(op.getCondition(), [&] {
    for (auto [target, source, size] :
         llvm::zip(op.getTargets(), op.getSources(), op.getSizes())) {
      Value to = b.add(b.sharedAddress(target), own);
      Value from = b.at(source, own);
      auto copy = [&](int64_t offset) {
        b.ptxVolatile({}, "cp.async.cg.shared.global [$0], [$1], 16;", "r,l",
                      {b.add(to, offset), b.at(from, offset)});
      };
      int64_t offset = 0;
      for (; offset + 512 <= size; offset += 512)
        copy(offset);
      if (int64_t rest = size - offset)
        b.ifThen(b.lt(own, rest), [&] { copy(offset); });
    }
  });
  b.ptxVolatile({}, "cp.async.commit_group;", "", {});
}

Results mlir::ffd::lower(WarpBuilder &b, GPURingFillOp op) {
  if (op.getKind() == CopyKind::bulk)
    fillBulk(b, op);
  else
    fillAsync(b, op);
  return {};
}

Results mlir::ffd::lower(WarpBuilder &b, GPURingWaitOp op) {
  if (op.getKind() == CopyKind::bulk) {
    b.ptxVolatile(
        {},
        "{\n\t.reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n"
        "\t@!done bra again;\n\t}",
        "r,r", {b.sharedAddress(op.getBarrier()), op.getParity()});
    return {};
  }
  b.ptxVolatile({}, "cp.async.wait_group $0;", "n", {b.c32(op.getPending())});
  NVVM::SyncWarpOp::create(b, b.fullMask());
  return {};
}

Results mlir::ffd::lower(WarpBuilder &b, GPURingHandoverOp op) {
  if (op.getKind() == CopyKind::bulk)
    b.ptxVolatile({}, "fence.proxy.async.shared::cta;", "", {});
  return {};
}
