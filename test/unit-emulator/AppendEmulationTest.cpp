//===- AppendEmulationTest.cpp - The append kernel, emulated ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The append kernel that the compiler generates, on the emulator with all its
// checks: after every step each byte of the planes, smax, tails, lengths and
// errors is that of a cache which the CPU built from all tokens at once.
//
//===----------------------------------------------------------------------===//

#include "RandomCase.h"

#include "ffd/Conversion/GPUPipeline.h"
#include "ffd/Driver/Compiler.h"
#include "ffd/Emulator/Emulator.h"
#include "ffd/Float16.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <functional>
#include <random>

using namespace ffd;
using emulator::DeviceMemory;

namespace {

/// The compiled append of a specification.
class EmulatedAppend {
public:
  EmulatedAppend(const ffdSpec &spec, const std::string &arch,
                 std::string &error)
      : context(mlir::MLIRContext::Threading::DISABLED) {
    mlir::DialectRegistry registry;
    mlir::ffd::registerCompilerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    auto attribute = mlir::ffd::getSpecAttr(&context, spec);
    mlir::ScopedDiagnosticHandler handler(&context,
                                          [&](mlir::Diagnostic &diagnostic) {
                                            error += diagnostic.str() + "\n";
                                            return mlir::success();
                                          });
    nvvm = mlir::ffd::buildProgram(&context, mlir::ffd::Program::Append,
                                   attribute);
    if (!nvvm) {
      error += "no program";
      return;
    }
    mlir::PassManager passes(&context);
    mlir::ffd::PTXPipelineOptions pipeline;
    pipeline.arch = arch;
    mlir::ffd::buildPTXPipeline(passes, pipeline);
    if (mlir::failed(passes.run(*nvvm))) {
      error += "the pipeline failed";
      return;
    }
    auto function = nvvm->lookupSymbol<mlir::LLVM::LLVMFuncOp>("append");
    auto number = [&](llvm::StringRef name) {
      auto attr = function->getAttrOfType<mlir::IntegerAttr>(name);
      return attr ? uint32_t(attr.getInt()) : 0;
    };
    config.block = {number(mlir::ffd::kThreadsAttr), 1, 1};
    config.dynamicSharedBytes = number(mlir::ffd::kSharedBytesAttr);
    emulator::Report report;
    kernel = emulator::CompiledKernel::create(*nvvm, "append", {}, report);
    if (!kernel)
      error += report.str();
  }

  emulator::Report launch(const ffdAppendArgs &args,
                          const std::vector<emulator::Buffer> &buffers,
                          uint64_t seed) {
    config.grid = {uint32_t(args.batch * args.kv_heads * args.splits), 1, 1};
    emulator::Options options;
    options.seed = seed;
    options.residentBlocks = 3;
    return kernel->launch(config, {emulator::Argument::of(args)}, buffers,
                          options);
  }

private:
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> nvvm;
  std::unique_ptr<emulator::CompiledKernel> kernel;
  emulator::LaunchConfig config;
};

enum class Content { Plain, NaNKey, InfiniteKey, ZeroChannels, Tiny };

struct Case {
  ffdSpec spec;
  const char *arch;
  int64_t kvHeads, lag;
  int splits;
  bool inPlace; ///< the kernel writes lengths where it read them
  bool listed;  ///< the slots come in another order, with two that are none
  Content content;
  /// New tokens of every sequence, step by step.
  std::vector<std::vector<int64_t>> steps;
};

void PrintTo(const Case &c, std::ostream *os) {
  *os << specName(c.spec) << " " << c.arch << " heads " << c.kvHeads << " lag "
      << c.lag << " splits " << c.splits << (c.inPlace ? " in place" : "")
      << (c.listed ? " listed" : "") << " content " << int(c.content);
  for (const auto &step : c.steps) {
    *os << " |";
    for (int64_t count : step)
      *os << " " << count;
  }
}

/// A pool on the device, all of it 0xFF at first, and what the tokens of the
/// sequences are.
class Pool {
public:
  explicit Pool(const Case &c)
      : spec(c.spec), layout(layoutOf(c.spec)), heads(c.kvHeads), lag(c.lag),
        batch(int64_t(c.steps[0].size())), splits(c.splits), inPlace(c.inPlace),
        lengths(size_t(batch)) {
    for (int64_t s = 0; s < batch; ++s)
      order.push_back(int32_t(s));
    if (c.listed) {
      std::reverse(order.begin(), order.end());
      order.insert(order.begin() + 1, -1);
      order.push_back(int32_t(batch));
    }
    listed = c.listed;
    for (int64_t s = 0; s < batch; ++s) {
      int64_t total = 0;
      for (const auto &step : c.steps)
        total += step[size_t(s)];
      tokens = std::max(tokens, total);
    }
    std::mt19937 random(uint32_t(spec.head_dim * 8 + spec.scan_bits));
    std::normal_distribution<float> normal;
    k.resize(size_t(batch * tokens * heads * spec.head_dim));
    v.resize(size_t(batch * tokens * heads * spec.value_dim));
    const float size = c.content == Content::Tiny
                           ? (spec.element == FFD_F16 ? 3e-7f : 2e-30f)
                           : 1.0f;
    const float mean = spec.centre == FFD_CENTRE_ROW ? 3 : 0;
    for (uint16_t &x : k)
      x = f32ToElement(spec.element, size * (normal(random) + mean));
    for (uint16_t &x : v)
      x = f32ToElement(spec.element, normal(random));
    fillContent(c.content);

    // Some pages more than needed; ids in no order, differently per sequence.
    pageStride = tokens / 128 + 3;
    pages = batch * pageStride + 5;
    std::vector<int32_t> ids(size_t(pages), 0);
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = int32_t(i);
    std::shuffle(ids.begin(), ids.end(), random);
    table.assign(ids.begin(), ids.begin() + batch * pageStride);
    reserved.assign(size_t(batch), int32_t(pageStride));
    tailTokens = (lag + 128 + 15) / 16 * 16;
    thumbnails = memory(pages * heads * layout.thumbnailBytes());
    residuals = memory(pages * heads * layout.residualBytes());
    values = memory(pages * heads * layout.valueBytes());
    smax = memory(batch * heads * layout.paddedHeadDim() * 2);
    centre = memory(
        spec.centre == FFD_CENTRE_ROW ? batch * heads * spec.head_dim * 2 : 0);
    tailK = memory(batch * heads * tailTokens * spec.head_dim * 2);
    tailV = memory(batch * heads * tailTokens * spec.value_dim * 2);
    errors = std::make_unique<DeviceMemory>(size_t(batch * 4), 0);
    const int64_t entries = int64_t(order.size());
    workspace = memory(layout.appendWorkspaceBytes(entries, heads, splits));
    std::memset(workspace->data(), 0, size_t(entries * (heads + 1) * 4));
  }

  /// One launch. Inputs are strided: rows of all heads, each with some room
  /// behind it. A sequence that is `refused` must not change.
  emulator::Report append(EmulatedAppend &kernel,
                          const std::vector<int64_t> &counts, uint64_t seed) {
    const int64_t kHead = spec.head_dim + 8, kToken = heads * kHead + 16;
    const int64_t vHead = spec.value_dim, vToken = heads * vHead + 8;
    std::vector<int32_t> offsets = {1};           // not from 0
    std::vector<int64_t> start(size_t(batch), 0); // by slot
    for (int32_t slot : order) {
      const bool exists = slot >= 0 && slot < batch;
      if (exists)
        start[size_t(slot)] = offsets.back();
      // What is no slot has tokens too, which nobody takes.
      offsets.push_back(offsets.back() +
                        int32_t(exists ? counts[size_t(slot)] : 3));
    }
    std::vector<uint16_t> newK(size_t(offsets.back() * kToken), 0xFFFF);
    std::vector<uint16_t> newV(size_t(offsets.back() * vToken), 0xFFFF);
    for (int64_t s = 0; s < batch; ++s)
      for (int64_t t = 0; t < counts[size_t(s)]; ++t)
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t token = lengths[size_t(s)] + t;
          if (token >= tokens)
            continue;
          std::copy_n(
              &k[size_t(((s * tokens + token) * heads + h) * spec.head_dim)],
              spec.head_dim,
              &newK[size_t((start[size_t(s)] + t) * kToken + h * kHead)]);
          std::copy_n(
              &v[size_t(((s * tokens + token) * heads + h) * spec.value_dim)],
              spec.value_dim,
              &newV[size_t((start[size_t(s)] + t) * vToken + h * vHead)]);
        }
    DeviceMemory dk(newK.data(), newK.size() * 2),
        dv(newV.data(), newV.size() * 2);
    DeviceMemory dTable(table.data(), table.size() * 4);
    DeviceMemory dLengths(lengths.data(), lengths.size() * 4);
    DeviceMemory dOffsets(offsets.data(), offsets.size() * 4);
    DeviceMemory dReserved(reserved.data(), reserved.size() * 4);
    DeviceMemory dSlots(order.data(), order.size() * 4);
    std::vector<int32_t> none(size_t(batch), 0);
    DeviceMemory dCommitted((committed.empty() ? none : committed).data(),
                            size_t(batch) * 4);
    DeviceMemory newLengths(lengths.size() * 4, 0xFF);

    ffdAppendArgs a = {};
    a.k = dk.data();
    a.v = dv.data();
    a.thumbnails = thumbnails->data();
    a.residuals = residuals->data();
    a.values = values->data();
    a.smax = smax->data();
    a.centre = spec.centre == FFD_CENTRE_ROW ? centre->data() : nullptr;
    a.tail_k = tailK->data();
    a.tail_v = tailV->data();
    a.page_table = dTable.as<int32_t>();
    a.lengths = dLengths.as<int32_t>();
    a.new_lengths = inPlace ? dLengths.as<int32_t>() : newLengths.as<int32_t>();
    a.offsets = dOffsets.as<int32_t>();
    a.reserved = dReserved.as<int32_t>();
    a.errors = errors->as<int32_t>();
    a.workspace = splits > 1 || inPlace ? workspace->data() : nullptr;
    a.k_token_stride = kToken;
    a.k_head_stride = kHead;
    a.v_token_stride = vToken;
    a.v_head_stride = vHead;
    a.page_stride = pageStride;
    a.tail_batch_stride = heads * tailTokens;
    a.tail_head_stride = tailTokens;
    if (listed) {
      a.slots = dSlots.as<int32_t>();
      a.slot_count = int32_t(batch);
    }
    if (!committed.empty())
      a.committed = dCommitted.as<int32_t>();
    a.batch = int32_t(order.size());
    a.kv_heads = int32_t(heads);
    a.splits = splits;
    a.lag = int32_t(lag);
    a.pages = int32_t(pages);
    a.tail_tokens = int32_t(tailTokens);
    std::vector<emulator::Buffer> buffers = {
        dk.buffer("k", true),
        dv.buffer("v", true),
        dTable.buffer("page_table", true),
        dLengths.buffer("lengths", !inPlace),
        dOffsets.buffer("offsets", true),
        dReserved.buffer("reserved", true),
        dSlots.buffer("slots", true),
        dCommitted.buffer("committed", true),
        newLengths.buffer("new_lengths"),
        thumbnails->buffer("thumbnails"),
        residuals->buffer("residuals"),
        values->buffer("values"),
        smax->buffer("smax"),
        centre->buffer("centre"),
        tailK->buffer("tail_k"),
        tailV->buffer("tail_v"),
        errors->buffer("errors"),
        workspace->buffer("workspace")};
    const emulator::Report report = kernel.launch(a, buffers, seed);
    for (int64_t s = 0; s < batch; ++s)
      lengths[size_t(s)] = a.new_lengths[s];
    return report;
  }

  /// Everything as a cache of the first lengths[s] tokens has it.
  testing::AssertionResult matchesCpu() {
    SplitCacheOptions options;
    options.spec = spec;
    options.batch = options.kvBatch = batch;
    options.kvHeads = heads;
    options.tokens = tokens;
    options.k = TokenView::dense(k.data(), tokens, heads, spec.head_dim);
    options.v = TokenView::dense(v.data(), tokens, heads, spec.value_dim);
    options.lengths.assign(lengths.begin(), lengths.end());
    options.lag = lag;
    std::unique_ptr<SplitCache> cache;
    if (Status status = SplitCache::create(options, testPool(), cache);
        !status.ok())
      return testing::AssertionFailure() << status.message();

    const auto same = [&](DeviceMemory &plane, int64_t bytes, const char *what,
                          auto slot) -> testing::AssertionResult {
      std::vector<uint8_t> expected(plane.size(), 0xFF);
      for (int64_t s = 0; s < batch; ++s)
        for (int64_t block = 0; block < cache->blocks(s); ++block)
          for (int64_t h = 0; h < heads; ++h)
            std::memcpy(
                &expected[size_t(
                    (table[size_t(s * pageStride + block)] * heads + h) *
                    bytes)],
                slot(cache->page(s, block), h), size_t(bytes));
      for (size_t i = 0; i < expected.size(); ++i)
        if (plane.data()[i] != expected[i])
          return testing::AssertionFailure()
                 << what << " of page " << int64_t(i) / bytes / heads
                 << " head " << int64_t(i) / bytes % heads << " byte "
                 << int64_t(i) % bytes << " is " << int(plane.data()[i])
                 << ", expected " << int(expected[i]);
      return testing::AssertionSuccess();
    };
    if (auto result =
            same(*thumbnails, layout.thumbnailBytes(), "thumbnail",
                 [&](int64_t p, int64_t h) { return cache->thumbnail(p, h); });
        !result)
      return result;
    if (auto result =
            same(*residuals, layout.residualBytes(), "residual",
                 [&](int64_t p, int64_t h) { return cache->residual(p, h); });
        !result)
      return result;
    if (auto result =
            same(*values, layout.valueBytes(), "value",
                 [&](int64_t p, int64_t h) { return cache->value(p, h); });
        !result)
      return result;
    ffdDecodeArgs args = {};
    cache->fill(args);
    for (int64_t row = 0; row < batch * heads; ++row) {
      const int64_t s = row / heads, h = row % heads;
      // A sequence that never got a token was never written.
      if (lengths[size_t(s)] > 0 &&
          std::memcmp(smax->data() + row * layout.paddedHeadDim() * 2,
                      static_cast<const uint8_t *>(args.smax) +
                          row * layout.paddedHeadDim() * 2,
                      size_t(layout.paddedHeadDim() * 2)) != 0)
        return testing::AssertionFailure() << "smax of row " << row;
      if (spec.centre == FFD_CENTRE_ROW && lengths[size_t(s)] > 0 &&
          std::memcmp(centre->data() + row * spec.head_dim * 2,
                      cache->centre(s, h), size_t(spec.head_dim) * 2) != 0)
        return testing::AssertionFailure() << "centre of row " << row;
      for (bool isKey : {true, false}) {
        const int64_t width = isKey ? spec.head_dim : spec.value_dim;
        const uint8_t *got =
            (isKey ? tailK : tailV)->data() + row * tailTokens * width * 2;
        const uint16_t *expected =
            static_cast<const uint16_t *>(isKey ? args.tail_k : args.tail_v) +
            (s * args.tail_batch_stride + h * args.tail_head_stride) * width;
        if (std::memcmp(got, expected,
                        size_t(cache->tailLength(s) * width * 2)) != 0)
          return testing::AssertionFailure()
                 << "the tail of " << (isKey ? "K" : "V") << " of row " << row;
      }
    }
    for (int64_t i = 0; i < int64_t(order.size()) * (heads + 1); ++i)
      if (workspace->as<int32_t>()[i] != 0)
        return testing::AssertionFailure() << "arrival counter " << i;
    return testing::AssertionSuccess();
  }

  /// All bytes of the pool, to see that nothing changed.
  std::vector<uint8_t> bytes() {
    std::vector<uint8_t> all;
    for (DeviceMemory *m : {thumbnails.get(), residuals.get(), values.get(),
                            smax.get(), centre.get(), tailK.get(), tailV.get()})
      all.insert(all.end(), m->data(), m->data() + m->size());
    return all;
  }

  const ffdSpec spec;
  const Layout layout;
  const int64_t heads;
  int64_t lag;
  const int64_t batch; ///< slots
  const int splits;
  const bool inPlace;
  int64_t tokens = 0, pageStride = 0, pages = 0, tailTokens = 0;
  std::vector<uint16_t> k, v; ///< [batch][tokens][heads][dim]
  std::vector<int32_t> lengths, table, reserved; ///< by slot
  std::vector<int32_t> order; ///< slots of the launch's sequences
  bool listed = false;
  std::vector<int32_t> committed; ///< by slot, or empty
  std::unique_ptr<DeviceMemory> thumbnails, residuals, values, smax, centre,
      tailK, tailV, errors, workspace;

private:
  static std::unique_ptr<DeviceMemory> memory(int64_t bytes) {
    return std::make_unique<DeviceMemory>(size_t(std::max<int64_t>(bytes, 16)),
                                          0xFF);
  }
  uint16_t &key(int64_t s, int64_t t, int64_t h, int64_t c) {
    return k[size_t(((s * tokens + t) * heads + h) * spec.head_dim + c)];
  }
  void fillContent(Content content) {
    const uint16_t infinity = spec.element == FFD_F16 ? 0x7C00 : 0x7F80;
    const int64_t s = batch - 1, h = heads - 1;
    if (tokens == 0)
      return;
    switch (content) {
    case Content::Plain:
    case Content::Tiny:
      break;
    case Content::NaNKey:
      key(s, tokens / 4, h, 3) = canonicalNaN(spec.element) | 0x8001;
      break;
    case Content::InfiniteKey:
      key(s, tokens / 4, 0, spec.head_dim - 1) = infinity | 0x8000;
      break;
    case Content::ZeroChannels:
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t c = 0; c < spec.head_dim; c += 5)
          key(s, t, h, c) = t % 2 ? 0x8000 : 0;
      break;
    }
  }
};

/// Every specification that the layout distinguishes, the other factors dealt
/// out so that each value meets many others.
std::vector<Case> cases() {
  const std::vector<std::vector<std::vector<int64_t>>> stories = {
      // A prefill, then single tokens over a boundary.
      {{250, 127, 0, 5}, {1, 1, 1, 1}, {5, 1, 0, 1}, {1, 1, 1, 1}},
      // Chunks of any length.
      {{300, 1, 640}, {212, 127, 3}, {1, 129, 256}},
      // A boundary inside the tail, and one exactly met.
      {{128, 256, 100}, {128, 1, 28}, {0, 0, 128}},
      // A long one beside short ones.
      {{1100, 3}, {52, 60}}};
  const int64_t lags[] = {0, 5, 130, 300};
  const int splits[] = {1, 2, 5};
  const char *archs[] = {"sm_80", "sm_90a"};
  const int valueDims[] = {64, 80, 128, 16, 256};
  const Content contents[] = {Content::Plain, Content::NaNKey,
                              Content::InfiniteKey, Content::ZeroChannels,
                              Content::Tiny};
  std::vector<Case> result;
  size_t i = 0;
  for (ffdSpec spec : allSplitSpecs()) {
    spec.value_dim = valueDims[i % 5];
    result.push_back({spec, archs[(i / 3 + i) % 2], 1 + int64_t(i % 3),
                      lags[(i + i / 4) % 4], splits[(i + i / 3) % 3],
                      (i / 2 + i / 8) % 2 == 1, (i + i / 7) % 2 == 1,
                      contents[(i + i / 5) % 5], stories[(i + i / 16) % 4]});
    // Some of them over centred keys too.
    if (i % 4 == 1) {
      Case c = result.back();
      const size_t n = i / 4;
      c.spec.centre = FFD_CENTRE_ROW;
      c.lag = lags[(n + 2) % 4]; // 300: old tail tokens become relative
      c.splits = splits[n % 3];
      c.content = contents[n % 5];
      c.steps = stories[(n + n / 4) % 4];
      result.push_back(c);
    }
    ++i;
  }
  return result;
}

class AppendEmulation : public testing::TestWithParam<Case> {};

TEST_P(AppendEmulation, MatchesTheCpuAfterEveryStep) {
  const Case &c = GetParam();
  std::string error;
  EmulatedAppend kernel(c.spec, c.arch, error);
  ASSERT_EQ(error, "");
  Pool pool(c);
  std::vector<int32_t> expected(c.steps[0].size(), 0);
  for (size_t step = 0; step < c.steps.size(); ++step) {
    const emulator::Report report =
        pool.append(kernel, c.steps[step], step + 1);
    ASSERT_TRUE(report.ok) << "step " << step << ": " << report.str();
    for (size_t s = 0; s < expected.size(); ++s) {
      expected[s] += int32_t(c.steps[step][s]);
      ASSERT_EQ(pool.errors->as<int32_t>()[s], 0) << "sequence " << s;
    }
    ASSERT_EQ(pool.lengths, expected);
    ASSERT_TRUE(pool.matchesCpu()) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, AppendEmulation, testing::ValuesIn(cases()));

/// Blocks that a truncation left committed although they are younger than the
/// lag stay so, and the next one comes when the lag allows it.
TEST(AppendEmulationOf, BlocksCommittedBeforeTheirTime) {
  for (const bool listed : {false, true}) {
    const Case c = {makeSpec(64, 64, 1), "sm_80", 1, 130, 2, true, listed,
                    Content::Plain,      {{600}}};
    std::string error;
    EmulatedAppend kernel(c.spec, c.arch, error);
    ASSERT_EQ(error, "");
    Pool pool(c);
    pool.lag = 0;
    ASSERT_TRUE(pool.append(kernel, {300}, 1).ok);
    pool.lag = 130;
    pool.committed = {2};
    ASSERT_TRUE(pool.append(kernel, {60}, 2).ok);
    ASSERT_TRUE(pool.append(kernel, {24}, 3).ok);
    ASSERT_EQ(pool.lengths[0], 384);
    pool.lag = 1; // what has two blocks of 384
    ASSERT_TRUE(pool.matchesCpu());
    pool.lag = 130;
    ASSERT_TRUE(pool.append(kernel, {129}, 4).ok);
    ASSERT_TRUE(pool.append(kernel, {1}, 5).ok);
    ASSERT_EQ(pool.lengths[0], 514);
    ASSERT_TRUE(pool.matchesCpu()) << "three blocks";
  }
}

/// A batch of which sequence 1 is refused for `expected`, sequences 0 and 2
/// not.
class RefusedAppend : public testing::Test {
protected:
  RefusedAppend() : kernel(shape.spec, "sm_90a", error), pool(shape) {}

  void refuse(int32_t expected, std::vector<int64_t> counts) {
    ASSERT_EQ(error, "");
    ASSERT_TRUE(pool.append(kernel, {100, 120, 7}, 1).ok);
    ASSERT_EQ(pool.errors->as<int32_t>()[1], 0);
    spoil();
    const emulator::Report report = pool.append(kernel, counts, 2);
    ASSERT_TRUE(report.ok) << report.str();
    EXPECT_EQ(pool.errors->as<int32_t>()[0], 0);
    EXPECT_EQ(pool.errors->as<int32_t>()[1], expected);
    EXPECT_EQ(pool.errors->as<int32_t>()[2], 0);
    EXPECT_EQ(pool.lengths[0], 100 + counts[0]);
    EXPECT_EQ(pool.lengths[1], spoiledLength);
    EXPECT_EQ(pool.lengths[2], 7 + counts[2]);
    pool.lengths[1] = 120;
    EXPECT_TRUE(pool.matchesCpu());
    // Sticky: what works later does not take it away.
    repair();
    ASSERT_TRUE(pool.append(kernel, {1, 3, 1}, 3).ok);
    EXPECT_EQ(pool.errors->as<int32_t>()[1], expected);
    EXPECT_EQ(pool.lengths[1], 123);
    EXPECT_TRUE(pool.matchesCpu());
  }
  std::function<void()> spoil = [] {}, repair = [] {};
  int32_t spoiledLength = 120;

  Case shape = {makeSpec(64, 64, 1), "sm_90a",         2, 0, 2, false, true,
                Content::Plain,      {{700, 700, 700}}};
  std::string error;
  EmulatedAppend kernel;
  Pool pool;
};

TEST_F(RefusedAppend, BeyondTheReservation) {
  spoil = [&] { pool.reserved[1] = 1; };
  repair = [&] { pool.reserved[1] = 3; };
  refuse(FFD_APPEND_BEYOND_RESERVATION, {200, 136, 1});
}
TEST_F(RefusedAppend, NoSequenceTakesNoToken) {
  // Not even one that would stay in the tail.
  spoil = [&] { pool.reserved[1] = -1; };
  repair = [&] { pool.reserved[1] = 3; };
  refuse(FFD_APPEND_BEYOND_RESERVATION, {1, 1, 1});
}
TEST_F(RefusedAppend, BeyondThePageTable) {
  // The next sequence's entries must not be taken for its own.
  spoil = [&] { pool.reserved[1] = 1000; };
  refuse(FFD_APPEND_BEYOND_RESERVATION, {0, pool.pageStride * 128 + 8, 1});
}
TEST_F(RefusedAppend, PageIdTooLarge) {
  const size_t entry = size_t(pool.pageStride + 1);
  const int32_t id = pool.table[entry];
  spoil = [&, entry] { pool.table[entry] = int32_t(pool.pages); };
  repair = [&, entry, id] { pool.table[entry] = id; };
  refuse(FFD_APPEND_BAD_PAGE, {40, 140, 0});
}
TEST_F(RefusedAppend, PageIdNegative) {
  const size_t entry = size_t(pool.pageStride);
  const int32_t id = pool.table[entry];
  spoil = [&, entry] { pool.table[entry] = -1; };
  repair = [&, entry, id] { pool.table[entry] = id; };
  refuse(FFD_APPEND_BAD_PAGE, {40, 300, 0});
}
TEST_F(RefusedAppend, NegativeLength) {
  spoil = [&] { pool.lengths[1] = spoiledLength = -5; };
  refuse(FFD_APPEND_BAD_LENGTH, {40, 2, 0});
}
TEST_F(RefusedAppend, LengthOverflow) {
  spoil = [&] { pool.lengths[1] = spoiledLength = INT32_MAX - 3; };
  refuse(FFD_APPEND_BAD_LENGTH, {40, 9, 0});
}

} // namespace
