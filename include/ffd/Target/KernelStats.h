//===- KernelStats.h - What a compiled GPU kernel costs ----- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Registers, shared memory, occupancy, and the instructions of the loop that
// scans thumbnails, read off the text that the compiler and NVIDIA's tools
// write. What needs ptxas or a disassembler is absent where they are.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TARGET_KERNELSTATS_H
#define FFD_TARGET_KERNELSTATS_H

#include "ffd/Target/PTX.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace mlir::ffd {

/// Kinds of instructions. FFD_INSTRUCTION_KIND(name, name in JSON, text)
#define FFD_INSTRUCTION_KINDS                                                  \
  FFD_INSTRUCTION_KIND(Mma, "mma", "matrix multiplications")                   \
  FFD_INSTRUCTION_KIND(SharedLoad16, "shared_loads_16",                        \
                       "16-byte shared loads")                                 \
  FFD_INSTRUCTION_KIND(SharedLoad8, "shared_loads_8", "8-byte shared loads")   \
  FFD_INSTRUCTION_KIND(SharedLoad4, "shared_loads_4",                          \
                       "shared loads of 4 bytes or less")                      \
  FFD_INSTRUCTION_KIND(SharedStore, "shared_stores", "shared stores")          \
  FFD_INSTRUCTION_KIND(Copy, "copies", "copies to shared memory")              \
  FFD_INSTRUCTION_KIND(GlobalLoad, "global_loads", "global loads")             \
  FFD_INSTRUCTION_KIND(GlobalStore, "global_stores",                           \
                       "global stores and atomics")                            \
  FFD_INSTRUCTION_KIND(Local, "local", "local memory")                         \
  FFD_INSTRUCTION_KIND(Integer, "integer", "integer")                          \
  FFD_INSTRUCTION_KIND(Float, "float", "floating point")                       \
  FFD_INSTRUCTION_KIND(Exchange, "exchange", "shuffles, votes, reductions")    \
  FFD_INSTRUCTION_KIND(Control, "control", "branches, barriers, waits")        \
  FFD_INSTRUCTION_KIND(Move, "moves", "moves, conversions, constants")

enum class InstructionKind {
#define FFD_INSTRUCTION_KIND(NAME, JSON, TEXT) NAME,
  FFD_INSTRUCTION_KINDS
#undef FFD_INSTRUCTION_KIND
};
inline constexpr size_t kInstructionKinds = 0
#define FFD_INSTRUCTION_KIND(NAME, JSON, TEXT) +1
    FFD_INSTRUCTION_KINDS
#undef FFD_INSTRUCTION_KIND
    ;

/// Instructions of one pass through a loop, all of its branches included.
struct InstructionMix {
  std::array<int64_t, kInstructionKinds> counts = {};
  int64_t total = 0;
  int64_t conditional = 0; ///< of the total, what a pass may leave out

  int64_t operator[](InstructionKind kind) const {
    return counts[static_cast<size_t>(kind)];
  }
};

struct KernelStats {
  explicit KernelStats(const GPUArch &arch) : arch(arch) {}

  std::string name;
  GPUArch arch;
  int64_t threads = 0;      ///< of a CTA
  int64_t promisedCtas = 0; ///< that one multiprocessor must hold
  int64_t dynamicShared = 0, staticShared = 0; ///< bytes of a CTA
  /// From ptxas. Absent where there is none; `notes` says so.
  std::optional<PtxasReport> assembled;
  /// Per block of 128 tokens, in the scan loop; absent in kernels without one.
  std::optional<InstructionMix> scanPTX, scanSASS;
  std::vector<std::string> notes; ///< what is missing and why

  /// Registers of a thread that the promise allows.
  int64_t registerLimit() const;
  /// CTAs of a multiprocessor as each resource allows them; by registers only
  /// after assembling, by the promise before.
  int64_t ctasByRegisters() const, ctasByShared() const, ctasByThreads() const;
  int64_t residentCtas() const;
};

/// Figures of every kernel of a PTX module. A kernel's scan loop is the
/// innermost loop with integer matrix multiplications that waits for a ring;
/// where no such loop waits (thumbnails that are read directly), the one that
/// has them. Two such loops are an error. `dynamicShared` says what a launch of
/// a kernel passes. `assemble` runs ptxas, whose failure is an error, and a
/// disassembler, whose absence or failure is a note.
FailureOr<std::vector<KernelStats>>
collectKernelStats(StringRef ptx, const GPUArch &arch,
                   llvm::function_ref<int64_t(StringRef)> dynamicShared,
                   bool assemble, std::string &error);

/// Writes them for people.
void printKernelStats(const KernelStats &stats, llvm::raw_ostream &os);
/// Writes `{"kernels": [...]}`; what is absent is null.
void printKernelStatsJson(llvm::ArrayRef<KernelStats> stats,
                          llvm::raw_ostream &os);

} // namespace mlir::ffd

#endif // FFD_TARGET_KERNELSTATS_H
