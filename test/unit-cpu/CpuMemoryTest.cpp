//===- CpuMemoryTest.cpp - What CPU kernels touch ---------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels of libffd-jit on memory where a byte read or written too far ends the
// process, with bad numbers in one sequence, and from several threads at once:
// in all of them the results are, bit by bit, those of a plain run.
//
//===----------------------------------------------------------------------===//

#include "GuardedCase.h"
#include "RandomCase.h"

#include "ffd/FindKernel.h"
#include "ffd/Float16.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>

using namespace ffd;

namespace {

/// The compiled kernel, or null where this machine lacks the instructions.
DecodeKernel *kernelFor(const ffdSpec &spec, const std::string &isa,
                        Program program = Program::Decode) {
  static std::map<std::string, std::unique_ptr<DecodeKernel>> kernels;
  auto [it, isNew] = kernels.try_emplace(std::string(programName(program)) +
                                         specName(spec) + isa);
  if (!isNew)
    return it->second.get();
  FindKernelOptions options;
  options.program = program;
  options.target = "cpu:" + isa;
  options.jitPath = FFD_JIT;
  options.pool = &testPool();
  Status status = findKernel(spec, options, it->second);
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::Unsupported)
      << status.message();
  return it->second.get();
}

const char *const kISAs[] = {"avx2", "avx512", "avx512vnni"};

/// out, lse and kept of one sequence.
std::vector<uint8_t> resultOf(const RandomCase &c, int64_t sequence) {
  const int64_t lse = c.queryHeads() * 4, out = lse * c.shape.spec.value_dim;
  const int64_t kept = c.shape.kvHeads * c.args.kept_stride;
  std::vector<uint8_t> bytes;
  for (auto [data, size] : {std::pair(c.out.data(), out),
                            {c.lse.data(), lse},
                            {c.kept.data(), kept}})
    bytes.insert(bytes.end(), data + sequence * size,
                 data + (sequence + 1) * size);
  return bytes;
}

std::vector<uint8_t> resultOf(const RandomCase &c) {
  std::vector<uint8_t> bytes;
  for (int64_t s = 0; s < c.batch(); ++s) {
    std::vector<uint8_t> one = resultOf(c, s);
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  return bytes;
}

class CpuMemory : public testing::TestWithParam<ffdSpec> {
protected:
  /// Runs a case in plain memory and then between guards.
  static void check(CaseShape shape, Program program) {
    shape.spec = GetParam();
    shape.pageSeed = 7;
    RandomCase c(shape, 5);
    for (const char *isa : kISAs)
      for (int splits : {1, 3}) {
        DecodeKernel *kernel = kernelFor(shape.spec, isa, program);
        if (!kernel)
          continue;
        SCOPED_TRACE(std::string(isa) + " splits " + std::to_string(splits) +
                     " lag " + std::to_string(shape.lag) + " first length " +
                     std::to_string(shape.lengths[0]));
        c.args.splits = splits;
        Status status = kernel->decode(c.args);
        ASSERT_TRUE(status.ok()) << status.message();
        const std::vector<uint8_t> expected = resultOf(c);
        for (bool atEnd : {true, false}) {
          GuardedCase guarded(c, splits, atEnd);
          status = kernel->decode(guarded.args());
          ASSERT_TRUE(status.ok()) << status.message();
          guarded.copyResults();
          EXPECT_EQ(resultOf(c), expected);
        }
      }
  }
};

TEST_P(CpuMemory, StaysInsideItsBuffers) {
  for (const std::vector<int64_t> &lengths :
       std::vector<std::vector<int64_t>>{{0},
                                         {1},
                                         {15},
                                         {16},
                                         {17},
                                         {127},
                                         {128},
                                         {129},
                                         {300},
                                         {128, 1, 0, 257}})
    for (int64_t lag : {0, 20}) {
      CaseShape shape;
      shape.lengths = lengths;
      shape.lag = lag;
      shape.kvHeads = lengths.size() == 1 ? 1 : 2;
      check(shape, Program::Decode);
    }
}

TEST_P(CpuMemory, ExactStaysInsideItsBuffers) {
  for (const std::vector<int64_t> &lengths : std::vector<std::vector<int64_t>>{
           {0}, {1}, {15}, {16}, {17}, {31}, {33}, {64}, {127}, {129, 3}}) {
    CaseShape shape;
    shape.lengths = lengths;
    shape.lag = 1000; // all tokens in the tails, which is what exact reads
    check(shape, Program::Exact);
  }
}

/// Numbers at the edges of an element type, as bits.
std::vector<uint16_t> specials(int32_t element) {
  if (element == FFD_F16)
    return {0x7E00, 0x7C00, 0xFC00, 0x0001, 0x8001, 0x7BFF, 0xFBFF};
  return {0x7FC0, 0x7F80, 0xFF80, 0x0001, 0x8001, 0x7F7F, 0xFF7F};
}

TEST_P(CpuMemory, BadNumbersStayInTheirSequence) {
  CaseShape shape;
  shape.spec = GetParam();
  shape.lengths = {300, 290, 140};
  shape.delta = 2;
  for (const char *isa : kISAs) {
    DecodeKernel *kernel = kernelFor(shape.spec, isa);
    if (!kernel)
      continue;
    RandomCase plain(shape, 8);
    ASSERT_TRUE(kernel->decode(plain.args).ok());
    for (char which : {'q', 'k', 'v'})
      for (uint16_t bits : specials(shape.spec.element))
        for (int64_t token : {3, 280}) { // a committed one, one of the tail
          SCOPED_TRACE(std::string(isa) + " " + which + " bits " +
                       std::to_string(bits) + " token " +
                       std::to_string(token));
          RandomCase c(shape, 8);
          const int64_t dim =
              which == 'v' ? shape.spec.value_dim : shape.spec.head_dim;
          if (which == 'q')
            c.q.as<uint16_t>()[c.queryHeads() * dim + token % dim] = bits;
          else
            (which == 'k' ? c.k : c.v)[size_t(
                ((c.tokens + token) * shape.kvHeads + 1) * dim + 5)] = bits;
          c.build();
          ASSERT_TRUE(kernel->decode(c.args).ok());
          for (int64_t s : {0, 2})
            EXPECT_EQ(resultOf(c, s), resultOf(plain, s));
        }
  }
}

/// Weights that sum to 0 or NaN are not those of an empty sequence.
TEST_P(CpuMemory, InfiniteScoresAloneAreNotANumber) {
  const ffdSpec spec = GetParam();
  for (int64_t length : {1, 128})
    for (const char *isa : kISAs)
      for (int sign : {0, 0x8000})
        for (int splits : {1, 5}) {
          DecodeKernel *kernel = kernelFor(spec, isa);
          if (!kernel)
            continue;
          CaseShape shape;
          shape.spec = spec;
          shape.lengths = {length};
          RandomCase c(shape, 9);
          std::fill(c.k.begin(), c.k.end(), f32ToElement(spec.element, 1));
          c.build();
          c.q.as<uint16_t>()[5] =
              uint16_t((spec.element == FFD_F16 ? 0x7C00 : 0x7F80) | sign);
          c.args.splits = splits;
          ASSERT_TRUE(kernel->decode(c.args).ok());
          EXPECT_TRUE(std::isnan(c.args.out[0]))
              << isa << " length " << length << " sign " << sign;
        }
}

TEST_P(CpuMemory, ManyAtOnceAndAgain) {
  const ffdSpec spec = GetParam();
  CaseShape shape;
  shape.spec = spec;
  shape.lengths = {700, 0, 129};
  DecodeKernel *kernel = kernelFor(spec, "avx2");
  if (!kernel)
    GTEST_SKIP() << "this machine has no avx2";
  RandomCase plain(shape, 10);
  plain.args.splits = 3;
  ASSERT_TRUE(kernel->decode(plain.args).ok());
  // With a workspace of its own a call shares nothing with another.
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      RandomCase c(shape, 10);
      HostBuffer workspace;
      const int64_t bytes =
          layoutOf(spec).workspaceBytes(c.cache->rows(), 3, spec.group);
      ASSERT_TRUE(workspace.allocate("workspace", bytes, 0).ok());
      c.args.splits = 3;
      c.args.workspace = workspace.data();
      for (int again = 0; again < 3; ++again) {
        std::memset(c.out.data(), 0xFF, size_t(c.out.size()));
        ASSERT_TRUE(kernel->decode(c.args).ok());
        EXPECT_EQ(resultOf(c), resultOf(plain));
      }
    });
  for (std::thread &thread : threads)
    thread.join();
}

std::string nameOf(const testing::TestParamInfo<ffdSpec> &info) {
  std::string name = specName(info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Specs, CpuMemory,
    testing::Values(makeSpec(64, 16, 1), makeSpec(80, 48, 3, FFD_BF16, 4, 64),
                    makeSpec(96, 112, 16, FFD_F16, 8, 32),
                    makeSpec(256, 256, 5, FFD_BF16, 2, 128)),
    nameOf);

} // namespace
