//===- Machine.h - Lanes, warps, blocks and their scheduler --- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The state of a running grid. Lanes are fibers; a seeded scheduler switches
// between them at GPU operations and memory accesses. An error ends the launch
// at once: the lane that found it never continues.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_EMULATOR_MACHINE_H
#define FFD_LIB_EMULATOR_MACHINE_H

#include "Clock.h"
#include "Fiber.h"
#include "Instruction.h"
#include "Shadow.h"
#include "ffd/Emulator/Emulator.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/Twine.h"

#include <map>

namespace ffd::emulator {

struct Block;
struct Mbarrier;

/// Why a lane does not run.
enum class LaneState : uint8_t {
  Ready,
  AtCollective,
  AtBarrier,
  AtMbarrier,
  Done
};

struct Lane {
  Fiber fiber;
  Block *block = nullptr;
  Warp *warp = nullptr;
  uint32_t index = 0; ///< in the warp
  uint32_t party = 0; ///< thread in the block
  uint32_t tid[3] = {0, 0, 0};
  LaneState state = LaneState::Ready;
  uint32_t waitPlace = 0; ///< location of the operation it waits at
  uint32_t place = 0;     ///< location of its latest operation
  uintptr_t stackBegin = 0, stackEnd = 0;

  uint32_t time = 1;
  Knowledge known;  ///< accesses that happened before
  Knowledge fenced; ///< of those, the ones visible to the async proxy
  Knowledge released, toAcquire; ///< of fences, for relaxed atomics
  bool hasReleased = false;

  uint32_t copyGroup = 1;  ///< cp.async group being formed
  uint32_t storeGroup = 1; ///< bulk group being formed
};

/// Lanes that wait for each other at one collective.
struct Rendezvous {
  const Instruction *instruction = nullptr;
  uint32_t place = 0;
  uint32_t mask = 0, arrived = 0;
  uint64_t *regs[32] = {};
};

struct Warp {
  Block *block = nullptr;
  uint32_t index = 0;
  uint32_t existing = 0; ///< lanes that are threads of the block
  uint32_t ready = 0, done = 0;
  int queuePosition = -1; ///< in the machine's list of runnable warps
  Lane *lanes[32] = {};
  llvm::SmallVector<Rendezvous, 2> open;
};

struct NamedBarrier {
  uint32_t expected = 0, arrived = 0;
  uint32_t place = 0;
  Knowledge known, fenced;
  std::vector<std::pair<uint32_t, uint32_t>> arrivals; ///< party, time
  uint32_t reduceAnd = 1, reduceOr = 0, reduceCount = 0;
  struct Waiter {
    Lane *lane;
    uint64_t *result; ///< of a reduction
    int reduction;
  };
  std::vector<Waiter> waiters;
};

struct Mbarrier {
  uint32_t index = 0;
  uint32_t count = 0, pending = 0;
  int64_t transactions = 0;
  uint64_t phase = 0; ///< the incomplete one
  uint32_t initParty = 0, initTime = 0, initPlace = 0;
  uint32_t expectPlace = ~0u;             ///< where bytes were announced last
  uint32_t fenceParty = 0, fenceTime = 0; ///< fence.mbarrier_init; time 0: none
  Knowledge known, fenced;                ///< of those that arrived
  Knowledge doneKnown, doneFenced;        ///< of the completed phases
  std::vector<std::pair<Lane *, uint64_t>> waiters; ///< with their phase
};

/// An asynchronous copy on its way.
struct PendingCopy {
  Block *block;
  uintptr_t target, source;
  uint32_t bytes, sourceBytes; ///< the rest is zeros
  uint32_t place;
  uintptr_t mbarrier = 0; ///< to report to
  Lane *lane = nullptr;   ///< of group copies
  uint32_t group = 0;
  bool bulkStore = false;
};

struct Block {
  uint32_t index = 0, id[3] = {0, 0, 0};
  uintptr_t shared = 0;
  size_t slot = 0;
  uint32_t alive = 0;
  std::vector<Lane> lanes;
  std::vector<Warp> warps;
  NamedBarrier barriers[16];
  std::map<uintptr_t, Mbarrier> mbarriers;
  uint32_t mbarrierCount = 0;
  Shadow shadow; ///< of shared memory
};

/// Acquire/release state of one atomic location.
struct AtomicPlace {
  Knowledge known, fenced;
  uint32_t fromBlock = 0;
  bool valid = false;
};

struct RegisteredBuffer {
  uintptr_t begin, end;
  bool readOnly;
  std::string name;
  std::unique_ptr<Shadow> shadow;
};

/// What the machine needs to know of the compiled kernel.
struct KernelCode {
  using Entry = void (*)(void **parameters);
  Entry entry = nullptr;
  std::vector<GpuOp> ops;
  std::vector<mlir::Location> locations;
  std::vector<std::string> names; ///< of the operations, by location
  uint64_t staticSharedBytes = 0;
};

class Machine {
public:
  Machine(const KernelCode &code, const LaunchConfig &config,
          const Options &options);
  ~Machine();

  void addBuffer(uintptr_t begin, size_t bytes, bool readOnly,
                 std::string name);
  Report run(void **parameters);

  /// The machine whose lane runs on this thread.
  static thread_local Machine *current;

  //===--- Errors --------------------------------------------------------===//
  [[noreturn]] void fail(Lane &lane, uint32_t place, std::string message,
                         uint32_t otherPlace = kNoPlace);
  std::string describe(const Lane &lane) const;
  std::string describeParty(uint32_t who) const;
  std::string describePlace(uint32_t place) const;
  std::string describeAddress(uintptr_t address, const Block &block);
  static constexpr uint32_t kNoPlace = ~0u;

  //===--- Scheduling ----------------------------------------------------===//
  Lane &lane() { return *running; }
  void step(uint32_t place) {
    if (++steps > options.stepBudget)
      overBudget(place);
  }
  void maybePreempt() {
    if (preemptMask && (random() & preemptMask) == 0)
      yield();
  }
  void yield();
  void wait(Lane &lane, LaneState state, uint32_t place);
  void wake(Lane &lane);
  uint64_t random() {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng;
  }
  uint32_t randomBelow(uint32_t n) { return uint32_t((random() >> 11) % n); }

  void execute(uint32_t op, uint64_t *regs);
  void rendezvous(Lane &lane, const Instruction &instruction, uint64_t *regs,
                  uint32_t mask);

  //===--- Memory --------------------------------------------------------===//
  enum AccessFlags {
    Read = 1,
    Write = 2,
    AtomicAccess = 4,
    BlockScope = 8, ///< of an atomic access
    Prefetch = 16,  ///< touches nothing, but must be within bounds
  };
  /// Checks an access of a lane.
  void access(uintptr_t address, uint32_t bytes, uint32_t alignment, int flags,
              uint32_t place);
  /// The same for an access that a collective makes for one of its lanes.
  void accessFor(Lane &lane, uintptr_t address, uint32_t bytes,
                 uint32_t alignment, int flags, uint32_t place);
  /// The same for an asynchronous copy that `lane` starts; `party` and `time`
  /// are those of the copy. `proxy`: writes must be fenced.
  void asyncAccess(Lane &lane, uintptr_t address, uint32_t bytes,
                   uint32_t alignment, int flags, uint32_t place,
                   uint32_t party, uint32_t time, bool proxy);
  bool isShared(uintptr_t address, const Block &block) const {
    return address - block.shared < sharedBytes;
  }

  //===--- Happens before ------------------------------------------------===//
  uint32_t partiesPerBlock() const { return parties; }
  uint32_t who(const Lane &lane) const {
    return lane.block->index * parties + lane.party;
  }
  uint32_t copyParty(const Lane &lane) const { return threads + lane.party; }
  uint32_t storeParty(const Lane &lane) const {
    return 2 * threads + lane.party;
  }
  uint32_t mbarrierParty(const Mbarrier &barrier) const {
    return 3 * threads + barrier.index;
  }
  bool knows(const Knowledge &known, const Lane &lane, uint32_t who,
             uint32_t time) const;
  /// Everything `lane` knows, its own accesses included; its time moves on.
  Knowledge snapshot(Lane &lane);
  void fenceProxy(Lane &lane);
  /// The two halves of an atomic access. A relaxed one takes part in the order
  /// that fences make. A plain store ends the release sequence before it.
  void release(Lane &lane, uintptr_t address, bool relaxed, bool blockScope,
               bool plainStore);
  void acquire(Lane &lane, uintptr_t address, bool relaxed, bool blockScope);
  void fence(Lane &lane, bool acquires, bool releases);
  /// The lanes of `mask` meet.
  void synchronise(Warp &warp, uint32_t mask);

  //===--- Barriers and copies -------------------------------------------===//
  void arriveBarrier(Lane &lane, uint32_t id, uint32_t count, bool waits,
                     int reduction, bool predicate, uint64_t *result,
                     uint32_t place);
  Mbarrier &mbarrierAt(Lane &lane, uintptr_t address, uint32_t place);
  void initMbarrier(Lane &lane, uintptr_t address, uint32_t count,
                    uint32_t place);
  void arriveMbarrier(Lane &lane, Mbarrier &barrier, uint32_t count,
                      bool relaxed);
  void completeTransactions(Mbarrier &barrier, uint32_t bytes, Block &block);
  void finishPhase(Mbarrier &barrier, Block &block);
  void startCopy(PendingCopy copy) { copies.push_back(copy); }
  void waitGroup(Lane &lane, uint32_t pending, bool bulk);
  bool finishRandomCopy();

  const LaunchConfig config;
  const Options options;
  const KernelCode &code;
  uint64_t steps = 0, switches = 0;
  uint32_t currentPlace = 0;
  uint32_t threads;
  size_t sharedBytes;
  static constexpr uint32_t kMaxMbarriers = 512;

private:
  static void laneMain(void *lane);
  void startBlock(uint32_t index, size_t slot);
  void overBudget(uint32_t place);
  void deadlock();
  void makeRunnable(Warp &warp);
  void dropRunnable(Warp &warp);
  void land(size_t index);
  RegisteredBuffer *bufferAt(uintptr_t address);

  Shadow *locate(Lane &lane, uintptr_t address, uint32_t bytes,
                 uint32_t alignment, int flags, uint32_t place,
                 uint64_t &offset);
  void setFailure(const Lane *lane, uint32_t place, std::string message,
                  uint32_t otherPlace);
  void checkCells(Lane &lane, Shadow &shadow, uint64_t offset, uint32_t bytes,
                  int flags, uint32_t place, bool shared);
  [[noreturn]] void race(Lane &lane, const Epoch &other, bool otherWrites,
                         const char *what, uint64_t offset, bool shared,
                         uint32_t place);
  void finishBlock(Block &block);

  Report report;
  bool failed = false, preempted = false;
  Lane *running = nullptr;
  void **parameters = nullptr;
  uint64_t rng;
  uint64_t preemptMask;
  uint32_t parties;
  std::vector<Warp *> runnable;
  std::vector<std::unique_ptr<Block>> resident;
  std::unique_ptr<StackPool> stacks;
  char *arena = nullptr;
  size_t arenaBytes = 0, slotBytes = 0;
  std::vector<RegisteredBuffer> buffers;
  RegisteredBuffer *lastBuffer = nullptr;
  llvm::DenseMap<uintptr_t, AtomicPlace> atomics;
  std::vector<PendingCopy> copies;
};

//===--- Operands of instructions ----------------------------------------===//

uint64_t readSpecial(Machine &machine, Lane &lane, llvm::StringRef name);

inline uint64_t read(Machine &m, Lane &lane, const Operand &operand,
                     const uint64_t *regs) {
  if (operand.kind == Operand::Register)
    return operand.negated ? !(regs[operand.reg] & 1) : regs[operand.reg];
  if (operand.kind == Operand::Immediate)
    return uint64_t(operand.imm);
  if (operand.kind == Operand::Special)
    return readSpecial(m, lane, operand.name);
  return 0;
}
inline uintptr_t addressOf(const Operand &operand, const uint64_t *regs) {
  uintptr_t result = uintptr_t(operand.imm);
  if (operand.reg >= 0)
    result += regs[operand.reg];
  for (const Operand &part : operand.parts)
    result += regs[part.reg];
  return result;
}
inline void write(const Operand &operand, uint64_t *regs, uint64_t value) {
  if (operand.kind == Operand::Register)
    regs[operand.reg] = value;
}

} // namespace ffd::emulator

#endif // FFD_LIB_EMULATOR_MACHINE_H
