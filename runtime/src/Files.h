//===- Files.h - Opening, reading and writing files -------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SRC_FILES_H
#define FFD_SRC_FILES_H

#include "ffd/Status.h"

#include <string>

namespace ffd {

/// Whether the path may be opened to read: what is there must be a regular
/// file, since a pipe would block, perhaps with locks held, and a device never
/// end. `what` names the file in messages; a path without anything passes.
Status checkRegularFile(const std::string &path, const char *what);
/// The same for what dlopen will load; it looks for a name without a slash
/// elsewhere.
Status checkLibraryFile(const std::string &path, const char *what);
/// Opens a regular file; the caller closes it.
Status openRegularFile(const std::string &path, const char *what, int &file,
                       int64_t &size);

/// Files above this are not read: no kernel is this large.
inline constexpr int64_t kMaxFile = int64_t(1) << 28;

/// Writes to a temporary file in the same folder and renames it: readers see
/// the old bytes or the new ones. `what` names the file in messages.
Status writeWholeFile(const std::string &path, const char *what,
                      const std::string &bytes);
Status readWholeFile(const std::string &path, const char *what,
                     std::string &bytes);

} // namespace ffd
#endif // FFD_SRC_FILES_H
