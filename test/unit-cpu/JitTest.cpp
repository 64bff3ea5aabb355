//===- JitTest.cpp - The C interface of the compiler ------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// libffd-jit as a foreign caller uses it: wrong arguments are messages, never
// accesses outside of what the caller owns, and threads do not disturb each
// other.
//
//===----------------------------------------------------------------------===//

#include "GuardedCase.h"
#include "RandomCase.h"

#include "ffd/FindKernel.h"
#include "ffd/Jit.h"
#include "ffd/Package.h"

#include "gtest/gtest.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <thread>
#include <unistd.h>

using namespace ffd;

namespace {

struct Library {
  Library() {
    void *handle = dlopen(FFD_JIT, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle, nullptr) << dlerror();
    compile =
        reinterpret_cast<decltype(compile)>(dlsym(handle, "ffdJitCompile"));
    release =
        reinterpret_cast<decltype(release)>(dlsym(handle, "ffdJitRelease"));
  }
  decltype(&ffdJitCompile) compile;
  decltype(&ffdJitRelease) release;
};

const Library &jit() {
  static const Library library;
  return library;
}

/// A result whose outputs begin as garbage, and the buffer for its message.
struct Result : ffdJitResult {
  Result() {
    std::memset(static_cast<ffdJitResult *>(this), 0x5A, sizeof(ffdJitResult));
    struct_size = sizeof(ffdJitResult);
    error = text;
    error_size = sizeof text;
  }
  char text[512] = {};
};

std::string messageOf(const ffdSpec &spec, const char *target,
                      const char *program = "decode") {
  Result result;
  EXPECT_NE(jit().compile(&spec, target, program, &result), 0) << target;
  // A caller may release what it did not get.
  EXPECT_EQ(result.owner, nullptr);
  EXPECT_EQ(result.entry, nullptr);
  EXPECT_EQ(result.package, nullptr);
  EXPECT_EQ(result.target, nullptr);
  jit().release(&result);
  return result.text;
}

TEST(Jit, WrongTargetsAndSpecsAreMessages) {
  const ffdSpec spec = makeSpec();
  const auto expect = [](const std::string &message, const char *part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(messageOf(spec, ""), "arch is ''");
  expect(messageOf(spec, "tpu"), "arch is 'tpu'");
  expect(messageOf(spec, "cpu:sse"), "'sse', expected avx2");
  expect(messageOf(spec, "cpu:avx2:avx2"), "'avx2:avx2', expected avx2");
  expect(messageOf(spec, "cpu:"),
         "target is 'cpu:', expected an instruction set after the colon");
  expect(messageOf(spec, "sm_90a:"), "target is 'sm_90a:'");
  expect(messageOf(spec, "sm_90a:avx2"), "isa is 'avx2'");
  expect(messageOf(spec, "sm_9000000000000000000000"), "arch is 'sm_9000");
  expect(messageOf(spec, "cpu", "decoder"), "program is 'decoder'");
  ffdSpec bad = spec;
  bad.element = 7;
  expect(messageOf(bad, "cpu"), "element 7");
  bad = spec;
  bad.pseudo_max = 2;
  expect(messageOf(bad, "cpu"), "pseudo_max 2");
  bad = spec;
  bad.certificate = 3;
  expect(messageOf(bad, "cpu"), "certificate 3");
  for (int32_t value : {INT32_MIN, -1, 0, 3, INT32_MAX})
    for (auto field :
         {&ffdSpec::head_dim, &ffdSpec::value_dim, &ffdSpec::group,
          &ffdSpec::scan_bits, &ffdSpec::quant_block, &ffdSpec::select_block}) {
      bad = spec;
      bad.*field = value;
      if (field != &ffdSpec::group || value != 3)
        EXPECT_NE(messageOf(bad, "cpu"), "");
    }
  Result result;
  EXPECT_NE(jit().compile(nullptr, "cpu", "decode", &result), 0);
  EXPECT_NE(jit().compile(&spec, nullptr, "decode", &result), 0);
  EXPECT_NE(jit().compile(&spec, "cpu", nullptr, &result), 0);
  EXPECT_NE(jit().compile(&spec, "cpu", "decode", nullptr), 0);
  jit().release(nullptr);
}

/// The struct of an older caller ends where its memory does.
TEST(Jit, ReadsNoMoreThanTheStructHas) {
  const ffdSpec spec = makeSpec();
  char text[64] = {};
  for (uint64_t size :
       {uint64_t(8), uint64_t(16), uint64_t(offsetof(ffdJitResult, entry)),
        uint64_t(sizeof(ffdJitResult) - 8)}) {
    ffdJitResult result = {};
    result.struct_size = size;
    result.error = text;
    result.error_size = sizeof text;
    text[0] = 0;
    GuardedBuffer guarded(&result, int64_t(size), /*atEnd=*/true);
    guarded.makeReadOnly();
    EXPECT_NE(jit().compile(&spec, "cpu", "decode",
                            reinterpret_cast<ffdJitResult *>(guarded.data())),
              0);
    EXPECT_EQ(std::string(text).find("ffdJitResult has struct_size") == 0,
              size >= offsetof(ffdJitResult, entry))
        << size << ": " << text;
  }
}

TEST(Jit, MessagesAreCutToTheBuffer) {
  const ffdSpec spec = makeSpec();
  for (uint64_t size : {0, 1, 5}) {
    Result result;
    GuardedBuffer guarded(result.text, int64_t(size), /*atEnd=*/true);
    result.error = reinterpret_cast<char *>(guarded.data());
    result.error_size = size;
    EXPECT_NE(jit().compile(&spec, "tpu", "decode", &result), 0);
    if (size)
      EXPECT_EQ(std::string(result.error),
                std::string("arch is").substr(0, size - 1));
  }
}

TEST(Jit, CompilesFromManyThreads) {
  std::string packages[8];
  std::thread threads[8];
  for (int i = 0; i < 8; ++i)
    threads[i] = std::thread([i, &packages] {
      // Good and bad ones, for both kinds of target, at once.
      const ffdSpec spec = makeSpec(64, 64, 1 + i / 2 % 2);
      EXPECT_EQ(messageOf(spec, "cpu:sse").find("isa is 'sse'"), 0u);
      Result result;
      ASSERT_EQ(
          jit().compile(&spec, i % 2 ? "sm_90a" : "cpu", "decode", &result), 0)
          << result.text;
      EXPECT_EQ(result.entry != nullptr, i % 2 == 0);
      if (result.package)
        packages[i].assign(static_cast<const char *>(result.package),
                           size_t(result.package_size));
      jit().release(&result);
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(packages[1], packages[5]);
  EXPECT_EQ(packages[3], packages[7]);
  EXPECT_NE(packages[1], packages[3]);
}

/// The code of a package, loaded by the runtime, is that of the function.
TEST(Jit, StepsOfSplitExecutionForGpus) {
  const ffdSpec spec = makeSpec();
  for (const char *program :
       {"select", "select #ffd.top_delta", "attend", "decode"}) {
    SCOPED_TRACE(program);
    Result result;
    ASSERT_EQ(jit().compile(&spec, "sm_90a", program, &result), 0)
        << result.text;
    EXPECT_EQ(result.entry, nullptr);
    Package package;
    Status status = Package::parse(result.package, size_t(result.package_size),
                                   "compiled", package);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(package.program, Program::Decode);
    EXPECT_TRUE(package.spec == spec);
    const std::string step(program, std::strcspn(program, " "));
    EXPECT_EQ(package.entry, step == "decode" ? step : "decode_" + step);
    const size_t first = package.payload.find(".entry");
    EXPECT_NE(first, std::string::npos);
    EXPECT_EQ(package.payload.find(".entry", first + 1), std::string::npos);
    jit().release(&result);
  }
  EXPECT_NE(messageOf(spec, "sm_90a", "select #ffd.top_k<4>"), "");
}

TEST(Jit, PackagesOfCpuCode) {
  CaseShape shape;
  shape.spec = makeSpec(96, 64, 3, FFD_BF16);
  shape.lengths = {700, 0, 128};
  Result result;
  ASSERT_EQ(jit().compile(&shape.spec, "cpu", "decode", &result), 0)
      << result.text;
  ASSERT_NE(result.package, nullptr);
  Package package;
  Status status = Package::parse(result.package, size_t(result.package_size),
                                 "compiled", package);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(package.target, result.target);

  char folder[] = "/tmp/ffd-jit-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/" + package.fileName();
  ASSERT_TRUE(package.write(path).ok());
  FindKernelOptions options;
  options.pool = &testPool();
  options.packageDir = folder;
  options.useJit = false;
  std::unique_ptr<DecodeKernel> loaded;
  status = findKernel(shape.spec, options, loaded);
  ASSERT_TRUE(status.ok()) << status.message();
  CpuKernel compiled(shape.spec, Program::Decode, result.target, result.entry,
                     nullptr, testPool());
  RandomCase a(shape, 5), b(shape, 5);
  ASSERT_TRUE(loaded->decode(a.args).ok());
  ASSERT_TRUE(compiled.decode(b.args).ok());
  EXPECT_EQ(std::memcmp(a.out.data(), b.out.data(), size_t(a.out.size())), 0);
  EXPECT_EQ(std::memcmp(a.lse.data(), b.lse.data(), size_t(a.lse.size())), 0);
  std::remove(path.c_str());
  rmdir(folder);
  jit().release(&result);
}

} // namespace
