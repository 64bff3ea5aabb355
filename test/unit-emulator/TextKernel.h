//===- TextKernel.h - Kernels written as text -*- C++ -*- ---------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels for tests of single instructions: every lane loads words, executes a
// piece of inline assembly on them and stores words.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TEST_UNIT_EMULATOR_TEXTKERNEL_H
#define FFD_TEST_UNIT_EMULATOR_TEXTKERNEL_H

#include "ffd/Emulator/Emulator.h"

#include "gtest/gtest.h"

#include <string>
#include <vector>

namespace ffd::emulator {

/// Runs kernel `@kernel` of a text on one warp.
Report run(const std::string &text, llvm::ArrayRef<Argument> arguments,
           llvm::ArrayRef<Buffer> buffers, LaunchConfig config = {},
           Options options = {});

/// What a piece of assembly gets and gives. Its operands are the `out` results,
/// the `in` inputs, then `kShared` and `kGlobal`: registers with the address of
/// the block's shared memory (32 bits) and of a buffer in global memory.
struct WordKernel {
  static constexpr unsigned kSharedWords = 1024;

  unsigned out = 1, in = 1;
  std::string ptx;

  /// Text of the operand `n` places after the inputs.
  std::string shared() const { return "$" + std::to_string(out + in); }
  std::string global() const { return "$" + std::to_string(out + in + 1); }

  /// The module, as text.
  std::string text() const;
};

/// Runs the assembly on one warp whose lane `l` has inputs `words[l * in + i]`;
/// shared memory begins with a copy of `words`. `global` is the buffer in
/// global memory and receives what the kernel leaves there.
Report runWords(const WordKernel &kernel, const std::vector<uint32_t> &words,
                std::vector<uint32_t> &results, std::vector<uint32_t> &global,
                uint64_t seed = 1);

/// The results of all lanes; fails the test if the emulator reports an error.
std::vector<uint32_t> runWords(unsigned out, unsigned in,
                               const std::string &ptx,
                               const std::vector<uint32_t> &words);

} // namespace ffd::emulator
#endif // FFD_TEST_UNIT_EMULATOR_TEXTKERNEL_H
