//===- Passes.td - Transformations within the ffd dialect ------ ---------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Passes that stay within the ffd dialect, from the algorithm to the tile
// program.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_TRANSFORMS_PASSES
#define FFD_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

def FFDDecompose : Pass<"ffd-decompose", "::mlir::ModuleOp"> {
  let summary = "split ffd.decode into selector and computer";
  let description = [{
    The inverse of `--ffd-fuse`: every `ffd.decode` on tensors becomes
    `ffd.pseudo_max`, `ffd.scan`, `ffd.select` and `ffd.attend`. Results do not
    change.

    ```mlir
    %o, %l, %m = ffd.decode #ffd.top_delta ins(%q, %cache, %delta, %sm : ...) outs(...)
    // becomes
    %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : ...) outs(...)
    %best = ffd.scan ins(%q, %cache : ...) outs(...)
    %m = ffd.select #ffd.top_delta ins(%best, %pm, %u, %delta, %cache : ...) outs(...)
    %o, %l = ffd.attend ins(%q, %cache, %m, %sm : ...) outs(...)
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::tensor::TensorDialect"];
}

def FFDFuse : Pass<"ffd-fuse", "::mlir::ModuleOp"> {
  let summary = "fuse selector and computer into ffd.decode";
  let description = [{
    Rewrites `ffd.pseudo_max`, `ffd.scan`, `ffd.select`, `ffd.attend` on tensors
    into one `ffd.decode` when that is legal: the selector is `#ffd.top_delta` or
    `#ffd.all`, scores and pseudo-max have no other user, all steps use the same
    query, cache and softmax scale, and nothing between them writes memory. The
    mask may be used elsewhere: it is the `kept` result. Results do not change.
  }];
}

def FFDSchedule : Pass<"ffd-schedule", "::mlir::ModuleOp"> {
  let summary = "choose how teams map to a GPU";
  let description = [{
    Gives every `ffd.tile.teams` a `#ffd.schedule` by the cost model of
    docs/schedule.md: as many resident CTAs and ring stages as shared memory and
    registers of the target allow. A field that the op already has stays; an
    option overrides both.
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

def FFDSpecialize : Pass<"ffd-specialize", "::mlir::ModuleOp"> {
  let summary = "make head dim, group, bits and block sizes constants";
  let description = [{
    Completes every `#ffd.spec`: first from static shapes and element types of
    the ops that use it, then from the options, then from the defaults (scan_bits
    2, quant_block 128, select_block 16). Planes of `ffd.cache.view` that are
    function arguments get the static sizes that follow. A size given twice with
    different values is an error.
  }];
  let options = [
    Option<"headDim", "head-dim", "int64_t", /*default=*/"0", "head_dim">,
    Option<"valueDim", "value-dim", "int64_t", /*default=*/"0",
           "value_dim (default: head_dim)">,
    Option<"group", "group", "int64_t", /*default=*/"0", "group">,
    Option<"element", "element", "std::string", /*default=*/"\"\"",
           "element, f16 or bf16">,
    Option<"scanBits", "scan-bits", "int64_t", /*default=*/"0", "scan_bits">,
    Option<"quantBlock", "quant-block", "int64_t", /*default=*/"0",
           "quant_block">,
    Option<"selectBlock", "select-block", "int64_t", /*default=*/"0",
           "select_block">
  ];
}

def FFDSplitToLinalg : Pass<"ffd-split-to-linalg", "::mlir::ModuleOp"> {
  let summary = "lower ffd.split to linalg on tensors";
  let description = [{
    Emits split_c1 to split_c5 as two `linalg.generic`: a maximum over the tokens
    of a block, and the uniform code of every element. Exact, no contraction.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
}

def FFDTile : Pass<"ffd-tile", "::mlir::ModuleOp"> {
  let summary = "turn row ops on memrefs into tile programs";
  let description = [{
    `ffd.decode` and `ffd.exact` become one `ffd.tile.teams`. An unfused program
    becomes two functions, and so two kernels: `NAME_select` (pseudo_max, scan
    and select, which writes the mask) and `NAME_attend`. Needs complete specs
    and bufferised operands.
  }];
}

#endif // FFD_TRANSFORMS_PASSES
