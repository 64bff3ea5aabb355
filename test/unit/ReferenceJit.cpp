//===- ReferenceJit.cpp - A compiler library that hands out the reference ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Implements Jit.h with ReferenceDecode, so that everything above kernels is
// tested without a compiler and bit for bit. The environment variable
// FFD_REFERENCE_JIT_LOG, if set, names a file to which each compilation adds a
// byte.
//
//===----------------------------------------------------------------------===//

#include "ReferenceDecode.h"

#include "ffd/Jit.h"
#include "ffd/Kernel.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

using namespace ffd;

namespace {

constexpr int kSlots = 128;
ffdSpec specs[kSlots];
int used = 0;
std::mutex mutex;

void decode(const ffdSpec &spec, const ffdDecodeArgs *args, int64_t row,
            int64_t split) {
  if (split != 0)
    return;
  const int64_t sequence = row / args->kv_heads, head = row % args->kv_heads;
  const ReferenceDecode reference(spec, *args);
  const ReferenceDecode::Row r = reference.row(sequence, head);
  float *out = args->out + row * spec.group * spec.value_dim;
  for (size_t i = 0; i < r.out.size(); ++i)
    out[i] = float(r.out[i]);
  for (size_t g = 0; args->lse && g < r.lse.size(); ++g)
    args->lse[row * spec.group + int64_t(g)] = float(r.lse[g]);
  for (size_t g = 0; spec.certificate && args->skipped_lse &&
                     g < r.skippedLeast.size();
       ++g)
    args->skipped_lse[row * spec.group + int64_t(g)] = float(r.skippedLeast[g]);
  uint64_t count = 0;
  for (size_t i = 0; i < r.kept.size(); ++i) {
    count += r.kept[i];
    if (args->kept)
      args->kept[row * args->kept_stride + int64_t(i)] = r.kept[i];
  }
  if (args->kept_count)
    args->kept_count[row] += count;
}

template <int I>
void entry(const ffdDecodeArgs *args, int64_t row, int64_t split) {
  decode(specs[I], args, row, split);
}

template <int... I>
CpuEntry pick(int index, std::integer_sequence<int, I...>) {
  static const CpuEntry entries[] = {entry<I>...};
  return entries[index];
}

} // namespace

extern "C" {

uint32_t ffdJitAbiVersion(void) { return FFD_JIT_ABI_VERSION; }

int ffdJitCompile(const ffdSpec *spec, const char *target, const char *,
                  ffdJitResult *result) {
  std::lock_guard<std::mutex> lock(mutex);
  int index = 0;
  while (index < used && specs[index] != *spec)
    ++index;
  if (index == kSlots || std::string(target).compare(0, 3, "cpu") != 0) {
    std::snprintf(result->error, result->error_size,
                  "the reference is for the CPU");
    return 1;
  }
  if (const char *log = std::getenv("FFD_REFERENCE_JIT_LOG"))
    if (FILE *file = std::fopen(log, "ab")) {
      std::fputc('c', file);
      std::fclose(file);
    }
  specs[index] = *spec;
  used = index == used ? used + 1 : used;
  result->entry = pick(index, std::make_integer_sequence<int, kSlots>());
  result->package = nullptr;
  result->package_size = 0;
  result->target = "cpu:reference";
  result->owner = nullptr;
  return 0;
}

void ffdJitRelease(ffdJitResult *) {}

} // extern "C"
