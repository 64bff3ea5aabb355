//===- Safetensors.h - Reading and writing .safetensors files ---*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A reader that maps a .safetensors file and checks every claim of its header
// before anything uses it, and a writer that replaces its output atomically.
//
// The format's own implementation is a Rust crate with Python bindings, and no
// C++ library for it is packaged by the distributions this project supports.
// The format is an eight-byte length, a JSON header and raw bytes, so a few
// hundred lines on LLVM's JSON parser serve better than a foreign toolchain in
// the build.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_TOOLS_FFDRUN_SAFETENSORS_H
#define FFD_TOOLS_FFDRUN_SAFETENSORS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ffd::safetensors {

/// The element types of the format that have a whole number of bytes.
enum class DType {
  BOOL,
  U8,
  I8,
  F8_E4M3,
  F8_E5M2,
  U16,
  I16,
  F16,
  BF16,
  U32,
  I32,
  F32,
  U64,
  I64,
  F64
};

/// Bytes of one element.
int64_t sizeOf(DType type);
/// The name of the type in a header, `"BF16"`.
llvm::StringRef nameOf(DType type);

/// A tensor in a file, or one to be written. `data` need not be aligned.
struct Tensor {
  std::string name;
  DType type = DType::U8;
  llvm::SmallVector<int64_t, 4> shape;
  llvm::ArrayRef<uint8_t> data;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t elements() const;
  /// `F16 [2, 8, 128]`, for messages.
  std::string describe() const;
};

/// A checked file. Its tensors point into the mapping and live as long as it.
class File {
public:
  /// Maps and checks the file at `path`; messages name the path.
  static llvm::Expected<File> open(llvm::StringRef path);
  /// Checks a file that is in memory already.
  static llvm::Expected<File> parse(std::unique_ptr<llvm::MemoryBuffer> buffer);

  /// The tensors in the order of their bytes.
  llvm::ArrayRef<Tensor> tensors() const { return allTensors; }
  /// The tensor called `name`, or null.
  const Tensor *find(llvm::StringRef name) const;

private:
  File() = default;

  std::unique_ptr<llvm::MemoryBuffer> buffer;
  std::vector<Tensor> allTensors;
  llvm::StringMap<size_t> indices;
};

/// Writes `tensors` to `path` through a temporary file next to it, so that
/// `path` holds either what it held before or the whole new file. Anything that
/// is not a regular file (a pipe, a device) is written in place.
llvm::Error write(llvm::StringRef path, llvm::ArrayRef<Tensor> tensors);

/// Replaces `path` by these bytes, one piece after another, in the same way.
llvm::Error writeFile(llvm::StringRef path,
                      llvm::ArrayRef<llvm::ArrayRef<uint8_t>> pieces);

/// Whether the two functions above could write `path`; for asking before a long
/// computation.
llvm::Error checkWritable(llvm::StringRef path);

} // namespace ffd::safetensors

#endif // FFD_TOOLS_FFDRUN_SAFETENSORS_H
