//===- Errors.h - Making the errors of tools --------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shorthands for llvm::Error in tools. A message names the thing, the value
// it has and what was expected.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_SUPPORT_ERRORS_H
#define FFD_TOOLS_SUPPORT_ERRORS_H

#include "ffd/Status.h"

#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <utility>

namespace ffd::tools {

/// An error whose message is made by formatv.
template <typename... Ts>
llvm::Error error(const char *format, Ts &&...values) {
  return llvm::createStringError(
      llvm::formatv(format, std::forward<Ts>(values)...).str());
}

/// The error of a runtime function that failed.
inline llvm::Error toError(const Status &status) {
  return status.ok() ? llvm::Error::success()
                     : llvm::createStringError(status.message());
}

/// Says what the user should know although nothing failed.
inline void note(const char *tool, const llvm::Twine &text) {
  llvm::errs() << tool << ": note: " << text << "\n";
}

} // namespace ffd::tools

#endif // FFD_TOOLS_SUPPORT_ERRORS_H
