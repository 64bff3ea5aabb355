//===- ApiCudaTest.cpp - Caches on a GPU, without one ----------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The stand-in driver runs the reference append and decode, at once or when a
// graph is replayed: what the host tells the device must be enough for results
// that equal those of a fresh cache, bit for bit.
//
//===----------------------------------------------------------------------===//

#include "ApiCase.h"
#include "FakeCuda.h"
#include "ReferenceAppend.h"
#include "ReferenceDecode.h"

#include "ffd/CudaDriver.h"
#include "ffd/Package.h"
#include "ffd/Plan.h"

#include "gtest/gtest.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <mutex>
#include <thread>
#include <unistd.h>

using namespace ffd;

namespace {

ffdSpec theSpec;
ffdPlanArgs lastPlan;
std::mutex planMutex;
void append(const ffdAppendArgs *args) { referenceAppend(theSpec, *args); }
void plan(const ffdPlanArgs *args) {
  {
    std::lock_guard<std::mutex> lock(planMutex);
    lastPlan = *args;
  }
  PlanOptions options;
  options.batch = args->batch;
  options.kvHeads = args->kv_heads;
  options.lag = args->lag;
  options.target = args->target;
  options.blocksPerPiece = args->blocks_per_piece;
  options.slots = args->slots;
  options.slotCount = args->slot_count;
  options.committed = args->committed;
  options.multiprocessors = args->multiprocessors;
  options.resident = args->resident;
  const Status status =
      planPieces(theSpec, options, args->lengths, args->plan, args->pieces);
  EXPECT_TRUE(status.ok()) << status.message();
}

class ApiCuda : public testing::Test {
protected:
  void SetUp() override {
    fake = reinterpret_cast<FakeCudaState *(*)()>(
        dlsym(dlopen(FFD_FAKE_CUDA, RTLD_NOW), "fakeCudaState"))();
    fake->memoryLeft = -1;
    fake->kernel = ReferenceDecode::entry;
    fake->append = append;
    fake->plan = plan;
    fake->planned = ReferenceDecode::launchPlanned;
    fake->plans = 0;
    theSpec = makeSpec(64, 32, 2);
    theSpec.centre = centre();
    ReferenceDecode::setEntrySpec(theSpec);
    ASSERT_NE(mkdtemp(folder), nullptr);
    for (const Program program :
         {Program::Decode, Program::Append, Program::Plan}) {
      Package package;
      package.program = program;
      package.target = "sm_90a";
      package.entry =
          program == Program::Decode ? "ffd_decode" : programName(program);
      package.spec = theSpec;
      if (program == Program::Append) // one for all groups
        package.spec.group = 4;
      if (program == Program::Plan) // and for all specifications
        package.spec = makeSpec(128, 128, 4);
      package.threads = 128;
      package.payload = "code";
      paths.push_back(std::string(folder) + "/" + package.fileName());
      Status status = package.write(paths.back());
      ASSERT_TRUE(status.ok()) << status.message();
    }
    ffdContextOptions o;
    ffdContextOptionsInit(&o);
    o.device = FFD_DEVICE_CUDA;
    o.cuda_driver = FFD_FAKE_CUDA;
    o.package_dir = folder;
    o.use_compiler = 0;
    o.kernel_cache_dir = "";
    FFD_OK(ffdContextCreate(&o, &context));
    std::shared_ptr<const CudaDriver> driver;
    ASSERT_TRUE(CudaDriver::load(FFD_FAKE_CUDA, driver).ok());
    ASSERT_TRUE(CudaContext::create(driver, 0, cuda).ok());
    ASSERT_TRUE(cuda->createStream(stream).ok());
  }
  void TearDown() override {
    ffdContextDestroy(context);
    cuda.reset();
    EXPECT_EQ(fake->contextDepth, 0);
    EXPECT_EQ(fake->retains, 0);
    EXPECT_EQ(fake->liveAllocations, 0);
    for (const std::string &path : paths)
      std::remove(path.c_str());
    rmdir(folder);
  }

  virtual int32_t centre() const { return FFD_CENTRE_NONE; }
  void randomLife();

  ffdCacheOptions options() const {
    ffdCacheOptions o = ApiCase::small(theSpec);
    o.sequences = 4;
    return o;
  }

  FakeCudaState *fake = nullptr;
  char folder[32] = "/tmp/ffd-apicuda-XXXXXX";
  std::vector<std::string> paths;
  ffdContext *context = nullptr;
  std::shared_ptr<CudaContext> cuda;
  void *stream = nullptr;
};

void ApiCuda::randomLife() {
  for (int lag : {0, 9}) {
    ffdCacheOptions o = options();
    o.lag = lag;
    ApiCase c(o, uint32_t(lag) + 1, context);
    c.keyMean = 2;
    const int32_t a = c.create(), b = c.create();
    ASSERT_EQ(c.append({a, b}, {300, 0}), FFD_SUCCESS) << ffdLastErrorMessage();
    c.check({a, b});
    const int32_t d = c.fork(a);
    ASSERT_EQ(c.append({a, b, d}, {1, 130, 100}), FFD_SUCCESS);
    c.check({a, b, d});
    c.free(b);
    const int32_t e = c.fork(d);
    EXPECT_EQ(e, b) << "the lowest slot";
    ASSERT_EQ(c.append({a, e, d}, {200, 60, 1}), FFD_SUCCESS);
    c.check({a, e, d});
    if (lag == 0) {
      ASSERT_EQ(c.truncate(d, 128), FFD_SUCCESS) << ffdLastErrorMessage();
      c.check({a, e, d});
      ASSERT_EQ(c.append({d}, {150}), FFD_SUCCESS);
    } else {
      // 300 + 100 + 1: three blocks, 17 tokens, fewer than the lag afterwards.
      ASSERT_EQ(c.truncate(d, 386), FFD_SUCCESS) << ffdLastErrorMessage();
      c.check({a, e, d});
      const int32_t f = c.fork(d);
      ASSERT_EQ(c.append({f, d}, {130, 3}), FFD_SUCCESS);
      c.check({d, f});
      // 516 has 3 blocks, since 9 tokens stay; 521 would have 4.
      ASSERT_EQ(c.truncate(f, 384), FFD_SUCCESS) << ffdLastErrorMessage();
      c.check({f});
      ASSERT_EQ(c.append({f}, {200}), FFD_SUCCESS);
      c.check({f, a});
      c.checkGather(f);
      ASSERT_EQ(c.truncate(f, 256), FFD_SUCCESS) << ffdLastErrorMessage();
      c.check({f});
      c.free(f);
    }
    c.check({a, e, d});
    c.checkGather(d);
    ASSERT_EQ(c.truncate(a, 0), FFD_SUCCESS) << ffdLastErrorMessage();
    ASSERT_EQ(c.append({a}, {30}), FFD_SUCCESS);
    c.check({a});
    int32_t errors = -1;
    FFD_OK(ffdCacheGetErrors(c.cache, &errors, nullptr));
    EXPECT_EQ(errors, 0);
  }
}

TEST_F(ApiCuda, RandomLife) { randomLife(); }

class ApiCudaCentred : public ApiCuda {
  int32_t centre() const override { return FFD_CENTRE_ROW; }
};

TEST_F(ApiCudaCentred, RandomLife) { randomLife(); }

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

TEST_F(ApiCuda, BatchesAreAnySlots) {
  ApiCase c(options(), 1, context);
  for (int i = 0; i < 4; ++i)
    c.create();
  ASSERT_EQ(c.append({1, 2}, {3, 4}), FFD_SUCCESS) << ffdLastErrorMessage();
  ASSERT_EQ(c.append({3, 0}, {1, 300}), FFD_SUCCESS) << ffdLastErrorMessage();
  ASSERT_EQ(c.append({2, 1, 3}, {200, 1, 1}), FFD_SUCCESS);
  c.check({1, 2});
  c.check({3, 0, 2});
  c.check({2, 1, 0, 3});
  EXPECT_EQ(c.append({2, 2}, {1, 1}), FFD_INVALID_ARGUMENT);
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

/// A sequence is cut in the same way whatever its batch, and the grid does for
/// the longest.
TEST_F(ApiCuda, PiecesOfABatchInvariantCache) {
  ffdCacheOptions o = options();
  o.batch_invariant = 1;
  o.piece_tokens = 256;
  ApiCase c(o, 1, context);
  for (int i = 0; i < 4; ++i)
    c.create();
  ASSERT_EQ(c.append({0, 1, 2}, {900, 5, 700}), FFD_SUCCESS);
  c.check({0, 2});
  EXPECT_EQ(lastPlan.blocks_per_piece, 2);
  EXPECT_EQ(lastPlan.pieces, 2 * 2 * 8) << "2048 tokens";
  c.check({2, 1, 0, 3});
  EXPECT_EQ(lastPlan.blocks_per_piece, 2);

  o.piece_tokens = 0;
  ApiCase d(o, 1, context);
  d.create();
  ASSERT_EQ(d.append({0}, {300}), FFD_SUCCESS);
  d.check({0});
  EXPECT_GE(lastPlan.blocks_per_piece, 8);
  o.piece_tokens = 100;
  ffdCache *none = nullptr;
  EXPECT_EQ(ffdCacheCreate(context, &o, &none), FFD_INVALID_ARGUMENT);
  o.batch_invariant = 0;
  o.piece_tokens = 128;
  EXPECT_EQ(ffdCacheCreate(context, &o, &none), FFD_INVALID_ARGUMENT);
  EXPECT_STREQ(ffdLastErrorMessage(),
               "'ffdCacheOptions' field 'piece_tokens' is 128, expected 0 "
               "without batch_invariant");
}

/// The pool is empty in the middle of a batch: no sequence of it gets a token.
TEST_F(ApiCuda, OutOfPagesChangesNothing) {
  ffdCacheOptions o = options();
  o.pages = 4;
  ApiCase c(o, 1, context);
  const int32_t a = c.create(), b = c.create(), d = c.create();
  ASSERT_EQ(c.append({a, b}, {200, 100}), FFD_SUCCESS) << ffdLastErrorMessage();
  EXPECT_EQ(c.append({d, a, b}, {1, 200, 300}), FFD_OUT_OF_PAGES);
  EXPECT_STREQ(ffdLastErrorMessage(),
               "the cache has 3 of 4 pages free, expected at least the 5 that "
               "are needed");
  c.check({a, b, d});
  int32_t errors = -1;
  FFD_OK(ffdCacheGetErrors(c.cache, &errors, nullptr));
  EXPECT_EQ(errors, 0) << "the device was not asked";
  ASSERT_EQ(c.append({d, b, a}, {1, 200, 56}), FFD_SUCCESS)
      << ffdLastErrorMessage();
  c.check({a, b, d});
}

TEST_F(ApiCuda, CallersPagesAreChecked) {
  ffdCacheOptions o = options();
  o.caller_pages = 1;
  ApiCase c(o, 1, context);
  const int32_t a = c.create();
  EXPECT_EQ(c.append({a}, {128}), FFD_OUT_OF_PAGES);
  const int32_t pages[] = {int32_t(o.pages) - 1, 0}, bad[] = {3, -1};
  const int32_t large = int32_t(o.pages);
  for (const int32_t *page : {&bad[1], &large})
    EXPECT_EQ(ffdSequenceSetPages(c.cache, a, 0, page, 1, nullptr),
              FFD_INVALID_ARGUMENT);
  EXPECT_EQ(ffdSequenceSetPages(c.cache, a, 0, bad, 2, nullptr),
            FFD_INVALID_ARGUMENT);
  EXPECT_EQ(c.append({a}, {128}), FFD_OUT_OF_PAGES)
      << "nor is the good one set";
  FFD_OK(ffdSequenceSetPages(c.cache, a, 0, pages, 2, nullptr));
  ASSERT_EQ(c.append({a}, {300}), FFD_SUCCESS) << ffdLastErrorMessage();
  c.check({a});
}

/// Views into a fused buffer; what a GPU cannot load 16 bytes at a time from is
/// refused.
TEST_F(ApiCuda, StridedAndMisalignedInputs) {
  ffdCacheOptions o = options();
  o.layers = 1;
  ApiCase c(o, 2, context);
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {300}), FFD_SUCCESS) << ffdLastErrorMessage();
  const int32_t b = c.create();
  c.tokens[b] = c.tokens[a];
  // [token][head][k 64 | v 32 | 8 spare]
  const int64_t head = 104, token = 2 * head + 16;
  HostBuffer fused;
  ASSERT_TRUE(fused.allocate("fused", 300 * token * 2, 0x7E).ok());
  uint16_t *const data = fused.as<uint16_t>();
  for (int64_t row = 0; row < 600; ++row) {
    uint16_t *to = data + row / 2 * token + row % 2 * head;
    std::memcpy(to, &c.tokens[a].k[0][size_t(row * 64)], 128);
    std::memcpy(to + 64, &c.tokens[a].v[0][size_t(row * 32)], 64);
  }
  const int32_t count = 300;
  ffdAppendBatch batch;
  ffdAppendBatchInit(&batch);
  batch.count = 1;
  batch.sequences = &b;
  batch.tokens = &count;
  batch.k = data;
  batch.v = data + 64;
  batch.k_token_stride = batch.v_token_stride = token;
  batch.k_head_stride = batch.v_head_stride = head;
  const ffdAppendBatch good = batch;
  const auto refused = [&](const char *part) {
    EXPECT_EQ(ffdAppend(c.cache, &batch, nullptr), FFD_INVALID_ARGUMENT);
    EXPECT_NE(std::string(ffdLastErrorMessage()).find(part), std::string::npos)
        << ffdLastErrorMessage();
    batch = good;
  };
  batch.k = data + 1;
  refused("'k' is misaligned, expected an address that is a multiple of 16");
  batch.v = data + 4;
  refused("'v' is misaligned");
  batch.k_head_stride = 100;
  refused("'k_head_stride' is 100, expected a multiple of 8");
  batch.v_token_stride = token + 4;
  refused("'v_token_stride'");
  batch.channel_stride = 2;
  refused("'channel_stride' is 2");
  FFD_OK(ffdAppend(c.cache, &batch, nullptr));
  c.check({b, a});

  HostBuffer q, out;
  ASSERT_TRUE(q.allocate("q", 4 * 64 * 2 + 16, 0).ok());
  ASSERT_TRUE(out.allocate("out", 4 * 32 * 4 + 16, 0).ok());
  ffdDecodeBatch decode;
  ffdDecodeBatchInit(&decode);
  decode.count = 1;
  decode.q = q.as<uint16_t>() + 1;
  decode.out = out.as<float>();
  EXPECT_EQ(ffdDecode(c.cache, &decode, nullptr), FFD_INVALID_ARGUMENT);
  decode.q = q.data();
  decode.out = out.as<float>() + 1;
  EXPECT_EQ(ffdDecode(c.cache, &decode, nullptr), FFD_INVALID_ARGUMENT);
  decode.out = out.as<float>();
  decode.q_head_stride = 68;
  decode.q_batch_stride = 4 * 68;
  EXPECT_EQ(ffdDecode(c.cache, &decode, nullptr), FFD_INVALID_ARGUMENT);
  decode.q_head_stride = decode.q_batch_stride = 0;
  FFD_OK(ffdDecode(c.cache, &decode, nullptr));
}

TEST_F(ApiCuda, TwoThreadsTwoCaches) {
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 2; ++i)
    threads.emplace_back([this, i] {
      ApiCase c(options(), i, context);
      const int32_t a = c.create(), b = c.create();
      for (int step = 0; step < 4; ++step) {
        ASSERT_EQ(c.append({a, b}, {70, 128 - step}), FFD_SUCCESS)
            << ffdLastErrorMessage();
        c.check({b, a});
        EXPECT_EQ(ffdSequenceFree(c.cache, 40 + int32_t(i), nullptr),
                  FFD_INVALID_ARGUMENT);
        EXPECT_NE(std::string(ffdLastErrorMessage())
                      .find("sequence is " + std::to_string(40 + i)),
                  std::string::npos);
      }
      c.truncate(a, 128);
      c.check({a, b});
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST_F(ApiCuda, MemoryThatIsRefused) {
  for (int64_t left = 0; left < (1 << 20); left += 150000) {
    fake->memoryLeft = left;
    const ffdCacheOptions o = options();
    ffdCache *cache = nullptr;
    const ffdStatus status = ffdCacheCreate(context, &o, &cache);
    EXPECT_EQ(status, FFD_OUT_OF_MEMORY);
    EXPECT_NE(std::string(ffdLastErrorMessage()).find("allocate"),
              std::string::npos);
  }
  fake->memoryLeft = -1;
}

TEST_F(ApiCuda, NoAppendKernel) {
  std::remove(paths[1].c_str());
  ApiCase c(options(), 1, context);
  const int32_t a = c.create();
  EXPECT_EQ(c.append({a}, {3}), FFD_NOT_FOUND);
  EXPECT_NE(std::string(ffdLastErrorMessage()).find("append-d64"),
            std::string::npos)
      << ffdLastErrorMessage();
}

TEST_F(ApiCuda, NoPlanKernel) {
  std::remove(paths[2].c_str());
  ApiCase c(options(), 1, context);
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {3}), FFD_SUCCESS);
  HostBuffer q, out;
  ASSERT_TRUE(q.allocate("q", 4 * 64 * 2, 0).ok());
  ASSERT_TRUE(out.allocate("out", 4 * 32 * 4, 0).ok());
  ffdDecodeBatch batch;
  ffdDecodeBatchInit(&batch);
  batch.count = 1;
  batch.q = q.data();
  batch.out = out.as<float>();
  EXPECT_EQ(ffdDecode(c.cache, &batch, nullptr), FFD_NOT_FOUND);
  EXPECT_NE(std::string(ffdLastErrorMessage()).find("plan-d128"),
            std::string::npos)
      << ffdLastErrorMessage();
}

TEST_F(ApiCuda, HostPages) {
  ffdCacheOptions o = options();
  o.host_pages = 1;
  ApiCase c(o, 1, context);
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {300}), FFD_SUCCESS) << ffdLastErrorMessage();
  c.check({a});
}

TEST_F(ApiCuda, Statistics) {
  ApiCase c(options(), 1, context);
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {300}), FFD_SUCCESS);
  c.decode({a}, c.queries(1), 1);
  ffdHeadStatistics s[4];
  FFD_OK(ffdStatisticsRequest(c.cache, nullptr));
  FFD_OK(ffdStatisticsFetch(c.cache, s));
  EXPECT_EQ(s[0].scanned, 0u);
  EXPECT_EQ(s[3].scanned, 16u);
}

} // namespace
