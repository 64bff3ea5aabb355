//===- AsyncCopy.cpp - cp.async and bulk copies ---------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Copies in the background: they land at a random later moment, or when
// somebody waits for their group, and until then their target is garbage.
//
//===----------------------------------------------------------------------===//

#include "Machine.h"

#include "llvm/ADT/StringExtras.h"

using namespace ffd::emulator;

void Machine::land(size_t index) {
  PendingCopy copy = copies[index];
  copies[index] = copies.back();
  copies.pop_back();
  auto *target = reinterpret_cast<char *>(copy.target);
  std::memcpy(target, reinterpret_cast<const void *>(copy.source),
              copy.sourceBytes);
  std::memset(target + copy.sourceBytes, 0, copy.bytes - copy.sourceBytes);
  if (!copy.mbarrier)
    return;
  auto it = copy.block->mbarriers.find(copy.mbarrier);
  if (it != copy.block->mbarriers.end())
    completeTransactions(it->second, copy.bytes, *copy.block);
}

bool Machine::finishRandomCopy() {
  if (copies.empty())
    return false;
  land(randomBelow(uint32_t(copies.size())));
  return true;
}

void Machine::waitGroup(Lane &lane, uint32_t pending, bool bulk) {
  uint32_t forming = bulk ? lane.storeGroup : lane.copyGroup;
  if (forming - 1 <= pending)
    return;
  uint32_t complete = forming - 1 - pending;
  for (size_t i = copies.size(); i-- > 0;)
    if (copies[i].lane == &lane && copies[i].bulkStore == bulk &&
        copies[i].group <= complete)
      land(i);
  lane.known.set(bulk ? storeParty(lane) : copyParty(lane), complete);
}

// cp.async.{ca,cg}.shared.global [d], [s], bytes{, source bytes}.
static void executeCopy(Machine &m, Lane &lane, const Instruction &i,
                        uint64_t *regs) {
  PendingCopy copy{};
  copy.block = lane.block;
  copy.target = addressOf(i.operands[0], regs);
  copy.source = addressOf(i.operands[1], regs);
  copy.bytes = uint32_t(read(m, lane, i.operands[2], regs));
  copy.sourceBytes = copy.bytes;
  if (i.operands.size() > 3)
    copy.sourceBytes = std::min<uint64_t>(
        copy.bytes, uint32_t(read(m, lane, i.operands[3], regs)));
  copy.place = lane.place;
  copy.lane = &lane;
  copy.group = lane.copyGroup;
  if (copy.bytes != 4 && copy.bytes != 8 && copy.bytes != 16)
    m.fail(lane, lane.place, "cp.async of other than 4, 8 or 16 bytes");
  if (!m.isShared(copy.target, *lane.block))
    m.fail(lane, lane.place, "cp.async to an address outside of shared memory");
  m.maybePreempt();
  m.asyncAccess(lane, copy.source, copy.sourceBytes, copy.bytes, Machine::Read,
                lane.place, m.copyParty(lane), copy.group, false);
  m.asyncAccess(lane, copy.target, copy.bytes, copy.bytes, Machine::Write,
                lane.place, m.copyParty(lane), copy.group, false);
  std::memset(reinterpret_cast<void *>(copy.target), 0xFF, copy.bytes);
  m.startCopy(copy);
}

static void executeCommit(Machine &, Lane &lane, const Instruction &i,
                          uint64_t *) {
  ++(i.a ? lane.storeGroup : lane.copyGroup);
}

static void executeWaitGroup(Machine &m, Lane &lane, const Instruction &i,
                             uint64_t *regs) {
  if (i.b) { // wait_all
    ++lane.copyGroup;
    m.waitGroup(lane, 0, false);
    return;
  }
  m.waitGroup(lane, uint32_t(read(m, lane, i.operands[0], regs)), i.a);
}

static void checkBulk(Machine &m, Lane &lane, const PendingCopy &copy) {
  if (copy.bytes % 16 || copy.target % 16 || copy.source % 16)
    m.fail(lane, lane.place,
           "misaligned access: a bulk copy of " + llvm::utostr(copy.bytes) +
               " bytes whose size or addresses are no multiples of 16");
}

// cp.async.bulk.shared.global [d], [s], bytes, [mbarrier].
static void executeBulkLoad(Machine &m, Lane &lane, const Instruction &i,
                            uint64_t *regs) {
  PendingCopy copy{};
  copy.block = lane.block;
  copy.target = addressOf(i.operands[0], regs);
  copy.source = addressOf(i.operands[1], regs);
  copy.bytes = copy.sourceBytes = uint32_t(read(m, lane, i.operands[2], regs));
  copy.mbarrier = addressOf(i.operands[3], regs);
  copy.place = lane.place;
  checkBulk(m, lane, copy);
  if (!m.isShared(copy.target, *lane.block))
    m.fail(lane, lane.place,
           "bulk copy to an address outside of shared memory");
  m.maybePreempt();
  Mbarrier &barrier = m.mbarrierAt(lane, copy.mbarrier, lane.place);
  if (m.options.checkRaces) {
    // The async proxy must see the initialised mbarrier.
    bool fenced = lane.fenced.ownTime(barrier.initParty) >= barrier.initTime;
    if (barrier.fenceTime)
      fenced |=
          m.knows(lane.known, lane,
                  lane.block->index * m.partiesPerBlock() + barrier.fenceParty,
                  barrier.fenceTime);
    if (!fenced)
      m.fail(lane, lane.place,
             "missing proxy fence: a bulk copy by " + m.describe(lane) +
                 " reports to an mbarrier that was initialised without "
                 "fence.mbarrier_init or fence.proxy.async",
             barrier.initPlace);
  }
  uint32_t party = m.mbarrierParty(barrier), time = uint32_t(barrier.phase + 1);
  m.asyncAccess(lane, copy.source, copy.bytes, 16, Machine::Read, lane.place,
                party, time, true);
  m.asyncAccess(lane, copy.target, copy.bytes, 16, Machine::Write, lane.place,
                party, time, true);
  std::memset(reinterpret_cast<void *>(copy.target), 0xFF, copy.bytes);
  m.startCopy(copy);
}

// cp.async.bulk.global.shared::cta.bulk_group [d], [s], bytes.
static void executeBulkStore(Machine &m, Lane &lane, const Instruction &i,
                             uint64_t *regs) {
  PendingCopy copy{};
  copy.block = lane.block;
  copy.target = addressOf(i.operands[0], regs);
  copy.source = addressOf(i.operands[1], regs);
  copy.bytes = copy.sourceBytes = uint32_t(read(m, lane, i.operands[2], regs));
  copy.place = lane.place;
  copy.lane = &lane;
  copy.group = lane.storeGroup;
  copy.bulkStore = true;
  checkBulk(m, lane, copy);
  if (!m.isShared(copy.source, *lane.block))
    m.fail(lane, lane.place, "bulk store from outside of shared memory");
  m.maybePreempt();
  m.asyncAccess(lane, copy.source, copy.bytes, 16, Machine::Read, lane.place,
                m.storeParty(lane), copy.group, true);
  m.asyncAccess(lane, copy.target, copy.bytes, 16, Machine::Write, lane.place,
                m.storeParty(lane), copy.group, true);
  m.startCopy(copy);
}

// cp.async.bulk.prefetch.L2.global [a], bytes.
static void executeBulkPrefetch(Machine &m, Lane &lane, const Instruction &i,
                                uint64_t *regs) {
  uintptr_t address = addressOf(i.operands[0], regs);
  uint32_t bytes = uint32_t(read(m, lane, i.operands[1], regs));
  if (bytes % 16)
    m.fail(lane, lane.place,
           "misaligned access: a bulk prefetch of " + llvm::utostr(bytes) +
               " bytes, which is no multiple of 16");
  m.accessFor(lane, address, bytes, 16, Machine::Prefetch, lane.place);
}

static void executeNothing(Machine &, Lane &, const Instruction &, uint64_t *) {
}

bool ffd::emulator::resolveAsyncCopy(Instruction &i) {
  if (i.part(0) == "prefetch" || i.part(0) == "prefetchu" ||
      i.part(0) == "applypriority" || i.part(0) == "discard" ||
      i.part(0) == "createpolicy") {
    i.execute = executeNothing;
    return true;
  }
  if (i.part(0) != "cp" || i.part(1) != "async")
    return false;
  bool bulk = i.part(2) == "bulk";
  llvm::StringRef what = i.part(bulk ? 3 : 2);
  i.a = bulk;
  if (what == "commit_group") {
    i.execute = executeCommit;
  } else if (what == "wait_group" || what == "wait_all") {
    i.execute = executeWaitGroup;
    i.b = what == "wait_all";
  } else if (what == "prefetch") {
    if (i.has("tensor") || i.operands.size() < 2)
      return false;
    i.execute = executeBulkPrefetch;
  } else if (bulk) {
    if (i.has("multicast::cluster") || i.has("tensor") || i.has("reduce"))
      return false;
    bool load = i.has("mbarrier::complete_tx::bytes");
    if (load && what.starts_with("shared") && i.operands.size() >= 4)
      i.execute = executeBulkLoad;
    else if (what == "global" && i.has("bulk_group"))
      i.execute = executeBulkStore;
    else
      return false;
  } else if ((what == "ca" || what == "cg") && i.operands.size() >= 3) {
    // A cache policy is no source size.
    if (i.has("L2::cache_hint"))
      i.operands.pop_back();
    i.execute = executeCopy;
  } else {
    return false;
  }
  return true;
}
