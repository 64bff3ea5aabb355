//===- MemoryInstructions.cpp - Loads, stores, atomics and fences --------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ld, st, atom, red, membar and fence of inline assembly. Those of LLVM IR go
// through Runtime.cpp; both end in Machine's checks.
//
//===----------------------------------------------------------------------===//

#include "Float16.h"
#include "Machine.h"

#include "llvm/ADT/StringSwitch.h"

using namespace ffd::emulator;

static unsigned bytesOf(llvm::StringRef type) {
  return llvm::StringSwitch<unsigned>(type)
      .Cases({"b8", "u8", "s8"}, 1)
      .Cases({"b16", "u16", "s16", "f16", "bf16"}, 2)
      .Cases({"b32", "u32", "s32", "f32", "f16x2", "bf16x2"}, 4)
      .Cases({"b64", "u64", "s64", "f64"}, 8)
      .Default(0);
}

namespace {
enum Order { Weak, Relaxed, Acquire, Release, AcqRel };
} // namespace

static Order orderOf(const Instruction &i, Order otherwise) {
  if (i.has("acq_rel") || i.has("sc"))
    return AcqRel;
  if (i.has("acquire"))
    return Acquire;
  if (i.has("release"))
    return Release;
  return i.has("relaxed") || i.has("volatile") ? Relaxed : otherwise;
}

static int atomicFlags(const Instruction &i, Order order) {
  return order == Weak ? 0
                       : Machine::AtomicAccess |
                             (i.has("cta") ? int(Machine::BlockScope) : 0);
}

static size_t count(const Operand &operand) {
  return operand.kind == Operand::Vector ? operand.parts.size() : 1;
}
static const Operand &element(const Operand &operand, size_t k) {
  return operand.kind == Operand::Vector ? operand.parts[k] : operand;
}

// ld{.order}{.scope}.space...type d, [a] (a: order, b: bytes, c: sign extends).
static void load(Machine &m, Lane &lane, const Instruction &i, uint64_t *regs) {
  uintptr_t address = addressOf(i.operands[1], regs);
  size_t n = count(i.operands[0]);
  unsigned all = unsigned(n * i.b);
  m.access(address, all, all, Machine::Read | atomicFlags(i, Order(i.a)),
           lane.place);
  if (i.a != Weak)
    m.acquire(lane, address, i.a == Relaxed, i.has("cta"));
  for (size_t k = 0; k < n; ++k) {
    uint64_t value = 0;
    std::memcpy(&value, reinterpret_cast<void *>(address + k * i.b), i.b);
    if (i.c && i.b < 4)
      value = uint32_t(int32_t(value << (32 - 8 * i.b)) >> (32 - 8 * i.b));
    write(element(i.operands[0], k), regs, value);
  }
}

static void store(Machine &m, Lane &lane, const Instruction &i,
                  uint64_t *regs) {
  uintptr_t address = addressOf(i.operands[0], regs);
  size_t n = count(i.operands[1]);
  unsigned all = unsigned(n * i.b);
  m.access(address, all, all, Machine::Write | atomicFlags(i, Order(i.a)),
           lane.place);
  if (i.a != Weak)
    m.release(lane, address, i.a == Relaxed, i.has("cta"), true);
  for (size_t k = 0; k < n; ++k) {
    uint64_t value = read(m, lane, element(i.operands[1], k), regs);
    std::memcpy(reinterpret_cast<void *>(address + k * i.b), &value, i.b);
  }
}

namespace {
enum Update {
  Exchange,
  CompareExchange,
  Add,
  Min,
  Max,
  And,
  Or,
  Xor,
  Inc,
  Dec
};
} // namespace

static uint64_t update(const Instruction &i, uint64_t old, uint64_t b,
                       uint64_t c) {
  llvm::StringRef type = i.parts.back();
  switch (i.c) {
  case Exchange:
    return b;
  case CompareExchange:
    return old == b ? c : old;
  case Add:
    if (type == "f32")
      return floatToBits(bitsToFloat(old) + bitsToFloat(b));
    if (type == "f64")
      return doubleToBits(bitsToDouble(old) + bitsToDouble(b));
    return old + b;
  case Min:
  case Max: {
    bool less;
    if (type == "s32")
      less = int32_t(old) < int32_t(b);
    else if (type == "s64")
      less = int64_t(old) < int64_t(b);
    else
      less = old < b;
    return less == (i.c == Min) ? old : b;
  }
  case And:
    return old & b;
  case Or:
    return old | b;
  case Xor:
    return old ^ b;
  case Inc:
    return old >= b ? 0 : old + 1;
  default:
    return old == 0 || old > b ? b : old - 1;
  }
}

// atom.. d, [a], b{, c} and red.. [a], b (a: order, b: bytes, c: update, d: has
// a result).
static void atomic(Machine &m, Lane &lane, const Instruction &i,
                   uint64_t *regs) {
  size_t first = size_t(i.d);
  uintptr_t address = addressOf(i.operands[first], regs);
  uint64_t mask = i.b == 8 ? ~uint64_t(0) : (uint64_t(1) << 8 * i.b) - 1;
  uint64_t b = read(m, lane, i.operands[first + 1], regs) & mask, c = 0;
  if (i.c == CompareExchange)
    c = read(m, lane, i.operands[first + 2], regs) & mask;
  m.access(address, i.b, i.b,
           Machine::Read | Machine::Write | atomicFlags(i, Order(i.a)),
           lane.place);
  bool acquires = i.a == Acquire || i.a == AcqRel;
  bool releases = i.a == Release || i.a == AcqRel, cta = i.has("cta");
  m.acquire(lane, address, !acquires, cta);
  m.release(lane, address, !releases, cta, false);
  uint64_t old = 0;
  std::memcpy(&old, reinterpret_cast<void *>(address), i.b);
  uint64_t result = update(i, old, b, c);
  std::memcpy(reinterpret_cast<void *>(address), &result, i.b);
  if (i.d)
    write(i.operands[0], regs, old);
}

static void fence(Machine &m, Lane &lane, const Instruction &i, uint64_t *) {
  bool acquires = !i.has("release"), releases = !i.has("acquire");
  m.fence(lane, acquires, releases);
}

static void fenceProxy(Machine &m, Lane &lane, const Instruction &,
                       uint64_t *) {
  m.fenceProxy(lane);
}

static void fenceMbarriers(Machine &, Lane &lane, const Instruction &,
                           uint64_t *) {
  for (auto &[address, barrier] : lane.block->mbarriers)
    if (barrier.initParty == lane.party && !barrier.fenceTime) {
      barrier.fenceParty = lane.party;
      barrier.fenceTime = lane.time;
    }
}

static void nothing(Machine &, Lane &, const Instruction &, uint64_t *) {}

static void sleep(Machine &m, Lane &, const Instruction &, uint64_t *) {
  m.yield();
}

static void trap(Machine &m, Lane &lane, const Instruction &i, uint64_t *) {
  m.fail(lane, lane.place, "'" + i.text + "' was reached");
}

bool ffd::emulator::resolveMemory(Instruction &i) {
  llvm::StringRef name = i.part(0);
  size_t n = i.operands.size();
  if (name == "membar" ||
      (name == "fence" && !i.has("proxy") && !i.has("mbarrier_init"))) {
    i.execute = fence;
    return true;
  }
  if (name == "fence") {
    // Fences of other proxies (tensor maps, aliases) order more than we model.
    if (i.has("mbarrier_init"))
      i.execute = fenceMbarriers;
    else if (i.part(2).starts_with("async"))
      i.execute = fenceProxy;
    return i.execute != nullptr;
  }
  if (name == "griddepcontrol" || name == "setmaxnreg" || name == "pragma") {
    i.execute = nothing;
    return true;
  }
  if (name == "nanosleep") {
    i.execute = sleep;
    return true;
  }
  if (name == "trap" || name == "brkpt") {
    i.execute = trap;
    return true;
  }
  if (name != "ld" && name != "st" && name != "atom" && name != "red")
    return false;
  i.b = int(bytesOf(i.parts.back()));
  if (!i.b || n < 2)
    return false;
  if (name == "ld" || name == "st") {
    i.a = orderOf(i, Weak);
    i.c = llvm::StringRef(i.parts.back()).starts_with("s");
    i.execute = name == "ld" ? load : store;
    // A cache policy may follow.
    return n == 2 || i.has("L2::cache_hint");
  }
  if (i.has("async") || i.has("vec") || i.has("noftz"))
    return false;
  i.d = name == "atom";
  i.a = orderOf(i, Relaxed);
  i.c = -1;
  for (const std::string &part : i.parts) {
    int code = llvm::StringSwitch<int>(part)
                   .Case("exch", Exchange)
                   .Case("cas", CompareExchange)
                   .Case("add", Add)
                   .Case("min", Min)
                   .Case("max", Max)
                   .Case("and", And)
                   .Case("or", Or)
                   .Case("xor", Xor)
                   .Case("inc", Inc)
                   .Case("dec", Dec)
                   .Default(-1);
    if (code >= 0)
      i.c = code;
  }
  i.execute = atomic;
  return i.c >= 0 && i.b >= 4 &&
         n == size_t(i.d) + (i.c == CompareExchange ? 3 : 2);
}

bool ffd::emulator::resolve(Instruction &instruction) {
  if (instruction.target >= 0)
    return true;
  using Resolver = bool (*)(Instruction &);
  for (Resolver resolver :
       {resolveWarp, resolveMatrix, resolveBarrier, resolveAsyncCopy,
        resolveMemory, resolveConversion, resolveBits, resolveArithmetic}) {
    instruction.execute = nullptr;
    instruction.collective = nullptr;
    instruction.maskOperand = -1;
    instruction.a = instruction.b = instruction.c = instruction.d = 0;
    if (resolver(instruction))
      return instruction.execute || instruction.collective;
  }
  return false;
}
