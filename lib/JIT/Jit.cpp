//===- Jit.cpp - libffd-jit -------------------------------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The C interface of ffd/Jit.h over the compiler: builds the program of a spec,
// compiles it, and hands out a function (CPU) or a kernel package (GPU).
//
//===----------------------------------------------------------------------===//

#include "ffd/Jit.h"
#include "ffd/Selector.h"
#include "ffd/Spec.h"

#include "ffd/Driver/Compiler.h"
#include "ffd/Package.h"
#include "ffd/Target/CPU.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringExtras.h"

#include <cstddef>
#include <cstring>
#include <memory>

using namespace mlir;
using namespace mlir::ffd;

namespace {
/// Everything that a result points to.
struct Owner {
  std::unique_ptr<CPUKernel> kernel;
  std::string package;
  std::string target;
};
} // namespace

/// Leaves a message in the caller's buffer, cut to its size.
static int fail(ffdJitResult *result, llvm::StringRef message) {
  if (result->error && result->error_size) {
    size_t size = std::min<size_t>(message.size(), result->error_size - 1);
    std::memcpy(result->error, message.data(), size);
    result->error[size] = 0;
  }
  return 1;
}

/// Leaves nothing that a release after a failure could take for a result.
static void clear(ffdJitResult *result) {
  result->entry = nullptr;
  result->package = nullptr;
  result->package_size = 0;
  result->target = nullptr;
  result->owner = nullptr;
}

uint32_t ffdJitAbiVersion(void) { return FFD_JIT_ABI_VERSION; }

int ffdJitCompile(const ffdSpec *spec, const char *target, const char *program,
                  ffdJitResult *result) {
  if (!result)
    return 1;
  // Nothing beyond struct_size is the caller's, the buffer for a message
  // included.
  if (result->struct_size < offsetof(ffdJitResult, entry))
    return 1;
  if (result->struct_size != sizeof(ffdJitResult))
    return fail(result, "ffdJitResult has struct_size " +
                            std::to_string(result->struct_size) +
                            ", expected " +
                            std::to_string(sizeof(ffdJitResult)));
  clear(result);
  if (!spec || !target || !program)
    return fail(result, "spec, target or program is NULL, expected a value");
  auto [step, selector] = llvm::StringRef(program).split(' ');
  const bool split = step == "select" || step == "attend";
  const bool plain = step == "exact" || step == "append" || step == "plan";
  if ((step != "decode" && !plain && !split) ||
      (!selector.empty() && step != "decode" && step != "select"))
    return fail(result,
                std::string("program is '") + program +
                    "', expected 'decode', 'exact', 'append', 'plan', "
                    "'select' or 'attend', the first and the fourth with a "
                    "selector or without");
  const Program which = step == "exact"    ? Program::Exact
                        : step == "append" ? Program::Append
                        : step == "plan"   ? Program::Plan
                                           : Program::Decode;

  DialectRegistry registry;
  registerCompilerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  std::string messages;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      messages += (messages.empty() ? "" : "; ") + diagnostic.str();
    return success();
  });

  CompilerOptions options;
  auto [arch, isa] = llvm::StringRef(target).split(':');
  options.arch = arch.str();
  options.isa = isa.str();
  // An empty instruction set would mean this machine's.
  if (isa.empty() && llvm::StringRef(target).contains(':'))
    return fail(result, std::string("target is '") + target +
                            "', expected an instruction set after the colon");
  if (spec->element != FFD_F16 && spec->element != FFD_BF16)
    return fail(result, "spec has element " + std::to_string(spec->element) +
                            ", expected FFD_F16 or FFD_BF16");
  if (spec->pseudo_max != FFD_PSEUDO_MAX_SCAN &&
      spec->pseudo_max != FFD_PSEUDO_MAX_REFINED)
    return fail(result, "spec has pseudo_max " +
                            std::to_string(spec->pseudo_max) +
                            ", expected FFD_PSEUDO_MAX_SCAN or "
                            "FFD_PSEUDO_MAX_REFINED");
  if (spec->certificate < FFD_CERTIFICATE_NONE ||
      spec->certificate > FFD_CERTIFICATE_NOISE)
    return fail(result, "spec has certificate " +
                            std::to_string(spec->certificate) +
                            ", expected FFD_CERTIFICATE_NONE, "
                            "FFD_CERTIFICATE_PLAIN or FFD_CERTIFICATE_NOISE");
  auto emit = [&] { return emitError(UnknownLoc::get(&context)); };
  SpecAttr attr = getSpecAttr(&context, *spec, emit);
  if (!attr || !attr.isComplete())
    return fail(result, messages.empty() ? "spec has a size of 0" : messages);

  options.fuse = !split;
  options.anyRule = true;
  // The rule of the specification, unless there is another one.
  const std::string rule =
      selector.empty() ? ::ffd::Selector().attribute(*spec) : selector.str();
  OwningOpRef<ModuleOp> module = buildProgram(&context, which, attr, rule);
  if (!module)
    return fail(result, messages);
  auto owner = std::make_unique<Owner>();
  std::string error;
  // Of the two kernels of a split execution, the one that was asked for.
  if (split) {
    if (failed(compile(*module, Stage::Tile, options, error)))
      return fail(result, error.empty() ? messages : error);
    for (Operation &op : llvm::make_early_inc_range(module->getOps()))
      if (auto function = dyn_cast<FunctionOpInterface>(op))
        if (function.getName() != ("decode_" + step).str())
          function.erase();
  }
  if (options.isCPU()) {
    FailureOr<std::unique_ptr<CPUKernel>> kernel = compileCPUKernel(
        *module, split ? ("decode_" + step).str() : step.str(), options, error);
    if (failed(kernel))
      return fail(result, error.empty() ? messages : error);
    owner->kernel = std::move(*kernel);
    owner->target = "cpu:" + owner->kernel->getISA().str();
    result->entry = owner->kernel->getEntry();
    // A loader may keep the code of whole programs; packages do not hold the
    // specs of ablations.
    if ((llvm::StringRef(program) == "decode" ||
         llvm::StringRef(program) == "exact") &&
        !spec->no_residuals) {
      ::ffd::Package package;
      package.kind = ::ffd::PackageKind::CpuObject;
      package.program = which == Program::Exact ? ::ffd::Program::Exact
                                                : ::ffd::Program::Decode;
      package.target = owner->target;
      package.entry = program;
      package.spec = *spec;
      package.payload = owner->kernel->getObject();
      ::ffd::Status status = package.serialize(owner->package);
      if (!status.ok())
        return fail(result, status.message());
      result->package = owner->package.data();
      result->package_size = owner->package.size();
    }
  } else {
    FailureOr<std::string> package =
        compile(*module, Stage::Package, options, error);
    if (failed(package))
      return fail(result, error.empty() ? messages : error);
    owner->package = std::move(*package);
    owner->target = options.arch;
    result->package = owner->package.data();
    result->package_size = owner->package.size();
  }
  result->target = owner->target.c_str();
  result->owner = owner.release();
  return 0;
}

void ffdJitRelease(ffdJitResult *result) {
  if (!result)
    return;
  delete static_cast<Owner *>(result->owner);
  clear(result);
}
