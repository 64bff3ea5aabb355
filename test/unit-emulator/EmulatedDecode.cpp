//===- EmulatedDecode.cpp - The generated decode on the emulator ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// See EmulatedDecode.h.
//
//===----------------------------------------------------------------------===//

#include "EmulatedDecode.h"
#include "ReferenceDecode.h"

#include "ffd/Conversion/GPUPipeline.h"
#include "ffd/Driver/Compiler.h"
#include "ffd/Driver/Programs.h"
#include "ffd/Float16.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/LocationSnapshot.h"

#include <cmath>
#include <map>

using namespace ffd;
using emulator::DeviceMemory;

EmulatedDecode::EmulatedDecode(const ffdSpec &spec, const std::string &arch,
                               std::string &error,
                               llvm::function_ref<void(mlir::ModuleOp)> mutate)
    : spec(spec), context(mlir::MLIRContext::Threading::DISABLED) {
  mlir::DialectRegistry registry;
  mlir::ffd::registerCompilerDialects(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
  mlir::Type element = spec.element == FFD_F16
                           ? mlir::Type(mlir::Float16Type::get(&context))
                           : mlir::Type(mlir::BFloat16Type::get(&context));
  auto attribute = mlir::ffd::SpecAttr::get(
      &context, spec.head_dim, spec.value_dim, spec.group, element,
      spec.scan_bits, spec.quant_block, spec.select_block);
  mlir::ScopedDiagnosticHandler handler(&context,
                                        [&](mlir::Diagnostic &diagnostic) {
                                          error += diagnostic.str() + "\n";
                                          return mlir::success();
                                        });
  nvvm =
      mlir::ffd::buildProgram(&context, mlir::ffd::Program::Decode, attribute);
  if (!nvvm) {
    error += "no program";
    return;
  }
  mlir::PassManager passes(&context);
  mlir::ffd::PTXPipelineOptions pipeline;
  pipeline.arch = arch;
  mlir::ffd::buildPTXPipeline(passes, pipeline);
  if (mlir::failed(passes.run(*nvvm))) {
    error += "the pipeline failed";
    return;
  }
  // Reports name lines of the kernel's text, which this writes.
  std::string file =
      testing::TempDir() + "ffd-" + specName(spec) + "-" + arch + ".mlir";
  if (mlir::failed(mlir::generateLocationsFromIR(file, *nvvm, {})))
    error += "cannot write " + file;
  if (mutate)
    mutate(*nvvm);
  auto function = nvvm->lookupSymbol<mlir::LLVM::LLVMFuncOp>("decode");
  auto number = [&](llvm::StringRef name) {
    auto attr = function->getAttrOfType<mlir::IntegerAttr>(name);
    return attr ? uint32_t(attr.getInt()) : 0;
  };
  threads = number(mlir::ffd::kThreadsAttr);
  sharedBytes = number(mlir::ffd::kSharedBytesAttr);
  emulator::Report report;
  kernel = emulator::CompiledKernel::create(*nvvm, "decode", {}, report);
  if (!kernel)
    error += report.str();
}

emulator::Report EmulatedDecode::run(RandomCase &c, int splits,
                                     const emulator::Options &options,
                                     int launches) {
  std::vector<emulator::Buffer> buffers;
  std::vector<std::unique_ptr<DeviceMemory>> inputs;
  ffdDecodeArgs args = c.args;
  auto input = [&](auto *&pointer, int64_t bytes, const char *name) {
    if (!pointer || !bytes)
      return;
    inputs.push_back(std::make_unique<DeviceMemory>(pointer, size_t(bytes)));
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
        inputs.back()->data());
    buffers.push_back(inputs.back()->buffer(name, /*readOnly=*/true));
  };
  const SplitCache &cache = *c.cache;
  const Layout &layout = cache.layout();
  input(args.q, c.q.size(), "q");
  input(args.thumbnails, cache.thumbnailPlaneBytes(), "thumbnails");
  input(args.residuals, cache.residualPlaneBytes(), "residuals");
  input(args.values, cache.valuePlaneBytes(), "values");
  input(args.smax, cache.rows() * layout.paddedHeadDim() * 2, "smax");
  int64_t tail = cache.tailBytes() / (spec.head_dim + spec.value_dim);
  input(args.tail_k, tail * spec.head_dim, "tail_k");
  input(args.tail_v, tail * spec.value_dim, "tail_v");
  input(args.page_table, c.batch() * args.page_stride * 4, "page_table");
  input(args.lengths, c.batch() * 4, "lengths");
  input(args.delta, c.batch() * 4, "delta");

  DeviceMemory out(size_t(c.out.size()), 0xFF), lse(size_t(c.lse.size()), 0xFF),
      kept(size_t(c.kept.size()), 0);
  DeviceMemory workspace(
      size_t(layout.workspaceBytes(cache.rows(), splits, spec.group)), 0xFF);
  std::memset(workspace.data(), 0, size_t(cache.rows() * 4));
  args.out = out.as<float>();
  args.lse = lse.as<float>();
  args.kept = kept.data();
  args.workspace = workspace.data();
  args.splits = splits;
  buffers.push_back(out.buffer("out"));
  buffers.push_back(lse.buffer("lse"));
  buffers.push_back(kept.buffer("kept"));
  buffers.push_back(workspace.buffer("workspace"));

  emulator::LaunchConfig config;
  config.grid = {uint32_t(cache.rows() * splits), 1, 1};
  config.block = {threads, 1, 1};
  config.dynamicSharedBytes = sharedBytes;
  emulator::Report report;
  for (int i = 0; i < launches && report.ok; ++i) {
    emulator::Options scheduled = options;
    scheduled.seed += uint64_t(i);
    report = kernel->launch(config, {emulator::Argument::of(args)}, buffers,
                            scheduled);
    for (int64_t row = 0; report.ok && row < cache.rows(); ++row)
      if (workspace.as<int32_t>()[row]) {
        report.ok = false;
        report.message = "an arrival counter is not zero afterwards";
      }
  }
  std::memcpy(c.out.data(), out.data(), out.size());
  std::memcpy(c.lse.data(), lse.data(), lse.size());
  std::memcpy(c.kept.data(), kept.data(), kept.size());
  return report;
}

testing::AssertionResult ffd::matchesReference(RandomCase &c) {
  const ffdSpec &spec = c.shape.spec;
  const ReferenceDecode reference(spec, c.args);
  const bool half = spec.element == FFD_F16;
  const auto failure = [&](int64_t sequence, int64_t head) {
    return testing::AssertionFailure()
           << "sequence " << sequence << " kv head " << head << ": ";
  };
  for (int64_t s = 0; s < c.batch(); ++s) {
    double difference = 0, norm = 0, slack = 0;
    for (int64_t head = 0; head < c.shape.kvHeads; ++head) {
      const ReferenceDecode::Row row = reference.row(s, head);
      const int64_t r = s * c.shape.kvHeads + head;
      const uint8_t *kept = c.kept.data() + r * c.args.kept_stride;
      for (size_t j = 0; j < row.kept.size(); ++j)
        if (bool(kept[j]) != bool(row.kept[j]))
          return failure(s, head)
                 << "selection block " << j << " of " << row.kept.size()
                 << " is " << (kept[j] ? "kept" : "skipped");
      for (int64_t g = 0; g < spec.group; ++g) {
        const int64_t h = s * c.queryHeads() + head * spec.group + g;
        // The bar on a score, of the 11-bit rounding that b = 2 allows.
        double bar = 0;
        if (spec.scan_bits == 2) {
          for (int64_t ch = 0; ch < spec.head_dim; ++ch)
            bar +=
                std::fabs(elementToF32(
                    spec.element, c.q.as<uint16_t>()[h * spec.head_dim + ch])) *
                std::ldexp(double(elementToF32(FFD_F16, row.smax[size_t(ch)])),
                           row.exponent);
          bar *= double(c.args.sm_scale) * 0x1p-10;
        }
        slack = std::fmax(slack, bar / 32);
        const double lse = row.lse[size_t(g)];
        const float got = c.args.lse ? c.lse.as<float>()[h] : 0;
        const double limit = 2e-3 + 1e-6 * std::fabs(lse) + bar / 8;
        if (std::isnan(lse) != std::isnan(got) ||
            (std::isinf(lse) ? double(got) != lse
                             : std::fabs(got - lse) > limit))
          return failure(s, head)
                 << "head " << g << ": lse is " << got << ", expected " << lse
                 << " within " << limit;
        for (int64_t i = 0; i < spec.value_dim; ++i) {
          const double o = row.out[size_t(g * spec.value_dim + i)];
          const float x = c.out.as<float>()[h * spec.value_dim + i];
          if (std::isnan(o) != std::isnan(x))
            return failure(s, head) << "head " << g << " dim " << i << " is "
                                    << x << ", expected " << o;
          if (std::isnan(o) || (std::isinf(o) && o == x))
            continue;
          difference += (x - o) * (x - o);
          norm += o * o;
        }
      }
    }
    const double error =
        norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
    if (!(error <= (half ? 2e-3 : 1e-2) + slack))
      return testing::AssertionFailure()
             << "sequence " << s << ": relative error " << error;
  }
  return testing::AssertionSuccess();
}
