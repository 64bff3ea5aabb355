//===- Main.cpp - The frame of a tool -------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Main.h"

#include "Errors.h"

#include "ffd/abi.h"

#include "llvm/Support/InitLLVM.h"

#include <cstdio>
#include <cstdlib>
#include <new>

using namespace llvm;

/// A handler of operator new takes no arguments.
static const char *toolName = "";

int ffd::tools::runMain(int argc, char **argv, const char *name,
                        cl::OptionCategory &category, const char *overview,
                        function_ref<Error()> run) {
  InitLLVM init(argc, argv);
  toolName = name;
  std::set_new_handler([] {
    std::fprintf(stderr, "%s: error: out of memory\n", toolName);
    std::_Exit(1);
  });
  cl::HideUnrelatedOptions(category);
  cl::SetVersionPrinter([](raw_ostream &os) {
    os << toolName << ", kernel ABI " << FFD_ABI_VERSION << "\n";
  });
  cl::ParseCommandLineOptions(argc, argv, overview);
  Error e = run();
  if (!e) {
    outs().flush();
    if (std::error_code ec = outs().error()) {
      outs().clear_error();
      e = error("cannot write the standard output: {0}", ec.message());
    }
  }
  if (!e)
    return 0;
  outs().flush();
  errs() << name << ": error: " << toString(std::move(e)) << "\n";
  return 1;
}
