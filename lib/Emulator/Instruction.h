//===- Instruction.h - GPU operations as small programs ------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every GPU operation of a kernel, be it an intrinsic or inline assembly,
// becomes a short program of PTX instructions over 64-bit registers that one
// lane interprets. What an instruction does is found once, by its name.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_LIB_EMULATOR_INSTRUCTION_H
#define FFD_LIB_EMULATOR_INSTRUCTION_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ffd::emulator {

class Machine;
struct Lane;
struct Warp;
struct Instruction;
struct GpuOp;

struct Operand {
  enum Kind : uint8_t { Sink, Register, Immediate, Memory, Vector, Special };
  Kind kind = Sink;
  bool negated = false;
  int reg = -1;               ///< Register, base of Memory
  int64_t imm = 0;            ///< Immediate, offset of Memory
  std::string name;           ///< Special
  std::vector<Operand> parts; ///< Vector; Memory with coordinates

  static Operand ofRegister(int reg) {
    Operand result;
    result.kind = Register;
    result.reg = reg;
    return result;
  }
  static Operand ofImmediate(int64_t imm) {
    Operand result;
    result.kind = Immediate;
    result.imm = imm;
    return result;
  }
};

/// Executes an instruction for one lane.
using Execute = void (*)(Machine &, Lane &, const Instruction &,
                         uint64_t *regs);
/// Executes an instruction for the lanes of `mask`, all of which wait at it.
using Collective = void (*)(Machine &, Warp &, const Instruction &,
                            uint64_t *const *regs, uint32_t mask);

struct Instruction {
  std::string text;                        ///< for messages
  llvm::SmallVector<std::string, 8> parts; ///< the name, split at dots
  llvm::SmallVector<Operand, 6> operands;
  int predicate = -1; ///< register
  bool predicateNegated = false;
  int target = -1; ///< of a branch

  // Set by `resolve`.
  Execute execute = nullptr;
  Collective collective = nullptr;
  int maskOperand = -1; ///< of a collective; -1: all lanes of the warp
  int a = 0, b = 0, c = 0, d = 0; ///< whatever `execute` wants

  llvm::StringRef part(size_t i) const {
    return i < parts.size() ? llvm::StringRef(parts[i]) : llvm::StringRef();
  }
  bool has(llvm::StringRef name) const {
    for (const std::string &p : parts)
      if (p == name)
        return true;
    return false;
  }
};

/// One GPU operation of the kernel.
struct GpuOp {
  uint32_t place = 0; ///< index of its location
  std::vector<Instruction> program;
  unsigned registers = 0;
};

/// Parses inline assembly whose `$n` are registers 0 to `count` - 1. More
/// registers are added to `op` for those that the text declares. Returns false
/// and says why in `error` if something is not understood.
bool parsePtx(llvm::StringRef text, unsigned count, GpuOp &op,
              std::string &error);

/// Finds what an instruction does. False if it is unknown.
bool resolve(Instruction &instruction);

// One per file of instructions; each returns false for names of the others.
bool resolveArithmetic(Instruction &instruction);
bool resolveBits(Instruction &instruction);
bool resolveConversion(Instruction &instruction);
bool resolveMemory(Instruction &instruction);
bool resolveWarp(Instruction &instruction);
bool resolveMatrix(Instruction &instruction);
bool resolveBarrier(Instruction &instruction);
bool resolveAsyncCopy(Instruction &instruction);

/// Whether `llvm.nvvm.NAME` is known; if so, the PTX instruction that it is,
/// with `$n` for its operands: results first.
bool ptxOfIntrinsic(llvm::StringRef name, unsigned results, unsigned operands,
                    std::string &ptx);

} // namespace ffd::emulator

#endif // FFD_LIB_EMULATOR_INSTRUCTION_H
