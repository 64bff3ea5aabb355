//===- Shadow.cpp - What happened to each byte ----------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Cells live in zero pages of the system, so that untouched memory costs
// nothing.
//
//===----------------------------------------------------------------------===//

#include "Shadow.h"

#include <sys/mman.h>

using namespace ffd::emulator;

Shadow::~Shadow() {
  if (cells)
    munmap(cells, bytes * sizeof(Cell));
}

void Shadow::reset(size_t newBytes) {
  if (cells)
    munmap(cells, bytes * sizeof(Cell));
  cells = nullptr;
  bytes = newBytes;
  sets.clear();
  freeSets.clear();
  if (!bytes)
    return;
  void *map = mmap(nullptr, bytes * sizeof(Cell), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map != MAP_FAILED)
    cells = static_cast<Cell *>(map);
}

void Shadow::addRead(Cell &cell, Epoch read) {
  if (cell.read.who != kMany) {
    uint32_t set = uint32_t(sets.size());
    if (!freeSets.empty()) {
      set = freeSets.back();
      freeSets.pop_back();
    } else {
      sets.emplace_back();
    }
    sets[set][cell.read.who] = {cell.read.time, cell.read.what};
    cell.read = {kMany, set, 0};
  }
  sets[cell.read.time][read.who] = {read.time, read.what};
}

bool Shadow::anyRead(const Cell &cell,
                     llvm::function_ref<bool(const Epoch &)> f) {
  if (!cell.read.who)
    return false;
  if (cell.read.who != kMany)
    return f(cell.read);
  for (auto &[who, time] : sets[cell.read.time])
    if (f({who, time.time, time.what}))
      return true;
  return false;
}

void Shadow::setWrite(Cell &cell, Epoch write) {
  cell.write = write;
  if (cell.read.who == kMany) {
    sets[cell.read.time].clear();
    freeSets.push_back(cell.read.time);
  }
  cell.read = {};
}
