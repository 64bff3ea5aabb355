//===- Context.cpp - Devices and the kernels loaded for them ----------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Also what all C functions share: the last message of a thread, and structs
// that carry their size.
//
//===----------------------------------------------------------------------===//

#include "Context.h"

#include "KernelCache.h"

#include "ffd/CudaDriver.h"

#include <cstring>

using namespace ffd;

static_assert(int(StatusCode::NotReady) == FFD_NOT_READY &&
                  int(StatusCode::Corrupt) == FFD_CORRUPT &&
                  int(StatusCode::OutOfPages) == FFD_OUT_OF_PAGES,
              "the C codes are those of StatusCode");

//===----------------------------------------------------------------------===//
// Shared by all C functions
//===----------------------------------------------------------------------===//

namespace {
thread_local std::string lastError;
}

ffdStatus ffd::setLastError(const Status &status) {
  if (!status.ok())
    lastError = status.message();
  return toCode(status);
}

extern "C" const char *ffdLastErrorMessage(void) { return lastError.c_str(); }

Status ffd::takeStruct(const char *name, const void *from, size_t minimum,
                       void *options, size_t size) {
  if (!from)
    return Status::invalid(std::string("'") + name +
                           "' is null, expected a "
                           "struct");
  size_t given;
  std::memcpy(&given, from, sizeof given);
  if (given < minimum || given > 65536)
    return Status::invalid(std::string("'") + name + "' field 'struct_size' " +
                           "is " + std::to_string(given) +
                           ", expected at least " + std::to_string(minimum) +
                           " (call " + name + "Init)");
  const auto *bytes = static_cast<const char *>(from);
  // A newer caller may have fields that this library does not know.
  for (size_t i = size; i < given; ++i)
    if (bytes[i] != 0)
      return Status(StatusCode::Unsupported,
                    std::string("'") + name +
                        "' sets a field that this version of the library "
                        "does not have, expected 0 beyond " +
                        std::to_string(size) + " bytes");
  std::memcpy(options, from, given < size ? given : size);
  return Status::success();
}

Status ffd::giveStruct(const char *name, const void *result, size_t size,
                       void *to) {
  size_t given = 0;
  if (to)
    std::memcpy(&given, to, sizeof given);
  if (given < sizeof given || given > 65536)
    return Status::invalid(
        std::string("'") + name + "' is " +
        (to ? "of struct_size " + std::to_string(given) : std::string("null")) +
        ", expected a struct whose struct_size is set");
  std::memcpy(static_cast<char *>(to) + sizeof given,
              static_cast<const char *>(result) + sizeof given,
              (given < size ? given : size) - sizeof given);
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Context
//===----------------------------------------------------------------------===//

Status Context::create(const ffdContextOptions &o,
                       std::shared_ptr<Context> &result) {
  std::shared_ptr<Context> context(new Context);
  Context &c = *context;
  c.diagnostic = o.diagnostic;
  c.diagnosticUser = o.diagnostic_user;
  if (o.device != FFD_DEVICE_CPU && o.device != FFD_DEVICE_CUDA)
    return Status::invalid("'ffdContextOptions' field 'device' is " +
                           std::to_string(o.device) +
                           ", expected FFD_DEVICE_CPU or FFD_DEVICE_CUDA");
  if (o.threads < 0 || o.threads > 4096)
    return Status::invalid("'ffdContextOptions' field 'threads' is " +
                           std::to_string(o.threads) + ", expected 0 to 4096");
  c.kind = static_cast<ffdDevice>(o.device);
  const auto text = [](const char *s) { return std::string(s ? s : ""); };
  c.find.packageDir = text(o.package_dir);
  c.find.jitPath = text(o.compiler);
  c.find.useJit = o.use_compiler != 0;
  c.find.cacheDir = o.kernel_cache_dir ? std::string(o.kernel_cache_dir)
                                       : defaultKernelCacheFolder();
  if (c.onCpu()) {
    if (o.cuda_context)
      return Status::invalid("'ffdContextOptions' field 'cuda_context' is "
                             "given, expected NULL for FFD_DEVICE_CPU");
    c.threads.reset(new ThreadPool(o.threads));
    c.find.target = "cpu";
    c.find.pool = c.threads.get();
  } else {
    std::shared_ptr<const CudaDriver> driver;
    FFD_RETURN_IF_ERROR(CudaDriver::load(text(o.cuda_driver), driver));
    FFD_RETURN_IF_ERROR(CudaContext::adopt(std::move(driver), o.ordinal,
                                           o.cuda_context, c.cudaContext));
    c.find.target = "cuda";
    c.find.cuda = c.cudaContext;
  }
  result = std::move(context);
  return Status::success();
}

void Context::describe(ffdContextInfo &info) const {
  info.device = kind;
  std::string name = "cpu", arch = "cpu";
  if (onCpu()) {
    info.threads = threads->threads();
  } else {
    const CudaDeviceInfo &device = cudaContext->device();
    name = device.name;
    arch = device.arch();
    info.multiprocessors = device.multiprocessors;
    info.driver_version = cudaContext->driver().version();
    info.memory_bytes = uint64_t(device.memoryBytes);
  }
  name.copy(info.name, sizeof info.name - 1);
  arch.copy(info.arch, sizeof info.arch - 1);
}

Status Context::kernels(const ffdSpec &spec,
                        std::shared_ptr<const KernelSet> &set) {
  // Held while compiling: two threads that need the same kernel compile once.
  std::lock_guard<std::mutex> lock(mutex);
  for (const Loaded &entry : loaded)
    if (entry.spec == spec) {
      set = entry.set;
      return Status::success();
    }
  std::shared_ptr<KernelSet> fresh(new KernelSet);
  FFD_RETURN_IF_ERROR(load(spec, *fresh));
  loaded.push_back({spec, fresh});
  set = std::move(fresh);
  return Status::success();
}

Status Context::load(const ffdSpec &spec, KernelSet &set) {
  std::string passedOver, cacheNote;
  FindKernelOptions options = find;
  options.passedOver = &passedOver;
  options.cacheNote = &cacheNote;
  FFD_RETURN_IF_ERROR(findKernel(spec, options, set.decode));
  if (!cacheNote.empty())
    note("cache of compiled kernels: " + cacheNote);
  if (!passedOver.empty())
    note("kernel packages passed over: " + passedOver);
  if (onCpu()) {
    set.cpu = static_cast<CpuKernel *>(set.decode.get());
    return Status::success();
  }
  set.cuda = static_cast<CudaKernel *>(set.decode.get());
  // Who appends by other means can do without.
  std::unique_ptr<DecodeKernel> append;
  options.program = Program::Append;
  // It depends on none of these; packages say what the compiler defaults to.
  ffdSpec appendSpec = withoutRule(spec);
  appendSpec.group = 4;
  appendSpec.select_block = 16;
  appendSpec.query_tokens = 1;
  set.appendStatus = findKernel(appendSpec, options, append);
  set.append.reset(static_cast<CudaKernel *>(append.release()));
  std::unique_ptr<DecodeKernel> plan;
  options.program = Program::Plan;
  // It depends on the block only: one name for all.
  ffdSpec planSpec = {};
  planSpec.head_dim = planSpec.value_dim = 128;
  planSpec.group = 4;
  planSpec.element = FFD_F16;
  planSpec.scan_bits = 2;
  planSpec.quant_block = spec.quant_block;
  planSpec.select_block = 16;
  planSpec.query_tokens = 1;
  set.planStatus = findKernel(planSpec, options, plan);
  set.plan.reset(static_cast<CudaKernel *>(plan.release()));
  return Status::success();
}

ffdStatus Context::report(const Status &status) const {
  if (!status.ok() && diagnostic)
    diagnostic(diagnosticUser, toCode(status), status.message().c_str());
  return setLastError(status);
}

void Context::note(const std::string &message) const {
  if (diagnostic)
    diagnostic(diagnosticUser, FFD_SUCCESS, message.c_str());
}
