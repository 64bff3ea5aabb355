/*===- Jit.h - The interface of libffd-jit ------------------------*- C -*-===*\
|*
|* Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*
|*
|* The compiler as a shared library that the runtime loads on demand. C11, so
|* that neither side depends on the other's C++ library. FindKernel.h has the
|* loader.
|*
\*===----------------------------------------------------------------------===*/
#ifndef FFD_JIT_H
#define FFD_JIT_H

#include "ffd/abi.h"

#include <stdint.h>

/* The functions of libffd-jit are its only visible symbols. */
#define FFD_JIT_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Changes whenever something below changes. */
#define FFD_JIT_ABI_VERSION 1

typedef struct ffdJitResult {
  uint64_t struct_size; /* in: sizeof(ffdJitResult)                          */
  char *error;          /* in: buffer for a message with its final zero,     */
  uint64_t error_size;  /*     and its size; NULL and 0 for none             */
  /* CPU: the kernel; NULL for a GPU target. */
  void (*entry)(const ffdDecodeArgs *args, int64_t row, int64_t split);
  /* The bytes of a kernel package (Package.h); on a CPU the same code as that
   * of `entry`, or NULL for the steps of split execution and selectors. */
  const void *package;
  uint64_t package_size;
  /* The target compiled for, more exact than the one asked for
   * ("cpu" -> "cpu:avx512"). */
  const char *target;
  void *owner; /* of everything above; ffdJitRelease frees it */
} ffdJitResult;

/* FFD_JIT_ABI_VERSION of the library; the loader refuses another than its own.
 */
FFD_JIT_API uint32_t ffdJitAbiVersion(void);

/* Compiles one program for a target ("cpu", "cpu:avx2", "sm_90a" ...): "decode",
 * "exact", or a step of a decode in split execution, "select" or "attend" (for a
 * GPU, a package that counts as a decode and has that one kernel). The attribute of
 * a selector may follow "decode" or "select" after a space: "select
 * #ffd.top_k<64>"; rules over the whole row are for CPU targets. Returns 0, or nonzero with a message in result->error and the
 * other results cleared; a struct_size that does not even hold the buffer's
 * fields is an error without a message. May be called from any thread. */
FFD_JIT_API int ffdJitCompile(const ffdSpec *spec, const char *target, const char *program,
                  ffdJitResult *result);

/* Frees what a successful ffdJitCompile filled in and clears it. */
FFD_JIT_API void ffdJitRelease(ffdJitResult *result);

#ifdef __cplusplus
}
#endif
#endif /* FFD_JIT_H */
