//===- ffd-soak.cpp - A long life of captured decode steps ---------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One decode step (append and decode of all layers) is captured once and
// replayed thousands of times while sequences grow across block boundaries,
// join, leave, fork and are truncated. Beside it the same happens to a second
// cache without graphs, whose outputs must be the same bits, and to a cache of
// the CPU, whose tokens must be the same bits and whose outputs must be close.
// With --batch-invariant the second cache decodes them in another order and in
// several batches. --measure takes times instead.
// At the end an append beyond the reservation must do nothing but set its
// error.
//
//===----------------------------------------------------------------------===//

#include "Driver.h"
#include "Soak.h"

#include "ffd/Float16.h"
#include "ffd/ffd.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

using namespace soak;

namespace {

int failures = 0;

void fail(const std::string &text) {
  std::printf("FAILED: %s\n", text.c_str());
  if (++failures > 20)
    std::exit(1);
}

class Soak {
public:
  explicit Soak(const Flags &flags) : f(flags), driver(0), random(1) {
    ffdContextOptions o = contextOptions(f);
    OK(ffdContextCreate(&o, &gpu));
    ffdContextInfo info = {};
    info.struct_size = sizeof info;
    OK(ffdContextGetInfo(gpu, &info));
    std::printf("%s, %s, driver %d\n", info.name, info.arch,
                info.driver_version);
    o.device = FFD_DEVICE_CPU;
    if (f.cpu)
      OK(ffdContextCreate(&o, &cpu));
    spec = soakSpec();
    spec.centre = f.centre ? FFD_CENTRE_ROW : FFD_CENTRE_NONE;
    const double start = now();
    ffdKernel *kernel = nullptr;
    OK(ffdKernelCreate(gpu, &spec, &kernel));
    std::printf("kernels for %s in %.1f ms\n", ffdKernelTarget(kernel),
                1e3 * (now() - start));
    ffdKernelDestroy(kernel);

    ffdCacheOptions c;
    ffdCacheOptionsInit(&c);
    c.spec = spec;
    c.layers = f.layers;
    c.kv_heads = f.heads;
    c.sequences = f.slots;
    c.lag = f.lag;
    c.max_tokens = f.steps + 4096;
    c.pages = int64_t(f.slots) * (c.max_tokens / 128 + 2);
    c.host_pages = f.hostPages;
    c.batch_invariant = f.invariant;
    OK(ffdCacheCreate(gpu, &c, &caches[Graph]));
    OK(ffdCacheCreate(gpu, &c, &caches[Plain]));
    c.host_pages = 0;
    if (f.cpu)
      OK(ffdCacheCreate(cpu, &c, &caches[Cpu]));
    live.assign(size_t(f.slots), false);
    length.assign(size_t(f.slots), 0);
    place.assign(size_t(f.slots), 0);

    kv = size_t(f.slots * f.heads * kHeadDim);
    q = kv * kGroup;
    for (int layer = 0; layer < f.layers; ++layer) {
      inputs.push_back({});
      Layer &l = inputs.back();
      l.k = driver.allocate(kv * 2);
      l.v = driver.allocate(kv * 2);
      l.q = driver.allocate(q * 2);
      l.listedQ = driver.allocate(q * 2);
      for (int i = 0; i < 2; ++i) {
        l.out[i] = static_cast<float *>(driver.allocate(q * 4));
        l.lse[i] = static_cast<float *>(driver.allocate(q / kHeadDim * 4));
      }
      l.hostK.resize(kv);
      l.hostV.resize(kv);
      l.hostQ.resize(q + 8);
    }
  }

  int run() {
    for (int slot = 0; slot < f.slots - 1; ++slot)
      join(1 + 97 * slot % 700);
    driver.wait();
    driver.beginCapture();
    append(Graph);
    decode(Graph);
    void *graph = driver.endCapture();
    std::printf("captured %d layers, %d slots\n", f.layers, f.slots);

    double replayed = 0;
    int events = 0;
    for (int step = 1; step <= f.steps; ++step) {
      if (step % 53 == 0) {
        ++events;
        disturb();
      }
      reserve();
      draw();
      driver.wait();
      const double start = now();
      driver.replay(graph);
      driver.wait();
      replayed += now() - start;
      std::vector<int32_t> slots, ones;
      for (int slot = 0; slot < f.slots; ++slot)
        if (live[size_t(slot)]) {
          slots.push_back(slot);
          ones.push_back(1);
          ++length[size_t(slot)];
        }
      OK(ffdAdvance(caches[Graph], int32_t(slots.size()), slots.data(),
                    ones.data()));
      appendEach(Plain);
      if (f.invariant)
        decodeListed();
      else
        decode(Plain);
      if (f.cpu)
        appendEach(Cpu);
      compareGpu(step);
      if (f.cpu && (step % f.check == 0 || step == f.steps))
        compareCpu(step);
      if (step % 1000 == 0) {
        std::printf("step %d: lengths", step);
        for (int slot = 0; slot < f.slots; ++slot)
          std::printf(" %ld",
                      live[size_t(slot)] ? long(length[size_t(slot)]) : -1L);
        std::printf("\n");
        std::fflush(stdout);
      }
    }
    int32_t errors = -1;
    OK(ffdCacheGetErrors(caches[Graph], &errors, nullptr));
    if (errors != 0)
      fail("errors of the device are " + std::to_string(errors) +
           ", expected 0");
    overflow(graph);
    statistics();
    std::printf("%d steps replayed (%.1f us each, host to host), %d events, "
                "outputs compared bit for bit with uncaptured execution%s\n",
                f.steps, 1e6 * replayed / f.steps, events,
                f.cpu ? ", caches and outputs with the CPU's" : "");
    std::printf(failures ? "FAILED: %d\n" : "PASSED, %d failures\n", failures);
    return failures != 0;
  }

private:
  enum Which { Graph, Plain, Cpu };
  struct Layer {
    void *k, *v, *q, *listedQ;
    float *out[2], *lse[2];
    std::vector<uint16_t> hostK, hostV, hostQ;
  };
  int caches_() const { return f.cpu ? 3 : 2; }

  void *streamOf(int which) const {
    return which == Cpu ? nullptr : driver.stream();
  }

  uint16_t number(float spread, float mean = 0) {
    // Cheap and near enough to normal.
    float sum = -2;
    for (int i = 0; i < 4; ++i)
      sum += float(random() & 0xFFFF) / 65536;
    return ffd::f32ToF16(sum * 1.7f * spread + mean);
  }

  void draw() {
    for (Layer &l : inputs) {
      for (uint16_t &x : l.hostK)
        x = number(1, f.centre ? 2 : 0);
      for (uint16_t &x : l.hostV)
        x = number(1);
      for (uint16_t &x : l.hostQ)
        x = number(2);
      driver.upload(l.k, l.hostK.data(), kv * 2);
      driver.upload(l.v, l.hostV.data(), kv * 2);
      driver.upload(l.q, l.hostQ.data(), q * 2);
    }
  }

  ffdAppendBatch batchOf(int layer) const {
    ffdAppendBatch b;
    ffdAppendBatchInit(&b);
    b.layer = layer;
    return b;
  }

  /// All slots, one token each: what is captured.
  void append(int which) {
    for (int layer = 0; layer < f.layers; ++layer) {
      ffdAppendBatch b = batchOf(layer);
      b.count = f.slots;
      b.k = inputs[size_t(layer)].k;
      b.v = inputs[size_t(layer)].v;
      OK(ffdAppend(caches[which], &b, driver.stream()));
    }
  }

  /// One call per sequence, as row `slot` of the inputs.
  void appendEach(int which) {
    for (int layer = 0; layer < f.layers; ++layer)
      for (int32_t slot = 0; slot < f.slots; ++slot) {
        if (!live[size_t(slot)])
          continue;
        const Layer &l = inputs[size_t(layer)];
        const size_t row = size_t(slot) * size_t(f.heads) * kHeadDim;
        ffdAppendBatch b = batchOf(layer);
        b.count = 1;
        b.sequences = &slot;
        b.k = which == Cpu ? &l.hostK[row]
                           : static_cast<const uint16_t *>(l.k) + row;
        b.v = which == Cpu ? &l.hostV[row]
                           : static_cast<const uint16_t *>(l.v) + row;
        OK(ffdAppend(caches[which], &b, streamOf(which)));
      }
  }

  void decode(int which) {
    for (int layer = 0; layer < f.layers; ++layer) {
      Layer &l = inputs[size_t(layer)];
      ffdDecodeBatch b;
      ffdDecodeBatchInit(&b);
      b.layer = layer;
      b.count = f.slots;
      b.q = l.q;
      b.out = l.out[which];
      b.lse = l.lse[which];
      OK(ffdDecode(caches[which], &b, driver.stream()));
    }
  }

  /// The sequences in another order and in several batches: results must not
  /// depend on it if the cache is batch-invariant.
  void decodeListed() {
    std::vector<int32_t> order;
    for (int32_t slot = 0; slot < f.slots; ++slot)
      if (live[size_t(slot)])
        order.push_back(slot);
    std::shuffle(order.begin(), order.end(), random);
    const size_t perQ = q / size_t(f.slots);
    for (size_t i = 0; i < order.size(); ++i)
      place[size_t(order[i])] = i;
    std::vector<size_t> cuts = {0};
    while (cuts.back() < order.size())
      cuts.push_back(std::min(order.size(), cuts.back() + 1 + random() % 4));
    for (int layer = 0; layer < f.layers; ++layer) {
      Layer &l = inputs[size_t(layer)];
      std::vector<uint16_t> listed(q);
      for (size_t i = 0; i < order.size(); ++i)
        std::copy_n(&l.hostQ[size_t(order[i]) * perQ], perQ, &listed[i * perQ]);
      driver.upload(l.listedQ, listed.data(), q * 2);
      driver.wait();
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        const size_t first = cuts[i];
        ffdDecodeBatch b;
        ffdDecodeBatchInit(&b);
        b.layer = layer;
        b.count = int32_t(cuts[i + 1] - first);
        b.sequences = &order[first];
        b.q = static_cast<uint16_t *>(l.listedQ) + first * perQ;
        b.out = l.out[Plain] + first * perQ;
        b.lse = l.lse[Plain] + first * (perQ / kHeadDim);
        OK(ffdDecode(caches[Plain], &b, driver.stream()));
      }
    }
  }

  /// Pages for the steps to come, now and then, of the graph's cache only.
  void reserve() {
    for (int32_t slot = 0; slot < f.slots; ++slot) {
      if (!live[size_t(slot)])
        continue;
      ffdSequenceInfo info = {};
      info.struct_size = sizeof info;
      OK(ffdSequenceGetInfo(caches[Graph], slot, &info));
      const int64_t more = 300;
      if (info.reserved - info.length < 2)
        OK(ffdReserve(caches[Graph], 1, &slot, &more, driver.stream()));
    }
  }

  /// A new sequence with a prompt, in all caches.
  void join(int64_t tokens) {
    const size_t size = size_t(tokens * f.heads * kHeadDim);
    std::vector<uint16_t> k(size), v(size);
    void *deviceK = driver.allocate(size * 2 * size_t(f.layers));
    void *deviceV = driver.allocate(size * 2 * size_t(f.layers));
    int32_t slots[3] = {-1, -1, -1};
    for (int which = 0; which < caches_(); ++which)
      OK(ffdSequenceCreate(caches[which], streamOf(which), &slots[which]));
    for (int layer = 0; layer < f.layers; ++layer) {
      for (uint16_t &x : k)
        x = number(1);
      for (uint16_t &x : v)
        x = number(1);
      auto *atK = static_cast<uint16_t *>(deviceK) + size * size_t(layer);
      auto *atV = static_cast<uint16_t *>(deviceV) + size * size_t(layer);
      driver.upload(atK, k.data(), size * 2);
      driver.upload(atV, v.data(), size * 2);
      for (int which = 0; which < caches_(); ++which) {
        ffdAppendBatch b = batchOf(layer);
        const int32_t count = int32_t(tokens);
        b.count = 1;
        b.sequences = &slots[which];
        b.tokens = &count;
        b.k = which == Cpu ? k.data() : atK;
        b.v = which == Cpu ? v.data() : atV;
        OK(ffdAppend(caches[which], &b, streamOf(which)));
      }
    }
    driver.wait();
    for (int which = 1; which < caches_(); ++which)
      if (slots[which] != slots[0])
        fail("caches disagree about the slot of a new sequence");
    live[size_t(slots[0])] = true;
    length[size_t(slots[0])] = tokens;
  }

  /// Joins, leaves, forks or truncates.
  void disturb() {
    std::vector<int32_t> some;
    for (int32_t slot = 0; slot < f.slots; ++slot)
      if (live[size_t(slot)])
        some.push_back(slot);
    const int32_t slot = some[random() % some.size()];
    const bool full = some.size() == size_t(f.slots);
    const unsigned kind = random() % 4;
    if (kind == 0 && !full) {
      join(1 + int64_t(random() % 900));
    } else if (kind == 1 && some.size() > 2) {
      for (int which = 0; which < caches_(); ++which)
        OK(ffdSequenceFree(caches[which], slot, streamOf(which)));
      live[size_t(slot)] = false;
    } else if (kind == 2 && !full) {
      int32_t child = -1;
      for (int which = 0; which < caches_(); ++which)
        OK(ffdSequenceFork(caches[which], slot, streamOf(which), &child));
      live[size_t(child)] = true;
      length[size_t(child)] = length[size_t(slot)];
    } else {
      // Within what stays exact, also below the lag; sometimes a few blocks
      // back.
      ffdSequenceInfo info = {};
      info.struct_size = sizeof info;
      OK(ffdSequenceGetInfo(caches[Graph], slot, &info));
      int64_t to = length[size_t(slot)] - int64_t(random() % 20);
      if (to < info.committed)
        to = random() % 2
                 ? std::max<int64_t>(0, info.committed - 128 * (random() % 3))
                 : info.committed;
      for (int which = 0; which < caches_(); ++which)
        OK(ffdSequenceTruncate(caches[which], slot, to, streamOf(which)));
      length[size_t(slot)] = to;
    }
  }

  void compareGpu(int step) {
    std::vector<float> a(q), b(q);
    for (int layer = 0; layer < f.layers; ++layer) {
      Layer &l = inputs[size_t(layer)];
      for (const bool lse : {false, true}) {
        const size_t count = lse ? q / kHeadDim : q;
        driver.download(a.data(), lse ? l.lse[0] : l.out[0], count * 4);
        driver.download(b.data(), lse ? l.lse[1] : l.out[1], count * 4);
        const size_t per = count / size_t(f.slots);
        for (int slot = 0; slot < f.slots; ++slot) {
          const size_t at = per * size_t(slot);
          const bool listed = f.invariant && live[size_t(slot)];
          const size_t plain = listed ? per * place[size_t(slot)] : at;
          if ((listed || !f.invariant) &&
              std::memcmp(&a[at], &b[plain], per * 4) != 0)
            fail("step " + std::to_string(step) + " layer " +
                 std::to_string(layer) + " slot " + std::to_string(slot) +
                 " of " + std::to_string(length[size_t(slot)]) + " tokens: " +
                 (lse ? "lse" : "out") + " differs from uncaptured execution");
          if (!live[size_t(slot)] && !lse && a[at] != 0)
            fail("an empty slot has an output");
        }
      }
    }
  }

  void compareCpu(int step) {
    for (int layer = 0; layer < f.layers; ++layer) {
      Layer &l = inputs[size_t(layer)];
      std::vector<float> got(q);
      driver.download(got.data(), l.out[0], q * 4);
      for (int32_t slot = 0; slot < f.slots; ++slot) {
        if (!live[size_t(slot)])
          continue;
        const std::string where = "step " + std::to_string(step) + " layer " +
                                  std::to_string(layer) + " slot " +
                                  std::to_string(slot);
        ffdSequenceInfo info = {};
        info.struct_size = sizeof info;
        OK(ffdSequenceGetInfo(caches[Graph], slot, &info));
        if (info.length != length[size_t(slot)])
          fail(where + ": the host has lost count");
        // The last blocks and the tail; everything at the end.
        const int64_t n = length[size_t(slot)];
        const int64_t first =
            step == f.steps ? 0 : std::max<int64_t>(0, n - 400);
        const size_t size = size_t((n - first) * f.heads * kHeadDim);
        std::vector<uint16_t> k[2], v[2];
        void *deviceK = driver.allocate(size * 2 + 16);
        void *deviceV = driver.allocate(size * 2 + 16);
        for (int i = 0; i < 2; ++i) {
          k[i].resize(size);
          v[i].resize(size);
        }
        OK(ffdGather(caches[Graph], layer, slot, first, n - first, deviceK,
                     deviceV, driver.stream()));
        driver.download(k[0].data(), deviceK, size * 2);
        driver.download(v[0].data(), deviceV, size * 2);
        OK(ffdGather(caches[Cpu], layer, slot, first, n - first, k[1].data(),
                     v[1].data(), nullptr));
        if (k[0] != k[1])
          fail(where + ": K in the cache is not the CPU's");
        if (v[0] != v[1])
          fail(where + ": V in the cache is not the CPU's");

        const size_t per = q / size_t(f.slots);
        std::vector<float> out(per + 4), lse(size_t(f.heads * kGroup));
        auto *out16 = reinterpret_cast<float *>((uintptr_t(out.data()) + 15) &
                                                ~uintptr_t(15));
        std::vector<uint16_t> queries(per + 8);
        auto *q16 = reinterpret_cast<uint16_t *>(
            (uintptr_t(queries.data()) + 15) & ~uintptr_t(15));
        std::memcpy(q16, &l.hostQ[per * size_t(slot)], per * 2);
        ffdDecodeBatch b;
        ffdDecodeBatchInit(&b);
        b.layer = layer;
        b.count = 1;
        b.sequences = &slot;
        b.q = q16;
        b.out = out16;
        b.lse = lse.data();
        OK(ffdDecode(caches[Cpu], &b, nullptr));
        double error = 0, norm = 0;
        for (size_t i = 0; i < per; ++i) {
          const double d = double(out16[i]) - got[per * size_t(slot) + i];
          error += d * d;
          norm += double(out16[i]) * out16[i];
        }
        if (!(std::sqrt(error / norm) <= 4e-3))
          fail(where + " of " + std::to_string(n) +
               " tokens: relative difference to the CPU is " +
               std::to_string(std::sqrt(error / norm)));
      }
    }
  }

  /// Replays without reserving until the device refuses.
  void overflow(void *graph) {
    std::vector<int32_t> each(size_t(f.slots), 0);
    int32_t errors = 0;
    int steps = 0;
    while (!errors && steps < 2000) {
      draw();
      driver.replay(graph);
      driver.wait();
      ++steps;
      OK(ffdCacheGetErrors(caches[Graph], &errors, each.data()));
    }
    int refused = 0;
    for (int32_t e : each)
      refused += e != 0;
    if (errors != FFD_APPEND_BEYOND_RESERVATION || refused == 0)
      fail("an append beyond the reservation sets errors " +
           std::to_string(errors) + ", expected 1");
    OK(ffdCacheClearErrors(caches[Graph]));
    std::printf("beyond the reservation after %d steps: %d sequences refused\n",
                steps, refused);
  }

  void statistics() {
    std::vector<ffdHeadStatistics> s(size_t(f.layers * f.heads));
    OK(ffdStatisticsRequest(caches[Plain], driver.stream()));
    ffdStatus status;
    while ((status = ffdStatisticsFetch(caches[Plain], s.data())) ==
           FFD_NOT_READY) {
    }
    OK(status);
    std::printf("kept %.1f %% of %lu selection blocks (layer 0, head 0)\n",
                s[0].scanned ? 100.0 * double(s[0].kept) / double(s[0].scanned)
                             : 0.0,
                static_cast<unsigned long>(s[0].scanned));
  }

  const Flags f;
  Driver driver;
  std::mt19937 random;
  ffdSpec spec;
  ffdContext *gpu = nullptr, *cpu = nullptr;
  ffdCache *caches[3] = {};
  std::vector<bool> live;
  std::vector<int64_t> length;
  std::vector<size_t> place; ///< of slots in the outputs of decodeListed
  std::vector<Layer> inputs;
  size_t kv = 0, q = 0;
};

} // namespace

/// A flag with a number or a text.
struct Flag {
  const char *name;
  int *number;
  std::string *text;
  int least, most; ///< of the number
};

/// Ends the program.
[[noreturn]] static void refuse(const std::string &message) {
  std::fprintf(stderr, "ffd-soak: error: %s\n", message.c_str());
  std::exit(1);
}

/// Takes "--name=value", if it is this flag.
static bool take(const Flag &flag, const std::string &argument) {
  const std::string start = std::string("--") + flag.name + "=";
  if (argument.compare(0, start.size(), start) != 0)
    return false;
  const std::string value = argument.substr(start.size());
  if (flag.text) {
    if (value.empty())
      refuse(std::string("option --") + flag.name + " is '', expected a value");
    *flag.text = value;
    return true;
  }
  const char *const end = value.data() + value.size();
  const std::from_chars_result parsed =
      std::from_chars(value.data(), end, *flag.number);
  if (parsed.ec != std::errc() || parsed.ptr != end ||
      *flag.number < flag.least || *flag.number > flag.most)
    refuse(std::string("option --") + flag.name + " is '" + value +
           "', expected " + std::to_string(flag.least) + " to " +
           std::to_string(flag.most));
  return true;
}

int main(int count, char **arguments) {
  Flags flags;
  const Flag known[] = {{"steps", &flags.steps, nullptr, 1, 1 << 24},
                        {"slots", &flags.slots, nullptr, 3, 1 << 16},
                        {"layers", &flags.layers, nullptr, 1, 1 << 10},
                        {"heads", &flags.heads, nullptr, 1, 1 << 10},
                        {"lag", &flags.lag, nullptr, 0, 1 << 20},
                        {"check-every", &flags.check, nullptr, 1, 1 << 24},
                        {"host-pages", &flags.hostPages, nullptr, 0, 1},
                        {"batch-invariant", &flags.invariant, nullptr, 0, 1},
                        {"cpu", &flags.cpu, nullptr, 0, 1},
                        {"centre", &flags.centre, nullptr, 0, 1},
                        {"measure", nullptr, &flags.measure, 0, 0},
                        {"kernel-dir", nullptr, &flags.kernels, 0, 0},
                        {"compiler", nullptr, &flags.compiler, 0, 0},
                        {"kernel-cache", nullptr, &flags.cache, 0, 0}};
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--help") {
      std::printf("usage: ffd-soak [--steps=10000] [--slots=8] [--layers=2] "
                  "[--heads=2] [--lag=0] [--check-every=250] "
                  "[--host-pages=0|1] [--batch-invariant=0|1] [--cpu=1|0] "
                  "[--centre=0|1] [--measure=all|uniform,ragged,append,host] "
                  "[--kernel-dir=DIR] "
                  "[--compiler=libffd-jit.so] [--kernel-cache=DIR]\n");
      return 0;
    }
    if (std::none_of(std::begin(known), std::end(known),
                     [&](const Flag &flag) { return take(flag, argument); }))
      refuse("argument '" + argument +
             "' is unknown, expected those of --help");
  }
  return flags.measure.empty() ? Soak(flags).run() : measure(flags);
}
