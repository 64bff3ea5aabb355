//===- CudaFunction.cpp - Kernels on a GPU ------------------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Assembling PTX, loading code, launching it.
//
//===----------------------------------------------------------------------===//

#include "CudaSymbols.h"

using namespace ffd;

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
