//===- SplitKernel.h - Selector and computer one by one ---------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A decode as two CPU kernels that meet in the mask in memory.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SPLITKERNEL_H
#define FFD_SPLITKERNEL_H

#include "ffd/Kernel.h"
#include "ffd/Selector.h"

namespace ffd {

class SplitKernel : public DecodeKernel {
public:
  /// What a select kernel of a rule over the whole row ranks a row of `kept`
  /// in: keys and masses, 4 bytes each per selection block, up to a multiple of
  /// 16 blocks.
  static int64_t rankingBytes(int64_t keptStride) {
    return (keptStride + 15) / 16 * 16 * 8;
  }

  /// `owners` keep the code alive; `pool` outlives the kernel.
  SplitKernel(const ffdSpec &spec, const Selector &selector, std::string target,
              CpuEntry select, CpuEntry attend,
              std::vector<std::shared_ptr<void>> owners, ThreadPool &pool);

  /// As CpuKernel's; `args.splits` and a workspace serve the second kernel. The
  /// first has memory of its own, and one piece per row.
  Status decode(const ffdDecodeArgs &args) override;

private:
  Status select(ffdDecodeArgs &call, int64_t rows);
  Status attend(ffdDecodeArgs &call, int64_t rows, int64_t maxLength);

  Selector rule;
  CpuEntry selectEntry, attendEntry;
  std::vector<std::shared_ptr<void>> codeOwners;
  ThreadPool &threads;
  HostBuffer ranking, mask, workspace;
};

} // namespace ffd
#endif // FFD_SPLITKERNEL_H
