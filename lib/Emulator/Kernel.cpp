//===- Kernel.cpp - Compiling and launching -------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From an MLIR module to host code in memory, and the launch of it.
//
//===----------------------------------------------------------------------===//

#include "HostModule.h"

#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/ExecutionUtils.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/ExecutionEngine/Orc/ThreadSafeModule.h"
#include "llvm/IR/DebugInfo.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"

#include <mutex>

using namespace ffd::emulator;

struct CompiledKernel::Impl {
  KernelCode code;
  HostModule host;
  std::unique_ptr<llvm::orc::LLJIT> jit;
  struct Global {
    HostGlobal info;
    uint8_t *address;
    std::vector<uint8_t> initial;
  };
  std::vector<Global> globals;
};

CompiledKernel::CompiledKernel(std::unique_ptr<Impl> impl)
    : impl(std::move(impl)) {}
CompiledKernel::~CompiledKernel() = default;

//===--- To LLVM IR ------------------------------------------------------===//

/// A module of its own with everything beside the kernel, whose locations are
/// lines that number its operations.
static mlir::OwningOpRef<mlir::ModuleOp> numberedClone(mlir::ModuleOp module,
                                                       llvm::StringRef kernel,
                                                       KernelCode &code,
                                                       Report &report) {
  mlir::Operation *function = nullptr;
  module.walk([&](mlir::LLVM::LLVMFuncOp op) {
    if (op.getSymName() == kernel && !op.isExternal())
      function = op;
  });
  if (!function) {
    report.message = "there is no kernel '" + kernel.str() + "'";
    return {};
  }
  mlir::MLIRContext *context = module.getContext();
  auto clone = mlir::ModuleOp::create(mlir::UnknownLoc::get(context));
  // Decides the alignment of accesses that state none.
  auto layoutName = mlir::LLVM::LLVMDialect::getDataLayoutAttrName();
  mlir::Attribute layout = module->getAttr(layoutName);
  clone->setAttr(layoutName,
                 layout ? layout
                        : mlir::StringAttr::get(
                              context, "e-p6:32:32-i64:64-i128:128-i256:256-"
                                       "v16:16-v32:32-n16:32:64"));
  mlir::OpBuilder builder = mlir::OpBuilder::atBlockEnd(clone.getBody());
  for (mlir::Operation &op : *function->getBlock())
    if (!op.hasTrait<mlir::OpTrait::SymbolTable>())
      builder.clone(op);
  clone->walk([&](mlir::Operation *op) {
    if (op == clone)
      return;
    unsigned line = unsigned(code.locations.size() + 1);
    code.locations.push_back(op->getLoc());
    code.names.push_back(op->getName().getStringRef().str());
    op->setLoc(mlir::FileLineColLoc::get(context, "ops", line, 1));
  });
  return clone;
}

static std::unique_ptr<llvm::Module>
toLLVMIR(mlir::ModuleOp clone, llvm::LLVMContext &context, Report &report) {
  mlir::DialectRegistry registry;
  mlir::registerBuiltinDialectTranslation(registry);
  mlir::registerLLVMDialectTranslation(registry);
  mlir::registerNVVMDialectTranslation(registry);
  clone->getContext()->appendDialectRegistry(registry);
  std::string diagnostics;
  mlir::ScopedDiagnosticHandler handler(
      clone->getContext(), [&](mlir::Diagnostic &diagnostic) {
        diagnostics += "; " + diagnostic.str();
        return mlir::success();
      });
  mlir::PassManager passes(clone->getContext());
  passes.addPass(mlir::createConvertNVVMToLLVMPass());
  passes.addPass(mlir::LLVM::createDIScopeForLLVMFuncOpPass());
  if (mlir::failed(passes.run(clone))) {
    report.message = "lowering to LLVM IR failed" + diagnostics;
    return nullptr;
  }
  auto result = mlir::translateModuleToLLVMIR(clone, context);
  if (!result)
    report.message = "translation to LLVM IR failed" + diagnostics;
  return result;
}

//===--- To host code ----------------------------------------------------===//

static void optimise(llvm::Module &module, llvm::TargetMachine &machine,
                     unsigned level) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  const llvm::OptimizationLevel levels[] = {
      llvm::OptimizationLevel::O0, llvm::OptimizationLevel::O1,
      llvm::OptimizationLevel::O2, llvm::OptimizationLevel::O3};
  llvm::OptimizationLevel chosen = levels[std::min(level, 3u)];
  auto passes = level ? builder.buildPerModuleDefaultPipeline(chosen)
                      : builder.buildO0DefaultPipeline(chosen);
  passes.run(module, modules);
}

static llvm::Error compile(CompiledKernel *,
                           std::unique_ptr<llvm::Module> module,
                           std::unique_ptr<llvm::LLVMContext> context,
                           llvm::orc::JITTargetMachineBuilder target,
                           std::unique_ptr<llvm::orc::LLJIT> &jit) {
  auto built = llvm::orc::LLJITBuilder()
                   .setJITTargetMachineBuilder(std::move(target))
                   .create();
  if (!built)
    return built.takeError();
  jit = std::move(*built);
  llvm::orc::SymbolMap symbols;
  for (auto &[name, address] : runtimeSymbols())
    symbols[jit->mangleAndIntern(name)] = {
        llvm::orc::ExecutorAddr::fromPtr(address),
        llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  llvm::orc::JITDylib &dylib = jit->getMainJITDylib();
  if (auto error = dylib.define(llvm::orc::absoluteSymbols(std::move(symbols))))
    return error;
  // Functions of the C library that the code generator calls.
  auto process = llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
      jit->getDataLayout().getGlobalPrefix());
  if (!process)
    return process.takeError();
  dylib.addGenerator(std::move(*process));
  return jit->addIRModule(
      llvm::orc::ThreadSafeModule(std::move(module), std::move(context)));
}

std::unique_ptr<CompiledKernel> CompiledKernel::create(mlir::ModuleOp module,
                                                       llvm::StringRef kernel,
                                                       const Options &options,
                                                       Report &report) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  report = {};
  report.ok = false;
  auto impl = std::make_unique<Impl>();
  KernelCode &code = impl->code;
  auto clone = numberedClone(module, kernel, code, report);
  if (!clone)
    return nullptr;
  auto context = std::make_unique<llvm::LLVMContext>();
  auto llvmModule = toLLVMIR(*clone, *context, report);
  if (!llvmModule)
    return nullptr;

  auto fail = [&](llvm::Error error) {
    report.message =
        "cannot compile for the host: " + llvm::toString(std::move(error));
    return nullptr;
  };
  auto target = llvm::orc::JITTargetMachineBuilder::detectHost();
  if (!target)
    return fail(target.takeError());
  target->setCodeGenOptLevel(options.optLevel > 1
                                 ? llvm::CodeGenOptLevel::Default
                                 : llvm::CodeGenOptLevel::Less);
  auto machine = target->createTargetMachine();
  if (!machine)
    return fail(machine.takeError());
  llvmModule->setTargetTriple((*machine)->getTargetTriple());
  llvmModule->setDataLayout((*machine)->createDataLayout());
  std::vector<HostError> errors =
      rewriteForHost(*llvmModule, kernel, options, code, impl->host);
  if (!errors.empty()) {
    for (const HostError &error : errors) {
      Report::Finding finding{error.message, {}};
      if (error.place < code.locations.size())
        finding.location = code.locations[error.place];
      report.more.push_back(std::move(finding));
    }
    report.message = report.more.front().message;
    report.location = report.more.front().location;
    report.more.erase(report.more.begin());
    return nullptr;
  }
  llvm::StripDebugInfo(*llvmModule);
  std::string invalid;
  llvm::raw_string_ostream os(invalid);
  if (llvm::verifyModule(*llvmModule, &os)) {
    report.message = "the rewritten kernel is invalid: " + invalid;
    return nullptr;
  }
  optimise(*llvmModule, **machine, options.optLevel);
  if (auto error = compile(nullptr, std::move(llvmModule), std::move(context),
                           std::move(*target), impl->jit))
    return fail(std::move(error));
  auto entry = impl->jit->lookup(kEntrySymbol);
  if (!entry)
    return fail(entry.takeError());
  code.entry = entry->toPtr<KernelCode::Entry>();
  for (HostGlobal &global : impl->host.globals) {
    auto address = impl->jit->lookup(global.symbol);
    if (!address)
      return fail(address.takeError());
    auto *bytes = address->toPtr<uint8_t *>();
    impl->globals.push_back(
        {global, bytes, std::vector<uint8_t>(bytes, bytes + global.bytes)});
  }
  report = {};
  return std::unique_ptr<CompiledKernel>(new CompiledKernel(std::move(impl)));
}

//===--- Launch ----------------------------------------------------------===//

Report CompiledKernel::launch(const LaunchConfig &config,
                              llvm::ArrayRef<Argument> arguments,
                              llvm::ArrayRef<Buffer> buffers,
                              const Options &options) {
  Report report;
  auto reject = [&](const llvm::Twine &message) {
    report.ok = false;
    report.message = message.str();
    return report;
  };
  const auto &parameters = impl->host.parameters;
  if (arguments.size() != parameters.size())
    return reject("the kernel has " + llvm::Twine(parameters.size()) +
                  " parameters, not " + llvm::Twine(arguments.size()));
  Machine machine(impl->code, config, options);
  std::vector<std::vector<uint8_t>> storage;
  std::vector<void *> pointers;
  for (auto [i, argument] : llvm::enumerate(arguments)) {
    if (argument.bytes.size() < parameters[i].bytes)
      return reject("parameter " + llvm::Twine(i) + " has " +
                    llvm::Twine(parameters[i].bytes) + " bytes, not " +
                    llvm::Twine(argument.bytes.size()));
    // operator new aligns to 16 bytes; pad so that none is empty.
    auto &bytes = storage.emplace_back(argument.bytes);
    bytes.resize(bytes.size() + 16);
    pointers.push_back(bytes.data());
    if (parameters[i].byValue)
      machine.addBuffer(reinterpret_cast<uintptr_t>(bytes.data()),
                        argument.bytes.size(), true,
                        "parameter " + std::to_string(i));
  }
  for (const Buffer &buffer : buffers)
    if (buffer.bytes)
      machine.addBuffer(reinterpret_cast<uintptr_t>(buffer.data), buffer.bytes,
                        buffer.readOnly, buffer.name);
  for (auto &global : impl->globals) {
    if (!global.info.constant)
      std::copy(global.initial.begin(), global.initial.end(), global.address);
    machine.addBuffer(reinterpret_cast<uintptr_t>(global.address),
                      global.info.bytes, global.info.constant,
                      global.info.name);
  }
  return machine.run(pointers.data());
}

Report ffd::emulator::emulateKernel(mlir::ModuleOp module,
                                    llvm::StringRef kernel,
                                    const LaunchConfig &config,
                                    llvm::ArrayRef<Argument> arguments,
                                    llvm::ArrayRef<Buffer> buffers,
                                    const Options &options) {
  Report report;
  auto compiled = CompiledKernel::create(module, kernel, options, report);
  if (!compiled)
    return report;
  return compiled->launch(config, arguments, buffers, options);
}

//===--- Reports and memory ----------------------------------------------===//

std::string Report::str() const {
  if (ok)
    return "ok";
  std::string result;
  llvm::raw_string_ostream os(result);
  if (location)
    os << *location << ": ";
  os << "error: " << message;
  if (hasLane)
    os << "\n  in block (" << block[0] << ", " << block[1] << ", " << block[2]
       << "), warp " << warp << ", lane " << lane;
  if (otherLocation)
    os << "\n" << *otherLocation << ": note: the other operation is here";
  for (const Finding &finding : more) {
    os << "\n";
    if (finding.location)
      os << *finding.location << ": ";
    os << "error: " << finding.message;
  }
  return result;
}

DeviceMemory::DeviceMemory(size_t bytes, uint8_t fill) : bytes(bytes) {
  constexpr size_t align = 256; // as device allocations have
  size_t all = 2 * kGuardBytes + bytes + align;
  storage = std::make_unique<uint8_t[]>(all);
  skew = (align -
          reinterpret_cast<uintptr_t>(storage.get() + kGuardBytes) % align) %
         align;
  std::memset(storage.get(), 0xFF, all);
  std::memset(data(), fill, bytes);
}

DeviceMemory::DeviceMemory(const void *source, size_t bytes)
    : DeviceMemory(bytes) {
  if (bytes)
    std::memcpy(data(), source, bytes);
}
