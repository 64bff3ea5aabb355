//===- FakeCuda.cpp - A CUDA driver without a GPU ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A library with the symbols of libcuda whose device memory is host memory and
// whose launches call a function per CTA, so that the host side of the GPU path
// is tested everywhere.
//
//===----------------------------------------------------------------------===//

#include "FakeCuda.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

static FakeCudaState state = {};
/// Contexts are current for a thread.
static thread_local int depth = 0;

/// What a captured stream was given, run by each replay of its graph.
struct Graph {
  std::vector<std::function<void()>> work;
};
static Graph *recording = nullptr;
static unsigned long long captures = 0;
/// A stream other than the default one; all are done with all their work at
/// all times.
static int someStream;
/// The handles of the kernels "append" and "plan"; all others are `state`.
static int appendFunction, planFunction;

extern "C" {

FakeCudaState *fakeCudaState() {
  if (state.major == 0) {
    state.memoryLeft = state.copiesLeft = -1;
    state.major = 9;
  }
  return &state;
}

int cuInit(unsigned) { return fakeCudaState()->initResult; }
int cuDriverGetVersion(int *v) { return *v = 12040, 0; }
int cuGetErrorName(int, const char **n) { return *n = "CUDA_ERROR_FAKE", 0; }
int cuGetErrorString(int, const char **s) { return *s = "as told", 0; }
int cuDeviceGetCount(int *n) { return *n = 1, 0; }
int cuDeviceGet(int *d, int i) { return *d = i, 0; }
int cuDeviceGetName(char *name, int size, int) {
  return std::snprintf(name, size_t(size), "Fake GPU"), 0;
}
int cuDeviceGetAttribute(int *value, int which, int) {
  *value = which == 75   ? state.major
           : which == 76 ? state.minor
           : which == 16 ? 4
           : which == 97 ? 232448
                         : -1;
  return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int) { return *bytes = 1 << 30, 0; }
int cuDevicePrimaryCtxRetain(void **c, int) {
  ++state.retains;
  return *c = &state, 0;
}
int cuDevicePrimaryCtxRelease_v2(int) { return --state.retains, 0; }
int cuCtxPushCurrent_v2(void *) { return ++depth, ++state.contextDepth, 0; }
int cuCtxPopCurrent_v2(void **) { return --depth, --state.contextDepth, 0; }
int cuCtxSynchronize() { return depth == 1 ? 0 : 201; }

int cuModuleLoadDataEx(void **m, const void *image, unsigned count,
                       int *options, void **values) {
  const char *text = static_cast<const char *>(image);
  if (std::strstr(text, ".version 9.9"))
    return 222;
  if (std::strncmp(text, "bad", 3) == 0) {
    for (unsigned i = 0; i < count; ++i)
      if (options[i] == 5)
        std::strcpy(static_cast<char *>(values[i]), "ptxas says: line 7");
    return 218;
  }
  ++state.liveModules;
  return *m = &state, 0;
}
// The assembler: "machine code of " and the text.
int cuLinkCreate_v2(unsigned, int *, void **, void **link) {
  return *link = new std::string("machine code of "), 0;
}
int cuLinkAddData_v2(void *link, int, void *data, size_t, const char *,
                     unsigned, int *, void **) {
  const char *text = static_cast<const char *>(data);
  if (std::strstr(text, ".version 9.9"))
    return 222;
  *static_cast<std::string *>(link) += text;
  return std::strncmp(text, "bad", 3) == 0 ? 218 : 0;
}
int cuLinkComplete(void *link, void **code, size_t *size) {
  auto *text = static_cast<std::string *>(link);
  return *code = text->data(), *size = text->size(), 0;
}
int cuLinkDestroy(void *link) {
  return delete static_cast<std::string *>(link), 0;
}
int cuModuleUnload(void *) { return --state.liveModules, 0; }
int cuModuleGetFunction(void **f, void *, const char *name) {
  if (std::strcmp(name, "append") == 0)
    return *f = &appendFunction, 0;
  if (std::strcmp(name, "plan") == 0)
    return *f = &planFunction, 0;
  for (const char *known : {"ffd_decode", "decode", "exact"})
    if (std::strcmp(name, known) == 0)
      return *f = &state, 0;
  return 500;
}
int cuFuncSetAttribute(void *, int which, int value) {
  if (which == 8)
    state.sharedOptIn = value;
  return 0;
}
int cuFuncGetAttribute(int *value, int which, void *) {
  return *value = which == 4 ? 168 : 0, 0;
}
static void runDecode(const ffdDecodeArgs &args, int64_t grid) {
  if (args.plan && state.kernel)
    return state.planned(&args);
  for (int64_t cta = 0; state.kernel && cta < grid; ++cta)
    state.kernel(&args, cta / args.splits, cta % args.splits);
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz,
                   unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **parameters, void **) {
  if (depth != 1 || gy * gz * by * bz != 1)
    return 1;
  ++state.launches;
  state.grid = gx;
  state.threads = int(bx);
  state.sharedBytes = int(shared);
  std::function<void()> work;
  if (function == &appendFunction) {
    const auto args = *static_cast<const ffdAppendArgs *>(parameters[0]);
    work = [args] { state.append(&args); };
  } else if (function == &planFunction) {
    const auto args = *static_cast<const ffdPlanArgs *>(parameters[0]);
    work = [args] {
      ++state.plans;
      state.plan(&args);
    };
  } else {
    const auto args = *static_cast<const ffdDecodeArgs *>(parameters[0]);
    work = [args, gx] { runDecode(args, gx); };
  }
  if (recording && stream == &someStream)
    recording->work.push_back(work);
  else
    work();
  return 0;
}
int cuMemAlloc_v2(unsigned long long *p, size_t bytes) {
  if (state.memoryLeft >= 0 && (state.memoryLeft -= int64_t(bytes)) < 0)
    return 2;
  void *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(memory, 0xFF, bytes); // never zero by luck
  ++state.liveAllocations;
  return *p = reinterpret_cast<unsigned long long>(memory), 0;
}
int cuMemFree_v2(unsigned long long p) {
  std::free(reinterpret_cast<void *>(p));
  return --state.liveAllocations, 0;
}
int cuMemcpyHtoD_v2(unsigned long long p, const void *host, size_t bytes) {
  return std::memcpy(reinterpret_cast<void *>(p), host, bytes), 0;
}
int cuMemcpyDtoH_v2(void *host, unsigned long long p, size_t bytes) {
  return std::memcpy(host, reinterpret_cast<void *>(p), bytes), 0;
}
int cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from,
                    size_t bytes) {
  return std::memmove(reinterpret_cast<void *>(to),
                      reinterpret_cast<void *>(from), bytes),
         0;
}
int cuMemcpyHtoDAsync_v2(unsigned long long p, const void *host, size_t bytes,
                         void *) {
  if (state.copiesLeft >= 0 && --state.copiesLeft < 0) {
    state.copiesLeft = 0;
    return 719; // CUDA_ERROR_LAUNCH_FAILED
  }
  return cuMemcpyHtoD_v2(p, host, bytes);
}
int cuMemcpyDtoHAsync_v2(void *host, unsigned long long p, size_t bytes,
                         void *) {
  return cuMemcpyDtoH_v2(host, p, bytes);
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from,
                         size_t bytes, void *) {
  return cuMemcpyDtoD_v2(to, from, bytes);
}
/// CUDA_MEMCPY2D, in words.
int cuMemcpy2DAsync_v2(const void *copy, void *) {
  const auto *c = static_cast<const size_t *>(copy);
  if (unsigned(c[2]) != 4 || unsigned(c[9]) != 4)
    return 1;
  for (size_t row = 0; row < c[15]; ++row)
    std::memcpy(reinterpret_cast<char *>(c[11]) + row * c[13],
                reinterpret_cast<char *>(c[4]) + row * c[6], c[14]);
  return 0;
}
int cuMemHostAlloc(void **p, size_t bytes, unsigned) {
  unsigned long long memory;
  const int result = cuMemAlloc_v2(&memory, bytes);
  return *p = reinterpret_cast<void *>(memory), result;
}
int cuMemFreeHost(void *p) {
  return cuMemFree_v2(reinterpret_cast<unsigned long long>(p));
}
int cuStreamSynchronize(void *) { return 0; }
#ifndef FFD_OLD_DRIVER
int cuStreamGetCaptureInfo_v2(void *stream, int *s, unsigned long long *id,
                              void *, void *, void *) {
  *id = captures;
  return *s = recording && stream == &someStream, 0;
}
#endif
int cuEventQuery(void *) { return state.pending ? 600 : 0; } // NOT_READY
int cuStreamCreate(void **s, unsigned) { return *s = &someStream, 0; }
int cuStreamDestroy_v2(void *) { return 0; }
int cuStreamBeginCapture_v2(void *, int) {
  ++captures;
  return recording = new Graph, 0;
}
int cuStreamEndCapture(void *, void **g) {
  *g = recording;
  recording = nullptr;
  return 0;
}
int cuGraphInstantiateWithFlags(void **e, void *g, unsigned long long) {
  return *e = new Graph(*static_cast<Graph *>(g)), 0;
}
int cuGraphLaunch(void *e, void *) {
  for (const auto &work : static_cast<Graph *>(e)->work)
    work();
  return 0;
}
int cuGraphDestroy(void *g) { return delete static_cast<Graph *>(g), 0; }
int cuGraphExecDestroy(void *e) { return delete static_cast<Graph *>(e), 0; }
int cuMemsetD8_v2(unsigned long long p, unsigned char value, size_t bytes) {
  return std::memset(reinterpret_cast<void *>(p), value, bytes), 0;
}
int cuMemsetD8Async(unsigned long long p, unsigned char value, size_t bytes,
                    void *) {
  return cuMemsetD8_v2(p, value, bytes);
}
int cuEventCreate(void **e, unsigned) { return *e = &state, 0; }
int cuEventDestroy_v2(void *) { return 0; }
int cuEventRecord(void *, void *) { return 0; }
int cuEventSynchronize(void *) { return 0; }
int cuEventElapsedTime(float *ms, void *, void *) { return *ms = 0.25f, 0; }

} // extern "C"
