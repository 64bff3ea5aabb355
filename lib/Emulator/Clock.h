//===- Clock.h - Vector clocks -------------------------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Who knows of whose accesses. A *party* is a lane, or what copies data for a
// lane or an mbarrier in the background; it counts its own time. What a party
// knows of others is an immutable vector that parties share after they
// synchronise, so that a barrier costs one join and not one per lane.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_EMULATOR_CLOCK_H
#define FFD_LIB_EMULATOR_CLOCK_H

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace ffd::emulator {

/// Times of the parties of one block; missing ones are 0.
using Times = std::vector<uint32_t>;
using TimesRef = std::shared_ptr<const Times>;

/// The element-wise maximum; shares an operand where that is it. The lanes of a
/// warp ask the same question one after the other, so the last answer is kept.
inline TimesRef join(const TimesRef &a, const TimesRef &b) {
  if (a == b || !b)
    return a;
  if (!a)
    return b;
  static thread_local TimesRef lastA, lastB, lastResult;
  if (a == lastA && b == lastB)
    return lastResult;
  auto result = std::make_shared<Times>(*a);
  if (result->size() < b->size())
    result->resize(b->size());
  for (size_t i = 0, e = b->size(); i < e; ++i)
    if ((*b)[i] > (*result)[i])
      (*result)[i] = (*b)[i];
  lastA = a;
  lastB = b;
  lastResult = std::move(result);
  return lastResult;
}

/// Times of parties of all blocks, seen from one block.
struct Knowledge {
  using Foreign = std::map<uint32_t, TimesRef>;

  TimesRef own;                           ///< the block's parties
  std::shared_ptr<const Foreign> foreign; ///< of other blocks, by block

  uint32_t ownTime(uint32_t party) const {
    return own && party < own->size() ? (*own)[party] : 0;
  }
  uint32_t foreignTime(uint32_t block, uint32_t party) const {
    if (!foreign)
      return 0;
    auto it = foreign->find(block);
    return it != foreign->end() && party < it->second->size()
               ? (*it->second)[party]
               : 0;
  }
  /// Learns what somebody of the same block knows.
  void join(const Knowledge &other) {
    own = emulator::join(own, other.own);
    joinForeign(other.foreign);
  }
  /// Learns what somebody of block `from` knows; this is of block `here`.
  void joinFrom(const Knowledge &other, uint32_t from, uint32_t here) {
    if (from == here)
      return join(other);
    Foreign all = foreign ? *foreign : Foreign();
    auto learn = [&](uint32_t block, const TimesRef &times) {
      if (block == here)
        own = emulator::join(own, times);
      else
        all[block] = emulator::join(all[block], times);
    };
    if (other.own)
      learn(from, other.own);
    if (other.foreign)
      for (auto &[block, times] : *other.foreign)
        learn(block, times);
    foreign = std::make_shared<const Foreign>(std::move(all));
  }
  /// Sets the time of one party of the own block.
  void set(uint32_t party, uint32_t time) {
    auto times =
        own ? std::make_shared<Times>(*own) : std::make_shared<Times>();
    if (times->size() <= party)
      times->resize(party + 1);
    if ((*times)[party] < time)
      (*times)[party] = time;
    own = std::move(times);
  }

private:
  void joinForeign(const std::shared_ptr<const Foreign> &other) {
    if (foreign == other || !other)
      return;
    if (!foreign) {
      foreign = other;
      return;
    }
    Foreign all = *foreign;
    for (auto &[block, times] : *other)
      all[block] = emulator::join(all[block], times);
    foreign = std::make_shared<const Foreign>(std::move(all));
  }
};

} // namespace ffd::emulator

#endif // FFD_LIB_EMULATOR_CLOCK_H
