//===- FFDTileToVector.h - Tile programs to CPU code -- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The CPU's way from the tile level to the LLVM dialect. The pass itself is
// declared in Passes.td.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_CONVERSION_FFDTILETOVECTOR_H
#define FFD_CONVERSION_FFDTILETOVECTOR_H

#include "mlir/Support/LLVM.h"

namespace mlir {
class OpPassManager;
}

namespace mlir::ffd {

/// Adds --ffd-tile-to-vector for an instruction set (avx2, avx512, avx512vnni)
/// and the upstream conversions that leave nothing but the LLVM dialect. For a
/// pass manager on modules.
void addTileToLLVMPasses(OpPassManager &manager, StringRef isa);

} // namespace mlir::ffd

#endif // FFD_CONVERSION_FFDTILETOVECTOR_H
