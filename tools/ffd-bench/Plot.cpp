//===- Plot.cpp - Time against context, drawn -----------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Plot.h"

#include "support/Errors.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

using namespace llvm;
using ffd::tools::error;

namespace ffd::bench {

Error plot(const Options &options, const Report &report) {
  const std::string script = findScript(options, "plot.py");
  ErrorOr<std::string> python = sys::findProgramByName(options.python);
  if (!python)
    return error("cannot write '{0}': '{1}' is not found", options.plot,
                 options.python);
  if (!sys::fs::exists(script))
    return error("cannot write '{0}': '{1}' is not found", options.plot,
                 script);
  SmallString<128> data, log;
  int fd = -1;
  if (sys::fs::createTemporaryFile("ffd-bench", "json", fd, data) ||
      sys::fs::createTemporaryFile("ffd-bench", "log", log))
    return error("cannot create temporary files");
  FileRemover removeData(data), removeLog(log);
  {
    raw_fd_ostream os(fd, /*shouldClose=*/true);
    report.printJson(os);
  }
  std::string message;
  int code = sys::ExecuteAndWait(
      *python, {*python, script, data, "-o", options.plot},
      /*Env=*/std::nullopt, {std::nullopt, StringRef(log), StringRef(log)},
      /*SecondsToWait=*/60,
      /*MemoryLimit=*/0, &message);
  if (code == 0)
    return Error::success();
  if (auto said = MemoryBuffer::getFile(log); said && message.empty())
    message = (*said)->getBuffer().trim().rsplit('\n').second.str();
  if (message.empty())
    if (auto said = MemoryBuffer::getFile(log))
      message = (*said)->getBuffer().trim().str();
  return error("cannot write '{0}': {1}", options.plot, message);
}

} // namespace ffd::bench
