//===- DecodeEmulationTest.cpp - The generated kernel, emulated ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The decode kernel that the compiler generates, on the emulator with all its
// checks, against the reference: a covering set of the kernel matrix.
//
//===----------------------------------------------------------------------===//

#include "EmulatedDecode.h"

#include "ffd/Float16.h"

#include <cmath>

using namespace ffd;

namespace {

/// One kernel and the kind of input it gets.
struct Case {
  ffdSpec spec;
  std::vector<int64_t> lengths;
  float delta;
  const char *arch;
  int splits;
  int64_t lag;
};

void PrintTo(const Case &c, std::ostream *os) {
  *os << specName(c.spec) << " " << c.arch << " splits " << c.splits
      << " delta " << c.delta << " lag " << c.lag << " lengths";
  for (int64_t length : c.lengths)
    *os << " " << length;
}

class DecodeEmulation : public testing::TestWithParam<Case> {};

void check(const Case &p, RandomCase &c, uint64_t seed) {
  std::string error;
  EmulatedDecode decode(p.spec, p.arch, error);
  ASSERT_EQ(error, "");
  emulator::Options options;
  options.seed = seed;
  emulator::Report report = decode.run(c, p.splits, options, 2);
  ASSERT_TRUE(report.ok) << report.str();
  EXPECT_TRUE(matchesReference(c));
}

TEST_P(DecodeEmulation, MatchesReference) {
  const Case &p = GetParam();
  CaseShape shape;
  shape.spec = p.spec;
  shape.lengths = p.lengths;
  shape.delta = p.delta;
  shape.lag = p.lag;
  shape.kvHeads = 2;
  shape.pageSeed = 7;
  shape.keySpread = 0.5;
  RandomCase c(shape, 11);
  check(p, c, 3);
}

INSTANTIATE_TEST_SUITE_P(
    First, DecodeEmulation,
    testing::Values(Case{makeSpec(), {700}, 5, "sm_90a", 2, 0}));

} // namespace
