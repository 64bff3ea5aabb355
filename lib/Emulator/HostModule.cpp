//===- HostModule.cpp - From GPU code to host code ------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Works on LLVM IR, where NVVM ops are intrinsics or inline assembly, whatever
// dialect op or intrinsic they came from, and after promotion of local
// variables to registers, so that only real memory accesses are left to check.
//
//===----------------------------------------------------------------------===//

#include "Rewriter.h"

#include "llvm/Analysis/CFG.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"
#include "llvm/Transforms/Scalar/SROA.h"

using namespace ffd::emulator;
using namespace llvm;

bool Rewriter::fail(const Instruction *at, const Twine &message) {
  HostError error{message.str(), at ? placeOf(*at) : Machine::kNoPlace};
  for (const HostError &other : errors)
    if (other.place == error.place && other.message == error.message)
      return false; // an operation that became several
  errors.push_back(std::move(error));
  return false;
}

uint32_t Rewriter::placeOf(const Instruction &instruction) const {
  const DebugLoc &location = instruction.getDebugLoc();
  return location && location.getLine() ? location.getLine() - 1 : lastPlace;
}

/// Attributes and metadata speak of the GPU, or promise what the run-time does
/// not keep (it reads and writes memory behind the kernel's back).
void Rewriter::strip(Function &function) {
  function.setCallingConv(CallingConv::C);
  function.setAttributes({});
  function.setComdat(nullptr);
  if (!function.isDeclaration())
    function.setLinkage(GlobalValue::InternalLinkage);
  for (Instruction &i : instructions(function)) {
    i.dropUnknownNonDebugMetadata();
    if (auto *call = dyn_cast<CallBase>(&i)) {
      call->setCallingConv(CallingConv::C);
      if (!isa<IntrinsicInst>(call) && !call->isInlineAsm())
        call->setAttributes({});
      if (auto *plain = dyn_cast<CallInst>(call))
        plain->setTailCallKind(CallInst::TCK_None);
    }
  }
}

/// Drops what the kernel does not use (another kernel may have operations that
/// we do not know), and promotes local variables.
void Rewriter::promote() {
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager components;
  ModuleAnalysisManager modules;
  PassBuilder builder;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  ModulePassManager passes;
  passes.addPass(GlobalDCEPass());
  passes.addPass(
      createModuleToFunctionPassAdaptor(SROAPass(SROAOptions::ModifyCFG)));
  passes.run(module, modules);
}

void Rewriter::rewrite(Function &function) {
  SmallVector<Instruction *> work;
  for (Instruction &i : instructions(function))
    work.push_back(&i);
  SmallVector<std::pair<const BasicBlock *, const BasicBlock *>> backEdges;
  FindFunctionBackedges(function, backEdges);
  IRBuilder<> entry(&*function.getEntryBlock().getFirstInsertionPt());
  registers = entry.CreateAlloca(i64, entry.getInt32(1));
  mostRegisters = 1;
  for (Instruction *i : work) {
    lastPlace = placeOf(*i);
    if (auto *call = dyn_cast<CallInst>(i))
      rewriteCall(*call); // goes on after an error: the next may have one too
    else
      rewriteAccess(*i);
  }
  SmallPtrSet<const BasicBlock *, 8> seen;
  for (auto [from, to] : backEdges) {
    if (!seen.insert(from).second)
      continue;
    Instruction *end = const_cast<BasicBlock *>(from)->getTerminator();
    IRBuilder<> b(end);
    b.CreateCall(runtime("ffd_emulator_step", b.getVoidTy(), {i32}),
                 {b.getInt32(placeOf(*end))});
  }
  registers->setOperand(0, entry.getInt32(mostRegisters));
}

/// The function that loads the kernel's parameters and calls it.
void Rewriter::addEntry(Function &kernel) {
  auto *type = FunctionType::get(Type::getVoidTy(context), {ptr}, false);
  Function *entry = Function::Create(type, GlobalValue::ExternalLinkage,
                                     kEntrySymbol, module);
  IRBuilder<> b(BasicBlock::Create(context, "", entry));
  SmallVector<Value *> arguments;
  for (Argument &argument : kernel.args()) {
    unsigned i = argument.getArgNo();
    Value *place = b.CreateLoad(
        ptr, b.CreateConstInBoundsGEP1_32(ptr, entry->getArg(0), i));
    if (host.parameters[i].byValue)
      arguments.push_back(
          b.CreatePointerBitCastOrAddrSpaceCast(place, argument.getType()));
    else
      arguments.push_back(
          b.CreateAlignedLoad(argument.getType(), place, Align(1)));
  }
  b.CreateCall(&kernel, arguments);
  b.CreateRetVoid();
}

bool Rewriter::run(StringRef kernelName) {
  Function *kernel = module.getFunction(kernelName);
  if (!kernel || kernel->isDeclaration())
    return fail(nullptr, "there is no kernel '" + kernelName + "'");
  const DataLayout &layout = module.getDataLayout();
  for (Argument &argument : kernel->args()) {
    Type *byValue = argument.getParamByValType();
    host.parameters.push_back({uint64_t(layout.getTypeStoreSize(
                                   byValue ? byValue : argument.getType())),
                               byValue != nullptr});
  }
  for (Function &function : module)
    if (!function.isIntrinsic())
      strip(function);
  if (NamedMDNode *annotations = module.getNamedMetadata("nvvm.annotations"))
    annotations->eraseFromParent();
  kernel->setLinkage(GlobalValue::ExternalLinkage);
  promote();
  if (!placeShared())
    return false;
  for (GlobalVariable &global : module.globals()) {
    if (global.isDeclaration())
      return fail(nullptr,
                  "global '" + global.getName() + "' is not defined here");
    HostGlobal h{"ffd_emulator_global_" + std::to_string(host.globals.size()),
                 global.getName().str(),
                 uint64_t(layout.getTypeAllocSize(global.getValueType())),
                 global.isConstant()};
    global.setName(h.symbol);
    global.setLinkage(GlobalValue::ExternalLinkage);
    global.setComdat(nullptr);
    host.globals.push_back(std::move(h));
  }
  for (Function &function : module) {
    if (!function.isDeclaration())
      rewrite(function);
  }
  if (!errors.empty())
    return false;
  addEntry(*kernel);
  kernel->setLinkage(GlobalValue::InternalLinkage);
  return true;
}

std::vector<HostError> ffd::emulator::rewriteForHost(llvm::Module &module,
                                                     StringRef kernel,
                                                     const Options &options,
                                                     KernelCode &code,
                                                     HostModule &host) {
  Rewriter rewriter(module, options, code, host);
  rewriter.run(kernel);
  return std::move(rewriter.errors);
}
