//===- ReferenceAppend.h - A slow append, exactly by the spec -*- C++ -*- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TEST_UNIT_REFERENCEAPPEND_H
#define FFD_TEST_UNIT_REFERENCEAPPEND_H

#include "ffd/abi.h"

namespace ffd {

/// What the append kernel does over all sequences, in host memory, token by
/// token: abi.h has the words.
void referenceAppend(const ffdSpec &spec, const ffdAppendArgs &args);

} // namespace ffd
#endif // FFD_TEST_UNIT_REFERENCEAPPEND_H
