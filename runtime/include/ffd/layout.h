//===- layout.h - Where every byte of the split cache lives -----*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one description of the packed split cache, used by the compiler (GPU and
// CPU lowering), by the runtime and by the tests. It depends on nothing.
// docs/layout.md draws it.
//
// A page is one quantisation block of `quantBlock` tokens for all kv heads. Its
// id indexes a slot in three planes:
//
//   thumbnails [page][kv head] { codes | scales }      thumbnailBytes()
//   residuals  [page][kv head] [tile][group][lane] 16B residualBytes()
//   values     [page][kv head] [tile][dim/16][lane] 16B valueBytes()
//
// Everything is in the order in which the 32 lanes of a warp read it for
// mma.sync: lane = 4 * g + tq, a tile is 16 tokens, a channel group is 32
// channels, and
//
//   token   = 16 * tile + g + 8 * (i & 1)
//   channel = 32 * group + 16 * (i >> 1) + 4 * tq + byte       i in 0..3
//
// so that i is the register index of the mma's A operand.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LAYOUT_H
#define FFD_LAYOUT_H

#include <cstdint>

namespace ffd {

/// Tokens of one mma tile.
inline constexpr int64_t kTileTokens = 16;
/// Channels of one mma step over 8-bit operands.
inline constexpr int64_t kGroupChannels = 32;
/// Lanes of a warp.
inline constexpr int64_t kLanes = 32;

/// The sizes of one kernel specialisation from which all offsets follow.
struct Layout {
  int64_t headDim = 128;    ///< D, channels of K and q; a multiple of 16.
  int64_t valueDim = 128;   ///< Dv, channels of V; a multiple of 16.
  int64_t scanBits = 2;     ///< b, bits of a thumbnail code: 2, 4 or 8; 16:
                            ///< the block's keys themselves, row-major.
  int64_t quantBlock = 128; ///< QB, tokens that share one scale per channel.
  int64_t selectBlock = 16; ///< SB, tokens kept or skipped together.
  int64_t residualBits = 8; ///< 8, or 0: there is no residuals plane.

  /// D padded with zero channels to the mma's multiple.
  constexpr int64_t paddedHeadDim() const {
    return (headDim + kGroupChannels - 1) / kGroupChannels * kGroupChannels;
  }
  constexpr int64_t channelGroups() const {
    return paddedHeadDim() / kGroupChannels;
  }
  constexpr int64_t tilesPerBlock() const { return quantBlock / kTileTokens; }
  constexpr int64_t selectsPerBlock() const { return quantBlock / selectBlock; }

  //===--- Thumbnails: the codes of a block, then its scales ---------------===//

  /// Codes that share one byte.
  constexpr int64_t fieldsPerByte() const {
    return scanBits > 8 ? 1 : 8 / scanBits;
  }
  /// 32-bit words of codes that one lane owns in one tile.
  constexpr int64_t wordsPerTile() const {
    return 4 * channelGroups() / fieldsPerByte();
  }
  constexpr int64_t codeBytes() const {
    return scanBits == 16 ? quantBlock * headDim * 2
                          : quantBlock * paddedHeadDim() * scanBits / 8;
  }
  constexpr int64_t scaleBytes() const { return 2 * paddedHeadDim(); }
  constexpr int64_t thumbnailBytes() const { return codeBytes() + scaleBytes(); }

  /// The word, among a lane's words of a tile, that holds A register `i` of
  /// channel group `group`. All words of a lane run on from tile to tile.
  constexpr int64_t codeWord(int64_t group, int64_t i) const {
    return (4 * group + i) / fieldsPerByte();
  }
  /// Bit position of that register's codes within each byte of the word.
  /// For two bits: word = group, bit = 2 * i. Tokens g + 8 (odd i) then sit in
  /// odd fields for *every* channel, so a kernel may leave the factor
  /// 2^scanBits in their codes and scale their threshold instead.
  constexpr int64_t codeBit(int64_t group, int64_t i) const {
    return (4 * group + i) % fieldsPerByte() * scanBits;
  }
  /// Byte offset in the block of word `word` of `lane` in `tile`: four
  /// consecutive words of a lane's run share a 16-byte chunk.
  constexpr int64_t codeWordOffset(int64_t tile, int64_t lane,
                                   int64_t word) const {
    int64_t n = tile * wordsPerTile() + word;
    return n / 4 * (kLanes * 16) + lane * 16 + n % 4 * 4;
  }

  /// Index of channel `c` in *scale order*: per (group, tq) eight scales, those
  /// of the lower 16 channels first. `smax` uses the same order.
  static constexpr int64_t scaleIndex(int64_t c) {
    int64_t group = c / 32, r = c / 16 % 2, tq = c / 4 % 4, byte = c % 4;
    return (group * 4 + tq) * 8 + r * 4 + byte;
  }

  //===--- Residuals and values --------------------------------------------===//

  constexpr int64_t residualTileBytes() const {
    return residualBits ? kTileTokens * paddedHeadDim() : 0;
  }
  constexpr int64_t residualBytes() const {
    return residualBits ? quantBlock * paddedHeadDim() : 0;
  }
  /// Byte offset in the block of the residual of (token, channel).
  constexpr int64_t residualOffset(int64_t token, int64_t c) const {
    int64_t tile = token / 16, g = token % 8, i = token / 8 % 2 + c / 16 % 2 * 2;
    int64_t group = c / 32, tq = c / 4 % 4, byte = c % 4;
    return ((tile * channelGroups() + group) * kLanes + 4 * g + tq) * 16 +
           i * 4 + byte;
  }

  /// Dv padded to the mma's 16 rows.
  constexpr int64_t paddedValueDim() const { return (valueDim + 15) / 16 * 16; }
  constexpr int64_t valueTileBytes() const {
    return kTileTokens * paddedValueDim() * 2;
  }
  constexpr int64_t valueBytes() const {
    return quantBlock * paddedValueDim() * 2;
  }
  /// Byte offset in the block of the 16-bit V element of (token, dim): word 0
  /// holds dim 16m+g of tokens 2tq and 2tq+1, word 1 dim +8, word 2 tokens +8,
  /// word 3 both.
  constexpr int64_t valueOffset(int64_t token, int64_t dim) const {
    int64_t tile = token / 16, m = dim / 16, g = dim % 8;
    int64_t word = dim / 8 % 2 + token / 8 % 2 * 2, tq = token % 8 / 2;
    return ((tile * (paddedValueDim() / 16) + m) * kLanes + 4 * g + tq) * 16 +
           word * 4 + token % 2 * 2;
  }

  //===--- Code positions of single elements (writers and oracles) ---------===//

  /// Byte offset in the block of the byte that holds the code of
  /// (token, channel), and the bit where the code starts in it.
  constexpr int64_t codeByteOffset(int64_t token, int64_t c) const {
    int64_t i = token / 8 % 2 + c / 16 % 2 * 2;
    return codeWordOffset(token / 16, 4 * (token % 8) + c / 4 % 4,
                          codeWord(c / 32, i)) +
           c % 4;
  }
  constexpr int64_t codeBitOffset(int64_t token, int64_t c) const {
    return codeBit(c / 32, token / 8 % 2 + c / 16 % 2 * 2);
  }

  //===--- Partial results of split rows -----------------------------------===//

  /// Floats of one partial result of one query head: the unnormalised output,
  /// then the reference (natural log), the sum and, with a certificate, the sum
  /// of the skipped mass; padded to 16 bytes.
  constexpr int64_t partialFloats() const { return paddedValueDim() + 4; }
  /// Byte offset of the partials: they follow one 32-bit arrival counter per
  /// row (zero before the first launch; every launch leaves them zero).
  static constexpr int64_t partialsOffset(int64_t rows) {
    return (rows * 4 + 127) / 128 * 128;
  }
  /// Bytes of workspace for `rows` rows cut into `splits` pieces of `group`
  /// heads: partials[row][split][head][partialFloats()].
  constexpr int64_t workspaceBytes(int64_t rows, int64_t splits,
                                   int64_t group) const {
    return plannedWorkspaceBytes(rows, rows * splits, group);
  }
  /// The same for a launch that follows a plan of `pieces`:
  /// partials[piece][head][partialFloats()].
  constexpr int64_t plannedWorkspaceBytes(int64_t rows, int64_t pieces,
                                          int64_t group) const {
    return partialsOffset(rows) + pieces * group * partialFloats() * 4;
  }
  /// Where the largest scales of the pieces of an append start in its workspace:
  /// behind one 32-bit arrival counter per row and one per sequence.
  static constexpr int64_t appendPartialsOffset(int64_t batch, int64_t heads) {
    return partialsOffset(batch * (heads + 1));
  }
  /// Bytes of workspace of an append in `splits` pieces per row: counters, then
  /// [row][split][padded head dim] scales of 32 bits, which one piece does not
  /// need.
  constexpr int64_t appendWorkspaceBytes(int64_t batch, int64_t heads,
                                         int64_t splits) const {
    int64_t pieces = splits > 1 ? batch * heads * splits : 0;
    return appendPartialsOffset(batch, heads) + pieces * paddedHeadDim() * 4;
  }
};

} // namespace ffd
#endif // FFD_LAYOUT_H
