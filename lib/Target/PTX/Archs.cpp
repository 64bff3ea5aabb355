//===- Archs.cpp - GPU architectures --------------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of architectures. Sizes are those of the CUDA programming guide,
// "Technical Specifications per Compute Capability"; of a CTA's maximum and of
// the multiprocessor's memory, 1 KB per CTA goes to the system.
//
//===----------------------------------------------------------------------===//

#include "ffd/Target/PTX.h"

#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace mlir::ffd;

static constexpr int64_t kKiB = 1024;

static const GPUArch archs[] = {
    {"sm_80", "+ptx80", false, 163 * kKiB, 164 * kKiB, 65536, 2048, 32},
    {"sm_86", "+ptx80", false, 99 * kKiB, 100 * kKiB, 65536, 1536, 16},
    {"sm_89", "+ptx80", false, 99 * kKiB, 100 * kKiB, 65536, 1536, 24},
    {"sm_90", "+ptx80", true, 227 * kKiB, 228 * kKiB, 65536, 2048, 32},
    {"sm_90a", "+ptx80", true, 227 * kKiB, 228 * kKiB, 65536, 2048, 32},
    {"sm_100a", "+ptx86", true, 227 * kKiB, 228 * kKiB, 65536, 2048, 32},
    {"sm_120a", "+ptx87", true, 99 * kKiB, 100 * kKiB, 65536, 1536, 24},
};

ArrayRef<GPUArch> mlir::ffd::getGPUArchs() { return archs; }

FailureOr<GPUArch>
mlir::ffd::lookupArch(StringRef name,
                      function_ref<InFlightDiagnostic()> emitError) {
  for (const GPUArch &arch : archs)
    if (arch.name == name)
      return arch;
  InFlightDiagnostic diagnostic = emitError();
  diagnostic << "GPU architecture is '" << name << "', expected";
  for (const GPUArch &arch : archs)
    diagnostic << (&arch == archs ? " " : " or ") << arch.name;
  return failure();
}
