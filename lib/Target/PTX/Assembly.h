//===- Assembly.h - Control flow of assembly text -------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads PTX, and machine code as NVIDIA's disassemblers print it, as far as
// counting needs: opcodes, operands as text, branches, and the loops that the
// branches make. Nothing here knows what an instruction does.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_TARGET_PTX_ASSEMBLY_H
#define FFD_LIB_TARGET_PTX_ASSEMBLY_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include <string>
#include <vector>

namespace mlir::ffd {

struct AssemblyInstruction {
  std::string opcode;   ///< with its suffixes: "ld.shared.v4.b32"
  std::string operands; ///< the text after it
  std::string target;   ///< label that it may go on at, if any
  bool falls = true;    ///< whether it may go on with the next one
};

/// The code of one function and its control flow.
class AssemblyFunction {
public:
  /// Instructions by index, in ascending order.
  using Loop = std::vector<unsigned>;

  std::string name;
  std::vector<AssemblyInstruction> code;
  llvm::StringMap<unsigned> labels; ///< index of the instruction after it

  /// Natural loops, one per header, each with the loops inside it. A branch to
  /// an unknown label goes nowhere.
  std::vector<Loop> findLoops() const;

  /// Of a loop, the instructions that every iteration executes (as often as
  /// inner loops say): those without which the loop cannot go round.
  Loop alwaysExecuted(const Loop &loop) const;

private:
  SmallVector<unsigned, 2> successors(unsigned index) const;
};

/// The entries of a PTX module.
std::vector<AssemblyFunction> parsePTX(StringRef text);

/// The functions of a disassembly, by `nvdisasm -c` or `cuobjdump -sass`.
std::vector<AssemblyFunction> parseSASS(StringRef text);

} // namespace mlir::ffd

#endif // FFD_LIB_TARGET_PTX_ASSEMBLY_H
