//===- WarpInstructions.cpp - Exchanges between lanes ---------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// shfl, vote, match, redux and the warp barrier, as PTX defines them over the
// lanes of a mask.
//
//===----------------------------------------------------------------------===//

#include "Float16.h"
#include "Machine.h"

#include "llvm/ADT/bit.h"

#include <algorithm>

using namespace ffd::emulator;

template <typename F>
static void forLanes(uint32_t mask, F f) {
  for (; mask; mask &= mask - 1)
    f(unsigned(llvm::countr_zero(mask)));
}

static uint64_t input(Machine &m, Warp &w, const Instruction &i, size_t operand,
                      uint64_t *const *regs, unsigned lane) {
  return read(m, *w.lanes[lane], i.operands[operand], regs[lane]);
}

// shfl.sync.mode.b32 d{|p}, a, b, c, mask: a: mode, b: has p.
static void shuffle(Machine &m, Warp &w, const Instruction &i,
                    uint64_t *const *regs, uint32_t mask) {
  uint64_t values[32] = {}, results[32];
  bool valid[32];
  size_t first = i.b ? 2 : 1;
  forLanes(mask,
           [&](unsigned l) { values[l] = input(m, w, i, first, regs, l); });
  forLanes(mask, [&](unsigned l) {
    uint32_t b = uint32_t(input(m, w, i, first + 1, regs, l)) & 31;
    uint32_t c = uint32_t(input(m, w, i, first + 2, regs, l));
    int clamp = c & 31, segment = c >> 8 & 31;
    int maxLane = (int(l) & segment) | (clamp & ~segment);
    int minLane = int(l) & segment;
    int from = 0;
    bool ok = false;
    switch (i.a) {
    case 0: // up
      from = int(l) - int(b);
      ok = from >= maxLane;
      break;
    case 1: // down
      from = int(l) + int(b);
      ok = from <= maxLane;
      break;
    case 2: // bfly
      from = int(l) ^ int(b);
      ok = from <= maxLane;
      break;
    default: // idx
      from = minLane | (int(b) & ~segment);
      ok = from <= maxLane;
      break;
    }
    if (!ok)
      from = int(l);
    if (!(mask >> from & 1))
      m.fail(*w.lanes[l], w.lanes[l]->place,
             "'" + i.text + "' reads a lane that is not in its mask");
    results[l] = values[from];
    valid[l] = ok;
  });
  forLanes(mask, [&](unsigned l) {
    write(i.operands[0], regs[l], uint32_t(results[l]));
    if (i.b)
      write(i.operands[1], regs[l], valid[l]);
  });
}

// vote.sync.mode d, p, mask: a: mode.
static void vote(Machine &m, Warp &w, const Instruction &i,
                 uint64_t *const *regs, uint32_t mask) {
  uint32_t ballot = 0;
  forLanes(mask, [&](unsigned l) {
    ballot |= uint32_t(input(m, w, i, 1, regs, l) & 1) << l;
  });
  uint32_t result = 0;
  switch (i.a) {
  case 0:
    result = ballot == mask;
    break;
  case 1:
    result = ballot != 0;
    break;
  case 2:
    result = ballot == 0 || ballot == mask;
    break;
  default:
    result = ballot;
  }
  forLanes(mask, [&](unsigned l) { write(i.operands[0], regs[l], result); });
}

// match.any/all.sync.type d{|p}, a, mask: a: all, b: has p.
static void match(Machine &m, Warp &w, const Instruction &i,
                  uint64_t *const *regs, uint32_t mask) {
  uint64_t values[32] = {};
  uint64_t wide = i.has("b64") ? ~uint64_t(0) : 0xFFFFFFFF;
  forLanes(mask, [&](unsigned l) {
    values[l] = input(m, w, i, i.b ? 2 : 1, regs, l) & wide;
  });
  forLanes(mask, [&](unsigned l) {
    uint32_t same = 0;
    forLanes(mask, [&](unsigned k) {
      same |= uint32_t(values[k] == values[l]) << k;
    });
    if (i.a && same != mask)
      same = 0;
    write(i.operands[0], regs[l], same);
    if (i.b)
      write(i.operands[1], regs[l], same == mask);
  });
}

// redux.sync.op.type d, a, mask.
static void redux(Machine &m, Warp &w, const Instruction &i,
                  uint64_t *const *regs, uint32_t mask) {
  llvm::StringRef op = i.part(2);
  bool isSigned = i.has("s32"), isFloat = i.has("f32"), first = true;
  uint32_t result = 0;
  forLanes(mask, [&](unsigned l) {
    uint32_t x = uint32_t(input(m, w, i, 1, regs, l));
    if (isFloat && i.has("abs"))
      x &= 0x7FFFFFFF;
    if (first) {
      result = x;
    } else if (isFloat) {
      float a = bitsToFloat(result), b = bitsToFloat(x);
      if (i.has("NaN") && (std::isnan(a) || std::isnan(b)))
        result = 0x7FFFFFFF;
      else
        result = floatToBits(op == "min" ? std::fmin(a, b) : std::fmax(a, b));
    } else if (op == "add") {
      result += x;
    } else if (op == "and") {
      result &= x;
    } else if (op == "or") {
      result |= x;
    } else if (op == "xor") {
      result ^= x;
    } else if (isSigned) {
      result = op == "min" ? std::min(int32_t(result), int32_t(x))
                           : std::max(int32_t(result), int32_t(x));
    } else {
      result = op == "min" ? std::min(result, x) : std::max(result, x);
    }
    first = false;
  });
  forLanes(mask, [&](unsigned l) { write(i.operands[0], regs[l], result); });
}

static void syncWarp(Machine &m, Warp &w, const Instruction &,
                     uint64_t *const *, uint32_t mask) {
  m.synchronise(w, mask);
  m.maybePreempt();
}

static void elect(Machine &, Warp &, const Instruction &i,
                  uint64_t *const *regs, uint32_t mask) {
  unsigned leader = unsigned(llvm::countr_zero(mask));
  forLanes(mask, [&](unsigned l) {
    write(i.operands[0], regs[l], leader);
    write(i.operands[1], regs[l], l == leader);
  });
}

static void activeMask(Machine &, Lane &lane, const Instruction &i,
                       uint64_t *regs) {
  // Lanes are not converged unless a collective says so.
  write(i.operands[0], regs, uint64_t(1) << lane.index);
}

bool ffd::emulator::resolveWarp(Instruction &i) {
  llvm::StringRef name = i.part(0);
  size_t n = i.operands.size();
  i.maskOperand = int(n) - 1;
  if (name == "shfl" && i.part(1) == "sync") {
    llvm::StringRef mode = i.part(2);
    i.a = mode == "up" ? 0 : mode == "down" ? 1 : mode == "bfly" ? 2 : 3;
    i.b = n == 6;
    i.collective = shuffle;
    return n == 5 || n == 6;
  }
  if (name == "vote" && i.part(1) == "sync") {
    llvm::StringRef mode = i.part(2);
    i.a = mode == "all" ? 0 : mode == "any" ? 1 : mode == "uni" ? 2 : 3;
    i.collective = vote;
    return n == 3;
  }
  if (name == "match") {
    i.a = i.has("all");
    i.b = n == 4;
    i.collective = match;
    return n == 3 || n == 4;
  }
  if (name == "redux") {
    i.collective = redux;
    return n == 3;
  }
  if (name == "elect") {
    i.collective = elect;
    return n == 3;
  }
  if (name == "bar" && i.part(1) == "warp") {
    i.collective = syncWarp;
    return n == 1;
  }
  if (name == "activemask") {
    i.execute = activeMask;
    return n == 1;
  }
  i.maskOperand = -1;
  return false;
}
