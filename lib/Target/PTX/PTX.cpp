//===- PTX.cpp - From LLVM dialect to PTX ---------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// LLVM IR, the optimiser, the NVPTX back end, in process. The back end ends the
// process on what it cannot select, so it runs under a crash recovery context
// with a diagnostic handler of our own.
//
//===----------------------------------------------------------------------===//

#include "ffd/Target/PTX.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/PassInfo.h"
#include "llvm/PassRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"
#include <mutex>

using namespace mlir;
using namespace mlir::ffd;

namespace {
/// Collects what LLVM reports instead of printing it and exiting.
class DiagnosticCollector : public llvm::DiagnosticHandler {
public:
  explicit DiagnosticCollector(std::string &errors) : errors(errors) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo &info) override {
    if (info.getSeverity() == llvm::DS_Error) {
      llvm::raw_string_ostream os(errors);
      llvm::DiagnosticPrinterRawOStream printer(os);
      os << (errors.empty() ? "" : "; ");
      info.print(printer);
    }
    return true;
  }

private:
  std::string &errors;
};
} // namespace

/// Registers the back end, once per process.
static void initialize() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    // Shared memory addresses of 32 bits: there is no other switch for it.
    auto &options = llvm::cl::getRegisteredOptions();
    auto it = options.find("nvptx-short-ptr");
    if (it != options.end())
      static_cast<llvm::cl::opt<bool> *>(it->second)->setValue(true);
  });
}

static std::unique_ptr<llvm::TargetMachine>
createTargetMachine(const GPUArch &arch, std::string &error) {
  llvm::Triple triple("nvptx64-nvidia-cuda");
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  llvm::TargetOptions options;
  // Every rounding of the numerics page is there on purpose.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  // One level more runs GVN twice in the back end, a fifth of the compile time,
  // and finds nothing: the optimiser had one, and ptxas has its own.
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, arch.name, arch.ptx, options, std::nullopt, std::nullopt,
      llvm::CodeGenOptLevel::Default));
}

/// What the optimiser runs. The module is one kernel, unrolled and in SSA, so
/// there is nothing to inline, to promote or to vectorise, and the standard
/// pipeline spends two thirds of its time on finding that out. What a kernel
/// loses without the passes that look odd here is in docs/performance.md. Memory
/// SSA finds the loads of arguments that a GVN would, at a third of its price.
static constexpr llvm::StringLiteral kPasses =
    "function(nvvm-intr-range,"
    // Vectors of registers are a notation; none is left for the back end.
    "scalarizer,"
    "early-cse),"
    "ipsccp,"
    "function(instcombine<no-verify-fixpoint>,"
    "simplifycfg,"
    "reassociate,"
    "loop-mssa(loop-rotate,licm),"
    "early-cse<memssa>,"
    "instcombine<no-verify-fixpoint>,"
    "simplifycfg,"
    "infer-alignment)";

static llvm::Error optimize(llvm::Module &module,
                            llvm::TargetMachine &machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  llvm::ModulePassManager passes;
  if (llvm::Error error = builder.parsePassPipeline(passes, kPasses))
    return error;
  passes.run(module, modules);
  return llvm::Error::success();
}

namespace {
/// The back end's passes without two that have nothing to do after the
/// optimiser's and cost a tenth of its time: n-ary reassociation changes no
/// kernel, its early CSE spares ptxas a handful of instructions. The back end has
/// no switch for them.
class CodeGenPasses : public llvm::legacy::PassManager {
public:
  void add(llvm::Pass *pass) override {
    const llvm::PassInfo *info =
        llvm::PassRegistry::getPassRegistry()->getPassInfo(pass->getPassID());
    StringRef name = info ? info->getPassArgument() : StringRef();
    if (name == "nary-reassociate" || name == "early-cse")
      delete pass;
    else
      llvm::legacy::PassManager::add(pass);
  }
};
} // namespace

/// Whether PTX can spell a function's name.
static bool isPTXName(StringRef name) {
  return !name.empty() && !llvm::isDigit(name.front()) && name != "_" &&
         name != "$" && llvm::all_of(name, [](char c) {
           return llvm::isAlnum(c) || c == '_' || c == '$';
         });
}

FailureOr<std::string> mlir::ffd::translateToPTX(ModuleOp module,
                                                 StringRef archName,
                                                 const PTXOptions &options) {
  FailureOr<GPUArch> arch =
      lookupArch(archName, [&] { return module.emitError(); });
  if (failed(arch))
    return failure();
  for (auto function : module.getOps<LLVM::LLVMFuncOp>())
    if (!isPTXName(function.getName()))
      return function.emitError("kernel has the name '")
             << function.getName()
             << "', expected one that PTX has: letters, digits, '_' and '$', "
                "no digit first";
  initialize();
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine =
      createTargetMachine(*arch, error);
  if (!machine)
    return module.emitError("no NVPTX back end: ") << error;

  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
  module.getContext()->appendDialectRegistry(registry);

  llvm::LLVMContext context;
  std::string errors;
  context.setDiagnosticHandler(std::make_unique<DiagnosticCollector>(errors));
  std::unique_ptr<llvm::Module> llvmModule =
      translateModuleToLLVMIR(module, context, "ffd",
                              /*disableVerification=*/true); // below
  if (!llvmModule)
    return module.emitError("has ops that do not translate to LLVM IR");
  llvmModule->setTargetTriple(machine->getTargetTriple());
  llvmModule->setDataLayout(machine->createDataLayout());

  llvm::SmallString<0> text;
  bool verified = true;
  llvm::CrashRecoveryContext::Enable();
  llvm::CrashRecoveryContext recovery;
  bool survived = recovery.RunSafely([&] {
    if (options.verify) {
      llvm::raw_string_ostream os(errors);
      if (llvm::verifyModule(*llvmModule, &os)) {
        verified = false;
        return;
      }
    }
    if (llvm::Error error = optimize(*llvmModule, *machine)) {
      errors = llvm::toString(std::move(error));
      return;
    }
    if (options.llvmIR) {
      llvm::raw_string_ostream os(*options.llvmIR);
      llvmModule->print(os, nullptr);
    }
    llvm::raw_svector_ostream os(text);
    CodeGenPasses passes;
    machine->addPassesToEmitFile(passes, os, nullptr,
                                 llvm::CodeGenFileType::AssemblyFile);
    passes.run(*llvmModule);
  });
  if (!survived || !verified || !errors.empty())
    return module.emitError("cannot be compiled for ")
           << archName << ": "
           << (errors.empty() ? "the back end failed" : errors);
  return text.str().str();
}
