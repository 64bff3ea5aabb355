//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Conversions out of the tile level.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_CONVERSION_PASSES
#define FFD_CONVERSION_PASSES

include "mlir/Pass/PassBase.td"

def FFDGPUToNVVM : Pass<"ffd-gpu-to-nvvm", "::mlir::ModuleOp"> {
  let summary = "lower ffd.gpu ops to NVVM and LLVM operations";
  let description = [{
    Fixes fragment layouts: every `ffd.gpu` op becomes the warp-wide NVVM
    operations (mma.sync, cp.async, mbarrier, ...) that the target has.
  }];
  let options = [
    Option<"arch", "arch", "std::string", /*default=*/"\"sm_90a\"",
           "GPU architecture, e.g. sm_80 or sm_90a">
  ];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect",
                           "::mlir::NVVM::NVVMDialect",
                           "::mlir::arith::ArithDialect",
                           "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

def FFDSchedule : Pass<"ffd-schedule", "::mlir::ModuleOp"> {
  let summary = "choose how teams map to a GPU";
  let description = [{
    Gives every `ffd.tile.teams` the `#ffd.schedule` that suits its spec and the
    architecture: as many resident CTAs as shared memory and registers allow,
    then as many warps, stages and slots (docs/schedule.md). A schedule that the
    op already has stays; an option overrides single fields of either. What does
    not fit is an error of `--ffd-tile-to-gpu`.

    ```mlir
    func.func @f(%cache: !ffd.cache<#s>, %m: memref<?x?x?xi8>) {
      ffd.tile.teams #s {
      ^bb0(%row: index, %split: index, %splits: index):
        %k = ffd.tile.full : !ffd.mask<#s>
        ffd.tile.store_kept %k, %m[%row, %split] : (!ffd.mask<#s>, memref<?x?x?xi8>) -> ()
      }
      return
    }
    ```

    becomes

    ```mlir
    func.func @f(%cache: !ffd.cache<#s>, %m: memref<?x?x?xi8>) {
      ffd.tile.teams #s schedule <warps = 8, ctas = 2, stages = 2, slots = 2> {
      ^bb0(%row: index, %split: index, %splits: index):
        %k = ffd.tile.full : !ffd.mask<#s>
        ffd.tile.store_kept %k, %m[%row, %split] : (!ffd.mask<#s>, memref<?x?x?xi8>) -> ()
      }
      return
    }
    ```
  }];
  let options = [
    Option<"arch", "arch", "std::string", /*default=*/"\"sm_90a\"",
           "GPU architecture, e.g. sm_80 or sm_90a">,
    Option<"warps", "warps", "int64_t", /*default=*/"0", "warps per CTA">,
    Option<"ctas", "ctas", "int64_t", /*default=*/"0",
           "CTAs per multiprocessor">,
    Option<"stages", "stages", "int64_t", /*default=*/"0",
           "stages of a warp's scan ring">,
    Option<"slots", "slots", "int64_t", /*default=*/"0",
           "slots of a warp's refine ring">
  ];
}

def FFDTileToGPU : Pass<"ffd-tile-to-gpu", "::mlir::ModuleOp"> {
  let summary = "lower tile programs to warps, rings, queues and barriers";
  let description = [{
    A function that holds `ffd.tile.teams` becomes a kernel on the GPU level:
    distribute loops are dealt to warps, their loads become rings of asynchronous
    copies, `append` a deterministic queue, `state` per-warp states, `finish` the
    merge by the last-arriving CTA.
  }];
  let options = [
    Option<"arch", "arch", "std::string", /*default=*/"\"sm_90a\"",
           "GPU architecture, e.g. sm_80 or sm_90a">
  ];
  let dependentDialects = ["::mlir::ffd::FFDDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::NVVM::NVVMDialect",
                           "::mlir::arith::ArithDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

def FFDTileToVector : Pass<"ffd-tile-to-vector", "::mlir::ModuleOp"> {
  let summary = "lower tile programs to vectors and loops for the CPU";
  let description = [{
    A function that holds `ffd.tile.teams` becomes
    `NAME(args: !llvm.ptr, row: i64, split: i64)`, one call per team (ffd/abi.h).
    `isa` picks instructions; results do not depend on it, except where the
    numerics page allows any order.
  }];
  let options = [
    Option<"isa", "isa", "std::string", /*default=*/"\"avx2\"",
           "instruction set: avx2, avx512 or avx512vnni">
  ];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect",
                           "::mlir::arith::ArithDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::memref::MemRefDialect",
                           "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

def FFDValuesToLLVM : Pass<"ffd-values-to-llvm", "::mlir::ModuleOp"> {
  let summary = "lower arithmetic, vectors of registers and branches to LLVM";
  let description = [{
    Runs after `--ffd-gpu-to-nvvm` and `--convert-scf-to-cf`. The ops of the
    arith, vector and cf dialects that kernels are written with become those of
    the LLVM dialect, in one walk. A module with any other op, with flags or with
    types that LLVM lacks takes the upstream conversions instead
    (`--convert-vector-to-llvm` and so on), which do the same in ten times the
    time.

    ```mlir
    llvm.func @f(%a: f32, %b: f32) -> f32 {
      %v = vector.from_elements %a, %b : vector<2xf32>
      %x = vector.extract %v[1] : f32 from vector<2xf32>
      %y = arith.mulf %a, %x : f32
      llvm.return %y : f32
    }
    ```

    becomes

    ```mlir
    llvm.func @f(%a: f32, %b: f32) -> f32 {
      %y = llvm.fmul %a, %b : f32
      llvm.return %y : f32
    }
    ```
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

#endif // FFD_CONVERSION_PASSES
