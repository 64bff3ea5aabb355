//===- EmulatedKernel.cpp - Generated GPU kernels on the emulator ---------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// See EmulatedKernel.h.
//
//===----------------------------------------------------------------------===//

#include "ffd/Emulated/EmulatedKernel.h"

#include "ArgExtents.h" // of the runtime: what arguments reach

#include "ffd/Conversion/GPUPipeline.h"
#include "ffd/Driver/Compiler.h"
#include "ffd/Driver/Programs.h"

#include "ffd/Selector.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/LocationSnapshot.h"

#include <cstring>

using namespace ffd;
using emulator::Buffer;
using emulator::DeviceMemory;
using emulator::Report;

/// CTAs that the GPU whose choice of pieces we follow runs at a time: 132
/// multiprocessors, two each.
static constexpr int64_t kResidentCtas = 264;

EmulatedKernel::EmulatedKernel(const ffdSpec &spec, Program program)
    : spec(spec), program(program),
      context(mlir::MLIRContext::Threading::DISABLED) {}

std::unique_ptr<EmulatedKernel> EmulatedKernel::create(const ffdSpec &spec,
                                                       const Options &options,
                                                       std::string &error) {
  error.clear();
  if (Status status = checkSpec(spec); !status.ok()) {
    error = status.message();
    return nullptr;
  }
  if (spec.no_residuals) {
    error = "spec has no residuals, expected some: attention over thumbnails "
            "or whole keys has no kernel for a GPU";
    return nullptr;
  }
  std::unique_ptr<EmulatedKernel> kernel(
      new EmulatedKernel(spec, options.program));
  if (!kernel->lower(options, error) || !kernel->compile(error))
    return nullptr;
  return kernel;
}

bool EmulatedKernel::lower(const Options &options, std::string &error) {
  mlir::ffd::CompilerOptions target;
  target.arch = options.arch;
  if (target.isCPU()) {
    error = "arch is 'cpu', expected an architecture of a GPU such as sm_90a";
    return false;
  }
  if (mlir::failed(
          mlir::ffd::checkTarget(target, mlir::ffd::Stage::NVVM, error)))
    return false;
  mlir::DialectRegistry registry;
  mlir::ffd::registerCompilerDialects(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
  mlir::ScopedDiagnosticHandler handler(
      &context, [&](mlir::Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
          error += (error.empty() ? "" : "; ") + diagnostic.str();
        return mlir::success();
      });
  auto attribute = mlir::ffd::getSpecAttr(&context, spec);
  const llvm::StringRef number = llvm::StringRef(options.arch).substr(3, 2);
  cores = number == "80" || number == "86" || number == "89"
              ? emulator::TensorCores::Ampere
              : emulator::TensorCores::Hopper;
  nvvm = mlir::ffd::buildProgram(
      &context,
      program == Program::Exact ? mlir::ffd::Program::Exact
                                : mlir::ffd::Program::Decode,
      attribute,
      options.selector.empty() ? Selector().attribute(spec) : options.selector);
  if (!nvvm)
    return false;
  mlir::PassManager passes(&context);
  mlir::ffd::PTXPipelineOptions pipeline;
  pipeline.arch = options.arch;
  pipeline.fuse = options.fuse;
  mlir::ffd::buildPTXPipeline(passes, pipeline);
  if (mlir::failed(passes.run(*nvvm))) {
    if (error.empty())
      error = "the kernel could not be lowered to NVVM";
    return false;
  }
  if (!options.locationFile.empty() &&
      mlir::failed(
          mlir::generateLocationsFromIR(options.locationFile, *nvvm, {}))) {
    error = "cannot write '" + options.locationFile + "'";
    return false;
  }
  if (options.mutate)
    options.mutate(*nvvm);
  return true;
}

bool EmulatedKernel::compile(std::string &error) {
  for (auto function : nvvm->getOps<mlir::LLVM::LLVMFuncOp>()) {
    if (!function->hasAttr(mlir::NVVM::NVVMDialect::getKernelFuncAttrName()))
      continue;
    auto number = [&](llvm::StringRef name) {
      auto attribute = function->getAttrOfType<mlir::IntegerAttr>(name);
      return attribute ? uint32_t(attribute.getInt()) : 0;
    };
    Kernel kernel;
    kernel.threads = number(mlir::ffd::kThreadsAttr);
    kernel.sharedBytes = number(mlir::ffd::kSharedBytesAttr);
    Report report;
    kernel.code =
        emulator::CompiledKernel::create(*nvvm, function.getName(), {}, report);
    if (!kernel.code) {
      error = report.str();
      return false;
    }
    kernels.push_back(std::move(kernel));
  }
  if (kernels.empty())
    error = "the program has no kernel for a GPU";
  return !kernels.empty();
}

namespace {
/// Copies of what arguments point to, in memory with guard zones.
class GuardedArguments {
public:
  GuardedArguments(const ffdSpec &spec, const ffdDecodeArgs &host,
                   const ArgExtents &x, int64_t workspaceBytes,
                   llvm::ArrayRef<ffdPiece> plan)
      : args(host), rows(x.rows) {
    input(args.q, x.q, "q");
    input(args.thumbnails, x.thumbnails, "thumbnails");
    input(args.residuals, x.residuals, "residuals");
    input(args.values, x.values, "values");
    input(args.smax, x.smax, "smax");
    input(args.centre, x.centre, "centre");
    input(args.tail_k, x.tailK, "tail_k");
    input(args.tail_v, x.tailV, "tail_v");
    input(args.page_table, x.pageTable, "page_table");
    pageEntries = x.pageTable / 4;
    input(args.lengths, x.lengths, "lengths");
    input(args.delta, x.delta, "delta");
    if (!plan.empty()) {
      args.plan = plan.data();
      args.pieces = int32_t(plan.size());
      input(args.plan, int64_t(plan.size() * sizeof(ffdPiece)), "plan");
    }
    output(args.out, x.out, "out");
    output(args.lse, x.lse, "lse");
    output(args.skipped_lse, x.skippedLse, "skipped_lse");
    output(args.kept, x.kept, "kept");
    output(args.kept_count, host.kept_count ? rows * 8 : 0, "kept_count");
    workspace = &add(nullptr, workspaceBytes, "workspace", /*readOnly=*/false);
    std::memset(workspace->data(), 0, size_t(Layout::partialsOffset(rows)));
    args.workspace = workspace->data();
  }

  /// The row whose arrival counter is not zero, or -1.
  int64_t busyRow() {
    for (int64_t row = 0; row < rows; ++row)
      if (workspace->as<int32_t>()[row])
        return row;
    return -1;
  }

  /// Gives page i the number firstPage + i, and planes the addresses that such
  /// large planes would have.
  void renumberPages(const Layout &layout, int32_t firstPage) {
    const int64_t slots = int64_t(firstPage) * args.kv_heads;
    const auto lower = [&](const void *&plane, int64_t bytes) {
      plane = reinterpret_cast<const void *>(uintptr_t(plane) -
                                             uintptr_t(slots * bytes));
    };
    lower(args.thumbnails, layout.thumbnailBytes());
    lower(args.residuals, layout.residualBytes());
    lower(args.values, layout.valueBytes());
    for (int64_t i = 0; i < pageEntries; ++i)
      const_cast<int32_t *>(args.page_table)[i] += firstPage;
  }

  void copyBack() {
    for (auto &[memory, host] : outputs)
      std::memcpy(host, memory->data(), memory->size());
  }

  ffdDecodeArgs args;
  std::vector<Buffer> buffers;

private:
  DeviceMemory &add(const void *from, int64_t bytes, const char *name,
                    bool readOnly) {
    storage.push_back(
        from ? std::make_unique<DeviceMemory>(from, size_t(bytes))
             : std::make_unique<DeviceMemory>(size_t(bytes), /*fill=*/0xFF));
    buffers.push_back(storage.back()->buffer(name, readOnly));
    return *storage.back();
  }

  template <typename T>
  void input(T *&pointer, int64_t bytes, const char *name) {
    // A pointer that nothing may be read through leads nowhere.
    pointer = reinterpret_cast<T *>(
        bytes > 0 ? add(pointer, bytes, name, true).data() : nullptr);
  }

  template <typename T>
  void output(T *&pointer, int64_t bytes, const char *name) {
    if (bytes <= 0) {
      pointer = nullptr;
      return;
    }
    T *host = pointer;
    DeviceMemory &memory = add(host, bytes, name, false);
    outputs.push_back({&memory, host});
    pointer = reinterpret_cast<T *>(memory.data());
  }

  int64_t rows, pageEntries = 0;
  std::vector<std::unique_ptr<DeviceMemory>> storage;
  std::vector<std::pair<DeviceMemory *, void *>> outputs;
  DeviceMemory *workspace = nullptr;
};
} // namespace

static Report rejected(const std::string &message) {
  Report report;
  report.ok = false;
  report.message = message;
  return report;
}

Report EmulatedKernel::run(const ffdDecodeArgs &host,
                           const emulator::Options &options, int launches,
                           llvm::ArrayRef<ffdPiece> plan, int32_t firstPage) {
  ArgExtents extents;
  if (host.workspace)
    return rejected("'ffdDecodeArgs' field 'workspace' is given, expected "
                    "null: an emulated kernel makes its own");
  ffdDecodeArgs args = host;
  args.splits = 0; // without a workspace; checked below
  if (Status status = measureArgs(spec, program, args, extents); !status.ok())
    return rejected(status.message());
  args.splits = host.splits > 0 ? host.splits
                                : pickSplits(spec, extents.rows,
                                             extents.maxLength, kResidentCtas);
  int64_t bytes;
  if (Status status = workspaceBytes(spec, extents.rows, args.splits, bytes);
      !status.ok())
    return rejected(status.message());
  if (extents.rows * args.splits > INT32_MAX)
    return rejected("batch * kv_heads * splits of 'ffdDecodeArgs' is " +
                    std::to_string(extents.rows * args.splits) +
                    ", expected at most 2147483647");
  int64_t grid = extents.rows * args.splits;
  if (!plan.empty()) {
    grid = int64_t(plan.size());
    bytes = layoutOf(spec).plannedWorkspaceBytes(extents.rows, grid,
                                                 rowHeads(spec));
  }
  GuardedArguments guarded(spec, args, extents, bytes, plan);
  if (firstPage)
    guarded.renumberPages(layoutOf(spec), firstPage);
  if (!plan.empty()) // which says itself what is committed
    guarded.args.lag = INT32_MAX;
  Report report;
  for (int launch = 0; launch < launches; ++launch) {
    emulator::Options scheduled = options;
    scheduled.seed += uint64_t(launch);
    scheduled.tensorCores = cores;
    for (Kernel &kernel : kernels) {
      emulator::LaunchConfig config;
      config.grid = {uint32_t(grid), 1, 1};
      config.block = {kernel.threads, 1, 1};
      config.dynamicSharedBytes = kernel.sharedBytes;
      report =
          kernel.code->launch(config, {emulator::Argument::of(guarded.args)},
                              guarded.buffers, scheduled);
      if (!report.ok)
        return report;
      if (int64_t row = guarded.busyRow(); row >= 0)
        return rejected("the arrival counter of row " + std::to_string(row) +
                        " is not zero after the launch");
    }
  }
  guarded.copyBack();
  return report;
}
