//===- CpuKernel.cpp - Running a kernel on the CPU --------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One task per (row, piece) on the pool. The pieces of a row find each other
// through the workspace, as on a GPU.
//
//===----------------------------------------------------------------------===//

#include "ArgExtents.h"

#include "ffd/ThreadPool.h"

#include <algorithm>
#include <cstring>

using namespace ffd;

DecodeKernel::DecodeKernel(const ffdSpec &spec, Program program,
                           std::string target)
    : kernelSpec(spec), kernelProgram(program), targetName(std::move(target)) {}

DecodeKernel::~DecodeKernel() = default;

CpuKernel::CpuKernel(const ffdSpec &spec, Program program, std::string target,
                     CpuEntry entry, std::shared_ptr<void> owner,
                     ThreadPool &pool)
    : DecodeKernel(spec, program, std::move(target)), function(entry),
      codeOwner(std::move(owner)), threads(pool) {}

Status CpuKernel::reserveWorkspace(int64_t bytes) {
  if (workspace.size() >= bytes)
    return Status::success();
  return workspace.allocate("workspace", bytes, 0);
}

Status CpuKernel::decode(const ffdDecodeArgs &args) {
  ArgExtents extents;
  FFD_RETURN_IF_ERROR(measureArgs(kernelSpec, kernelProgram, args, extents));
  ffdDecodeArgs call = args;
  // Several tasks per thread even out pieces of unequal work.
  if (call.splits == 0)
    call.splits =
        pickSplits(kernelSpec, extents.rows, extents.maxLength,
                   threads.threads() == 1 ? 1 : 4 * threads.threads());
  if (!call.workspace) {
    int64_t bytes;
    FFD_RETURN_IF_ERROR(
        workspaceBytes(kernelSpec, extents.rows, call.splits, bytes));
    FFD_RETURN_IF_ERROR(reserveWorkspace(bytes));
    call.workspace = workspace.data();
    // Another number of rows before may have had partials where counters are
    // now.
    std::memset(workspace.data(), 0,
                size_t(Layout::partialsOffset(extents.rows)));
  } else {
    for (int64_t row = 0; row < extents.rows; ++row)
      if (static_cast<const int32_t *>(call.workspace)[row] != 0)
        return Status::invalid("the workspace's arrival counter of row " +
                               std::to_string(row) + " is not 0, expected 0");
  }
  const int64_t splits = call.splits;
  threads.parallelFor(extents.rows * splits, [&](int64_t task) {
    function(&call, task / splits, task % splits);
  });
  return Status::success();
}

Status CpuKernel::decodeAll(const ffdDecodeArgs *calls, int64_t count) const {
  std::vector<int64_t> first(size_t(count) + 1, 0); // task of each call
  for (int64_t i = 0; i < count; ++i) {
    const ffdDecodeArgs &call = calls[i];
    ArgExtents extents;
    FFD_RETURN_IF_ERROR(measureArgs(kernelSpec, kernelProgram, call, extents));
    if (call.splits < 1 || !call.workspace)
      return Status::invalid("'ffdDecodeArgs' field 'splits' is " +
                             std::to_string(call.splits) +
                             ", expected at least 1 and a workspace");
    first[size_t(i) + 1] = first[size_t(i)] + extents.rows * call.splits;
  }
  for (int64_t i = 0; i < count; ++i)
    std::memset(calls[i].workspace, 0,
                size_t(Layout::partialsOffset(int64_t(calls[i].batch) *
                                              calls[i].kv_heads)));
  threads.parallelFor(first.back(), [&](int64_t task) {
    const int64_t i =
        std::upper_bound(first.begin(), first.end(), task) - first.begin() - 1;
    const int64_t local = task - first[size_t(i)];
    const int64_t splits = calls[i].splits;
    function(&calls[i], local / splits, local % splits);
  });
  return Status::success();
}
