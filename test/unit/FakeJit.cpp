//===- FakeJit.cpp - A compiler library that compiles nothing ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Implements Jit.h: a CPU kernel that does nothing, GPU packages of a text, and
// an error for group 13.
//
//===----------------------------------------------------------------------===//

#include "ffd/Jit.h"
#include "ffd/Package.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

using namespace ffd;

namespace {
void doNothing(const ffdDecodeArgs *, int64_t, int64_t) {}
std::atomic<int> live{0}, compiled{0};

/// The object file that FFD_FAKE_JIT_OBJECT names, for packages of CPU code.
std::string objectFile() {
  const char *path = std::getenv("FFD_FAKE_JIT_OBJECT");
  if (!path)
    return "";
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file),
          std::istreambuf_iterator<char>()};
}

/// What "cpu" means on this machine.
std::string bestTarget() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    return __builtin_cpu_supports("avx512vnni") ? "cpu:avx512vnni"
                                                : "cpu:avx512";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c"))
    return "cpu:avx2";
#endif
  return "cpu";
}
} // namespace

extern "C" {

int fakeJitLive() { return live; }
int fakeJitCompilations() { return compiled; }

uint32_t ffdJitAbiVersion(void) { return FFD_JIT_ABI_VERSION; }

int ffdJitCompile(const ffdSpec *spec, const char *target, const char *program,
                  ffdJitResult *result) {
  if (result->struct_size != sizeof(ffdJitResult))
    return 2;
  if (spec->group == 13) {
    std::snprintf(result->error, result->error_size, "13 is unlucky");
    return 1;
  }
  ++compiled;
  auto *bytes = new std::string;
  if (std::strncmp(target, "cpu", 3) == 0) {
    result->entry = doNothing;
    result->target = "cpu:fake";
    Package package;
    package.kind = PackageKind::CpuObject;
    package.spec = *spec;
    package.entry = "ffd_test_kernel";
    package.target = std::strcmp(target, "cpu") == 0 ? bestTarget() : target;
    package.payload = objectFile();
    if (!package.payload.empty() && package.serialize(*bytes).ok()) {
      result->package = bytes->data();
      result->package_size = bytes->size();
    }
  } else {
    Package package;
    package.target = target;
    package.entry = "ffd_decode";
    package.spec = *spec;
    package.program =
        std::strcmp(program, "exact") == 0 ? Program::Exact : Program::Decode;
    package.threads = 128;
    package.payload = "compiled";
    if (!package.serialize(*bytes).ok())
      return 3;
    result->package = bytes->data();
    result->package_size = bytes->size();
  }
  result->owner = bytes;
  ++live;
  return 0;
}

void ffdJitRelease(ffdJitResult *result) {
  delete static_cast<std::string *>(result->owner);
  --live;
}

} // extern "C"
