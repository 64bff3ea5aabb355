//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// L3: what a warp does on a GPU.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_GPU_OPS
#define FFD_GPU_OPS

include "FFDTypes.td"

#endif // FFD_GPU_OPS
