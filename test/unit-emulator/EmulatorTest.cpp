//===- EmulatorTest.cpp - The emulator's instructions, one by one ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Matrix instructions against matrix products written down from the element
// formulas of the PTX manual, arithmetic of 16-bit floats against exact
// arithmetic, and what the C++ interface promises.
//
//===----------------------------------------------------------------------===//

#include "ffd/Emulator/Emulator.h"

#include "ffd/Float16.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

#include <cmath>
#include <random>

using namespace ffd::emulator;

namespace {

/// Runs kernel `@kernel` of a text on one warp.
Report run(const std::string &text, llvm::ArrayRef<Argument> arguments,
           llvm::ArrayRef<Buffer> buffers, LaunchConfig config = {},
           Options options = {}) {
  mlir::DialectRegistry registry;
  registry.insert<mlir::LLVM::LLVMDialect, mlir::NVVM::NVVMDialect>();
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module) {
    Report report;
    report.ok = false;
    report.message = "cannot parse";
    return report;
  }
  return emulateKernel(*module, "kernel", config, arguments, buffers, options);
}

/// A kernel in which every lane loads `in` words of its own, executes an
/// instruction of inline assembly on them and stores `out` words.
std::string wordKernel(unsigned out, unsigned in, const std::string &ptx) {
  std::string s = "llvm.func @kernel(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) "
                  "attributes {nvvm.kernel} {\n"
                  "%lane = nvvm.read.ptx.sreg.tid.x : i32\n";
  auto n = [](unsigned i) { return std::to_string(i); };
  s += "%ni = llvm.mlir.constant(" + n(in) + " : i32) : i32\n";
  s += "%no = llvm.mlir.constant(" + n(out) + " : i32) : i32\n";
  s += "%oi = llvm.mul %lane, %ni : i32\n%oo = llvm.mul %lane, %no : i32\n";
  s += "%pi = llvm.getelementptr %in[%oi] : (!llvm.ptr<1>, i32) -> "
       "!llvm.ptr<1>, i32\n";
  s += "%po = llvm.getelementptr %out[%oo] : (!llvm.ptr<1>, i32) -> "
       "!llvm.ptr<1>, i32\n";
  std::string operands, types, constraints, results;
  for (unsigned i = 0; i < in; ++i) {
    s += "%a" + n(i) + " = llvm.getelementptr %pi[" + n(i) +
         "] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32\n%x" + n(i) +
         " = llvm.load %a" + n(i) + " : !llvm.ptr<1> -> i32\n";
    operands += (i ? ", %x" : "%x") + n(i);
    types += i ? ", i32" : "i32";
  }
  for (unsigned i = 0; i < out; ++i) {
    constraints += i ? ",=r" : "=r";
    results += i ? ", i32" : "i32";
  }
  for (unsigned i = 0; i < in; ++i)
    constraints += ",r";
  std::string record = out == 1 ? "i32" : "!llvm.struct<(" + results + ")>";
  s += "%r = llvm.inline_asm has_side_effects \"" + ptx + "\", \"" +
       constraints + "\" " + operands + " : (" + types + ") -> " + record +
       "\n";
  for (unsigned i = 0; i < out; ++i) {
    std::string value = "%r";
    if (out > 1) {
      value = "%y" + n(i);
      s += value + " = llvm.extractvalue %r[" + n(i) + "] : " + record + "\n";
    }
    s += "%b" + n(i) + " = llvm.getelementptr %po[" + n(i) +
         "] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32\nllvm.store " + value +
         ", %b" + n(i) + " : i32, !llvm.ptr<1>\n";
  }
  return s + "llvm.return\n}\n";
}

std::vector<uint32_t> runWords(unsigned out, unsigned in,
                               const std::string &ptx,
                               const std::vector<uint32_t> &words) {
  DeviceMemory input(words.data(), words.size() * 4), output(32 * out * 4);
  Report report = run(wordKernel(out, in, ptx),
                      {Argument::of(input.data()), Argument::of(output.data())},
                      {input.buffer("in", true), output.buffer("out")});
  EXPECT_TRUE(report.ok) << report.str();
  return {output.as<uint32_t>(), output.as<uint32_t>() + 32 * out};
}

const char *const mmaOperands =
    "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};";

/// Row and column of element `i` of lane `l` in A, B and C of the manual's
/// figures for 16-bit m16n8k16 (`per` 2) and 8-bit m16n8k32 (`per` 4).
std::pair<int, int> placeA(int l, int i, int per) {
  const int group = l >> 2, thread = l & 3;
  const bool lower = (i / per) % 2 == 0; // a0..: rows g, g+8, g, g+8
  return {lower ? group : group + 8,
          thread * per + i % per + (i >= 2 * per ? 4 * per : 0)};
}
std::pair<int, int> placeB(int l, int i, int per) {
  return {(l & 3) * per + i % per + (i >= per ? 4 * per : 0), l >> 2};
}
std::pair<int, int> placeC(int l, int i) {
  return {(l >> 2) + (i >= 2 ? 8 : 0), (l & 3) * 2 + (i & 1)};
}

TEST(EmulatorMatrix, IntegerMma) {
  std::mt19937 random(1);
  for (bool unsignedA : {true, false}) {
    int a[16][32], b[32][8], c[16][8];
    std::vector<uint32_t> words(32 * 10);
    for (auto &row : a)
      for (int &x : row)
        x = unsignedA ? int(random() % 256) : int(random() % 256) - 128;
    for (auto &row : b)
      for (int &x : row)
        x = int(random() % 256) - 128;
    for (auto &row : c)
      for (int &x : row)
        x = int(random());
    for (int l = 0; l < 32; ++l) {
      uint32_t *w = &words[size_t(l) * 10];
      for (int i = 0; i < 16; ++i) {
        auto [r, k] = placeA(l, i, 4);
        w[i / 4] |= uint32_t(uint8_t(a[r][k])) << 8 * (i % 4);
      }
      for (int i = 0; i < 8; ++i) {
        auto [k, n] = placeB(l, i, 4);
        w[4 + i / 4] |= uint32_t(uint8_t(b[k][n])) << 8 * (i % 4);
      }
      for (int i = 0; i < 4; ++i) {
        auto [r, n] = placeC(l, i);
        w[6 + i] = uint32_t(c[r][n]);
      }
    }
    auto result =
        runWords(4, 10,
                 std::string("mma.sync.aligned.m16n8k32.row.col.s32.") +
                     (unsignedA ? "u8" : "s8") + ".s8.s32 " + mmaOperands,
                 words);
    for (int l = 0; l < 32; ++l)
      for (int i = 0; i < 4; ++i) {
        auto [r, n] = placeC(l, i);
        uint32_t sum = uint32_t(c[r][n]);
        for (int k = 0; k < 32; ++k)
          sum += uint32_t(a[r][k] * b[k][n]);
        EXPECT_EQ(result[size_t(4 * l + i)], sum);
      }
  }
}

TEST(EmulatorMatrix, FloatMma) {
  std::mt19937 random(2);
  for (int element : {FFD_F16, FFD_BF16}) {
    uint16_t a[16][16], b[16][8];
    float c[16][8];
    // Subnormal f16 take part exactly, as 8-bit integers do in this project.
    for (auto &row : a)
      for (uint16_t &x : row)
        x = element == FFD_F16
                ? uint16_t(random() % 1024)
                : ffd::f32ToElement(element, float(random() % 99));
    std::normal_distribution<float> normal;
    for (auto &row : b)
      for (uint16_t &x : row)
        x = ffd::f32ToElement(element, normal(random));
    for (auto &row : c)
      for (float &x : row)
        x = normal(random);
    std::vector<uint32_t> words(32 * 10);
    for (int l = 0; l < 32; ++l) {
      uint32_t *w = &words[size_t(l) * 10];
      for (int i = 0; i < 8; ++i) {
        auto [r, k] = placeA(l, i, 2);
        w[i / 2] |= uint32_t(a[r][k]) << 16 * (i % 2);
      }
      for (int i = 0; i < 4; ++i) {
        auto [k, n] = placeB(l, i, 2);
        w[4 + i / 2] |= uint32_t(b[k][n]) << 16 * (i % 2);
      }
      for (int i = 0; i < 4; ++i) {
        auto [r, n] = placeC(l, i);
        std::memcpy(&w[6 + i], &c[r][n], 4);
      }
    }
    std::string type = element == FFD_F16 ? "f16" : "bf16";
    auto result = runWords(4, 10,
                           "mma.sync.aligned.m16n8k16.row.col.f32." + type +
                               "." + type + ".f32 " + mmaOperands,
                           words);
    for (int l = 0; l < 32; ++l)
      for (int i = 0; i < 4; ++i) {
        auto [r, n] = placeC(l, i);
        double sum = 0;
        for (int k = 0; k < 16; ++k)
          sum += double(ffd::elementToF32(element, a[r][k])) *
                 double(ffd::elementToF32(element, b[k][n]));
        float got;
        std::memcpy(&got, &result[size_t(4 * l + i)], 4);
        EXPECT_EQ(got, float(sum + double(c[r][n])));
      }
  }
}

TEST(EmulatorMatrix, Movmatrix) {
  std::vector<uint32_t> words(32);
  for (unsigned l = 0; l < 32; ++l) // element (row, column) is 8 row + column
    words[l] = (8 * (l / 4) + 2 * (l % 4)) | (8 * (l / 4) + 2 * (l % 4) + 1)
                                                 << 16;
  auto result =
      runWords(1, 1, "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", words);
  for (unsigned l = 0; l < 32; ++l)
    EXPECT_EQ(result[l], (8 * (2 * (l % 4)) + l / 4) |
                             (8 * (2 * (l % 4) + 1) + l / 4) << 16);
}

TEST(EmulatorMatrix, LoadsAndStores) {
  // Lane l stores 16 bytes at row l; ldmatrix.x4 reads four matrices, .trans
  // their transposes; stmatrix.trans writes those back as they were.
  const char *text = R"(
llvm.mlir.global internal @s() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<256 x i32>
llvm.func @kernel(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %lane = nvvm.read.ptx.sreg.tid.x : i32
  %all = llvm.mlir.constant(-1 : i32) : i32
  %s = llvm.mlir.addressof @s : !llvm.ptr<3>
  %row = llvm.getelementptr %s[%lane] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, vector<4xi32>
  %from = llvm.getelementptr %in[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, vector<4xi32>
  %x = llvm.load %from {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
  llvm.store %x, %row {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<3>
  nvvm.bar.warp.sync %all : i32
  %m = nvvm.ldmatrix %row {num = 4 : i32, layout = #nvvm.mma_layout<row>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32, i32, i32)>
  %t = nvvm.ldmatrix %row {num = 4 : i32, layout = #nvvm.mma_layout<col>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32, i32, i32)>
  %m0 = llvm.extractvalue %m[0] : !llvm.struct<(i32, i32, i32, i32)>
  %m3 = llvm.extractvalue %m[3] : !llvm.struct<(i32, i32, i32, i32)>
  %t0 = llvm.extractvalue %t[0] : !llvm.struct<(i32, i32, i32, i32)>
  %t1 = llvm.extractvalue %t[1] : !llvm.struct<(i32, i32, i32, i32)>
  %t2 = llvm.extractvalue %t[2] : !llvm.struct<(i32, i32, i32, i32)>
  %t3 = llvm.extractvalue %t[3] : !llvm.struct<(i32, i32, i32, i32)>
  %second = llvm.getelementptr %row[512] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
  nvvm.stmatrix %second, %t0, %t1, %t2, %t3 {layout = #nvvm.mma_layout<col>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, eltType = #nvvm.ld_st_matrix_elt_type<b16>} : !llvm.ptr<3>, i32, i32, i32, i32
  %c8 = llvm.mlir.constant(8 : i32) : i32
  %at = llvm.mul %lane, %c8 : i32
  %o = llvm.getelementptr %out[%at] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
  %o1 = llvm.getelementptr %o[1] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
  %o2 = llvm.getelementptr %o[2] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
  %o4 = llvm.getelementptr %o[4] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
  llvm.store %m0, %o : i32, !llvm.ptr<1>
  llvm.store %m3, %o1 : i32, !llvm.ptr<1>
  llvm.store %t2, %o2 : i32, !llvm.ptr<1>
  nvvm.bar.warp.sync %all : i32
  %y = llvm.load %second {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xi32>
  llvm.store %y, %o4 {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
  llvm.return
})";
  std::vector<uint16_t> data(256);
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = uint16_t(i * 7 + 1);
  DeviceMemory in(data.data(), 512), out(32 * 8 * 4);
  Report report = run(text, {Argument::of(in.data()), Argument::of(out.data())},
                      {in.buffer("in", true), out.buffer("out")});
  ASSERT_TRUE(report.ok) << report.str();
  auto element = [&](unsigned matrix, unsigned row, unsigned column) {
    return uint32_t(data[(matrix * 8 + row) * 8 + column]);
  };
  for (unsigned l = 0; l < 32; ++l) {
    const uint32_t *o = out.as<uint32_t>() + 8 * l;
    unsigned r = l / 4, c = 2 * (l % 4);
    EXPECT_EQ(o[0], element(0, r, c) | element(0, r, c + 1) << 16);
    EXPECT_EQ(o[1], element(3, r, c) | element(3, r, c + 1) << 16);
    EXPECT_EQ(o[2], element(2, c, r) | element(2, c + 1, r) << 16);
    EXPECT_EQ(std::memcmp(o + 4, &data[l * 8], 16), 0) << l;
  }
}

/// The f16 nearest to an exact number, ties to even, from integers only: x is
/// a multiple of 2^-48 as a 128-bit integer.
uint16_t nearestHalf(__int128 x) {
  const bool negative = x < 0;
  unsigned __int128 a = negative ? -(unsigned __int128)x : (unsigned __int128)x;
  // Candidates in ascending order have ascending bits: search for the largest
  // finite one not above.
  auto valueOf = [](uint32_t bits) {
    uint32_t exponent = bits >> 10, mantissa = bits & 1023;
    return exponent
               ? (unsigned __int128)(1024 + mantissa) << (24 + exponent - 1)
               : (unsigned __int128)mantissa << 24;
  };
  uint32_t low = 0, high = 0x7C00; // the value of 0x7C00 counts as 65536
  while (high - low > 1) {
    uint32_t middle = (low + high) / 2;
    (valueOf(middle) <= a ? low : high) = middle;
  }
  unsigned __int128 below = valueOf(low), above = valueOf(low + 1);
  uint32_t bits = low;
  if (a - below > above - a || (a - below == above - a && (low & 1)))
    bits = low + 1;
  if (a >= above)
    bits = 0x7C00;
  return uint16_t(bits | (negative ? 0x8000 : 0));
}

__int128 exactHalf(uint16_t bits) { // in units of 2^-24
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  __int128 value = exponent ? __int128(1024 + mantissa) << (exponent - 1)
                            : __int128(mantissa);
  return bits & 0x8000 ? -value : value;
}

TEST(EmulatorFloat, HalfFmaRoundsOnce) {
  std::mt19937 random(3);
  std::vector<uint32_t> words(32 * 3 * 64);
  // 64 warps' worth of triples, two in each word, most of them near a tie.
  int checked = 0;
  for (int round = 0; round < 64; ++round) {
    std::vector<uint32_t> w(96);
    for (uint32_t &x : w) {
      auto half = [&] {
        uint16_t bits = uint16_t(random());
        return (bits & 0x7C00) == 0x7C00 ? uint16_t(bits & 0x83FF) : bits;
      };
      x = half() | uint32_t(half()) << 16;
    }
    auto result = runWords(1, 3, "fma.rn.f16x2 $0, $1, $2, $3;", w);
    for (unsigned l = 0; l < 32; ++l)
      for (unsigned part : {0u, 16u}) {
        uint16_t a = uint16_t(w[3 * l] >> part),
                 b = uint16_t(w[3 * l + 1] >> part),
                 c = uint16_t(w[3 * l + 2] >> part);
        __int128 exact =
            exactHalf(a) * exactHalf(b) + exactHalf(c) * (__int128(1) << 24);
        if (exact == 0)
          continue; // the sign of zero has rules of its own
        ++checked;
        EXPECT_EQ(uint16_t(result[l] >> part), nearestHalf(exact))
            << a << " " << b << " " << c;
      }
  }
  EXPECT_GT(checked, 4000);
}

TEST(EmulatorFloat, HalfFmaOfLLVM) {
  // A product and a sum that lie just above a tie: rounding to f32 first loses
  // the bit that decides.
  const char *text = R"(
llvm.func @kernel(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %x = llvm.load %in {alignment = 8 : i64} : !llvm.ptr<1> -> vector<4xf16>
  %i0 = llvm.mlir.constant(0 : i64) : i64
  %i1 = llvm.mlir.constant(1 : i64) : i64
  %i2 = llvm.mlir.constant(2 : i64) : i64
  %a = llvm.extractelement %x[%i0 : i64] : vector<4xf16>
  %b = llvm.extractelement %x[%i1 : i64] : vector<4xf16>
  %c = llvm.extractelement %x[%i2 : i64] : vector<4xf16>
  %r = llvm.intr.fma(%a, %b, %c) : (f16, f16, f16) -> f16
  llvm.store %r, %out : f16, !llvm.ptr<1>
  llvm.return
})";
  std::mt19937 random(4);
  int different = 0;
  for (int tries = 0; tries < 200000 && different < 5; ++tries) {
    uint16_t in[4];
    for (uint16_t &x : in)
      x = uint16_t(random() % 0x7C00);
    float a = ffd::elementToF32(FFD_F16, in[0]),
          b = ffd::elementToF32(FFD_F16, in[1]),
          c = ffd::elementToF32(FFD_F16, in[2]);
    __int128 exact = exactHalf(in[0]) * exactHalf(in[1]) +
                     exactHalf(in[2]) * (__int128(1) << 24);
    uint16_t expected = nearestHalf(exact);
    if (ffd::f32ToElement(FFD_F16, std::fma(a, b, c)) == expected)
      continue;
    ++different;
    DeviceMemory input(in, 8), output(2);
    LaunchConfig one;
    one.block = {1, 1, 1};
    Report report =
        run(text, {Argument::of(input.data()), Argument::of(output.data())},
            {input.buffer("in", true), output.buffer("out")}, one);
    ASSERT_TRUE(report.ok) << report.str();
    EXPECT_EQ(*output.as<uint16_t>(), expected);
  }
  EXPECT_EQ(different, 5);
}

TEST(EmulatorFloat, ConversionsAndApproximations) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 30);
  std::vector<uint32_t> words(64);
  std::vector<float> x(64);
  for (size_t i = 0; i < 64; ++i) {
    x[i] = normal(random);
    std::memcpy(&words[i], &x[i], 4);
  }
  auto halves = runWords(1, 2, "cvt.rn.f16x2.f32 $0, $1, $2;", words);
  auto bfloats = runWords(1, 2, "cvt.rn.bf16x2.f32 $0, $1, $2;", words);
  auto powers = runWords(1, 1, "ex2.approx.ftz.f32 $0, $1;", words);
  auto logs = runWords(1, 1, "lg2.approx.f32 $0, $1;", words);
  for (size_t l = 0; l < 32; ++l) {
    EXPECT_EQ(halves[l], ffd::f32ToElement(FFD_F16, x[2 * l + 1]) |
                             uint32_t(ffd::f32ToElement(FFD_F16, x[2 * l]))
                                 << 16);
    EXPECT_EQ(bfloats[l], ffd::f32ToElement(FFD_BF16, x[2 * l + 1]) |
                              uint32_t(ffd::f32ToElement(FFD_BF16, x[2 * l]))
                                  << 16);
    float got;
    std::memcpy(&got, &powers[l], 4);
    EXPECT_NEAR(got / std::exp2(double(x[l])), 1, 0x1p-22);
    std::memcpy(&got, &logs[l], 4);
    if (x[l] > 0) {
      EXPECT_NEAR(got, std::log2(double(x[l])), 1e-6 * (1 + std::fabs(got)));
    } else {
      EXPECT_TRUE(std::isnan(got));
    }
  }
  auto permuted = runWords(1, 2, "prmt.b32 $0, $1, $2, 0x9F40;", words);
  for (size_t l = 0; l < 32; ++l) {
    uint32_t a = words[2 * l], b = words[2 * l + 1];
    uint32_t expected = (a & 0xFF) | (b & 0xFF) << 8 |
                        (b >> 31 ? 0xFF0000u : 0) |
                        (a >> 15 & 1 ? 0xFF000000u : 0);
    EXPECT_EQ(permuted[l], expected);
  }
}

TEST(EmulatorInterface, ByValueParameterAndSchedules) {
  // A struct by value; blocks add to one counter in an order that the seed
  // draws: the same seed gives the same order.
  const char *text = R"(
llvm.func @kernel(%args: !llvm.ptr {llvm.byval = !llvm.struct<(ptr, ptr, i32)>, nvvm.grid_constant}) attributes {nvvm.kernel} {
  %block = nvvm.read.ptx.sreg.ctaid.x : i32
  %counter = llvm.load %args : !llvm.ptr -> !llvm.ptr
  %p1 = llvm.getelementptr %args[8] : (!llvm.ptr) -> !llvm.ptr, i8
  %order = llvm.load %p1 : !llvm.ptr -> !llvm.ptr
  %p2 = llvm.getelementptr %args[16] : (!llvm.ptr) -> !llvm.ptr, i8
  %step = llvm.load %p2 : !llvm.ptr -> i32
  %old = llvm.atomicrmw add %counter, %step monotonic : !llvm.ptr, i32
  %o = llvm.getelementptr %order[%old] : (!llvm.ptr, i32) -> !llvm.ptr, i32
  llvm.store %block, %o : i32, !llvm.ptr
  llvm.return
})";
  struct Args {
    void *counter, *order;
    int32_t step;
  };
  auto order = [&](uint64_t seed) {
    DeviceMemory counter(4), result(32 * 4);
    Args args{counter.data(), result.data(), 1};
    LaunchConfig config;
    config.grid = {32, 1, 1};
    config.block = {1, 1, 1};
    Options options;
    options.seed = seed;
    options.residentBlocks = 4;
    Report report = run(text, {Argument::of(args)},
                        {counter.buffer("counter"), result.buffer("order")},
                        config, options);
    EXPECT_TRUE(report.ok) << report.str();
    EXPECT_EQ(*counter.as<int32_t>(), 32);
    return std::vector<int32_t>(result.as<int32_t>(),
                                result.as<int32_t>() + 32);
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

TEST(EmulatorInterface, RejectsBadLaunches) {
  const char *text = R"(
llvm.func @kernel(%x: i32) attributes {nvvm.kernel} { llvm.return })";
  EXPECT_NE(run(text, {}, {}).message.find("has 1 parameters, not 0"),
            std::string::npos);
  EXPECT_NE(run(text, {Argument::of<uint8_t>(1)}, {})
                .message.find("parameter 0 has 4 bytes, not 1"),
            std::string::npos);
  LaunchConfig config;
  config.block = {2048, 1, 1};
  EXPECT_FALSE(run(text, {Argument::of<int32_t>(1)}, {}, config).ok);
}

} // namespace
