/*===- faulty-kernel.c - A kernel that leaves results unwritten ---*- C -*-===*\
|*
|* Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*
|*
|* For a test of ffd-run with value_dim 64 and a group of one: FAULT names the
|* result that is left alone in the last row. None, and all are zero.
|*
\*===----------------------------------------------------------------------===*/
#include "ffd/abi.h"

enum { none, o, lse, kept };

void faulty(const ffdDecodeArgs *args, int64_t row, int64_t split) {
  const int last = row == (int64_t)args->batch * args->kv_heads - 1;
  if (split != 0)
    return;
  for (int i = 0; i < (last && FAULT == o ? 63 : 64); ++i)
    args->out[row * 64 + i] = 0;
  if (!last || FAULT != lse)
    args->lse[row] = 0;
  for (int i = 0; i < args->kept_stride; ++i)
    if (!last || FAULT != kept || i != 3)
      args->kept[row * args->kept_stride + i] = 1;
}
