//===- CudaDriver.cpp - The CUDA driver, found at run time --------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loading the library, and opening its devices.
//
//===----------------------------------------------------------------------===//

#include "CudaSymbols.h"
#include "Files.h"

#include <dlfcn.h>

using namespace ffd;

//===----------------------------------------------------------------------===//
// CudaDriver
//===----------------------------------------------------------------------===//

CudaDriver::CudaDriver() : table(new CudaSymbols) {}

// libcuda keeps threads of its own and must not be unloaded.
CudaDriver::~CudaDriver() = default;

Status CudaDriver::load(const std::string &path,
                        std::shared_ptr<const CudaDriver> &result) {
  const std::string name = path.empty() ? "libcuda.so.1" : path;
  FFD_RETURN_IF_ERROR(checkLibraryFile(name, "CUDA driver library"));
  std::shared_ptr<CudaDriver> driver(new CudaDriver);
  driver->library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!driver->library)
    return Status(StatusCode::NotFound,
                  "cannot load the CUDA driver library '" + name +
                      "': " + dlerror() +
                      "; install the NVIDIA driver of this machine's GPU "
                      "(Debian: package nvidia-driver or libcuda1)");
  CudaSymbols &cuda = *driver->table;
#define FFD_RESOLVE(member, symbol, parameters)                                \
  cuda.member = reinterpret_cast<CUresult(*) parameters>(                      \
      dlsym(driver->library, symbol));                                         \
  if (!cuda.member)                                                            \
    return Status(StatusCode::Unsupported,                                     \
                  "the CUDA driver library '" + name +                         \
                      "' lacks the function '" symbol                          \
                      "'; install a driver that supports CUDA 11.4 or newer");
  FFD_CUDA_SYMBOLS(FFD_RESOLVE)
#undef FFD_RESOLVE
  const CUresult started = cuda.init(0);
  if (started == kNoDevice)
    return Status(StatusCode::NotFound,
                  "the CUDA driver library '" + name +
                      "' finds no device, expected at least one NVIDIA GPU");
  FFD_RETURN_IF_ERROR(cuda.check(started, "initialise the driver"));
  FFD_RETURN_IF_ERROR(cuda.check(cuda.driverGetVersion(&driver->driverVersion),
                                 "tell the driver's version"));
  result = std::move(driver);
  return Status::success();
}

Status CudaDriver::deviceCount(int &count) const {
  return table->check(table->deviceGetCount(&count), "count the devices");
}

//===----------------------------------------------------------------------===//
// CudaContext
//===----------------------------------------------------------------------===//

std::string CudaDeviceInfo::arch() const {
  // From Hopper on, architecture-specific code is what uses the hardware.
  return "sm_" + std::to_string(major * 10 + minor) + (major >= 9 ? "a" : "");
}

bool CudaDeviceInfo::runs(const std::string &target, bool machineCode) const {
  if (target == arch())
    return true;
  if (target.compare(0, 3, "sm_") != 0)
    return false;
  int number = 0;
  for (char c : target.substr(3)) {
    if (c < '0' || c > '9') // "a" and "f": that architecture only
      return false;
    number = number * 10 + (c - '0');
    if (number > 9999)
      return false;
  }
  const int ofMajor = number / 10, ofMinor = number % 10;
  if (ofMajor == 0)
    return false;
  if (machineCode)
    return ofMajor == major && ofMinor <= minor;
  return ofMajor < major || (ofMajor == major && ofMinor <= minor);
}

Status CudaContext::create(std::shared_ptr<const CudaDriver> driver, int device,
                           std::shared_ptr<CudaContext> &result) {
  return adopt(std::move(driver), device, nullptr, result);
}

Status CudaContext::adopt(std::shared_ptr<const CudaDriver> driver, int device,
                          void *handle, std::shared_ptr<CudaContext> &result) {
  int count = 0;
  FFD_RETURN_IF_ERROR(driver->deviceCount(count));
  if (device < 0 || device >= count)
    return Status(StatusCode::NotFound,
                  "CUDA device is " + std::to_string(device) +
                      ", expected 0 to " + std::to_string(count - 1));
  const CudaSymbols &cuda = driver->symbols();
  std::shared_ptr<CudaContext> context(new CudaContext);
  CudaDeviceInfo &info = context->info;
  char name[256] = {};
  size_t memory = 0;
  const auto attribute = [&](int which, int &value) {
    return cuda.check(cuda.deviceGetAttribute(&value, which, context->ordinal),
                      "describe the device");
  };
  FFD_RETURN_IF_ERROR(cuda.check(cuda.deviceGet(&context->ordinal, device),
                                 "open device " + std::to_string(device)));
  FFD_RETURN_IF_ERROR(
      cuda.check(cuda.deviceGetName(name, sizeof name - 1, context->ordinal),
                 "name the device"));
  FFD_RETURN_IF_ERROR(cuda.check(cuda.deviceTotalMem(&memory, context->ordinal),
                                 "measure the device's memory"));
  FFD_RETURN_IF_ERROR(attribute(kComputeMajor, info.major));
  FFD_RETURN_IF_ERROR(attribute(kComputeMinor, info.minor));
  FFD_RETURN_IF_ERROR(attribute(kMultiprocessorCount, info.multiprocessors));
  FFD_RETURN_IF_ERROR(attribute(kMaxSharedOptin, info.maxSharedPerBlock));
  int cacheBytes = 0;
  FFD_RETURN_IF_ERROR(attribute(kL2CacheSize, cacheBytes));
  info.cacheBytes = cacheBytes;
  info.name = name;
  info.memoryBytes = int64_t(memory);
  context->handle = handle;
  if (!handle) {
    FFD_RETURN_IF_ERROR(
        cuda.check(cuda.primaryRetain(&context->handle, context->ordinal),
                   "open the primary context of '" + info.name + "'"));
    context->retained = true;
  }
  context->cuda = std::move(driver);
  result = std::move(context);
  return Status::success();
}

CudaContext::~CudaContext() {
  if (retained)
    cuda->symbols().primaryRelease(ordinal);
}

Status CudaContext::synchronize() const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.ctxSynchronize(), "finish a kernel");
}
