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

/* Where programs built against the first version of the header have the last
 * fields of it. Later ones come behind, and structs without a size do not grow
 * (see "Options" in ffd.h). */
#if UINTPTR_MAX == UINT64_MAX
#define FFD_TEST_AT(type, field, offset)                                       \
  _Static_assert(offsetof(type, field) == offset, "programs have it there")
FFD_TEST_AT(ffdContextOptions, device, 8);
FFD_TEST_AT(ffdContextOptions, cuda_context, 16);
FFD_TEST_AT(ffdContextOptions, package_dir, 32);
FFD_TEST_AT(ffdContextOptions, diagnostic_user, 72);
FFD_TEST_AT(ffdContextInfo, memory_bytes, 24);
FFD_TEST_AT(ffdContextInfo, arch, 96);
FFD_TEST_AT(ffdCacheOptions, layers, 52);
FFD_TEST_AT(ffdCacheOptions, max_tokens, 72);
FFD_TEST_AT(ffdCacheOptions, memory, 96);
FFD_TEST_AT(ffdCacheOptions, batch_invariant, 112);
FFD_TEST_AT(ffdCacheSizes, total_bytes, 72);
FFD_TEST_AT(ffdCacheSizes, tail_capacity, 80);
FFD_TEST_AT(ffdCacheInfo, sequences, 24);
FFD_TEST_AT(ffdSequenceInfo, reserved, 24);
FFD_TEST_AT(ffdAppendBatch, sequences, 16);
FFD_TEST_AT(ffdAppendBatch, k, 40);
FFD_TEST_AT(ffdAppendBatch, channel_stride, 88);
FFD_TEST_AT(ffdDecodeBatch, q, 24);
FFD_TEST_AT(ffdDecodeBatch, lse, 56);
FFD_TEST_AT(ffdDecodeBatch, skipped_lse, 72);
_Static_assert(sizeof(ffdSpec) == 44, "has no size of its own");
_Static_assert(sizeof(ffdLayerMemory) == 56, "has no size of its own");
#endif

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
