//===- CheckCase.h - One case of the matrix, emulated -----------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs cases of the matrix on the emulator with all its checks and compares
// with the reference and with the CPU's kernel.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TEST_UNIT_EMULATOR_CHECKCASE_H
#define FFD_TEST_UNIT_EMULATOR_CHECKCASE_H

#include "CaseMatrix.h"
#include "EmulatedDecode.h"

namespace ffd {

/// Two launches on one workspace: no error of the emulator, kept sets and
/// outputs as the reference has them.
testing::AssertionResult checkCase(const MatrixCase &c, EmulatedDecode &decode);

/// That integer scores are right to the unit. A block's best score shows in
/// what is kept: of each of some blocks, two sequences with the same query have
/// the smallest delta that keeps the block and the largest one that does not.
/// Kept sets must be those of the reference and, if `onCpu`, of the kernel that
/// the compiler makes for this machine's CPU. Lengths, delta and content of the
/// case are not used.
testing::AssertionResult checkScores(const MatrixCase &c,
                                     EmulatedDecode &decode, bool onCpu);

/// Whether this machine runs the CPU's kernel.
bool hasCpuKernel();

} // namespace ffd
#endif // FFD_TEST_UNIT_EMULATOR_CHECKCASE_H
