//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// L3: what a warp does on a GPU. Every op is executed by all 32 lanes of a warp
// together; its operands and results are the registers of one lane, as plain
// vectors, and pointers to global (`!llvm.ptr<1>`) and shared (`!llvm.ptr<3>`)
// memory. Control flow, addresses and plain arithmetic stay scf, llvm and arith.
//
// Lanes have coordinates g = lane / 4 and tq = lane % 4, those of mma.sync:
// operand rows and the query column are g, result columns are 2 tq and 2 tq + 1.
// A *query tile* is what fits the eight columns of an mma: four heads in the
// scan (column 2h holds the high byte, column 2h + 1 the low byte of a query),
// eight heads elsewhere. A *fragment* of D channels has D / 8 words: four words
// per group of 32 channels, in the order of `docs/layout.md`.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_GPU_OPS
#define FFD_GPU_OPS

include "FFDGPUTeamOps.td"
include "FFDGPURingOps.td"
include "FFDGPUScanOps.td"
include "FFDGPUAttendOps.td"
include "FFDGPUSplitOps.td"

#endif // FFD_GPU_OPS
