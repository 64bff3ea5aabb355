//===- KernelTest.cpp - Argument checks and the CPU kernel ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every field of ffdDecodeArgs that can be wrong is refused by name; the CPU
// kernel visits every piece once and leaves its workspace ready.
//
//===----------------------------------------------------------------------===//

#include "RandomCase.h"
#include "ReferenceDecode.h"

#include "gtest/gtest.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <set>

using namespace ffd;

namespace {

CaseShape smallShape() {
  CaseShape shape;
  shape.spec = makeSpec(64, 48, 2);
  shape.lengths = {300, 0, 128};
  return shape;
}

TEST(CheckArgs, EveryFieldIsChecked) {
  RandomCase c(smallShape(), 1);
  const ffdSpec spec = c.shape.spec;
  ASSERT_TRUE(checkArgs(spec, Program::Decode, c.args).ok());

  const auto expect = [&](const ffdDecodeArgs &args, const char *part) {
    Status status = checkArgs(spec, Program::Decode, args);
    EXPECT_FALSE(status.ok()) << part;
    EXPECT_EQ(status.code(), StatusCode::InvalidArgument);
    EXPECT_NE(status.message().find(part), std::string::npos)
        << status.message();
  };
#define EXPECT_BAD(field, value, part)                                         \
  do {                                                                         \
    ffdDecodeArgs bad = c.args;                                                \
    bad.field = value;                                                         \
    expect(bad, part);                                                         \
  } while (false)
  for (auto member :
       {&ffdDecodeArgs::q, &ffdDecodeArgs::thumbnails,
        &ffdDecodeArgs::residuals, &ffdDecodeArgs::values, &ffdDecodeArgs::smax,
        &ffdDecodeArgs::tail_k, &ffdDecodeArgs::tail_v}) {
    ffdDecodeArgs bad = c.args;
    bad.*member = nullptr;
    expect(bad, "is null, expected a pointer");
    bad.*member = static_cast<const char *>(c.args.*member) + 8;
    expect(bad, "is not aligned");
  }
  EXPECT_BAD(page_table, nullptr, "'page_table' is null");
  EXPECT_BAD(lengths, nullptr, "'lengths' is null");
  EXPECT_BAD(delta, nullptr, "'delta' is null");
  EXPECT_BAD(out, nullptr, "'out' is null");
  EXPECT_BAD(out, c.args.out + 1, "'out' is not aligned");
  EXPECT_BAD(q_batch_stride, 12, "'q_batch_stride' is 12");
  EXPECT_BAD(q_head_stride, -8, "'q_head_stride' is -8");
  EXPECT_BAD(q_head_stride, INT64_MAX / 8 * 8, "'q' does not fit");
  EXPECT_BAD(page_stride, 1, "'page_stride' is 1, expected at least 2");
  EXPECT_BAD(page_stride, -1, "'page_stride' is -1");
  EXPECT_BAD(kept_stride, 15, "'kept_stride' is 15, expected at least 16");
  EXPECT_BAD(tail_batch_stride, -1, "'tail_batch_stride' is -1");
  EXPECT_BAD(tail_head_stride, INT64_MAX, "does not fit in 64 bits");
  EXPECT_BAD(batch, 0, "'batch' is 0");
  EXPECT_BAD(kv_heads, -3, "'kv_heads' is -3");
  EXPECT_BAD(kv_heads, INT32_MAX, "expected at most 2147483647");
  EXPECT_BAD(splits, -1, "'splits' is -1");
  EXPECT_BAD(lag, -1, "'lag' is -1");
  EXPECT_BAD(sm_scale, 0, "'sm_scale'");
  EXPECT_BAD(sm_scale, -1, "'sm_scale'");
  EXPECT_BAD(sm_scale, NAN, "'sm_scale'");
  EXPECT_BAD(sm_scale, INFINITY, "'sm_scale'");
  EXPECT_BAD(pieces, 1, "'plan' of 'ffdDecodeArgs' is given");
#undef EXPECT_BAD

  ffdDecodeArgs bad = c.args;
  alignas(16) char workspace[64] = {};
  bad.workspace = workspace;
  expect(bad, "'splits' is 0, expected at least 1 where a workspace");
  bad.splits = 1;
  bad.workspace = workspace + 4;
  expect(bad, "'workspace' is not aligned");

  const int32_t lengths[] = {300, -1, 128};
  bad = c.args;
  bad.lengths = lengths;
  expect(bad, "'lengths[1]' is -1");
  for (float value : {-1.0f, -0.5f, float(NAN), -INFINITY}) {
    const float delta[] = {1, 2, value};
    bad = c.args;
    bad.delta = delta;
    expect(bad, "'delta[2]'");
  }
  const float infinite[] = {INFINITY, 0, INFINITY};
  bad = c.args;
  bad.delta = infinite;
  EXPECT_TRUE(checkArgs(spec, Program::Decode, bad).ok());
  std::vector<int32_t> table(c.args.page_table,
                             c.args.page_table + 3 * c.args.page_stride);
  table[1] = -5;
  bad.page_table = table.data();
  expect(bad, "'page_table[0][1]' is -5");
}

TEST(CheckArgs, ExactReadsNoPlanes) {
  RandomCase c(smallShape(), 1);
  ffdDecodeArgs args = c.args;
  args.thumbnails = args.residuals = args.values = args.smax = nullptr;
  args.page_table = nullptr;
  args.delta = nullptr;
  args.kept = nullptr;
  EXPECT_TRUE(checkArgs(c.shape.spec, Program::Exact, args).ok());
  args.tail_v = nullptr;
  EXPECT_FALSE(checkArgs(c.shape.spec, Program::Exact, args).ok());
}

TEST(PickSplits, PiecesAreNeitherFewNorSmall) {
  const ffdSpec spec = makeSpec();
  EXPECT_EQ(pickSplits(spec, 8, 0, 64), 1);
  EXPECT_EQ(pickSplits(spec, 8, 2048, 64), 1);
  EXPECT_EQ(pickSplits(spec, 8, 32768, 64), 8);
  EXPECT_EQ(pickSplits(spec, 8, 32768, 1000), 16);
  EXPECT_EQ(pickSplits(spec, 1000, 32768, 64), 1);
  EXPECT_EQ(pickSplits(spec, 1, INT32_MAX, INT32_MAX), 1024);
}

std::mutex seenLock;
std::multiset<std::pair<int64_t, int64_t>> seen;

/// A kernel that keeps to the workspace's rules and notes its calls.
void noteCall(const ffdDecodeArgs *args, int64_t row, int64_t split) {
  std::lock_guard<std::mutex> lock(seenLock);
  seen.insert({row, split});
  auto *counter = static_cast<int32_t *>(args->workspace) + row;
  EXPECT_TRUE(*counter >= 0 && *counter < args->splits);
  if (++*counter == args->splits)
    *counter = 0;
  const Layout layout = layoutOf(smallShape().spec);
  auto *partials =
      static_cast<char *>(args->workspace) +
      Layout::partialsOffset(int64_t(args->batch) * args->kv_heads);
  std::memset(partials +
                  (row * args->splits + split) * 2 * layout.partialFloats() * 4,
              0x55, size_t(2 * layout.partialFloats() * 4));
}

TEST(CpuKernel, VisitsEveryPieceAndReusesItsWorkspace) {
  RandomCase c(smallShape(), 1);
  CpuKernel kernel(c.shape.spec, Program::Decode, "cpu", noteCall, nullptr,
                   testPool());
  CaseShape larger = smallShape();
  larger.lengths.assign(60, 10); // counters where partials were before
  RandomCase d(larger, 1);
  for (RandomCase *each : {&c, &d, &c}) {
    each->args.splits = 3;
    seen.clear();
    Status status = kernel.decode(each->args);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(seen.size(), size_t(each->cache->rows() * 3));
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), seen.size());
  }
}

TEST(CpuKernel, ChecksACallersWorkspace) {
  RandomCase c(smallShape(), 1);
  CpuKernel kernel(c.shape.spec, Program::Decode, "cpu", noteCall, nullptr,
                   testPool());
  HostBuffer workspace;
  const Layout layout = layoutOf(c.shape.spec);
  ASSERT_TRUE(workspace
                  .allocate("workspace",
                            layout.workspaceBytes(c.cache->rows(), 2, 2), 0)
                  .ok());
  c.args.splits = 2;
  c.args.workspace = workspace.data();
  EXPECT_TRUE(kernel.decode(c.args).ok());
  workspace.as<int32_t>()[4] = 1;
  Status status = kernel.decode(c.args);
  EXPECT_NE(status.message().find("counter of row 4 is not 0"),
            std::string::npos)
      << status.message();
}

TEST(CpuKernel, RunsTheReference) {
  RandomCase c(smallShape(), 1);
  ReferenceDecode::setEntrySpec(c.shape.spec);
  CpuKernel kernel(c.shape.spec, Program::Decode, "cpu", ReferenceDecode::entry,
                   nullptr, testPool());
  ASSERT_TRUE(kernel.decode(c.args).ok());
  for (int64_t i = 0; i < c.out.size() / 4; ++i)
    ASSERT_FALSE(std::isnan(c.out.as<float>()[i])) << i;
}

} // namespace
