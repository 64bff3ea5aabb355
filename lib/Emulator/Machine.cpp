//===- Machine.cpp - The scheduler ----------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Starts blocks in a random order, picks what runs next, and turns a launch
// where nothing can run any more into a report.
//
//===----------------------------------------------------------------------===//

#include "Machine.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>
#include <sys/mman.h>

using namespace ffd::emulator;

thread_local Machine *Machine::current = nullptr;

static constexpr size_t kStackBytes = 256 << 10;
/// Between the shared memories of two blocks.
static constexpr size_t kSharedGuard = 64 << 10;

/// Shared memory lies below 2 GiB, so that its addresses fit the 32-bit numbers
/// that PTX instructions take.
static char *mapLow(size_t bytes) {
#ifdef MAP_FIXED_NOREPLACE
  for (uintptr_t hint = 0x10000000; hint + bytes < 0x80000000;
       hint += 0x4000000) {
    void *map =
        mmap(reinterpret_cast<void *>(hint), bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
             -1, 0);
    if (map == MAP_FAILED)
      continue;
    if (reinterpret_cast<uintptr_t>(map) == hint)
      return static_cast<char *>(map);
    munmap(map, bytes);
  }
#endif
  return nullptr;
}

Machine::Machine(const KernelCode &code, const LaunchConfig &config,
                 const Options &options)
    : config(config), options(options), code(code) {
  threads = config.block[0] * config.block[1] * config.block[2];
  parties = 3 * threads + kMaxMbarriers;
  sharedBytes = code.staticSharedBytes + config.dynamicSharedBytes;
  slotBytes = llvm::alignTo(sharedBytes + kSharedGuard, kSharedGuard);
  rng = (options.seed + 1) * 0x9E3779B97F4A7C15ull;
  rng ^= rng >> 31;
  if (!rng)
    rng = 1;
  for (int i = 0; i < 8; ++i)
    random();
  preemptMask = options.preemptionPeriod
                    ? llvm::NextPowerOf2(options.preemptionPeriod - 1) - 1
                    : 0;
}

Machine::~Machine() {
  if (arena)
    munmap(arena, arenaBytes);
}

//===--- Errors ----------------------------------------------------------===//

std::string Machine::describe(const Lane &lane) const {
  return describeParty(who(lane));
}

std::string Machine::describeParty(uint32_t who) const {
  uint32_t block = who / parties, party = who % parties;
  std::string result;
  llvm::raw_string_ostream os(result);
  auto lane = [&](uint32_t thread) {
    os << "block " << block << " warp " << thread / 32 << " lane "
       << thread % 32;
  };
  if (party < threads) {
    lane(party);
  } else if (party < 3 * threads) {
    os << (party < 2 * threads ? "a cp.async of " : "a bulk store of ");
    lane(party % threads);
  } else {
    os << "a bulk copy of block " << block;
  }
  return result;
}

std::string Machine::describePlace(uint32_t place) const {
  return place < code.names.size() ? code.names[place] : "?";
}

void Machine::setFailure(const Lane *lane, uint32_t place, std::string message,
                         uint32_t otherPlace) {
  if (failed)
    return;
  failed = true;
  report.ok = false;
  report.message = std::move(message);
  if (place < code.locations.size())
    report.location = code.locations[place];
  if (otherPlace < code.locations.size())
    report.otherLocation = code.locations[otherPlace];
  if (lane) {
    report.hasLane = true;
    for (int i = 0; i < 3; ++i)
      report.block[i] = lane->block->id[i];
    report.warp = lane->warp->index;
    report.lane = lane->index;
  }
}

void Machine::fail(Lane &lane, uint32_t place, std::string message,
                   uint32_t otherPlace) {
  setFailure(&lane, place, std::move(message), otherPlace);
  lane.fiber.suspend(); // for good: the scheduler ends the launch
  std::abort();
}

void Machine::overBudget(uint32_t place) {
  fail(*running, place,
       "the kernel did not end within " + llvm::utostr(options.stepBudget) +
           " steps");
}

/// Nothing can run and no copy is on its way.
void Machine::deadlock() {
  auto whereIs = [&](const Lane &lane) -> std::string {
    if (lane.state == LaneState::Done)
      return describe(lane) + " has ended";
    return describe(lane) + " waits at '" + describePlace(lane.waitPlace) + "'";
  };
  for (auto &block : resident) {
    if (!block)
      continue;
    for (Warp &warp : block->warps)
      for (Rendezvous &r : warp.open) {
        uint32_t missing = r.mask & ~r.arrived;
        Lane &other = *warp.lanes[llvm::countr_zero(missing)];
        Lane &here = *warp.lanes[llvm::countr_zero(r.arrived)];
        return setFailure(&here, r.place,
                          "divergent collective '" + r.instruction->text +
                              "': lanes 0x" + llvm::utohexstr(r.arrived) +
                              " of mask 0x" + llvm::utohexstr(r.mask) +
                              " wait here, but " + whereIs(other),
                          other.waitPlace);
      }
    // Before barriers: lanes that wait for bytes do not reach those.
    for (auto &[address, barrier] : block->mbarriers)
      if (!barrier.waiters.empty()) {
        Lane &here = *barrier.waiters.front().first;
        return setFailure(
            &here, here.waitPlace,
            "mbarrier at shared offset " +
                llvm::utostr(address - block->shared) +
                " never completes phase " + llvm::utostr(barrier.phase) + ": " +
                llvm::utostr(barrier.pending) + " arrivals and " +
                llvm::itostr(barrier.transactions) + " bytes are missing",
            barrier.expectPlace);
      }
    for (unsigned id = 0; id < 16; ++id) {
      NamedBarrier &barrier = block->barriers[id];
      if (barrier.waiters.empty())
        continue;
      Lane &here = *barrier.waiters.front().lane;
      std::string message =
          "barrier " + llvm::utostr(id) +
          " never completes: " + llvm::utostr(barrier.arrived) + " of " +
          llvm::utostr(barrier.expected) + " threads arrived";
      uint32_t otherPlace = kNoPlace;
      for (Lane &lane : block->lanes) {
        bool waitsHere = false;
        for (auto &waiter : barrier.waiters)
          waitsHere |= waiter.lane == &lane;
        if (waitsHere)
          continue;
        message += ", but " + whereIs(lane);
        if (lane.state != LaneState::Done)
          otherPlace = lane.waitPlace;
        break;
      }
      return setFailure(&here, barrier.place, std::move(message), otherPlace);
    }
  }
  setFailure(nullptr, kNoPlace, "nothing can run", kNoPlace);
}

//===--- Lanes and blocks ------------------------------------------------===//

void Machine::laneMain(void *argument) {
  Lane &lane = *static_cast<Lane *>(argument);
  Machine &m = *current;
  m.code.entry(m.parameters);
  for (Rendezvous &r : lane.warp->open)
    if (r.mask >> lane.index & 1)
      m.fail(*lane.warp->lanes[llvm::countr_zero(r.arrived)], r.place,
             "divergent collective '" + r.instruction->text + "': lanes 0x" +
                 llvm::utohexstr(r.arrived) + " of mask 0x" +
                 llvm::utohexstr(r.mask) + " wait here, but " +
                 m.describe(lane) + " has ended");
  lane.state = LaneState::Done;
  lane.warp->ready &= ~(1u << lane.index);
  lane.warp->done |= 1u << lane.index;
  --lane.block->alive;
  lane.fiber.suspend();
}

void Machine::startBlock(uint32_t index, size_t slot) {
  auto block = std::make_unique<Block>();
  block->index = index;
  block->slot = slot;
  block->id[0] = index % config.grid[0];
  block->id[1] = index / config.grid[0] % config.grid[1];
  block->id[2] = index / config.grid[0] / config.grid[1];
  block->shared =
      reinterpret_cast<uintptr_t>(arena) + kSharedGuard + slot * slotBytes;
  // The slot's earlier block is another block's memory.
  for (auto it = atomics.begin(); it != atomics.end(); ++it)
    if (isShared(it->first, *block))
      atomics.erase(it);
  // Garbage that shows, not zeros that help.
  std::memset(reinterpret_cast<void *>(block->shared), 0xFF, sharedBytes);
  if (options.checkRaces || options.checkUninitialized)
    block->shadow.reset(sharedBytes);
  block->alive = threads;
  block->lanes = std::vector<Lane>(threads);
  block->warps = std::vector<Warp>((threads + 31) / 32);
  for (uint32_t t = 0; t < threads; ++t) {
    Lane &lane = block->lanes[t];
    Warp &warp = block->warps[t / 32];
    lane.block = warp.block = block.get();
    lane.warp = &warp;
    warp.index = t / 32;
    lane.index = t % 32;
    lane.party = t;
    lane.tid[0] = t % config.block[0];
    lane.tid[1] = t / config.block[0] % config.block[1];
    lane.tid[2] = t / config.block[0] / config.block[1];
    warp.lanes[t % 32] = &lane;
    warp.existing |= 1u << t % 32;
    size_t bytes = stacks->stackBytes();
    void *stack = stacks->stack(slot * threads + t);
    lane.stackBegin = reinterpret_cast<uintptr_t>(stack);
    lane.stackEnd = lane.stackBegin + bytes;
    lane.fiber.reset(stack, bytes, laneMain, &lane);
  }
  for (Warp &warp : block->warps) {
    warp.ready = warp.existing;
    makeRunnable(warp);
  }
  resident[slot] = std::move(block);
}

void Machine::finishBlock(Block &block) {
  for (size_t i = copies.size(); i-- > 0;) {
    PendingCopy &copy = copies[i];
    if (copy.block != &block)
      continue;
    if (copy.mbarrier || copy.bulkStore)
      return setFailure(nullptr, copy.place,
                        "block " + llvm::utostr(block.index) +
                            " ended while this copy was on its way",
                        kNoPlace);
    land(i);
  }
  if (!failed)
    resident[block.slot].reset();
}

void Machine::makeRunnable(Warp &warp) {
  if (warp.queuePosition >= 0)
    return;
  warp.queuePosition = int(runnable.size());
  runnable.push_back(&warp);
}

void Machine::dropRunnable(Warp &warp) {
  runnable.back()->queuePosition = warp.queuePosition;
  runnable[warp.queuePosition] = runnable.back();
  runnable.pop_back();
  warp.queuePosition = -1;
}

//===--- Scheduling ------------------------------------------------------===//

void Machine::yield() {
  preempted = true;
  running->fiber.suspend();
}

void Machine::wait(Lane &lane, LaneState state, uint32_t place) {
  lane.state = state;
  lane.waitPlace = place;
  lane.warp->ready &= ~(1u << lane.index);
  lane.fiber.suspend();
}

void Machine::wake(Lane &lane) {
  lane.state = LaneState::Ready;
  lane.warp->ready |= 1u << lane.index;
  makeRunnable(*lane.warp);
}

Report Machine::run(void **kernelParameters) {
  parameters = kernelParameters;
  uint64_t count = uint64_t(config.grid[0]) * config.grid[1] * config.grid[2];
  if (!threads || threads > 1024 || !count ||
      count * parties >= Shadow::kMany) {
    report.ok = false;
    report.message = "the launch's grid or block is empty or too large";
    return report;
  }
  size_t slots =
      std::min<uint64_t>(std::max(1u, options.residentBlocks), count);
  arenaBytes = kSharedGuard + slots * slotBytes;
  arena = mapLow(arenaBytes);
  stacks = std::make_unique<StackPool>(slots * threads, kStackBytes);
  if (!arena || !stacks->valid()) {
    report.ok = false;
    report.message = "no memory for shared memory or the stacks of lanes";
    return report;
  }
  resident.resize(slots);
  std::vector<uint32_t> order(count);
  for (uint32_t i = 0; i < count; ++i)
    order[i] = i;
  for (uint32_t i = uint32_t(count); i > 1; --i)
    std::swap(order[i - 1], order[randomBelow(i)]);

  Machine *outer = current;
  current = this;
  size_t next = 0;
  while (!failed) {
    bool any = false;
    for (size_t slot = 0; slot < slots && !failed; ++slot) {
      if (resident[slot] && !resident[slot]->alive)
        finishBlock(*resident[slot]);
      if (!resident[slot] && next < count)
        startBlock(order[next++], slot);
      any |= bool(resident[slot]);
    }
    if (!any || failed)
      break;
    if (runnable.empty()) {
      if (!finishRandomCopy())
        deadlock();
      continue;
    }
    if (!copies.empty() && (random() & 3) == 0)
      finishRandomCopy();
    Warp &warp = *runnable[randomBelow(uint32_t(runnable.size()))];
    preempted = false;
    while (warp.ready && !preempted && !failed) {
      unsigned from = random() & 31;
      uint32_t turned = llvm::rotr<uint32_t>(warp.ready, from);
      running = warp.lanes[(llvm::countr_zero(turned) + from) & 31];
      ++switches;
      running->fiber.resume();
    }
    if (!warp.ready)
      dropRunnable(warp);
  }
  current = outer;
  report.steps = steps;
  report.switches = switches;
  return report;
}

//===--- GPU operations --------------------------------------------------===//

void Machine::execute(uint32_t index, uint64_t *regs) {
  const GpuOp &op = code.ops[index];
  Lane &lane = *running;
  for (size_t pc = 0; pc < op.program.size();) {
    const Instruction &instruction = op.program[pc];
    step(op.place);
    currentPlace = lane.place = op.place;
    ++pc;
    if (instruction.predicate >= 0 &&
        bool(regs[instruction.predicate] & 1) == instruction.predicateNegated)
      continue;
    if (instruction.target >= 0) {
      if (size_t(instruction.target) < pc)
        yield();
      pc = instruction.target;
    } else if (instruction.collective) {
      uint32_t mask = ~0u;
      if (instruction.maskOperand >= 0)
        mask = uint32_t(read(
            *this, lane, instruction.operands[instruction.maskOperand], regs));
      rendezvous(lane, instruction, regs, mask);
    } else {
      instruction.execute(*this, lane, instruction, regs);
    }
  }
}

void Machine::rendezvous(Lane &lane, const Instruction &instruction,
                         uint64_t *regs, uint32_t mask) {
  Warp &warp = *lane.warp;
  uint32_t place = lane.place, bit = 1u << lane.index;
  mask &= warp.existing;
  if (!(mask & bit))
    fail(lane, place,
         "'" + instruction.text + "' by a lane that is not in its mask 0x" +
             llvm::utohexstr(mask));
  if (mask & warp.done)
    fail(lane, place,
         "divergent collective '" + instruction.text + "': lanes 0x" +
             llvm::utohexstr(mask & warp.done) + " of mask 0x" +
             llvm::utohexstr(mask) + " have ended");
  Rendezvous *mine = nullptr;
  for (Rendezvous &r : warp.open) {
    if (r.instruction == &instruction && r.mask == mask)
      mine = &r;
    else if (r.mask & bit)
      fail(lane, place,
           "divergent collective '" + instruction.text +
               "': " + describe(lane) + " is here while lanes 0x" +
               llvm::utohexstr(r.arrived) + " of mask 0x" +
               llvm::utohexstr(r.mask) + " wait for it at '" +
               describePlace(r.place) + "'",
           r.place);
  }
  if (!mine) {
    mine = &warp.open.emplace_back();
    mine->instruction = &instruction;
    mine->place = place;
    mine->mask = mask;
  }
  mine->arrived |= bit;
  mine->regs[lane.index] = regs;
  if (mine->arrived != mask) {
    wait(lane, LaneState::AtCollective, place);
    return;
  }
  Rendezvous complete = *mine;
  warp.open.erase(mine);
  for (uint32_t rest = mask & ~bit; rest; rest &= rest - 1)
    wake(*warp.lanes[llvm::countr_zero(rest)]);
  instruction.collective(*this, warp, instruction, complete.regs, mask);
}

uint64_t ffd::emulator::readSpecial(Machine &m, Lane &lane,
                                    llvm::StringRef name) {
  auto axis = [&](llvm::StringRef prefix) -> int {
    llvm::StringRef rest = name;
    if (!rest.consume_front(prefix) || rest.size() != 1)
      return -1;
    return rest[0] - 'x';
  };
  if (int i = axis("tid."); i >= 0)
    return lane.tid[i];
  if (int i = axis("ntid."); i >= 0)
    return m.config.block[i];
  if (int i = axis("ctaid."); i >= 0)
    return lane.block->id[i];
  if (int i = axis("nctaid."); i >= 0)
    return m.config.grid[i];
  if (name == "laneid")
    return lane.index;
  if (name == "warpid")
    return lane.warp->index;
  if (name == "nwarpid")
    return lane.block->warps.size();
  if (name == "warpsize" || name == "WARP_SZ")
    return 32;
  uint32_t bit = 1u << lane.index;
  if (name == "lanemask_eq")
    return bit;
  if (name == "lanemask_lt")
    return bit - 1;
  if (name == "lanemask_le")
    return bit | (bit - 1);
  if (name == "lanemask_gt")
    return uint32_t(~(bit | (bit - 1)));
  if (name == "lanemask_ge")
    return uint32_t(~(bit - 1));
  if (name.starts_with("clock") || name.starts_with("globaltimer"))
    return m.steps;
  if (name == "dynamic_smem_size")
    return m.config.dynamicSharedBytes;
  if (name == "total_smem_size")
    return m.sharedBytes;
  if (name.starts_with("ncluster") || name == "cluster_nctarank" ||
      name == "nsmid" || name.starts_with("cluster_nctaid"))
    return 1;
  return 0; // smid, gridid, ranks within the cluster of one block
}
