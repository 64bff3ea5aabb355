//===- HappensBefore.cpp - What orders accesses ---------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Knowledge of lanes: release and acquire, fences, and the meeting of a warp's
// lanes. docs/emulator.md says which operations are assumed to order what.
//
//===----------------------------------------------------------------------===//

#include "Machine.h"

#include "llvm/ADT/bit.h"

using namespace ffd::emulator;

bool Machine::knows(const Knowledge &known, const Lane &lane, uint32_t who,
                    uint32_t time) const {
  uint32_t block = who / parties, party = who % parties;
  if (block != lane.block->index)
    return known.foreignTime(block, party) >= time;
  return party == lane.party || known.ownTime(party) >= time;
}

Knowledge Machine::snapshot(Lane &lane) {
  Knowledge result = lane.known;
  result.set(lane.party, lane.time++);
  return result;
}

void Machine::fenceProxy(Lane &lane) { lane.fenced.join(snapshot(lane)); }

void Machine::release(Lane &lane, uintptr_t address, bool relaxed,
                      bool blockScope, bool plainStore) {
  AtomicPlace &place = atomics[address];
  if (relaxed && !lane.hasReleased) {
    if (plainStore)
      place = {};
    return;
  }
  if (place.valid && place.fromBlock != lane.block->index && blockScope)
    return;
  Knowledge known = relaxed ? lane.released : snapshot(lane);
  if (!place.valid || plainStore) {
    place.known = std::move(known);
    place.fenced = lane.fenced;
    place.fromBlock = lane.block->index;
    place.valid = true;
    return;
  }
  place.known.joinFrom(known, lane.block->index, place.fromBlock);
  place.fenced.joinFrom(lane.fenced, lane.block->index, place.fromBlock);
}

void Machine::acquire(Lane &lane, uintptr_t address, bool relaxed,
                      bool blockScope) {
  auto it = atomics.find(address);
  if (it == atomics.end() || !it->second.valid)
    return;
  AtomicPlace &place = it->second;
  if (blockScope && place.fromBlock != lane.block->index)
    return;
  Knowledge &known = relaxed ? lane.toAcquire : lane.known;
  known.joinFrom(place.known, place.fromBlock, lane.block->index);
  lane.fenced.joinFrom(place.fenced, place.fromBlock, lane.block->index);
}

void Machine::fence(Lane &lane, bool acquires, bool releases) {
  if (acquires) {
    lane.known.join(lane.toAcquire);
    lane.toAcquire = {};
  }
  if (releases) {
    lane.released = snapshot(lane);
    lane.hasReleased = true;
  }
}

void Machine::synchronise(Warp &warp, uint32_t mask) {
  Knowledge known, fenced;
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    Lane &lane = *warp.lanes[llvm::countr_zero(rest)];
    known.join(lane.known);
    fenced.join(lane.fenced);
  }
  auto times = known.own ? std::make_shared<Times>(*known.own)
                         : std::make_shared<Times>();
  if (times->size() < threads)
    times->resize(threads);
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    Lane &lane = *warp.lanes[llvm::countr_zero(rest)];
    (*times)[lane.party] = lane.time++;
  }
  known.own = std::move(times);
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    Lane &lane = *warp.lanes[llvm::countr_zero(rest)];
    lane.known = known;
    lane.fenced = fenced;
  }
}
