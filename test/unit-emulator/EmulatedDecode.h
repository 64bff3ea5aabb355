//===- EmulatedDecode.h - The generated decode on the emulator -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiles the decode of a specification to the NVVM dialect, for some GPU, and
// runs it on random cases in guarded memory; compares with the reference.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TEST_UNIT_EMULATOR_EMULATEDDECODE_H
#define FFD_TEST_UNIT_EMULATOR_EMULATEDDECODE_H

#include "RandomCase.h"

#include "ffd/Emulated/EmulatedKernel.h"
#include "ffd/Plan.h"

#include "gtest/gtest.h"

namespace ffd {

class EmulatedDecode {
public:
  /// `error` says why if the kernel cannot be compiled. `mutate` may change the
  /// kernel before it runs.
  EmulatedDecode(const ffdSpec &spec, const std::string &arch,
                 std::string &error,
                 llvm::function_ref<void(mlir::ModuleOp)> mutate = nullptr);
  EmulatedDecode(const ffdSpec &spec, EmulatedKernel::Options options,
                 std::string &error);

  /// Runs the kernel on a case, with `splits` pieces per row, or 0: as a plan
  /// for 7 pieces says; out, lse and kept of the case receive the results.
  /// `launches`: run again on the same workspace, which a kernel must leave as
  /// it found it.
  emulator::Report run(RandomCase &c, int splits,
                       const emulator::Options &options, int launches = 1);

  /// Runs it as the plan of these options says, with page ids that begin at
  /// `firstPage`. Results of places that have no
  /// sequence stay as they are.
  emulator::Report run(RandomCase &c, const PlanOptions &plan,
                       const emulator::Options &options, int32_t firstPage = 0);

  mlir::ModuleOp module() { return kernel->module(); }

private:
  std::unique_ptr<EmulatedKernel> kernel;
};

/// Kept sets identical to the reference, outputs within the tolerances of
/// docs/numerics.md.
testing::AssertionResult matchesReference(RandomCase &c);

} // namespace ffd
#endif // FFD_TEST_UNIT_EMULATOR_EMULATEDDECODE_H
