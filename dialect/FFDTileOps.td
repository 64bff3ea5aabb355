//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// L2: tile programs. A *team* (a CTA, or a CPU task) works on one piece of one
// row. `ffd.tile.distribute` runs a body over blocks or tiles and says how
// iterations combine; how they are dealt to warps or vectors, which copies run
// ahead, and where barriers go is decided below this level.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_TILE_OPS
#define FFD_TILE_OPS

include "FFDTileTeamOps.td"
include "FFDTileDecodeOps.td"
include "FFDTileAppendOps.td"

#endif // FFD_TILE_OPS
