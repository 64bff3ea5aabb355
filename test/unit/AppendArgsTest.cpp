//===- AppendArgsTest.cpp - Arguments of an append ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every field that a host can check, and that the message names it.
//
//===----------------------------------------------------------------------===//

#include "ffd/Kernel.h"

#include "gtest/gtest.h"

#include <functional>

using namespace ffd;

namespace {

const ffdSpec kSpec = {128, 128, 4, FFD_F16, 2, 128, 16};

/// Arguments that pass; the addresses are never read.
ffdAppendArgs goodArgs() {
  ffdAppendArgs a = {};
  char *address = reinterpret_cast<char *>(uintptr_t(1) << 20);
  a.k = a.v = address;
  a.thumbnails = a.residuals = a.values = a.smax = address;
  a.tail_k = a.tail_v = a.workspace = address;
  a.page_table = a.lengths = reinterpret_cast<int32_t *>(address);
  a.new_lengths = a.errors = reinterpret_cast<int32_t *>(address) + 8;
  a.offsets = a.reserved = reinterpret_cast<int32_t *>(address) + 16;
  a.k_token_stride = a.v_token_stride = 2 * 128;
  a.k_head_stride = a.v_head_stride = 128;
  a.page_stride = 16;
  a.tail_tokens = 144;
  a.tail_head_stride = 144;
  a.tail_batch_stride = 288;
  a.batch = 3;
  a.kv_heads = 2;
  a.splits = 2;
  a.lag = 16;
  a.pages = 100;
  return a;
}

TEST(AppendArgs, GoodOnesPass) {
  EXPECT_TRUE(checkAppendArgs(kSpec, goodArgs()).ok());
  ffdAppendArgs a = goodArgs();
  a.splits = 1;
  a.workspace = nullptr;
  a.k = a.v = nullptr;
  a.thumbnails = a.residuals = a.values = nullptr;
  a.page_table = nullptr;
  a.new_lengths = nullptr;
  EXPECT_TRUE(checkAppendArgs(kSpec, a).ok());
}

TEST(AppendArgs, BadOnesAreNamed) {
  struct Bad {
    std::function<void(ffdAppendArgs &)> change;
    const char *message;
  };
  const Bad cases[] = {
      {[](ffdAppendArgs &a) { a.batch = 0; },
       "'ffdAppendArgs' field 'batch' is 0, expected at least 1"},
      {[](ffdAppendArgs &a) { a.kv_heads = -1; }, "field 'kv_heads' is -1"},
      {[](ffdAppendArgs &a) { a.splits = 0; }, "field 'splits' is 0"},
      {[](ffdAppendArgs &a) { a.lag = -3; }, "field 'lag' is -3"},
      {[](ffdAppendArgs &a) { a.pages = -1; }, "field 'pages' is -1"},
      {[](ffdAppendArgs &a) { a.splits = INT32_MAX; },
       "batch * kv_heads * splits of 'ffdAppendArgs' is 3 * 2 * 2147483647"},
      {[](ffdAppendArgs &a) { a.lag = 18; },
       "field 'tail_tokens' is 144, expected at least lag + 127 = 145"},
      {[](ffdAppendArgs &a) { a.k_token_stride = 12; },
       "field 'k_token_stride' is 12, expected a multiple of 8"},
      {[](ffdAppendArgs &a) { a.v_head_stride = -8; },
       "field 'v_head_stride' is -8"},
      {[](ffdAppendArgs &a) { a.page_stride = -1; },
       "field 'page_stride' is -1, expected at least 0"},
      {[](ffdAppendArgs &a) { a.tail_head_stride = 143; },
       "field 'tail_head_stride' is 143, expected at least tail_tokens = 144"},
      {[](ffdAppendArgs &a) { a.tail_batch_stride = 0; },
       "field 'tail_batch_stride' is 0"},
      {[](ffdAppendArgs &a) { a.errors = nullptr; },
       "field 'errors' is null, expected a pointer"},
      {[](ffdAppendArgs &a) { a.workspace = nullptr; },
       "field 'workspace' is null"},
      {[](ffdAppendArgs &a) {
         a.splits = 1;
         a.new_lengths = const_cast<int32_t *>(a.lengths);
         a.workspace = nullptr;
       },
       "field 'workspace' is null"},
      {[](ffdAppendArgs &a) { a.k = static_cast<const char *>(a.k) + 2; },
       "field 'k' is not aligned (its address ends in 2 of 16)"}};
  for (const Bad &bad : cases) {
    ffdAppendArgs a = goodArgs();
    bad.change(a);
    const Status status = checkAppendArgs(kSpec, a);
    EXPECT_FALSE(status.ok()) << bad.message;
    EXPECT_NE(status.message().find(bad.message), std::string::npos)
        << status.message() << "\nexpected: " << bad.message;
  }
}

} // namespace
