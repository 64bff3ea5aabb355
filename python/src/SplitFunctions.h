//===- SplitFunctions.h - Split and merge for Python ------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef FFD_PYTHON_SPLITFUNCTIONS_H
#define FFD_PYTHON_SPLITFUNCTIONS_H

#include "Arrays.h"
#include "Runtime.h"

namespace ffd::python {

/// Splits the full blocks of k [batch, tokens, kv heads, head dim]: (codes and
/// residuals [batch, blocks * 128, kv heads, head dim], bits of the scales
/// [batch, blocks, kv heads, head dim], whether they are bfloat16).
nb::tuple split(Runtime &runtime, nb::handle k, int scanBits);

/// Merges results over different tokens, outs [parts, rows, value dim] and lses
/// [parts, rows], in ascending order of the part (attend_c4): (out, lse).
nb::tuple merge(const HostArray<const float, 3> &outs,
                const HostArray<const float, 2> &lses);

} // namespace ffd::python
#endif // FFD_PYTHON_SPLITFUNCTIONS_H
