//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attributes: the spec of a kernel, the selectors, the schedule of a team, and
// the enumerations of the tile level.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_ATTRS
#define FFD_ATTRS

include "FFDDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

class FFD_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<FFD_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

def FFD_Centre : I32EnumAttr<"Centre", "what is subtracted from the keys of a row", [
    I32EnumAttrCase<"none", 0>, I32EnumAttrCase<"row", 1>]> {
  let cppNamespace = "::mlir::ffd";
}

def FFD_SpecAttr : FFD_Attr<"Spec", "spec"> {
  let summary = "what one kernel is specialised for";
  let description = [{
    Every size that generated code treats as a constant. A size that is left out
    is not known yet; `--ffd-specialize` fills it in, and the tile level accepts
    only complete specs.

    Constraints:
    * (spec_c1) `head_dim` and `value_dim` are multiples of 16 in 16..256;
    * (spec_c2) `group` is 1..16;
    * (spec_c3) `element` is f16 or bf16;
    * (spec_c4) `scan_bits` is 2, 4 or 8, or 16: keys that are not split, for
      ablations;
    * (spec_c5) `quant_block` is 128;
    * (spec_c6) `select_block` is 16, 32, 64 or 128;
    * (spec_c7) `residual_bits` is 8, or 0: attention over the thumbnails alone,
      for ablations; 0 where `scan_bits` is 16;
    * (spec_c8) `query_tokens` is 1..8, and `group * query_tokens` at most 16.

    With `centre = row` the cache holds keys relative to a vector per row, the
    mean of the row's first block (centre_c1 of `docs/numerics.md`), and keeps
    that vector.

    Only the CPU lowering takes 16 scan bits or no residuals.

    Example:

    ```mlir
    #s = #ffd.spec<head_dim = 128, value_dim = 128, group = 4, element = f16,
                   scan_bits = 2, quant_block = 128, select_block = 16>
    ```
  }];
  let parameters = (ins
    OptionalParameter<"int64_t", "channels of K and q">:$head_dim,
    OptionalParameter<"int64_t", "channels of V">:$value_dim,
    OptionalParameter<"int64_t", "query heads per kv head">:$group,
    OptionalParameter<"::mlir::Type", "type of q, K, V, scales">:$element,
    OptionalParameter<"int64_t", "bits of a thumbnail code">:$scan_bits,
    OptionalParameter<"int64_t", "tokens that share a scale">:$quant_block,
    OptionalParameter<"int64_t", "tokens kept together">:$select_block,
    DefaultValuedParameter<"int64_t", "8", "bits of a residual">:$residual_bits,
    DefaultValuedParameter<"int64_t", "1",
        "newest tokens of a sequence that ask at once">:$query_tokens,
    DefaultValuedParameter<"::mlir::ffd::Centre", "::mlir::ffd::Centre::none",
        "what keys are relative to: none or row">:$centre
  );
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The spec with residuals of 8 bits, one query token and plain keys.
    static SpecAttr get(::mlir::MLIRContext *context, int64_t headDim,
                        int64_t valueDim, int64_t group, ::mlir::Type element,
                        int64_t scanBits, int64_t quantBlock,
                        int64_t selectBlock) {
      return get(context, headDim, valueDim, group, element, scanBits,
                 quantBlock, selectBlock, /*residualBits=*/int64_t(8),
                 /*queryTokens=*/int64_t(1), Centre::none);
    }
    static SpecAttr
    getChecked(::llvm::function_ref<::mlir::InFlightDiagnostic()> emitError,
               ::mlir::MLIRContext *context, int64_t headDim, int64_t valueDim,
               int64_t group, ::mlir::Type element, int64_t scanBits,
               int64_t quantBlock, int64_t selectBlock) {
      return getChecked(emitError, context, headDim, valueDim, group, element,
                        scanBits, quantBlock, selectBlock,
                        /*residualBits=*/int64_t(8),
                        /*queryTokens=*/int64_t(1), Centre::none);
    }
    /// Whether the scan reads 16-bit keys, which have no thumbnails.
    bool scansKeys() const { return getScanBits() == 16; }
    bool hasResiduals() const { return getResidualBits() != 0; }
    /// Whether the cache holds keys relative to a vector of their row.
    bool hasCentre() const { return getCentre() != Centre::none; }
    /// Queries that share a kv head: those of its group, of all query tokens.
    /// Number `i * group + g` is head g of token i.
    int64_t getRowHeads() const { return getGroup() * getQueryTokens(); }
    /// Whether every size is known.
    bool isComplete() const;
    /// The layout of the split cache (complete specs only).
    ::ffd::Layout getLayout() const;
    /// (2^scan_bits - 1) / 2 times 2: the odd integer that centres the codes.
    int64_t getTwiceL() const { return (int64_t(1) << getScanBits()) - 1; }
    bool isBF16() const { return getElement().isBF16(); }
    /// The canonical part of a kernel's name: "d128-v128-g4-f16-b2-q128-s16", with
    /// "-r0" where there are no residuals, "-n4" where four tokens ask at once and
    /// "-crow" where keys are centred.
    std::string getKernelName() const;
  }];
}

def FFD_PseudoMax : I32EnumAttr<"PseudoMax", "what a pseudo-max is taken from", [
    I32EnumAttrCase<"scan", 0>, I32EnumAttrCase<"refined", 1>]> {
  let cppNamespace = "::mlir::ffd";
}

def FFD_Certificate : I32EnumAttr<"Certificate", "an estimate of the skipped mass", [
    I32EnumAttrCase<"none", 0>, I32EnumAttrCase<"plain", 1>,
    I32EnumAttrCase<"noise", 2>]> {
  let cppNamespace = "::mlir::ffd";
}

def FFD_TopDeltaAttr : FFD_Attr<"TopDelta", "top_delta"> {
  let summary = "keep blocks within delta of the pseudo-max (fusible)";
  let description = [{
    select_c1 to select_c6 of `docs/numerics.md`. The threshold needs no pass
    over the whole row, so selector and computer can be one kernel.

    `pseudo_max` says which scores of the first and the last committed block the
    pseudo-max is taken from: those of the `scan`, whose noise raises their
    maximum, or `refined` ones, of thumbnails and residuals. With refined ones
    the first and the last selection block are always kept (select_c6).

    ```mlir
    #ffd.top_delta<pseudo_max = refined>
    ```

    With a `certificate` the scan's estimate of what is not kept is a result too
    (cert_c1 to cert_c4): `plain`, an upper estimate for nearly all heads, or
    corrected for the `noise` of the scan, nearer in the mean. Only the fused
    `ffd.decode` takes such a rule.

    ```mlir
    #ffd.top_delta<certificate = noise>
    ```
  }];
  let parameters = (ins
    DefaultValuedParameter<"::mlir::ffd::PseudoMax",
        "::mlir::ffd::PseudoMax::scan",
        "scores of the blocks it looks at">:$pseudo_max,
    DefaultValuedParameter<"::mlir::ffd::Certificate",
        "::mlir::ffd::Certificate::none",
        "estimate of the skipped mass">:$certificate);
  let assemblyFormat = "(`<` struct(params)^ `>`)?";
}
def FFD_TopKAttr : FFD_Attr<"TopK", "top_k"> {
  let summary = "keep the k best selection blocks of a row";
  let description = [{
    Ties go to the lower block.

    Constraints:
    * (top_k_c1) `k` is at least 1.

    ```mlir
    #ffd.top_k<64>
    ```
  }];
  let parameters = (ins "int64_t":$k);
  let assemblyFormat = "`<` $k `>`";
  let genVerifyDecl = 1;
}
def FFD_TopPAttr : FFD_Attr<"TopP", "top_p"> {
  let summary = "keep the best blocks until they hold a share p of the mass";
  let description = [{
    The mass is the sum of `exp` of the estimated scores.

    Constraints:
    * (top_p_c1) `0 < p <= 1`.

    ```mlir
    #ffd.top_p<0.85 : f64>
    ```
  }];
  let parameters = (ins "::mlir::FloatAttr":$p);
  let assemblyFormat = "`<` $p `>`";
  let genVerifyDecl = 1;
}
def FFD_AllAttr : FFD_Attr<"All", "all"> {
  let summary = "keep every block (fusible)";
  let description = [{
    Reads no scores at all.

    ```mlir
    #ffd.all
    ```
  }];
}
def FFD_AnySelector : AnyAttrOf<[FFD_TopDeltaAttr, FFD_TopKAttr, FFD_TopPAttr,
                                 FFD_AllAttr], "a selector">;

def FFD_ScheduleAttr : FFD_Attr<"Schedule", "schedule"> {
  let summary = "how a team is mapped to a target";
  let description = [{
    Chosen by `--ffd-schedule` from the spec and the target; every field can be
    overridden. `warps` per CTA, `ctas` resident per multiprocessor (which bounds
    the registers), `stages` of a warp's scan ring, `slots` of its refine ring.

    Constraints:
    * (schedule_c1) `warps` is 1, 2, 4, 8 or 16;
    * (schedule_c2) `ctas` is 1..8;
    * (schedule_c3) `stages` is 1..8;
    * (schedule_c4) `slots` is 1..8.

    ```mlir
    #ffd.schedule<warps = 8, ctas = 2, stages = 2, slots = 2>
    ```
  }];
  let parameters = (ins
    "int64_t":$warps, "int64_t":$ctas, "int64_t":$stages, "int64_t":$slots);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

//===--- Enumerations of the tile level ------------------------------------===//

def FFD_Domain : I32EnumAttr<"Domain", "what a distribute loop runs over", [
    I32EnumAttrCase<"candidates", 0>, I32EnumAttrCase<"share", 1>,
    I32EnumAttrCase<"worklist", 2>, I32EnumAttrCase<"tail", 3>,
    I32EnumAttrCase<"tail_share", 4>, I32EnumAttrCase<"commit", 5>]> {
  let cppNamespace = "::mlir::ffd";
}
def FFD_Combiner : I32EnumAttr<"Combiner", "how iterations combine", [
    I32EnumAttrCase<"max", 0>, I32EnumAttrCase<"append", 1>,
    I32EnumAttrCase<"state", 2>, I32EnumAttrCase<"rank", 3>,
    I32EnumAttrCase<"scales", 4>]> {
  let cppNamespace = "::mlir::ffd";
}

#endif // FFD_ATTRS
