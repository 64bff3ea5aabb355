//===- Ptxas.cpp - Assembling PTX ------------------------ -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs NVIDIA's assembler, which is not part of LLVM, and reads its report. All
// its files are temporary.
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

std::string mlir::ffd::findPtxas(StringRef hint) {
  if (!hint.empty())
    return llvm::sys::fs::can_execute(hint) ? hint.str() : std::string();
  if (auto path = llvm::sys::findProgramByName("ptxas"))
    return *path;
  SmallVector<std::string> roots;
  for (const char *variable : {"CUDA_ROOT", "CUDA_HOME", "CUDA_PATH"})
    if (auto value = llvm::sys::Process::GetEnv(variable))
      roots.push_back(*value);
  roots.push_back("/usr/local/cuda");
  for (StringRef root : roots) {
    SmallString<128> path(root);
    llvm::sys::path::append(path, "bin", "ptxas");
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

FailureOr<std::string> mlir::ffd::assemblePTX(StringRef ptx, StringRef arch,
                                              std::string &error,
                                              StringRef ptxasPath,
                                              PtxasReport *report) {
  std::string program = findPtxas(ptxasPath);
  if (program.empty()) {
    error = ptxasPath.empty()
                ? "found no ptxas on PATH, in $CUDA_HOME/bin or in "
                  "/usr/local/cuda/bin; install the CUDA toolkit, 12.8 or "
                  "newer (of NVIDIA's packages, cuda-nvcc is enough)"
                : ("'" + ptxasPath + "' is not an executable ptxas").str();
    return failure();
  }
  SmallString<128> input, output, log;
  for (auto [name, path] :
       {std::pair<const char *, SmallString<128> *>{"ptx", &input},
        {"cubin", &output},
        {"log", &log}})
    if (std::error_code ec =
            llvm::sys::fs::createTemporaryFile("ffd", name, *path)) {
      error = "cannot create a temporary file: " + ec.message();
      return failure();
    }
  llvm::FileRemover removeInput(input), removeOutput(output), removeLog(log);
  {
    std::error_code ec;
    llvm::raw_fd_ostream os(input, ec);
    os << ptx;
    os.flush();
    if (ec || os.has_error()) {
      error = "cannot write '" + input.str().str() + "'";
      os.clear_error();
      return failure();
    }
  }
  std::string archFlag = ("-arch=" + arch).str();
  StringRef arguments[] = {program, "-O3", "-v", archFlag, input, "-o", output};
  std::optional<StringRef> redirects[] = {std::nullopt, StringRef(log),
                                          StringRef(log)};
  std::string failed;
  int status = llvm::sys::ExecuteAndWait(program, arguments, std::nullopt,
                                         redirects, 0, 0, &failed);
  std::string text = readFile(log);
  if (report) {
    report->text = text;
    report->registers = numberBefore(text, " registers");
    report->stackBytes = numberBefore(text, " bytes stack frame");
    report->spillStores = numberBefore(text, " bytes spill stores");
    report->spillLoads = numberBefore(text, " bytes spill loads");
    report->sharedBytes = numberBefore(text, " bytes smem");
  }
  if (status != 0) {
    error = "ptxas failed: " + (failed.empty() ? text : failed);
    return failure();
  }
  return readFile(output);
}
