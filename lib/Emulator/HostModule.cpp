//===- HostModule.cpp - From GPU code to host code --- -*- C++ -*-===//
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

#include "HostModule.h"

#include "llvm/Analysis/CFG.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/ReplaceConstant.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"
#include "llvm/Transforms/Scalar/SROA.h"

using namespace ffd::emulator;
using namespace llvm;

namespace {
class Rewriter {
  using Instruction = llvm::Instruction;
  using Argument = llvm::Argument;

public:
  Rewriter(Module &module, const Options &options, KernelCode &code,
           HostModule &host)
      : module(module), options(options), code(code), host(host),
        context(module.getContext()), i32(Type::getInt32Ty(context)),
        i64(Type::getInt64Ty(context)), ptr(PointerType::get(context, 0)) {}
  bool run(StringRef kernel);

  std::string error;
  uint32_t errorPlace = Machine::kNoPlace;

private:
  bool fail(const Instruction *at, const Twine &message) {
    error = message.str();
    errorPlace = at ? placeOf(*at) : Machine::kNoPlace;
    return false;
  }
  uint32_t placeOf(const Instruction &instruction) {
    const DebugLoc &location = instruction.getDebugLoc();
    return location && location.getLine() ? location.getLine() - 1 : lastPlace;
  }
  void strip(Function &function);
  void promote();
  bool rewrite(Function &function);
  bool rewriteCall(CallInst &call);
  bool rewriteFma(CallInst &call);
  bool gpuOp(CallInst &call, GpuOp op);
  bool inlineAsm(CallInst &call);
  void check(Instruction &at, Value *address, Value *bytes, uint64_t alignment,
             int flags, bool atomic = false, int order = 0);
  void rewriteAccess(Instruction &instruction);
  bool placeShared();
  void addEntry(Function &kernel);

  void flatten(Type *type, SmallVectorImpl<Type *> &leaves);
  void toSlots(IRBuilder<> &b, Value *value, SmallVectorImpl<Value *> &slots);
  Value *fromSlots(IRBuilder<> &b, Type *type, unsigned &slot);
  Value *slotAddress(IRBuilder<> &b, unsigned slot) {
    return b.CreateConstInBoundsGEP1_32(i64, registers, slot);
  }
  FunctionCallee runtime(StringRef name, Type *result, ArrayRef<Type *> types) {
    return module.getOrInsertFunction(name,
                                      FunctionType::get(result, types, false));
  }

  Module &module;
  const Options &options;
  KernelCode &code;
  HostModule &host;
  LLVMContext &context;
  Type *i32, *i64;
  PointerType *ptr;
  AllocaInst *registers = nullptr;
  unsigned mostRegisters = 1;
  uint32_t lastPlace = 0;
};
} // namespace

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

//===--- Values as slots
//---------------------------------------------------===//

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

//===--- GPU operations
//----------------------------------------------------===//

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

//===--- Memory
//------------------------------------------------------------===//

void Rewriter::check(Instruction &at, Value *address, Value *bytes,
                     uint64_t alignment, int flags, bool atomic, int order) {
  if (!options.checkMemory)
    return;
  IRBuilder<> b(&at);
  if (address->getType() != ptr)
    address = b.CreateAddrSpaceCast(address, ptr);
  uint32_t what =
      uint32_t(flags) | Log2_64(alignment) << 8 | uint32_t(order) << 16;
  b.CreateCall(runtime(atomic ? "ffd_emulator_atomic" : "ffd_emulator_access",
                       b.getVoidTy(), {ptr, i64, i32, i32}),
               {address, b.CreateZExt(bytes, i64), b.getInt32(what),
                b.getInt32(placeOf(at))});
}

static int orderOf(AtomicOrdering ordering) {
  return (isAcquireOrStronger(ordering) ? OrderAcquire : 0) |
         (isReleaseOrStronger(ordering) ? OrderRelease : 0);
}

static int scopeOf(LLVMContext &context, SyncScope::ID scope) {
  SmallVector<StringRef> names;
  context.getSyncScopeNames(names);
  return scope < names.size() &&
                 (names[scope] == "block" || names[scope] == "singlethread")
             ? int(Machine::BlockScope)
             : 0;
}

void Rewriter::rewriteAccess(Instruction &i) {
  const DataLayout &layout = module.getDataLayout();
  auto bytes = [&](Type *type) {
    return ConstantInt::get(i64, layout.getTypeStoreSize(type));
  };
  if (auto *load = dyn_cast<LoadInst>(&i)) {
    int flags = Machine::Read;
    if (load->isAtomic())
      flags |= Machine::AtomicAccess | scopeOf(context, load->getSyncScopeID());
    check(i, load->getPointerOperand(), bytes(load->getType()),
          load->getAlign().value(), flags, load->isAtomic(),
          orderOf(load->getOrdering()));
  } else if (auto *store = dyn_cast<StoreInst>(&i)) {
    int flags = Machine::Write;
    if (store->isAtomic())
      flags |=
          Machine::AtomicAccess | scopeOf(context, store->getSyncScopeID());
    check(i, store->getPointerOperand(),
          bytes(store->getValueOperand()->getType()), store->getAlign().value(),
          flags, store->isAtomic(), orderOf(store->getOrdering()));
  } else if (auto *rmw = dyn_cast<AtomicRMWInst>(&i)) {
    // LLVM's NVPTX backend drops the order and scope of atomicrmw: the
    // instruction is relaxed at GPU scope, whatever the IR says.
    check(i, rmw->getPointerOperand(), bytes(rmw->getType()),
          rmw->getAlign().value(),
          Machine::Read | Machine::Write | Machine::AtomicAccess, true, 0);
  } else if (auto *exchange = dyn_cast<AtomicCmpXchgInst>(&i)) {
    check(i, exchange->getPointerOperand(),
          bytes(exchange->getNewValOperand()->getType()),
          exchange->getAlign().value(),
          Machine::Read | Machine::Write | Machine::AtomicAccess |
              scopeOf(context, exchange->getSyncScopeID()),
          true, orderOf(exchange->getSuccessOrdering()));
  } else if (auto *fence = dyn_cast<FenceInst>(&i)) {
    IRBuilder<> b(&i);
    b.CreateCall(runtime("ffd_emulator_fence", b.getVoidTy(), {i32, i32}),
                 {b.getInt32(uint32_t(orderOf(fence->getOrdering()))),
                  b.getInt32(placeOf(i))});
  }
}

/// Shared globals become offsets in the block's buffer: first the static ones,
/// then, at their end, all those without a size.
bool Rewriter::placeShared() {
  uint64_t offset = 0;
  SmallVector<std::pair<GlobalVariable *, bool>> globals;
  const DataLayout &layout = module.getDataLayout();
  for (GlobalVariable &global : module.globals())
    if (global.getAddressSpace() == 3)
      globals.push_back(
          {&global, global.isDeclaration() ||
                        layout.getTypeAllocSize(global.getValueType()) == 0});
  DenseMap<GlobalVariable *, uint64_t> offsets;
  for (auto [global, dynamic] : globals) {
    if (dynamic)
      continue;
    offset = alignTo(offset, global->getAlign().value_or(Align(16)).value());
    offsets[global] = offset;
    offset += layout.getTypeAllocSize(global->getValueType());
  }
  uint64_t align = 16;
  for (auto [global, dynamic] : globals)
    if (dynamic)
      align = std::max(align, global->getAlign().valueOrOne().value());
  if (align > 1024)
    return fail(nullptr, "shared memory aligned to more than 1024 bytes");
  offset = offset ? alignTo(offset, align) : 0;
  code.staticSharedBytes = offset;
  SmallVector<Constant *> constants;
  for (auto [global, dynamic] : globals) {
    if (dynamic)
      offsets[global] = offset;
    constants.push_back(global);
  }
  convertUsersOfConstantsToInstructions(constants);
  for (auto [global, dynamic] : globals) {
    DenseMap<Function *, Value *> perFunction;
    for (Use &use : make_early_inc_range(global->uses())) {
      auto *user = dyn_cast<Instruction>(use.getUser());
      if (!user)
        return fail(nullptr, "a constant refers to shared memory '" +
                                 global->getName() + "'");
      Function *function = user->getFunction();
      Value *&address = perFunction[function];
      if (!address) {
        IRBuilder<> b(&*function->getEntryBlock().getFirstInsertionPt());
        FunctionCallee shared = runtime("ffd_emulator_shared", ptr, {i64});
        auto *callee = cast<Function>(shared.getCallee());
        callee->setDoesNotAccessMemory();
        callee->setDoesNotThrow();
        callee->setWillReturn();
        address = b.CreateAddrSpaceCast(
            b.CreateCall(shared, {b.getInt64(offsets[global])}),
            global->getType());
      }
      use.set(address);
    }
    global->eraseFromParent();
  }
  return true;
}

//===--- Functions
//---------------------------------------------------------===//

bool Rewriter::rewrite(Function &function) {
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
    if (auto *call = dyn_cast<CallInst>(i)) {
      if (!rewriteCall(*call))
        return false;
    } else {
      rewriteAccess(*i);
    }
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
  return true;
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
    if (function.isDeclaration())
      continue;
    if (!rewrite(function))
      return false;
  }
  addEntry(*kernel);
  kernel->setLinkage(GlobalValue::InternalLinkage);
  return true;
}

bool ffd::emulator::rewriteForHost(llvm::Module &module, StringRef kernel,
                                   const Options &options, KernelCode &code,
                                   HostModule &host, std::string &error,
                                   uint32_t &place) {
  Rewriter rewriter(module, options, code, host);
  if (rewriter.run(kernel))
    return true;
  error = std::move(rewriter.error);
  place = rewriter.errorPlace;
  return false;
}
