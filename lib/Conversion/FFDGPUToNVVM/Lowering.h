//===- Lowering.h - Lowering of ffd.gpu ops ---------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the parts of this conversion share: a builder for warp-wide instructions,
// and one `lower` function per op that emits its replacement and returns the
// values of its results.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_CONVERSION_FFDGPUTONVVM_LOWERING_H
#define FFD_LIB_CONVERSION_FFDGPUTONVVM_LOWERING_H

#include "../Common/GPUBuilder.h"

#include "ffd/Dialect/FFDDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace mlir::ffd {

/// GPUBuilder with the instructions of a warp.
class WarpBuilder : public GPUBuilder {
public:
  using GPUBuilder::GPUBuilder;

  /// Inline PTX without side effects; `$0` is the result.
  Value ptx(Type result, StringRef text, StringRef constraints,
            ValueRange operands) {
    return LLVM::InlineAsmOp::create(
               *this, result, operands, text, constraints,
               /*has_side_effects=*/false, /*is_align_stack=*/false,
               LLVM::tailcallkind::TailCallKind::None,
               /*asm_dialect=*/LLVM::AsmDialectAttr(),
               /*operand_attrs=*/ArrayAttr())
        .getRes();
  }
  /// Inline PTX that touches memory or must not move.
  Value ptxVolatile(Type result, StringRef text, StringRef constraints,
                    ValueRange operands) {
    std::string all = constraints.str();
    all += all.empty() ? "~{memory}" : ",~{memory}";
    return LLVM::InlineAsmOp::create(
               *this, result ? TypeRange(result) : TypeRange(), operands, text,
               all, /*has_side_effects=*/true, /*is_align_stack=*/false,
               LLVM::tailcallkind::TailCallKind::None,
               /*asm_dialect=*/LLVM::AsmDialectAttr(),
               /*operand_attrs=*/ArrayAttr())
        .getRes();
  }
  /// A shared address as the 32-bit number that PTX instructions take.
  Value sharedAddress(Value pointer) {
    return LLVM::PtrToIntOp::create(*this, i32(), pointer);
  }

  Value fullMask() { return c32(-1); }
  Value shuffleXor(Value value, int64_t mask) {
    return NVVM::ShflOp::create(*this, value.getType(), fullMask(), value,
                                c32(mask), c32(31), NVVM::ShflKind::bfly,
                                UnitAttr());
  }
  Value shuffleUp(Value value, int64_t distance) {
    return NVVM::ShflOp::create(*this, value.getType(), fullMask(), value,
                                c32(distance), c32(0), NVVM::ShflKind::up,
                                UnitAttr());
  }
  Value shuffleFrom(Value value, Value lane) {
    return NVVM::ShflOp::create(*this, value.getType(), fullMask(), value, lane,
                                c32(31), NVVM::ShflKind::idx, UnitAttr());
  }
  Value any(Value condition) {
    return NVVM::VoteSyncOp::create(*this, i1(), fullMask(), condition,
                                    NVVM::VoteSyncKind::any);
  }

  /// prmt: byte i of the result is byte (selector nibble i) of {high, low}.
  Value permute(Value low, Value high, uint32_t selector) {
    return ptx(i32(), "prmt.b32 $0, $1, $2, $3;", "=r,r,r,n",
               {low, high, c32(selector)});
  }

  //===--- Pairs of f16 in a word ------------------------------------------===//

  Value mul2(Value a, Value b) {
    return ptx(i32(), "mul.rn.f16x2 $0, $1, $2;", "=r,r,r", {a, b});
  }
  Value fma2(Value a, Value b, Value c) {
    return ptx(i32(), "fma.rn.f16x2 $0, $1, $2, $3;", "=r,r,r,r", {a, b, c});
  }
  /// Two f32 rounded to elements, `low` in the low half.
  Value packPair(Value low, Value high, Type element) {
    return ptx(i32(),
               element.isBF16() ? "cvt.rn.bf16x2.f32 $0, $1, $2;"
                                : "cvt.rn.f16x2.f32 $0, $1, $2;",
               "=r,f,f", {high, low});
  }

  //===--- Tensor cores ----------------------------------------------------===//

  /// c + a * b over 16 x 8 x 32 unsigned (or signed) by signed bytes.
  SmallVector<Value> mmaInt(ArrayRef<Value> a, ArrayRef<Value> b,
                            ArrayRef<Value> c, bool signedA = false);
  /// c + a * b over 16 x 8 x 16 elements.
  SmallVector<Value> mma(Type element, ArrayRef<Value> a, ArrayRef<Value> b,
                         ArrayRef<Value> c);
  /// The transpose of an 8 x 8 matrix of 16-bit elements.
  Value transpose(Value word) {
    return ptx(i32(), "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", "=r,r",
               {word});
  }
  Value exp2(Value x) {
    return ptx(f32(), "ex2.approx.ftz.f32 $0, $1;", "=f,f", {x});
  }
};

// One per op, in the file of its subject.
using Results = SmallVector<Value>;
// Team.cpp
Results lower(WarpBuilder &b, GPUIdOp op);
Results lower(WarpBuilder &b, GPUSharedOp op);
Results lower(WarpBuilder &b, GPUTeamBarrierOp op);
Results lower(WarpBuilder &b, GPUWarpBarrierOp op);
Results lower(WarpBuilder &b, GPUReduceRowsOp op);
Results lower(WarpBuilder &b, GPUShuffleOp op);
Results lower(WarpBuilder &b, GPUAnyOp op);
Results lower(WarpBuilder &b, GPUBallotOp op);
Results lower(WarpBuilder &b, GPUTransposeOp op);
Results lower(WarpBuilder &b, GPUPrefetchOp op);
Results lower(WarpBuilder &b, GPULoadIfOp op);
Results lower(WarpBuilder &b, GPUCopyIfOp op);
Results lower(WarpBuilder &b, GPUCopyWaitOp op);
Results lower(WarpBuilder &b, GPUExp2Op op);
Results lower(WarpBuilder &b, GPULog2Op op);
Results lower(WarpBuilder &b, GPUQueueTakeOp op);
Results lower(WarpBuilder &b, GPUArriveOp op);
Results lower(WarpBuilder &b, GPUAddCounterOp op);
// Ring.cpp
Results lower(WarpBuilder &b, GPURingInitOp op);
Results lower(WarpBuilder &b, GPURingFillOp op);
Results lower(WarpBuilder &b, GPURingWaitOp op);
Results lower(WarpBuilder &b, GPURingHandoverOp op);
// Query.cpp
Results lower(WarpBuilder &b, GPUQuantizeQueryOp op);
Results lower(WarpBuilder &b, GPUScaleQueryOp op);
Results lower(WarpBuilder &b, GPUOrderedDotOp op);
// Scan.cpp
Results lower(WarpBuilder &b, GPUScaleFragmentOp op);
Results lower(WarpBuilder &b, GPUFoldOp op);
Results lower(WarpBuilder &b, GPUCentreOp op);
Results lower(WarpBuilder &b, GPUSquareSumOp op);
Results lower(WarpBuilder &b, GPUScanTileOp op);
Results lower(WarpBuilder &b, GPUFoldHighOp op);
Results lower(WarpBuilder &b, GPUCentreHighOp op);
Results lower(WarpBuilder &b, GPUScreenTileOp op);
Results lower(WarpBuilder &b, GPUPushKeepOp op);
Results lower(WarpBuilder &b, GPUKeepMaskOp op);
// Split.cpp
Results lower(WarpBuilder &b, GPUKeyMaximaOp op);
Results lower(WarpBuilder &b, GPUSplitScaleOp op);
Results lower(WarpBuilder &b, GPUSplitTileOp op);
Results lower(WarpBuilder &b, GPURelativeKeysOp op);
Results lower(WarpBuilder &b, GPUAddKeysOp op);
Results lower(WarpBuilder &b, GPUCentreKeyOp op);
// Attend.cpp
Results lower(WarpBuilder &b, GPUDotTileOp op);
Results lower(WarpBuilder &b, GPURefineTileOp op);
Results lower(WarpBuilder &b, GPUSoftmaxStepOp op);
Results lower(WarpBuilder &b, GPUAccumulateOp op);

/// The symbol of the CTA's dynamic shared memory.
inline constexpr llvm::StringLiteral kSharedMemorySymbol = "ffd_shared";

} // namespace mlir::ffd

#endif // FFD_LIB_CONVERSION_FFDGPUTONVVM_LOWERING_H
