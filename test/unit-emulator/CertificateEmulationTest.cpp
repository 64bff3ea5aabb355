//===- CertificateEmulationTest.cpp - Skipped mass, emulated --------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The decode with a certificate (cert_c1 to cert_c4): query tokens, centred
// keys, refined pseudo-maxima, more heads than one query tile, one piece, many
// and a plan, and a threshold far above what is skipped.
//
//===----------------------------------------------------------------------===//

#include "EmulatedDecode.h"
#include "ReferenceDecode.h"

#include "ffd/Float16.h"

#include <cmath>
#include <cstring>

using namespace ffd;

namespace {

struct CertificateCase {
  int headDim, group, tokens, element, bits, select;
  const char *arch;
  int splits; ///< 0: as a plan says
  bool centred, refined;
  int certificate;

  ffdSpec spec() const {
    ffdSpec spec = makeSpec(headDim, 64, group, element, bits, select);
    spec.query_tokens = tokens;
    spec.centre = centred ? FFD_CENTRE_ROW : FFD_CENTRE_NONE;
    spec.pseudo_max = refined;
    spec.certificate = int16_t(certificate);
    return spec;
  }
};

void PrintTo(const CertificateCase &c, std::ostream *os) {
  *os << specName(c.spec()) << " " << c.arch << " splits " << c.splits;
}

constexpr int kPlain = FFD_CERTIFICATE_PLAIN, kNoise = FFD_CERTIFICATE_NOISE;

const CertificateCase cases[] = {
    {64, 4, 1, FFD_F16, 2, 16, "sm_90a", 2, false, false, kPlain},
    {128, 4, 1, FFD_F16, 2, 16, "sm_90a", 0, true, true, kNoise},
    {80, 3, 3, FFD_BF16, 2, 32, "sm_80", 3, true, false, kNoise},
    {96, 8, 2, FFD_F16, 8, 32, "sm_90a", 1, false, true, kPlain},
    {128, 1, 1, FFD_BF16, 4, 64, "sm_86", 1, true, false, kPlain},
    {128, 8, 1, FFD_BF16, 2, 16, "sm_100a", 20, false, false, kNoise},
    {256, 4, 2, FFD_F16, 2, 128, "sm_120a", 0, true, false, kNoise},
    {256, 3, 1, FFD_BF16, 8, 32, "sm_89", 2, false, true, kPlain},
    {64, 16, 1, FFD_F16, 4, 16, "sm_90a", 5, true, false, kNoise},
};

class Certificate : public testing::TestWithParam<CertificateCase> {
protected:
  void SetUp() override {
    const CertificateCase &c = GetParam();
    shape.spec = c.spec();
    shape.keySpread = 0.5;
    shape.kvHeads = 1;
    shape.lag = c.tokens - 1;
    decode = std::make_unique<EmulatedDecode>(shape.spec, c.arch, error);
    ASSERT_EQ(error, "");
  }
  /// A case with a mean in every key channel, if keys are centred.
  std::unique_ptr<RandomCase> draw(uint32_t seed) const {
    auto c = std::make_unique<RandomCase>(shape, seed);
    if (!shape.spec.centre)
      return c;
    const int element = shape.spec.element;
    for (size_t i = 0; i < c->k.size(); ++i)
      c->k[i] = f32ToElement(
          element, elementToF32(element, c->k[i]) +
                       float(i % size_t(shape.spec.head_dim) % 3) / 2);
    c->build();
    return c;
  }
  void check(RandomCase &c) {
    const emulator::Report report =
        decode->run(c, GetParam().splits, {}, /*launches=*/2);
    ASSERT_TRUE(report.ok) << report.str();
    EXPECT_TRUE(matchesReference(c));
  }

  CaseShape shape;
  std::string error;
  std::unique_ptr<EmulatedDecode> decode;
};

/// No committed block, one, two and more; blocks skipped in whole and in part.
TEST_P(Certificate, MatchesReference) {
  const int tokens = GetParam().tokens;
  shape.lengths = {0, 1, 128 + tokens, 255, 256, 700};
  for (float delta : {0.5f, INFINITY}) {
    shape.delta = delta;
    const std::unique_ptr<RandomCase> c = draw(uint32_t(100 + tokens));
    if (tokens == 1) // so that something is skipped, whatever the heads
      c->oppose(5, 256, 500);
    check(*c);
    int finite = 0;
    for (int64_t i = 0; i < c->skipped.size() / 4; ++i)
      finite += std::isfinite(c->skipped.as<float>()[i]);
    if (tokens == 1 || std::isinf(delta))
      EXPECT_EQ(finite > 0, !std::isinf(delta));
  }
}

/// A few tokens hundreds of nat above all others (cert_c3).
TEST_P(Certificate, CountsWhatIsFarBelow) {
  shape.lengths = {600};
  shape.delta = 1;
  const std::unique_ptr<RandomCase> c = draw(7);
  const ffdSpec &spec = shape.spec;
  for (int64_t h = 0; h < rowHeads(spec); ++h)
    for (int i = 0; i < spec.head_dim; ++i) // all heads ask the same
      c->q.as<uint16_t>()[h * spec.head_dim + i] = c->q.as<uint16_t>()[i];
  for (int i = 0; i < spec.head_dim; ++i)
    c->k[size_t(5 * spec.head_dim + i)] = f32ToElement(
        spec.element, 15 * elementToF32(spec.element, c->q.as<uint16_t>()[i]));
  c->build();
  check(*c);
}

/// Who does not ask gets nothing; lse alone, mass alone.
TEST_P(Certificate, IsWrittenWhereAskedFor) {
  shape.lengths = {300};
  shape.delta = 0.5f;
  const std::unique_ptr<RandomCase> c = draw(9);
  check(*c);
  const std::vector<uint8_t> mass(c->skipped.data(),
                                  c->skipped.data() + c->skipped.size());
  ffdDecodeArgs given = c->args;
  c->args.lse = nullptr;
  ASSERT_TRUE(decode->run(*c, GetParam().splits, {}).ok);
  EXPECT_EQ(std::memcmp(c->skipped.data(), mass.data(), mass.size()), 0);
  c->args = given;
  c->args.skipped_lse = nullptr;
  ASSERT_TRUE(decode->run(*c, GetParam().splits, {}).ok);
  for (int64_t i = 0; i < c->skipped.size(); ++i)
    ASSERT_EQ(c->skipped.data()[i], 0xFF);
}

/// Sums go on from round to round, and their bits do not depend on the
/// schedule.
TEST(CertificateOfLongRows, MatchesAndDoesNotDependOnTheSchedule) {
  CaseShape shape;
  shape.spec = makeSpec(64, 64, 4);
  shape.spec.certificate = FFD_CERTIFICATE_NOISE;
  shape.kvHeads = 1;
  shape.lengths = {33500};
  shape.delta = 0.7f;
  RandomCase c(shape, 3);
  std::string error;
  EmulatedDecode decode(shape.spec, "sm_90a", error);
  ASSERT_EQ(error, "");
  std::vector<uint8_t> first;
  for (uint64_t seed : {1, 2}) {
    emulator::Options options;
    options.seed = seed;
    const emulator::Report report = decode.run(c, 1, options);
    ASSERT_TRUE(report.ok) << report.str();
    const std::vector<uint8_t> bits(c.skipped.data(),
                                    c.skipped.data() + c.skipped.size());
    EXPECT_TRUE(first.empty() || bits == first);
    first = bits;
  }
  EXPECT_TRUE(matchesReference(c));
}

INSTANTIATE_TEST_SUITE_P(Some, Certificate, testing::ValuesIn(cases));

} // namespace
