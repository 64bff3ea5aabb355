//===- Split.cpp - Quantising and packing one block ---------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Written channel-parallel so that the compiler vectorises it; the arithmetic
// is that of docs/numerics.md step by step, each operation rounded by itself.
// This file must be compiled without contraction (-ffp-contract=off).
//
//===----------------------------------------------------------------------===//

#include "ffd/Split.h"

#include "ffd/Float16.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace ffd;

namespace {

constexpr int64_t kMaxHeadDim = 256;

/// What a channel of a block is quantised with.
struct ChannelScales {
  uint16_t bits[kMaxHeadDim];   ///< s
  float factor[kMaxHeadDim];    ///< inv * 256
  uint16_t finite[kMaxHeadDim]; ///< all ones, or 0 where split_c3 applies
};

/// |k| of the whole block as bit patterns: they order like the numbers, and NaN
/// above infinity above all finite ones, so an integer maximum propagates NaN.
void maximumBits(const ffdSpec &spec, const uint16_t *k, int64_t tokenStride,
                 uint16_t *amax) {
  std::fill_n(amax, kMaxHeadDim, uint16_t(0));
  for (int64_t t = 0; t < spec.quant_block; ++t)
    for (int64_t c = 0; c < spec.head_dim; ++c)
      amax[c] = std::max<uint16_t>(amax[c], k[t * tokenStride + c] & 0x7FFF);
}

void computeScales(const ffdSpec &spec, const uint16_t *amax,
                   ChannelScales &scales) {
  // L; the scales of keys that are not split are their largest values.
  const float limit =
      spec.scan_bits == 16 ? 1 : float((1 << spec.scan_bits) - 1) / 2;
  const uint16_t infinity = spec.element == FFD_F16 ? 0x7C00 : 0x7F80;
  for (int64_t c = 0; c < spec.head_dim; ++c) {
    if (amax[c] >= infinity) { // split_c3
      scales.bits[c] = canonicalNaN(spec.element);
      scales.factor[c] = 0;
      scales.finite[c] = 0;
      continue;
    }
    const float a = elementToF32(spec.element, amax[c]);
    uint16_t bits = f32ToElement(spec.element, a / limit); // split_c1
    float s = elementToF32(spec.element, bits);
    if (spec.element == FFD_BF16 && s < 0x1p-100f) { // split_c2
      bits = 0;
      s = 0;
    }
    const float inv = s == 0 ? 0 : 1.0f / s; // split_c4
    scales.bits[c] = bits;
    scales.factor[c] = inv * 256;
    scales.finite[c] = 0xFFFF;
  }
}

/// split_c4 for one token: x of every channel.
inline __attribute__((always_inline)) void
quantiseToken(const float *k, const ChannelScales &scales, int64_t channels,
              float bias, float top, uint16_t *x) {
  for (int64_t c = 0; c < channels; ++c) {
    // Where split_c3 applies k is replaced: NaN has no integer value.
    const float value = scales.finite[c] ? k[c] : 0;
    float code = std::floor(std::fma(value, scales.factor[c], bias));
    code = code < 0 ? 0 : code;
    code = code > top ? top : code;
    x[c] = uint16_t(int32_t(code)) & scales.finite[c];
  }
}

void quantisePortable(const float *k, const ChannelScales &scales,
                      int64_t channels, float bias, float top, uint16_t *x) {
  quantiseToken(k, scales, channels, bias, top, x);
}

#if defined(__x86_64__)
// The same operations; fma is exact in both, but a library call in the other.
__attribute__((target("avx2,fma"))) void
quantiseFma(const float *k, const ChannelScales &scales, int64_t channels,
            float bias, float top, uint16_t *x) {
  quantiseToken(k, scales, channels, bias, top, x);
}
#endif

using QuantiseFunction = void (*)(const float *, const ChannelScales &, int64_t,
                                  float, float, uint16_t *);

QuantiseFunction pickQuantise() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return quantiseFma;
#endif
  return quantisePortable;
}

/// Writes the codes and residuals of one token. Four consecutive channels from
/// a multiple of four sit in consecutive bytes of both planes.
void packToken(const Layout &layout, const uint16_t *x, int64_t token,
               uint8_t *thumbnail, uint8_t *residual) {
  for (int64_t c = 0; c < layout.headDim; c += 4) {
    uint8_t *codes = thumbnail + layout.codeByteOffset(token, c);
    uint8_t *rest = residual + layout.residualOffset(token, c);
    const int64_t shift = layout.codeBitOffset(token, c);
    for (int64_t i = 0; i < 4; ++i) // split_c5
      codes[i] |= uint8_t(x[c + i] >> 8 << shift);
    for (int64_t i = 0; layout.residualBits && i < 4; ++i)
      rest[i] = uint8_t(x[c + i]);
  }
}

} // namespace

void ffd::splitBlock(const ffdSpec &spec, const uint16_t *k,
                     int64_t tokenStride, uint8_t *thumbnail,
                     uint8_t *residual) {
  static const QuantiseFunction quantise = pickQuantise();
  const Layout layout = layoutOf(spec);
  std::memset(thumbnail, 0, size_t(layout.thumbnailBytes()));
  if (layout.residualBits)
    std::memset(residual, 0, size_t(layout.residualBytes()));

  uint16_t amax[kMaxHeadDim];
  ChannelScales scales;
  maximumBits(spec, k, tokenStride, amax);
  computeScales(spec, amax, scales);
  for (int64_t c = 0; c < spec.head_dim; ++c)
    std::memcpy(thumbnail + layout.codeBytes() + 2 * Layout::scaleIndex(c),
                &scales.bits[c], 2);

  if (spec.scan_bits == 16) { // split_c8
    for (int64_t t = 0; t < spec.quant_block; ++t)
      std::memcpy(thumbnail + t * spec.head_dim * 2, k + t * tokenStride,
                  size_t(spec.head_dim) * 2);
    return;
  }

  const float bias = float(1 << (spec.scan_bits + 7));
  const float top = float((1 << (spec.scan_bits + 8)) - 1);
  float values[kMaxHeadDim];
  uint16_t x[kMaxHeadDim];
  for (int64_t t = 0; t < spec.quant_block; ++t) {
    const uint16_t *token = k + t * tokenStride;
    for (int64_t c = 0; c < spec.head_dim; ++c)
      values[c] = elementToF32(spec.element, token[c]);
    quantise(values, scales, spec.head_dim, bias, top, x);
    packToken(layout, x, t, thumbnail, residual);
  }
}

void ffd::packValues(const ffdSpec &spec, const uint16_t *v,
                     int64_t tokenStride, uint8_t *value) {
  const Layout layout = layoutOf(spec);
  for (int64_t t = 0; t < spec.quant_block; ++t)
    for (int64_t d = 0; d < spec.value_dim; ++d)
      std::memcpy(value + layout.valueOffset(t, d), v + t * tokenStride + d, 2);
}

void ffd::maximiseScales(const ffdSpec &spec, const uint8_t *thumbnail,
                         uint16_t *smax) {
  // Scales are never negative and NaN is canonical: an integer maximum.
  const Layout layout = layoutOf(spec);
  for (int64_t i = 0; i < layout.paddedHeadDim(); ++i) {
    uint16_t s;
    std::memcpy(&s, thumbnail + layout.codeBytes() + 2 * i, 2);
    smax[i] = std::max(smax[i], s);
  }
}

int32_t ffd::codeAt(const Layout &layout, const uint8_t *thumbnail,
                    int64_t token, int64_t channel) {
  if (layout.scanBits == 16) {
    uint16_t bits;
    std::memcpy(&bits, thumbnail + (token * layout.headDim + channel) * 2, 2);
    return bits;
  }
  return thumbnail[layout.codeByteOffset(token, channel)] >>
             layout.codeBitOffset(token, channel) &
         ((1 << layout.scanBits) - 1);
}

int32_t ffd::residualAt(const Layout &layout, const uint8_t *residual,
                        int64_t token, int64_t channel) {
  return residual[layout.residualOffset(token, channel)];
}

uint16_t ffd::scaleAt(const Layout &layout, const uint8_t *thumbnail,
                      int64_t channel) {
  uint16_t bits;
  std::memcpy(&bits,
              thumbnail + layout.codeBytes() + 2 * Layout::scaleIndex(channel),
              2);
  return bits;
}

uint16_t ffd::valueAt(const Layout &layout, const uint8_t *value, int64_t token,
                      int64_t dim) {
  uint16_t bits;
  std::memcpy(&bits, value + layout.valueOffset(token, dim), 2);
  return bits;
}

double ffd::reconstructAt(const ffdSpec &spec, const uint8_t *thumbnail,
                          const uint8_t *residual, int64_t token,
                          int64_t channel) {
  const Layout layout = layoutOf(spec);
  const double limit = ((1 << spec.scan_bits) - 1) / 2.0;
  if (spec.scan_bits == 16)
    return elementToF32(spec.element,
                        uint16_t(codeAt(layout, thumbnail, token, channel)));
  const double s =
      elementToF32(spec.element, scaleAt(layout, thumbnail, channel));
  if (spec.no_residuals)
    return s * (codeAt(layout, thumbnail, token, channel) - limit);
  return s * (codeAt(layout, thumbnail, token, channel) - limit +
              (residualAt(layout, residual, token, channel) - 127.5) / 256);
}
