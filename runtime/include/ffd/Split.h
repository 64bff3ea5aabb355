//===- Split.h - Quantising and packing one block ---------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The split of a committed block of K into thumbnail and residual
// (docs/numerics.md, split_c1 to split_c6), written straight into the slots of
// the packed cache, and the packing of V. The functions that read single
// elements back are for tests and oracles. Channels that pad D are zero bytes
// in codes, residuals and scales.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SPLIT_H
#define FFD_SPLIT_H

#include "ffd/Spec.h"
#include "ffd/layout.h"

#include <cstdint>

namespace ffd {

/// Quantises `quant_block` tokens of K; token t is the head_dim elements at
/// `k + t * tokenStride`. Writes thumbnailBytes() and residualBytes(); with 16
/// scan bits the thumbnail holds the keys themselves (split_c8).
void splitBlock(const ffdSpec &spec, const uint16_t *k, int64_t tokenStride,
                uint8_t *thumbnail, uint8_t *residual);

/// Packs `quant_block` tokens of V into valueBytes().
void packValues(const ffdSpec &spec, const uint16_t *v, int64_t tokenStride,
                uint8_t *value);

/// Raises smax[paddedHeadDim], in scale order, to the scales of a thumbnail
/// (split_c6).
void maximiseScales(const ffdSpec &spec, const uint8_t *thumbnail,
                    uint16_t *smax);

/// The thumbnail code t of (token, channel); with 16 scan bits the key's bits.
int32_t codeAt(const Layout &layout, const uint8_t *thumbnail, int64_t token,
               int64_t channel);
/// The residual r of (token, channel).
int32_t residualAt(const Layout &layout, const uint8_t *residual, int64_t token,
                   int64_t channel);
/// The bits of the scale s of a channel.
uint16_t scaleAt(const Layout &layout, const uint8_t *thumbnail,
                 int64_t channel);
/// The bits of V at (token, dim).
uint16_t valueAt(const Layout &layout, const uint8_t *value, int64_t token,
                 int64_t dim);
/// k~ of (token, channel): what the refined score sees.
double reconstructAt(const ffdSpec &spec, const uint8_t *thumbnail,
                     const uint8_t *residual, int64_t token, int64_t channel);

} // namespace ffd
#endif // FFD_SPLIT_H
