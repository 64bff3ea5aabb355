//===- Measure.cpp - What captured steps cost -----------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Times of captured decodes and appends through the C interface. A graph goes
// through all layers of a cache, as a step of an engine does; there are enough
// of them to exceed the L2 cache. Keys are random but for a sink that all
// queries score alike, so that delta decides how much is kept; what was kept is
// read back. Times are medians over rounds of replays, per layer; the plan, one
// launch per graph, is in them.
//
//===----------------------------------------------------------------------===//

#include "Driver.h"
#include "Soak.h"

#include "ffd/Float16.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

using namespace soak;

namespace {

constexpr int kHeads = 8;
constexpr int64_t kChunk = 8192; ///< tokens of a prefill
/// Deltas and what they keep, about: nothing, 2 %, 10 %, 20 %, 50 %, all.
constexpr float kDeltas[] = {3, 6.45f, 7.15f, 7.5f, 8.05f, INFINITY};
constexpr float kDelta = kDeltas[1];

std::vector<uint16_t> numbers(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  // Drawing them all would take longer than all measurements.
  std::vector<uint16_t> some(std::min<size_t>(count, 1u << 22));
  for (uint16_t &x : some)
    x = ffd::f32ToF16(normal(random));
  std::vector<uint16_t> all(count);
  for (size_t i = 0; i < count; ++i)
    all[i] = some[(i + i / some.size() * 7919) % some.size()];
  return all;
}

/// What all measurements share: a device, inputs, a context.
class Bench {
public:
  explicit Bench(const Flags &flags) : f(flags), driver(0) {
    const ffdContextOptions o = contextOptions(f);
    double took[2];
    for (double &seconds : took) { // the second finds compiled kernels
      ffdContextDestroy(gpu);
      const double start = now();
      OK(ffdContextCreate(&o, &gpu));
      const double opened = now();
      const ffdSpec spec = soakSpec();
      ffdKernel *kernel = nullptr;
      OK(ffdKernelCreate(gpu, &spec, &kernel));
      ffdKernelDestroy(kernel);
      seconds = now() - opened;
      if (&seconds == took)
        std::printf("context opened in %.1f ms\n", 1e3 * (opened - start));
    }
    ffdContextInfo info = {};
    info.struct_size = sizeof info;
    OK(ffdContextGetInfo(gpu, &info));
    std::printf("%s, %s, driver %d; the three kernels of a specification in "
                "%.1f ms, again in %.1f ms\n",
                info.name, info.arch, info.driver_version, 1e3 * took[0],
                1e3 * took[1]);
    std::vector<uint16_t> rows = numbers(size_t(kChunk * kHeads * kHeadDim), 1);
    v = upload(rows);
    k = upload(rows);
    std::mt19937 random(2);
    std::vector<uint16_t> sink(kHeads * kHeadDim), q;
    for (uint16_t &x : sink)
      x = ffd::f32ToF16(random() % 2 ? 1.0f : -1.0f);
    std::copy(sink.begin(), sink.end(), rows.begin());
    kFirst = upload(rows);
    std::normal_distribution<float> normal;
    for (int s = 0; s < 64; ++s)
      for (int h = 0; h < kHeads * kGroup; ++h)
        for (int c = 0; c < kHeadDim; ++c)
          q.push_back(ffd::f32ToF16(
              ffd::f16ToF32(sink[size_t(h / kGroup * kHeadDim + c)]) +
              normal(random)));
    queries = upload(q);
    out = static_cast<float *>(driver.allocate(q.size() * 4));
    driver.wait();
  }
  ~Bench() { ffdContextDestroy(gpu); }

  void *upload(const std::vector<uint16_t> &host) const {
    void *memory = driver.allocate(host.size() * 2);
    driver.upload(memory, host.data(), host.size() * 2);
    driver.wait();
    return memory;
  }

  const Flags &f;
  Driver driver;
  ffdContext *gpu = nullptr;
  void *k = nullptr, *kFirst = nullptr, *v = nullptr, *queries = nullptr;
  float *out = nullptr;
};

/// A cache of sequences of these lengths.
class Sequences {
public:
  Sequences(Bench &bench, const std::vector<int64_t> &lengths, int layers,
            const std::function<void(ffdCacheOptions &)> &change = nullptr,
            int64_t room = 0)
      : b(bench), layers(layers), count(int32_t(lengths.size())) {
    ffdCacheOptions o;
    ffdCacheOptionsInit(&o);
    o.spec = soakSpec();
    o.layers = layers;
    o.kv_heads = kHeads;
    o.sequences = count;
    o.delta = kDelta;
    for (int64_t length : lengths) {
      o.max_tokens = std::max(o.max_tokens, length + room);
      o.pages += (length + room) / 128 + 1;
    }
    if (change)
      change(o);
    OK(ffdCacheCreate(b.gpu, &o, &cache));
    for (int32_t slot = 0; slot < count; ++slot) {
      int32_t created = -1;
      OK(ffdSequenceCreate(cache, b.driver.stream(), &created));
      for (int64_t at = 0; at < lengths[size_t(slot)]; at += kChunk) {
        const int32_t n = int32_t(std::min(kChunk, lengths[size_t(slot)] - at));
        for (int layer = 0; layer < layers; ++layer) {
          ffdAppendBatch a;
          ffdAppendBatchInit(&a);
          a.layer = layer;
          a.count = 1;
          a.sequences = &slot;
          a.tokens = &n;
          a.k = at == 0 ? b.kFirst : b.k;
          a.v = b.v;
          OK(ffdAppend(cache, &a, b.driver.stream()));
        }
      }
      OK(ffdReserve(cache, 1, &slot, &room, b.driver.stream()));
    }
    b.driver.wait();
  }
  ~Sequences() { ffdCacheDestroy(cache); }
  Sequences(const Sequences &) = delete;
  Sequences &operator=(const Sequences &) = delete;

  void setDelta(float delta) {
    for (int32_t slot = 0; slot < count; ++slot)
      OK(ffdSequenceSetDelta(cache, slot, delta, b.driver.stream()));
  }

  /// Layers of decodes of slots first .. first + n - 1.
  void decode(int32_t first, int32_t n) {
    std::vector<int32_t> slots(static_cast<size_t>(n));
    std::iota(slots.begin(), slots.end(), first);
    for (int layer = 0; layer < layers; ++layer) {
      ffdDecodeBatch d;
      ffdDecodeBatchInit(&d);
      d.layer = layer;
      d.count = n;
      d.sequences = slots.data();
      d.q = b.queries;
      d.out = b.out;
      OK(ffdDecode(cache, &d, b.driver.stream()));
    }
  }
  void append() {
    for (int layer = 0; layer < layers; ++layer) {
      ffdAppendBatch a;
      ffdAppendBatchInit(&a);
      a.layer = layer;
      a.count = count;
      a.k = b.k;
      a.v = b.v;
      OK(ffdAppend(cache, &a, b.driver.stream()));
    }
  }

  /// Microseconds per layer of a captured step: the median of `rounds`.
  double time(const std::function<void()> &step, int replays = 20,
              int rounds = 7) {
    b.driver.wait();
    b.driver.beginCapture();
    step();
    void *graph = b.driver.endCapture();
    b.driver.replay(graph);
    std::vector<double> times;
    for (int round = 0; round < rounds; ++round) {
      b.driver.wait();
      const double start = now();
      for (int i = 0; i < replays; ++i)
        b.driver.replay(graph);
      b.driver.wait();
      times.push_back(1e6 * (now() - start) / replays / layers);
    }
    std::sort(times.begin(), times.end());
    b.driver.destroy(graph);
    return times[times.size() / 2];
  }
  double decodeTime(int32_t first, int32_t n) {
    return time([&] { decode(first, n); });
  }

  /// The share of selection blocks that one more decode of all keeps.
  double kept() {
    const ffdHeadStatistics before = total();
    decode(0, count);
    const ffdHeadStatistics after = total();
    const uint64_t scanned = after.scanned - before.scanned;
    return scanned ? double(after.kept - before.kept) / double(scanned) : 0;
  }

private:
  ffdHeadStatistics total() {
    std::vector<ffdHeadStatistics> each(size_t(layers) * kHeads);
    OK(ffdStatisticsRequest(cache, b.driver.stream()));
    ffdStatus status;
    while ((status = ffdStatisticsFetch(cache, each.data())) == FFD_NOT_READY) {
    }
    OK(status);
    ffdHeadStatistics sum = {};
    for (const ffdHeadStatistics &s : each) {
      sum.scanned += s.scanned;
      sum.kept += s.kept;
    }
    return sum;
  }

  Bench &b;
  const int layers;
  const int32_t count;
  ffdCache *cache = nullptr;
};

/// Layers whose thumbnails exceed the L2 cache several times.
int rotations(int64_t tokens) {
  const int64_t bytes = tokens * kHeads * 34;
  return int(std::clamp<int64_t>((int64_t(200) << 20) / bytes, 4, 48));
}

void uniform(Bench &b) {
  std::printf("\ncaptured decodes of sequences of one length, us per layer\n"
              "%8s %6s %8s %10s\n",
              "tokens", "batch", "kept", "us");
  for (int64_t tokens : {4096, 16384, 65536, 262144})
    for (int batch : {1, 8}) {
      Sequences s(b, std::vector<int64_t>(size_t(batch), tokens + 64),
                  rotations(tokens * batch));
      const double time = s.decodeTime(0, batch);
      std::printf("%8ld %6d %7.2f%% %10.1f\n", long(tokens), batch,
                  100 * s.kept(), time);
      std::fflush(stdout);
    }
}

/// 32 lengths from 1K to 256K, most of them short.
std::vector<int64_t> raggedLengths() {
  std::mt19937 random(7);
  std::vector<int64_t> lengths;
  for (int i = 0; i < 32; ++i) {
    const double u = (i + 0.5) / 32; // Pareto, cut off
    lengths.push_back(std::clamp<int64_t>(int64_t(3000 * std::pow(1 - u, -1.1)),
                                          1024, 262144) +
                      64);
  }
  std::shuffle(lengths.begin(), lengths.end(), random);
  return lengths;
}

void ragged(Bench &b) {
  const std::vector<int64_t> lengths = raggedLengths();
  const int count = int(lengths.size());
  int64_t tokens = 0;
  for (int64_t length : lengths)
    tokens += length;
  std::printf("\n%d sequences of %ld to %ld tokens, %ld in all, captured, us "
              "per layer\n",
              count, long(*std::min_element(lengths.begin(), lengths.end())),
              long(*std::max_element(lengths.begin(), lengths.end())),
              long(tokens));
  double batch = 0;
  {
    Sequences s(b, lengths, 4);
    batch = s.decodeTime(0, count);
    double parts = 0;
    for (int slot = 0; slot < count; ++slot)
      parts += s.decodeTime(slot, 1);
    std::printf("one batch %.1f, each sequence alone %.1f in all; kept "
                "%.2f%%\n",
                batch, parts, 100 * s.kept());
  }
  {
    Sequences s(
        b, std::vector<int64_t>(size_t(count), tokens / count / 128 * 128 + 64),
        4);
    std::printf("as many tokens in %d sequences of one length: %.1f\n", count,
                s.decodeTime(0, count));
  }
  for (int32_t piece : {0, 2048, 4096, 8192, 16384}) {
    Sequences s(b, lengths, 4, [&](ffdCacheOptions &o) {
      o.batch_invariant = 1;
      o.piece_tokens = piece;
    });
    const double time = s.decodeTime(0, count);
    std::printf("batch-invariant, pieces of %5d tokens%s: %.1f (%.2f times)\n",
                piece, piece ? "" : " (chosen)", time, time / batch);
    std::fflush(stdout);
  }
}

void appends(Bench &b) {
  std::printf("\ncaptured appends of one token per sequence at 64K tokens, us "
              "per layer\n");
  for (int batch : {1, 8, 32}) {
    Sequences s(b, std::vector<int64_t>(size_t(batch), 65536), 4, nullptr,
                2048);
    std::printf("batch %2d: %.2f\n", batch,
                s.time([&] { s.append(); }, 256, 5));
  }
}

void offload(Bench &b) {
  const int batch = 8;
  const int64_t tokens = 65536;
  std::printf("\nresiduals and values in pinned host memory, %d sequences of "
              "%ld tokens, captured, us per layer\n%8s %12s %12s\n",
              batch, long(tokens), "kept", "on the GPU", "on the host");
  const std::vector<int64_t> lengths(size_t(batch), tokens + 64);
  std::vector<double> near, kept;
  {
    Sequences s(b, lengths, 2);
    for (float delta : kDeltas) {
      s.setDelta(delta);
      near.push_back(s.decodeTime(0, batch));
      kept.push_back(s.kept());
    }
  }
  Sequences s(b, lengths, 2, [](ffdCacheOptions &o) { o.host_pages = 1; });
  for (size_t i = 0; i < near.size(); ++i) {
    s.setDelta(kDeltas[i]);
    const double far = s.time([&] { s.decode(0, batch); }, 3, 5);
    std::printf("%7.2f%% %12.1f %12.1f\n", 100 * kept[i], near[i], far);
    std::fflush(stdout);
  }
}

} // namespace

int soak::measure(const Flags &flags) {
  const struct {
    const char *name;
    void (*run)(Bench &);
  } known[] = {{"uniform", uniform},
               {"ragged", ragged},
               {"append", appends},
               {"host", offload}};
  std::vector<void (*)(Bench &)> asked;
  const std::string all = "uniform,ragged,append,host";
  std::string rest = flags.measure == "all" ? all : flags.measure;
  while (!rest.empty()) {
    const std::string name = rest.substr(0, rest.find(','));
    rest = name.size() < rest.size() ? rest.substr(name.size() + 1) : "";
    const size_t before = asked.size();
    for (const auto &entry : known)
      if (name == entry.name)
        asked.push_back(entry.run);
    if (asked.size() == before) {
      std::fprintf(stderr,
                   "ffd-soak: error: option --measure has the value '%s', "
                   "expected all or some of %s\n",
                   name.c_str(), all.c_str());
      return 1;
    }
  }
  Bench bench(flags);
  for (auto *run : asked)
    run(bench);
  return 0;
}
