/*===- Emulate.h - libffd-emulate: the emulator behind a C interface ------===*\
|*
|* Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*
|*
|* A shared library, loaded on demand by programs that do not link the compiler
|* (ffd-run --target=emulate): compiles the decode of a specification for a GPU
|* and runs it on the host, checked for races, missing waits and stray accesses.
|*
\*===----------------------------------------------------------------------===*/
#ifndef FFD_EMULATED_EMULATE_H
#define FFD_EMULATED_EMULATE_H

#include "ffd/abi.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with these functions; FFD_ABI_VERSION is part of it. */
#define FFD_EMULATE_ABI_VERSION (1000 + FFD_ABI_VERSION)

typedef struct ffdEmulatedKernel ffdEmulatedKernel;

uint32_t ffdEmulateAbiVersion(void);

/* Compiles `program` for `arch` ("sm_90a"): "decode", "split" (the same as two
 * kernels, selector and computer, one after the other) or "exact". NULL if that is
 * not possible; `error`, of `error_size` bytes, then says why. */
ffdEmulatedKernel *ffdEmulateCreate(const ffdSpec *spec, const char *program,
                                    const char *arch, char *error,
                                    size_t error_size);

/* One launch over host memory, with a schedule drawn from `seed`; `workspace`
 * must be NULL, `splits` may be 0. Returns 0, or 1 and says in `error` what the
 * arguments lack or the emulator found; results are then untouched. One thread
 * at a time per kernel. */
int ffdEmulateRun(ffdEmulatedKernel *kernel, const ffdDecodeArgs *args,
                  uint64_t seed, char *error, size_t error_size);

void ffdEmulateRelease(ffdEmulatedKernel *kernel);

#ifdef __cplusplus
}
#endif
#endif /* FFD_EMULATED_EMULATE_H */
