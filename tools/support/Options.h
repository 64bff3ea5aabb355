//===- Options.h - Options that tools share ---------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What ffd-run and ffd-bench both ask, and checks of values. Every error names
// the option, the value it has and what was expected.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_SUPPORT_OPTIONS_H
#define FFD_TOOLS_SUPPORT_OPTIONS_H

#include "ffd/abi.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ffd::tools {

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

llvm::Error expectOneOf(llvm::StringRef option, llvm::StringRef value,
                        llvm::ArrayRef<llvm::StringRef> choices);
llvm::Error expectOneOf(llvm::StringRef option, int64_t value,
                        llvm::ArrayRef<int64_t> choices);
llvm::Error expectRange(llvm::StringRef option, int64_t value, int64_t least,
                        int64_t most);
/// A text that is given is not empty.
llvm::Error expectText(const llvm::cl::opt<std::string> &option,
                       llvm::StringRef expected);
/// That a specification made from options is valid; what is wrong is the option
/// that is named like the field.
llvm::Error expectValid(const ffdSpec &spec);
/// Numbers of a list, each from 1 to `most`.
llvm::Error parseList(llvm::StringRef option, llvm::ArrayRef<std::string> texts,
                      int64_t most, std::vector<int64_t> &values);
/// A threshold: a number from 0 to inf, as the kernels take it.
llvm::Error parseDelta(llvm::StringRef text, float &delta);

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

/// Which kernel, and where it runs. A tool makes one, beside its own options.
class KernelOptions {
public:
  /// `scanBitsHelp` says which scan bits the tool takes, `pseudoMaxHelp` what
  /// its pseudo-max is by default.
  KernelOptions(llvm::cl::OptionCategory &category, const char *scanBitsHelp,
                const char *pseudoMaxHelp);

  llvm::Error check() const;

  bool emulated() const { return target == "emulate"; }
  int32_t centre() const; ///< an ffdCentre
  /// An ffdPseudoMax; `unnamed` where --pseudo-max is not given.
  int32_t pseudoMaxOr(int32_t unnamed) const;
  int16_t certificate() const; ///< an ffdCertificate

  llvm::cl::opt<std::string> target, arch, centreName, pseudoMax,
      certificateName, kernelDir;
  llvm::cl::opt<std::string> json;
  llvm::cl::opt<int> scanBits, threads;
};

} // namespace ffd::tools
#endif // FFD_TOOLS_SUPPORT_OPTIONS_H
