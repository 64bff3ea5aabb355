//===- VectorBuilder.h - Short names for vector IR ---- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A builder with one short function per operation that the CPU lowering needs:
// scalars and vectors of 16 words, memory behind plain pointers, structured
// loops, the integer dot product of each instruction set, and the numerical
// functions that must not become library calls.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_CONVERSION_FFDTILETOVECTOR_VECTORBUILDER_H
#define FFD_LIB_CONVERSION_FFDTILETOVECTOR_VECTORBUILDER_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::ffd {

/// What the instruction set offers beyond AVX2, FMA and F16C.
struct CpuIsa {
  bool wide = false; ///< AVX-512 F, BW, DQ, VL
  bool vnni = false; ///< vpdpbusd on 512 bits

  static std::optional<CpuIsa> parse(StringRef name);
};

class VectorBuilder : public ImplicitLocOpBuilder {
public:
  VectorBuilder(Location loc, func::FuncOp function, const CpuIsa &isa);

  const CpuIsa cpu;

  //===--- Types
  //-----------------------------------------------------------===//
  Type ptrType() { return LLVM::LLVMPointerType::get(getContext()); }
  VectorType vec(Type element, int64_t size = 16) {
    return VectorType::get({size}, element);
  }
  /// The type of `like` with another element type.
  Type withElement(Type like, Type element);

  //===--- Constants
  //-------------------------------------------------------===//
  Value i64(int64_t value);
  Value i32(int64_t value);
  Value f32(float value);
  /// A constant of a scalar or vector type.
  Value constant(Type type, int64_t value);
  Value constant(Type type, double value);
  Value constantVector(Type element, ArrayRef<int64_t> values);
  Value splat(Value scalar, int64_t size = 16);
  Value zeros(int64_t size = 16) {
    return constant(vec(getF32Type(), size), 0.0);
  }

  //===--- Arithmetic (no fast-math: docs/numerics.md)
  //---------------------===//
  Value add(Value x, Value y);
  Value sub(Value x, Value y);
  Value mul(Value x, Value y);
  Value div(Value x, Value y); ///< floats, or signed integers
  Value fma(Value x, Value y, Value z);
  Value andi(Value x, Value y);
  Value ori(Value x, Value y);
  Value xori(Value x, Value y);
  Value shl(Value x, int64_t bits);
  Value shr(Value x, int64_t bits); ///< logical
  Value sar(Value x, int64_t bits); ///< arithmetic: rounds down
  Value negate(Value condition);
  Value cmp(arith::CmpIPredicate predicate, Value x, Value y);
  Value cmp(arith::CmpFPredicate predicate, Value x, Value y);
  Value select(Value condition, Value x, Value y);
  /// Signed for integers. For floats `x > y ? x : y`: one instruction, y if
  /// either is NaN.
  Value max(Value x, Value y);
  Value min(Value x, Value y);
  Value bitcast(Type type, Value value); ///< bit cast of the same size
  Value toFloat(Value integer);          ///< signed, to f32
  Value toInt(Value value);              ///< truncates to i32; must be in range
  Value zext(Value value, Type element);
  Value sext(Value value, Type element);
  Value trunc(Value value, Type element);
  /// The bits of |x| as integers, which compare as the numbers do with NaN on
  /// top.
  Value absBits(Value x);
  /// Whether a float is NaN or infinite.
  Value notFinite(Value x);

  /// Rounds f32 to f16 and back.
  Value roundToF16(Value x);
  /// 16-bit elements as they come from memory (integers) to f32.
  Value widen(Value bits, bool bf16);
  /// exp(x) for x that is not above about 88, error below 1 ulp + 2^-149.
  Value exp(Value x);
  /// log(x) of positive normal x; NaN of NaN.
  Value log(Value x);

  //===--- Vectors
  //---------------------------------------------------------===//
  Value shuffle(Value x, Value y, ArrayRef<int64_t> indices);
  Value shuffle(Value x, ArrayRef<int64_t> indices) {
    return shuffle(x, x, indices);
  }
  Value slice(Value x, int64_t first, int64_t size);
  Value extract(Value x, int64_t lane);
  Value concat(ArrayRef<Value> vectors); ///< a power of two of equal ones
  /// Reduces the 16 lanes to a scalar.
  Value reduceMax(Value x);
  Value reduceAdd(Value x);
  /// Lane i of x plus lane i + stride, for two vectors at once: in each group
  /// of 2 * stride lanes the first half belongs to x, the second to y.
  /// Commuting the two addends is the only freedom taken.
  Value foldPair(Value x, Value y, int64_t stride);
  /// Sums of many vectors by folding halves (tail_c1), stage by stage from
  /// stride 8 down to `stride`. `leaf(l)` gives, for several independent trees
  /// at once, the vectors whose sums end in lane l (with a last stride of 4, in
  /// lanes l to l + 3), l = lane, lane + stride, ...
  using Leaf = function_ref<SmallVector<Value>(int64_t)>;
  /// With `leafStride` 8 the leaves have had their first fold already.
  SmallVector<Value> foldTree(Leaf leaf, int64_t stride = 1, int64_t lane = 0,
                              int64_t leafStride = 16);

  /// 16 vectors of 16 words: lane i of result w is lane w of vector i.
  SmallVector<Value> transpose(ArrayRef<Value> vectors);

  //===--- Memory
  //----------------------------------------------------------===//
  /// A 64-byte aligned stack buffer, live for the whole function.
  Value alloca(int64_t bytes);
  Value at(Value pointer, Value bytes);
  Value at(Value pointer, int64_t bytes);
  Value load(Type type, Value pointer, int64_t align);
  Value loadF32(Value pointer) { return load(vec(getF32Type()), pointer, 64); }
  Value loadI32(Value pointer) { return load(vec(getI32Type()), pointer, 64); }
  void store(Value value, Value pointer, int64_t align);
  void prefetch(Value pointer);
  /// The cache lines that begin in row `row` of rows of `bytes`.
  void prefetchRow(Value pointer, int64_t row, int64_t bytes);

  //===--- Control flow
  //----------------------------------------------------===//
  void loop(Value first, Value last, function_ref<void(Value)> body);
  void loop(int64_t count, function_ref<void(Value)> body) {
    loop(i64(0), i64(count), body);
  }
  /// Runs `body(first, count)` over the heads 0 .. group - 1 in groups of at
  /// most `atOnce`, whose values `body` keeps in registers: code for one group,
  /// or two if the last is smaller.
  void headGroups(int64_t group, int64_t atOnce,
                  function_ref<void(Value, int64_t)> body);
  void ifThen(Value condition, function_ref<void()> body,
              function_ref<void()> otherwise = nullptr);

  Value callIntrinsic(StringRef name, Type type, ValueRange operands);

private:
  func::FuncOp function;
  /// Where the next stack buffer goes.
  Operation *lastAlloca = nullptr;
};

/// An exact sum of unsigned bytes, each at most `limit`, times signed bytes, in
/// groups of four: vectors of 64 bytes to vector<16xi32>. Terms come one by
/// one, so that a sum stays in a register while codes are unpacked.
class DotSum {
public:
  DotSum(VectorBuilder &b, int64_t limit) : b(&b), limit(limit) {}

  void add(Value codes, Value factors);
  Value get();

private:
  /// A sum of products in 16 bits, in registers of the target's width.
  struct Narrow {
    SmallVector<Value> parts;
    int64_t terms = 0;
  };
  void addNarrow(Narrow &sum, Value codes, Value factors);
  Value widen(const Narrow &sum);

  VectorBuilder *b;
  int64_t limit;
  Value total;      ///< vector<16xi32>
  Narrow low, high; ///< high: of the upper nibbles, if codes are wide
  Value highTotal;
};

/// Short names of the predicates.
using IntCmp = arith::CmpIPredicate;
using FloatCmp = arith::CmpFPredicate;

} // namespace mlir::ffd

#endif // FFD_LIB_CONVERSION_FFDTILETOVECTOR_VECTORBUILDER_H
