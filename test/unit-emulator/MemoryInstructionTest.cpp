//===- MemoryInstructionTest.cpp - Loads, stores, copies ----------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loads and stores with their qualifiers, atomics, asynchronous copies, and
// what changes nothing that a program can see: prefetches and grid
// dependencies.
//
//===----------------------------------------------------------------------===//

#include "TextKernel.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

using namespace ffd::emulator;

namespace {

using Words = std::vector<uint32_t>;

Words randomWords(uint32_t seed, size_t count) {
  std::mt19937 random(seed);
  Words words(count);
  for (uint32_t &x : words)
    x = uint32_t(random());
  return words;
}

/// The results of a kernel that must be right; `global` as it leaves it.
Words results(const WordKernel &kernel, const Words &words, Words &global,
              uint64_t seed = 1) {
  Words out;
  const Report report = runWords(kernel, words, out, global, seed);
  EXPECT_TRUE(report.ok) << kernel.ptx << "\n" << report.str();
  return out;
}

std::string messageOf(const WordKernel &kernel, const Words &words) {
  Words out, global(64);
  return runWords(kernel, words, out, global).message;
}

//===--- Loads and stores
//--------------------------------------------------===//

TEST(EmulatorMemory, LoadsWithQualifiers) {
  // Lane l reads four words at word l of the buffer.
  Words global = randomWords(1, 36);
  const Words given = global;
  for (const char *name :
       {"ld.global.u32", "ld.global.nc.u32", "ld.relaxed.gpu.global.u32",
        "ld.acquire.gpu.global.u32", "ld.volatile.global.u32",
        "ld.global.L1::no_allocate.L2::128B.u32", "ld.weak.global.ca.u32",
        "ld.global.nc.L1::evict_last.L2::256B.b32"}) {
    WordKernel kernel{4, 1, ""};
    kernel.ptx = "{ .reg .u64 a; .reg .u32 l; mov.u32 l, %laneid; "
                 "mad.lo.u32 l, l, 4, 0; cvt.u64.u32 a, l; add.u64 a, a, " +
                 kernel.global() + ";";
    for (int i = 0; i < 4; ++i)
      kernel.ptx += std::string(name) + " $" + std::to_string(i) + ", [a+" +
                    std::to_string(4 * i) + "];";
    kernel.ptx += " }";
    const Words got = results(kernel, Words(32), global);
    for (size_t l = 0; l < 32; ++l)
      for (size_t i = 0; i < 4; ++i)
        EXPECT_EQ(got[4 * l + i], given[l + i]) << name;
  }
}

TEST(EmulatorMemory, VectorsWithACachePolicy) {
  Words global = randomWords(2, 256);
  const Words given = global;
  WordKernel kernel{1, 1, ""};
  kernel.ptx =
      "{ .reg .u64 a, policy; .reg .u32 l, x, y, z, w; mov.u32 l, %laneid; "
      "mul.lo.u32 l, l, 32; cvt.u64.u32 a, l; add.u64 a, a, " +
      kernel.global() +
      "; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;"
      "ld.global.nc.L2::cache_hint.v4.u32 {x, y, z, w}, [a], policy;"
      "st.global.L2::cache_hint.v4.u32 [a+16], {w, z, y, x}, policy;"
      "mov.u32 $0, 0; }";
  results(kernel, Words(32), global);
  for (size_t l = 0; l < 32; ++l)
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(global[8 * l + 4 + i], given[8 * l + 3 - i]);
}

TEST(EmulatorMemory, NarrowLoadsExtend) {
  const Words words = randomWords(3, 32);
  Words global(4);
  WordKernel kernel{4, 1, ""};
  kernel.ptx = "{ .reg .u32 a; mov.u32 a, %laneid; mad.lo.u32 a, a, 4, " +
               kernel.shared() +
               "; ld.shared.u8 $0, [a+1]; ld.shared.s8 $1, [a+1];"
               "ld.shared.u16 $2, [a+2]; ld.shared.s16 $3, [a+2]; }";
  const Words got = results(kernel, words, global);
  for (size_t l = 0; l < 32; ++l) {
    const uint32_t w = words[l];
    EXPECT_EQ(got[4 * l], w >> 8 & 0xFF);
    EXPECT_EQ(got[4 * l + 1], uint32_t(int32_t(int8_t(w >> 8))));
    EXPECT_EQ(got[4 * l + 2], w >> 16);
    EXPECT_EQ(got[4 * l + 3], uint32_t(int32_t(int16_t(w >> 16))));
  }
}

//===--- Atomics
//-----------------------------------------------------------===//

TEST(EmulatorMemory, ReductionsInMemory) {
  using Step = uint64_t (*)(uint64_t, uint64_t);
  struct Case {
    const char *name;
    bool wide;
    Step step;
  };
  const Case cases[] = {
      {"red.global.add.u32", false, [](auto a, auto b) { return a + b; }},
      {"red.relaxed.gpu.global.add.s32", false,
       [](auto a, auto b) { return a + b; }},
      {"red.release.gpu.global.add.u32", false,
       [](auto a, auto b) { return a + b; }},
      {"red.global.add.u64", true, [](auto a, auto b) { return a + b; }},
      {"red.relaxed.sys.global.add.u64", true,
       [](auto a, auto b) { return a + b; }},
      {"red.global.min.u32", false,
       [](auto a, auto b) { return std::min(a, b); }},
      {"red.global.max.u64", true,
       [](auto a, auto b) { return std::max(a, b); }},
      {"red.global.max.s32", false,
       [](auto a, auto b) {
         return uint64_t(uint32_t(std::max(int32_t(a), int32_t(b))));
       }},
      {"red.global.and.b32", false, [](auto a, auto b) { return a & b; }},
      {"red.global.or.b64", true, [](auto a, auto b) { return a | b; }},
      {"red.global.xor.b32", false, [](auto a, auto b) { return a ^ b; }}};
  for (const Case &c : cases)
    for (uint64_t seed : {1, 2}) {
      const Words words = randomWords(4, 64);
      Words global = randomWords(5, 2);
      uint64_t expected =
          c.wide ? uint64_t(global[1]) << 32 | global[0] : global[0];
      for (size_t l = 0; l < 32; ++l)
        expected = c.step(expected, c.wide ? uint64_t(words[2 * l + 1]) << 32 |
                                                 words[2 * l]
                                           : words[2 * l]);
      WordKernel kernel{1, 2, ""};
      kernel.ptx = "{ .reg .b64 x; mov.b64 x, {$1, $2}; " +
                   std::string(c.name) + " [" + kernel.global() +
                   (c.wide ? "], x;" : "], $1;") + " mov.u32 $0, 0; }";
      results(kernel, words, global, seed);
      EXPECT_EQ(global[0], uint32_t(expected)) << c.name;
      if (c.wide) {
        EXPECT_EQ(global[1], uint32_t(expected >> 32)) << c.name;
      }
    }
}

TEST(EmulatorMemory, AtomicsReturnWhatWasThere) {
  // Each lane finds another number, in an order that the schedule draws.
  Words global(1), orders[2];
  WordKernel kernel{1, 1, ""};
  kernel.ptx =
      "atom.acq_rel.gpu.global.add.u32 $0, [" + kernel.global() + "], 1;";
  for (uint64_t seed : {0, 1}) {
    global[0] = 5;
    orders[seed] = results(kernel, Words(32), global, seed + 1);
    EXPECT_EQ(global[0], 37u);
    Words sorted = orders[seed], numbers(32);
    std::iota(numbers.begin(), numbers.end(), 5);
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, numbers);
  }
  EXPECT_NE(orders[0], orders[1]);

  // Wrapping counters.
  for (bool increment : {true, false}) {
    global[0] = increment ? 0 : 9;
    kernel.ptx = std::string("atom.relaxed.gpu.global.") +
                 (increment ? "inc" : "dec") + ".u32 $0, [" + kernel.global() +
                 "], 9;";
    Words got = results(kernel, Words(32), global);
    std::sort(got.begin(), got.end());
    for (size_t l = 0; l < 32; ++l) // 32 steps of 10: 0 and 1 four times
      EXPECT_EQ(got[l], increment ? (l < 8 ? l / 4 : (l - 8) / 3 + 2)
                                  : (l < 24 ? l / 3 : (l - 24) / 4 + 8));
    EXPECT_EQ(global[0], increment ? 2u : 7u);
  }

  // Exactly one lane swaps; the others find what it wrote.
  global[0] = 100;
  kernel.ptx = "{ .reg .u32 l; mov.u32 l, %laneid; atom.acquire.gpu.global."
               "cas.b32 $0, [" +
               kernel.global() + "], 100, l; }";
  const Words swapped = results(kernel, Words(32), global);
  EXPECT_EQ(std::count(swapped.begin(), swapped.end(), 100u), 1);
  ASSERT_LT(global[0], 32u);
  EXPECT_EQ(swapped[global[0]], 100u);
  EXPECT_EQ(std::count(swapped.begin(), swapped.end(), global[0]), 31);

  // What was exchanged and what is left are all there was.
  global[0] = 32;
  kernel.ptx = "{ .reg .u32 l; mov.u32 l, %laneid; atom.global.exch.b32 $0, [" +
               kernel.global() + "], l; }";
  Words exchanged = results(kernel, Words(32), global);
  exchanged.push_back(global[0]);
  std::sort(exchanged.begin(), exchanged.end());
  for (uint32_t l = 0; l < 33; ++l)
    EXPECT_EQ(exchanged[l], l);
}

//===--- Matrices in shared memory
//------------------------------------------===//

std::string vectorOf(unsigned first, unsigned count) {
  std::string list = "{";
  for (unsigned i = 0; i < count; ++i)
    list += (i ? ", $" : "$") + std::to_string(first + i);
  return list + "}";
}

TEST(EmulatorMemory, MatrixLoadsOfAllSizes) {
  // Row r of 16 bytes is lane r's four words.
  const Words words = randomWords(6, 128);
  auto element = [&](size_t row, size_t column) {
    return words[4 * row + column / 2] >> 16 * (column & 1) & 0xFFFF;
  };
  for (unsigned n : {1u, 2u, 4u})
    for (bool transposed : {false, true})
      for (const char *space : {"shared", "shared::cta"}) {
        WordKernel kernel{n, 4, ""};
        kernel.ptx =
            "{ .reg .u32 a; mov.u32 a, %laneid; mad.lo.u32 a, a, 16, " +
            kernel.shared() + "; ldmatrix.sync.aligned.m8n8.x" +
            std::to_string(n) + (transposed ? ".trans." : ".") + space +
            ".b16 " + vectorOf(0, n) + ", [a]; }";
        Words global(1);
        const Words got = results(kernel, words, global);
        for (size_t l = 0; l < 32; ++l)
          for (size_t m = 0; m < n; ++m) {
            const size_t row = l / 4, column = 2 * (l % 4), base = 8 * m;
            EXPECT_EQ(got[n * l + m],
                      transposed ? element(base + column, row) |
                                       element(base + column + 1, row) << 16
                                 : element(base + row, column) |
                                       element(base + row, column + 1) << 16)
                << n << transposed << " lane " << l;
          }
      }
}

TEST(EmulatorMemory, MatrixStoresAreLoadsBackwards) {
  const Words words = randomWords(7, 128);
  for (unsigned n : {1u, 2u, 4u})
    for (const char *trans : {"", ".trans"}) {
      WordKernel kernel{n, 4, ""};
      const std::string middle =
          "matrix.sync.aligned.m8n8.x" + std::to_string(n) + trans;
      kernel.ptx = "{ .reg .u32 a; mov.u32 a, %laneid; mad.lo.u32 a, a, 16, " +
                   kernel.shared() + "; st" + middle +
                   ".shared.b16 [a+1024], " + vectorOf(n, n) +
                   "; bar.warp.sync -1; ld" + middle + ".shared.b16 " +
                   vectorOf(0, n) + ", [a+1024]; }";
      Words global(1);
      const Words got = results(kernel, words, global);
      for (size_t l = 0; l < 32; ++l)
        for (size_t m = 0; m < n; ++m)
          EXPECT_EQ(got[n * l + m], words[4 * l + m]) << n << trans;
    }
}

TEST(EmulatorMemory, MatrixAccessesAreChecked) {
  WordKernel kernel{1, 4, ""};
  kernel.ptx = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {$0}, [" +
               kernel.shared() + "+4090];";
  EXPECT_NE(messageOf(kernel, Words(128)).find("misaligned access"),
            std::string::npos);
  kernel.ptx = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {$0}, [" +
               kernel.shared() + "+4096];";
  EXPECT_NE(messageOf(kernel, Words(128)).find("outside of shared memory"),
            std::string::npos);
  kernel.ptx = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {$0}, [" +
               kernel.shared() + "+1024];";
  EXPECT_NE(messageOf(kernel, Words(128)).find("that nothing wrote"),
            std::string::npos);
}

//===--- Asynchronous copies
//-------------------------------------------------===//

TEST(EmulatorMemory, CopiesFillWithZeros) {
  for (unsigned bytes : {4u, 8u, 16u})
    for (unsigned source : {0u, 3u, bytes}) {
      Words global = randomWords(8, 128);
      WordKernel kernel{4, 1, ""};
      kernel.ptx = "{ .reg .u32 s, l; .reg .u64 g; mov.u32 l, %laneid;"
                   "mul.lo.u32 l, l, 16; add.u32 s, l, " +
                   kernel.shared() + "; cvt.u64.u32 g, l; add.u64 g, g, " +
                   kernel.global() +
                   "; st.shared.v4.u32 [s+1024], {7, 7, 7, 7}; cp.async." +
                   (bytes == 16 ? "cg" : "ca") +
                   ".shared.global.L2::128B [s+1024], [g], " +
                   std::to_string(bytes) + ", " + std::to_string(source) +
                   "; cp.async.commit_group; cp.async.wait_group 0;"
                   "ld.shared.v4.u32 {$0, $1, $2, $3}, [s+1024]; }";
      const Words got = results(kernel, Words(32), global);
      for (size_t l = 0; l < 32; ++l) {
        uint32_t expected[4] = {7, 7, 7, 7};
        std::memset(expected, 0, bytes);
        std::memcpy(expected, &global[4 * l], source);
        for (size_t i = 0; i < 4; ++i)
          EXPECT_EQ(got[4 * l + i], expected[i]) << bytes << " " << source;
      }
    }
}

/// Lane 0 copies the buffer's 512 bytes to shared memory; all wait and read.
std::string bulkCopy(const WordKernel &kernel, const std::string &qualifiers,
                     const std::string &more, const std::string &before = "") {
  return "{ .reg .pred p; .reg .u32 l, b; .reg .u64 policy; mov.u32 l, "
         "%laneid; setp.eq.u32 p, l, 0; add.u32 b, " +
         kernel.shared() +
         ", 2048; @p mbarrier.init.shared.b64 [b], 1; @p "
         "fence.proxy.async.shared::cta; bar.warp.sync -1;" +
         before +
         "createpolicy.fractional.L2::evict_first.b64 policy;"
         "@p mbarrier.arrive.expect_tx.shared.b64 _, [b], 512;"
         "@p "
         "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" +
         qualifiers + " [" + kernel.shared() + "+1024], [" + kernel.global() +
         "], 512, [b]" + more +
         "; again: mbarrier.try_wait.parity.shared.b64 p, [b], 0;"
         "@!p bra again;"
         "mad.lo.u32 l, l, 16, " +
         kernel.shared() + "; ld.shared.v4.u32 {$0, $1, $2, $3}, [l+1024]; }";
}

TEST(EmulatorMemory, BulkCopies) {
  Words global = randomWords(9, 128);
  const Words given = global;
  WordKernel kernel{4, 1, ""};
  for (bool hint : {false, true})
    for (uint64_t seed : {1, 2, 3}) {
      kernel.ptx = bulkCopy(kernel, hint ? ".L2::cache_hint" : "",
                            hint ? ", policy" : "");
      EXPECT_EQ(results(kernel, Words(32), global, seed), given);
    }
}

TEST(EmulatorMemory, PrefetchesChangeNothing) {
  Words global = randomWords(10, 128);
  const Words given = global;
  WordKernel kernel{4, 1, ""};
  const std::string g = kernel.global();
  for (const std::string &prefetch :
       {"cp.async.bulk.prefetch.L2.global [" + g + "], 512;",
        "createpolicy.fractional.L2::evict_last.b64 policy; "
        "cp.async.bulk.prefetch.L2.global.L2::cache_hint [" +
            g + "+16], 496, policy;",
        "prefetch.global.L2 [" + g + "];", "prefetch.global.L1 [" + g + "];",
        "prefetch.global.L2::evict_last [" + g + "];",
        std::string("griddepcontrol.wait;"),
        std::string("griddepcontrol.launch_dependents;")}) {
    kernel.ptx = bulkCopy(kernel, "", "", prefetch);
    EXPECT_EQ(results(kernel, Words(32), global), given);
    EXPECT_EQ(global, given);
  }
}

TEST(EmulatorMemory, BulkPrefetchesAreChecked) {
  WordKernel kernel{1, 1, ""};
  const std::string g = kernel.global();
  auto message = [&](const std::string &operands) {
    kernel.ptx =
        "cp.async.bulk.prefetch.L2.global " + operands + "; mov.u32 $0, 0;";
    return messageOf(kernel, Words(32)); // 256 bytes
  };
  EXPECT_EQ(message("[" + g + "], 256"), "");
  EXPECT_NE(message("[" + g + "], 272").find("out-of-bounds"),
            std::string::npos);
  EXPECT_NE(message("[" + g + "+8], 32").find("misaligned"), std::string::npos);
  EXPECT_NE(message("[" + g + "], 24").find("misaligned"), std::string::npos);
}

TEST(EmulatorMemory, IntrinsicsThatChangeNothing) {
  const char *text = R"(
llvm.func @kernel(%in: !llvm.ptr<1>, %n: i32) attributes {nvvm.kernel} {
  nvvm.griddepcontrol wait
  nvvm.griddepcontrol launch_dependents
  nvvm.cp.async.bulk.prefetch %in, %n : !llvm.ptr<1>
  nvvm.prefetch level = L2, %in : !llvm.ptr<1>
  llvm.return
})";
  DeviceMemory in(64);
  for (int32_t bytes : {64, 80}) {
    const Report report =
        run(text, {Argument::of(in.data()), Argument::of(bytes)},
            {in.buffer("in", true)});
    EXPECT_EQ(report.ok, bytes == 64) << report.str();
  }
}

} // namespace
