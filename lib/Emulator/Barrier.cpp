//===- Barrier.cpp - Named barriers and mbarriers -------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// bar/barrier.cta and mbarrier: who has arrived, who waits, and what those that
// leave know of those that came.
//
//===----------------------------------------------------------------------===//

#include "Machine.h"

#include "llvm/ADT/StringExtras.h"

using namespace ffd::emulator;

//===--- Named barriers --------------------------------------------------===//

void Machine::arriveBarrier(Lane &lane, uint32_t id, uint32_t count, bool waits,
                            int reduction, bool predicate, uint64_t *result,
                            uint32_t place) {
  Block &block = *lane.block;
  if (id >= 16)
    fail(lane, place, "barrier " + llvm::utostr(id) + " does not exist");
  if (!count)
    count = uint32_t(block.warps.size() * 32);
  if (count % 32)
    fail(lane, place,
         "barrier with " + llvm::utostr(count) +
             " threads, which is no multiple of the warp size");
  count = std::min(count, threads);
  for (Rendezvous &r : lane.warp->open)
    if (r.mask >> lane.index & 1)
      fail(lane, place,
           "divergent collective: " + describe(lane) +
               " is at a barrier while lanes 0x" + llvm::utohexstr(r.arrived) +
               " of mask 0x" + llvm::utohexstr(r.mask) + " wait for it at '" +
               r.instruction->text + "'",
           r.place);
  NamedBarrier &barrier = block.barriers[id];
  if (!barrier.arrived) {
    barrier.expected = count;
    barrier.place = place;
  } else if (barrier.expected != count) {
    fail(lane, place,
         "barrier " + llvm::utostr(id) + " for " + llvm::utostr(count) +
             " threads while others wait for " + llvm::utostr(barrier.expected),
         barrier.place);
  }
  for (auto &waiter : barrier.waiters)
    if (waiter.lane->warp == lane.warp && waiter.lane->waitPlace != place)
      fail(lane, place,
           "divergent barrier: " + describe(lane) + " is here while " +
               describe(*waiter.lane) + " of the same warp waits at '" +
               describePlace(waiter.lane->waitPlace) + "'",
           waiter.lane->waitPlace);
  barrier.known.join(lane.known);
  barrier.fenced.join(lane.fenced);
  barrier.arrivals.push_back({lane.party, lane.time++});
  barrier.reduceAnd &= predicate;
  barrier.reduceOr |= predicate;
  barrier.reduceCount += predicate;
  ++barrier.arrived;
  if (waits)
    barrier.waiters.push_back({&lane, result, reduction});
  if (barrier.arrived < barrier.expected) {
    if (waits)
      wait(lane, LaneState::AtBarrier, place);
    return;
  }
  NamedBarrier complete = std::move(barrier);
  barrier = {};
  auto times = complete.known.own ? std::make_shared<Times>(*complete.known.own)
                                  : std::make_shared<Times>();
  if (times->size() < threads)
    times->resize(threads);
  for (auto &[party, time] : complete.arrivals)
    (*times)[party] = std::max((*times)[party], time);
  complete.known.own = std::move(times);
  for (auto &waiter : complete.waiters) {
    waiter.lane->known = complete.known;
    waiter.lane->fenced = complete.fenced;
    if (waiter.result)
      *waiter.result = waiter.reduction == 0   ? complete.reduceAnd
                       : waiter.reduction == 1 ? complete.reduceOr
                                               : complete.reduceCount;
    if (waiter.lane != &lane)
      wake(*waiter.lane);
  }
  maybePreempt();
}

// bar.sync, bar.arrive, bar.red (a: index of the first operand, b: reduction +
// 1, c: arrives only).
static void executeBarrier(Machine &m, Lane &lane, const Instruction &i,
                           uint64_t *regs) {
  size_t next = size_t(i.a);
  auto operand = [&](size_t k) {
    return k < i.operands.size() ? read(m, lane, i.operands[k], regs) : 0;
  };
  uint32_t id = uint32_t(operand(next));
  bool predicate = true;
  uint32_t count = 0;
  size_t left = i.operands.size() - next;
  if (i.b) {
    predicate = operand(i.operands.size() - 1) & 1;
    if (left == 3)
      count = uint32_t(operand(next + 1));
  } else if (left == 2) {
    count = uint32_t(operand(next + 1));
  }
  uint64_t result = 0;
  m.arriveBarrier(lane, id, count, !i.c, i.b - 1, predicate,
                  i.b ? &result : nullptr, lane.place);
  if (i.b)
    write(i.operands[0], regs, result);
}

//===--- mbarriers -------------------------------------------------------===//

Mbarrier &Machine::mbarrierAt(Lane &lane, uintptr_t address, uint32_t place) {
  auto it = lane.block->mbarriers.find(address);
  if (it == lane.block->mbarriers.end())
    fail(lane, place,
         "mbarrier operation at " + describeAddress(address, *lane.block) +
             ", which mbarrier.init did not initialise");
  Mbarrier &barrier = it->second;
  if (options.checkRaces &&
      !knows(lane.known, lane, lane.block->index * parties + barrier.initParty,
             barrier.initTime))
    fail(lane, place,
         "race: " + describe(lane) +
             " uses an mbarrier without being ordered after its "
             "initialisation by " +
             describeParty(lane.block->index * parties + barrier.initParty),
         barrier.initPlace);
  return barrier;
}

void Machine::initMbarrier(Lane &lane, uintptr_t address, uint32_t count,
                           uint32_t place) {
  access(address, 8, 8, Write, place);
  if (!isShared(address, *lane.block))
    fail(lane, place, "mbarrier outside of shared memory");
  auto [it, isNew] = lane.block->mbarriers.try_emplace(address);
  Mbarrier &barrier = it->second;
  uint32_t index = isNew ? lane.block->mbarrierCount++ : barrier.index;
  uint64_t phase = barrier.phase; // times of its copies go on
  if (!barrier.waiters.empty() || barrier.transactions)
    fail(lane, place, "mbarrier.init of an mbarrier that is in use");
  if (index >= kMaxMbarriers)
    fail(lane, place, "more mbarriers than the emulator keeps");
  if (!count)
    fail(lane, place, "mbarrier.init with a count of 0");
  barrier = {};
  barrier.index = index;
  barrier.phase = phase + (phase & 1);
  barrier.count = barrier.pending = count;
  barrier.initParty = lane.party;
  barrier.initTime = lane.time;
  barrier.initPlace = place;
  std::memset(reinterpret_cast<void *>(address), 0, 8);
}

void Machine::arriveMbarrier(Lane &lane, Mbarrier &barrier, uint32_t count,
                             bool relaxed) {
  if (count > barrier.pending)
    fail(lane, lane.place,
         "more arrivals than the mbarrier's count of " +
             llvm::utostr(barrier.count),
         barrier.initPlace);
  if (!relaxed) {
    barrier.known.join(snapshot(lane));
    barrier.fenced.join(lane.fenced);
  }
  barrier.pending -= count;
  finishPhase(barrier, *lane.block);
}

void Machine::completeTransactions(Mbarrier &barrier, uint32_t bytes,
                                   Block &block) {
  barrier.transactions -= bytes;
  finishPhase(barrier, block);
}

void Machine::finishPhase(Mbarrier &barrier, Block &block) {
  if (barrier.pending || barrier.transactions)
    return;
  barrier.known.set(mbarrierParty(barrier), uint32_t(barrier.phase + 1));
  barrier.doneKnown = barrier.known;
  barrier.doneFenced = barrier.fenced;
  ++barrier.phase;
  barrier.pending = barrier.count;
  auto waiters = std::move(barrier.waiters);
  barrier.waiters.clear();
  for (auto &[lane, phase] : waiters)
    wake(*lane);
}

static void executeInit(Machine &m, Lane &lane, const Instruction &i,
                        uint64_t *regs) {
  m.initMbarrier(lane, addressOf(i.operands[0], regs),
                 uint32_t(read(m, lane, i.operands[1], regs)), lane.place);
}

static void executeInval(Machine &m, Lane &lane, const Instruction &i,
                         uint64_t *regs) {
  uintptr_t address = addressOf(i.operands[0], regs);
  Mbarrier &barrier = m.mbarrierAt(lane, address, lane.place);
  if (!barrier.waiters.empty() || barrier.transactions)
    m.fail(lane, lane.place, "mbarrier.inval of an mbarrier that is in use");
  // Keeps its number, which counts the times of its copies.
  barrier.count = barrier.pending = 0;
}

// arrive, arrive.expect_tx, expect_tx (a: index of the address, b: bits
// 1 arrives, 2 expects, 4 relaxed).
static void executeArrive(Machine &m, Lane &lane, const Instruction &i,
                          uint64_t *regs) {
  uintptr_t address = addressOf(i.operands[i.a], regs);
  m.maybePreempt();
  Mbarrier &barrier = m.mbarrierAt(lane, address, lane.place);
  size_t next = size_t(i.a) + 1;
  uint32_t number = next < i.operands.size()
                        ? uint32_t(read(m, lane, i.operands[next], regs))
                        : 1;
  uint64_t state = barrier.phase;
  if (i.b & 2) {
    barrier.transactions += number;
    barrier.expectPlace = lane.place;
  }
  if (i.b & 1)
    m.arriveMbarrier(lane, barrier, i.b & 2 ? 1 : number, i.b & 4);
  if (i.a == 1)
    write(i.operands[0], regs, state);
}

// test_wait, try_wait (a: parity form, b: may block, c: relaxed).
static void executeWait(Machine &m, Lane &lane, const Instruction &i,
                        uint64_t *regs) {
  uintptr_t address = addressOf(i.operands[1], regs);
  uint64_t token = read(m, lane, i.operands[2], regs);
  m.maybePreempt();
  Mbarrier &barrier = m.mbarrierAt(lane, address, lane.place);
  auto done = [&] {
    return i.a ? (barrier.phase & 1) != (token & 1) : barrier.phase > token;
  };
  if (!done()) {
    // A wait may also time out; kernels must ask again.
    if (i.b && m.randomBelow(8)) {
      barrier.waiters.push_back({&lane, barrier.phase});
      m.wait(lane, LaneState::AtMbarrier, lane.place);
    } else {
      m.yield();
    }
  }
  bool result = done();
  if (result && !i.c) {
    lane.known.join(barrier.doneKnown);
    lane.fenced.join(barrier.doneFenced);
  }
  write(i.operands[0], regs, result);
}

bool ffd::emulator::resolveBarrier(Instruction &i) {
  llvm::StringRef name = i.part(0);
  if (name == "bar" || name == "barrier") {
    if (i.has("warp") || i.has("cluster"))
      return false;
    i.execute = executeBarrier;
    i.c = i.has("arrive");
    if (i.has("red")) {
      i.a = 1;
      i.b = i.has("and") ? 1 : i.has("or") ? 2 : 3;
    }
    return i.has("sync") || i.c || i.b;
  }
  if (name != "mbarrier")
    return false;
  if (i.part(1) == "init") {
    i.execute = executeInit;
  } else if (i.part(1) == "inval") {
    i.execute = executeInval;
  } else if (i.part(1) == "arrive" || i.part(1) == "expect_tx") {
    if (i.has("noComplete") || i.operands.empty())
      return false;
    i.execute = executeArrive;
    i.a = i.operands[0].kind != Operand::Memory;
    i.b = (i.part(1) == "arrive") | (i.has("expect_tx") ? 2 : 0) |
          (i.has("relaxed") ? 4 : 0);
  } else if (i.part(1) == "test_wait" || i.part(1) == "try_wait") {
    i.execute = executeWait;
    i.a = i.has("parity");
    i.b = i.part(1) == "try_wait";
    i.c = i.has("relaxed");
  } else {
    return false;
  }
  return true;
}
