//===- Runtime.cpp - Threads, device and kernels of Python callers --------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Runtime.h"

#include "Arrays.h"

#include "ffd/CudaDriver.h"
#include "ffd/FindKernel.h"

namespace ffd::python {

Runtime::Runtime(std::string target, int threadCount, std::string dir, bool jit,
                 std::string jitFile)
    : threads(threadCount), targetName(std::move(target)),
      kernelDir(std::move(dir)), jitPath(std::move(jitFile)), useJit(jit) {
  if (targetName.rfind("cpu", 0) == 0)
    return;
  std::shared_ptr<const CudaDriver> driver;
  check(CudaDriver::load("", driver));
  check(CudaContext::create(driver, /*device=*/0, cuda));
}

Runtime::Slot &Runtime::slotOf(const ffdSpec &spec, Program program,
                               const Selector &selector) {
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Slot> &slot =
      slots[std::string(programName(program)) + "-" + specName(spec) + " " +
            selector.name() + (selector.split ? " split" : "")];
  if (!slot)
    slot = std::make_unique<Slot>();
  return *slot;
}

Status Runtime::find(const ffdSpec &spec, Program program,
                     const Selector &selector, Slot &slot) {
  if (slot.kernel)
    return Status::success();
  FindKernelOptions request;
  request.program = program;
  request.selector = selector;
  request.target = targetName;
  request.packageDir = kernelDir;
  request.useJit = useJit;
  request.jitPath = jitPath;
  request.pool = &threads;
  request.cuda = cuda;
  return findKernel(spec, request, slot.kernel);
}

Status Runtime::decode(const ffdSpec &spec, Program program,
                       const Selector &selector, const ffdDecodeArgs &args) {
  Slot &slot = slotOf(spec, program, selector);
  const std::lock_guard<std::mutex> lock(slot.mutex);
  FFD_RETURN_IF_ERROR(find(spec, program, selector, slot));
  return slot.kernel->decode(args);
}

Status Runtime::prepare(const ffdSpec &spec, Program program,
                        const Selector &selector, std::string &target) {
  Slot &slot = slotOf(spec, program, selector);
  const std::lock_guard<std::mutex> lock(slot.mutex);
  FFD_RETURN_IF_ERROR(find(spec, program, selector, slot));
  target = slot.kernel->target();
  return Status::success();
}

} // namespace ffd::python
