//===- Soak.h - What the parts of ffd-soak share ----------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SOAK_SOAK_H
#define FFD_SOAK_SOAK_H

#include "ffd/ffd.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace soak {

struct Flags {
  int steps = 10000, slots = 8, layers = 2, heads = 2, lag = 0, check = 250;
  int hostPages = 0, cpu = 1, invariant = 0, centre = 0;
  std::string measure, kernels, compiler, cache;
};

constexpr int kHeadDim = 128, kGroup = 4;

/// Ends the program if a call failed.
inline void ok(ffdStatus status, const char *what) {
  if (status == FFD_SUCCESS)
    return;
  std::printf("FAILED: %s: %s: %s\n", what, ffdStatusName(status),
              ffdLastErrorMessage());
  std::exit(1);
}
#define OK(call) ::soak::ok(call, #call)

inline double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline ffdSpec soakSpec() {
  ffdSpec spec = {};
  spec.head_dim = spec.value_dim = kHeadDim;
  spec.group = kGroup;
  spec.scan_bits = 2;
  spec.quant_block = 128;
  spec.select_block = 16;
  return spec;
}

/// Options of a context on the GPU as the flags say.
inline ffdContextOptions contextOptions(const Flags &f) {
  ffdContextOptions o;
  ffdContextOptionsInit(&o);
  o.device = FFD_DEVICE_CUDA;
  o.package_dir = f.kernels.empty() ? nullptr : f.kernels.c_str();
  o.compiler = f.compiler.empty() ? nullptr : f.compiler.c_str();
  o.use_compiler = !f.compiler.empty();
  o.kernel_cache_dir = f.cache.c_str();
  return o;
}

/// Measures what --measure names; prints tables.
int measure(const Flags &flags);

} // namespace soak
#endif // FFD_SOAK_SOAK_H
