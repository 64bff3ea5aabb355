//===- Status.h - Error codes with a message --------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What every fallible function of the runtime returns: a code for programs and
// a message for people. Header only. A message names the thing, the value it
// has and what was expected: "'ffdDecodeArgs' field 'batch' is -1, expected
// >= 0".
//
//===----------------------------------------------------------------------===//
#ifndef FFD_STATUS_H
#define FFD_STATUS_H

#include <string>
#include <utility>

namespace ffd {

enum class StatusCode {
  Success = 0,
  InvalidArgument, ///< The caller passed something the documents rule out.
  OutOfMemory,     ///< Host or device memory is exhausted, or a size overflows.
  NotFound,        ///< A file, library, symbol or device does not exist.
  Unsupported,     ///< Valid, but not on this machine or in this version.
  Corrupt,         ///< Data that fails its own checks.
  IoError,         ///< The operating system refused a read or a write.
  DeviceError,     ///< The CUDA driver reported an error.
  CompileError,    ///< The JIT compiler reported an error.
  OutOfPages,      ///< The page pool of a cache is exhausted.
  OutOfSequences,  ///< All sequence slots of a cache are taken.
  NotReady,        ///< An enqueued result is not there yet.
};

class [[nodiscard]] Status {
public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : statusCode(code), text(std::move(message)) {}

  static Status success() { return Status(); }
  static Status invalid(std::string message) {
    return Status(StatusCode::InvalidArgument, std::move(message));
  }

  bool ok() const { return statusCode == StatusCode::Success; }
  StatusCode code() const { return statusCode; }
  const std::string &message() const { return text; }

private:
  StatusCode statusCode = StatusCode::Success;
  std::string text;
};

} // namespace ffd

/// Returns the status of `expression` from the enclosing function unless it is
/// a success.
#define FFD_RETURN_IF_ERROR(expression)                                        \
  do {                                                                         \
    ::ffd::Status ffdStatus_ = (expression);                                   \
    if (!ffdStatus_.ok())                                                      \
      return ffdStatus_;                                                       \
  } while (false)

#endif // FFD_STATUS_H
