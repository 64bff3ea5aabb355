//===- GPUPipeline.h - From tile programs to NVVM ----------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The GPU part of the pipelines, and the attributes by which a kernel tells how
// it is launched.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_CONVERSION_GPUPIPELINE_H
#define FFD_CONVERSION_GPUPIPELINE_H

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringRef.h"

namespace mlir::ffd {

/// i64 attributes of a kernel function (from ffd-tile-to-gpu on): threads of a
/// CTA, bytes of dynamic shared memory, CTAs that one multiprocessor holds.
inline constexpr llvm::StringLiteral kThreadsAttr = "ffd.threads";
inline constexpr llvm::StringLiteral kSharedBytesAttr = "ffd.shared_bytes";
inline constexpr llvm::StringLiteral kCtasAttr = "ffd.ctas";

/// ffd-tile-to-gpu, ffd-gpu-to-nvvm and the upstream conversions that leave
/// nothing but the LLVM and NVVM dialects. On a module pass manager.
void addTileToNVVMPasses(OpPassManager &passes, llvm::StringRef arch);

/// The part of it after ffd-tile-to-gpu.
void addGPUToNVVMPasses(OpPassManager &passes, llvm::StringRef arch);

} // namespace mlir::ffd

#endif // FFD_CONVERSION_GPUPIPELINE_H
