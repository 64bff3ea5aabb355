//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What all ops of L2 share: memory as rows have it, and one spec per op.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_TILE_BASE
#define FFD_TILE_BASE

include "FFDTypes.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

/// All tile types of one op carry one spec: (tile_c1).
def FFD_SameSpec : PredOpTrait<"all types have one spec (tile_c1)",
    CPred<"::mlir::ffd::haveOneSpec($_op.getOperandTypes(), $_op.getResultTypes())">>;

/// Memory as row ops have it, see (tile_c2) and verifyTileMemory.
def FFD_RowMemory16 : MemRefRankOf<[F16, BF16], [3]>;
def FFD_TailMemory : MemRefRankOf<[F16, BF16], [4]>;
def FFD_OutMemory : MemRefRankOf<[F32], [3]>;
def FFD_LseMemory : MemRefRankOf<[F32], [2]>;
def FFD_KeptMemory : MemRefRankOf<[I8], [3]>;

class FFD_TileOp<string mnemonic, list<Trait> traits = []>
    : FFD_Op<"tile." # mnemonic, traits>;

/// An op on tile values whose types are printed as a function type.
class FFD_TileValueOp<string mnemonic, list<Trait> traits = []>
    : FFD_TileOp<mnemonic, !listconcat([FFD_SameSpec], traits)>;

#endif // FFD_TILE_BASE
