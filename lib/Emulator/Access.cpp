//===- Access.cpp - Checks of memory accesses -----------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bounds, alignment, reads of unwritten shared memory, and the happens-before
// check of two conflicting accesses. What orders lanes is in HappensBefore.cpp.
//
//===----------------------------------------------------------------------===//

#include "Machine.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace ffd::emulator;

void Machine::addBuffer(uintptr_t begin, size_t bytes, bool readOnly,
                        std::string name) {
  RegisteredBuffer buffer{begin, begin + bytes, readOnly, std::move(name), {}};
  if (!readOnly && options.checkRaces) {
    buffer.shadow = std::make_unique<Shadow>();
    buffer.shadow->reset(bytes);
  }
  auto at = std::upper_bound(
      buffers.begin(), buffers.end(), begin,
      [](uintptr_t b, const RegisteredBuffer &x) { return b < x.begin; });
  buffers.insert(at, std::move(buffer));
}

RegisteredBuffer *Machine::bufferAt(uintptr_t address) {
  if (lastBuffer && address >= lastBuffer->begin && address < lastBuffer->end)
    return lastBuffer;
  auto at = std::upper_bound(
      buffers.begin(), buffers.end(), address,
      [](uintptr_t b, const RegisteredBuffer &x) { return b < x.begin; });
  if (at == buffers.begin())
    return nullptr;
  --at;
  if (address >= at->end)
    return nullptr;
  return lastBuffer = &*at;
}

std::string Machine::describeAddress(uintptr_t address, const Block &block) {
  // The nearest thing tells more than a number.
  constexpr uintptr_t near = 1 << 20;
  if (address - block.shared < sharedBytes + near ||
      block.shared - address <= kMaxMbarriers * 64) {
    return "shared offset " +
           llvm::itostr(int64_t(address) - int64_t(block.shared)) + " of " +
           llvm::utostr(sharedBytes) + " bytes";
  }
  const RegisteredBuffer *best = nullptr;
  uintptr_t distance = near;
  for (const RegisteredBuffer &buffer : buffers) {
    uintptr_t d = address >= buffer.end    ? address - buffer.end
                  : address < buffer.begin ? buffer.begin - address
                                           : 0;
    if (d < distance) {
      distance = d;
      best = &buffer;
    }
  }
  if (!best)
    return "address 0x" + llvm::utohexstr(address);
  return "offset " + llvm::itostr(int64_t(address) - int64_t(best->begin)) +
         " of buffer '" + best->name + "' (" +
         llvm::utostr(best->end - best->begin) + " bytes)";
}

static const char *verb(int flags) {
  if (flags & Machine::AtomicAccess)
    return "atomic access";
  if (flags & Machine::Prefetch)
    return "prefetch";
  return flags & Machine::Write ? "write" : "read";
}

/// The shadow memory of an access that is within bounds, or null if there is
/// nothing more to check.
Shadow *Machine::locate(Lane &lane, uintptr_t address, uint32_t bytes,
                        uint32_t alignment, int flags, uint32_t place,
                        uint64_t &offset) {
  Block &block = *lane.block;
  auto error = [&](const char *what) {
    fail(lane, place,
         std::string(what) + ": " + llvm::utostr(bytes) + "-byte " +
             verb(flags) + " at " + describeAddress(address, block) + " by " +
             describe(lane));
  };
  if (alignment > 1 && address % alignment)
    error("misaligned access");
  offset = address - block.shared;
  if (offset < sharedBytes) {
    if (bytes > sharedBytes - offset)
      error("out-of-bounds access");
    return block.shadow.empty() ? nullptr : &block.shadow;
  }
  if (address >= lane.stackBegin && address < lane.stackEnd)
    return nullptr;
  RegisteredBuffer *buffer = bufferAt(address);
  if (!buffer || bytes > buffer->end - address)
    error("out-of-bounds access");
  if (buffer->readOnly && (flags & Write))
    error("write to a read-only buffer");
  offset = address - buffer->begin;
  return buffer->shadow.get();
}

void Machine::race(Lane &lane, const Epoch &other, bool otherWrites,
                   const char *what, uint64_t offset, bool shared,
                   uint32_t place) {
  uint32_t otherPlace = other.what & Epoch::kPlace;
  fail(lane, place,
       std::string("race: ") + what + " of " + (shared ? "shared" : "global") +
           " memory at offset " + llvm::utostr(offset) + " by " +
           describe(lane) + " is not ordered after the " +
           (otherWrites ? "write" : "read") + " by " +
           describeParty(other.who - 1) + " at '" + describePlace(otherPlace) +
           "'",
       otherPlace);
}

/// Two atomic accesses do not race if each's scope includes the other.
static bool compatible(const Epoch &a, const Epoch &b, uint32_t parties) {
  if (!(a.what & b.what & Epoch::kAtomic))
    return false;
  bool sameBlock = (a.who - 1) / parties == (b.who - 1) / parties;
  return sameBlock || !((a.what | b.what) & Epoch::kBlockScope);
}

void Machine::checkCells(Lane &lane, Shadow &shadow, uint64_t offset,
                         uint32_t bytes, int flags, uint32_t place,
                         bool shared) {
  uint32_t me = who(lane) + 1;
  Epoch now{me, lane.time, place};
  if (flags & AtomicAccess)
    now.what |= Epoch::kAtomic | (flags & BlockScope ? Epoch::kBlockScope : 0);
  Epoch goodWrite, goodRead; // neighbouring bytes mostly look the same
  for (uint32_t i = 0; i < bytes; ++i) {
    Shadow::Cell &cell = shadow.at(offset + i);
    const Epoch &w = cell.write;
    if (!w.who) {
      if (shared && (flags & Read) && options.checkUninitialized)
        fail(lane, place,
             "read of shared memory that nothing wrote, at offset " +
                 llvm::utostr(offset + i) + " by " + describe(lane));
    } else if (options.checkRaces && w.who != me && !(w == goodWrite)) {
      if (!compatible(w, now, parties) &&
          !knows(lane.known, lane, w.who - 1, w.time))
        race(lane, w, true, verb(flags), offset + i, shared, place);
      goodWrite = w;
    }
    if (!options.checkRaces) {
      if (flags & Write)
        cell.write = now;
      continue;
    }
    if (flags & Write) {
      if (cell.read.who && cell.read.who != me && !(cell.read == goodRead)) {
        Epoch bad;
        if (shadow.anyRead(cell, [&](const Epoch &r) {
              bad = r;
              return r.who != me && !compatible(r, now, parties) &&
                     !knows(lane.known, lane, r.who - 1, r.time);
            }))
          race(lane, bad, false, verb(flags), offset + i, shared, place);
        if (cell.read.who != Shadow::kMany)
          goodRead = cell.read;
      }
      shadow.setWrite(cell, now);
    } else if (!cell.read.who || cell.read.who == me) {
      cell.read = now;
    } else if (cell.read.who != Shadow::kMany &&
               (cell.read == goodRead ||
                knows(lane.known, lane, cell.read.who - 1, cell.read.time))) {
      goodRead = cell.read;
      cell.read = now;
    } else {
      shadow.addRead(cell, now);
    }
  }
}

void Machine::access(uintptr_t address, uint32_t bytes, uint32_t alignment,
                     int flags, uint32_t place) {
  step(place);
  maybePreempt();
  running->place = place;
  accessFor(*running, address, bytes, alignment, flags, place);
}

void Machine::accessFor(Lane &lane, uintptr_t address, uint32_t bytes,
                        uint32_t alignment, int flags, uint32_t place) {
  uint64_t offset;
  if (!bytes || !options.checkMemory)
    return;
  Shadow *shadow =
      locate(lane, address, bytes, alignment, flags, place, offset);
  if (shadow && !(flags & Prefetch))
    checkCells(lane, *shadow, offset, bytes, flags, place,
               shadow == &lane.block->shadow);
}

void Machine::asyncAccess(Lane &lane, uintptr_t address, uint32_t bytes,
                          uint32_t alignment, int flags, uint32_t place,
                          uint32_t party, uint32_t time, bool proxy) {
  if (!options.checkMemory || !bytes)
    return;
  uint64_t offset;
  Shadow *shadow =
      locate(lane, address, bytes, alignment, flags, place, offset);
  if (!shadow)
    return;
  bool shared = shadow == &lane.block->shadow;
  Epoch now{lane.block->index * parties + party + 1, time, place};
  const char *what = flags & Write ? "asynchronous write" : "asynchronous read";
  Epoch goodWrite, goodRead;
  for (uint32_t i = 0; i < bytes; ++i) {
    Shadow::Cell &cell = shadow->at(offset + i);
    const Epoch &w = cell.write;
    if (!w.who && shared && (flags & Read) && options.checkUninitialized)
      fail(lane, place,
           "asynchronous read of shared memory that nothing wrote, at offset " +
               llvm::utostr(offset + i) + " by " + describe(lane));
    if (w.who && options.checkRaces && !(w == goodWrite)) {
      uint32_t other = w.who - 1;
      if (!knows(lane.known, lane, other, w.time))
        race(lane, w, true, what, offset + i, shared, place);
      // What the generic proxy wrote needs a fence as well.
      uint32_t otherParty = other % parties, otherBlock = other / parties;
      if (proxy && otherParty < 2 * threads) {
        uint32_t fencedTime =
            otherBlock == lane.block->index
                ? lane.fenced.ownTime(otherParty)
                : lane.fenced.foreignTime(otherBlock, otherParty);
        if (fencedTime < w.time)
          fail(lane, place,
               std::string("missing proxy fence: ") + what + " of " +
                   (shared ? "shared" : "global") + " memory at offset " +
                   llvm::utostr(offset + i) + " by " + describe(lane) +
                   " follows the write by " + describeParty(other) + " at '" +
                   describePlace(w.what & Epoch::kPlace) +
                   "' without fence.proxy.async",
               w.what & Epoch::kPlace);
      }
      goodWrite = w;
    }
    if (!options.checkRaces) {
      if (flags & Write)
        cell.write = now;
      continue;
    }
    if (flags & Write) {
      if (cell.read.who && !(cell.read == goodRead)) {
        Epoch bad;
        if (shadow->anyRead(cell, [&](const Epoch &r) {
              bad = r;
              return !knows(lane.known, lane, r.who - 1, r.time);
            }))
          race(lane, bad, false, what, offset + i, shared, place);
        if (cell.read.who != Shadow::kMany)
          goodRead = cell.read;
      }
      shadow->setWrite(cell, now);
    } else if (!cell.read.who) {
      cell.read = now;
    } else {
      shadow->addRead(cell, now);
    }
  }
}
