//===- Fiber.h - Contexts of lanes ---------------------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A lane's execution context: a stack of its own, entered by the system's
// makecontext and then switched with _setjmp and _longjmp, which unlike
// swapcontext make no system call.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_EMULATOR_FIBER_H
#define FFD_LIB_EMULATOR_FIBER_H

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ffd::emulator {

class Fiber {
public:
  using Entry = void (*)(void *);

  /// Makes the next `resume` call `entry(argument)` on the given stack. A fiber
  /// that stopped half way is simply abandoned; `entry` must never return.
  void reset(void *stack, size_t bytes, Entry entry, void *argument);
  /// Runs the fiber until it suspends. Not from within a fiber.
  void resume();
  /// Back to whoever resumed; from within the fiber.
  void suspend();

private:
  static void trampoline(unsigned high, unsigned low);
  jmp_buf inside, outside;
  Entry entry = nullptr;
  void *argument = nullptr;
  void *stack = nullptr;
  size_t bytes = 0;
  bool started = false;
};

/// Stacks of one size in one mapping, each with an inaccessible page below, so
/// that an overflow cannot reach a neighbour.
class StackPool {
public:
  StackPool(size_t count, size_t bytes);
  ~StackPool();
  StackPool(const StackPool &) = delete;
  StackPool &operator=(const StackPool &) = delete;
  bool valid() const { return base != nullptr; }
  void *stack(size_t i) const;
  size_t stackBytes() const { return bytes - kGuard; }

private:
  static constexpr size_t kGuard = 4096;
  size_t count, bytes;
  char *base = nullptr;
};

} // namespace ffd::emulator

#endif // FFD_LIB_EMULATOR_FIBER_H
