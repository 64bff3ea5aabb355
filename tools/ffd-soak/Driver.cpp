//===- Driver.cpp - Streams, graphs and memory of a GPU ------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Driver.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

using namespace soak;

namespace {

using Address = unsigned long long;

template <typename... Args>
void call(const char *name, Args... args) {
  static void *library = dlopen("libcuda.so.1", RTLD_NOW);
  void *symbol = library ? dlsym(library, name) : nullptr;
  if (!symbol) {
    std::fprintf(stderr, "ffd-soak: no CUDA driver with %s here\n", name);
    std::exit(2);
  }
  const int result = reinterpret_cast<int (*)(Args...)>(symbol)(args...);
  if (result != 0) {
    std::fprintf(stderr, "ffd-soak: %s returns %d\n", name, result);
    std::exit(2);
  }
}

Address addressOf(const void *pointer) {
  return reinterpret_cast<Address>(pointer);
}

} // namespace

Driver::Driver(int device) {
  int handle;
  void *context;
  call("cuInit", 0u);
  call("cuDeviceGet", &handle, device);
  call("cuDevicePrimaryCtxRetain", &context, handle);
  call("cuCtxSetCurrent", context);
  call("cuStreamCreate", &queue, 1u);
}

void *Driver::allocate(size_t bytes) const {
  Address memory;
  call("cuMemAlloc_v2", &memory, bytes);
  return reinterpret_cast<void *>(memory);
}
void Driver::upload(void *to, const void *host, size_t bytes) const {
  call("cuMemcpyHtoDAsync_v2", addressOf(to), host, bytes, queue);
}
void Driver::download(void *host, const void *from, size_t bytes) const {
  call("cuMemcpyDtoHAsync_v2", host, addressOf(from), bytes, queue);
  wait();
}
void Driver::fill(void *to, int value, size_t bytes) const {
  call("cuMemsetD8Async", addressOf(to), static_cast<unsigned char>(value),
       bytes, queue);
}
void Driver::wait() const { call("cuStreamSynchronize", queue); }
void Driver::beginCapture() const { call("cuStreamBeginCapture_v2", queue, 1); }
void *Driver::endCapture() const {
  void *graph, *executable;
  call("cuStreamEndCapture", queue, &graph);
  call("cuGraphInstantiateWithFlags", &executable, graph, 0ull);
  return executable;
}
void Driver::replay(void *graph) const { call("cuGraphLaunch", graph, queue); }
void Driver::destroy(void *graph) const { call("cuGraphExecDestroy", graph); }
