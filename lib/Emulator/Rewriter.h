//===- Rewriter.h - State of the rewriting for the host ------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shared by HostModule.cpp (functions), HostCalls.cpp (GPU operations) and
// HostAccesses.cpp (memory).
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_EMULATOR_REWRITER_H
#define FFD_LIB_EMULATOR_REWRITER_H

#include "HostModule.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Instructions.h"

namespace ffd::emulator {

class Rewriter {
  // Of LLVM IR, not of the emulator.
  using Argument = llvm::Argument;
  using Instruction = llvm::Instruction;
  using CallInst = llvm::CallInst;
  using Function = llvm::Function;
  using Type = llvm::Type;
  using Value = llvm::Value;

public:
  Rewriter(llvm::Module &module, const Options &options, KernelCode &code,
           HostModule &host)
      : module(module), options(options), code(code), host(host),
        context(module.getContext()), i32(Type::getInt32Ty(context)),
        i64(Type::getInt64Ty(context)),
        ptr(llvm::PointerType::get(context, 0)) {}

  /// False if `errors` has something.
  bool run(llvm::StringRef kernel);

  /// In the order of the operations, each message once per place.
  std::vector<HostError> errors;

private:
  bool fail(const Instruction *at, const llvm::Twine &message);
  uint32_t placeOf(const Instruction &instruction) const;

  //===--- Functions (HostModule.cpp) -------------------------------------===//
  void strip(Function &function);
  void promote();
  void rewrite(Function &function);
  void addEntry(Function &kernel);

  //===--- GPU operations (HostCalls.cpp) ---------------------------------===//
  bool rewriteCall(CallInst &call);
  bool rewriteFma(CallInst &call);
  bool gpuOp(CallInst &call, GpuOp op);
  bool inlineAsm(CallInst &call);
  void flatten(Type *type, llvm::SmallVectorImpl<Type *> &leaves);
  void toSlots(llvm::IRBuilder<> &b, Value *value,
               llvm::SmallVectorImpl<Value *> &slots);
  Value *fromSlots(llvm::IRBuilder<> &b, Type *type, unsigned &slot);
  Value *slotAddress(llvm::IRBuilder<> &b, unsigned slot) {
    return b.CreateConstInBoundsGEP1_32(i64, registers, slot);
  }

  //===--- Memory (HostAccesses.cpp) --------------------------------------===//
  void check(Instruction &at, Value *address, Value *bytes, uint64_t alignment,
             int flags, bool atomic = false, int order = 0);
  void rewriteAccess(Instruction &instruction);
  bool placeShared();

  llvm::FunctionCallee runtime(llvm::StringRef name, Type *result,
                               llvm::ArrayRef<Type *> types) {
    return module.getOrInsertFunction(
        name, llvm::FunctionType::get(result, types, false));
  }

  llvm::Module &module;
  const Options &options;
  KernelCode &code;
  HostModule &host;
  llvm::LLVMContext &context;
  Type *i32, *i64;
  llvm::PointerType *ptr;
  llvm::AllocaInst *registers = nullptr;
  unsigned mostRegisters = 1;
  uint32_t lastPlace = 0;
};

} // namespace ffd::emulator

#endif // FFD_LIB_EMULATOR_REWRITER_H
