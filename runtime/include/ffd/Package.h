//===- Package.h - The kernel package file ----------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One compiled kernel and all that a loader must know of it, in one file: the
// line "FFDK1", lines "key=value", an empty line, the payload. The compiler
// writes packages and the runtime reads them; this file depends on headers of
// the same folder only.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_PACKAGE_H
#define FFD_PACKAGE_H

#include "ffd/Spec.h"
#include "ffd/Status.h"
#include "ffd/abi.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace ffd {

enum class PackageKind {
  Ptx,      ///< PTX text
  Cubin,    ///< machine code of one GPU architecture
  CpuObject ///< ELF object for the CPU; a loader needs a shared object
};

class Package {
public:
  int32_t abi = FFD_ABI_VERSION;
  PackageKind kind = PackageKind::Ptx;
  Program program = Program::Decode;
  std::string target; ///< "sm_90a", "cpu", "cpu:avx2"
  std::string entry;  ///< symbol of the kernel
  ffdSpec spec = {};
  int32_t threads = 0;     ///< threads of a CTA; 0 on a CPU
  int32_t sharedBytes = 0; ///< dynamic shared memory of a CTA
  int32_t ctasPerSm = 0;   ///< CTAs that fit on one SM; 0 on a CPU
  std::string payload;

  /// The canonical file name, `decode-d128-v128-g4-f16-b2-q128-s16.sm_90a.ffdk`
  /// (a ':' in a CPU target becomes '-').
  std::string fileName() const;
  static std::string fileName(Program program, const ffdSpec &spec,
                              const std::string &target);

  /// The bytes of the file. Fails if a field could not be read back.
  Status serialize(std::string &bytes) const;
  /// Reads the bytes of a file; `name` stands in messages.
  static Status parse(const void *bytes, size_t size, const std::string &name,
                      Package &package);

  /// Writes to a temporary file in the same folder and renames it.
  Status write(const std::string &path) const;
  static Status read(const std::string &path, Package &package);
};

const char *packageKindName(PackageKind kind);

/// CRC-32 as in zlib; `before` is that of the bytes before.
uint32_t crc32(const void *bytes, size_t size, uint32_t before = 0);

} // namespace ffd
#endif // FFD_PACKAGE_H
