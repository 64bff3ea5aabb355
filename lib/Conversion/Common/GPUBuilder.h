//===- GPUBuilder.h - Short names for GPU code -------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A builder with one-line helpers for the arithmetic, addresses and memory
// accesses that the GPU conversions emit by the hundred. Integers are i32
// unless a name says otherwise, comparisons of integers are signed.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_CONVERSION_COMMON_GPUBUILDER_H
#define FFD_LIB_CONVERSION_COMMON_GPUBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::ffd {

class GPUBuilder : public ImplicitLocOpBuilder {
public:
  using ImplicitLocOpBuilder::ImplicitLocOpBuilder;

  //===--- Types and constants
  //---------------------------------------------===//

  Type i1() { return getI1Type(); }
  Type i16() { return getI16Type(); }
  Type i32() { return getI32Type(); }
  Type i64() { return getI64Type(); }
  Type f32() { return getF32Type(); }
  VectorType words(int64_t n) { return VectorType::get({n}, i32()); }
  VectorType floats(int64_t n) { return VectorType::get({n}, f32()); }
  Type pointer(unsigned space) {
    return LLVM::LLVMPointerType::get(getContext(), space);
  }
  Value c32(int64_t v) {
    return arith::ConstantOp::create(
        *this, getI32IntegerAttr(static_cast<int32_t>(v)));
  }
  Value c64(int64_t v) {
    return arith::ConstantOp::create(*this, getI64IntegerAttr(v));
  }
  Value cf(float v) {
    return arith::ConstantOp::create(*this, getF32FloatAttr(v));
  }
  Value cbool(bool v) {
    return arith::ConstantOp::create(*this, getBoolAttr(v));
  }
  Value infinity(bool negative = false) {
    return arith::ConstantOp::create(
        *this,
        getFloatAttr(f32(), APFloat::getInf(APFloat::IEEEsingle(), negative)));
  }
  Value nan() {
    return arith::ConstantOp::create(
        *this, getFloatAttr(f32(), APFloat::getNaN(APFloat::IEEEsingle())));
  }

  //===--- Integers
  //--------------------------------------------------------===//

  Value add(Value a, Value b) { return arith::AddIOp::create(*this, a, b); }
  Value add(Value a, int64_t b) { return b ? add(a, like(a, b)) : a; }
  Value sub(Value a, Value b) { return arith::SubIOp::create(*this, a, b); }
  Value mul(Value a, Value b) { return arith::MulIOp::create(*this, a, b); }
  Value mul(Value a, int64_t b) { return mul(a, like(a, b)); }
  Value udiv(Value a, Value b) { return arith::DivUIOp::create(*this, a, b); }
  Value umod(Value a, Value b) { return arith::RemUIOp::create(*this, a, b); }
  Value band(Value a, Value b) { return arith::AndIOp::create(*this, a, b); }
  Value band(Value a, int64_t b) { return band(a, like(a, b)); }
  Value bor(Value a, Value b) { return arith::OrIOp::create(*this, a, b); }
  Value bxor(Value a, Value b) { return arith::XOrIOp::create(*this, a, b); }
  Value bnot(Value a) { return bxor(a, like(a, -1)); }
  Value shl(Value a, int64_t n) {
    return n ? arith::ShLIOp::create(*this, a, like(a, n)).getResult() : a;
  }
  Value shl(Value a, Value n) { return arith::ShLIOp::create(*this, a, n); }
  Value shr(Value a, int64_t n) {
    return n ? arith::ShRUIOp::create(*this, a, like(a, n)).getResult() : a;
  }
  Value shr(Value a, Value n) { return arith::ShRUIOp::create(*this, a, n); }
  Value sar(Value a, int64_t n) {
    return n ? arith::ShRSIOp::create(*this, a, like(a, n)).getResult() : a;
  }
  Value smin(Value a, Value b) { return arith::MinSIOp::create(*this, a, b); }
  Value smax(Value a, Value b) { return arith::MaxSIOp::create(*this, a, b); }
  Value cmp(arith::CmpIPredicate p, Value a, Value b) {
    return arith::CmpIOp::create(*this, p, a, b);
  }
  Value lt(Value a, Value b) { return cmp(arith::CmpIPredicate::slt, a, b); }
  Value lt(Value a, int64_t b) { return lt(a, like(a, b)); }
  Value ge(Value a, Value b) { return cmp(arith::CmpIPredicate::sge, a, b); }
  Value gt(Value a, Value b) { return cmp(arith::CmpIPredicate::sgt, a, b); }
  Value eq(Value a, Value b) { return cmp(arith::CmpIPredicate::eq, a, b); }
  Value eq(Value a, int64_t b) { return eq(a, like(a, b)); }
  Value ne(Value a, int64_t b) {
    return cmp(arith::CmpIPredicate::ne, a, like(a, b));
  }
  Value select(Value c, Value a, Value b) {
    return arith::SelectOp::create(*this, c, a, b);
  }
  Value zext64(Value a) { return arith::ExtUIOp::create(*this, i64(), a); }
  Value zext32(Value a) { return arith::ExtUIOp::create(*this, i32(), a); }
  Value trunc(Type type, Value a) {
    return arith::TruncIOp::create(*this, type, a);
  }
  /// ceil(a / b) of non-negative integers, b > 0.
  Value ceilDiv(Value a, Value b) { return udiv(add(a, add(b, -1)), b); }

  //===--- Floats: every operation rounds once
  //-----------------------------===//

  Value fadd(Value a, Value b) { return arith::AddFOp::create(*this, a, b); }
  Value fsub(Value a, Value b) { return arith::SubFOp::create(*this, a, b); }
  Value fmul(Value a, Value b) { return arith::MulFOp::create(*this, a, b); }
  Value fdiv(Value a, Value b) { return arith::DivFOp::create(*this, a, b); }
  Value fma(Value a, Value b, Value c) {
    return LLVM::FMAOp::create(*this, a.getType(), a, b, c);
  }
  Value fabs(Value a) { return LLVM::FAbsOp::create(*this, a.getType(), a); }
  /// Maximum and minimum that ignore NaN.
  Value fmax(Value a, Value b) {
    return LLVM::MaxNumOp::create(*this, a.getType(), a, b);
  }
  Value fmin(Value a, Value b) {
    return LLVM::MinNumOp::create(*this, a.getType(), a, b);
  }
  /// Maximum that hands NaN on.
  Value fmaxNaN(Value a, Value b) {
    return LLVM::MaximumOp::create(*this, a.getType(), a, b);
  }
  Value floor(Value a) { return LLVM::FFloorOp::create(*this, a.getType(), a); }
  Value ceil(Value a) { return LLVM::FCeilOp::create(*this, a.getType(), a); }
  Value toInt(Value a) { return arith::FPToSIOp::create(*this, i32(), a); }
  Value toFloat(Value a) { return arith::SIToFPOp::create(*this, f32(), a); }
  Value fcmp(arith::CmpFPredicate p, Value a, Value b) {
    return arith::CmpFOp::create(*this, p, a, b);
  }
  Value isFinite(Value a) {
    return fcmp(arith::CmpFPredicate::OLT, fabs(a), infinity());
  }
  Value bitcast(Type type, Value a) {
    return LLVM::BitcastOp::create(*this, type, a);
  }
  /// The low and high half of a word of two elements, exactly, in f32.
  Value lowFloat(Value word, Type element) {
    if (element.isBF16())
      return bitcast(f32(), shl(word, 16));
    return arith::ExtFOp::create(*this, f32(),
                                 bitcast(getF16Type(), trunc(i16(), word)));
  }
  Value highFloat(Value word, Type element) {
    if (element.isBF16())
      return bitcast(f32(), band(word, int64_t(0xFFFF0000)));
    return lowFloat(shr(word, 16), element);
  }

  //===--- Vectors
  //---------------------------------------------------------===//

  Value get(Value vector, int64_t i) {
    return createOrFold<vector::ExtractOp>(vector, i);
  }
  SmallVector<Value> unpack(Value vector) {
    SmallVector<Value> result;
    int64_t n = cast<VectorType>(vector.getType()).getDimSize(0);
    for (int64_t i = 0; i < n; ++i)
      result.push_back(get(vector, i));
    return result;
  }
  Value pack(ValueRange elements) {
    auto type = VectorType::get({static_cast<int64_t>(elements.size())},
                                elements.front().getType());
    return vector::FromElementsOp::create(*this, type, elements);
  }
  Value zeros(VectorType type) {
    return arith::ConstantOp::create(*this, getZeroAttr(type));
  }

  //===--- Memory
  //----------------------------------------------------------===//

  Value at(Value base, int64_t offset) {
    return offset ? LLVM::GEPOp::create(
                        *this, base.getType(), getI8Type(), base,
                        ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(offset)})
                        .getResult()
                  : base;
  }
  /// The address `offset` bytes (i32 or i64) after `base`.
  Value at(Value base, Value offset) {
    return LLVM::GEPOp::create(*this, base.getType(), getI8Type(), base,
                               ArrayRef<LLVM::GEPArg>{offset});
  }
  Value load(Type type, Value address, unsigned alignment) {
    return LLVM::LoadOp::create(*this, type, address, alignment);
  }
  /// A load of memory that no one writes while the kernel runs.
  Value loadConstant(Type type, Value address, unsigned alignment) {
    return LLVM::LoadOp::create(*this, type, address, alignment,
                                /*isVolatile=*/false, /*isNonTemporal=*/false,
                                /*isInvariant=*/true);
  }
  void store(Value value, Value address, unsigned alignment) {
    LLVM::StoreOp::create(*this, value, address, alignment);
  }

  /// The same address or 32-bit number, of which the optimiser knows nothing:
  /// what is computed from it stays where it is.
  Value opaque(Value value) {
    bool word = value.getType().isInteger(32);
    return LLVM::InlineAsmOp::create(
               *this, value.getType(), value,
               word ? "mov.b32 $0, $1;" : "mov.b64 $0, $1;",
               word ? "=r,r" : "=l,l",
               /*has_side_effects=*/true, /*is_align_stack=*/false,
               LLVM::tailcallkind::TailCallKind::None,
               /*asm_dialect=*/LLVM::AsmDialectAttr(),
               /*operand_attrs=*/ArrayAttr())
        .getRes();
  }

  //===--- Control flow
  //----------------------------------------------------===//

  void ifThen(Value condition, function_ref<void()> body) {
    auto op = scf::IfOp::create(*this, condition, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(*this);
    setInsertionPoint(op.thenYield());
    body();
  }
  /// Both arms return values of `types`.
  SmallVector<Value> ifElse(Value condition, TypeRange types,
                            function_ref<SmallVector<Value>()> then,
                            function_ref<SmallVector<Value>()> otherwise) {
    auto op = scf::IfOp::create(*this, types, condition, /*addThenBlock=*/true,
                                /*addElseBlock=*/true);
    OpBuilder::InsertionGuard guard(*this);
    setInsertionPointToStart(op.thenBlock());
    scf::YieldOp::create(*this, then());
    setInsertionPointToStart(op.elseBlock());
    scf::YieldOp::create(*this, otherwise());
    return SmallVector<Value>(op.getResults());
  }
  /// for (i = from; i < to; i += step), with values carried.
  SmallVector<Value>
  loop(Value from, Value to, Value step, ValueRange carried,
       function_ref<SmallVector<Value>(Value, ValueRange)> body) {
    auto op = scf::ForOp::create(*this, from, to, step, carried);
    OpBuilder::InsertionGuard guard(*this);
    Block *block = op.getBody();
    if (carried.empty())
      setInsertionPoint(block->getTerminator());
    else
      setInsertionPointToStart(block);
    SmallVector<Value> next =
        body(op.getInductionVar(), op.getRegionIterArgs());
    if (!carried.empty())
      scf::YieldOp::create(*this, next);
    return SmallVector<Value>(op.getResults());
  }

private:
  Value like(Value a, int64_t v) {
    return arith::ConstantOp::create(*this, a.getType(),
                                     getIntegerAttr(a.getType(), v));
  }
};

} // namespace mlir::ffd

#endif // FFD_LIB_CONVERSION_COMMON_GPUBUILDER_H
