//===- Fiber.cpp - Contexts of lanes --------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The first entry of a stack goes through ucontext; every later switch is a
// _setjmp and a _longjmp. The checked longjmp of _FORTIFY_SOURCE refuses to
// change stacks and is turned off for this file.
//
//===----------------------------------------------------------------------===//

#undef _FORTIFY_SOURCE
#include "Fiber.h"

#include <cstdlib>
#include <sys/mman.h>
#include <ucontext.h>

using namespace ffd::emulator;

void Fiber::reset(void *newStack, size_t newBytes, Entry newEntry,
                  void *newArgument) {
  stack = newStack;
  bytes = newBytes;
  entry = newEntry;
  argument = newArgument;
  started = false;
}

void Fiber::trampoline(unsigned high, unsigned low) {
  auto *self = reinterpret_cast<Fiber *>((uint64_t(high) << 32) | low);
  self->entry(self->argument);
  std::abort(); // entry suspends for good instead
}

void Fiber::resume() {
  if (_setjmp(outside))
    return;
  if (started)
    _longjmp(inside, 1);
  started = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  uint64_t self = reinterpret_cast<uint64_t>(this);
  makecontext(&context, reinterpret_cast<void (*)()>(trampoline), 2,
              unsigned(self >> 32), unsigned(self));
  setcontext(&context);
}

void Fiber::suspend() {
  if (_setjmp(inside))
    return;
  _longjmp(outside, 1);
}

StackPool::StackPool(size_t count, size_t bytes) : count(count), bytes(bytes) {
  void *map = mmap(nullptr, count * bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED)
    return;
  base = static_cast<char *>(map);
  for (size_t i = 0; i < count; ++i)
    mprotect(base + i * bytes, kGuard, PROT_NONE);
}

StackPool::~StackPool() {
  if (base)
    munmap(base, count * bytes);
}

void *StackPool::stack(size_t i) const { return base + i * bytes + kGuard; }
