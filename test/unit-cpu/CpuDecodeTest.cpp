//===- CpuDecodeTest.cpp - Generated CPU kernels ------------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiles kernels for every instruction set that this machine has and compares
// them with the reference decode: kept sets must be identical, outputs far
// closer than docs/numerics.md asks, and bad numbers surface where they do
// there.
//
//===----------------------------------------------------------------------===//

#include "RandomCase.h"
#include "ReferenceDecode.h"

#include "ffd/Driver/Compiler.h"
#include "ffd/Driver/Programs.h"
#include "ffd/Float16.h"
#include "ffd/Selector.h"
#include "ffd/Spec.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace ffd;

namespace {

/// A kernel and the context that its diagnostics come from.
class Kernel {
public:
  Kernel(const ffdSpec &spec, llvm::StringRef isa, Program program,
         std::string selector = "")
      : spec(spec), context(mlir::MLIRContext::Threading::DISABLED) {
    mlir::DialectRegistry registry;
    mlir::ffd::registerCompilerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    auto attribute = mlir::ffd::getSpecAttr(&context, spec);
    bool decode = program == Program::Decode;
    if (selector.empty())
      selector = Selector().attribute(spec);
    auto module = mlir::ffd::buildProgram(&context,
                                          decode ? mlir::ffd::Program::Decode
                                                 : mlir::ffd::Program::Exact,
                                          attribute, selector);
    mlir::ffd::CompilerOptions options;
    options.isa = isa.str();
    std::string error;
    auto compiled = mlir::ffd::compileCPUKernel(
        *module, decode ? "decode" : "exact", options, error);
    EXPECT_TRUE(mlir::succeeded(compiled)) << error;
    if (mlir::succeeded(compiled))
      kernel = std::move(*compiled);
  }

  /// Runs all pieces, the last ones of a row first.
  void run(ffdDecodeArgs args, int64_t rows, int32_t splits) {
    ASSERT_TRUE(kernel);
    HostBuffer workspace;
    int64_t bytes = layoutOf(spec).workspaceBytes(rows, splits, rowHeads(spec));
    ASSERT_TRUE(workspace.allocate("workspace", bytes, 0).ok());
    args.workspace = workspace.data();
    args.splits = splits;
    for (int64_t task = rows * splits - 1; task >= 0; --task)
      kernel->getEntry()(&args, task / splits, task % splits);
    for (int64_t row = 0; row < rows; ++row)
      EXPECT_EQ(workspace.as<int32_t>()[row], 0) << "counter of row " << row;
  }

private:
  ffdSpec spec;
  mlir::MLIRContext context;
  std::unique_ptr<mlir::ffd::CPUKernel> kernel;
};

/// What a decode wrote.
struct Result {
  std::vector<float> out, lse;
  std::vector<uint8_t> kept;
};

} // namespace

static void clear(RandomCase &decode) {
  std::memset(decode.out.data(), 0xFF, size_t(decode.out.size()));
  std::memset(decode.lse.data(), 0xFF, size_t(decode.lse.size()));
  std::memset(decode.skipped.data(), 0xFF, size_t(decode.skipped.size()));
  std::memset(decode.kept.data(), 0, size_t(decode.kept.size()));
}

static Result resultOf(RandomCase &decode) {
  const float *out = decode.out.as<float>(), *lse = decode.lse.as<float>();
  return {{out, out + decode.out.size() / 4},
          {lse, lse + decode.lse.size() / 4},
          {decode.kept.data(), decode.kept.data() + decode.kept.size()}};
}

static Result reference(RandomCase &decode) {
  clear(decode);
  ReferenceDecode oracle(decode.shape.spec, decode.args);
  for (int64_t row = 0; row < decode.cache->rows(); ++row)
    oracle.run(row);
  return resultOf(decode);
}

/// The f32 arithmetic of the kernels leaves errors of about 1e-6.
static void expectClose(const Result &actual, const Result &expected,
                        int64_t perSequence) {
  ASSERT_EQ(actual.out.size(), expected.out.size());
  for (size_t first = 0; first < expected.out.size();
       first += size_t(perSequence)) {
    double error = 0, norm = 0;
    for (size_t i = first; i < first + size_t(perSequence); ++i) {
      const float a = actual.out[i], e = expected.out[i];
      if (!std::isfinite(e)) {
        EXPECT_TRUE(a == e || (std::isnan(a) && std::isnan(e))) << "out " << i;
        continue;
      }
      error += double(a - e) * (a - e);
      norm += double(e) * e;
    }
    EXPECT_LE(std::sqrt(error), 1e-5 * std::sqrt(norm));
  }
  for (size_t i = 0; i < expected.lse.size(); ++i) {
    const float a = actual.lse[i], e = expected.lse[i];
    if (std::isfinite(e))
      EXPECT_NEAR(a, e, 1e-5 * (1 + std::fabs(e))) << "lse " << i;
    else
      EXPECT_TRUE(a == e || (std::isnan(a) && std::isnan(e))) << "lse " << i;
  }
}

class CpuDecodeTest : public testing::TestWithParam<std::string> {
protected:
  void SetUp() override {
    if (!mlir::ffd::isSupportedISA(GetParam()))
      GTEST_SKIP() << "this machine has no " << GetParam();
  }

  void check(Kernel &kernel, RandomCase &decode) {
    const Result expected = reference(decode);
    for (int32_t splits : {1, 3}) {
      SCOPED_TRACE("splits " + std::to_string(splits));
      clear(decode);
      const int64_t rows = decode.cache->rows();
      // Counts are added to what is there.
      std::vector<uint64_t> counts(size_t(rows), 7);
      decode.args.kept_count = counts.data();
      kernel.run(decode.args, rows, splits);
      decode.args.kept_count = nullptr;
      const Result actual = resultOf(decode);
      EXPECT_EQ(actual.kept, expected.kept);
      for (int64_t row = 0; row < rows; ++row) {
        const uint8_t *kept =
            expected.kept.data() + row * decode.args.kept_stride;
        EXPECT_EQ(
            counts[size_t(row)],
            7 + uint64_t(std::count(kept, kept + decode.args.kept_stride, 1)))
            << "row " << row;
      }
      expectClose(actual, expected,
                  queryTokens(decode.shape.spec) * decode.queryHeads() *
                      decode.shape.spec.value_dim);
    }
  }
};

/// Head dims whose words straddle chunks and whose channels need padding, all
/// code widths, both elements, several groups.
static const ffdSpec someSpecs[] = {
    makeSpec(128, 128, 4, FFD_F16, 2, 16),
    makeSpec(64, 64, 3, FFD_BF16, 2, 32),
    makeSpec(80, 48, 1, FFD_F16, 2, 64),
    makeSpec(96, 96, 5, FFD_BF16, 4, 16),
    makeSpec(80, 128, 2, FFD_BF16, 8, 128),
    makeSpec(192, 64, 7, FFD_F16, 4, 128),
    makeSpec(256, 256, 2, FFD_BF16, 2, 16),
    makeSpec(256, 32, 1, FFD_F16, 8, 32),
    makeSpec(64, 16, 16, FFD_F16, 2, 16),
};

TEST_P(CpuDecodeTest, MatchesTheReference) {
  uint32_t seed = 0;
  for (const ffdSpec &spec : someSpecs) {
    SCOPED_TRACE(specName(spec));
    Kernel kernel(spec, GetParam(), Program::Decode);
    CaseShape shape;
    shape.spec = spec;
    shape.lengths = {300, 0, 128, 127, 1, 900};
    shape.pageSeed = 3;
    for (auto [delta, lag, spread] :
         {std::tuple<float, int64_t, double>{1, 0, 1},
          {0, 20, 0.3},
          {3, 300, 0.5},
          {std::numeric_limits<float>::infinity(), 0, 1}}) {
      SCOPED_TRACE("delta " + std::to_string(delta));
      shape.delta = delta;
      shape.lag = lag;
      shape.keySpread = spread;
      RandomCase decode(shape, ++seed);
      check(kernel, decode);
    }
  }
}

/// Pieces none of whose blocks is kept add nothing: those in the middle of one
/// sequence, and all of another, whose tail has all the weight.
TEST_P(CpuDecodeTest, PiecesThatKeepNothing) {
  for (const ffdSpec &spec :
       {makeSpec(64, 64, 3, FFD_F16, 2, 32), makeSpec(128, 48, 4, FFD_BF16, 4),
        makeSpec(80, 80, 1, FFD_F16, 8, 128)}) {
    SCOPED_TRACE(specName(spec));
    Kernel kernel(spec, GetParam(), Program::Decode);
    CaseShape shape;
    shape.spec = spec;
    shape.lengths = {1580, 1300, 0};
    shape.delta = 2;
    shape.keySpread = 0.3;
    RandomCase decode(shape, 6);
    decode.oppose(0, 256, 1280);
    decode.oppose(1, 0, 1280);
    const Result expected = reference(decode);
    const int64_t selects = 128 / spec.select_block;
    for (int64_t row = 0; row < 2 * shape.kvHeads; ++row) {
      const auto kept = expected.kept.begin() + row * decode.args.kept_stride;
      const bool all = row >= shape.kvHeads;
      EXPECT_EQ(
          std::count(kept + (all ? 0 : 2 * selects), kept + 10 * selects, 1), 0)
          << "row " << row;
      EXPECT_EQ(std::count(kept, kept + 12 * selects, 1) > 0, !all)
          << "row " << row;
    }
    for (int32_t splits : {1, 6, 12}) { // 12 blocks or 10
      SCOPED_TRACE("splits " + std::to_string(splits));
      clear(decode);
      kernel.run(decode.args, decode.cache->rows(), splits);
      const Result actual = resultOf(decode);
      EXPECT_EQ(actual.kept, expected.kept);
      expectClose(actual, expected, decode.queryHeads() * spec.value_dim);
    }
  }
}

/// The same residuals in one block and in several, which may be one block or
/// none, with tails and without.
TEST_P(CpuDecodeTest, RefinedPseudoMax) {
  uint32_t seed = 80;
  for (auto [headDim, group, element, bits, selectBlock, tokens] :
       {std::tuple<int, int, int, int, int, int>{128, 2, FFD_F16, 2, 16, 1},
        {80, 2, FFD_BF16, 8, 64, 3}}) {
    CaseShape shape;
    shape.spec = makeSpec(headDim, 64, group, element, bits, selectBlock);
    shape.spec.query_tokens = tokens;
    shape.spec.pseudo_max = FFD_PSEUDO_MAX_REFINED;
    SCOPED_TRACE(specName(shape.spec));
    Kernel kernel(shape.spec, GetParam(), Program::Decode);
    shape.lengths = {900, 0, 127, 128, 256, 300};
    shape.lag = tokens - 1;
    shape.pageSeed = 5;
    shape.keySpread = 0.5;
    for (float delta : {0.0f, 1.0f, 4.0f}) {
      SCOPED_TRACE("delta " + std::to_string(delta));
      shape.delta = delta;
      RandomCase decode(shape, ++seed);
      check(kernel, decode);
    }
  }
}

/// The estimate of what is skipped lies within its bounds (cert_c3): one piece
/// and several, blocks kept in part, in whole and not at all, rows without any.
TEST_P(CpuDecodeTest, Certificate) {
  uint32_t seed = 120;
  for (auto [headDim, group, element, bits, selectBlock, tokens, refined,
             centre, kind] :
       {std::tuple<int, int, int, int, int, int, int, int, int>{
            128, 4, FFD_F16, 2, 16, 1, 0, 0, FFD_CERTIFICATE_PLAIN},
        {128, 4, FFD_BF16, 2, 32, 1, 1, 1, FFD_CERTIFICATE_NOISE},
        {80, 3, FFD_BF16, 8, 64, 3, 0, 0, FFD_CERTIFICATE_NOISE},
        {64, 16, FFD_F16, 4, 128, 1, 1, 0, FFD_CERTIFICATE_PLAIN},
        {256, 1, FFD_F16, 2, 16, 8, 0, 1, FFD_CERTIFICATE_NOISE}}) {
    CaseShape shape;
    shape.spec = makeSpec(headDim, 64, group, element, bits, selectBlock);
    shape.spec.query_tokens = tokens;
    shape.spec.pseudo_max = int16_t(refined);
    shape.spec.centre = centre;
    shape.spec.certificate = int16_t(kind);
    SCOPED_TRACE(specName(shape.spec));
    Kernel kernel(shape.spec, GetParam(), Program::Decode);
    shape.lengths = {900, 0, 127, 128, 256, 300};
    shape.lag = tokens - 1;
    shape.pageSeed = 5;
    shape.keySpread = 0.5;
    for (float delta : {0.0f, 1.0f, std::numeric_limits<float>::infinity()}) {
      SCOPED_TRACE("delta " + std::to_string(delta));
      shape.delta = delta;
      RandomCase decode(shape, ++seed);
      if (tokens == 1) // so that something is skipped, whatever the heads
        decode.oppose(0, 256, 640);
      check(kernel, decode);
      const ReferenceDecode oracle(shape.spec, decode.args);
      int finite = 0;
      for (int64_t row = 0; row < decode.cache->rows(); ++row) {
        const int64_t s = row / shape.kvHeads, head = row % shape.kvHeads;
        const ReferenceDecode::Row want = oracle.row(s, head);
        for (int64_t g = 0; g < rowHeads(shape.spec); ++g) {
          const double got =
              decode.skipped.as<float>()[oracle.outputIndex(s, head, g)];
          const double least = want.skippedLeast[size_t(g)],
                       most = want.skippedMost[size_t(g)];
          const double slack = 1e-5 * (1 + std::fabs(most));
          if (std::isinf(least))
            EXPECT_EQ(got, least) << "row " << row << " head " << g;
          else
            EXPECT_TRUE(got >= least - slack && got <= most + slack)
                << "row " << row << " head " << g << ": " << got
                << " instead of " << least << " to " << most;
          finite += !std::isinf(least);
        }
      }
      if (tokens == 1 || std::isinf(delta))
        EXPECT_EQ(finite > 0, !std::isinf(delta));
      // Who does not ask gets nothing, and the rest as before.
      decode.args.skipped_lse = nullptr;
      check(kernel, decode);
    }
  }
}

/// Several tokens that ask at once: lengths below their number, tails of all
/// kinds, every token with its own view of the tail.
TEST_P(CpuDecodeTest, QueryTokens) {
  uint32_t seed = 50;
  for (auto [group, tokens, headDim, element, bits] :
       {std::tuple<int, int, int, int, int>{4, 4, 128, FFD_F16, 2},
        {1, 8, 64, FFD_BF16, 4},
        {8, 2, 96, FFD_F16, 8},
        {3, 5, 80, FFD_BF16, 2}}) {
    CaseShape shape;
    shape.spec = makeSpec(headDim, 64, group, element, bits, 32);
    shape.spec.query_tokens = tokens;
    SCOPED_TRACE(specName(shape.spec));
    Kernel kernel(shape.spec, GetParam(), Program::Decode);
    shape.lengths = {300, 0, 1, tokens - 1, 128 + tokens};
    shape.pageSeed = 5;
    shape.keySpread = 0.5;
    for (int64_t lag : {tokens - 1, 140}) {
      SCOPED_TRACE("lag " + std::to_string(lag));
      shape.lag = lag;
      shape.delta = lag == 140 ? std::numeric_limits<float>::infinity() : 1;
      RandomCase decode(shape, ++seed);
      check(kernel, decode);
    }
  }
}

/// lse is that of the keys themselves, whatever the cache's are relative to.
TEST_P(CpuDecodeTest, CentredKeys) {
  uint32_t seed = 80;
  for (auto [group, tokens, headDim, element, bits] :
       {std::tuple<int, int, int, int, int>{4, 1, 128, FFD_F16, 2},
        {2, 3, 80, FFD_BF16, 4}}) {
    CaseShape shape;
    shape.spec = makeSpec(headDim, 64, group, element, bits, 32);
    shape.spec.query_tokens = tokens;
    shape.spec.centre = FFD_CENTRE_ROW;
    SCOPED_TRACE(specName(shape.spec));
    Kernel kernel(shape.spec, GetParam(), Program::Decode);
    shape.lengths = {300, 0, 1, 127, 128 + tokens};
    shape.lag = tokens - 1;
    shape.delta = 1;
    RandomCase decode(shape, ++seed);
    for (size_t i = 0; i < decode.k.size(); ++i)
      decode.k[i] = f32ToElement(element, elementToF32(element, decode.k[i]) +
                                              float(i % size_t(headDim) % 5));
    decode.build();
    check(kernel, decode);
    // A query that is not finite has no lse even where it sees nothing.
    decode.q.as<uint16_t>()[decode.q.size() / 2 / decode.batch()] =
        element == FFD_F16 ? 0x7C00 : 0x7F80;
    check(kernel, decode);
  }
}

/// What one token says must not depend on those that ask with it, the selection
/// apart.
TEST_P(CpuDecodeTest, QueryTokensSeeNoNewerOnes) {
  CaseShape shape;
  shape.spec = makeSpec(64, 64, 2);
  shape.spec.query_tokens = 4;
  shape.lag = 3;
  shape.delta = std::numeric_limits<float>::infinity();
  shape.lengths = {300};
  RandomCase decode(shape, 3);
  Kernel kernel(shape.spec, GetParam(), Program::Decode);
  clear(decode);
  kernel.run(decode.args, decode.cache->rows(), 1);
  const Result before = resultOf(decode);
  // Another newest token: only the last query token notices.
  const int64_t row = shape.kvHeads * 64;
  for (int64_t i = 0; i < row; ++i)
    decode.k[size_t(299 * row + i)] = f32ToElement(FFD_F16, 2);
  decode.build();
  clear(decode);
  kernel.run(decode.args, decode.cache->rows(), 1);
  const Result after = resultOf(decode);
  const size_t perToken = size_t(decode.queryHeads() * 64);
  for (size_t token = 0; token < 4; ++token)
    EXPECT_EQ(std::equal(before.out.begin() + token * perToken,
                         before.out.begin() + (token + 1) * perToken,
                         after.out.begin() + token * perToken),
              token < 3)
        << "token " << token;
}

TEST_P(CpuDecodeTest, BadNumbersSurface) {
  for (int element : {FFD_F16, FFD_BF16}) {
    const ffdSpec spec = makeSpec(128, 64, 2, element, 2, 16);
    Kernel kernel(spec, GetParam(), Program::Decode);
    CaseShape shape;
    shape.spec = spec;
    shape.lengths = {300, 140};
    shape.delta = 1;
    const uint16_t nan = canonicalNaN(element);
    const uint16_t infinity =
        f32ToElement(element, std::numeric_limits<float>::infinity());
    for (uint16_t bad : {nan, infinity})
      for (const char *where : {"committed k", "tail k", "q", "v", "tail v"}) {
        SCOPED_TRACE(std::string(where) + (bad == nan ? " nan" : " infinite"));
        RandomCase decode(shape, 7);
        const int64_t heads = shape.kvHeads, dim = spec.head_dim;
        if (!std::strcmp(where, "committed k"))
          decode.k[size_t(5 * heads * dim + 3)] = bad;
        else if (!std::strcmp(where, "tail k"))
          decode.k[size_t(290 * heads * dim + 3)] = bad;
        else if (!std::strcmp(where, "q"))
          decode.q.as<uint16_t>()[5] = bad;
        else if (!std::strcmp(where, "v"))
          decode.v[size_t(5 * heads * spec.value_dim)] = bad;
        else
          decode.v[size_t(290 * heads * spec.value_dim)] = bad;
        decode.build();
        check(kernel, decode);
      }
  }
}

TEST_P(CpuDecodeTest, OptionalOutputs) {
  const ffdSpec spec = makeSpec(64, 64, 2);
  Kernel kernel(spec, GetParam(), Program::Decode);
  CaseShape shape;
  shape.spec = spec;
  RandomCase decode(shape, 1);
  const Result expected = reference(decode);
  clear(decode);
  ffdDecodeArgs args = decode.args;
  args.lse = nullptr;
  args.kept = nullptr;
  kernel.run(args, decode.cache->rows(), 2);
  Result actual = resultOf(decode);
  actual.lse = expected.lse;
  expectClose(actual, expected, decode.queryHeads() * spec.value_dim);
}

TEST_P(CpuDecodeTest, AllKeepsEverything) {
  const ffdSpec spec = makeSpec(96, 64, 3, FFD_BF16, 4, 32);
  Kernel kernel(spec, GetParam(), Program::Decode, "#ffd.all");
  CaseShape shape;
  shape.spec = spec;
  shape.lengths = {700, 100};
  shape.delta = std::numeric_limits<float>::infinity();
  RandomCase decode(shape, 4);
  check(kernel, decode);
}

TEST_P(CpuDecodeTest, ExactMatchesDense) {
  for (const ffdSpec &spec :
       {makeSpec(128, 128, 4), makeSpec(80, 48, 5, FFD_BF16)}) {
    SCOPED_TRACE(specName(spec));
    Kernel kernel(spec, GetParam(), Program::Exact);
    CaseShape shape;
    shape.spec = spec;
    shape.lengths = {300, 0, 17, 64};
    RandomCase decode(shape, 2);
    const int64_t heads = shape.kvHeads, tokens = decode.tokens;
    auto rowMajor = [&](const std::vector<uint16_t> &from, int64_t dim) {
      std::vector<uint16_t> to(from.size());
      for (int64_t s = 0; s < decode.batch(); ++s)
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t h = 0; h < heads; ++h)
            std::memcpy(&to[size_t(((s * heads + h) * tokens + t) * dim)],
                        &from[size_t(((s * tokens + t) * heads + h) * dim)],
                        size_t(dim) * 2);
      return to;
    };
    const std::vector<uint16_t> k = rowMajor(decode.k, spec.head_dim);
    const std::vector<uint16_t> v = rowMajor(decode.v, spec.value_dim);
    Result expected;
    for (int64_t s = 0; s < decode.batch(); ++s)
      for (int64_t h = 0; h < decode.queryHeads(); ++h) {
        double lse;
        for (double o : decode.denseAttention(s, h, lse))
          expected.out.push_back(float(o));
        expected.lse.push_back(float(lse));
      }
    ffdDecodeArgs args = decode.args;
    args.tail_k = k.data();
    args.tail_v = v.data();
    args.tail_head_stride = tokens;
    args.tail_batch_stride = tokens * heads;
    args.thumbnails = args.residuals = args.values = args.smax = nullptr;
    args.page_table = nullptr;
    args.delta = nullptr;
    args.kept = nullptr;
    for (int32_t splits : {1, 4}) {
      clear(decode);
      kernel.run(args, decode.cache->rows(), splits);
      expectClose(resultOf(decode), expected,
                  decode.queryHeads() * spec.value_dim);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, CpuDecodeTest,
                         testing::Values("avx2", "avx512", "avx512vnni"),
                         [](const auto &info) { return info.param; });
