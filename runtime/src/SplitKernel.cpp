//===- SplitKernel.cpp - Selector and computer one by one -----------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SplitKernel.h"

#include "ArgExtents.h"

#include "ffd/ThreadPool.h"

#include <algorithm>
#include <cstring>

using namespace ffd;

SplitKernel::SplitKernel(const ffdSpec &spec, const Selector &selector,
                         std::string target, CpuEntry select, CpuEntry attend,
                         std::vector<std::shared_ptr<void>> owners,
                         ThreadPool &pool)
    : DecodeKernel(spec, Program::Decode, std::move(target)), rule(selector),
      selectEntry(select), attendEntry(attend), codeOwners(std::move(owners)),
      threads(pool) {}

/// A buffer of at least `bytes`, for which the last one may do.
static Status reserve(HostBuffer &buffer, const char *what, int64_t bytes) {
  return buffer.data() && buffer.size() >= bytes
             ? Status::success()
             : buffer.allocate(what, bytes, 0);
}

Status SplitKernel::select(ffdDecodeArgs &call, int64_t rows) {
  if (!call.kept) {
    // The mask between the kernels, which the caller does not want to see.
    int64_t most = 1, bytes;
    for (int64_t s = 0; s < call.batch; ++s)
      most = std::max(most,
                      committedBlocks(kernelSpec, call.lengths[s], call.lag) *
                          layoutOf(kernelSpec).selectsPerBlock());
    if (!checkedProduct({rows, most}, bytes))
      return Status(StatusCode::OutOfMemory,
                    "the kept mask does not fit in 64 bits");
    FFD_RETURN_IF_ERROR(reserve(mask, "kept mask", bytes));
    call.kept = mask.data();
    call.kept_stride = most;
  }
  ffdDecodeArgs first = call;
  first.splits = 1;
  if (rule.needsRow()) {
    int64_t bytes;
    if (!checkedProduct({rows, rankingBytes(call.kept_stride)}, bytes))
      return Status(StatusCode::OutOfMemory,
                    "the ranking of blocks does not fit in 64 bits");
    FFD_RETURN_IF_ERROR(reserve(ranking, "ranking of blocks", bytes));
    first.workspace = ranking.data();
  }
  threads.parallelFor(rows, [&](int64_t row) { selectEntry(&first, row, 0); });
  return Status::success();
}

Status SplitKernel::attend(ffdDecodeArgs &call, int64_t rows,
                           int64_t maxLength) {
  if (call.splits == 0)
    call.splits =
        pickSplits(kernelSpec, rows, maxLength,
                   threads.threads() == 1 ? 1 : 4 * threads.threads());
  if (!call.workspace) {
    int64_t bytes;
    FFD_RETURN_IF_ERROR(workspaceBytes(kernelSpec, rows, call.splits, bytes));
    FFD_RETURN_IF_ERROR(reserve(workspace, "workspace", bytes));
    call.workspace = workspace.data();
    std::memset(workspace.data(), 0, size_t(Layout::partialsOffset(rows)));
  }
  const int64_t splits = call.splits;
  threads.parallelFor(rows * splits, [&](int64_t task) {
    attendEntry(&call, task / splits, task % splits);
  });
  return Status::success();
}

Status SplitKernel::decode(const ffdDecodeArgs &args) {
  ArgExtents extents;
  FFD_RETURN_IF_ERROR(measureArgs(kernelSpec, kernelProgram, args, extents));
  ffdDecodeArgs call = args;
  FFD_RETURN_IF_ERROR(select(call, extents.rows));
  return attend(call, extents.rows, extents.maxLength);
}
