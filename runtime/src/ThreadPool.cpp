//===- ThreadPool.cpp - A persistent pool for parallel loops -----------------
//===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Workers sleep between loops. A loop is a generation number, a task and an
// atomic counter; the calling thread works too and then waits for the last
// worker to leave the loop, so that nothing outlives the call.
//
//===----------------------------------------------------------------------===//

#include "ffd/ThreadPool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <pthread.h>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

using namespace ffd;

namespace {
/// The pool whose loop the current thread is inside of, for nested calls.
thread_local const void *currentPool = nullptr;
} // namespace

struct ThreadPool::State {
  std::vector<pthread_t> workers;
  std::mutex callers; ///< held for the length of one loop
  std::mutex mutex;   ///< guards everything below but `next`
  std::condition_variable start, done;
  const std::function<void(int64_t)> *task = nullptr;
  int64_t count = 0;
  uint64_t generation = 0;
  int working = 0;
  bool stopping = false;
  std::atomic<int64_t> next{0};

  void drain() {
    const void *outer = currentPool;
    currentPool = this;
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;)
      (*task)(i);
    currentPool = outer;
  }

  void work() {
    uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      start.wait(lock, [&] { return stopping || generation != seen; });
      if (stopping)
        return;
      seen = generation;
      lock.unlock();
      drain();
      lock.lock();
      if (--working == 0)
        done.notify_one();
    }
  }

  static void *entry(void *self) {
    static_cast<State *>(self)->work();
    return nullptr;
  }
};

int ThreadPool::availableCores() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

ThreadPool::ThreadPool(int threads) : state(new State) {
  if (threads <= 0)
    threads = availableCores();
  // Plain pthreads: std::thread reports a refusal by an exception.
  for (int i = 1; i < threads; ++i) {
    pthread_t worker;
    if (pthread_create(&worker, nullptr, State::entry, state.get()) != 0)
      break;
    state->workers.push_back(worker);
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(state->mutex);
    state->stopping = true;
  }
  state->start.notify_all();
  for (pthread_t worker : state->workers)
    pthread_join(worker, nullptr);
}

int ThreadPool::threads() const { return int(state->workers.size()) + 1; }

void ThreadPool::parallelFor(int64_t count,
                             const std::function<void(int64_t)> &task) {
  if (count <= 1 || state->workers.empty() || currentPool == state.get()) {
    for (int64_t i = 0; i < count; ++i)
      task(i);
    return;
  }
  std::lock_guard<std::mutex> loop(state->callers);
  {
    std::lock_guard<std::mutex> lock(state->mutex);
    state->task = &task;
    state->count = count;
    state->next.store(0, std::memory_order_relaxed);
    state->working = int(state->workers.size());
    ++state->generation;
  }
  state->start.notify_all();
  state->drain();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->done.wait(lock, [&] { return state->working == 0; });
}
