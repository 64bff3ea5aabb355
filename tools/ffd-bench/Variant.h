//===- Variant.h - A decode with another rule or execution ------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the tables compare: rules of selection, and selector and computer as one
// kernel or as two, of which the first can be run alone.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDBENCH_VARIANT_H
#define FFD_TOOLS_FFDBENCH_VARIANT_H

#include "Pool.h"

#include "ffd/FindKernel.h"

namespace ffd::bench {

class Variant {
public:
  /// Compiles, with libffd-jit, or finds the kernels; an error if the target
  /// has none. `machine` outlives the variant. `sibling`, if not null, is one
  /// of the same specification in split execution: it lends its second kernel.
  static llvm::Expected<std::unique_ptr<Variant>>
  create(const ffdSpec &spec, const Selector &selector, const Options &options,
         Machine &machine, const Variant *sibling = nullptr);

  /// One decode. `args` have a workspace, cleared once, and in split execution
  /// a kept mask. On a GPU it does not wait.
  Status run(const ffdDecodeArgs &args);
  /// Whether the selector is a kernel of its own that can be run alone.
  bool selects() const { return selector.split && !whole; }
  /// The selector alone; writes the kept mask.
  Status select(const ffdDecodeArgs &args);
  /// The pieces per row that the runtime picks.
  int64_t splitsFor(const PoolShape &shape) const;

private:
  Variant(const ffdSpec &spec, const Selector &selector, Machine &machine)
      : spec(spec), selector(selector), machine(machine) {}
  llvm::Error compileParts(const Options &options, const Variant *sibling);
  Status runEntry(CpuEntry entry, const ffdDecodeArgs &args);

  ffdSpec spec;
  Selector selector;
  Machine &machine;
  std::unique_ptr<DecodeKernel> whole; ///< all in one; else two parts
  std::shared_ptr<CudaKernel> gpuSelect, gpuAttend;
  CpuEntry cpuSelect = nullptr, cpuAttend = nullptr;
  std::vector<std::shared_ptr<void>> code; ///< of the entries
  HostBuffer ranking; ///< in which rules over a row rank its blocks
};

} // namespace ffd::bench

#endif // FFD_TOOLS_FFDBENCH_VARIANT_H
