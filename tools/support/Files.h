//===- Files.h - Files that users name --------------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_SUPPORT_FILES_H
#define FFD_TOOLS_SUPPORT_FILES_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"

namespace ffd::tools {

/// Whether data may be read from the path: a pipe would block and a device never
/// end, so what is there must be a regular file. What is missing passes, the one
/// who opens it says so.
inline llvm::Error expectRegularFile(llvm::StringRef path) {
  using llvm::sys::fs::file_type;
  llvm::sys::fs::file_status status;
  if (llvm::sys::fs::status(path, status) ||
      status.type() == file_type::regular_file)
    return llvm::Error::success();
  const char *kind = status.type() == file_type::directory_file ? "folder"
                     : status.type() == file_type::fifo_file    ? "pipe"
                     : status.type() == file_type::socket_file  ? "socket"
                                                                : "device";
  return llvm::createStringError(
      llvm::formatv("'{0}' is a {1}, expected a regular file", path, kind)
          .str());
}

} // namespace ffd::tools
#endif // FFD_TOOLS_SUPPORT_FILES_H
