//===- CudaDriver.cpp - The CUDA driver, found at run time ------------- ===//
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

#include "ffd/CudaDriver.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>

using namespace ffd;

namespace {

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

/// CUDA_MEMCPY2D. Passed as an address of anything: in a check of calls through
/// pointers a type of this file alone would be no one else's.
struct Copy2D {
  struct Side {
    size_t x, y;
    unsigned memoryType;
    void *host;
    CUdeviceptr device;
    void *array;
    size_t pitch;
  } from, to;
  size_t width, height;
};
static_assert(sizeof(Copy2D) == 128, "as the driver reads it");
constexpr unsigned kUnifiedMemory = 4;

} // namespace

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

struct ffd::CudaSymbols {
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

//===----------------------------------------------------------------------===//
// CudaDriver
//===----------------------------------------------------------------------===//

CudaDriver::CudaDriver() : table(new CudaSymbols) {}

// libcuda keeps threads of its own and must not be unloaded.
CudaDriver::~CudaDriver() = default;

Status CudaDriver::load(const std::string &path,
                        std::shared_ptr<const CudaDriver> &result) {
  const std::string name = path.empty() ? "libcuda.so.1" : path;
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

namespace ffd {
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
} // namespace ffd

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

/// "8.7" of PTX text, "" if it has no version.
static std::string ptxVersion(const std::string &ptx) {
  const size_t at = ptx.find(".version ");
  if (at == std::string::npos)
    return "";
  const size_t begin = at + 9;
  const size_t end = ptx.find_first_not_of("0123456789.", begin);
  return ptx.substr(begin, end == std::string::npos ? end : end - begin);
}

/// The first CUDA release whose driver takes a version of PTX.
static std::string cudaOfPtx(const std::string &version) {
  static const char *const known[][2] = {
      {"8.0", "12.0"}, {"8.1", "12.1"}, {"8.2", "12.2"}, {"8.3", "12.3"},
      {"8.4", "12.4"}, {"8.5", "12.5"}, {"8.6", "12.7"}, {"8.7", "12.8"},
      {"8.8", "12.9"}, {"9.0", "13.0"}, {"9.1", "13.1"}};
  for (const auto &entry : known)
    if (version == entry[0])
      return std::string("CUDA ") + entry[1];
  if (version.compare(0, 2, "7.") == 0)
    return "CUDA 11." + version.substr(2);
  return "a newer CUDA";
}

static std::string versionText(int version) {
  return std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

/// The status of an image that the driver did not take.
static Status refused(const CudaContext &context, CUresult result,
                      const std::string &image, bool isPtx,
                      const std::string &entry, const char *log) {
  const std::string driver = versionText(context.driver().version());
  if (result == kUnsupportedPtx && isPtx) {
    const std::string version = ptxVersion(image);
    return Status(StatusCode::Unsupported,
                  "the PTX of kernel '" + entry + "' has version " + version +
                      ", newer than the driver for CUDA " + driver +
                      " takes, expected a driver for " + cudaOfPtx(version) +
                      " or newer, or a package with machine code (kind cubin)");
  }
  Status status = context.driver().symbols().check(
      result, std::string("load the ") + (isPtx ? "PTX" : "cubin") +
                  " of kernel '" + entry + "' (driver for CUDA " + driver +
                  ")");
  return Status(status.code(),
                status.message() +
                    (log[0] ? std::string("\n") + log : std::string()));
}

Status CudaContext::assemble(const std::string &ptx, const std::string &name,
                             std::string &cubin) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  const CudaSymbols &cuda = scope.cuda;
  char log[8192] = {};
  int options[] = {kErrorLogBuffer, kErrorLogBytes};
  void *values[] = {log, reinterpret_cast<void *>(sizeof log - 1)};
  Handle link = nullptr;
  FFD_RETURN_IF_ERROR(cuda.check(cuda.linkCreate(2, options, values, &link),
                                 "start the assembler"));
  void *code = nullptr;
  size_t size = 0;
  CUresult result =
      cuda.linkAddData(link, kInputPtx, const_cast<char *>(ptx.c_str()),
                       ptx.size() + 1, name.c_str(), 0, nullptr, nullptr);
  if (result == 0)
    result = cuda.linkComplete(link, &code, &size);
  if (result == 0)
    cubin.assign(static_cast<const char *>(code), size);
  cuda.linkDestroy(link);
  return result == 0 ? Status::success()
                     : refused(*this, result, ptx, true, name, log);
}

static CUdeviceptr addressOf(const void *pointer) {
  return CUdeviceptr(reinterpret_cast<uintptr_t>(pointer));
}

Status CudaContext::allocate(const char *what, int64_t bytes, bool onHost,
                             void *&pointer) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  const std::string task = "allocate " + std::to_string(bytes) + " bytes of " +
                           (onHost ? "pinned host" : "device") +
                           " memory for the " + what;
  if (onHost)
    return scope.cuda.check(scope.cuda.memHostAlloc(&pointer, size_t(bytes),
                                                    kPortable | kDeviceMap),
                            task);
  CUdeviceptr fresh = 0;
  FFD_RETURN_IF_ERROR(
      scope.cuda.check(scope.cuda.memAlloc(&fresh, size_t(bytes)), task));
  pointer = reinterpret_cast<void *>(uintptr_t(fresh));
  return Status::success();
}

void CudaContext::free(void *pointer, bool onHost) const {
  CudaScope scope(*this);
  if (!pointer || !scope.entered().ok())
    return;
  if (onHost)
    scope.cuda.memFreeHost(pointer);
  else
    scope.cuda.memFree(addressOf(pointer));
}

Status CudaContext::copyIn(void *to, const void *host, int64_t bytes,
                           void *on) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  // From pageable memory the driver takes a copy before it returns.
  return scope.cuda.check(
      scope.cuda.memcpyHtoDAsync(addressOf(to), host, size_t(bytes), on),
      "copy to the device");
}

Status CudaContext::copyOutLater(void *pinned, const void *from, int64_t bytes,
                                 void *on) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(
      scope.cuda.memcpyDtoHAsync(pinned, addressOf(from), size_t(bytes), on),
      "copy from the device");
}

Status CudaContext::copyRowsOutLater(void *pinned, const void *from,
                                     int64_t bytes, int64_t rows,
                                     int64_t stride, void *on) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  Copy2D copy = {};
  // Whose memory it is, the driver sees from the address.
  copy.from.memoryType = copy.to.memoryType = kUnifiedMemory;
  copy.from.device = addressOf(from);
  copy.from.pitch = size_t(stride);
  copy.to.device = addressOf(pinned);
  copy.to.pitch = copy.width = size_t(bytes);
  copy.height = size_t(rows);
  return scope.cuda.check(scope.cuda.memcpy2DAsync(&copy, on),
                          "copy rows from the device");
}

Status CudaContext::finish(void *on) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.streamSynchronize(on),
                          "finish a copy from the device");
}

Status CudaContext::copyOut(void *host, const void *from, int64_t bytes,
                            void *on) const {
  FFD_RETURN_IF_ERROR(copyOutLater(host, from, bytes, on));
  return finish(on);
}

Status CudaContext::copyWithin(void *to, const void *from, int64_t bytes,
                               void *on) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.memcpyDtoDAsync(addressOf(to),
                                                     addressOf(from),
                                                     size_t(bytes), on),
                          "copy on the device");
}

Status CudaContext::fill(void *to, uint8_t value, int64_t bytes,
                         void *on) const {
  if (bytes == 0)
    return Status::success();
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(
      scope.cuda.memsetD8Async(addressOf(to), value, size_t(bytes), on),
      "set device memory");
}

Status CudaContext::createStream(void *&created) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.streamCreate(&created, kNonBlocking),
                          "create a stream");
}

void CudaContext::destroyStream(void *created) const {
  CudaScope scope(*this);
  if (scope.entered().ok())
    scope.cuda.streamDestroy(created);
}

Status CudaContext::capturing(void *on, uint64_t &capture) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  int state = 0;
  unsigned long long number = 0;
  FFD_RETURN_IF_ERROR(
      scope.cuda.check(scope.cuda.streamCaptureInfo(on, &state, &number,
                                                    nullptr, nullptr, nullptr),
                       "ask a stream"));
  capture = state != 0 ? number + 1 : 0;
  return Status::success();
}

//===----------------------------------------------------------------------===//
// CudaBuffer
//===----------------------------------------------------------------------===//

CudaBuffer::~CudaBuffer() { release(); }

void CudaBuffer::release() {
  if (pointer) {
    CudaScope scope(*context);
    if (scope.entered().ok())
      scope.cuda.memFree(pointer);
  }
  pointer = 0;
  capacity = 0;
}

Status CudaBuffer::reserve(std::shared_ptr<CudaContext> owner, const char *what,
                           int64_t bytes) {
  if (owner == context && bytes <= capacity)
    return Status::success();
  release();
  context = std::move(owner);
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  CUdeviceptr fresh = 0;
  FFD_RETURN_IF_ERROR(
      scope.cuda.check(scope.cuda.memAlloc(&fresh, size_t(bytes)),
                       "allocate " + std::to_string(bytes) +
                           " bytes of device memory for the " + what));
  pointer = fresh;
  capacity = bytes;
  return Status::success();
}

/// The status of a range that a buffer does not have, else success.
static Status checkRange(int64_t bytes, int64_t capacity) {
  if (bytes >= 0 && bytes <= capacity)
    return Status::success();
  return Status::invalid("device copy is of " + std::to_string(bytes) +
                         " bytes, expected at most " +
                         std::to_string(capacity));
}

Status CudaBuffer::upload(const void *host, int64_t bytes) {
  FFD_RETURN_IF_ERROR(checkRange(bytes, capacity));
  if (bytes == 0)
    return Status::success();
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.memcpyHtoD(pointer, host, size_t(bytes)),
                          "copy to the device");
}

Status CudaBuffer::download(void *host, int64_t bytes) const {
  FFD_RETURN_IF_ERROR(checkRange(bytes, capacity));
  if (bytes == 0)
    return Status::success();
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.memcpyDtoH(host, pointer, size_t(bytes)),
                          "copy from the device");
}

Status CudaBuffer::fill(uint8_t value, int64_t bytes) {
  FFD_RETURN_IF_ERROR(checkRange(bytes, capacity));
  if (bytes == 0)
    return Status::success();
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.memsetD8(pointer, value, size_t(bytes)),
                          "set device memory");
}

Status CudaBuffer::repeat(int64_t to, int64_t from, int64_t bytes) {
  FFD_RETURN_IF_ERROR(checkRange(bytes, capacity - std::max(to, from)));
  if (bytes == 0)
    return Status::success();
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.memcpyDtoD(pointer + uint64_t(to),
                                                pointer + uint64_t(from),
                                                size_t(bytes)),
                          "copy on the device");
}

//===----------------------------------------------------------------------===//
// CudaFunction
//===----------------------------------------------------------------------===//

CudaFunction::~CudaFunction() {
  if (!module)
    return;
  CudaScope scope(*context);
  if (scope.entered().ok())
    scope.cuda.moduleUnload(module);
}

Status CudaFunction::load(std::shared_ptr<CudaContext> owner,
                          const std::string &image, bool isPtx,
                          const std::string &entry, int sharedBytes) {
  if (module)
    return Status::invalid("the CUDA function is loaded already, expected a "
                           "fresh one");
  CudaScope scope(*owner);
  FFD_RETURN_IF_ERROR(scope.entered());
  const CudaSymbols &cuda = scope.cuda;
  char log[8192] = {};
  int options[] = {kErrorLogBuffer, kErrorLogBytes};
  void *values[] = {log, reinterpret_cast<void *>(sizeof log - 1)};
  Handle fresh = nullptr;
  // std::string ends in the zero that PTX text needs.
  const CUresult loaded = cuda.moduleLoadDataEx(&fresh, image.c_str(),
                                                isPtx ? 2 : 0, options, values);
  if (loaded != 0)
    return refused(*owner, loaded, image, isPtx, entry, log);
  context = owner;
  module = fresh;
  FFD_RETURN_IF_ERROR(
      cuda.check(cuda.moduleGetFunction(&function, module, entry.c_str()),
                 "find the kernel '" + entry + "' in its module"));
  if (sharedBytes > kDefaultShared)
    FFD_RETURN_IF_ERROR(cuda.check(
        cuda.funcSetAttribute(function, kMaxDynamicShared, sharedBytes),
        "give kernel '" + entry + "' " + std::to_string(sharedBytes) +
            " bytes of shared memory"));
  return Status::success();
}

Status CudaFunction::launch(int64_t grid, int threads, int sharedBytes,
                            const void *parameter) const {
  return launchOn(context ? context->stream : nullptr, grid, threads,
                  sharedBytes, parameter);
}

Status CudaFunction::launchOn(void *stream, int64_t grid, int threads,
                              int sharedBytes, const void *parameter) const {
  if (!function || grid < 1 || grid > INT32_MAX || threads < 1 ||
      sharedBytes < 0)
    return Status::invalid("kernel launch: grid is " + std::to_string(grid) +
                           " and threads " + std::to_string(threads) +
                           ", expected a loaded kernel, 1 to 2147483647 CTAs "
                           "and at least 1 thread");
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  void *parameters[] = {const_cast<void *>(parameter)};
  return scope.cuda.check(scope.cuda.launchKernel(function, unsigned(grid), 1,
                                                  1, unsigned(threads), 1, 1,
                                                  unsigned(sharedBytes), stream,
                                                  parameters, nullptr),
                          "launch a kernel");
}

Status CudaFunction::resources(int &registers, int &localBytes) const {
  if (!function)
    return Status::invalid("kernel resources: no kernel is loaded");
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  FFD_RETURN_IF_ERROR(scope.cuda.check(
      scope.cuda.funcGetAttribute(&registers, kNumRegs, function),
      "describe a kernel"));
  return scope.cuda.check(
      scope.cuda.funcGetAttribute(&localBytes, kLocalSizeBytes, function),
      "describe a kernel");
}

//===----------------------------------------------------------------------===//
// CudaEvent
//===----------------------------------------------------------------------===//

CudaEvent::~CudaEvent() {
  if (!handle)
    return;
  CudaScope scope(*context);
  if (scope.entered().ok())
    scope.cuda.eventDestroy(handle);
}

Status CudaEvent::create(std::shared_ptr<CudaContext> owner) {
  CudaScope scope(*owner);
  FFD_RETURN_IF_ERROR(scope.entered());
  Handle fresh = nullptr;
  FFD_RETURN_IF_ERROR(
      scope.cuda.check(scope.cuda.eventCreate(&fresh, 0), "create an event"));
  context = std::move(owner);
  handle = fresh;
  return Status::success();
}

Status CudaEvent::record(void *stream) {
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.eventRecord(handle, stream),
                          "record an event");
}

Status CudaEvent::reached(bool &yes) const {
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  const CUresult result = scope.cuda.eventQuery(handle);
  yes = result == 0;
  return result == kNotReady ? Status::success()
                             : scope.cuda.check(result, "query an event");
}

Status CudaEvent::wait() const {
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.eventSynchronize(handle),
                          "finish a kernel");
}

Status CudaEvent::since(const CudaEvent &start, float &milliseconds) const {
  FFD_RETURN_IF_ERROR(start.wait());
  FFD_RETURN_IF_ERROR(wait());
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(
      scope.cuda.eventElapsedTime(&milliseconds, start.handle, handle),
      "time a kernel");
}

//===----------------------------------------------------------------------===//
// CudaGraph
//===----------------------------------------------------------------------===//

CudaGraph::~CudaGraph() {
  if (!context)
    return;
  if (stream && !graph) // left in the middle of a capture
    (void)end();
  CudaScope scope(*context);
  if (!scope.entered().ok())
    return;
  if (executable)
    scope.cuda.graphExecDestroy(executable);
  if (graph)
    scope.cuda.graphDestroy(graph);
  if (stream)
    scope.cuda.streamDestroy(stream);
}

Status CudaGraph::begin(std::shared_ptr<CudaContext> owner) {
  if (stream || owner->stream)
    return Status::invalid("the context or the graph has captured before, "
                           "expected a fresh graph and none in progress");
  CudaScope scope(*owner);
  FFD_RETURN_IF_ERROR(scope.entered());
  context = std::move(owner);
  FFD_RETURN_IF_ERROR(scope.cuda.check(
      scope.cuda.streamCreate(&stream, kNonBlocking), "create a stream"));
  FFD_RETURN_IF_ERROR(
      scope.cuda.check(scope.cuda.beginCapture(stream, kCaptureThreadLocal),
                       "begin to capture a graph"));
  context->stream = stream;
  return Status::success();
}

Status CudaGraph::end() {
  if (!context || !stream || context->stream != stream)
    return Status::invalid("no graph is being captured, expected begin() "
                           "before end()");
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  context->stream = nullptr;
  FFD_RETURN_IF_ERROR(scope.cuda.check(scope.cuda.endCapture(stream, &graph),
                                       "capture a graph"));
  return scope.cuda.check(
      scope.cuda.graphInstantiate(&executable, graph, /*flags=*/0),
      "instantiate a graph");
}

Status CudaGraph::launch() {
  if (!executable)
    return Status::invalid("no graph is captured, expected end() before "
                           "launch()");
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.graphLaunch(executable, nullptr),
                          "launch a graph");
}
