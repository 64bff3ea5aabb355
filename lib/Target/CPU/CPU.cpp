//===- CPU.cpp - From the LLVM dialect to x86-64 code - -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Optimises with LLVM's default pipeline and emits with a target machine of our
// own, so that features, diagnostics and failures are ours to handle.
//
//===----------------------------------------------------------------------===//

#include "ffd/Target/CPU.h"

#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ExecutionEngine/Orc/ExecutionUtils.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CrashRecoveryContext.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/Triple.h"

#include <mutex>

using namespace mlir;
using namespace mlir::ffd;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Instruction sets
//===----------------------------------------------------------------------===//

namespace {
struct ISA {
  StringRef name;
  StringRef features; // Comma separated, as LLVM names them.
};
} // namespace

static constexpr const char *kAVX2 = "avx,avx2,fma,f16c,bmi,bmi2,popcnt,sse4.2";
static constexpr const char *kAVX512 =
    "avx,avx2,fma,f16c,bmi,bmi2,popcnt,sse4.2,avx512f,avx512bw,avx512dq,"
    "avx512vl";
static constexpr const char *kAVX512VNNI =
    "avx,avx2,fma,f16c,bmi,bmi2,popcnt,sse4.2,avx512f,avx512bw,avx512dq,"
    "avx512vl,avx512vnni";

static const ISA isas[] = {
    {"avx2", kAVX2}, {"avx512", kAVX512}, {"avx512vnni", kAVX512VNNI}};

llvm::ArrayRef<StringRef> mlir::ffd::getISAs() {
  static const StringRef names[] = {isas[0].name, isas[1].name, isas[2].name};
  return names;
}

static const ISA *lookupISA(StringRef name, std::string &error) {
  for (const ISA &isa : isas)
    if (isa.name == name)
      return &isa;
  error = ("instruction set is '" + name + "', expected " +
           llvm::join(getISAs(), ", "))
              .str();
  return nullptr;
}

bool mlir::ffd::isSupportedISA(StringRef name) {
  std::string ignored;
  const ISA *isa = lookupISA(name, ignored);
  if (!isa)
    return false;
  llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  llvm::SmallVector<StringRef> features;
  isa->features.split(features, ',');
  return llvm::all_of(features,
                      [&](StringRef feature) { return host.lookup(feature); });
}

FailureOr<StringRef> mlir::ffd::detectISA(std::string &error) {
  for (const ISA &isa : llvm::reverse(isas))
    if (isSupportedISA(isa.name))
      return isa.name;
  error = "this CPU has no AVX2 with FMA and F16C, expected at least that";
  return failure();
}

//===----------------------------------------------------------------------===//
// Translation
//===----------------------------------------------------------------------===//

static void initializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
}

namespace {
/// Collects LLVM's errors; its default handler would end the process.
struct CollectDiagnostics : llvm::DiagnosticHandler {
  explicit CollectDiagnostics(std::string &error) : error(error) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo &info) override {
    if (info.getSeverity() != llvm::DS_Error)
      return true;
    llvm::raw_string_ostream os(error);
    llvm::DiagnosticPrinterRawOStream printer(os);
    info.print(printer);
    return true;
  }
  std::string &error;
};

/// A module on its way from MLIR to machine code.
class Translation {
public:
  Translation(StringRef isa, std::string &error) : error(error) {
    initializeTargets();
    const ISA *known = lookupISA(isa, error);
    if (!known)
      return;
    llvm::Triple triple(llvm::sys::getProcessTriple());
    const llvm::Target *target =
        llvm::TargetRegistry::lookupTarget(triple, error);
    if (!target)
      return;
    llvm::SmallVector<StringRef> names;
    known->features.split(names, ',');
    std::string features;
    for (StringRef name : names)
      features += (features.empty() ? "+" : ",+") + name.str();
    // Kernels are written in 512-bit vectors where the machine has them.
    if (known->name.starts_with("avx512"))
      features += ",-prefer-256-bit";
    machine.reset(target->createTargetMachine(
        triple, "x86-64-v3", features, llvm::TargetOptions(), llvm::Reloc::PIC_,
        std::nullopt, llvm::CodeGenOptLevel::Default));
    context.setDiagnosticHandler(std::make_unique<CollectDiagnostics>(error));
  }

  LogicalResult translate(ModuleOp source) {
    if (!machine)
      return failure();
    registerBuiltinDialectTranslation(*source.getContext());
    registerLLVMDialectTranslation(*source.getContext());
    module = translateModuleToLLVMIR(source, context, "ffd");
    if (!module) {
      if (error.empty())
        error = "translation to LLVM IR failed";
      return failure();
    }
    module->setTargetTriple(machine->getTargetTriple());
    module->setDataLayout(machine->createDataLayout());
    for (llvm::Function &function : *module)
      if (!function.isDeclaration()) {
        function.addFnAttr("target-cpu", machine->getTargetCPU());
        function.addFnAttr("target-features", machine->getTargetFeatureString());
      }
    return guarded([&] {
      llvm::LoopAnalysisManager lam;
      llvm::FunctionAnalysisManager fam;
      llvm::CGSCCAnalysisManager cgam;
      llvm::ModuleAnalysisManager mam;
      llvm::PassBuilder builder(machine.get());
      builder.registerModuleAnalyses(mam);
      builder.registerCGSCCAnalyses(cgam);
      builder.registerFunctionAnalyses(fam);
      builder.registerLoopAnalyses(lam);
      builder.crossRegisterProxies(lam, fam, cgam, mam);
      builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2)
          .run(*module, mam);
    });
  }

  FailureOr<std::string> emitObject() {
    llvm::SmallVector<char, 0> bytes;
    if (failed(guarded([&] {
          llvm::raw_svector_ostream os(bytes);
          llvm::legacy::PassManager passes;
          if (machine->addPassesToEmitFile(passes, os, nullptr,
                                           llvm::CodeGenFileType::ObjectFile)) {
            error = "the target cannot emit object files";
            return;
          }
          passes.run(*module);
        })))
      return failure();
    return std::string(bytes.data(), bytes.size());
  }

  std::string getText() const {
    std::string text;
    llvm::raw_string_ostream os(text);
    module->print(os, nullptr);
    return text;
  }

private:
  /// Runs code of LLVM that may report errors or abort.
  LogicalResult guarded(llvm::function_ref<void()> body) {
    llvm::CrashRecoveryContext recovery;
    if (!recovery.RunSafely(body) && error.empty())
      error = "LLVM failed to generate code";
    return success(error.empty());
  }

  std::string &error;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::TargetMachine> machine;
  std::unique_ptr<llvm::Module> module;
};
} // namespace

FailureOr<std::string> mlir::ffd::translateToLLVMText(ModuleOp module,
                                                      StringRef isa,
                                                      std::string &error) {
  Translation translation(isa, error);
  if (failed(translation.translate(module)))
    return failure();
  return translation.getText();
}

FailureOr<std::string> mlir::ffd::translateToObject(ModuleOp module,
                                                    StringRef isa,
                                                    std::string &error) {
  Translation translation(isa, error);
  if (failed(translation.translate(module)))
    return failure();
  return translation.emitObject();
}

//===----------------------------------------------------------------------===//
// CPUKernel
//===----------------------------------------------------------------------===//

struct CPUKernel::Impl {
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

CPUKernel::CPUKernel() : impl(std::make_unique<Impl>()) {}
CPUKernel::~CPUKernel() = default;

FailureOr<std::unique_ptr<CPUKernel>> CPUKernel::create(ModuleOp module,
                                                        StringRef isa,
                                                        StringRef entry,
                                                        std::string &error) {
  if (!isSupportedISA(isa)) {
    std::string ignored;
    if (lookupISA(isa, error))
      error = ("this CPU does not have the instruction set '" + isa + "'").str();
    return failure();
  }
  FailureOr<std::string> object = translateToObject(module, isa, error);
  if (failed(object))
    return failure();

  std::unique_ptr<CPUKernel> kernel(new CPUKernel());
  kernel->isa = isa.str();
  auto fail = [&](llvm::Error problem) {
    error = llvm::toString(std::move(problem));
    return failure();
  };
  auto jit = llvm::orc::LLJITBuilder().create();
  if (!jit)
    return fail(jit.takeError());
  kernel->impl->jit = std::move(*jit);
  llvm::orc::LLJIT &lljit = *kernel->impl->jit;
  // memcpy and the like, which LLVM may call.
  auto process = llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
      lljit.getDataLayout().getGlobalPrefix());
  if (!process)
    return fail(process.takeError());
  lljit.getMainJITDylib().addGenerator(std::move(*process));
  if (llvm::Error problem = lljit.addObjectFile(
          llvm::MemoryBuffer::getMemBufferCopy(*object, "ffd-kernel")))
    return fail(std::move(problem));
  auto address = lljit.lookup(entry);
  if (!address)
    return fail(address.takeError());
  kernel->entry = address->toPtr<Entry>();
  kernel->object = std::move(*object);
  return kernel;
}
