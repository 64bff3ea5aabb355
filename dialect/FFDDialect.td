//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The `ffd` dialect itself and the base class of its ops. The dialect has three
// groups of ops, each in a file of its own: algorithm ops on tensors (L1,
// FFDOps.td), tile programs (L2, FFDTileOps.td) and the GPU level (L3,
// FFDGPUOps.td).
//
//===----------------------------------------------------------------------===//

#ifndef FFD_DIALECT
#define FFD_DIALECT

include "mlir/IR/OpBase.td"

def FFD_Dialect : Dialect {
  let name = "ffd";
  let cppNamespace = "::mlir::ffd";
  let summary = "Sparse decode attention over a split KV cache";
  let description = [{
    Decoding one token of a language model re-reads the whole KV cache. This
    dialect expresses attention that reads a 2-bit *thumbnail* of every key,
    estimates every score from it, and reads the 8-bit *residual* and the value
    only of the *selection blocks* whose best estimate comes within `delta` of a
    *pseudo-max*. `docs/numerics.md` defines every result; constraints are
    quoted by number.

    A program enters at L1 (`ffd.pseudo_max`, `ffd.scan`, `ffd.select`,
    `ffd.attend` on tensors and a cache view), is fused to `ffd.decode`, becomes
    a tile program (`ffd.tile.*`) that says what is loaded and computed by a
    team and how partial results combine, and is lowered from there either to
    vectors for the CPU or to `ffd.gpu.*` and NVVM.
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let extraClassDeclaration = [{
    void registerAttributes();
  }];
}

class FFD_Op<string mnemonic, list<Trait> traits = []>
    : Op<FFD_Dialect, mnemonic, traits>;

#endif // FFD_DIALECT
