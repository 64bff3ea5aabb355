//===- WriteFile.h - Whole files --------------------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SRC_WRITEFILE_H
#define FFD_SRC_WRITEFILE_H

#include "ffd/Status.h"

#include <string>

namespace ffd {

/// Files above this are not read: no kernel is this large.
inline constexpr int64_t kMaxFile = int64_t(1) << 28;

/// Writes to a temporary file in the same folder and renames it: readers see
/// the old bytes or the new ones. `what` names the file in messages.
Status writeWholeFile(const std::string &path, const char *what,
                      const std::string &bytes);
Status readWholeFile(const std::string &path, const char *what,
                     std::string &bytes);

} // namespace ffd
#endif // FFD_SRC_WRITEFILE_H
