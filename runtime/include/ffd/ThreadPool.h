//===- ThreadPool.h - A persistent pool for parallel loops ------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Threads that stay alive between calls and take the tasks of one loop at a
// time from an atomic counter. Which thread runs a task is not determined;
// whoever uses the pool makes results depend on the task index only.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_THREADPOOL_H
#define FFD_THREADPOOL_H

#include <cstdint>
#include <functional>
#include <memory>

namespace ffd {

class ThreadPool {
public:
  /// `threads` counts the caller of parallelFor; 0 means every core that this
  /// process may run on. Where the system grants fewer, the pool has fewer.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  int threads() const;

  /// Runs task(0) .. task(count - 1), in any order, and returns when all are
  /// done; what they wrote is then visible to the caller. Calls from several
  /// threads run one after the other; a call from inside a task runs its loop
  /// in that task. Tasks must not throw.
  void parallelFor(int64_t count, const std::function<void(int64_t)> &task);

  /// Cores that this process may run on.
  static int availableCores();

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace ffd
#endif // FFD_THREADPOOL_H
