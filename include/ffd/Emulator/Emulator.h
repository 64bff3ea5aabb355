//===- Emulator.h - Runs NVVM kernels on the host --- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A SIMT emulator: executes an `llvm.func` of the LLVM and NVVM dialects, the
// very function that becomes PTX, on the host, and checks it on the way
// (bounds, races, divergence, missing waits and fences; docs/emulator.md). It
// knows nothing of the rest of this project.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_EMULATOR_EMULATOR_H
#define FFD_EMULATOR_EMULATOR_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Location.h"
#include "llvm/ADT/ArrayRef.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ffd::emulator {

struct LaunchConfig {
  std::array<uint32_t, 3> grid = {1, 1, 1};
  std::array<uint32_t, 3> block = {32, 1, 1};
  uint32_t dynamicSharedBytes = 0;
};

/// Host memory that the kernel may access; the device pointer is the host
/// pointer. Accesses outside of all buffers are errors, so buffers should lie
/// apart (DeviceMemory sees to that).
struct Buffer {
  void *data = nullptr;
  size_t bytes = 0;
  /// Nobody writes it while the kernel runs: a write is an error, and reads
  /// need no race check, which is faster.
  bool readOnly = false;
  std::string name;
};

/// One kernel parameter: its bytes, a struct passed by value included.
struct Argument {
  std::vector<uint8_t> bytes;

  template <typename T>
  static Argument of(const T &value) {
    Argument result;
    result.bytes.resize(sizeof(T));
    std::memcpy(result.bytes.data(), &value, sizeof(T));
    return result;
  }
};

/// How `mma` on floats adds: the exact sum rounded once, or aligned and cut off
/// as the tensor cores of a generation do (docs/emulator.md).
enum class TensorCores { Exact, Ampere, Hopper };

struct Options {
  uint64_t seed = 1;
  TensorCores tensorCores = TensorCores::Exact;
  /// Bounds and alignment of every access.
  bool checkMemory = true;
  /// Happens-before races and reads of unwritten shared memory; needs
  /// checkMemory.
  bool checkRaces = true;
  bool checkUninitialized = true;
  /// Blocks that run at the same time.
  unsigned residentBlocks = 2;
  /// A warp gives way after a memory access once in so many accesses; 0: never.
  unsigned preemptionPeriod = 16;
  /// Calls of the run-time (accesses, GPU operations, loop iterations) before a
  /// kernel counts as endless.
  uint64_t stepBudget = 2'000'000'000;
  /// Of the host code, 0 to 3.
  unsigned optLevel = 1;
};

/// What went wrong, where.
struct Report {
  bool ok = true;
  std::string message;
  /// Of the operation at fault, and of the earlier access in a race.
  std::optional<mlir::Location> location, otherLocation;
  /// What else a kernel has that the emulator does not know, in its order.
  struct Finding {
    std::string message;
    std::optional<mlir::Location> location;
  };
  std::vector<Finding> more;
  /// Absent for errors that no lane caused (unknown operations).
  bool hasLane = false;
  std::array<uint32_t, 3> block = {0, 0, 0};
  uint32_t warp = 0, lane = 0;

  uint64_t steps = 0, switches = 0; ///< of the whole launch

  /// One line per fact, as a compiler prints diagnostics.
  std::string str() const;
};

/// Memory with guard zones of `kGuardBytes` on both sides, of which every byte
/// outside the payload is out of bounds.
class DeviceMemory {
public:
  static constexpr size_t kGuardBytes = 4096;

  explicit DeviceMemory(size_t bytes, uint8_t fill = 0);
  DeviceMemory(const void *data, size_t bytes);
  uint8_t *data() { return storage.get() + kGuardBytes + skew; }
  size_t size() const { return bytes; }
  template <typename T>
  T *as() {
    return reinterpret_cast<T *>(data());
  }
  Buffer buffer(std::string name, bool readOnly = false) {
    return {data(), bytes, readOnly, std::move(name)};
  }

private:
  size_t bytes, skew;
  std::unique_ptr<uint8_t[]> storage;
};

/// A kernel compiled for the host, to launch as often as one likes.
class CompiledKernel {
public:
  /// Null if the kernel cannot be emulated; `report` then says why. `module` is
  /// not changed; its context must outlive the kernel.
  static std::unique_ptr<CompiledKernel> create(mlir::ModuleOp module,
                                                llvm::StringRef kernel,
                                                const Options &options,
                                                Report &report);
  ~CompiledKernel();

  /// Options that concern compilation are those of `create`.
  Report launch(const LaunchConfig &config, llvm::ArrayRef<Argument> arguments,
                llvm::ArrayRef<Buffer> buffers, const Options &options);

private:
  struct Impl;
  explicit CompiledKernel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

/// Compiles and launches once.
Report emulateKernel(mlir::ModuleOp module, llvm::StringRef kernel,
                     const LaunchConfig &config,
                     llvm::ArrayRef<Argument> arguments,
                     llvm::ArrayRef<Buffer> buffers,
                     const Options &options = {});

} // namespace ffd::emulator

#endif // FFD_EMULATOR_EMULATOR_H
