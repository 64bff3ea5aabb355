//===- Ptxas.cpp - Programs of the CUDA toolkit ---------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs NVIDIA's assembler, which is not part of LLVM, and reads its report; and
// its disassemblers. All their files are temporary.
//
//===----------------------------------------------------------------------===//

#include "ffd/Target/PTX.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"

using namespace mlir;
using namespace mlir::ffd;

std::string mlir::ffd::findCudaProgram(StringRef name, StringRef hint) {
  if (!hint.empty())
    return llvm::sys::fs::can_execute(hint) ? hint.str() : std::string();
  if (auto path = llvm::sys::findProgramByName(name))
    return *path;
  SmallVector<std::string> roots;
  for (const char *variable : {"CUDA_ROOT", "CUDA_HOME", "CUDA_PATH"})
    if (auto value = llvm::sys::Process::GetEnv(variable))
      roots.push_back(*value);
  roots.push_back("/usr/local/cuda");
  for (StringRef root : roots) {
    SmallString<128> path(root);
    llvm::sys::path::append(path, "bin", name);
    if (llvm::sys::fs::can_execute(path))
      return path.str().str();
  }
  return {};
}

/// The number that stands before `what` in the report, 0 if there is none.
static int numberBefore(StringRef report, StringRef what) {
  size_t end = report.find(what);
  if (end == StringRef::npos)
    return 0;
  StringRef before = report.take_front(end).rtrim();
  size_t begin = before.find_last_not_of("0123456789");
  int number = 0;
  before.drop_front(begin == StringRef::npos ? 0 : begin + 1)
      .getAsInteger(10, number);
  return number;
}

static std::string readFile(StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

/// The reports of all kernels: each begins with its name.
static std::vector<PtxasReport> readReports(StringRef log) {
  static constexpr llvm::StringLiteral begin = "Compiling entry function '";
  std::vector<PtxasReport> reports;
  for (size_t at = log.find(begin); at != StringRef::npos;) {
    StringRef text = log.substr(at + begin.size());
    at = log.find(begin, at + begin.size());
    if (at != StringRef::npos)
      text = text.take_front(text.size() - (log.size() - at));
    PtxasReport report;
    report.kernel = text.split('\'').first.str();
    report.registers = numberBefore(text, " registers");
    report.stackBytes = numberBefore(text, " bytes stack frame");
    report.spillStores = numberBefore(text, " bytes spill stores");
    report.spillLoads = numberBefore(text, " bytes spill loads");
    report.sharedBytes = numberBefore(text, " bytes smem");
    reports.push_back(std::move(report));
  }
  return reports;
}

namespace {
/// A file that is gone at the end of its scope.
struct TemporaryFile {
  SmallString<128> path;
  llvm::FileRemover remover;

  LogicalResult create(StringRef suffix, std::string &error) {
    if (std::error_code ec =
            llvm::sys::fs::createTemporaryFile("ffd", suffix, path)) {
      error = "cannot create a temporary file: " + ec.message();
      return failure();
    }
    remover.setFile(path);
    return success();
  }
  LogicalResult write(StringRef bytes, std::string &error) {
    std::error_code ec;
    llvm::raw_fd_ostream os(path, ec);
    os << bytes;
    os.flush();
    if (ec || os.has_error()) {
      error = ("cannot write '" + path + "'").str();
      os.clear_error();
      return failure();
    }
    return success();
  }
};
} // namespace

FailureOr<std::string>
mlir::ffd::assemblePTX(StringRef ptx, StringRef arch, std::string &error,
                       StringRef ptxasPath, std::vector<PtxasReport> *reports) {
  std::string program = findCudaProgram("ptxas", ptxasPath);
  if (program.empty()) {
    error = ptxasPath.empty()
                ? "found no ptxas on PATH, in $CUDA_HOME/bin or in "
                  "/usr/local/cuda/bin; install the CUDA toolkit, 12.8 or "
                  "newer (of NVIDIA's packages, cuda-nvcc is enough)"
                : ("'" + ptxasPath + "' is not an executable ptxas").str();
    return failure();
  }
  TemporaryFile input, output, log;
  if (failed(input.create("ptx", error)) ||
      failed(output.create("cubin", error)) ||
      failed(log.create("log", error)) || failed(input.write(ptx, error)))
    return failure();
  std::string archFlag = ("-arch=" + arch).str();
  StringRef arguments[] = {program,    "-O3", "-v",       archFlag,
                           input.path, "-o",  output.path};
  std::optional<StringRef> redirects[] = {std::nullopt, StringRef(log.path),
                                          StringRef(log.path)};
  std::string failed;
  int status = llvm::sys::ExecuteAndWait(program, arguments, std::nullopt,
                                         redirects, 0, 0, &failed);
  std::string text = readFile(log.path);
  if (status != 0) {
    error = "ptxas failed: " + (failed.empty() ? text : failed);
    return failure();
  }
  if (reports)
    *reports = readReports(text);
  return readFile(output.path);
}

FailureOr<std::string> mlir::ffd::disassemble(StringRef cubin,
                                              std::string &error) {
  std::string program = findCudaProgram("nvdisasm");
  StringRef flag = "-c";
  if (program.empty()) {
    program = findCudaProgram("cuobjdump");
    flag = "-sass";
  }
  if (program.empty()) {
    error = "found neither nvdisasm nor cuobjdump";
    return failure();
  }
  TemporaryFile input, output, log;
  if (failed(input.create("cubin", error)) ||
      failed(output.create("sass", error)) ||
      failed(log.create("log", error)) || failed(input.write(cubin, error)))
    return failure();
  StringRef arguments[] = {program, flag, input.path};
  std::optional<StringRef> redirects[] = {std::nullopt, StringRef(output.path),
                                          StringRef(log.path)};
  std::string failed;
  int status = llvm::sys::ExecuteAndWait(program, arguments, std::nullopt,
                                         redirects, 0, 0, &failed);
  if (status != 0) {
    error =
        "'" + program + "' failed: " +
        (failed.empty() ? StringRef(readFile(log.path)).trim().str() : failed);
    return failure();
  }
  return readFile(output.path);
}
