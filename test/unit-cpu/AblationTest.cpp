//===- AblationTest.cpp - Other rules and precisions --------------*- C++
//-*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What only the CPU has for ablations: memory where a byte too far ends the
// process, the same kept sets on other instruction sets, as many as the rule
// says. test/reference/test_ablations.py compares with the float64 reference.
//
//===----------------------------------------------------------------------===//

#include "GuardedCase.h"
#include "RandomCase.h"

#include "ffd/FindKernel.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cstring>

using namespace ffd;

namespace {

struct Ablation {
  const char *rule, *execution;
  int scanBits, noResiduals, selectBlock, element, group, headDim;
};

class AblationTest : public testing::TestWithParam<Ablation> {
protected:
  static ffdSpec spec() {
    const Ablation &a = GetParam();
    ffdSpec spec =
        makeSpec(a.headDim, 48, a.group, a.element, a.scanBits, a.selectBlock);
    spec.no_residuals = a.noResiduals;
    return spec;
  }

  static Selector selector() {
    Selector result;
    Status status = Selector::parse(GetParam().rule, GetParam().execution,
                                    "rule", "execution", result);
    EXPECT_TRUE(status.ok()) << status.message();
    return result;
  }

  /// The kernel, or null where this machine lacks the instructions.
  static std::unique_ptr<DecodeKernel> find(const std::string &isa) {
    FindKernelOptions options;
    options.selector = selector();
    options.target = "cpu:" + isa;
    options.jitPath = FFD_JIT;
    options.pool = &testPool();
    std::unique_ptr<DecodeKernel> kernel;
    Status status = findKernel(spec(), options, kernel);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::Unsupported)
        << status.message();
    return kernel;
  }

  static std::vector<uint8_t> bytesOf(const HostBuffer &buffer) {
    return {buffer.data(), buffer.data() + buffer.size()};
  }
};

/// The narrowest and the widest; compiling takes its time.
const char *const kISAs[] = {"avx2", "avx512vnni"};

/// That every row keeps as much as the rule says.
void checkCounts(const RandomCase &c, const Selector &selector) {
  for (int64_t row = 0; row < c.cache->rows(); ++row) {
    const int64_t count = c.cache->selects(row / c.cache->kvHeads());
    int64_t some = 0;
    for (int64_t j = 0; j < count; ++j)
      some += c.kept.data()[row * c.args.kept_stride + j];
    if (selector.rule == Rule::TopK)
      EXPECT_EQ(some, std::min(selector.k, count));
    else if (selector.rule == Rule::All)
      EXPECT_EQ(some, count);
    else
      EXPECT_TRUE(some <= count && (some >= 1 || count == 0));
  }
}

} // namespace

TEST_P(AblationTest, InstructionSetsAgreeInsideTheirBuffers) {
  CaseShape shape;
  shape.spec = spec();
  shape.lengths = {1000, 0, 130, 384};
  shape.lag = 3;
  shape.delta = 2;
  shape.pageSeed = 11;
  RandomCase c(shape, 23);
  std::vector<uint8_t> kept;
  for (const char *isa : kISAs) {
    SCOPED_TRACE(isa);
    std::unique_ptr<DecodeKernel> kernel = find(isa);
    if (!kernel)
      continue;
    std::memset(c.kept.data(), 0, size_t(c.kept.size()));
    c.args.splits = 3;
    Status status = kernel->decode(c.args);
    ASSERT_TRUE(status.ok()) << status.message();
    const std::vector<uint8_t> out = bytesOf(c.out), lse = bytesOf(c.lse),
                               mask = bytesOf(c.kept);
    EXPECT_TRUE(kept.empty() || kept == mask);
    checkCounts(c, selector());
    kept = mask;
    for (bool atEnd : {true, false}) {
      GuardedCase guarded(c, 3, atEnd);
      status = kernel->decode(guarded.args());
      ASSERT_TRUE(status.ok()) << status.message();
      guarded.copyResults();
      EXPECT_EQ(bytesOf(c.out), out);
      EXPECT_EQ(bytesOf(c.lse), lse);
      EXPECT_EQ(bytesOf(c.kept), mask);
    }
    // A caller that does not want the mask gets the same result.
    ffdDecodeArgs args = c.args;
    args.kept = nullptr;
    args.kept_stride = 0;
    status = kernel->decode(args);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(bytesOf(c.out), out);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, AblationTest,
    testing::Values(Ablation{"top_k=7", "", 2, 0, 16, FFD_F16, 3, 64},
                    Ablation{"top_p=0.6", "", 4, 1, 32, FFD_BF16, 2, 80},
                    Ablation{"all", "split", 8, 1, 64, FFD_F16, 1, 96},
                    Ablation{"top_p=0.4", "", 16, 1, 128, FFD_F16, 2, 80},
                    Ablation{"top_delta", "fused", 16, 1, 16, FFD_BF16, 5, 64},
                    Ablation{"all", "fused", 2, 1, 16, FFD_F16, 2, 80}),
    [](const testing::TestParamInfo<Ablation> &info) {
      std::string name = std::string(info.param.rule) + info.param.execution +
                         "_b" + std::to_string(info.param.scanBits);
      for (char &c : name)
        if (!isalnum(c))
          c = '_';
      return name;
    });
