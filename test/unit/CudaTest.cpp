//===- CudaTest.cpp - The host side of the GPU path ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A stand-in driver runs the reference as the kernel: what reaches the device
// is complete, what comes back is the same as on the CPU, and nothing leaks.
//
//===----------------------------------------------------------------------===//

#include "FakeCuda.h"
#include "RandomCase.h"
#include "ReferenceDecode.h"

#include "ffd/CudaDriver.h"
#include "ffd/Package.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstring>
#include <dlfcn.h>

using namespace ffd;

namespace {

class CudaTest : public testing::Test {
protected:
  void SetUp() override {
    void *library = dlopen(FFD_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    fake = reinterpret_cast<FakeCudaState *(*)()>(
        dlsym(library, "fakeCudaState"))();
    fake->kernel = ReferenceDecode::entry;
    fake->memoryLeft = -1;
    fake->launches = 0;
    fake->sharedOptIn = 0;
    fake->major = 9;
    std::shared_ptr<const CudaDriver> driver;
    Status status = CudaDriver::load(FFD_FAKE_CUDA, driver);
    ASSERT_TRUE(status.ok()) << status.message();
    status = CudaContext::create(driver, 0, context);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  void TearDown() override {
    context.reset();
    EXPECT_EQ(fake->liveAllocations, 0);
    EXPECT_EQ(fake->liveModules, 0);
    EXPECT_EQ(fake->contextDepth, 0);
    EXPECT_EQ(fake->retains, 0);
  }

  Package package(const ffdSpec &spec) const {
    Package p;
    p.target = "sm_90a";
    p.entry = "ffd_decode";
    p.spec = spec;
    p.threads = 256;
    p.sharedBytes = 100000;
    p.payload = "a kernel";
    return p;
  }

  FakeCudaState *fake = nullptr;
  std::shared_ptr<CudaContext> context;
};

TEST_F(CudaTest, DescribesTheDevice) {
  EXPECT_EQ(context->device().name, "Fake GPU");
  EXPECT_EQ(context->device().arch(), "sm_90a");
  EXPECT_EQ(context->device().multiprocessors, 4);
  EXPECT_EQ(context->driver().version(), 12040);
}

TEST_F(CudaTest, DecodesAsTheCpuDoes) {
  CaseShape shape;
  shape.spec = makeSpec(80, 48, 3, FFD_BF16, 4, 32);
  shape.lengths = {700, 0, 128, 40};
  shape.pageSeed = 5;
  ReferenceDecode::setEntrySpec(shape.spec);
  RandomCase cpu(shape, 1), gpu(shape, 1);
  // What a decode does not write comes back as it was.
  std::memset(cpu.kept.data(), 0x7E, size_t(cpu.kept.size()));
  std::memset(gpu.kept.data(), 0x7E, size_t(gpu.kept.size()));
  CpuKernel onCpu(shape.spec, Program::Decode, "cpu", ReferenceDecode::entry,
                  nullptr, testPool());
  ASSERT_TRUE(onCpu.decode(cpu.args).ok());

  std::unique_ptr<CudaKernel> kernel;
  Status status = CudaKernel::create(context, package(shape.spec), kernel);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(fake->sharedOptIn, 100000);
  gpu.args.splits = 2;
  status = kernel->decode(gpu.args);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(fake->launches, 1);
  EXPECT_EQ(fake->grid, gpu.cache->rows() * 2);
  EXPECT_EQ(fake->threads, 256);
  EXPECT_EQ(fake->sharedBytes, 100000);
  EXPECT_EQ(std::memcmp(cpu.out.data(), gpu.out.data(), size_t(cpu.out.size())),
            0);
  EXPECT_EQ(std::memcmp(cpu.lse.data(), gpu.lse.data(), size_t(cpu.lse.size())),
            0);
  EXPECT_EQ(
      std::memcmp(cpu.kept.data(), gpu.kept.data(), size_t(cpu.kept.size())),
      0);

  std::vector<float> times;
  EXPECT_TRUE(kernel->timeLaunches(2, 3, times).ok());
  EXPECT_EQ(times, std::vector<float>(3, 0.25f));
  EXPECT_EQ(fake->launches, 6);
}

TEST_F(CudaTest, BadModulesAndEntriesAreStatuses) {
  std::unique_ptr<CudaKernel> kernel;
  Package p = package(makeSpec());
  p.payload = "bad PTX";
  Status status = CudaKernel::create(context, p, kernel);
  EXPECT_EQ(status.code(), StatusCode::DeviceError);
  EXPECT_NE(status.message().find("ptxas says: line 7"), std::string::npos);
  EXPECT_NE(status.message().find("driver for CUDA 12.4"), std::string::npos);
  p = package(makeSpec());
  p.entry = "other";
  EXPECT_FALSE(CudaKernel::create(context, p, kernel).ok());
  p = package(makeSpec());
  p.sharedBytes = 300000;
  EXPECT_FALSE(CudaKernel::create(context, p, kernel).ok());
  p = package(makeSpec());
  p.kind = PackageKind::CpuObject;
  EXPECT_FALSE(CudaKernel::create(context, p, kernel).ok());
  for (const char *target : {"sm_100a", "sm_100", "sm_80a", "sm_", "cpu"}) {
    p = package(makeSpec());
    p.target = target;
    EXPECT_EQ(CudaKernel::create(context, p, kernel).code(),
              StatusCode::Unsupported)
        << target;
  }
  p.target = "sm_80"; // older PTX runs, an older cubin does not
  EXPECT_TRUE(CudaKernel::create(context, p, kernel).ok());
  p.kind = PackageKind::Cubin;
  EXPECT_FALSE(CudaKernel::create(context, p, kernel).ok());
}

TEST_F(CudaTest, OutOfMemoryIsAStatus) {
  CaseShape shape;
  ReferenceDecode::setEntrySpec(shape.spec);
  RandomCase c(shape, 1);
  std::unique_ptr<CudaKernel> kernel;
  ASSERT_TRUE(CudaKernel::create(context, package(shape.spec), kernel).ok());
  fake->memoryLeft = 100000;
  Status status = kernel->decode(c.args);
  EXPECT_EQ(status.code(), StatusCode::OutOfMemory);
  EXPECT_NE(status.message().find("bytes of device memory for the"),
            std::string::npos);
  EXPECT_FALSE(kernel->launch().ok());
  fake->memoryLeft = -1;
  EXPECT_TRUE(kernel->decode(c.args).ok());
}

TEST_F(CudaTest, GraphsRecordLaunchesOverDeviceMemory) {
  CaseShape shape;
  ReferenceDecode::setEntrySpec(shape.spec);
  RandomCase c(shape, 1);
  std::unique_ptr<CudaKernel> kernel;
  ASSERT_TRUE(CudaKernel::create(context, package(shape.spec), kernel).ok());
  EXPECT_EQ(kernel->residentCtas(), 8);
  CudaGraph graph, other;
  EXPECT_FALSE(graph.launch().ok());
  EXPECT_FALSE(graph.end().ok());
  ASSERT_TRUE(graph.begin(context).ok());
  EXPECT_FALSE(other.begin(context).ok()) << "one at a time";
  ffdDecodeArgs args = c.args;
  args.splits = 0;
  EXPECT_FALSE(kernel->launchResident(args).ok());
  ASSERT_TRUE(graph.end().ok());
  EXPECT_FALSE(graph.begin(context).ok()) << "once only";
  EXPECT_TRUE(graph.launch().ok());
  { // Left in the middle; the context is usable again.
    CudaGraph abandoned;
    ASSERT_TRUE(abandoned.begin(context).ok());
  }
  EXPECT_TRUE(other.begin(context).ok());
  EXPECT_TRUE(other.end().ok());
}

TEST_F(CudaTest, BuffersRepeatWithinThemselves) {
  CudaBuffer buffer;
  ASSERT_TRUE(buffer.reserve(context, "test", 64).ok());
  const char text[] = "abcd";
  char back[8] = {};
  ASSERT_TRUE(buffer.upload(text, 4).ok());
  ASSERT_TRUE(buffer.repeat(4, 0, 4).ok());
  ASSERT_TRUE(buffer.download(back, 8).ok());
  EXPECT_EQ(std::string(back, 8), "abcdabcd");
  EXPECT_FALSE(buffer.repeat(62, 0, 4).ok());
}

TEST(CudaDriver, AMissingLibrarySaysWhatToInstall) {
  std::shared_ptr<const CudaDriver> driver;
  Status status = CudaDriver::load("/nonexistent/libcuda.so.1", driver);
  EXPECT_EQ(status.code(), StatusCode::NotFound);
  EXPECT_NE(status.message().find("install the NVIDIA driver"),
            std::string::npos);
  status = CudaDriver::load(FFD_FAKE_JIT, driver); // a library, but not that
  EXPECT_EQ(status.code(), StatusCode::Unsupported);
  EXPECT_NE(status.message().find("lacks the function 'cuInit'"),
            std::string::npos);
  status = CudaDriver::load("/dev/zero", driver);
  EXPECT_EQ(status.message(), "CUDA driver library '/dev/zero' is a device, "
                              "expected a regular file");
}

} // namespace
