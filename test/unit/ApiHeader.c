/*===- ApiHeader.c - The public headers are C11 --------------------------===*\
|*
|* Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
\*===----------------------------------------------------------------------===*/

#include "ffd/ffd.h"

_Static_assert(sizeof(ffdSpec) % 4 == 0, "no padding");
_Static_assert(sizeof(ffdPiece) == 48, "as the kernels read it");
_Static_assert(sizeof(ffdHeadStatistics) == 16, "two counters");
_Static_assert(offsetof(ffdCacheOptions, struct_size) == 0, "comes first");
_Static_assert(offsetof(ffdDecodeBatch, struct_size) == 0, "comes first");

int ffdTestHeaderInC(void);
int ffdTestHeaderInC(void) {
  ffdContextOptions context;
  ffdCacheOptions cache;
  ffdAppendBatch append;
  ffdDecodeBatch decode;
  ffdContextOptionsInit(&context);
  ffdCacheOptionsInit(&cache);
  ffdAppendBatchInit(&append);
  ffdDecodeBatchInit(&decode);
  return context.struct_size == sizeof context && cache.delta == 5.0f &&
                 append.struct_size == sizeof append &&
                 decode.struct_size == sizeof decode
             ? 0
             : 1;
}
