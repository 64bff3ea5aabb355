//===- CaseMatrix.h - What the emulated decode is tested with ---*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The matrix of kernels and inputs: every combination by its number, and a
// covering set in which every pair of values of two factors occurs.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TEST_UNIT_EMULATOR_CASEMATRIX_H
#define FFD_TEST_UNIT_EMULATOR_CASEMATRIX_H

#include "ffd/Spec.h"

#include <array>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace ffd {

/// What is special about the input.
enum class Content {
  Plain,
  ZeroQuery,
  NaNQuery,
  InfiniteQuery,
  NaNKey,
  ZeroKeys
};

/// One kernel and what it gets.
struct MatrixCase {
  ffdSpec spec;
  std::string arch;
  std::vector<int64_t> lengths;
  float delta;
  int splits; ///< 0: as a plan says
  int64_t lag;
  Content content;

  /// Factors by name, "arch=sm_90a head_dim=64 ..", as the matrix names them.
  std::string describe() const;
};

void PrintTo(const MatrixCase &c, std::ostream *os);

/// Combinations of the whole matrix.
uint64_t matrixSize();
/// Inputs of one kernel: combinations `n * inputsPerKernel()` and the following
/// ones share specification and architecture.
uint64_t inputsPerKernel();
/// Combination `number`, less than matrixSize().
MatrixCase matrixCase(uint64_t number);

/// A covering set; the same for the same seed.
std::vector<MatrixCase> coveringCases(uint32_t seed);

} // namespace ffd
#endif // FFD_TEST_UNIT_EMULATOR_CASEMATRIX_H
