//===----------------------------------------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The whole dialect: what TableGen is run on.
//
//===----------------------------------------------------------------------===//

include "FFDDialect.td"
include "FFDAttrs.td"
include "FFDTypes.td"
include "FFDOps.td"
include "FFDTileOps.td"
include "FFDGPUOps.td"
