//===- Library.cpp - libffd-emulate ---------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The C interface of ffd/Emulated/Emulate.h over EmulatedKernel.
//
//===----------------------------------------------------------------------===//

#include "ffd/Emulated/Emulate.h"

#include "ffd/Emulated/EmulatedKernel.h"

#include <algorithm>
#include <cstring>

using namespace ffd;

#define FFD_EXPORT __attribute__((visibility("default")))

struct ffdEmulatedKernel {
  std::unique_ptr<EmulatedKernel> kernel;
};

static void put(llvm::StringRef message, char *error, size_t size) {
  if (!error || !size)
    return;
  size_t count = std::min(message.size(), size - 1);
  std::memcpy(error, message.data(), count);
  error[count] = 0;
}

extern "C" {

FFD_EXPORT uint32_t ffdEmulateAbiVersion(void) {
  return FFD_EMULATE_ABI_VERSION;
}

FFD_EXPORT ffdEmulatedKernel *ffdEmulateCreate(const ffdSpec *spec,
                                               const char *program,
                                               const char *arch, char *error,
                                               size_t errorSize) {
  if (!spec || !program || !arch) {
    put("spec, program or arch is NULL, expected a value", error, errorSize);
    return nullptr;
  }
  EmulatedKernel::Options options;
  options.arch = arch;
  if (llvm::StringRef(program) == "exact") {
    options.program = Program::Exact;
  } else if (llvm::StringRef(program) == "split") {
    options.fuse = false;
  } else if (llvm::StringRef(program) != "decode") {
    put("program is '" + std::string(program) +
            "', expected 'decode', 'split' or 'exact'",
        error, errorSize);
    return nullptr;
  }
  std::string message;
  auto kernel = EmulatedKernel::create(*spec, options, message);
  if (!kernel) {
    put(message, error, errorSize);
    return nullptr;
  }
  return new ffdEmulatedKernel{std::move(kernel)};
}

FFD_EXPORT int ffdEmulateRun(ffdEmulatedKernel *kernel,
                             const ffdDecodeArgs *args, uint64_t seed,
                             char *error, size_t errorSize) {
  if (!kernel || !args) {
    put("kernel or args is NULL, expected a value", error, errorSize);
    return 1;
  }
  emulator::Options options;
  options.seed = seed;
  const emulator::Report report = kernel->kernel->run(*args, options);
  if (!report.ok)
    put(report.str(), error, errorSize);
  return report.ok ? 0 : 1;
}

FFD_EXPORT void ffdEmulateRelease(ffdEmulatedKernel *kernel) { delete kernel; }

} // extern "C"
