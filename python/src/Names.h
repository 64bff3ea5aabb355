//===- Names.h - Names of the C interface in Python -------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef FFD_PYTHON_NAMES_H
#define FFD_PYTHON_NAMES_H

#include <string>

namespace ffd::python {

/// A message of the runtime with the fields and functions of ffd.h under the
/// names that they have in Python: "'ffdCacheOptions' field 'sequences'" is
/// "argument 'max_sequences'", and "ffdReserve" is "reserve".
std::string withPythonNames(const std::string &message);

} // namespace ffd::python
#endif // FFD_PYTHON_NAMES_H
