//===- Plan.h - The sizes of one GPU kernel ---------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is decided before code is emitted: the schedule, and where everything
// lies in shared memory. Both follow from the tile program, its spec and the
// architecture; nothing else in this conversion picks a number.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_CONVERSION_FFDTILETOGPU_PLAN_H
#define FFD_LIB_CONVERSION_FFDTILETOGPU_PLAN_H

#include "ffd/Dialect/FFDDialect.h"
#include "ffd/Target/PTX.h"

namespace mlir::ffd {

/// Bytes of shared memory in which a thread leaves its part of merged pieces:
/// four outputs, the reference and the sum.
inline constexpr int64_t kMergedPartBytes = 32;

/// What a tile program does, as far as sizes depend on it.
struct ProgramTraits {
  bool scans = false;      ///< some loop scans thumbnails
  bool refines = false;    ///< a work list is refined
  bool rings = false;      ///< the share of a team is scanned (from a ring)
  bool refinedMax = false; ///< the pseudo-max reads residuals (select_c5)
  bool keepsEnds = false;  ///< both ends of a row are kept (select_c6)
  /// What is added up of the tokens that are not kept (cert_c1).
  Certificate certificate = Certificate::none;
  bool certified() const { return certificate != Certificate::none; }
  static ProgramTraits of(TileTeamsOp teams);
};

struct KernelPlan {
  SpecAttr spec;
  Type element;
  ::ffd::Layout layout;
  ProgramTraits traits;
  CopyKind copies;

  int64_t group;      ///< query heads of a row, of all query tokens
  int64_t bits;       ///< b
  int64_t groups;     ///< channel groups of 32
  int64_t valueTiles; ///< tiles of 16 value dims
  int64_t scanTiles;  ///< query tiles of four heads
  int64_t headTiles;  ///< query tiles of eight heads
  int64_t codeWords;  ///< code words of a lane and tile

  int64_t warps, ctas, stages, slots;
  /// Thumbnails are read straight from global memory: one block per warp does
  /// not fit the shared memory.
  bool direct = false;

  /// Whether a refinement slot also receives the tile's codes; else they wait
  /// in registers.
  bool codesInSlot() const { return bits > 2 && codeWords % 4 == 0; }
  /// Words of codes read at once: a lane's words of a tile need not start at a
  /// 16-byte chunk.
  int64_t codeUnit() const {
    return codeWords % 4 == 0 ? 4 : codeWords % 2 == 0 ? 2 : 1;
  }
  int64_t threads() const { return warps * 32; }
  /// Query tokens, and heads of the group of one of them.
  int64_t tokens() const { return spec.getQueryTokens(); }
  int64_t tokenHeads() const { return spec.getGroup(); }
  /// Whether the codes of the candidate blocks may wait in registers while the
  /// query is quantised.
  bool candidatesEarly() const {
    return 16 / warps * codeWords + 4 * groups <= 32;
  }
  /// Whether their residuals may wait there too; else they are brought into the
  /// L2 cache meanwhile.
  bool residualsEarly() const {
    return candidatesEarly() &&
           16 / warps * (codeWords + 4 * groups) + 4 * groups <= 64;
  }
  /// Whether the CTA keeps its coordinates in shared memory, so that they need
  /// not live in registers through the scan. They are written before a barrier,
  /// which programs without committed blocks do not have.
  bool sharesCoordinates() const { return traits.scans || traits.refines; }
  /// Whether there are registers for query and smax before all else.
  bool queryEarly() const {
    return (scanTiles == 1 && element.isF16()) || ctas == 1;
  }
  /// Threads that share one head and four dims when pieces are merged.
  int64_t mergeParts() const {
    int64_t items = group * (layout.paddedValueDim() / 4), parts = 1;
    while (2 * parts * items <= threads())
      parts *= 2;
    return parts;
  }
  /// Blocks of one round of scan and refinement: 32 per warp, a lane for each.
  int64_t roundBlocks() const { return warps * 32; }
  int64_t tilesPerBlock() const { return layout.tilesPerBlock(); }
  /// Whether a scan loop has a ring.
  bool scanRing() const { return traits.rings && !direct; }
  /// Whether blocks are first scanned with the high bytes of the query alone:
  /// that takes a column per head, so it saves products above four heads.
  /// A certificate needs the scores of all tokens.
  bool screens() const {
    return scanRing() && scanTiles > 1 && !traits.certified();
  }

  // A refinement slot: residuals, values, scales, maybe codes.
  int64_t slotValues() const { return layout.residualTileBytes(); }
  int64_t slotScales() const { return slotValues() + layout.valueTileBytes(); }
  int64_t slotCodes() const { return slotScales() + layout.scaleBytes(); }
  int64_t slotBytes() const {
    return slotCodes() + (codesInSlot() ? codeWords * 128 : 0);
  }
  /// Where a warp's ring has room for its outputs while the warp scans: they
  /// would take a quarter of its registers.
  bool parksOutput() const { return traits.rings && traits.refines; }
  int64_t parkOffset() const {
    return direct ? 0 : llvm::alignTo(stages * layout.thumbnailBytes(), 16);
  }
  int64_t parkBytes() const { return headTiles * valueTiles * 512; }
  /// Keys of the tail that a warp has room for while it scores them, where its
  /// outputs will lie: an even number of steps, however many tokens a step has.
  int64_t tailTokens() const;
  int64_t tailBytes() const { return tailTokens() * 2 * layout.headDim; }
  /// Bytes of one warp's ring: scan stages and refinement slots share it.
  int64_t ringBytes() const;
  int64_t ringBytesWithoutTail() const;
  /// Floats between two rows of the area in which warps merge their states.
  int64_t mergeStride() const { return layout.paddedValueDim() + 8; }
  int64_t mergeHeads() const { return std::min<int64_t>(group, 8); }
  int64_t paddedGroup() const { return (group + 7) / 8 * 8; }
  int64_t barriersPerWarp() const { return stages + slots; }

  // Offsets in shared memory.
  int64_t ring, mergeSums, scanQuery, refineQuery, pages, keep, queue, barriers,
      unit, bad, factor, inverse, shift, rowMax, tailBad, flag, coordinates,
      place, committed, keptSum, skippedSums, skippedReference, sharedBytes;

  void assignOffsets();
};

/// Fills in everything. Without a schedule on the op, takes the first of
///   8 warps x 2 CTAs, 4 x 2, then one CTA of 8 or 4 warps with fewer stages
///   and slots
/// that fits the shared memory of the architecture, where two CTAs also need a
/// kernel that can live with 128 registers a thread; at last, one CTA without a
/// ring for the scan.
FailureOr<KernelPlan> makePlan(TileTeamsOp teams, const GPUArch &arch);

} // namespace mlir::ffd

#endif // FFD_LIB_CONVERSION_FFDTILETOGPU_PLAN_H
