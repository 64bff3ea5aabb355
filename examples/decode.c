/* decode.c - A sequence grows in a cache and is decoded: the C interface.
 *
 * Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *   decode [folder of kernel packages]
 *
 * On the CPU, with kernels from packages, or compiled where libffd-jit is. */

#include <ffd/ffd.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Every call returns a status; the message says what was expected. */
#define CHECK(call)                                                            \
  do {                                                                         \
    ffdStatus status = (call);                                                 \
    if (status != FFD_SUCCESS) {                                               \
      fprintf(stderr, "%s: %s\n", ffdStatusName(status),                       \
              ffdLastErrorMessage());                                          \
      return 1;                                                                \
    }                                                                          \
  } while (0)

enum { LAYERS = 2, HEADS = 2, GROUP = 4, DIM = 128, PROMPT = 1000, STEPS = 64 };

/* Random numbers in f16: sign, exponent of 0.5 to 2, any mantissa. */
static void randomise(uint16_t *values, size_t count) {
  for (size_t i = 0; i < count; ++i)
    values[i] = (uint16_t)((rand() & 0x83FF) + 0x3800 + (rand() & 1) * 0x400);
}

int main(int argc, char **argv) {
  ffdContextOptions contextOptions;
  ffdContextOptionsInit(&contextOptions);
  contextOptions.package_dir = argc > 1 ? argv[1] : NULL;
  ffdContext *context;
  CHECK(ffdContextCreate(&contextOptions, &context));

  ffdCacheOptions options;
  ffdCacheOptionsInit(&options);
  options.spec.head_dim = options.spec.value_dim = DIM;
  options.spec.group = GROUP;
  options.spec.element = FFD_F16;
  options.spec.scan_bits = 2;
  options.spec.quant_block = 128;
  options.spec.select_block = 16;
  options.spec.pseudo_max = FFD_PSEUDO_MAX_REFINED; /* 0 is the scan's */
  options.layers = LAYERS;
  options.kv_heads = HEADS;
  options.sequences = 4;
  options.max_tokens = 4096;
  int64_t tokens;
  CHECK(ffdCacheFit(&options, (uint64_t)64 << 20, &options.pages, &tokens));
  ffdCache *cache;
  CHECK(ffdCacheCreate(context, &options, &cache));
  printf("64 MiB hold %ld tokens\n", (long)tokens);

  /* The prompt of one sequence, layer by layer. */
  int32_t sequence;
  CHECK(ffdSequenceCreate(cache, NULL, &sequence));
  const size_t row = HEADS * DIM;
  uint16_t *k = malloc(PROMPT * row * 2), *v = malloc(PROMPT * row * 2);
  uint16_t *q = aligned_alloc(16, row * GROUP * 2);
  float *out = aligned_alloc(16, row * GROUP * 4), lse[HEADS * GROUP];
  if (!k || !v || !q || !out)
    return 1;
  ffdAppendBatch append;
  ffdAppendBatchInit(&append);
  append.count = 1;
  append.sequences = &sequence;
  append.k = k;
  append.v = v;
  const int32_t prompt = PROMPT;
  append.tokens = &prompt;
  for (append.layer = 0; append.layer < LAYERS; ++append.layer) {
    randomise(k, PROMPT * row);
    randomise(v, PROMPT * row);
    CHECK(ffdAppend(cache, &append, NULL));
  }

  /* Decode steps: one token, all layers. */
  ffdDecodeBatch decode;
  ffdDecodeBatchInit(&decode);
  decode.count = 1;
  decode.sequences = &sequence;
  decode.q = q;
  decode.out = out;
  decode.lse = lse;
  append.tokens = NULL; /* one token each */
  for (int step = 0; step < STEPS; ++step)
    for (int32_t layer = 0; layer < LAYERS; ++layer) {
      randomise(k, row);
      randomise(v, row);
      randomise(q, row * GROUP);
      append.layer = decode.layer = layer;
      CHECK(ffdAppend(cache, &append, NULL));
      CHECK(ffdDecode(cache, &decode, NULL));
    }

  ffdSequenceInfo info;
  info.struct_size = sizeof info;
  CHECK(ffdSequenceGetInfo(cache, sequence, &info));
  printf("%ld tokens, %ld of them split; out[0] = %g, lse[0] = %g\n",
         (long)info.length, (long)info.committed, out[0], lse[0]);
  const int good = info.length == PROMPT + STEPS && isfinite(out[0]);

  free(k);
  free(v);
  free(q);
  free(out);
  ffdCacheDestroy(cache);
  ffdContextDestroy(context);
  return good ? 0 : 1;
}
