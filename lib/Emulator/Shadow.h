//===- Shadow.h - What happened to each byte ------------------ -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The latest write of every byte of a piece of memory and the reads since, each
// as who, when and where: what is needed to tell whether an access is ordered
// with the ones before it.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_EMULATOR_SHADOW_H
#define FFD_LIB_EMULATOR_SHADOW_H

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <cstdint>
#include <vector>

namespace ffd::emulator {

/// One access. `who` counts from 1; 0: none. `what` has the place and flags.
struct Epoch {
  uint32_t who = 0, time = 0, what = 0;
  static constexpr uint32_t kAtomic = 1u << 31, kBlockScope = 1u << 30;
  static constexpr uint32_t kPlace = kBlockScope - 1;
  bool operator==(const Epoch &o) const {
    return who == o.who && time == o.time && what == o.what;
  }
};

class Shadow {
public:
  struct Cell {
    Epoch write, read;
  };
  /// `who` of a read that stands for a set of reads, of index `time`.
  static constexpr uint32_t kMany = ~0u;

  Shadow() = default;
  ~Shadow();
  Shadow(const Shadow &) = delete;
  Shadow &operator=(const Shadow &) = delete;
  /// Forgets everything.
  void reset(size_t bytes);
  bool empty() const { return !cells; }
  Cell &at(size_t i) { return cells[i]; }

  /// Adds a read that the present one may not be ordered before.
  void addRead(Cell &cell, Epoch read);
  /// Calls `function` for each read until one returns true.
  bool anyRead(const Cell &cell, llvm::function_ref<bool(const Epoch &)> f);
  void setWrite(Cell &cell, Epoch write);

private:
  struct Time {
    uint32_t time, what;
  };
  using Reads = llvm::SmallDenseMap<uint32_t, Time, 8>;
  Cell *cells = nullptr;
  size_t bytes = 0;
  std::vector<Reads> sets;
  std::vector<uint32_t> freeSets;
};

} // namespace ffd::emulator

#endif // FFD_LIB_EMULATOR_SHADOW_H
