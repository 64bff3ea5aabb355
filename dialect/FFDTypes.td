//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Types: the view of a split cache (L1) and the values of tile programs (L2).
// The latter are abstract: a target decides which registers, vectors or shared
// memory hold them.
//
//===----------------------------------------------------------------------===//

#ifndef FFD_TYPES
#define FFD_TYPES

include "FFDAttrs.td"

class FFD_SpecType<string name, string typeMnemonic, string what>
    : TypeDef<FFD_Dialect, name> {
  let mnemonic = typeMnemonic;
  let summary = what;
  let parameters = (ins "SpecAttr":$spec);
  let assemblyFormat = "`<` qualified($spec) `>`";
}

def FFD_CacheType : FFD_SpecType<"Cache", "cache",
    "a view of one layer's paged split cache"> {
  let description = [{
    Made by `ffd.cache.view` from plain memref planes, as a memref descriptor is
    made, and taken apart again by lowering. The spec fixes the layout of every
    plane (`docs/layout.md`).
  }];
}

def FFD_QueryType : FFD_SpecType<"Query", "query",
    "a row's queries: exact, and quantised for the scan (query_c1 to c5)">;
def FFD_ThumbnailType : FFD_SpecType<"Thumbnail", "thumbnail",
    "codes and scales of one quantisation block">;
def FFD_BodyType : FFD_SpecType<"Body", "body",
    "residuals and values of the kept selection blocks of one block">;
def FFD_TailType : FFD_SpecType<"Tail", "tail",
    "16-bit keys and values of one tile of tail tokens">;
def FFD_ScoresType : FFD_SpecType<"Scores", "scores",
    "scores in integer scan units, per head and token">;
def FFD_LogitsType : FFD_SpecType<"Logits", "logits",
    "scores in natural-log units (f32), per head and token">;
def FFD_RowMaxType : FFD_SpecType<"RowMax", "row_max",
    "the pseudo-max in scan units, per head">;
def FFD_ThresholdType : FFD_SpecType<"Threshold", "threshold",
    "the lowest score that keeps a block, in scan units, per head">;
def FFD_MaskType : FFD_SpecType<"Mask", "mask",
    "one bit per selection block of one quantisation block">;
def FFD_WorklistType : FFD_SpecType<"Worklist", "worklist",
    "kept selection blocks of a team, in ascending order">;
def FFD_SkippedType : FFD_SpecType<"Skipped", "skipped",
    "the estimated softmax mass of skipped tokens, per head, relative to the threshold">;
def FFD_RankingType : FFD_SpecType<"Ranking", "ranking",
    "best score and softmax mass of every selection block of a row">;
def FFD_StateType : FFD_SpecType<"State", "state",
    "an online softmax: unnormalised output, reference, sum, per head">;
def FFD_TokensType : FFD_SpecType<"Tokens", "tokens",
    "16-bit keys and values of one quantisation block">;
def FFD_ScalesType : FFD_SpecType<"Scales", "scales",
    "the largest scale of every channel over some blocks">;

#endif // FFD_TYPES
