//===- Case.h - The tensors of one decode -----------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Turns the tensors of a file into decode cases: finds them by name, checks
// every shape and type against what a decode needs, and converts one layer at a
// time to 16-bit arrays. Tokens that no length reaches stay NaN.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDRUN_CASE_H
#define FFD_TOOLS_FFDRUN_CASE_H

#include "Safetensors.h"

#include "ffd/Memory.h"
#include "ffd/ThreadPool.h"
#include "ffd/abi.h"

#include <optional>
#include <string>
#include <vector>

namespace ffd::run {

/// The shape of a case, known before any element is read.
struct CaseShape {
  std::optional<int64_t> layer; ///< of a trace
  std::string prefix;           ///< of the tensor names: "" or "layers.3."
  int32_t element = FFD_F16;    ///< ffdElement that the tensors become
  int64_t batch = 0;            ///< B, sequences of q
  int64_t kvBatch = 0;          ///< sequences of k and v: B or 1
  int64_t tokens = 0;           ///< T, tokens of k and v
  int64_t queryTokens = 1;      ///< n, newest tokens that ask at once
  int64_t queryHeads = 0;       ///< Hq
  int64_t kvHeads = 0;          ///< Hkv
  int64_t headDim = 0;          ///< D
  int64_t valueDim = 0;         ///< Dv
  std::vector<int64_t> lengths; ///< [B] visible tokens

  int64_t group() const { return queryHeads / kvHeads; }
  /// Tokens of sequence `s` of k and v that some length reaches.
  int64_t visibleTokens(int64_t s) const;
  /// Bytes of K and V that some length reaches, in 16 bits.
  int64_t visibleBytes() const;
};

/// A case with its elements.
struct Case {
  CaseShape shape;
  HostBuffer q; ///< [batch][queryTokens][queryHeads][headDim]
  HostBuffer k; ///< [kvBatch][tokens][kvHeads][headDim]
  HostBuffer v; ///< [kvBatch][tokens][kvHeads][valueDim]
};

/// The cases of a file: one, or the layers of a trace in numeric order.
class CaseFile {
public:
  /// Opens a file and checks all of its cases. `element` overrides the type
  /// that the tensors imply.
  static llvm::Expected<CaseFile> open(llvm::StringRef path,
                                       std::optional<int32_t> element);

  llvm::ArrayRef<CaseShape> shapes() const { return caseShapes; }
  /// Tensors of the file that belong to no case.
  llvm::ArrayRef<std::string> ignored() const { return ignoredNames; }
  /// Converts the elements of one case.
  llvm::Expected<Case> load(size_t index, ThreadPool &pool) const;

private:
  explicit CaseFile(safetensors::File file) : file(std::move(file)) {}

  safetensors::File file;
  std::vector<CaseShape> caseShapes;
  std::vector<std::string> ignoredNames;
};

} // namespace ffd::run

#endif // FFD_TOOLS_FFDRUN_CASE_H
