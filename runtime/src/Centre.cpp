//===- Centre.cpp - Keys relative to a vector of their row --------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Written channel-parallel like Split.cpp, each operation rounded by itself.
//
//===----------------------------------------------------------------------===//

#include "ffd/Centre.h"

#include "ffd/Float16.h"

#include <cmath>

using namespace ffd;

namespace {

constexpr int64_t kMaxHeadDim = 256;
/// Partial sums of a channel's mean: sum i is that of tokens i, i + 8, ...
constexpr int64_t kSums = 8;

struct F16 {
  static float widen(uint16_t bits) { return f16ToF32(bits); }
  static uint16_t narrow(float value) { return f32ToF16(value); }
  static constexpr uint16_t infinity = 0x7C00;
};
struct BF16 {
  static float widen(uint16_t bits) { return bf16ToF32(bits); }
  static uint16_t narrow(float value) { return f32ToBF16(value); }
  static constexpr uint16_t infinity = 0x7F80;
};

template <typename Element>
void computeCentre(int64_t channels, int64_t tokens, const uint16_t *k,
                   int64_t stride, uint16_t *centre) {
  float sums[kSums][kMaxHeadDim] = {};
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t c = 0; c < channels; ++c)
      sums[t % kSums][c] += Element::widen(k[t * stride + c]);
  for (int64_t width = kSums / 2; width > 0; width /= 2)
    for (int64_t i = 0; i < width; ++i)
      for (int64_t c = 0; c < channels; ++c)
        sums[i][c] += sums[i + width][c];
  for (int64_t c = 0; c < channels; ++c) {
    const uint16_t mean = Element::narrow(sums[0][c] / float(tokens));
    centre[c] = (mean & 0x7FFF) < Element::infinity ? mean : 0;
  }
}

template <typename Element>
void subtract(int64_t channels, int64_t tokens, const uint16_t *k,
              int64_t stride, const uint16_t *centre, uint16_t *to,
              int64_t toStride) {
  float offset[kMaxHeadDim];
  for (int64_t c = 0; c < channels; ++c)
    offset[c] = Element::widen(centre[c]);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t c = 0; c < channels; ++c) {
      const float d = Element::widen(k[t * stride + c]) - offset[c];
      to[t * toStride + c] = d == d ? Element::narrow(d) : kCentredNaN;
    }
}

} // namespace

void ffd::centreOf(const ffdSpec &spec, const uint16_t *k, int64_t tokenStride,
                   uint16_t *centre) {
  (spec.element == FFD_F16 ? computeCentre<F16>
                           : computeCentre<BF16>)(spec.head_dim,
                                                  spec.quant_block, k,
                                                  tokenStride, centre);
}

void ffd::centreKeys(const ffdSpec &spec, const uint16_t *k,
                     int64_t tokenStride, int64_t tokens,
                     const uint16_t *centre, uint16_t *to, int64_t toStride) {
  (spec.element == FFD_F16 ? subtract<F16>
                           : subtract<BF16>)(spec.head_dim, tokens, k,
                                             tokenStride, centre, to, toStride);
}

float ffd::uncentred(const ffdSpec &spec, float d, uint16_t centre) {
  return d + elementToF32(spec.element, centre);
}
