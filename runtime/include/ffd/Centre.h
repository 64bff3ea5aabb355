//===- Centre.h - Keys relative to a vector of their row --------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// centre_c1 to centre_c3 of docs/numerics.md: with FFD_CENTRE_ROW a cache holds
// the keys of a row relative to the mean of the row's first block. Centres are
// head_dim elements in channel order. Thread-safe: nothing but the arguments is
// touched.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_CENTRE_H
#define FFD_CENTRE_H

#include "ffd/abi.h"

#include <cstdint>

namespace ffd {

/// The bits of a NaN among centred keys, whatever its cause: those that GPUs
/// write.
inline constexpr uint16_t kCentredNaN = 0x7FFF;

/// c of a row: the mean of the quant_block keys of its block 0, rounded to the
/// element type; 0 in a channel whose mean is not finite. Token t is the
/// head_dim elements at `k + t * tokenStride`.
void centreOf(const ffdSpec &spec, const uint16_t *k, int64_t tokenStride,
              uint16_t *centre);

/// d = k - c of `tokens` keys, rounded to the element type. `to` may be `k`
/// with the same stride.
void centreKeys(const ffdSpec &spec, const uint16_t *k, int64_t tokenStride,
                int64_t tokens, const uint16_t *centre, uint16_t *to,
                int64_t toStride);

/// The key of one channel that d was made of, but for its rounding: d + c.
float uncentred(const ffdSpec &spec, float d, uint16_t centre);

} // namespace ffd
#endif // FFD_CENTRE_H
