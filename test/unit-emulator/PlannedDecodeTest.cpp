//===- PlannedDecodeTest.cpp - Decodes as a plan says ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a plan says beyond the sizes of pieces: where sequences are, and which
// of their blocks are committed. All comparisons are bit for bit with decodes
// that need none of it.
//
//===----------------------------------------------------------------------===//

#include "CheckCase.h"

#include "ffd/Float16.h"
#include "ffd/Plan.h"

using namespace ffd;

namespace {

struct Results {
  std::vector<float> out, lse;
  bool operator==(const Results &other) const {
    return out.size() == other.out.size() && lse.size() == other.lse.size() &&
           !std::memcmp(out.data(), other.out.data(), out.size() * 4) &&
           !std::memcmp(lse.data(), other.lse.data(), lse.size() * 4);
  }
};

/// Head dim, group, query tokens, element, architecture, pseudo-max.
using Shape = std::tuple<int, int, int, int, const char *, int>;

class PlannedDecode : public testing::TestWithParam<Shape> {
protected:
  void SetUp() override {
    auto [headDim, group, tokens, element, arch, pseudoMax] = GetParam();
    shape.spec = makeSpec(headDim, 64, group, element);
    shape.spec.pseudo_max = pseudoMax;
    shape.spec.query_tokens = tokens;
    shape.lengths = {560, 200, 0, 700, 40};
    shape.lag = tokens - 1;
    shape.delta = 3;
    decode = std::make_unique<EmulatedDecode>(shape.spec, arch, error);
    ASSERT_EQ(error, "");
    c = std::make_unique<RandomCase>(shape, 4);
    options.batch = int32_t(shape.lengths.size());
    options.kvHeads = int32_t(shape.kvHeads);
    options.lag = int32_t(shape.lag);
  }

  /// What a place of the batch has got.
  Results at(int64_t place) const {
    const int64_t heads = c->queryHeads() * queryTokens(shape.spec);
    const int64_t outs = heads * shape.spec.value_dim;
    Results r;
    r.out.assign(c->out.as<float>() + place * outs,
                 c->out.as<float>() + (place + 1) * outs);
    r.lse.assign(c->lse.as<float>() + place * heads,
                 c->lse.as<float>() + (place + 1) * heads);
    return r;
  }
  std::vector<Results> run(int32_t firstPage = 0) {
    std::memset(c->out.data(), 0x11, size_t(c->out.size()));
    std::memset(c->lse.data(), 0x11, size_t(c->lse.size()));
    const emulator::Report report = decode->run(*c, options, {}, firstPage);
    EXPECT_TRUE(report.ok) << report.str();
    std::vector<Results> all;
    for (int64_t place = 0; place < c->batch(); ++place)
      all.push_back(at(place));
    return all;
  }
  /// Puts the queries of the listed slots where the batch has them.
  void orderQueries(const std::vector<int32_t> &slots) {
    const size_t bytes = size_t(c->q.size()) / size_t(c->batch());
    const std::vector<uint8_t> old(c->q.data(), c->q.data() + c->q.size());
    for (size_t place = 0; place < slots.size(); ++place)
      if (slots[place] >= 0)
        std::memcpy(c->q.data() + place * bytes,
                    &old[size_t(slots[place]) * bytes], bytes);
  }

  CaseShape shape;
  std::string error;
  std::unique_ptr<EmulatedDecode> decode;
  std::unique_ptr<RandomCase> c;
  PlanOptions options;
};

/// With pieces of one size, a sequence has the same bits alone and in any
/// batch, wherever it is in it.
TEST_P(PlannedDecode, PiecesOfOneSizeGiveBitsOfOneKind) {
  options.blocksPerPiece = 2;
  const std::vector<Results> all = run();
  const Results untouched = [&] {
    Results r = all[0];
    std::memset(r.out.data(), 0x11, r.out.size() * 4);
    std::memset(r.lse.data(), 0x11, r.lse.size() * 4);
    return r;
  }();
  for (const std::vector<int32_t> &slots :
       std::vector<std::vector<int32_t>>{{3}, {4, -1, 0, 2}, {2, 4, 3, 1, 0}}) {
    c = std::make_unique<RandomCase>(shape, 4);
    orderQueries(slots);
    options.slots = slots.data();
    options.slotCount = 5;
    options.batch = int32_t(slots.size());
    const std::vector<Results> some = run();
    for (size_t place = 0; place < some.size(); ++place) {
      const int32_t slot = place < slots.size() ? slots[place] : -1;
      EXPECT_TRUE(some[place] == (slot < 0 ? untouched : all[size_t(slot)]))
          << "slot " << slot << " at " << place << " of " << slots.size();
    }
  }
}

/// Blocks that are committed although they are younger than the lag.
TEST_P(PlannedDecode, BlocksAreWhatThePlanSays) {
  options.target = 9;
  const std::vector<Results> usual = run();
  std::vector<int32_t> committed;
  for (int64_t s = 0; s < c->batch(); ++s)
    committed.push_back(int32_t(c->cache->blocks(s)));
  options.lag = 700;
  options.committed = committed.data();
  EXPECT_TRUE(run() == usual);
}

/// Planes of more than 2^31 bytes and elements, of which the last are read.
TEST_P(PlannedDecode, PagesBeyondTwoToTheThirtyOne) {
  options.target = 9;
  const std::vector<Results> usual = run();
  EXPECT_TRUE(run(INT32_MAX - 4096) == usual);
}

/// NaN and infinity in one sequence leave the others as they were.
TEST_P(PlannedDecode, BadNumbersStayInTheirSequence) {
  options.target = 9;
  const std::vector<Results> usual = run();
  const size_t perQ = size_t(c->q.size()) / 2 / size_t(c->batch());
  const size_t perToken = size_t(shape.kvHeads * shape.spec.head_dim);
  const uint16_t infinity = shape.spec.element == FFD_F16 ? 0x7C00 : 0x7F80;
  const uint16_t nan = canonicalNaN(shape.spec.element);
  enum { Query, OldKey, TailKey, OldValue, TailValue };
  for (const auto &[which, bad] : {std::pair<int, uint16_t>{Query, nan},
                                   {OldKey, uint16_t(infinity | 0x8000)},
                                   {TailKey, infinity},
                                   {OldValue, nan},
                                   {TailValue, infinity}}) {
    c = std::make_unique<RandomCase>(shape, 4);
    const size_t first = size_t(c->tokens) * 3; // tokens of sequence 3
    const size_t token = first + (which == OldKey || which == OldValue
                                      ? 200
                                      : size_t(shape.lengths[3]) - 1);
    if (which == Query)
      c->q.as<uint16_t>()[3 * perQ + 5] = bad;
    else if (which == OldKey || which == TailKey)
      c->k[token * perToken + 7] = bad;
    else
      c->v[token * size_t(shape.kvHeads * shape.spec.value_dim) + 7] = bad;
    if (which != Query)
      c->build();
    const std::vector<Results> got = run();
    for (size_t s : {0, 1, 2, 4})
      EXPECT_TRUE(got[s] == usual[s]) << "sequence " << s << " for " << which;
    EXPECT_TRUE(which == OldValue || !(got[3] == usual[3])) << which;
  }
}

constexpr int kScan = FFD_PSEUDO_MAX_SCAN, kRefined = FFD_PSEUDO_MAX_REFINED;
INSTANTIATE_TEST_SUITE_P(
    Some, PlannedDecode,
    testing::Values(Shape{64, 4, 1, FFD_F16, "sm_90a", kScan},
                    Shape{128, 2, 3, FFD_BF16, "sm_80", kScan},
                    Shape{64, 2, 2, FFD_BF16, "sm_80", kRefined},
                    Shape{128, 4, 1, FFD_F16, "sm_90a", kRefined}));

} // namespace
