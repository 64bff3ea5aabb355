//===- VectorBuilder.cpp - Short names for vector IR ------ -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Scalars, vectors, memory and loops of the CPU lowering. No operation carries
// fast-math flags: what docs/numerics.md calls exact is exact on every
// instruction set.
//
//===----------------------------------------------------------------------===//

#include "VectorBuilder.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace mlir::ffd;

std::optional<CpuIsa> CpuIsa::parse(StringRef name) {
  return llvm::StringSwitch<std::optional<CpuIsa>>(name)
      .Case("avx2", CpuIsa{false, false})
      .Case("avx512", CpuIsa{true, false})
      .Case("avx512vnni", CpuIsa{true, true})
      .Default(std::nullopt);
}

VectorBuilder::VectorBuilder(Location loc, func::FuncOp function,
                             const CpuIsa &isa)
    : ImplicitLocOpBuilder(loc, function.getContext()), cpu(isa),
      function(function) {
  setInsertionPointToEnd(&function.getBody().front());
}

Type VectorBuilder::withElement(Type like, Type element) {
  if (auto vector = dyn_cast<VectorType>(like))
    return vector.clone(element);
  return element;
}

//===--- Constants
//---------------------------------------------------------===//

Value VectorBuilder::i64(int64_t value) {
  return constant(getI64Type(), value);
}
Value VectorBuilder::i32(int64_t value) {
  return constant(getI32Type(), value);
}
Value VectorBuilder::f32(float value) {
  return arith::ConstantOp::create(*this, getF32FloatAttr(value));
}

Value VectorBuilder::constant(Type type, int64_t value) {
  Type element = getElementTypeOrSelf(type);
  TypedAttr attr = IntegerAttr::get(
      element, APInt(element.getIntOrFloatBitWidth(), uint64_t(value),
                     /*isSigned=*/true, /*implicitTrunc=*/true));
  if (auto vector = dyn_cast<VectorType>(type))
    attr = DenseElementsAttr::get(vector, attr);
  return arith::ConstantOp::create(*this, attr);
}

Value VectorBuilder::constant(Type type, double value) {
  TypedAttr attr = FloatAttr::get(getElementTypeOrSelf(type), value);
  if (auto vector = dyn_cast<VectorType>(type))
    attr = DenseElementsAttr::get(vector, attr);
  return arith::ConstantOp::create(*this, attr);
}

Value VectorBuilder::constantVector(Type element, ArrayRef<int64_t> values) {
  SmallVector<APInt> elements;
  for (int64_t value : values)
    elements.push_back(APInt(element.getIntOrFloatBitWidth(), uint64_t(value),
                             /*isSigned=*/true, /*implicitTrunc=*/true));
  return arith::ConstantOp::create(
      *this, DenseElementsAttr::get(vec(element, values.size()), elements));
}

Value VectorBuilder::splat(Value scalar, int64_t size) {
  return vector::BroadcastOp::create(*this, vec(scalar.getType(), size),
                                     scalar);
}

//===--- Arithmetic
//--------------------------------------------------------===//

static bool isFloat(Value value) {
  return isa<FloatType>(getElementTypeOrSelf(value));
}

Value VectorBuilder::add(Value x, Value y) {
  return isFloat(x) ? Value(arith::AddFOp::create(*this, x, y))
                    : Value(arith::AddIOp::create(*this, x, y));
}
Value VectorBuilder::sub(Value x, Value y) {
  return isFloat(x) ? Value(arith::SubFOp::create(*this, x, y))
                    : Value(arith::SubIOp::create(*this, x, y));
}
Value VectorBuilder::mul(Value x, Value y) {
  return isFloat(x) ? Value(arith::MulFOp::create(*this, x, y))
                    : Value(arith::MulIOp::create(*this, x, y));
}
Value VectorBuilder::div(Value x, Value y) {
  return isFloat(x) ? Value(arith::DivFOp::create(*this, x, y))
                    : Value(arith::DivSIOp::create(*this, x, y));
}
Value VectorBuilder::fma(Value x, Value y, Value z) {
  return math::FmaOp::create(*this, x, y, z);
}
Value VectorBuilder::andi(Value x, Value y) {
  return arith::AndIOp::create(*this, x, y);
}
Value VectorBuilder::ori(Value x, Value y) {
  return arith::OrIOp::create(*this, x, y);
}
Value VectorBuilder::xori(Value x, Value y) {
  return arith::XOrIOp::create(*this, x, y);
}
Value VectorBuilder::shl(Value x, int64_t bits) {
  return arith::ShLIOp::create(*this, x, constant(x.getType(), bits));
}
Value VectorBuilder::shr(Value x, int64_t bits) {
  if (bits == 0)
    return x;
  return arith::ShRUIOp::create(*this, x, constant(x.getType(), bits));
}
Value VectorBuilder::sar(Value x, int64_t bits) {
  return arith::ShRSIOp::create(*this, x, constant(x.getType(), bits));
}
Value VectorBuilder::negate(Value condition) {
  return xori(condition, constant(condition.getType(), int64_t(1)));
}
Value VectorBuilder::cmp(arith::CmpIPredicate predicate, Value x, Value y) {
  return arith::CmpIOp::create(*this, predicate, x, y);
}
Value VectorBuilder::cmp(arith::CmpFPredicate predicate, Value x, Value y) {
  return arith::CmpFOp::create(*this, predicate, x, y);
}
Value VectorBuilder::select(Value condition, Value x, Value y) {
  return arith::SelectOp::create(*this, condition, x, y);
}
Value VectorBuilder::max(Value x, Value y) {
  if (isFloat(x))
    return select(cmp(FloatCmp::OGT, x, y), x, y);
  return arith::MaxSIOp::create(*this, x, y);
}
Value VectorBuilder::min(Value x, Value y) {
  if (isFloat(x))
    return select(cmp(FloatCmp::OLT, x, y), x, y);
  return arith::MinSIOp::create(*this, x, y);
}
Value VectorBuilder::bitcast(Type type, Value value) {
  if (isa<VectorType>(type))
    return vector::BitCastOp::create(*this, cast<VectorType>(type), value);
  if (isa<VectorType>(value.getType()))
    return LLVM::BitcastOp::create(*this, type, value);
  return arith::BitcastOp::create(*this, type, value);
}
Value VectorBuilder::toFloat(Value integer) {
  return arith::SIToFPOp::create(
      *this, withElement(integer.getType(), getF32Type()), integer);
}
Value VectorBuilder::toInt(Value value) {
  return arith::FPToSIOp::create(
      *this, withElement(value.getType(), getI32Type()), value);
}
Value VectorBuilder::zext(Value value, Type element) {
  return arith::ExtUIOp::create(*this, withElement(value.getType(), element),
                                value);
}
Value VectorBuilder::sext(Value value, Type element) {
  return arith::ExtSIOp::create(*this, withElement(value.getType(), element),
                                value);
}
Value VectorBuilder::trunc(Value value, Type element) {
  return arith::TruncIOp::create(*this, withElement(value.getType(), element),
                                 value);
}

Value VectorBuilder::absBits(Value x) {
  Type type = withElement(x.getType(), getI32Type());
  return andi(bitcast(type, x), constant(type, int64_t(0x7FFFFFFF)));
}
Value VectorBuilder::notFinite(Value x) {
  Value bits = absBits(x);
  return cmp(IntCmp::uge, bits, constant(bits.getType(), int64_t(0x7F800000)));
}

Value VectorBuilder::roundToF16(Value x) {
  Value half =
      arith::TruncFOp::create(*this, withElement(x.getType(), getF16Type()), x);
  return arith::ExtFOp::create(*this, x.getType(), half);
}

Value VectorBuilder::widen(Value bits, bool bf16) {
  Type type = withElement(bits.getType(), getF32Type());
  if (bf16)
    return bitcast(type, shl(zext(bits, getI32Type()), 16));
  return arith::ExtFOp::create(
      *this, type, bitcast(withElement(bits.getType(), getF16Type()), bits));
}

/// Evaluates a polynomial by Horner's rule, highest coefficient first.
static Value horner(VectorBuilder &b, Value x, ArrayRef<double> coefficients) {
  Value sum = b.constant(x.getType(), coefficients.front());
  for (double coefficient : coefficients.drop_front())
    sum = b.fma(sum, x, b.constant(x.getType(), coefficient));
  return sum;
}

Value VectorBuilder::exp(Value x) {
  // x = n ln 2 + r with n the nearest integer: adding 1.5 * 2^23 leaves n in
  // the low bits. Then exp(r) = 1 + r + r^2 P(r) (Cephes' coefficients).
  Type type = x.getType(), bitsType = withElement(type, getI32Type());
  Value magic = constant(type, 12582912.0);
  Value shifted = fma(x, constant(type, 1.44269504088896341), magic);
  Value n = sub(shifted, magic);
  Value r = fma(n, constant(type, -0.693359375), x);
  r = fma(n, constant(type, 2.12194440e-4), r);
  Value p = horner(*this, r,
                   {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3,
                    4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1});
  p = add(fma(p, mul(r, r), r), constant(type, 1.0));
  Value scale = bitcast(type, add(shl(bitcast(bitsType, shifted), 23),
                                  constant(bitsType, int64_t(0x3F800000))));
  // Below, 2^n is no normal number; NaN takes the other side.
  Value tiny = cmp(FloatCmp::OLT, x, constant(type, -87.33654));
  return select(tiny, constant(type, 0.0), mul(p, scale));
}

Value VectorBuilder::log(Value x) {
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)) (Cephes' coefficients).
  Type type = x.getType(), bitsType = withElement(type, getI32Type());
  Value bits = bitcast(bitsType, x);
  Value offset = sub(bits, constant(bitsType, int64_t(0x3F3504F3)));
  Value exponent =
      arith::ShRSIOp::create(*this, offset, constant(bitsType, int64_t(23)));
  Value m = bitcast(type, sub(bits, shl(exponent, 23)));
  Value e = toFloat(exponent);
  Value t = sub(m, constant(type, 1.0)), square = mul(t, t);
  Value p = horner(*this, t,
                   {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1,
                    -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
                    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1});
  Value y = mul(mul(p, t), square);
  y = fma(e, constant(type, -2.12194440e-4), y);
  y = fma(square, constant(type, -0.5), y);
  Value result = fma(e, constant(type, 0.693359375), add(t, y));
  return select(notFinite(x), x, result);
}

//===--- Vectors
//-----------------------------------------------------------===//

Value VectorBuilder::shuffle(Value x, Value y, ArrayRef<int64_t> indices) {
  return vector::ShuffleOp::create(*this, x, y, indices);
}

Value VectorBuilder::slice(Value x, int64_t first, int64_t size) {
  if (cast<VectorType>(x.getType()).getNumElements() == size)
    return x;
  return shuffle(x, llvm::to_vector(llvm::seq(first, first + size)));
}

Value VectorBuilder::extract(Value x, int64_t lane) {
  return vector::ExtractOp::create(*this, x, lane);
}

Value VectorBuilder::concat(ArrayRef<Value> vectors) {
  SmallVector<Value> parts(vectors);
  while (parts.size() > 1) {
    int64_t size = cast<VectorType>(parts[0].getType()).getNumElements();
    SmallVector<Value> joined;
    for (size_t i = 0; i < parts.size(); i += 2)
      joined.push_back(
          shuffle(parts[i], parts[i + 1],
                  llvm::to_vector(llvm::seq(int64_t(0), 2 * size))));
    parts = joined;
  }
  return parts[0];
}

/// Lane l receives lane l ^ stride.
static SmallVector<int64_t> swapped(int64_t stride) {
  SmallVector<int64_t> indices;
  for (int64_t lane = 0; lane < 16; ++lane)
    indices.push_back(lane ^ stride);
  return indices;
}

Value VectorBuilder::reduceMax(Value x) {
  for (int64_t stride = 8; stride > 0; stride /= 2)
    x = max(x, shuffle(x, swapped(stride)));
  return extract(x, 0);
}

Value VectorBuilder::reduceAdd(Value x) {
  for (int64_t stride = 8; stride > 0; stride /= 2)
    x = add(x, shuffle(x, swapped(stride)));
  return extract(x, 0);
}

Value VectorBuilder::foldPair(Value x, Value y, int64_t stride) {
  // One of the two shuffles is a blend, which is cheaper than a permutation.
  SmallVector<int64_t> stay, move;
  for (int64_t lane = 0; lane < 16; ++lane) {
    bool second = lane & stride;
    stay.push_back(second ? 16 + lane : lane);
    move.push_back(second ? 16 + lane - stride : lane + stride);
  }
  return add(shuffle(x, y, stay), shuffle(x, y, move));
}

SmallVector<Value> VectorBuilder::foldTree(Leaf leaf, int64_t stride,
                                           int64_t lane, int64_t leafStride) {
  if (stride == leafStride)
    return leaf(lane);
  SmallVector<Value> x = foldTree(leaf, 2 * stride, lane, leafStride);
  SmallVector<Value> y = foldTree(leaf, 2 * stride, lane + stride, leafStride);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = foldPair(x[i], y[i], stride);
  return x;
}

Value VectorBuilder::callIntrinsic(StringRef name, Type type,
                                   ValueRange operands) {
  return LLVM::CallIntrinsicOp::create(*this, type, getStringAttr(name),
                                       operands)
      .getResult(0);
}

SmallVector<Value> VectorBuilder::transpose(ArrayRef<Value> vectors) {
  // Four stages of pairwise shuffles: words and pairs of words within quarters,
  // then quarters.
  SmallVector<Value> x(vectors), y(16);
  auto stage = [&](int64_t distance, auto index) {
    for (int64_t i = 0; i < 16; ++i) {
      int64_t first = i & ~distance, second = i | distance;
      bool upper = i & distance;
      SmallVector<int64_t> indices;
      for (int64_t lane = 0; lane < 16; ++lane)
        indices.push_back(index(lane, upper));
      y[i] = shuffle(x[first], x[second], indices);
    }
    std::swap(x, y);
  };
  // Lane 4q + w: word w of quarter q.
  stage(1, [](int64_t lane, bool upper) {
    int64_t q = lane / 4, w = lane % 4;
    return 4 * q + 2 * upper + w / 2 + 16 * (w % 2);
  });
  stage(2, [](int64_t lane, bool upper) {
    int64_t q = lane / 4, w = lane % 4;
    return 4 * q + 2 * upper + w % 2 + 16 * (w / 2);
  });
  // Now quarter q of vector 4a + c is word 4q + c' of vectors 4a .. 4a + 3, c'
  // being c with its two bits swapped.
  stage(4, [](int64_t lane, bool upper) {
    int64_t q = lane / 4, w = lane % 4;
    return 4 * (2 * (q % 2) + upper) + w + 16 * (q / 2);
  });
  stage(8, [](int64_t lane, bool upper) {
    int64_t q = lane / 4, w = lane % 4;
    return 4 * (2 * (q % 2) + upper) + w + 16 * (q / 2);
  });
  for (int64_t q = 0; q < 16; q += 4)
    std::swap(x[q + 1], x[q + 2]);
  return x;
}

//===--- Integer dot products
//----------------------------------------------===//

void DotSum::addNarrow(Narrow &sum, Value codes, Value factors) {
  const int64_t width = b->cpu.wide ? 64 : 32;
  StringRef name = b->cpu.wide ? "llvm.x86.avx512.pmaddubs.w.512"
                               : "llvm.x86.avx2.pmadd.ub.sw";
  for (int64_t part = 0; part < 64 / width; ++part) {
    Value product = b->callIntrinsic(name, b->vec(b->getI16Type(), width / 2),
                                     {b->slice(codes, part * width, width),
                                      b->slice(factors, part * width, width)});
    if (sum.terms == 0)
      sum.parts.push_back(product);
    else
      sum.parts[part] = b->add(sum.parts[part], product);
  }
  ++sum.terms;
}

Value DotSum::widen(const Narrow &sum) {
  const int64_t width = b->cpu.wide ? 64 : 32;
  Value ones = b->constant(b->vec(b->getI16Type(), width / 2), int64_t(1));
  SmallVector<Value> parts;
  for (Value part : sum.parts)
    parts.push_back(b->callIntrinsic(
        b->cpu.wide ? "llvm.x86.avx512.pmaddw.d.512" : "llvm.x86.avx2.pmadd.wd",
        b->vec(b->getI32Type(), width / 4), {part, ones}));
  return b->concat(parts);
}

void DotSum::add(Value codes, Value factors) {
  if (b->cpu.vnni) {
    if (!total)
      total = b->constant(b->vec(b->getI32Type()), int64_t(0));
    total = b->callIntrinsic("llvm.x86.avx512.vpdpbusd.512",
                             b->vec(b->getI32Type()), {total, codes, factors});
    return;
  }
  // vpmaddubsw saturates the sum of two products to 16 bits, so wide codes go
  // by nibbles; and no more sums are added in 16 bits than fit.
  const bool nibbles = limit * 2 * 128 > INT16_MAX;
  const int64_t bound = nibbles ? 15 : limit;
  auto spill = [&](Narrow &narrow, Value &sum) {
    if ((narrow.terms + 1) * bound * 2 * 128 <= INT16_MAX)
      return;
    Value wide = widen(narrow);
    sum = sum ? b->add(sum, wide) : wide;
    narrow = Narrow();
  };
  spill(low, total);
  if (!nibbles) {
    addNarrow(low, codes, factors);
    return;
  }
  spill(high, highTotal);
  Type bytes = codes.getType();
  Value mask = b->constant(bytes, int64_t(15));
  Value shifted = b->shr(b->bitcast(b->vec(b->getI32Type()), codes), 4);
  addNarrow(low, b->andi(codes, mask), factors);
  addNarrow(high, b->andi(b->bitcast(bytes, shifted), mask), factors);
}

Value DotSum::get() {
  auto finish = [&](Narrow &narrow, Value &sum) {
    if (narrow.terms == 0)
      return;
    Value wide = widen(narrow);
    sum = sum ? b->add(sum, wide) : wide;
    narrow = Narrow();
  };
  finish(low, total);
  finish(high, highTotal);
  if (highTotal) {
    total = b->add(total, b->shl(highTotal, 4));
    highTotal = Value();
  }
  return total;
}

//===--- Memory
//------------------------------------------------------------===//

Value VectorBuilder::alloca(int64_t bytes) {
  InsertionGuard guard(*this);
  if (lastAlloca)
    setInsertionPointAfter(lastAlloca);
  else
    setInsertionPointToStart(&function.getBody().front());
  Value size = i64(bytes);
  auto op = LLVM::AllocaOp::create(*this, ptrType(), getI8Type(), size,
                                   /*alignment=*/64);
  lastAlloca = op;
  return op;
}

Value VectorBuilder::at(Value pointer, Value bytes) {
  return LLVM::GEPOp::create(*this, ptrType(), getI8Type(), pointer,
                             ArrayRef<LLVM::GEPArg>{bytes});
}

Value VectorBuilder::at(Value pointer, int64_t bytes) {
  if (bytes == 0)
    return pointer;
  return LLVM::GEPOp::create(
      *this, ptrType(), getI8Type(), pointer,
      ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(bytes)});
}

Value VectorBuilder::load(Type type, Value pointer, int64_t align) {
  return LLVM::LoadOp::create(*this, type, pointer, align);
}

void VectorBuilder::store(Value value, Value pointer, int64_t align) {
  LLVM::StoreOp::create(*this, value, pointer, align);
}

void VectorBuilder::prefetch(Value pointer) {
  LLVM::Prefetch::create(*this, pointer, getI32IntegerAttr(0),
                         getI32IntegerAttr(3), getI32IntegerAttr(1));
}

void VectorBuilder::prefetchRow(Value pointer, int64_t row, int64_t bytes) {
  for (int64_t line = (row * bytes + 63) / 64 * 64; line < (row + 1) * bytes;
       line += 64)
    prefetch(at(pointer, line));
}

//===--- Control flow
//------------------------------------------------------===//

void VectorBuilder::loop(Value first, Value last,
                         function_ref<void(Value)> body) {
  auto loop = scf::ForOp::create(*this, first, last, i64(1));
  InsertionGuard guard(*this);
  setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

void VectorBuilder::headGroups(int64_t group, int64_t atOnce,
                               function_ref<void(Value, int64_t)> body) {
  if (group <= atOnce)
    return body(i64(0), group);
  loop(group / atOnce, [&](Value i) { body(mul(i, i64(atOnce)), atOnce); });
  if (int64_t rest = group % atOnce)
    body(i64(group - rest), rest);
}

void VectorBuilder::ifThen(Value condition, function_ref<void()> body,
                           function_ref<void()> otherwise) {
  auto op = scf::IfOp::create(*this, condition,
                              /*withElseRegion=*/bool(otherwise));
  InsertionGuard guard(*this);
  setInsertionPointToStart(op.thenBlock());
  body();
  if (otherwise) {
    setInsertionPointToStart(op.elseBlock());
    otherwise();
  }
}
