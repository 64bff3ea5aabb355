//===- Team.cpp - The warps of a CTA together -------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lane coordinates, barriers, exchanges between lanes, the queue of kept tiles
// and the arrival of a piece.
//
//===----------------------------------------------------------------------===//

#include "Lowering.h"

using namespace mlir;
using namespace mlir::ffd;

Results mlir::ffd::lower(WarpBuilder &b, GPUIdOp op) {
  switch (op.getKind()) {
  case LaneId::thread:
    return {NVVM::ThreadIdXOp::create(b, b.i32())};
  case LaneId::warp:
    return {b.shr(NVVM::ThreadIdXOp::create(b, b.i32()), 5)};
  case LaneId::lane:
    return {b.band(NVVM::ThreadIdXOp::create(b, b.i32()), 31)};
  case LaneId::block:
    return {NVVM::BlockIdXOp::create(b, b.i32())};
  }
  llvm_unreachable("all kinds are handled");
}

Results mlir::ffd::lower(WarpBuilder &b, GPUSharedOp op) {
  Value base = LLVM::AddressOfOp::create(b, b.pointer(3), kSharedMemorySymbol);
  return {b.at(base, static_cast<int64_t>(op.getOffset()))};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUTeamBarrierOp op) {
  NVVM::BarrierOp::create(b);
  return {};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUWarpBarrierOp op) {
  NVVM::SyncWarpOp::create(b, b.fullMask());
  return {};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUReduceRowsOp op) {
  Value x = op.getValue();
  bool isFloat = x.getType().isF32();
  for (int64_t mask : {4, 8, 16}) {
    Value y = b.shuffleXor(x, mask);
    if (op.getKind() == Reduction::add)
      x = isFloat ? b.fadd(x, y) : b.add(x, y);
    else
      x = isFloat ? b.fmax(x, y) : b.smax(x, y);
  }
  return {x};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUShuffleOp op) {
  return {b.shuffleFrom(op.getValue(), op.getLane())};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUAnyOp op) {
  return {b.any(op.getValue())};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUBallotOp op) {
  return {NVVM::VoteSyncOp::create(b, b.i32(), b.fullMask(), op.getValue(),
                                   NVVM::VoteSyncKind::ballot)};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUTransposeOp op) {
  SmallVector<Value> words = b.unpack(op.getWords());
  for (Value &word : words)
    word = b.transpose(word);
  return {b.pack(words)};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUPrefetchOp op) {
  b.ptxVolatile(Type(), "prefetch.global.L2 [$0];", "l", {op.getAddress()});
  return {};
}

Results mlir::ffd::lower(WarpBuilder &b, GPULoadIfOp op) {
  int64_t n = op.getWords().getType().getDimSize(0);
  // Results $0 .. $(n-1), then the address and the condition.
  std::string text = "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, $" +
                     std::to_string(n + 1) + ", 0;\n\t";
  std::string list, constraints;
  for (int64_t i = 0; i < n; ++i) {
    std::string word = "$" + std::to_string(i);
    text += "mov.b32 " + word + ", 0;\n\t";
    list += (i ? ", " : "") + word;
    constraints += "=&r,";
  }
  text += op.getWritten() ? "@p ld.global" : "@p ld.global.nc";
  if (n > 1)
    text += ".v" + std::to_string(n);
  text += n > 1 ? ".b32 {" + list + "}" : ".b32 " + list;
  text += ", [$" + std::to_string(n) + "];\n\t}";
  constraints += "l,r";
  SmallVector<Type> words(n, b.i32());
  Type type = n == 1 ? b.i32()
                     : LLVM::LLVMStructType::getLiteral(b.getContext(), words);
  Value result =
      LLVM::InlineAsmOp::create(
          b, type, ValueRange{op.getAddress(), b.zext32(op.getCondition())},
          text, constraints, /*has_side_effects=*/true,
          /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
          /*asm_dialect=*/LLVM::AsmDialectAttr(),
          /*operand_attrs=*/ArrayAttr())
          .getRes();
  SmallVector<Value> values;
  for (int64_t i = 0; i < n; ++i)
    values.push_back(
        n == 1 ? result
               : LLVM::ExtractValueOp::create(b, result, i).getResult());
  return {b.pack(values)};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUCopyIfOp op) {
  b.ptxVolatile(
      {},
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, $0, 0;\n\t"
      "@p cp.async.cg.shared.global [$1], [$2], 16;\n\t}",
      "r,r,l",
      {b.zext32(op.getCondition()), b.sharedAddress(op.getTo()), op.getFrom()});
  return {};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUCopyWaitOp op) {
  b.ptxVolatile({}, "cp.async.wait_all;", "", {});
  NVVM::SyncWarpOp::create(b, b.fullMask());
  return {};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUExp2Op op) {
  return {b.exp2(op.getValue())};
}

Results mlir::ffd::lower(WarpBuilder &b, GPULog2Op op) {
  return {b.ptx(b.f32(), "lg2.approx.f32 $0, $1;", "=f,f", {op.getValue()})};
}

/// Writes the tiles of one word of keep bits whose position in the list is in
/// [begin, end) to the queue; returns the position after the word.
static Value emitTiles(WarpBuilder &b, Value bits, Value position, Value begin,
                       Value end, Value firstTile, Value queue) {
  Type i32 = b.i32();
  auto loop = scf::WhileOp::create(
      b, TypeRange{i32, i32}, ValueRange{bits, position},
      [&](OpBuilder &builder, Location loc, ValueRange args) {
        Value zero = arith::ConstantIntOp::create(builder, loc, 0, 32);
        Value more = arith::CmpIOp::create(
            builder, loc, arith::CmpIPredicate::ne, args[0], zero);
        scf::ConditionOp::create(builder, loc, more, args);
      },
      [&](OpBuilder &builder, Location loc, ValueRange args) {
        WarpBuilder w(loc, builder);
        Value tile = LLVM::CountTrailingZerosOp::create(
            w, i32, args[0], /*is_zero_poison=*/true);
        Value mine = w.band(w.ge(args[1], begin), w.lt(args[1], end));
        w.ifThen(mine, [&] {
          w.store(w.trunc(w.i16(), w.add(firstTile, tile)),
                  w.at(queue, w.shl(args[1], 1)), 2);
        });
        Value rest = w.band(args[0], w.add(args[0], -1));
        scf::YieldOp::create(w, ValueRange{rest, w.add(args[1], 1)});
      });
  return loop.getResult(1);
}

Results mlir::ffd::lower(WarpBuilder &b, GPUQueueTakeOp op) {
  int64_t warps = op.getWarps();
  Value thread = NVVM::ThreadIdXOp::create(b, b.i32());
  Value lane = b.band(thread, 31), warp = b.shr(thread, 5);
  // Lane i holds the bits of every warp's i-th block.
  Value mine = b.at(op.getKeep(), b.mul(lane, warps));
  SmallVector<Value> bits;
  Value count = b.c32(0);
  for (int64_t k = 0; k < warps / 4; ++k) {
    bits.push_back(b.load(b.i32(), b.at(mine, 4 * k), 4));
    count = b.add(count, LLVM::CtPopOp::create(b, b.i32(), bits.back()));
  }
  Value upTo = count;
  for (int64_t distance : {1, 2, 4, 8, 16}) {
    Value other = b.shuffleUp(upTo, distance);
    upTo = b.select(b.lt(lane, distance), upTo, b.add(upTo, other));
  }
  Value total = b.shuffleFrom(upTo, b.c32(31));
  int64_t shift = llvm::Log2_64(warps);
  Value begin = b.shr(b.mul(warp, total), shift);
  Value end = b.shr(b.mul(b.add(warp, 1), total), shift);
  Value before = b.sub(upTo, count);
  b.ifThen(b.band(b.lt(before, end), b.gt(upTo, begin)), [&] {
    Value position = before;
    for (auto [k, word] : llvm::enumerate(bits))
      position =
          emitTiles(b, word, position, begin, end,
                    b.add(b.mul(lane, warps * 8), 32 * k), op.getQueue());
  });
  NVVM::SyncWarpOp::create(b, b.fullMask());
  return {begin, end};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUArriveOp op) {
  NVVM::BarrierOp::create(b);
  Value thread = NVVM::ThreadIdXOp::create(b, b.i32());
  Value lastNumber = b.add(op.getPieces(), -1);
  b.ifThen(b.eq(thread, 0), [&] {
    // The increment wraps to zero by itself.
    Value old =
        b.ptxVolatile(b.i32(), "atom.acq_rel.gpu.global.inc.u32 $0, [$1], $2;",
                      "=r,l,r", {op.getCounter(), lastNumber});
    b.store(b.zext32(b.eq(old, lastNumber)), op.getFlag(), 4);
  });
  NVVM::BarrierOp::create(b);
  return {b.ne(b.load(b.i32(), op.getFlag(), 4), 0)};
}

Results mlir::ffd::lower(WarpBuilder &b, GPUAddCounterOp op) {
  b.ptxVolatile(Type(), "red.relaxed.gpu.global.add.u64 [$0], $1;", "l,l",
                {op.getCounter(), op.getValue()});
  return {};
}
