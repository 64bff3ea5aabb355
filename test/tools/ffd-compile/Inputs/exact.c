/* Calls an exact decode kernel (head dim 64, group 2, f16) from C and compares
 * with the definition. */
#include "ffd/abi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 64, G = 2, HKV = 2, T = 37 };

void exact(const ffdDecodeArgs *args, int64_t row, int64_t split);

/* Small multiples of 1/8 are exact in f16. */
static uint16_t half(int eighths) {
  union {
    float f;
    uint32_t u;
  } v = {eighths / 8.0f};
  if (!eighths)
    return 0;
  uint32_t sign = v.u >> 31, exponent = (v.u >> 23 & 255) - 112;
  return (uint16_t)(sign << 15 | exponent << 10 | (v.u >> 13 & 1023));
}

static int eighths(unsigned i, unsigned salt) {
  i = (i + salt) * 2654435761u;
  return (int)(i >> 28) - 8;
}

int main(void) {
  uint16_t *q = aligned_alloc(64, HKV * G * D * 2);
  uint16_t *k = aligned_alloc(64, HKV * T * D * 2 + 128);
  uint16_t *v = aligned_alloc(64, HKV * T * D * 2 + 128);
  float *out = aligned_alloc(64, HKV * G * D * 4), lse[HKV * G];
  char *workspace = aligned_alloc(64, 1 << 16);
  int32_t length = T;
  memset(workspace, 0, 1 << 16);
  memset(out, 0xFF, HKV * G * D * 4);
  for (unsigned i = 0; i < HKV * G * D; ++i)
    q[i] = half(eighths(i, 1));
  for (unsigned i = 0; i < HKV * T * D; ++i) {
    k[i] = half(eighths(i, 100000));
    v[i] = half(eighths(i, 200000));
  }
  ffdDecodeArgs args = {0};
  args.q = q;
  args.tail_k = k;
  args.tail_v = v;
  args.lengths = &length;
  args.out = out;
  args.lse = lse;
  args.workspace = workspace;
  args.q_batch_stride = HKV * G * D;
  args.q_head_stride = D;
  args.tail_batch_stride = HKV * T;
  args.tail_head_stride = T;
  args.batch = 1;
  args.kv_heads = HKV;
  args.splits = 3;
  args.sm_scale = 0.125f;
  for (int row = 0; row < HKV; ++row)
    for (int split = 0; split < 3; ++split)
      exact(&args, row, split);

  int good = 0;
  for (unsigned h = 0; h < HKV * G; ++h) {
    unsigned kv = h / G;
    double p[T], sum = 0, worst = 0;
    for (unsigned t = 0; t < T; ++t) {
      double s = 0;
      for (unsigned c = 0; c < D; ++c)
        s += eighths(h * D + c, 1) *
             (double)eighths((kv * T + t) * D + c, 100000) / 64.0;
      sum += p[t] = exp(s * 0.125);
    }
    for (unsigned c = 0; c < D; ++c) {
      double o = 0;
      for (unsigned t = 0; t < T; ++t)
        o += p[t] / sum * eighths((kv * T + t) * D + c, 200000) / 8.0;
      worst = fmax(worst, fabs(o - out[h * D + c]));
    }
    good += worst < 1e-3 && fabs(lse[h] - log(sum)) < 1e-3;
  }
  printf("%d outputs agree with a direct evaluation\n", good);
  return good != HKV * G;
}
