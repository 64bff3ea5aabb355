//===- HostCalls.cpp - GPU operations become calls ------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Intrinsics and inline assembly become programs of PTX instructions, which a
// call of the run-time executes over an array of 64-bit registers.
//
//===----------------------------------------------------------------------===//

#include "Rewriter.h"

#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace ffd::emulator;
using namespace llvm;

//===--- Values as slots -------------------------------------------------===//

void Rewriter::flatten(Type *type, SmallVectorImpl<Type *> &leaves) {
  if (auto *record = dyn_cast<StructType>(type)) {
    for (Type *element : record->elements())
      flatten(element, leaves);
  } else if (auto *array = dyn_cast<ArrayType>(type)) {
    for (uint64_t i = 0; i < array->getNumElements(); ++i)
      flatten(array->getElementType(), leaves);
  } else if (auto *vector = dyn_cast<FixedVectorType>(type);
             vector && type->getPrimitiveSizeInBits() > 64) {
    for (unsigned i = 0; i < vector->getNumElements(); ++i)
      leaves.push_back(vector->getElementType());
  } else if (!type->isVoidTy()) {
    leaves.push_back(type);
  }
}

void Rewriter::toSlots(IRBuilder<> &b, Value *value,
                       SmallVectorImpl<Value *> &slots) {
  Type *type = value->getType();
  if (type->isAggregateType()) {
    unsigned n = isa<StructType>(type) ? type->getStructNumElements()
                                       : unsigned(type->getArrayNumElements());
    for (unsigned i = 0; i < n; ++i)
      toSlots(b, b.CreateExtractValue(value, i), slots);
    return;
  }
  auto *vector = dyn_cast<FixedVectorType>(type);
  if (vector && type->getPrimitiveSizeInBits() > 64) {
    for (unsigned i = 0; i < vector->getNumElements(); ++i)
      toSlots(b, b.CreateExtractElement(value, i), slots);
    return;
  }
  if (type->isPointerTy()) {
    slots.push_back(b.CreatePtrToInt(value, i64));
    return;
  }
  unsigned bits = unsigned(type->getPrimitiveSizeInBits());
  slots.push_back(b.CreateZExt(b.CreateBitCast(value, b.getIntNTy(bits)), i64));
}

Value *Rewriter::fromSlots(IRBuilder<> &b, Type *type, unsigned &slot) {
  auto *vector = dyn_cast<FixedVectorType>(type);
  bool wide = vector && type->getPrimitiveSizeInBits() > 64;
  if (type->isAggregateType() || wide) {
    Value *result = PoisonValue::get(type);
    unsigned n = wide ? vector->getNumElements()
                 : isa<StructType>(type)
                     ? type->getStructNumElements()
                     : unsigned(type->getArrayNumElements());
    for (unsigned i = 0; i < n; ++i) {
      Type *element = wide                    ? vector->getElementType()
                      : isa<StructType>(type) ? type->getStructElementType(i)
                                              : type->getArrayElementType();
      Value *part = fromSlots(b, element, slot);
      result = wide ? b.CreateInsertElement(result, part, i)
                    : b.CreateInsertValue(result, part, i);
    }
    return result;
  }
  Value *bits = b.CreateLoad(i64, slotAddress(b, slot++));
  if (type->isPointerTy())
    return b.CreateIntToPtr(bits, type);
  Type *integer = b.getIntNTy(unsigned(type->getPrimitiveSizeInBits()));
  return b.CreateBitCast(b.CreateTrunc(bits, integer), type);
}

//===--- GPU operations --------------------------------------------------===//

/// Replaces a call whose results are the op's first registers and whose
/// arguments the following ones.
bool Rewriter::gpuOp(CallInst &call, GpuOp op) {
  op.place = placeOf(call);
  IRBuilder<> b(&call);
  SmallVector<Type *> results;
  flatten(call.getType(), results);
  SmallVector<Value *> slots;
  for (Value *argument : call.args())
    toSlots(b, argument, slots);
  for (auto [i, slot] : enumerate(slots))
    b.CreateStore(slot, slotAddress(b, unsigned(results.size() + i)));
  mostRegisters = std::max(mostRegisters, op.registers);
  b.CreateCall(runtime("ffd_emulator_op", b.getVoidTy(), {i32, ptr}),
               {b.getInt32(uint32_t(code.ops.size())), registers});
  if (!call.getType()->isVoidTy()) {
    unsigned slot = 0;
    call.replaceAllUsesWith(fromSlots(b, call.getType(), slot));
  }
  call.eraseFromParent();
  code.ops.push_back(std::move(op));
  return true;
}

bool Rewriter::inlineAsm(CallInst &call) {
  auto *text = cast<InlineAsm>(call.getCalledOperand());
  SmallVector<Type *> results;
  flatten(call.getType(), results);
  unsigned outputs = 0, inputs = 0;
  SmallVector<std::pair<unsigned, unsigned>> tied; // input, output
  for (const InlineAsm::ConstraintInfo &constraint : text->ParseConstraints()) {
    if (constraint.isIndirect)
      return fail(&call, "inline assembly with a memory operand");
    if (constraint.Type == InlineAsm::isOutput) {
      ++outputs;
    } else if (constraint.Type == InlineAsm::isInput) {
      unsigned output;
      if (!constraint.Codes.empty() &&
          !StringRef(constraint.Codes.front()).getAsInteger(10, output))
        tied.push_back({inputs, output});
      ++inputs;
    }
  }
  SmallVector<Type *> arguments;
  for (Value *argument : call.args())
    flatten(argument->getType(), arguments);
  if (outputs != results.size() || inputs != arguments.size())
    return fail(&call, "inline assembly with operands wider than 64 bits");
  GpuOp op;
  for (auto [input, output] : tied) {
    ffd::emulator::Instruction copy;
    copy.text = "mov.b64";
    copy.parts = {"mov", "b64"};
    copy.operands = {Operand::ofRegister(int(output)),
                     Operand::ofRegister(int(outputs + input))};
    resolve(copy);
    op.program.push_back(std::move(copy));
  }
  std::vector<ffd::emulator::Instruction> head = std::move(op.program);
  op.program.clear();
  std::string message;
  if (!parsePtx(text->getAsmString(), outputs + inputs, op, message))
    return fail(&call, message + " in inline assembly");
  for (auto &instruction : op.program)
    if (instruction.target >= 0)
      instruction.target += int(head.size());
  op.program.insert(op.program.begin(), head.begin(), head.end());
  return gpuOp(call, std::move(op));
}

/// 16-bit fma: the host would round twice.
bool Rewriter::rewriteFma(CallInst &call) {
  Type *type = call.getType(), *element = type->getScalarType();
  GpuOp op;
  std::string message;
  parsePtx(element->isHalfTy() ? "fma.rn.f16 $0, $1, $2, $3;"
                               : "fma.rn.bf16 $0, $1, $2, $3;",
           4, op, message);
  IRBuilder<> b(&call);
  auto *vector = dyn_cast<FixedVectorType>(type);
  if (!vector)
    return gpuOp(call, std::move(op));
  Value *result = PoisonValue::get(type);
  SmallVector<CallInst *> scalars;
  for (unsigned i = 0; i < vector->getNumElements(); ++i) {
    Value *part[3];
    for (unsigned k = 0; k < 3; ++k)
      part[k] = b.CreateExtractElement(call.getArgOperand(k), i);
    auto *scalar = cast<CallInst>(b.CreateIntrinsic(
        Intrinsic::fma, {element}, {part[0], part[1], part[2]}));
    scalars.push_back(scalar);
    result = b.CreateInsertElement(result, scalar, i);
  }
  call.replaceAllUsesWith(result);
  call.eraseFromParent();
  for (CallInst *scalar : scalars)
    gpuOp(*scalar, op);
  return true;
}

bool Rewriter::rewriteCall(CallInst &call) {
  if (call.isInlineAsm())
    return inlineAsm(call);
  Function *callee = call.getCalledFunction();
  if (!callee)
    return fail(&call, "unknown GPU operation: an indirect call");
  StringRef name = callee->getName();
  if (!callee->isIntrinsic()) {
    if (callee->isDeclaration() && !name.starts_with("ffd_emulator_"))
      return fail(&call, "unknown GPU operation: a call of '" + name + "'");
    return true;
  }
  switch (callee->getIntrinsicID()) {
  case Intrinsic::fma:
  case Intrinsic::fmuladd:
    if (call.getType()->getScalarSizeInBits() == 16)
      return rewriteFma(call);
    return true;
  case Intrinsic::memcpy:
  case Intrinsic::memcpy_inline:
  case Intrinsic::memmove:
    check(call, call.getArgOperand(1), call.getArgOperand(2), 1, Machine::Read);
    [[fallthrough]];
  case Intrinsic::memset:
  case Intrinsic::memset_inline:
    check(call, call.getArgOperand(0), call.getArgOperand(2), 1,
          Machine::Write);
    return true;
  case Intrinsic::masked_load:
  case Intrinsic::masked_store:
  case Intrinsic::masked_gather:
  case Intrinsic::masked_scatter:
    return fail(&call, "unknown GPU operation '" + name + "'");
  case Intrinsic::trap:
  case Intrinsic::debugtrap: {
    IRBuilder<> b(&call);
    b.CreateCall(runtime("ffd_emulator_trap", b.getVoidTy(), {i32}),
                 {b.getInt32(placeOf(call))});
    call.eraseFromParent();
    return true;
  }
  default:
    break;
  }
  if (!name.consume_front("llvm.nvvm."))
    return true;
  StringRef special = name;
  if (special.consume_front("read.ptx.sreg.")) {
    for (auto [i, known] : enumerate(kConstantRegisters)) {
      if (special != known)
        continue;
      IRBuilder<> b(&call);
      FunctionCallee sreg = runtime("ffd_emulator_sreg", i32, {i32});
      auto *function = cast<Function>(sreg.getCallee());
      function->setDoesNotAccessMemory();
      function->setDoesNotThrow();
      function->setWillReturn();
      call.replaceAllUsesWith(b.CreateCall(sreg, {b.getInt32(unsigned(i))}));
      call.eraseFromParent();
      return true;
    }
  }
  SmallVector<Type *> results, arguments;
  flatten(call.getType(), results);
  for (Value *argument : call.args())
    flatten(argument->getType(), arguments);
  std::string ptx, message;
  GpuOp op;
  unsigned count = unsigned(results.size() + arguments.size());
  if (!ptxOfIntrinsic(name, unsigned(results.size()),
                      unsigned(arguments.size()), ptx) ||
      !parsePtx(ptx, count, op, message))
    return fail(&call, "unknown GPU operation 'llvm.nvvm." + name + "'");
  // The operands are not what the kernel's author wrote.
  for (auto &instruction : op.program)
    instruction.text = StringRef(instruction.text).split(' ').first.str();
  return gpuOp(call, std::move(op));
}
