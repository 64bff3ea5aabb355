//===- ApiCudaFixture.h - A context on the stand-in driver ------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A context on the stand-in for the CUDA driver, whose kernels are the
// references of the tests.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TEST_UNIT_APICUDAFIXTURE_H
#define FFD_TEST_UNIT_APICUDAFIXTURE_H

#include "ApiCase.h"
#include "FakeCuda.h"

#include "ffd/CudaDriver.h"
#include "ffd/abi.h"

#include "gtest/gtest.h"

#include <memory>
#include <string>
#include <vector>

namespace ffd {

class ApiCuda : public testing::Test {
protected:
  void SetUp() override;
  void TearDown() override;

  virtual int32_t centre() const { return FFD_CENTRE_NONE; }
  void randomLife(); // ApiCudaTest.cpp

  ffdCacheOptions options() const {
    ffdCacheOptions o = ApiCase::small(theSpec);
    o.sequences = 4;
    return o;
  }

  FakeCudaState *fake = nullptr;
  char folder[32] = "/tmp/ffd-apicuda-XXXXXX";
  std::vector<std::string> paths;
  ffdContext *context = nullptr;
  std::shared_ptr<CudaContext> cuda;
  void *stream = nullptr;

  static ffdSpec theSpec;      ///< of the test that runs
  static ffdPlanArgs lastPlan; ///< what the plan kernel was last given

private:
  static void append(const ffdAppendArgs *args);
  static void plan(const ffdPlanArgs *args);
};

} // namespace ffd
#endif // FFD_TEST_UNIT_APICUDAFIXTURE_H
