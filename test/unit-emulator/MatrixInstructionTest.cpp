//===- MatrixInstructionTest.cpp - mma and moves of matrices ------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Matrix instructions against products and transposes written down from the
// element formulas of the PTX manual.
//
//===----------------------------------------------------------------------===//

#include "TextKernel.h"

#include "ffd/Float16.h"

#include <random>

using namespace ffd::emulator;

namespace {

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

} // namespace
