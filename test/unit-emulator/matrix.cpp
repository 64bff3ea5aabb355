//===- matrix.cpp - Kernels of the whole matrix, emulated -----------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ffd-emulator-matrix runs one kernel of the matrix with all its inputs, or
// lists the kernels. scripts/emulate-matrix drives it.
//
//===----------------------------------------------------------------------===//

#include "CheckCase.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

#include <random>

using namespace ffd;
namespace cl = llvm::cl;

static cl::OptionCategory category("ffd-emulator-matrix options");
static cl::opt<bool> list("list", cl::cat(category),
                          cl::desc("Print the numbers of the kernels"));
static cl::opt<uint64_t> kernelOpt("kernel", cl::cat(category),
                                   cl::desc("Kernel to run"));
static cl::opt<uint64_t>
    inputs("inputs", cl::cat(category),
           cl::desc("Run that many of its inputs, drawn by the kernel's number "
                    "(default 0: all)"));
static cl::list<std::string>
    where("where", cl::cat(category), cl::value_desc("factor=value|value.."),
          cl::desc("Only combinations with one of these values; may be given "
                   "for several factors"));

/// Whether a combination, as MatrixCase::describe() has it, is wanted. Those of
/// one kernel may be told apart by the factors of inputs.
static bool matches(llvm::StringRef description) {
  llvm::SmallVector<llvm::StringRef> words;
  description.split(words, ' ');
  for (llvm::StringRef filter : where) {
    auto [factor, values] = filter.split('=');
    llvm::SmallVector<llvm::StringRef> choices;
    values.split(choices, '|');
    bool found = false;
    for (llvm::StringRef word : words) {
      auto [name, value] = word.split('=');
      found |= name == factor && llvm::is_contained(choices, value);
    }
    if (!found)
      return false;
  }
  return true;
}

static std::vector<uint64_t> matchingInputs(uint64_t kernel, bool first) {
  std::vector<uint64_t> numbers;
  const uint64_t count = inputsPerKernel();
  for (uint64_t i = kernel * count; i < (kernel + 1) * count; ++i)
    if (where.empty() || matches(matrixCase(i).describe())) {
      numbers.push_back(i);
      if (first)
        break;
    }
  return numbers;
}

/// A filter that no combination meets is a mistake.
static bool checkFilters() {
  for (llvm::StringRef filter : where) {
    bool known = false;
    llvm::SmallVector<llvm::StringRef> words;
    const std::string description = matrixCase(0).describe();
    llvm::StringRef(description).split(words, ' ');
    for (llvm::StringRef word : words)
      known |= word.split('=').first == filter.split('=').first &&
               filter.contains('=');
    if (!known) {
      llvm::errs() << "error: --where is '" << filter
                   << "', expected FACTOR=VALUE as in '" << description
                   << "'\n";
      return false;
    }
  }
  return true;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv,
                              "Emulates the kernels of the whole matrix\n");
  const uint64_t kernels = matrixSize() / inputsPerKernel();
  if (!checkFilters())
    return 2;
  if (list) {
    for (uint64_t k = 0; k < kernels; ++k)
      if (!matchingInputs(k, /*first=*/true).empty())
        llvm::outs() << k << '\n';
    return 0;
  }
  if (kernelOpt >= kernels) {
    llvm::errs() << "error: --kernel is " << kernelOpt << ", expected 0 to "
                 << kernels - 1 << '\n';
    return 2;
  }
  std::vector<uint64_t> numbers = matchingInputs(kernelOpt, /*first=*/false);
  if (inputs && inputs < numbers.size()) {
    std::mt19937_64 random(kernelOpt);
    std::shuffle(numbers.begin(), numbers.end(), random);
    numbers.resize(inputs);
  }
  uint64_t failed = 0;
  const auto report = [&](const MatrixCase &c, const char *message) {
    ++failed;
    llvm::outs() << "FAILED " << c.describe() << ": " << message << '\n';
    llvm::outs().flush();
  };
  if (!numbers.empty()) {
    const MatrixCase first = matrixCase(numbers.front());
    std::string error;
    EmulatedDecode decode(first.spec, first.arch, error);
    if (!error.empty()) {
      report(first, error.c_str());
    } else {
      for (uint64_t number : numbers) {
        const MatrixCase c = matrixCase(number);
        if (auto result = checkCase(c, decode); !result)
          report(c, result.message());
      }
      if (auto result = checkScores(first, decode, hasCpuKernel()); !result)
        report(first, result.message());
    }
  }
  llvm::outs() << "kernel " << kernelOpt << ": " << numbers.size()
               << " inputs, " << failed << " failed\n";
  return failed ? 1 : 0;
}
