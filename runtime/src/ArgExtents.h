//===- ArgExtents.h - What decode arguments reach ---------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The checked sizes of the memory behind an ffdDecodeArgs: how much of each
// pointer a decode may touch. Private to the runtime: the CPU kernel sizes its
// workspace from it, the CUDA kernel its copies.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SRC_ARGEXTENTS_H
#define FFD_SRC_ARGEXTENTS_H

#include "ffd/Kernel.h"

namespace ffd {

/// Bytes, each from its pointer on; 0 where a decode reads or writes nothing.
struct ArgExtents {
  int64_t rows = 0;
  int64_t maxLength = 0;
  int64_t pages = 0; ///< one more than the largest page id
  int64_t q = 0, thumbnails = 0, residuals = 0, values = 0, smax = 0;
  int64_t centre = 0;
  int64_t tailK = 0, tailV = 0, pageTable = 0, lengths = 0, delta = 0;
  int64_t out = 0, lse = 0, kept = 0, skippedLse = 0;
};

/// checkArgs(), and the sizes.
Status measureArgs(const ffdSpec &spec, Program program,
                   const ffdDecodeArgs &args, ArgExtents &extents);

/// Checked Layout::workspaceBytes.
Status workspaceBytes(const ffdSpec &spec, int64_t rows, int64_t splits,
                      int64_t &bytes);

} // namespace ffd
#endif // FFD_SRC_ARGEXTENTS_H
