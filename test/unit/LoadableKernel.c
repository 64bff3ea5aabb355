/*===- LoadableKernel.c - Machine code for the loader's tests ------------===*\
|*
|* Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*|
|*
|* Compiled to an object file that is never linked: a kernel with constants, a
|* function of its own and calls of memset, as generated ones have.
|*
\*===----------------------------------------------------------------------===*/

#include "ffd/abi.h"

#include <string.h>

static const double table[4] = {0.5, 1.25, 8.0, -3.0};

/* Not inlined: an address to be relocated. */
__attribute__((noinline)) static double scaled(int64_t row, float by) {
  return table[row & 3] * by;
}

void ffd_test_kernel(const ffdDecodeArgs *args, int64_t row, int64_t split);
void ffd_test_kernel(const ffdDecodeArgs *args, int64_t row, int64_t split) {
  char scratch[512];
  memset(scratch, (int)row + 1, (size_t)(args->batch * 8));
  if (split == 0)
    args->out[row * 64] = (float)scaled(row, args->sm_scale) + scratch[3];
}
