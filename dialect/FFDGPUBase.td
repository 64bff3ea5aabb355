//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What all ops of L3 share: pointers, vectors of registers, and their enums.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_GPU_BASE
#define FFD_GPU_BASE

include "FFDTypes.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def FFD_GlobalPtr : Type<CPred<"::mlir::ffd::isPointerTo($_self, 1)">,
                         "pointer to global memory (!llvm.ptr<1>)">;
def FFD_SharedPtr : Type<CPred<"::mlir::ffd::isPointerTo($_self, 3)">,
                         "pointer to shared memory (!llvm.ptr<3>)">;
def FFD_Words : VectorOfRankAndType<[1], [I32]>;
def FFD_Floats : VectorOfRankAndType<[1], [F32]>;

def FFD_LaneId : I32EnumAttr<"LaneId", "a coordinate of the executing lane", [
    I32EnumAttrCase<"thread", 0>, I32EnumAttrCase<"warp", 1>,
    I32EnumAttrCase<"lane", 2>, I32EnumAttrCase<"block", 3>]> {
  let cppNamespace = "::mlir::ffd";
}
def FFD_CopyKind : I32EnumAttr<"CopyKind", "how asynchronous copies are done", [
    I32EnumAttrCase<"bulk", 0>, I32EnumAttrCase<"async", 1>]> {
  let cppNamespace = "::mlir::ffd";
}
def FFD_Reduction : I32EnumAttr<"Reduction", "how lanes are reduced", [
    I32EnumAttrCase<"add", 0>, I32EnumAttrCase<"max", 1>]> {
  let cppNamespace = "::mlir::ffd";
}

class FFD_GPUOp<string mnemonic, list<Trait> traits = []>
    : FFD_Op<"gpu." # mnemonic, traits>;

#endif // FFD_GPU_BASE
