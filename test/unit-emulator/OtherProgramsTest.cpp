//===- OtherProgramsTest.cpp - Exact and split decodes, emulated ----------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The other programs that lower to a GPU: exact attention, the rival of a
// decode, and the split execution, a selector and a computer that meet in a
// mask in memory.
//
//===----------------------------------------------------------------------===//

#include "EmulatedDecode.h"

#include <cmath>
#include <cstring>

using namespace ffd;

namespace {

struct ProgramCase {
  ffdSpec spec;
  const char *arch;
};

const ProgramCase cases[] = {
    {makeSpec(64, 64, 4, FFD_F16, 2, 16), "sm_90a"},
    {makeSpec(80, 48, 3, FFD_BF16, 4, 64), "sm_80"},
    {makeSpec(128, 128, 1, FFD_BF16, 2, 32), "sm_86"},
    {makeSpec(128, 64, 16, FFD_F16, 2, 16), "sm_89"},
    {makeSpec(192, 128, 8, FFD_F16, 8, 128), "sm_100a"},
    {makeSpec(256, 256, 2, FFD_BF16, 2, 16), "sm_120a"},
};

void PrintTo(const ProgramCase &c, std::ostream *os) {
  *os << specName(c.spec) << " " << c.arch;
}

class OtherPrograms : public testing::TestWithParam<ProgramCase> {};

/// K or V as exact attention reads it: [sequence][head][token][dim].
std::vector<uint16_t> byHead(const RandomCase &c,
                             const std::vector<uint16_t> &from, int64_t dim) {
  const int64_t heads = c.shape.kvHeads;
  std::vector<uint16_t> to(from.size());
  for (int64_t s = 0; s < c.batch(); ++s)
    for (int64_t t = 0; t < c.tokens; ++t)
      for (int64_t h = 0; h < heads; ++h)
        std::memcpy(&to[size_t(((s * heads + h) * c.tokens + t) * dim)],
                    &from[size_t(((s * c.tokens + t) * heads + h) * dim)],
                    size_t(dim) * 2);
  return to;
}

TEST_P(OtherPrograms, ExactAttention) {
  const ffdSpec &spec = GetParam().spec;
  CaseShape shape;
  shape.spec = spec;
  shape.lengths = {700, 0, 1, 131};
  shape.keySpread = 0.5;
  RandomCase c(shape, 3);
  EmulatedKernel::Options options;
  options.arch = GetParam().arch;
  options.program = Program::Exact;
  std::string error;
  EmulatedDecode exact(spec, options, error);
  ASSERT_EQ(error, "");
  const std::vector<uint16_t> k = byHead(c, c.k, spec.head_dim),
                              v = byHead(c, c.v, spec.value_dim);
  HostBuffer keys, values;
  ASSERT_TRUE(keys.allocate("k", int64_t(k.size()) * 2, 0).ok());
  ASSERT_TRUE(values.allocate("v", int64_t(v.size()) * 2, 0).ok());
  std::memcpy(keys.data(), k.data(), k.size() * 2);
  std::memcpy(values.data(), v.data(), v.size() * 2);
  ffdDecodeArgs all = {};
  all.q = c.args.q;
  all.q_batch_stride = c.args.q_batch_stride;
  all.q_head_stride = c.args.q_head_stride;
  all.tail_k = keys.data();
  all.tail_v = values.data();
  all.tail_head_stride = c.tokens;
  all.tail_batch_stride = shape.kvHeads * c.tokens;
  all.lengths = c.args.lengths;
  all.out = c.args.out;
  all.lse = c.args.lse;
  all.batch = c.args.batch;
  all.kv_heads = c.args.kv_heads;
  all.sm_scale = c.args.sm_scale;
  c.args = all;
  for (int splits : {1, 3}) {
    const emulator::Report report = exact.run(c, splits, {}, 2);
    ASSERT_TRUE(report.ok) << report.str();
    for (int64_t s = 0; s < c.batch(); ++s) {
      double difference = 0, norm = 0;
      for (int64_t h = 0; h < c.queryHeads(); ++h) {
        const int64_t row = s * c.queryHeads() + h;
        double lse;
        const std::vector<double> want = c.denseAttention(s, h, lse);
        if (shape.lengths[size_t(s)] == 0)
          EXPECT_EQ(c.lse.as<float>()[row], -INFINITY);
        else
          EXPECT_NEAR(c.lse.as<float>()[row], lse, 2e-3);
        for (int64_t i = 0; i < spec.value_dim; ++i) {
          const double x = c.out.as<float>()[row * spec.value_dim + i];
          // attend_c3: of no tokens the output is 0.
          const double o = shape.lengths[size_t(s)] ? want[size_t(i)] : 0;
          difference += (x - o) * (x - o);
          norm += o * o;
        }
      }
      EXPECT_LE(std::sqrt(difference),
                (spec.element == FFD_F16 ? 2e-3 : 1e-2) * std::sqrt(norm))
          << "sequence " << s << " in " << splits << " pieces";
    }
  }
}

class SplitExecution
    : public testing::TestWithParam<std::tuple<ProgramCase, int>> {};

/// Of both pseudo-maxima: the selector writes the mask that has the ends.
TEST_P(SplitExecution, MatchesReference) {
  const auto &[program, pseudoMax] = GetParam();
  ffdSpec spec = program.spec;
  spec.pseudo_max = pseudoMax;
  CaseShape shape;
  shape.spec = spec;
  shape.lengths = {700, 0, 100, 128, 389};
  shape.delta = 3;
  shape.keySpread = 0.5;
  RandomCase c(shape, 4);
  EmulatedKernel::Options options;
  options.arch = program.arch;
  options.fuse = false;
  std::string error;
  EmulatedDecode decode(spec, options, error);
  ASSERT_EQ(error, "");
  const emulator::Report report = decode.run(c, 2, {});
  ASSERT_TRUE(report.ok) << report.str();
  EXPECT_TRUE(matchesReference(c));
}

INSTANTIATE_TEST_SUITE_P(Programs, OtherPrograms, testing::ValuesIn(cases));
INSTANTIATE_TEST_SUITE_P(
    Programs, SplitExecution,
    testing::Combine(testing::ValuesIn(cases),
                     testing::Values(FFD_PSEUDO_MAX_SCAN,
                                     FFD_PSEUDO_MAX_REFINED)));

} // namespace
