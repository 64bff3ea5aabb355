//===- ffd-emulate.cpp - Runs an NVVM kernel on the host ----- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The emulator on the command line: compiles one kernel of an MLIR file, makes
// its arguments from short texts, launches it, and prints buffers and the
// report. Meant for tests of small kernels.
//
//===----------------------------------------------------------------------===//

#include "support/Files.h"

#include "ffd/Emulator/Emulator.h"

#include "mlir/Dialect/DLTI/DLTI.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>

using namespace ffd::emulator;
namespace cl = llvm::cl;

static cl::OptionCategory category("ffd-emulate options");
static cl::opt<std::string> input(cl::Positional, cl::desc("<kernel.mlir>"),
                                  cl::init("-"), cl::cat(category));
static cl::opt<std::string> kernelName("kernel", cl::desc("Kernel to run"),
                                       cl::init("kernel"), cl::cat(category));
static cl::opt<std::string> grid("grid", cl::desc("Blocks: x[,y[,z]]"),
                                 cl::init("1"), cl::cat(category));
static cl::opt<std::string> block("block", cl::desc("Threads: x[,y[,z]]"),
                                  cl::init("32"), cl::cat(category));
static cl::opt<unsigned> shared("shared", cl::desc("Dynamic shared bytes"),
                                cl::cat(category));
static cl::list<std::string>
    argTexts("arg",
             cl::desc("Argument: VALUE:TYPE, or a buffer "
                      "[>][~]TYPE[COUNT][=iota|=@FILE|=VALUE,..] ('>' prints "
                      "it afterwards, '~' makes it read-only, the last value "
                      "repeats, a file holds the bytes). Types: i8 i16 i32 "
                      "i64 f32 f64, x32 prints in hexadecimal"),
             cl::cat(category));
static cl::opt<uint64_t> seed("seed", cl::desc("Of the schedule"), cl::init(1),
                              cl::cat(category));
static cl::opt<unsigned> seeds("seeds", cl::desc("Run that many schedules"),
                               cl::init(1), cl::cat(category));
static cl::opt<unsigned> resident("resident-blocks",
                                  cl::desc("Blocks that run at a time"),
                                  cl::init(2), cl::cat(category));
static cl::opt<uint64_t> budget("step-budget",
                                cl::desc("Steps before a kernel is endless"),
                                cl::init(Options().stepBudget),
                                cl::cat(category));
static cl::opt<bool> noRaces("no-race-check", cl::desc("Skip the race check"),
                             cl::cat(category));
static cl::opt<bool> noMemory("no-memory-check",
                              cl::desc("Skip all checks of accesses"),
                              cl::cat(category));
static cl::opt<TensorCores> tensorCores(
    "tensor-cores", cl::desc("How mma on floats adds"),
    cl::values(clEnumValN(TensorCores::Exact, "exact",
                          "the exact sum, rounded once (default)"),
               clEnumValN(TensorCores::Ampere, "ampere", "as sm_80 to sm_89"),
               clEnumValN(TensorCores::Hopper, "hopper", "as sm_90")),
    cl::init(TensorCores::Exact), cl::cat(category));
static cl::opt<unsigned> level("O", cl::Prefix,
                               cl::desc("Optimisation of host code"),
                               cl::init(1), cl::cat(category));
static cl::opt<bool> stats("timing", cl::desc("Print steps and times"),
                           cl::cat(category));

namespace {
struct TypedBuffer {
  std::string type;
  size_t count = 0, width = 0;
  bool print = false;
  std::unique_ptr<DeviceMemory> memory;
};
} // namespace

static int fail(const llvm::Twine &message) {
  llvm::errs() << "ffd-emulate: error: " << message << '\n';
  return 1;
}

static size_t widthOf(llvm::StringRef type) {
  unsigned bits = 0;
  if (type.empty() || type.drop_front().getAsInteger(10, bits))
    return 0;
  return bits == 8 || bits == 16 || bits == 32 || bits == 64 ? bits / 8 : 0;
}

static bool encode(llvm::StringRef text, llvm::StringRef type, void *to) {
  size_t width = widthOf(type);
  double real;
  if (type[0] == 'f') {
    if (text.getAsDouble(real))
      return false;
    float narrow = float(real);
    std::memcpy(to, width == 4 ? static_cast<void *>(&narrow) : &real, width);
    return width == 4 || width == 8;
  }
  int64_t value;
  uint64_t bits;
  if (text.getAsInteger(0, value)) {
    if (text.getAsInteger(0, bits))
      return false;
    value = int64_t(bits);
  }
  if (!width || width > 8)
    return false;
  std::memcpy(to, &value, width);
  return true;
}

static void print(const TypedBuffer &buffer, llvm::raw_ostream &os) {
  for (size_t i = 0; i < buffer.count; ++i) {
    const uint8_t *from = buffer.memory->data() + i * buffer.width;
    os << (i ? " " : "");
    if (buffer.type[0] == 'f') {
      float narrow;
      double real;
      std::memcpy(&narrow, from, 4);
      std::memcpy(&real, from, buffer.width);
      os << llvm::format("%g", buffer.width == 4 ? double(narrow) : real);
      continue;
    }
    uint64_t bits = 0;
    std::memcpy(&bits, from, buffer.width);
    unsigned shift = unsigned(64 - 8 * buffer.width);
    if (buffer.type[0] == 'x')
      os << llvm::format_hex(bits, 2 + 2 * unsigned(buffer.width));
    else
      os << (int64_t(bits << shift) >> shift);
  }
  os << '\n';
}

/// Parses one --arg; false if it makes no sense.
/// A kernel under the emulator would never end with more.
static constexpr size_t kMaxArgumentBytes = size_t(1) << 32;

static bool parseArgument(llvm::StringRef text, std::vector<Argument> &args,
                          std::vector<TypedBuffer> &typed,
                          std::vector<Buffer> &buffers) {
  size_t bracket = text.find('[');
  if (bracket == llvm::StringRef::npos) {
    auto [value, type] = text.split(':');
    Argument argument;
    if (type.empty())
      return false;
    argument.bytes.resize(widthOf(type));
    args.push_back(argument);
    return encode(value, type, args.back().bytes.data());
  }
  TypedBuffer buffer;
  bool readOnly = false;
  buffer.print = text.consume_front(">");
  readOnly = text.consume_front("~");
  auto [type, rest] = text.split('[');
  auto [count, tail] = rest.split(']');
  buffer.type = type.str();
  if (type.empty() || !(buffer.width = widthOf(type)) ||
      count.getAsInteger(0, buffer.count))
    return false;
  if (buffer.count > kMaxArgumentBytes / buffer.width) {
    llvm::errs() << "ffd-emulate: error: a buffer of " << buffer.count
                 << " elements of " << buffer.width
                 << " bytes, expected at most " << kMaxArgumentBytes
                 << " bytes\n";
    return false;
  }
  buffer.memory = std::make_unique<DeviceMemory>(buffer.count * buffer.width);
  if (tail.consume_front("=@")) {
    if (llvm::Error e = ffd::tools::expectRegularFile(tail)) {
      fail(llvm::toString(std::move(e)));
      return false;
    }
    auto file = llvm::MemoryBuffer::getFile(tail, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
    if (!file) {
      llvm::errs() << "ffd-emulate: error: cannot read '" << tail
                   << "': " << file.getError().message() << '\n';
      return false;
    }
    if ((*file)->getBufferSize() != buffer.memory->size()) {
      llvm::errs() << "ffd-emulate: error: '" << tail << "' has "
                   << (*file)->getBufferSize() << " bytes, expected "
                   << buffer.memory->size() << '\n';
      return false;
    }
    std::memcpy(buffer.memory->data(), (*file)->getBufferStart(),
                buffer.memory->size());
  } else if (tail.consume_front("=")) {
    llvm::SmallVector<llvm::StringRef> values;
    tail.split(values, ',');
    if (values.size() > buffer.count) {
      llvm::errs() << "ffd-emulate: error: " << values.size() << " values for "
                   << buffer.count << " elements\n";
      return false;
    }
    for (size_t i = 0; i < buffer.count; ++i) {
      std::string iota = std::to_string(i);
      llvm::StringRef value = tail == "iota"      ? llvm::StringRef(iota)
                              : i < values.size() ? values[i]
                                                  : values.back();
      if (!encode(value, type, buffer.memory->data() + i * buffer.width))
        return false;
    }
  }
  buffers.push_back(buffer.memory->buffer(
      "argument " + std::to_string(args.size()), readOnly));
  args.push_back(Argument::of(buffer.memory->data()));
  typed.push_back(std::move(buffer));
  return true;
}

static bool parseSizes(llvm::StringRef text, std::array<uint32_t, 3> &sizes) {
  llvm::SmallVector<llvm::StringRef> parts;
  text.split(parts, ',');
  if (parts.size() > 3)
    return false;
  for (auto [i, part] : llvm::enumerate(parts))
    if (part.getAsInteger(0, sizes[i]) || sizes[i] == 0)
      return false;
  return true;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv, "Runs an NVVM kernel on the host\n");
  struct Range {
    const cl::opt<unsigned> *option;
    unsigned least, most;
  };
  for (const Range &range :
       {Range{&level, 0, 3}, Range{&resident, 1, 1 << 16},
        Range{&seeds, 1, 1 << 20}, Range{&shared, 0, 1 << 20}})
    if (*range.option < range.least || *range.option > range.most)
      return fail("option -" +
                  llvm::Twine(range.option->ArgStr.size() > 1 ? "-" : "") +
                  range.option->ArgStr + " is " + llvm::Twine(*range.option) +
                  ", expected " + llvm::Twine(range.least) + " to " +
                  llvm::Twine(range.most));
  mlir::DialectRegistry registry;
  registry.insert<mlir::LLVM::LLVMDialect, mlir::NVVM::NVVMDialect,
                  mlir::gpu::GPUDialect, mlir::DLTIDialect>();
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(input, &context);
  if (!module)
    return 1;
  LaunchConfig config;
  config.dynamicSharedBytes = shared;
  for (auto [option, sizes] :
       {std::pair(&grid, &config.grid), std::pair(&block, &config.block)})
    if (!parseSizes(*option, *sizes))
      return fail("option --" + option->ArgStr + " is '" + *option +
                  "', expected x[,y[,z]], numbers of at least 1");
  Options options;
  options.residentBlocks = resident;
  options.stepBudget = budget;
  options.checkMemory = !noMemory;
  options.checkRaces = !noRaces && !noMemory;
  options.optLevel = level;
  options.tensorCores = tensorCores;
  auto now = std::chrono::steady_clock::now;
  auto start = now();
  Report report;
  auto kernel = CompiledKernel::create(*module, kernelName, options, report);
  auto compiled = now();
  for (unsigned run = 0; kernel && report.ok && run < seeds; ++run) {
    std::vector<Argument> args;
    std::vector<TypedBuffer> typed;
    std::vector<Buffer> buffers;
    for (const std::string &text : argTexts)
      if (!parseArgument(text, args, typed, buffers)) {
        return fail("option --arg is '" + text +
                    "', expected VALUE:TYPE or [>][~]TYPE[COUNT][=...]");
      }
    options.seed = seed + run;
    report = kernel->launch(config, args, buffers, options);
    if (run + 1 < seeds || !report.ok)
      continue;
    for (const TypedBuffer &buffer : typed)
      if (buffer.print)
        print(buffer, llvm::outs());
  }
  if (stats) {
    auto ms = [](auto d) {
      return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
    };
    llvm::errs() << "compiled in " << ms(compiled - start) << " ms, ran in "
                 << ms(now() - compiled) << " ms, " << report.steps
                 << " steps, " << report.switches << " switches\n";
  }
  if (report.ok)
    return 0;
  llvm::errs() << report.str() << '\n';
  return 1;
}
