//===- TileBuilder.h - Write tile programs ------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A small builder of tile programs: one function per phase, so that the
// programs of --ffd-tile read like the algorithm.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_TRANSFORMS_TILEBUILDER_H
#define FFD_LIB_TRANSFORMS_TILEBUILDER_H

#include "ffd/Dialect/FFDDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::ffd {

/// What the phases of one row share.
struct TileProgram {
  TileProgram(OpBuilder &builder, Location loc, SpecAttr spec);

  /// Opens `ffd.tile.teams`; everything built afterwards is its body.
  TileTeamsOp begin();

  /// Committed blocks and tail tokens of the row: `blocks`, `tail`.
  void extent(Value cache);
  void exactExtent(Value lengths);
  /// The row's queries, quantised if there is a cache: `query`.
  void loadQuery(Value memory, Value smScale, Value cache = {});

  /// Pseudo-max over sink and last block, maybe from refined scores, then over
  /// the tail.
  Value pseudoMax(Value cache, bool refined);
  Value threshold(Value rowMax, Value delta);
  /// The work list of blocks that reach the threshold (null: all of them),
  /// maybe with both ends of the row in any case; their masks are stored to
  /// `kept`, where given.
  /// A certificate also gives the mass that is skipped: `skipped`.
  Value select(Value cache, Value threshold, Value kept, bool keepEnds,
               Certificate certificate = Certificate::none);
  /// The ranking of the row's selection blocks; the row is one piece.
  Value rank(Value cache);
  /// Stores the blocks that a rule over the whole row keeps.
  void choose(Attribute selector, Value ranking, Value kept);
  /// The work list that another kernel stored.
  Value loadSelection(Value kept);
  /// Softmax over the work list, then over the team's share of the tail.
  Value attend(Value cache, Value worklist);
  Value attendTail(Value keys, Value values, Value state);
  Value init();
  /// Writes output and lse; with a cache, lse is that of the keys themselves
  /// where those of the cache are centred. `skippedLse`, where given, receives
  /// the skipped mass.
  void finish(Value state, Value out, Value lse, Value cache = {},
              Value skippedLse = {});
  /// The whole of an append, after begin().
  void append(AppendOp op);

private:
  template <typename T>
  Type type() {
    return T::get(b.getContext(), spec);
  }
  /// Builds a distribute loop; `body` gets the block arguments and returns what
  /// is yielded. With `skippedType` it leaves what an iteration skips in
  /// `skipped`, where that of the loop is afterwards.
  Value distribute(Domain domain, ValueRange over, Combiner combiner,
                   Value init, Type result, TypeRange extraArguments,
                   function_ref<Value(ValueRange)> body, Type skippedType = {});

  ImplicitLocOpBuilder b;
  SpecAttr spec;
  Value row, split, splits, blocks, tail, query, skipped;
};

} // namespace mlir::ffd

#endif // FFD_LIB_TRANSFORMS_TILEBUILDER_H
