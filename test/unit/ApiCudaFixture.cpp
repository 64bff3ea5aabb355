//===- ApiCudaFixture.cpp - A context on the stand-in driver ------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Installs a package of each program and makes the references their kernels.
//
//===----------------------------------------------------------------------===//

#include "ApiCudaFixture.h"

#include "ReferenceAppend.h"
#include "ReferenceDecode.h"

#include "ffd/Package.h"
#include "ffd/Plan.h"

#include <cstdlib>
#include <dlfcn.h>
#include <mutex>
#include <unistd.h>

using namespace ffd;

ffdSpec ApiCuda::theSpec;
ffdPlanArgs ApiCuda::lastPlan;

static std::mutex planMutex;

void ApiCuda::append(const ffdAppendArgs *args) {
  referenceAppend(theSpec, *args);
}

void ApiCuda::plan(const ffdPlanArgs *args) {
  {
    std::lock_guard<std::mutex> lock(planMutex);
    lastPlan = *args;
  }
  PlanOptions options;
  options.batch = args->batch;
  options.kvHeads = args->kv_heads;
  options.lag = args->lag;
  options.target = args->target;
  options.blocksPerPiece = args->blocks_per_piece;
  options.slots = args->slots;
  options.slotCount = args->slot_count;
  options.committed = args->committed;
  options.multiprocessors = args->multiprocessors;
  options.resident = args->resident;
  const Status status =
      planPieces(theSpec, options, args->lengths, args->plan, args->pieces);
  EXPECT_TRUE(status.ok()) << status.message();
}

void ApiCuda::SetUp() {
  fake = reinterpret_cast<FakeCudaState *(*)()>(
      dlsym(dlopen(FFD_FAKE_CUDA, RTLD_NOW), "fakeCudaState"))();
  fake->memoryLeft = -1;
  fake->kernel = ReferenceDecode::entry;
  fake->append = append;
  fake->plan = plan;
  fake->planned = ReferenceDecode::launchPlanned;
  fake->plans = 0;
  theSpec = makeSpec(64, 32, 2);
  theSpec.centre = centre();
  ReferenceDecode::setEntrySpec(theSpec);
  ASSERT_NE(mkdtemp(folder), nullptr);
  for (const Program program :
       {Program::Decode, Program::Append, Program::Plan}) {
    Package package;
    package.program = program;
    package.target = "sm_90a";
    package.entry =
        program == Program::Decode ? "ffd_decode" : programName(program);
    package.spec = theSpec;
    if (program == Program::Append) // one for all groups
      package.spec.group = 4;
    if (program == Program::Plan) // and for all specifications
      package.spec = makeSpec(128, 128, 4);
    package.threads = 128;
    package.payload = "code";
    paths.push_back(std::string(folder) + "/" + package.fileName());
    Status status = package.write(paths.back());
    ASSERT_TRUE(status.ok()) << status.message();
  }
  ffdContextOptions o;
  ffdContextOptionsInit(&o);
  o.device = FFD_DEVICE_CUDA;
  o.cuda_driver = FFD_FAKE_CUDA;
  o.package_dir = folder;
  o.use_compiler = 0;
  o.kernel_cache_dir = "";
  FFD_OK(ffdContextCreate(&o, &context));
  std::shared_ptr<const CudaDriver> driver;
  ASSERT_TRUE(CudaDriver::load(FFD_FAKE_CUDA, driver).ok());
  ASSERT_TRUE(CudaContext::create(driver, 0, cuda).ok());
  ASSERT_TRUE(cuda->createStream(stream).ok());
}

void ApiCuda::TearDown() {
  ffdContextDestroy(context);
  cuda.reset();
  EXPECT_EQ(fake->contextDepth, 0);
  EXPECT_EQ(fake->retains, 0);
  EXPECT_EQ(fake->liveAllocations, 0);
  for (const std::string &path : paths)
    std::remove(path.c_str());
  rmdir(folder);
}
