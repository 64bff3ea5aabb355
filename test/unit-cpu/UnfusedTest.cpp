//===- UnfusedTest.cpp - Split execution ------------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Without --ffd-fuse a decode is two kernels that meet in a mask in memory. Run
// one after the other they keep the same blocks as the reference, and give its
// output.
//
//===----------------------------------------------------------------------===//

#include "RandomCase.h"
#include "ReferenceDecode.h"

#include "ffd/Driver/Compiler.h"
#include "ffd/Driver/Programs.h"
#include "ffd/Spec.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstring>

using namespace ffd;

/// Compiles one kernel of the unfused program.
static std::unique_ptr<mlir::ffd::CPUKernel>
compileStep(mlir::MLIRContext &context, const ffdSpec &spec,
            llvm::StringRef entry, llvm::StringRef selector) {
  auto attribute = mlir::ffd::getSpecAttr(&context, spec);
  auto module = mlir::ffd::buildProgram(&context, mlir::ffd::Program::Decode,
                                        attribute, selector);
  mlir::ffd::CompilerOptions options;
  options.fuse = false;
  options.isa = "avx2";
  std::string error;
  auto kernel = mlir::ffd::compileCPUKernel(*module, entry, options, error);
  EXPECT_TRUE(mlir::succeeded(kernel)) << error;
  return mlir::succeeded(kernel) ? std::move(*kernel) : nullptr;
}

static void checkUnfused(ffdSpec spec, llvm::StringRef selector) {
  if (selector.contains("refined"))
    spec.pseudo_max = FFD_PSEUDO_MAX_REFINED;
  if (!mlir::ffd::isSupportedISA("avx2"))
    GTEST_SKIP() << "this machine has no avx2";
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  mlir::DialectRegistry registry;
  mlir::ffd::registerCompilerDialects(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
  auto select = compileStep(context, spec, "decode_select", selector);
  auto attend = compileStep(context, spec, "decode_attend", selector);
  ASSERT_TRUE(select && attend);

  CaseShape shape;
  shape.spec = spec;
  shape.lengths = {1000, 0, 100, 128, 384};
  shape.delta = selector == "#ffd.all" ? INFINITY : 3;
  RandomCase decode(shape, 20261129);
  const int64_t rows = decode.cache->rows();

  ReferenceDecode reference(spec, decode.args);
  for (int64_t row = 0; row < rows; ++row)
    reference.run(row);
  std::vector<uint8_t> kept(decode.kept.data(),
                            decode.kept.data() + decode.kept.size());
  const float *out = decode.out.as<float>();
  std::vector<float> expected(out, out + decode.out.size() / 4);

  std::memset(decode.out.data(), 0xFF, size_t(decode.out.size()));
  std::memset(decode.kept.data(), 0, size_t(decode.kept.size()));
  HostBuffer workspace;
  const int32_t splits = 2;
  ASSERT_TRUE(
      workspace
          .allocate("workspace",
                    layoutOf(spec).workspaceBytes(rows, splits, spec.group), 0)
          .ok());
  ffdDecodeArgs args = decode.args;
  args.workspace = workspace.data();
  args.splits = splits;
  for (auto *kernel : {select.get(), attend.get()})
    for (int64_t task = 0; task < rows * splits; ++task)
      kernel->getEntry()(&args, task / splits, task % splits);

  EXPECT_EQ(std::memcmp(kept.data(), decode.kept.data(), kept.size()), 0);
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += double(out[i] - expected[i]) * (out[i] - expected[i]);
    norm += double(expected[i]) * expected[i];
  }
  EXPECT_LE(std::sqrt(error), 1e-5 * std::sqrt(norm));
}

TEST(Unfused, KeepsAndAttendsLikeTheReference) {
  checkUnfused(makeSpec(128, 128, 4, FFD_F16, 2, 16), "#ffd.top_delta");
  checkUnfused(makeSpec(80, 48, 3, FFD_BF16, 4, 64), "#ffd.top_delta");
}

TEST(Unfused, RefinedPseudoMax) {
  checkUnfused(makeSpec(128, 64, 2, FFD_F16, 2, 32),
               "#ffd.top_delta<pseudo_max = refined>");
}

TEST(Unfused, AllKeepsEverything) {
  checkUnfused(makeSpec(64, 64, 2, FFD_F16, 2, 32), "#ffd.all");
}
