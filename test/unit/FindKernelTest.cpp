//===- FindKernelTest.cpp - Packages first, then the JIT ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A stand-in compiler library; packages that exist, do not, or lie; and the
// message when nothing is found.
//
//===----------------------------------------------------------------------===//

#include "FakeCuda.h"
#include "RandomCase.h"

#include "ffd/CudaDriver.h"
#include "ffd/FindKernel.h"
#include "ffd/Package.h"

#include "gtest/gtest.h"

#include <cstdio>
#include <dlfcn.h>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <unistd.h>

using namespace ffd;

namespace {

class FindKernelTest : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder), nullptr);
    options.pool = &testPool();
    options.jitPath = FFD_FAKE_JIT;
    options.packageDir = folder;
    auto *fake = reinterpret_cast<FakeCudaState *(*)()>(
        dlsym(dlopen(FFD_FAKE_CUDA, RTLD_NOW), "fakeCudaState"))();
    fake->kernel = nullptr;
    fake->memoryLeft = -1;
    std::shared_ptr<const CudaDriver> driver;
    ASSERT_TRUE(CudaDriver::load(FFD_FAKE_CUDA, driver).ok());
    ASSERT_TRUE(CudaContext::create(driver, 0, options.cuda).ok());
  }
  void TearDown() override {
    for (const std::string &path : written)
      std::remove(path.c_str());
    rmdir(folder);
  }

  std::string pathOf(const std::string &target) const {
    return std::string(folder) + "/" +
           Package::fileName(options.program, spec, target);
  }
  void write(const Package &package, const std::string &path) {
    Status status = package.write(path);
    ASSERT_TRUE(status.ok()) << status.message();
    written.push_back(path);
  }
  Package gpuPackage(const std::string &target) const {
    Package package;
    package.target = target;
    package.entry = "ffd_decode";
    package.spec = spec;
    package.threads = 64;
    package.payload = "from disk";
    return package;
  }
  /// A package whose payload is the stand-in compiler itself: a shared object
  /// with some function in it.
  Package cpuPackage(const std::string &target) const {
    Package package;
    package.kind = PackageKind::CpuObject;
    package.target = target;
    package.entry = "ffdJitRelease";
    package.spec = spec;
    std::ifstream file(FFD_FAKE_JIT, std::ios::binary);
    package.payload.assign(std::istreambuf_iterator<char>(file), {});
    return package;
  }

  ffdSpec spec = makeSpec();
  FindKernelOptions options;
  char folder[32] = "/tmp/ffd-find-XXXXXX";
  std::vector<std::string> written;
  std::unique_ptr<DecodeKernel> kernel;
};

TEST_F(FindKernelTest, CompilesWhatNoPackageHolds) {
  Status status = findKernel(spec, options, kernel);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(kernel->target(), "cpu:fake");
  options.target = "cuda";
  status = findKernel(spec, options, kernel);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(kernel->target(), "sm_90a");
  EXPECT_EQ(kernel->program(), Program::Decode);
  options.program = Program::Exact;
  ASSERT_TRUE(findKernel(spec, options, kernel).ok());
  EXPECT_EQ(kernel->program(), Program::Exact);
}

/// Also from the compiler, whose code the driver's assembler would turn into
/// code for the device.
TEST_F(FindKernelTest, TargetsThatTheDeviceDoesNotRun) {
  for (const char *target : {"sm_100a", "sm_100", "sm_80a", "sm_", "sm_9x"}) {
    options.target = target;
    Status status = findKernel(spec, options, kernel);
    EXPECT_EQ(status.code(), StatusCode::Unsupported) << target;
    EXPECT_EQ(status.message(), "code for target '" + std::string(target) +
                                    "' does not run on 'Fake GPU' (sm_90a)");
    EXPECT_EQ(kernel, nullptr);
  }
  for (const char *target : {"sm_80", "sm_90", "sm_90a"}) {
    options.target = target;
    Status status = findKernel(spec, options, kernel);
    EXPECT_TRUE(status.ok()) << target << ": " << status.message();
  }
}

TEST_F(FindKernelTest, ACertificateIsOfTopDeltaInOneKernel) {
  spec.certificate = FFD_CERTIFICATE_PLAIN;
  ASSERT_TRUE(findKernel(spec, options, kernel).ok());
  EXPECT_EQ(kernel->spec().certificate, FFD_CERTIFICATE_PLAIN);
  const auto refused = [&] {
    EXPECT_NE(findKernel(spec, options, kernel)
                  .message()
                  .find("'certificate' is 1 (plain) for program"),
              std::string::npos);
  };
  options.selector.split = true;
  refused();
  options.selector = Selector();
  options.selector.rule = Rule::All;
  refused();
  options.selector = Selector();
  options.program = Program::Exact;
  refused();
}

TEST_F(FindKernelTest, ARefinedPseudoMaxIsOfTopDelta) {
  spec.pseudo_max = FFD_PSEUDO_MAX_REFINED;
  ASSERT_TRUE(findKernel(spec, options, kernel).ok());
  EXPECT_EQ(kernel->spec().pseudo_max, FFD_PSEUDO_MAX_REFINED);
  const auto refused = [&] {
    EXPECT_NE(findKernel(spec, options, kernel)
                  .message()
                  .find("'pseudo_max' is 1 (refined) for program"),
              std::string::npos);
  };
  options.selector.rule = Rule::All;
  refused();
  options.selector.rule = Rule::TopDelta;
  options.program = Program::Exact;
  refused();
}

TEST_F(FindKernelTest, PrefersPackages) {
  write(gpuPackage("sm_80"), pathOf("sm_80"));
  options.target = "cuda";
  ASSERT_TRUE(findKernel(spec, options, kernel).ok());
  EXPECT_EQ(kernel->target(), "sm_80");
  write(gpuPackage("sm_90a"), pathOf("sm_90a"));
  ASSERT_TRUE(findKernel(spec, options, kernel).ok());
  EXPECT_EQ(kernel->target(), "sm_90a");
  write(cpuPackage("cpu"), pathOf("cpu"));
  options.target = "cpu";
  Status status = findKernel(spec, options, kernel);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(kernel->target(), "cpu");
}

/// The compiler names its targets more exactly than it is asked; packages of
/// all those names are found, the best first, and none that this machine cannot
/// run.
TEST_F(FindKernelTest, PackagesOfEveryInstructionSet) {
  std::vector<std::string> runs;
  for (const char *target :
       {"cpu", "cpu:avx2", "cpu:avx512", "cpu:avx512vnni"}) {
    options.target = target;
    Status status = findKernel(spec, options, kernel);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::Unsupported)
        << status.message();
    write(cpuPackage(target), pathOf(target));
    const bool found = findKernel(spec, options, kernel).ok();
    EXPECT_EQ(found, status.ok()) << target;
    if (found) {
      EXPECT_EQ(kernel->target(), target);
      runs.push_back(target);
    }
  }
  options.target = "cpu";
  ASSERT_TRUE(findKernel(spec, options, kernel).ok());
  EXPECT_EQ(kernel->target(), runs.back());
}

TEST_F(FindKernelTest, ReleasesWhatTheCompilerMade) {
  auto *live = reinterpret_cast<int (*)()>(
      dlsym(dlopen(FFD_FAKE_JIT, RTLD_NOW), "fakeJitLive"));
  const int before = live();
  ASSERT_TRUE(findKernel(spec, options, kernel).ok());
  EXPECT_EQ(live(), before + 1);
  kernel.reset();
  EXPECT_EQ(live(), before);
  options.target = "sm_90a";
  ASSERT_TRUE(findKernel(spec, options, kernel).ok());
  EXPECT_EQ(live(), before);
}

TEST_F(FindKernelTest, BadPackagesFallBackToTheCompiler) {
  Package other = gpuPackage("sm_90a");
  other.spec.group = 8;
  write(other, pathOf("sm_90a")); // its name says group 4
  options.target = "cuda";
  std::string passedOver;
  options.passedOver = &passedOver;
  EXPECT_TRUE(findKernel(spec, options, kernel).ok());
  EXPECT_NE(passedOver.find("expected what its name says"), std::string::npos)
      << passedOver;
  // A good package that is second best does not hide that the best one is bad.
  write(gpuPackage("sm_80"), pathOf("sm_80"));
  EXPECT_TRUE(findKernel(spec, options, kernel).ok());
  EXPECT_EQ(kernel->target(), "sm_80");
  EXPECT_NE(passedOver.find("expected what its name says"), std::string::npos);
  options.target = "sm_80";
  EXPECT_TRUE(findKernel(spec, options, kernel).ok());
  EXPECT_EQ(passedOver, "");
  unlink(pathOf("sm_80").c_str());
  options.target = "cuda";
  options.useJit = false;
  Status status = findKernel(spec, options, kernel);
  EXPECT_EQ(status.code(), StatusCode::Corrupt);
  EXPECT_NE(status.message().find("expected what its name says"),
            std::string::npos)
      << status.message();
}

/// The first byte of a shared object that no segment needs: how long the code
/// is differs between processors.
static size_t endOfSegments(const std::string &bytes) {
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  size_t end = 0;
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment,
                bytes.data() + header.e_phoff + size_t(i) * sizeof segment,
                sizeof segment);
    end = std::max(end, size_t(segment.p_offset + segment.p_filesz));
  }
  return end;
}

/// The checksum is right, the code is not all there: loading it would be fatal.
TEST_F(FindKernelTest, TruncatedCodeIsNotLoaded) {
  options.useJit = false;
  const Package whole = cpuPackage("cpu");
  const size_t end = endOfSegments(whole.payload);
  ASSERT_GT(end, 200u);
  ASSERT_LE(end, whole.payload.size());
  for (size_t size :
       {size_t(1), size_t(63), size_t(64), size_t(100), end / 2, end - 1}) {
    Package package = whole;
    package.payload.resize(size);
    write(package, pathOf("cpu"));
    Status status = findKernel(spec, options, kernel);
    EXPECT_NE(status.message().find(size < 64 ? "holds no ELF code"
                                              : "segments exceed its"),
              std::string::npos)
        << size << " of " << end << ": " << status.message();
  }
}

TEST_F(FindKernelTest, SaysWhatWasLookedForAndWhere) {
  options.jitPath = "/nonexistent/libffd-jit.so";
  Status status = findKernel(spec, options, kernel);
  EXPECT_EQ(status.code(), StatusCode::NotFound);
  for (const std::string &part :
       {std::string("no kernel 'decode-d128-v128-g4-f16-b2-q128-s16' for "
                    "target 'cpu'"),
        pathOf("cpu"), options.jitPath})
    EXPECT_NE(status.message().find(part), std::string::npos)
        << status.message();
  options.jitPath = FFD_FAKE_CUDA; // a library of something else
  status = findKernel(spec, options, kernel);
  EXPECT_NE(status.message().find("lacks ffdJitAbiVersion"), std::string::npos);
  options.jitPath = "/dev/zero";
  status = findKernel(spec, options, kernel);
  EXPECT_NE(status.message().find("compiler library '/dev/zero' is a device, "
                                  "expected a regular file"),
            std::string::npos)
      << status.message();
}

TEST_F(FindKernelTest, CompilerErrorsComeThrough) {
  spec.group = 13;
  Status status = findKernel(spec, options, kernel);
  EXPECT_EQ(status.code(), StatusCode::CompileError);
  EXPECT_NE(status.message().find("13 is unlucky"), std::string::npos);
}

TEST_F(FindKernelTest, OptionsAreChecked) {
  options.target = "tpu";
  EXPECT_NE(
      findKernel(spec, options, kernel).message().find("'target' is 'tpu'"),
      std::string::npos);
  for (const char *target : {"cpu:", "cpu:neon", "cpus", "cpu:../cpu"}) {
    options.target = target;
    Status status = findKernel(spec, options, kernel);
    EXPECT_EQ(status.code(), StatusCode::InvalidArgument);
    EXPECT_NE(status.message().find(std::string("'target' is '") + target +
                                    "', expected cpu, cpu:avx2"),
              std::string::npos)
        << status.message();
  }
  options.target = "cpu";
  options.pool = nullptr;
  EXPECT_FALSE(findKernel(spec, options, kernel).ok());
  options.target = "cuda";
  options.cuda.reset();
  EXPECT_FALSE(findKernel(spec, options, kernel).ok());
  spec.scan_bits = 3;
  EXPECT_NE(
      findKernel(spec, options, kernel).message().find("'scan_bits' is 3"),
      std::string::npos);
}

} // namespace
