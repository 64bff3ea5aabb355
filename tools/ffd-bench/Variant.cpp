//===- Variant.cpp - A decode with another rule or execution --------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The runtime hands out whole decodes only, so the two kernels of a split one
// are asked of libffd-jit here.
//
//===----------------------------------------------------------------------===//

#include "Variant.h"

#include "support/EmulatedTarget.h"
#include "support/Errors.h"

#include "ffd/Package.h"

#include <cstring>

using namespace llvm;
using ffd::tools::error;
using ffd::tools::toError;

namespace ffd::bench {

/// Keys and masses of a row's selection blocks, 4 bytes each, up to a multiple
/// of 16 blocks.
static int64_t rankingBytes(int64_t keptStride) {
  return (keptStride + 15) / 16 * 16 * 8;
}

Expected<std::unique_ptr<Variant>> Variant::create(const ffdSpec &spec,
                                                   const Selector &selector,
                                                   const Options &options,
                                                   Machine &machine,
                                                   const Variant *sibling) {
  std::unique_ptr<Variant> result(new Variant(spec, selector, machine));
  const bool onCpu = !options.onGpu() && !options.emulated();
  if (!onCpu && selector.rule != Rule::TopDelta)
    return error("rule '{0}' has no GPU kernel", selector.name());
  if (!onCpu && spec.no_residuals)
    return error("keys without residuals have no GPU kernel");
  if (options.emulated()) {
    if (Error e = toError(tools::makeEmulatedKernel(
            spec, Program::Decode, options.arch,
            /*seed=*/1, result->whole, selector.split)))
      return std::move(e);
    return std::move(result);
  }
  if (selector.split) {
    if (Error e = result->compileParts(options, sibling))
      return std::move(e);
    return std::move(result);
  }
  FindKernelOptions request;
  request.selector = selector;
  request.target = options.target;
  request.pool = &machine.threads();
  request.cuda = machine.cuda();
  if (Error e = toError(findKernel(spec, request, result->whole)))
    return std::move(e);
  return std::move(result);
}

Error Variant::compileParts(const Options &options, const Variant *sibling) {
  std::shared_ptr<const Jit> jit;
  if (Error e = toError(loadJit("", jit)))
    return e;
  const std::string target =
      machine.cuda() ? machine.cuda()->device().arch() : options.target;
  auto compile = [&](const std::string &program,
                     std::shared_ptr<ffdJitResult> &result) -> Error {
    char message[4096] = {};
    ffdJitResult raw = {};
    raw.struct_size = sizeof raw;
    raw.error = message;
    raw.error_size = sizeof message;
    if (jit->compile(&spec, target.c_str(), program.c_str(), &raw) != 0)
      return error("'{0}' cannot compile '{1}' for '{2}': {3}", jit->path,
                   program, target, message);
    raw.error = nullptr;
    raw.error_size = 0;
    result.reset(new ffdJitResult(raw),
                 [release = jit->release](ffdJitResult *r) {
                   release(r);
                   delete r;
                 });
    return Error::success();
  };
  auto load = [&](const ffdJitResult &result,
                  std::shared_ptr<CudaKernel> &kernel) -> Error {
    Package package;
    if (Error e =
            toError(Package::parse(result.package, size_t(result.package_size),
                                   "(compiled)", package)))
      return e;
    std::unique_ptr<CudaKernel> loaded;
    if (Error e = toError(CudaKernel::create(machine.cuda(), package, loaded)))
      return e;
    kernel = std::move(loaded);
    return Error::success();
  };
  std::shared_ptr<ffdJitResult> first, second;
  if (Error e = compile("select " + selector.attribute(), first))
    return e;
  if (sibling) {
    gpuAttend = sibling->gpuAttend;
    cpuAttend = sibling->cpuAttend;
    code = sibling->code;
  } else if (Error e = compile("attend", second)) {
    return e;
  }
  if (machine.cuda()) {
    if (Error e = load(*first, gpuSelect))
      return e;
    return sibling ? Error::success() : load(*second, gpuAttend);
  }
  cpuSelect = first->entry;
  code.push_back(first);
  if (second) {
    cpuAttend = second->entry;
    code.push_back(second);
  }
  return Error::success();
}

/// As one parallel loop over pieces.
Status Variant::runEntry(CpuEntry entry, const ffdDecodeArgs &args) {
  const int64_t tasks = int64_t(args.batch) * args.kv_heads * args.splits;
  machine.threads().parallelFor(tasks, [&](int64_t task) {
    entry(&args, task / args.splits, task % args.splits);
  });
  return Status::success();
}

Status Variant::select(const ffdDecodeArgs &args) {
  if (gpuSelect)
    return gpuSelect->launchResident(args);
  ffdDecodeArgs first = args;
  first.splits = 1; // ranks whole rows
  if (selector.needsRow()) {
    const int64_t bytes =
        int64_t(args.batch) * args.kv_heads * rankingBytes(args.kept_stride);
    if (!ranking.data() || ranking.size() < bytes)
      FFD_RETURN_IF_ERROR(ranking.allocate("ranking of blocks", bytes, 0));
    first.workspace = ranking.data();
  }
  return runEntry(cpuSelect, first);
}

Status Variant::run(const ffdDecodeArgs &args) {
  if (whole)
    return machine.run(*whole, args);
  FFD_RETURN_IF_ERROR(select(args));
  if (gpuAttend)
    return gpuAttend->launchResident(args);
  std::memset(
      args.workspace, 0,
      size_t(Layout::partialsOffset(int64_t(args.batch) * args.kv_heads)));
  return runEntry(cpuAttend, args);
}

int64_t Variant::splitsFor(const PoolShape &shape) const {
  const CudaKernel *gpu = gpuAttend ? gpuAttend.get()
                          : machine.cuda()
                              ? static_cast<const CudaKernel *>(whole.get())
                              : nullptr;
  if (gpu)
    return gpu->splitsFor(shape.rows(), shape.longest());
  const int threads = machine.threads().threads();
  return pickSplits(spec, shape.rows(), shape.longest(),
                    threads == 1 ? 1 : 4 * threads);
}

} // namespace ffd::bench
