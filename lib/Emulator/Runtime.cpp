//===- Runtime.cpp - What compiled kernels call ---------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The C functions that the rewritten kernel calls. They act for the lane that
// runs on this thread's machine.
//
//===----------------------------------------------------------------------===//

#include "Float16.h"
#include "HostModule.h"
#include "Machine.h"

using namespace ffd::emulator;

static void runOp(uint32_t op, uint64_t *regs) {
  Machine::current->execute(op, regs);
}

static void checkAccess(uintptr_t address, uint64_t bytes, uint32_t what,
                        uint32_t place) {
  Machine &m = *Machine::current;
  m.access(address, uint32_t(std::min<uint64_t>(bytes, ~0u)),
           1u << (what >> 8 & 0xFF), int(what & 0xFF), place);
}

static void checkAtomic(uintptr_t address, uint64_t bytes, uint32_t what,
                        uint32_t place) {
  checkAccess(address, bytes, what, place);
  Machine &m = *Machine::current;
  Lane &lane = m.lane();
  uint32_t order = what >> 16;
  bool cta = what & Machine::BlockScope;
  if (what & Machine::Read)
    m.acquire(lane, address, !(order & OrderAcquire), cta);
  if (what & Machine::Write)
    m.release(lane, address, !(order & OrderRelease), cta,
              !(what & Machine::Read));
}

static void fence(uint32_t order, uint32_t place) {
  Machine &m = *Machine::current;
  m.step(place);
  m.fence(m.lane(), order & OrderAcquire, order & OrderRelease);
}

static void loopStep(uint32_t place) {
  Machine &m = *Machine::current;
  m.step(place);
  m.maybePreempt();
}

static void *sharedMemory(uint64_t offset) {
  return reinterpret_cast<void *>(Machine::current->lane().block->shared +
                                  offset);
}

static uint32_t specialRegister(uint32_t which) {
  Machine &m = *Machine::current;
  return uint32_t(readSpecial(m, m.lane(), kConstantRegisters[which]));
}

static void trap(uint32_t place) {
  Machine &m = *Machine::current;
  m.fail(m.lane(), place, "a trap was reached");
}

// Conversions that the host may lack. A 16-bit float is returned in the low
// half of the register that a float is returned in.
static float toHalf(float x) { return bitsToFloat(floatToHalf(x)); }
static float toHalfFromDouble(double x) { return bitsToFloat(doubleToHalf(x)); }
static float toBfloat(float x) { return bitsToFloat(floatToBfloat(x)); }
static float toBfloatFromDouble(double x) {
  return bitsToFloat(doubleToBfloat(x));
}
static float fromHalf(float x) { return halfToFloat(uint16_t(floatToBits(x))); }

std::vector<std::pair<const char *, void *>> ffd::emulator::runtimeSymbols() {
  auto address = [](auto *function) {
    return reinterpret_cast<void *>(function);
  };
  return {{"ffd_emulator_op", address(runOp)},
          {"ffd_emulator_access", address(checkAccess)},
          {"ffd_emulator_atomic", address(checkAtomic)},
          {"ffd_emulator_fence", address(fence)},
          {"ffd_emulator_step", address(loopStep)},
          {"ffd_emulator_shared", address(sharedMemory)},
          {"ffd_emulator_sreg", address(specialRegister)},
          {"ffd_emulator_trap", address(trap)},
          {"__truncsfhf2", address(toHalf)},
          {"__truncdfhf2", address(toHalfFromDouble)},
          {"__extendhfsf2", address(fromHalf)},
          {"__truncsfbf2", address(toBfloat)},
          {"__truncdfbf2", address(toBfloatFromDouble)}};
}
