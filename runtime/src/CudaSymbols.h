//===- CudaSymbols.h - Functions of the CUDA driver -------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The types and numbers below are the driver API's stable ABI, declared here so
// that building needs no CUDA headers.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SRC_CUDASYMBOLS_H
#define FFD_SRC_CUDASYMBOLS_H

#include "ffd/CudaDriver.h"

#include <string>

namespace ffd {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using Handle = void *; // context, module, function, stream, event, graph

constexpr CUresult kOutOfMemory = 2;
constexpr CUresult kNoDevice = 100;
constexpr CUresult kNotReady = 600;
constexpr CUresult kUnsupportedPtx = 222;
// CUjitInputType
constexpr int kInputPtx = 1;

// CUdevice_attribute
constexpr int kMultiprocessorCount = 16, kL2CacheSize = 38;
constexpr int kComputeMajor = 75, kComputeMinor = 76;
constexpr int kMaxSharedOptin = 97;
// CUfunction_attribute
constexpr int kLocalSizeBytes = 3, kNumRegs = 4, kMaxDynamicShared = 8;
// CUjit_option
constexpr int kErrorLogBuffer = 5, kErrorLogBytes = 6;
// CUstreamCaptureMode: other threads may do as they like; CUstream_flags: not
// ordered with the default stream
constexpr int kCaptureThreadLocal = 1;
constexpr unsigned kNonBlocking = 1;
// CUmemhostalloc flags: usable in all contexts, mapped for the device
constexpr unsigned kPortable = 1, kDeviceMap = 2;
/// Dynamic shared memory that needs no opting in.
constexpr int kDefaultShared = 48 * 1024;

// X(member, symbol, parameters)
#define FFD_CUDA_SYMBOLS(X)                                                    \
  X(init, "cuInit", (unsigned))                                                \
  X(driverGetVersion, "cuDriverGetVersion", (int *))                           \
  X(getErrorName, "cuGetErrorName", (CUresult, const char **))                 \
  X(getErrorString, "cuGetErrorString", (CUresult, const char **))             \
  X(deviceGetCount, "cuDeviceGetCount", (int *))                               \
  X(deviceGet, "cuDeviceGet", (CUdevice *, int))                               \
  X(deviceGetName, "cuDeviceGetName", (char *, int, CUdevice))                 \
  X(deviceGetAttribute, "cuDeviceGetAttribute", (int *, int, CUdevice))        \
  X(deviceTotalMem, "cuDeviceTotalMem_v2", (size_t *, CUdevice))               \
  X(primaryRetain, "cuDevicePrimaryCtxRetain", (Handle *, CUdevice))           \
  X(primaryRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                \
  X(ctxPush, "cuCtxPushCurrent_v2", (Handle))                                  \
  X(ctxPop, "cuCtxPopCurrent_v2", (Handle *))                                  \
  X(ctxSynchronize, "cuCtxSynchronize", ())                                    \
  X(linkCreate, "cuLinkCreate_v2", (unsigned, int *, void **, Handle *))       \
  X(linkAddData, "cuLinkAddData_v2",                                           \
    (Handle, int, void *, size_t, const char *, unsigned, int *, void **))     \
  X(linkComplete, "cuLinkComplete", (Handle, void **, size_t *))               \
  X(linkDestroy, "cuLinkDestroy", (Handle))                                    \
  X(moduleLoadDataEx, "cuModuleLoadDataEx",                                    \
    (Handle *, const void *, unsigned, int *, void **))                        \
  X(moduleUnload, "cuModuleUnload", (Handle))                                  \
  X(moduleGetFunction, "cuModuleGetFunction",                                  \
    (Handle *, Handle, const char *))                                          \
  X(funcSetAttribute, "cuFuncSetAttribute", (Handle, int, int))                \
  X(funcGetAttribute, "cuFuncGetAttribute", (int *, int, Handle))              \
  X(launchKernel, "cuLaunchKernel",                                            \
    (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,       \
     unsigned, Handle, void **, void **))                                      \
  X(memAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t))                        \
  X(memFree, "cuMemFree_v2", (CUdeviceptr))                                    \
  X(memcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr, const void *, size_t))        \
  X(memcpyDtoH, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t))              \
  X(memcpyDtoD, "cuMemcpyDtoD_v2", (CUdeviceptr, CUdeviceptr, size_t))         \
  X(memcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                   \
    (CUdeviceptr, const void *, size_t, Handle))                               \
  X(memcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                   \
    (void *, CUdeviceptr, size_t, Handle))                                     \
  X(memcpyDtoDAsync, "cuMemcpyDtoDAsync_v2",                                   \
    (CUdeviceptr, CUdeviceptr, size_t, Handle))                                \
  X(memcpy2DAsync, "cuMemcpy2DAsync_v2", (const void *, Handle))               \
  X(memsetD8Async, "cuMemsetD8Async",                                          \
    (CUdeviceptr, unsigned char, size_t, Handle))                              \
  X(memHostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned))               \
  X(memFreeHost, "cuMemFreeHost", (void *))                                    \
  X(streamSynchronize, "cuStreamSynchronize", (Handle))                        \
  X(streamCaptureInfo, "cuStreamGetCaptureInfo_v2",                            \
    (Handle, int *, unsigned long long *, void *, void *, void *))             \
  X(streamCreate, "cuStreamCreate", (Handle *, unsigned))                      \
  X(streamDestroy, "cuStreamDestroy_v2", (Handle))                             \
  X(beginCapture, "cuStreamBeginCapture_v2", (Handle, int))                    \
  X(endCapture, "cuStreamEndCapture", (Handle, Handle *))                      \
  X(graphInstantiate, "cuGraphInstantiateWithFlags",                           \
    (Handle *, Handle, unsigned long long))                                    \
  X(graphLaunch, "cuGraphLaunch", (Handle, Handle))                            \
  X(graphDestroy, "cuGraphDestroy", (Handle))                                  \
  X(graphExecDestroy, "cuGraphExecDestroy", (Handle))                          \
  X(memsetD8, "cuMemsetD8_v2", (CUdeviceptr, unsigned char, size_t))           \
  X(eventCreate, "cuEventCreate", (Handle *, unsigned))                        \
  X(eventDestroy, "cuEventDestroy_v2", (Handle))                               \
  X(eventRecord, "cuEventRecord", (Handle, Handle))                            \
  X(eventSynchronize, "cuEventSynchronize", (Handle))                          \
  X(eventQuery, "cuEventQuery", (Handle))                                      \
  X(eventElapsedTime, "cuEventElapsedTime", (float *, Handle, Handle))

struct CudaSymbols {
#define FFD_DECLARE(member, symbol, parameters)                                \
  CUresult(*member) parameters = nullptr;
  FFD_CUDA_SYMBOLS(FFD_DECLARE)
#undef FFD_DECLARE

  Status check(CUresult result, const std::string &what) const {
    if (result == 0)
      return Status::success();
    const char *name = nullptr, *text = nullptr;
    getErrorName(result, &name);
    getErrorString(result, &text);
    return Status(result == kOutOfMemory ? StatusCode::OutOfMemory
                                         : StatusCode::DeviceError,
                  "CUDA cannot " + what + ": " + (name ? name : "error") +
                      " (" + std::to_string(result) + ")" +
                      (text ? std::string(": ") + text : std::string()));
  }
};

/// Makes a context current for one scope.
class CudaScope {
public:
  explicit CudaScope(const CudaContext &context)
      : cuda(context.driver().symbols()) {
    pushed = cuda.check(cuda.ctxPush(context.handle), "enter the context");
  }
  ~CudaScope() {
    Handle popped;
    if (pushed.ok())
      cuda.ctxPop(&popped);
  }
  CudaScope(const CudaScope &) = delete;
  CudaScope &operator=(const CudaScope &) = delete;

  const Status &entered() const { return pushed; }
  const CudaSymbols &cuda;

private:
  Status pushed;
};

inline CUdeviceptr addressOf(const void *pointer) {
  return CUdeviceptr(reinterpret_cast<uintptr_t>(pointer));
}

} // namespace ffd

#endif // FFD_SRC_CUDASYMBOLS_H
