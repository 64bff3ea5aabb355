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
    func.func @f(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
        %o0: tensor<1x4x128xf32>, %l0: tensor<1x4xf32>, %m0: tensor<1x1x64xi8>)
        -> (tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x64xi8>) {
      %o, %l, %m = ffd.decode #ffd.top_delta
          ins(%q, %cache, %delta, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1xf32>)
          outs(%o0, %l0, %m0 : tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x64xi8>)
          -> tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x64xi8>
      return %o, %l, %m : tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x64xi8>
    }
    ```

    becomes

    ```mlir
    func.func @f(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
        %o0: tensor<1x4x128xf32>, %l0: tensor<1x4xf32>, %m0: tensor<1x1x64xi8>)
        -> (tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x64xi8>) {
      %pm0 = tensor.empty() : tensor<1x4xi32>
      %u0 = tensor.empty() : tensor<1x4xf32>
      %b0 = tensor.empty() : tensor<1x4x64xi32>
      %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
          outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
      %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
          outs(%b0 : tensor<1x4x64xi32>) -> tensor<1x4x64xi32>
      %m = ffd.select #ffd.top_delta
          ins(%best, %pm, %u, %delta, %cache : tensor<1x4x64xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
          outs(%m0 : tensor<1x1x64xi8>) -> tensor<1x1x64xi8>
      %o, %l = ffd.attend ins(%q, %cache, %m, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x64xi8>)
          outs(%o0, %l0 : tensor<1x4x128xf32>, tensor<1x4xf32>) -> tensor<1x4x128xf32>, tensor<1x4xf32>
      return %o, %l, %m : tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x64xi8>
    }
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
    query, cache and softmax scale, and nothing between them writes memory. With
    `#ffd.all` scores do not matter, nor what computes them. The mask may be used
    after `ffd.attend`: it is the `kept` result. Results do not change.

    ```mlir
    func.func @f(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
        %o0: tensor<1x4x128xf32>, %l0: tensor<1x4xf32>, %m0: tensor<1x1x64xi8>)
        -> (tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x64xi8>) {
      %pm0 = tensor.empty() : tensor<1x4xi32>
      %u0 = tensor.empty() : tensor<1x4xf32>
      %b0 = tensor.empty() : tensor<1x4x64xi32>
      %pm, %u = ffd.pseudo_max ins(%q, %cache, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>)
          outs(%pm0, %u0 : tensor<1x4xi32>, tensor<1x4xf32>) -> tensor<1x4xi32>, tensor<1x4xf32>
      %best = ffd.scan ins(%q, %cache : tensor<1x4x128xf16>, !ffd.cache<#s>)
          outs(%b0 : tensor<1x4x64xi32>) -> tensor<1x4x64xi32>
      %m = ffd.select #ffd.top_delta
          ins(%best, %pm, %u, %delta, %cache : tensor<1x4x64xi32>, tensor<1x4xi32>, tensor<1x4xf32>, tensor<1xf32>, !ffd.cache<#s>)
          outs(%m0 : tensor<1x1x64xi8>) -> tensor<1x1x64xi8>
      %o, %l = ffd.attend ins(%q, %cache, %m, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1x1x64xi8>)
          outs(%o0, %l0 : tensor<1x4x128xf32>, tensor<1x4xf32>) -> tensor<1x4x128xf32>, tensor<1x4xf32>
      return %o, %l, %m : tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x64xi8>
    }
    ```

    becomes

    ```mlir
    func.func @f(%q: tensor<1x4x128xf16>, %cache: !ffd.cache<#s>, %delta: tensor<1xf32>, %sm: f32,
        %o0: tensor<1x4x128xf32>, %l0: tensor<1x4xf32>, %m0: tensor<1x1x64xi8>)
        -> (tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x64xi8>) {
      %o, %l, %m = ffd.decode #ffd.top_delta
          ins(%q, %cache, %delta, %sm : tensor<1x4x128xf16>, !ffd.cache<#s>, tensor<1xf32>)
          outs(%o0, %l0, %m0 : tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x64xi8>)
          -> tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x64xi8>
      return %o, %l, %m : tensor<1x4x128xf32>, tensor<1x4xf32>, tensor<1x1x64xi8>
    }
    ```
  }];
}

def FFDSpecialize : Pass<"ffd-specialize", "::mlir::ModuleOp"> {
  let summary = "make head dim, group, bits and block sizes constants";
  let description = [{
    Completes every `#ffd.spec`: first from static shapes and element types of
    the ops that use it, then from the options, then from the defaults (scan_bits
    2, quant_block 128, select_block 16). Planes of `ffd.cache.view` that are
    function arguments get the static sizes that follow, unless the function is
    called or the argument has another user. A size given twice with different
    values is an error.

    ```mlir
    func.func @f(%q: memref<1x4x128xf16>, %k: memref<1x1x?x128xf16>, %v: memref<1x1x?x64xf16>,
        %n: memref<1xi32>, %sm: f32, %o: memref<1x4x64xf32>, %l: memref<1x4xf32>) {
      ffd.exact #ffd.spec<>
          ins(%q, %k, %v, %n, %sm : memref<1x4x128xf16>, memref<1x1x?x128xf16>, memref<1x1x?x64xf16>, memref<1xi32>)
          outs(%o, %l : memref<1x4x64xf32>, memref<1x4xf32>)
      return
    }
    ```

    becomes

    ```mlir
    func.func @f(%q: memref<1x4x128xf16>, %k: memref<1x1x?x128xf16>, %v: memref<1x1x?x64xf16>,
        %n: memref<1xi32>, %sm: f32, %o: memref<1x4x64xf32>, %l: memref<1x4xf32>) {
      ffd.exact #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
          ins(%q, %k, %v, %n, %sm : memref<1x4x128xf16>, memref<1x1x?x128xf16>, memref<1x1x?x64xf16>, memref<1xi32>)
          outs(%o, %l : memref<1x4x64xf32>, memref<1x4xf32>)
      return
    }
    ```
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
    Emits split_c1 to split_c5 as three `linalg.generic`: a maximum over the
    tokens of a block, the scale, and the uniform code of every element. Exact, no
    contraction.

    ```mlir
    func.func @f(%k: tensor<256x64xf16>) -> (tensor<256x64xi8>, tensor<2x64xf16>) {
      %c, %r, %s = ffd.split %k {scan_bits = 2 : i64, quant_block = 128 : i64}
          : tensor<256x64xf16> -> tensor<256x64xi8>, tensor<256x64xi8>, tensor<2x64xf16>
      return %c, %s : tensor<256x64xi8>, tensor<2x64xf16>
    }
    ```
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
    and bufferised operands, in the body of a function that returns nothing but
    its arguments. Scores stay in registers, so their buffers must be local; the
    mask of an unfused program joins two kernels, so it must be an argument.

    ```mlir
    #t = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
    func.func @f(%q: memref<1x4x128xf16>, %k: memref<1x1x?x128xf16>, %v: memref<1x1x?x64xf16>,
        %n: memref<1xi32>, %sm: f32, %o: memref<1x4x64xf32>, %l: memref<1x4xf32>) {
      ffd.exact #t
          ins(%q, %k, %v, %n, %sm : memref<1x4x128xf16>, memref<1x1x?x128xf16>, memref<1x1x?x64xf16>, memref<1xi32>)
          outs(%o, %l : memref<1x4x64xf32>, memref<1x4xf32>)
      return
    }
    ```

    becomes

    ```mlir
    #t = #ffd.spec<head_dim = 128, value_dim = 64, group = 4, element = f16, scan_bits = 2, quant_block = 128, select_block = 16>
    func.func @f(%q: memref<1x4x128xf16>, %k: memref<1x1x?x128xf16>, %v: memref<1x1x?x64xf16>,
        %n: memref<1xi32>, %sm: f32, %o: memref<1x4x64xf32>, %l: memref<1x4xf32>) {
      ffd.tile.teams #t {
      ^bb0(%row: index, %split: index, %splits: index):
        %t = ffd.tile.exact_extent %n[%row] : memref<1xi32>
        %qq = ffd.tile.query %q[%row] scale(%sm) : (memref<1x4x128xf16>, f32) -> !ffd.query<#t>
        %s0 = ffd.tile.init %qq : (!ffd.query<#t>) -> !ffd.state<#t>
        %s1 = ffd.tile.distribute tail_share(%t, %split, %splits : index, index, index) combine state init(%s0 : !ffd.state<#t>) {
        ^bb0(%i: index, %s: !ffd.state<#t>):
          %x = ffd.tile.load_tail %k, %v[%row, %i] of %t : (memref<1x1x?x128xf16>, memref<1x1x?x64xf16>) -> !ffd.tail<#t>
          %f = ffd.tile.dot %qq, %x : (!ffd.query<#t>, !ffd.tail<#t>) -> !ffd.logits<#t>
          %s2 = ffd.tile.accumulate %s, %f, %x : (!ffd.state<#t>, !ffd.logits<#t>, !ffd.tail<#t>) -> !ffd.state<#t>
          ffd.tile.yield %s2 : !ffd.state<#t>
        } -> !ffd.state<#t>
        ffd.tile.finish %s1 into %o, %l[%row] piece(%split of %splits) : (!ffd.state<#t>, memref<1x4x64xf32>, memref<1x4xf32>) -> ()
      }
      return
    }
    ```
  }];
}

#endif // FFD_TRANSFORMS_PASSES
