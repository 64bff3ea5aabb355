//===- HostAccesses.cpp - Memory accesses are checked ---------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every access is preceded by a call of the run-time that checks it; shared
// globals become offsets in a buffer of the block.
//
//===----------------------------------------------------------------------===//

#include "Rewriter.h"

#include "llvm/IR/ReplaceConstant.h"

using namespace ffd::emulator;
using namespace llvm;

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
