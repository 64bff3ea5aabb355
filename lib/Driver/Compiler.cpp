//===- Compiler.cpp - From a module to any stage ---- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs the pipelines stage by stage. A stage that a target does not have is an
// error before anything runs.
//
//===----------------------------------------------------------------------===//

#include "ffd/Driver/Compiler.h"

#include "ffd/Conversion/GPUPipeline.h"
#include "ffd/Conversion/Passes.h"
#include "ffd/Package.h"
#include "ffd/Target/CPU.h"
#include "ffd/Target/PTX.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/FuncBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::ffd;

void mlir::ffd::registerCompilerDialects(DialectRegistry &registry) {
  registry.insert<FFDDialect, arith::ArithDialect,
                  bufferization::BufferizationDialect, func::FuncDialect,
                  LLVM::LLVMDialect, NVVM::NVVMDialect, scf::SCFDialect,
                  tensor::TensorDialect, vector::VectorDialect>();
  registerBufferizableOpInterfaceExternalModels(registry);
  arith::registerBufferizableOpInterfaceExternalModels(registry);
  bufferization::func_ext::registerBufferizableOpInterfaceExternalModels(
      registry);
  tensor::registerBufferizableOpInterfaceExternalModels(registry);
}

StringRef mlir::ffd::getStageName(Stage stage) {
  static const StringRef names[] = {"ffd",    "fused",  "tile", "gpu",
                                    "nvvm",   "llvm",   "ptx",  "cubin",
                                    "object", "package"};
  return names[static_cast<unsigned>(stage)];
}

LogicalResult mlir::ffd::checkTarget(const CompilerOptions &options,
                                     Stage stage, std::string &error) {
  bool needsGPU = llvm::is_contained(
      {Stage::GPU, Stage::NVVM, Stage::PTX, Stage::Cubin}, stage);
  if (options.isCPU()) {
    if (needsGPU) {
      error = ("arch is cpu, which has no stage '" + getStageName(stage) +
               "'; expected ffd, fused, tile, llvm, object or package")
                  .str();
      return failure();
    }
    if (!options.isa.empty() && !llvm::is_contained(getISAs(), options.isa)) {
      error = "isa is '" + options.isa + "', expected " +
              llvm::join(getISAs(), ", ");
      return failure();
    }
    return success();
  }
  SmallVector<StringRef> names;
  for (const GPUArch &arch : getGPUArchs())
    names.push_back(arch.name);
  if (!llvm::is_contained(names, options.arch)) {
    error = "arch is '" + options.arch + "', expected cpu, " +
            llvm::join(names, ", ");
    return failure();
  }
  if (stage == Stage::Object) {
    error = "arch is " + options.arch +
            ", which has no stage 'object'; expected ptx, cubin or package";
    return failure();
  }
  if (!options.isa.empty()) {
    error = "isa is '" + options.isa + "' but arch is " + options.arch +
            "; expected arch cpu";
    return failure();
  }
  return success();
}

/// Pipeline options common to both targets.
static void setCommon(TilePipelineOptions &to, const CompilerOptions &from) {
  to.fuse = from.fuse;
  to.headDim = from.headDim;
  to.valueDim = from.valueDim;
  to.group = from.group;
  to.element = from.element;
  to.scanBits = from.scanBits;
  to.quantBlock = from.quantBlock;
  to.selectBlock = from.selectBlock;
}

static std::string print(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream os(text);
  module.print(os);
  os << "\n";
  return text;
}

/// On a kernel that is written at the GPU level: the spec it is packaged for.
static constexpr llvm::StringLiteral kSpecAttr = "ffd.spec";

/// The kernels of a module after lowering to NVVM.
static SmallVector<LLVM::LLVMFuncOp> getKernels(ModuleOp module) {
  SmallVector<LLVM::LLVMFuncOp> kernels;
  for (auto function : module.getOps<LLVM::LLVMFuncOp>())
    if (function->hasAttr(NVVM::NVVMDialect::getKernelFuncAttrName()))
      kernels.push_back(function);
  return kernels;
}

namespace {
/// What a package says about a kernel, read off the module at the tile level.
struct KernelFacts {
  SpecAttr spec;
  std::string function;
  ::ffd::Program program = ::ffd::Program::Decode;
  unsigned teams = 0;
  bool refined = false; ///< the pseudo-max is
  int16_t certificate = FFD_CERTIFICATE_NONE;
  bool topDelta = false;

  explicit KernelFacts(ModuleOp module) {
    for (LLVM::LLVMFuncOp kernel : getKernels(module))
      if (auto attr = kernel->getAttrOfType<SpecAttr>(kSpecAttr)) {
        spec = attr;
        program = ::ffd::Program::Plan;
        ++teams;
      }
    module.walk([&](Operation *op) {
      if (auto team = dyn_cast<TileTeamsOp>(op)) {
        spec = team.getSpec();
        function = team->getParentOfType<func::FuncOp>().getName().str();
        ++teams;
      }
      if (auto scan = dyn_cast<TileScanOp>(op))
        refined |= bool(scan.getBody());
      if (auto skipped = dyn_cast<TileSkippedOp>(op))
        certificate =
            skipped.getNoise() ? FFD_CERTIFICATE_NOISE : FFD_CERTIFICATE_PLAIN;
      topDelta |= isa<TileThresholdOp>(op);
      if (isa<TileExactExtentOp>(op))
        program = ::ffd::Program::Exact;
      if (isa<TileAppendExtentOp>(op))
        program = ::ffd::Program::Append;
    });
  }
};
} // namespace

/// The bytes of a package whose kind, target, entry, payload and launch are
/// set.
static FailureOr<std::string> finishPackage(::ffd::Package package,
                                            const KernelFacts &facts,
                                            const CompilerOptions &options,
                                            std::string &error) {
  if (facts.program == ::ffd::Program::Decode && !facts.topDelta &&
      !options.anyRule) {
    error = "the kernel does not keep blocks by 'top_delta', expected that: a "
            "package does not name its rule";
    return failure();
  }
  package.program = facts.program;
  SpecAttr spec = facts.spec;
  package.spec = {static_cast<int32_t>(spec.getHeadDim()),
                  static_cast<int32_t>(spec.getValueDim()),
                  static_cast<int32_t>(spec.getGroup()),
                  spec.isBF16() ? FFD_BF16 : FFD_F16,
                  static_cast<int32_t>(spec.getScanBits()),
                  static_cast<int32_t>(spec.getQuantBlock()),
                  static_cast<int32_t>(spec.getSelectBlock()),
                  /*no_residuals=*/spec.hasResiduals() ? 0 : 1,
                  static_cast<int32_t>(spec.getQueryTokens()),
                  static_cast<int32_t>(spec.getCentre()),
                  static_cast<int16_t>(facts.refined),
                  facts.certificate};
  std::string bytes;
  ::ffd::Status status = package.serialize(bytes);
  if (!status.ok()) {
    error = status.message();
    return failure();
  }
  return bytes;
}

static LogicalResult checkOneKernel(size_t kernels, const KernelFacts &facts,
                                    std::string &error) {
  if (kernels == 1 && facts.teams == 1)
    return success();
  error = "the module has " + std::to_string(kernels) +
          " kernels, expected one: a package holds a fused program";
  return failure();
}

static FailureOr<std::string>
makePackage(ModuleOp module, const KernelFacts &facts, std::string ptx,
            const CompilerOptions &options, std::string &error) {
  SmallVector<LLVM::LLVMFuncOp> kernels = getKernels(module);
  if (failed(checkOneKernel(kernels.size(), facts, error)))
    return failure();
  auto attribute = [&](StringRef name) -> int32_t {
    auto attr = kernels[0]->getAttrOfType<IntegerAttr>(name);
    return attr ? attr.getInt() : 0;
  };
  ::ffd::Package package;
  package.kind = ::ffd::PackageKind::Ptx;
  package.target = options.arch;
  package.entry = kernels[0].getName().str();
  package.threads = attribute(kThreadsAttr);
  package.sharedBytes = attribute(kSharedBytesAttr);
  package.ctasPerSm = attribute(kCtasAttr);
  package.payload = std::move(ptx);
  return finishPackage(std::move(package), facts, options, error);
}

/// Lowers tile programs for the CPU; returns the instruction set, this
/// machine's best where none was asked for.
static FailureOr<std::string> lowerForCPU(ModuleOp module,
                                          const CompilerOptions &options,
                                          std::string &error) {
  std::string isa = options.isa;
  if (isa.empty()) {
    FailureOr<StringRef> detected = detectISA(error);
    if (failed(detected))
      return failure();
    isa = detected->str();
  }
  CPUPipelineOptions pipeline;
  pipeline.isa = isa;
  PassManager pm(module.getContext());
  addCPULoweringPasses(pm, pipeline);
  if (failed(pm.run(module)))
    return failure();
  return isa;
}

static FailureOr<std::string> compileForCPU(ModuleOp module, Stage stage,
                                            const CompilerOptions &options,
                                            std::string &error) {
  const KernelFacts facts(module);
  if (stage == Stage::Package &&
      failed(checkOneKernel(facts.teams, facts, error)))
    return failure();
  FailureOr<std::string> isa = lowerForCPU(module, options, error);
  if (failed(isa))
    return failure();
  if (stage == Stage::LLVM)
    return translateToLLVMText(module, *isa, error);
  FailureOr<std::string> object = translateToObject(module, *isa, error);
  if (failed(object) || stage == Stage::Object)
    return object;
  ::ffd::Package package;
  package.kind = ::ffd::PackageKind::CpuObject;
  package.target = "cpu:" + *isa;
  package.entry = facts.function;
  package.payload = std::move(*object);
  return finishPackage(std::move(package), facts, options, error);
}

static FailureOr<std::string> compileForGPU(ModuleOp module, Stage stage,
                                            const CompilerOptions &options,
                                            std::string &error) {
  KernelFacts facts(module);
  PTXPipelineOptions pipeline;
  pipeline.arch = options.arch;
  pipeline.warps = options.warps;
  pipeline.ctas = options.ctas;
  pipeline.stages = options.stages;
  pipeline.slots = options.slots;
  PassManager pm(module.getContext());
  // What comes out is verified as LLVM IR; ffd-opt verifies after every pass.
  pm.enableVerifier(false);
  buildGPUPipeline(pm, pipeline);
  if (stage != Stage::GPU)
    addGPUToNVVMPasses(pm, options.arch);
  if (failed(pm.run(module)))
    return failure();
  if (stage == Stage::GPU || stage == Stage::NVVM)
    return print(module);
  for (auto function : module.getOps<func::FuncOp>()) {
    error = "function '" + function.getName().str() +
            "' is no kernel, expected only kernels for a GPU";
    return failure();
  }

  PTXOptions translation;
  std::string llvmText;
  if (stage == Stage::LLVM)
    translation.llvmIR = &llvmText;
  FailureOr<std::string> ptx =
      translateToPTX(module, options.arch, translation);
  if (failed(ptx))
    return failure();
  switch (stage) {
  case Stage::LLVM:
    return llvmText;
  case Stage::Cubin:
    return assemblePTX(*ptx, options.arch, error);
  case Stage::Package:
    return makePackage(module, facts, std::move(*ptx), options, error);
  default:
    return ptx;
  }
}

/// L1 to fused L1 to tile programs, as far as the stage asks.
static LogicalResult lowerToTile(ModuleOp module, Stage stage,
                                 const CompilerOptions &options) {
  if (stage == Stage::FFD)
    return success();
  TilePipelineOptions pipeline;
  setCommon(pipeline, options);
  PassManager pm(module.getContext());
  buildFusePipeline(pm, pipeline);
  if (stage != Stage::Fused)
    buildTilePipeline(pm);
  return pm.run(module);
}

FailureOr<std::string> mlir::ffd::compile(ModuleOp module, Stage stage,
                                          const CompilerOptions &options,
                                          std::string &error) {
  if (failed(checkTarget(options, stage, error)))
    return failure();
  // Kernels that are written at the GPU level have no stages before it.
  const bool atGPULevel = !getKernels(module).empty();
  if (atGPULevel && options.isCPU()) {
    error = "arch is cpu, but the program is a GPU kernel; expected a GPU";
    return failure();
  }
  if (atGPULevel && stage <= Stage::GPU)
    return print(module);
  if (atGPULevel)
    return compileForGPU(module, stage, options, error);
  if (failed(lowerToTile(module, stage, options)))
    return failure();
  if (stage <= Stage::Tile)
    return print(module);
  if (!llvm::any_of(module.getOps(), [](Operation &op) {
        return op.walk([](TileTeamsOp) { return WalkResult::interrupt(); })
            .wasInterrupted();
      })) {
    error = "the module has no kernel, expected a function with an ffd.decode, "
            "ffd.exact, an ffd.append, or the steps of one";
    return failure();
  }
  return options.isCPU() ? compileForCPU(module, stage, options, error)
                         : compileForGPU(module, stage, options, error);
}

FailureOr<std::vector<KernelStats>>
mlir::ffd::compileStats(ModuleOp module, const CompilerOptions &options,
                        bool assemble, std::string &error) {
  FailureOr<std::string> ptx = compile(module, Stage::PTX, options, error);
  if (failed(ptx))
    return failure();
  FailureOr<GPUArch> arch =
      lookupArch(options.arch, [&] { return module.emitError(); });
  if (failed(arch))
    return failure();
  auto dynamicShared = [&](StringRef name) -> int64_t {
    for (LLVM::LLVMFuncOp kernel : getKernels(module))
      if (kernel.getName() == name)
        if (auto attr = kernel->getAttrOfType<IntegerAttr>(kSharedBytesAttr))
          return attr.getInt();
    return 0;
  };
  return collectKernelStats(*ptx, *arch, dynamicShared, assemble, error);
}

FailureOr<std::unique_ptr<CPUKernel>>
mlir::ffd::compileCPUKernel(ModuleOp module, StringRef entry,
                            const CompilerOptions &options,
                            std::string &error) {
  if (failed(checkTarget(options, Stage::Object, error)) ||
      failed(lowerToTile(module, Stage::Object, options)))
    return failure();
  FailureOr<std::string> isa = lowerForCPU(module, options, error);
  if (failed(isa))
    return failure();
  return CPUKernel::create(module, *isa, entry, error);
}
