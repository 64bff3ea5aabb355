//===- ApiCudaGraphTest.cpp - Plans and graphs of caches on a GPU -------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Steps that are captured once and replayed while sequences come, grow and go,
// and who makes the plans of their decodes.
//
//===----------------------------------------------------------------------===//

#include "ApiCudaFixture.h"
#include "ReferenceDecode.h"

#include <cstring>
#include <functional>

using namespace ffd;

/// One captured step; everything else happens between its replays.
TEST_F(ApiCuda, GraphsOutliveGrowth) {
  ffdCacheOptions o = options();
  ApiCase c(o, 5, context);
  const int64_t rowK = o.kv_heads * theSpec.head_dim;
  const int64_t rowV = o.kv_heads * theSpec.value_dim;
  std::vector<HostBuffer> k(2), v(2), q(2), out(2);
  for (size_t layer = 0; layer < 2; ++layer) {
    ASSERT_TRUE(k[layer].allocate("k", 4 * rowK * 2, 0).ok());
    ASSERT_TRUE(v[layer].allocate("v", 4 * rowV * 2, 0).ok());
    ASSERT_TRUE(q[layer].allocate("q", 4 * 2 * rowK * 2, 0).ok());
    ASSERT_TRUE(out[layer].allocate("out", 4 * 2 * rowV * 4, 0).ok());
  }
  for (HostBuffer &queries : q)
    for (int64_t x = 0; x < queries.size() / 2; ++x)
      queries.as<uint16_t>()[x] = uint16_t(0x3800 + x * 37 % 0x900);
  const auto step = [&](void *on) {
    for (int32_t layer = 0; layer < 2; ++layer) {
      ffdAppendBatch append;
      ffdAppendBatchInit(&append);
      append.layer = layer;
      append.count = 4;
      append.k = k[size_t(layer)].data();
      append.v = v[size_t(layer)].data();
      FFD_OK(ffdAppend(c.cache, &append, on));
      ffdDecodeBatch decode;
      ffdDecodeBatchInit(&decode);
      decode.layer = layer;
      decode.count = 4;
      decode.q = q[size_t(layer)].data();
      decode.out = out[size_t(layer)].as<float>();
      FFD_OK(ffdDecode(c.cache, &decode, on));
    }
  };
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {120}), FFD_SUCCESS) << ffdLastErrorMessage();
  CudaGraph graph;
  ASSERT_TRUE(graph.begin(cuda).ok());
  {
    const int32_t two = 2;
    ffdAppendBatch counted;
    ffdAppendBatchInit(&counted);
    counted.count = 1;
    counted.tokens = &two;
    counted.k = k[0].data();
    counted.v = v[0].data();
    EXPECT_EQ(ffdAppend(c.cache, &counted, stream), FFD_INVALID_ARGUMENT)
        << "counts on the host would be those of the capture for good";
    int32_t none;
    EXPECT_EQ(ffdSequenceCreate(c.cache, stream, &none), FFD_INVALID_ARGUMENT);
  }
  ASSERT_TRUE(graph.end().ok());

  while (c.tokens.size() < 3)
    c.create();
  CudaGraph captured;
  ASSERT_TRUE(captured.begin(cuda).ok());
  step(stream);
  ASSERT_TRUE(captured.end().ok());
  c.check({0, 1, 2}); // nothing has happened yet

  std::mt19937 random(3);
  for (int i = 0; i < 400; ++i) {
    if (i == 100) { // joins
      EXPECT_EQ(c.create(), 3);
    }
    if (i == 150) // leaves, a fork takes its place
      c.free(1);
    if (i == 160) {
      EXPECT_EQ(c.fork(0), 1);
    }
    if (i == 200) {
      ASSERT_EQ(c.truncate(0, 256), FFD_SUCCESS) << ffdLastErrorMessage();
    }
    if (i == 300) {
      ASSERT_EQ(c.append({2}, {77}), FFD_SUCCESS);
    }
    std::vector<int32_t> live, ones;
    std::vector<int64_t> room;
    for (const auto &entry : c.tokens) {
      live.push_back(entry.first);
      ones.push_back(1);
      room.push_back(1 + int64_t(random() % 3));
    }
    FFD_OK(ffdReserve(c.cache, int32_t(live.size()), live.data(), room.data(),
                      nullptr));
    for (size_t layer = 0; layer < 2; ++layer) {
      const auto fill =
          [&](HostBuffer &buffer, int64_t row,
              std::vector<std::vector<uint16_t>> ApiCase::Tokens::*field) {
            for (int64_t x = 0; x < buffer.size() / 2; ++x)
              buffer.as<uint16_t>()[x] = uint16_t(0x3800 + random() % 0x800);
            for (int32_t slot : live) {
              auto &tokens = (c.tokens[slot].*field)[layer];
              tokens.insert(tokens.end(), buffer.as<uint16_t>() + slot * row,
                            buffer.as<uint16_t>() + (slot + 1) * row);
            }
          };
      fill(k[layer], rowK, &ApiCase::Tokens::k);
      fill(v[layer], rowV, &ApiCase::Tokens::v);
    }
    // The reference is slow: of decodes only those that are looked at.
    fake->kernel = i % 40 == 39 ? ReferenceDecode::entry : nullptr;
    ASSERT_TRUE(captured.launch().ok());
    fake->kernel = ReferenceDecode::entry;
    FFD_OK(ffdAdvance(c.cache, int32_t(live.size()), live.data(), ones.data()));
    for (int32_t slot : live) {
      ApiCase::Tokens &t = c.tokens[slot];
      ++t.length;
      t.committed = committedBlocks(theSpec, t.length, 0);
    }
    if (i % 40 != 39)
      continue;
    c.check(live);
    for (int64_t x = 0; i < 100 && x < 2 * rowV; ++x)
      ASSERT_EQ(out[1].as<float>()[3 * 2 * rowV + x], 0) << "the empty slot";
    // The captured decode, too, saw what a decode of now sees.
    const size_t perQ = size_t(2 * rowK), perOut = size_t(2 * rowV);
    for (int32_t slot : live) {
      const uint16_t *from = q[1].as<uint16_t>() + size_t(slot) * perQ;
      const std::vector<float> now =
          c.decode({slot}, std::vector<uint16_t>(from, from + perQ), 1);
      EXPECT_EQ(std::memcmp(now.data(),
                            out[1].as<float>() + size_t(slot) * perOut,
                            perOut * 4),
                0)
          << "slot " << slot << " replay " << i;
    }
  }
  int32_t errors = -1, each[4];
  FFD_OK(ffdCacheGetErrors(c.cache, &errors, each));
  EXPECT_EQ(errors, 0) << "appends to the empty slot are no errors";

  // Without a reservation the device refuses, and says so until told.
  fake->kernel = nullptr;
  for (int i = 0; i < 300; ++i)
    ASSERT_TRUE(captured.launch().ok());
  FFD_OK(ffdCacheGetErrors(c.cache, &errors, each));
  EXPECT_EQ(errors, FFD_APPEND_BEYOND_RESERVATION);
  for (int slot = 0; slot < 4; ++slot)
    EXPECT_EQ(each[slot], FFD_APPEND_BEYOND_RESERVATION) << slot;
  FFD_OK(ffdCacheClearErrors(c.cache));
  FFD_OK(ffdCacheGetErrors(c.cache, &errors, nullptr));
  EXPECT_EQ(errors, 0);
  const int32_t many = 300, zero = 0;
  EXPECT_EQ(ffdAdvance(c.cache, 1, &zero, &many), FFD_INVALID_ARGUMENT)
      << "more than was reserved cannot have happened";
}

/// One plan per step, made again whenever the lengths could be others.
TEST_F(ApiCuda, LayersShareAPlan) {
  ApiCase c(options(), 1, context);
  for (int i = 0; i < 3; ++i)
    c.create();
  ASSERT_EQ(c.append({0, 1, 2}, {300, 5, 0}), FFD_SUCCESS);
  const auto plansOf = [&](const std::vector<int32_t> &slots) {
    fake->plans = 0;
    c.check(slots); // of both layers
    return fake->plans.load();
  };
  EXPECT_EQ(plansOf({0, 1, 2}), 1);
  EXPECT_EQ(plansOf({0, 1, 2}), 0) << "nothing has changed";
  EXPECT_EQ(plansOf({0, 2}), 1);
  EXPECT_EQ(plansOf({2, 0}), 1);
  ASSERT_EQ(c.append({1}, {1}), FFD_SUCCESS);
  EXPECT_EQ(plansOf({2, 0}), 0) << "nothing of these has changed";
  EXPECT_EQ(plansOf({0, 1, 2}), 1);
  ASSERT_EQ(c.truncate(0, 290), FFD_SUCCESS);
  EXPECT_EQ(plansOf({0, 1, 2}), 1);

  // Layers of different lengths: each decode plans for itself.
  std::vector<uint16_t> rows(3 * 2 * 64, 0x3C00);
  ffdAppendBatch append;
  ffdAppendBatchInit(&append);
  append.count = 3;
  append.k = append.v = rows.data();
  FFD_OK(ffdAppend(c.cache, &append, nullptr));
  const std::vector<uint16_t> q = c.queries(3);
  fake->plans = 0;
  c.decode({0, 1, 2}, q, 1);
  c.decode({0, 1, 2}, q, 0);
  c.decode({0, 1, 2}, q, 1);
  EXPECT_EQ(fake->plans, 2);
}

/// A graph has plans of its own, as many as it needs, whatever was planned
/// before.
TEST_F(ApiCuda, GraphsPlanForThemselves) {
  ApiCase c(options(), 1, context);
  for (int i = 0; i < 3; ++i)
    c.create();
  ASSERT_EQ(c.append({0, 1, 2}, {300, 5, 0}), FFD_SUCCESS);
  HostBuffer rows, q, out;
  ASSERT_TRUE(rows.allocate("rows", 3 * 2 * 64 * 2, 0).ok());
  ASSERT_TRUE(q.allocate("q", 3 * 4 * 64 * 2, 0).ok());
  ASSERT_TRUE(out.allocate("out", 3 * 4 * 64 * 4, 0).ok());
  const auto append = [&](int32_t layer) {
    ffdAppendBatch batch;
    ffdAppendBatchInit(&batch);
    batch.layer = layer;
    batch.count = 3;
    batch.k = batch.v = rows.data();
    FFD_OK(ffdAppend(c.cache, &batch, stream));
  };
  const auto decode = [&](int32_t layer) {
    ffdDecodeBatch batch;
    ffdDecodeBatchInit(&batch);
    batch.layer = layer;
    batch.count = 3;
    batch.q = q.data();
    batch.out = out.as<float>();
    FFD_OK(ffdDecode(c.cache, &batch, stream));
  };
  const auto plansOf = [&](const std::function<void()> &step) {
    CudaGraph graph;
    EXPECT_TRUE(graph.begin(cuda).ok());
    step();
    EXPECT_TRUE(graph.end().ok());
    auto *kernel = fake->kernel;
    fake->kernel = nullptr;
    fake->plans = 0;
    EXPECT_TRUE(graph.launch().ok());
    fake->kernel = kernel;
    return fake->plans.load();
  };
  const auto layers = [&](auto call) {
    call(0);
    call(1);
  };
  EXPECT_EQ(plansOf([&] { layers(decode); }), 1);
  EXPECT_EQ(plansOf([&] { layers(decode); }), 1) << "not that of another graph";
  EXPECT_EQ(plansOf([&] {
              append(0);
              decode(0);
              append(1);
              decode(1);
            }),
            1);
  EXPECT_EQ(plansOf([&] {
              append(0);
              layers(decode); // layer 1 lacks the token
            }),
            2);
  EXPECT_EQ(plansOf([&] {
              layers(append);
              layers(decode);
              layers(append);
              layers(decode);
            }),
            2);
}

/// Which sequences a graph appends to and decodes is device data, too.
TEST_F(ApiCuda, GraphsOfListedSlots) {
  ApiCase c(options(), 1, context);
  for (int i = 0; i < 4; ++i)
    c.create();
  ASSERT_EQ(c.append({0, 1, 2, 3}, {300, 5, 126, 0}), FFD_SUCCESS);
  const int64_t rowK = 2 * 64, rowV = 2 * 32;
  HostBuffer k, v, q, out;
  ASSERT_TRUE(k.allocate("k", 3 * rowK * 2, 0).ok());
  ASSERT_TRUE(v.allocate("v", 3 * rowV * 2, 0).ok());
  ASSERT_TRUE(q.allocate("q", 3 * 2 * rowK * 2, 0).ok());
  ASSERT_TRUE(out.allocate("out", 3 * 2 * rowV * 4, 0).ok());
  for (int64_t x = 0; x < q.size() / 2; ++x)
    q.as<uint16_t>()[x] = uint16_t(0x3800 + x * 37 % 0x900);
  int32_t list[3];
  ffdAppendBatch append;
  ffdAppendBatchInit(&append);
  append.count = 3;
  append.device_sequences = list;
  append.k = k.data();
  append.v = v.data();
  ffdDecodeBatch decode;
  ffdDecodeBatchInit(&decode);
  decode.count = 3;
  decode.device_sequences = list;
  decode.q = q.data();
  decode.out = out.as<float>();
  EXPECT_EQ(ffdAppend(c.cache, &append, nullptr), FFD_INVALID_ARGUMENT);
  EXPECT_EQ(ffdDecode(c.cache, &decode, nullptr), FFD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(ffdLastErrorMessage()).find("outside of a capture"),
            std::string::npos);
  CudaGraph graph;
  ASSERT_TRUE(graph.begin(cuda).ok());
  for (int32_t layer : {0, 1}) {
    append.layer = decode.layer = layer;
    FFD_OK(ffdAppend(c.cache, &append, stream));
    FFD_OK(ffdDecode(c.cache, &decode, stream));
  }
  const int32_t some[] = {2, 0, 1};
  decode.device_sequences = nullptr;
  decode.sequences = some;
  EXPECT_EQ(ffdDecode(c.cache, &decode, stream), FFD_INVALID_ARGUMENT)
      << "the graph would read this list of the host";
  ASSERT_TRUE(graph.end().ok());

  std::mt19937 random(9);
  for (const std::vector<int32_t> &slots :
       {std::vector<int32_t>{3, 0, 2}, {2, -1, 1}, {4, 2, 3}, {0, 1, 2}}) {
    std::copy(slots.begin(), slots.end(), list);
    for (int64_t x = 0; x < 3 * rowK; ++x)
      k.as<uint16_t>()[x] = uint16_t(0x3800 + random() % 0x800);
    for (int64_t x = 0; x < 3 * rowV; ++x)
      v.as<uint16_t>()[x] = uint16_t(0x3800 + random() % 0x800);
    std::memset(out.data(), 0x11, size_t(out.size()));
    std::vector<int32_t> live, ones;
    std::vector<int64_t> room;
    for (size_t i = 0; i < 3; ++i) {
      if (slots[i] < 0 || slots[i] > 3)
        continue;
      live.push_back(slots[i]);
      ones.push_back(1);
      room.push_back(1);
      ApiCase::Tokens &t = c.tokens[slots[i]];
      for (size_t layer = 0; layer < 2; ++layer) {
        const uint16_t *fromK = k.as<uint16_t>() + int64_t(i) * rowK;
        const uint16_t *fromV = v.as<uint16_t>() + int64_t(i) * rowV;
        t.k[layer].insert(t.k[layer].end(), fromK, fromK + rowK);
        t.v[layer].insert(t.v[layer].end(), fromV, fromV + rowV);
      }
      ++t.length;
      t.committed = committedBlocks(theSpec, t.length, 0);
    }
    FFD_OK(ffdReserve(c.cache, int32_t(live.size()), live.data(), room.data(),
                      nullptr));
    ASSERT_TRUE(graph.launch().ok());
    FFD_OK(ffdAdvance(c.cache, int32_t(live.size()), live.data(), ones.data()));
    c.check({0, 1, 2, 3});
    for (size_t i = 0; i < 3; ++i) {
      const float *got = out.as<float>() + int64_t(i) * 2 * rowV;
      const bool exists = slots[i] >= 0 && slots[i] < 4;
      std::vector<float> expected(size_t(2 * rowV));
      std::memset(expected.data(), 0x11, expected.size() * 4);
      if (exists) {
        const uint16_t *from = q.as<uint16_t>() + int64_t(i) * 2 * rowK;
        expected = c.decode({slots[i]},
                            std::vector<uint16_t>(from, from + 2 * rowK), 1);
      }
      EXPECT_EQ(std::memcmp(got, expected.data(), size_t(2 * rowV) * 4), 0)
          << "slot " << slots[i];
    }
  }
  int32_t errors = -1;
  FFD_OK(ffdCacheGetErrors(c.cache, &errors, nullptr));
  EXPECT_EQ(errors, 0) << "what is no slot is no error";
}
