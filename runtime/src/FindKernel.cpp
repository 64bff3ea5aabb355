//===- FindKernel.cpp - From a specification to a kernel --------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lists the targets that would do, best first; tries a package for each, then
// the JIT for the best. What failed on the way goes into the message.
//
//===----------------------------------------------------------------------===//

#include "ffd/FindKernel.h"

#include "Files.h"
#include "KernelCache.h"
#include "LoadCode.h"
#include "SplitKernel.h"

#include "ffd/CudaDriver.h"
#include "ffd/Package.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <iterator>
#include <vector>

using namespace ffd;

//===----------------------------------------------------------------------===//
// Loading libffd-jit
//===----------------------------------------------------------------------===//

static constexpr char kJitName[] = "libffd-jit.so";

/// The folder of the library or program that this code is in, or "".
static std::string ownFolder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<const void *>(&ownFolder), &info) ||
      !info.dli_fname)
    return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

/// Where the library is expected, if it is not left to the system.
static std::string jitFile(const std::string &path) {
  const std::string folder = path.empty() ? ownFolder() : "";
  return folder.empty() ? path : folder + "/" + kJitName;
}

Status ffd::loadJit(const std::string &path,
                    std::shared_ptr<const Jit> &result) {
  std::vector<std::string> places;
  if (!path.empty()) {
    places.push_back(path);
  } else {
    const std::string folder = ownFolder();
    if (!folder.empty())
      places.push_back(folder + "/" + kJitName);
    places.push_back(kJitName);
  }
  void *library = nullptr;
  std::string found, tried;
  for (const std::string &place : places) {
    FFD_RETURN_IF_ERROR(checkLibraryFile(place, "compiler library"));
    library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    found = place;
    if (library)
      break;
    tried += std::string(tried.empty() ? "" : "; ") + dlerror();
  }
  if (!library)
    return Status(StatusCode::NotFound,
                  "cannot load the compiler library: " + tried);

  // LLVM does not survive being unloaded; the library stays for good.
  std::shared_ptr<Jit> jit(new Jit);
  jit->path = found;
  jit->abiVersion = reinterpret_cast<decltype(jit->abiVersion)>(
      dlsym(library, "ffdJitAbiVersion"));
  jit->compile =
      reinterpret_cast<decltype(jit->compile)>(dlsym(library, "ffdJitCompile"));
  jit->release =
      reinterpret_cast<decltype(jit->release)>(dlsym(library, "ffdJitRelease"));
  if (!jit->abiVersion || !jit->compile || !jit->release) {
    dlclose(library);
    return Status(StatusCode::Unsupported,
                  "'" + found +
                      "' lacks ffdJitAbiVersion, ffdJitCompile or "
                      "ffdJitRelease, expected " +
                      kJitName);
  }
  if (jit->abiVersion() != FFD_JIT_ABI_VERSION) {
    const uint32_t version = jit->abiVersion();
    dlclose(library);
    return Status(StatusCode::Unsupported,
                  "'" + found + "' has JIT ABI version " +
                      std::to_string(version) + ", expected " +
                      std::to_string(FFD_JIT_ABI_VERSION));
  }
  result = std::move(jit);
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Finding
//===----------------------------------------------------------------------===//

/// CPU targets, best first; "cpu" alone is code for any machine of the family.
static constexpr const char *kCpuTargets[] = {"cpu:avx512vnni", "cpu:avx512",
                                              "cpu:avx2", "cpu"};

/// Those of them that this machine runs.
static std::vector<std::string> cpuTargets() {
  std::vector<std::string> targets;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") &&
                    __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  if (avx512 && __builtin_cpu_supports("avx512vnni"))
    targets.push_back("cpu:avx512vnni");
  if (avx512)
    targets.push_back("cpu:avx512");
  if (avx2)
    targets.push_back("cpu:avx2");
#endif
  targets.push_back("cpu");
  return targets;
}

static bool contains(const std::vector<std::string> &list,
                     const std::string &item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

/// Architectures whose code a device runs, best first.
static std::vector<std::string> cudaTargets(const CudaDeviceInfo &device) {
  std::vector<std::string> targets = {device.arch()};
  const int own = device.major * 10 + device.minor;
  for (int arch : {121, 120, 103, 100, 90, 89, 86, 80}) {
    const std::string name = "sm_" + std::to_string(arch);
    if (arch <= own && name != targets[0])
      targets.push_back(name);
  }
  return targets;
}

namespace {
class Finder {
public:
  Finder(const ffdSpec &spec, const FindKernelOptions &options)
      : spec(spec), options(options) {}

  Status run(std::unique_ptr<DecodeKernel> &kernel) {
    FFD_RETURN_IF_ERROR(checkSpec(spec, /*ablations=*/onCpu()));
    if (spec.pseudo_max && (options.program != Program::Decode ||
                            options.selector.rule != Rule::TopDelta))
      return Status::invalid(
          "'ffdSpec' field 'pseudo_max' is 1 (refined) for program '" +
          std::string(programName(options.program)) + "' and selector '" +
          options.selector.name() + "', expected a decode with 'top_delta'");
    if (spec.certificate &&
        (options.program != Program::Decode ||
         options.selector.rule != Rule::TopDelta || options.selector.split))
      return Status::invalid(
          "'ffdSpec' field 'certificate' is " +
          std::to_string(spec.certificate) + " (" +
          certificateName(spec.certificate) + ") for program '" +
          programName(options.program) + "' and selector '" +
          options.selector.name() + "'" +
          (options.selector.split ? " in split execution" : "") +
          ", expected a fused decode with 'top_delta'");
    FFD_RETURN_IF_ERROR(listTargets());
    if (options.passedOver)
      options.passedOver->clear();
    if (!options.selector.isDefault())
      return ofSelector(kernel);
    if (!options.packageDir.empty())
      for (const std::string &target : targets)
        if (fromPackage(target, kernel)) {
          if (options.passedOver)
            *options.passedOver = unusable;
          return Status::success();
        }
    const std::string passedOver = unusable;
    if (options.useJit && (fromCache(kernel) || fromJit(kernel))) {
      if (options.passedOver)
        *options.passedOver = passedOver;
      return Status::success();
    }
    if (!options.useJit)
      note("the compiler library was not asked");
    return Status(code, std::string("no kernel '") +
                            programName(options.program) + "-" +
                            specName(spec) + "' for target '" + options.target +
                            "':" + notes);
  }

private:
  bool onCpu() const { return options.target.compare(0, 3, "cpu") == 0; }

  Status listTargets() {
    const std::string &target = options.target;
    if (onCpu()) {
      if (!options.pool)
        return Status::invalid("kernel option 'pool' is null, expected a "
                               "thread pool for target '" +
                               target + "'");
      targets = cpuTargets();
      jitTarget = target;
      if (target == "cpu")
        return Status::success();
      // Code for another machine would end the process, wherever it is from.
      if (!contains({std::begin(kCpuTargets), std::end(kCpuTargets)}, target))
        return badTarget();
      if (!contains(targets, target))
        return Status(StatusCode::Unsupported,
                      "this CPU does not have the instruction set '" +
                          target.substr(4) + "' of target '" + target + "'");
      targets = {target};
      return Status::success();
    }
    const bool any = target == "cuda";
    if (!any && target.compare(0, 3, "sm_") != 0)
      return badTarget();
    if (!options.cuda)
      return Status::invalid("kernel option 'cuda' is null, expected a CUDA "
                             "context for target '" +
                             target + "'");
    const CudaDeviceInfo &device = options.cuda->device();
    // What the driver's assembler makes of it would be for the device, and no
    // longer say so.
    if (!any && !device.runs(target, /*machineCode=*/false))
      return Status(StatusCode::Unsupported,
                    "code for target '" + target + "' does not run on '" +
                        device.name + "' (" + device.arch() + ")");
    targets = any ? cudaTargets(device) : std::vector<std::string>{target};
    jitTarget = targets[0];
    return Status::success();
  }

  Status badTarget() const {
    return Status::invalid("kernel option 'target' is '" + options.target +
                           "', expected cpu, cpu:avx2, cpu:avx512, "
                           "cpu:avx512vnni, cuda or an architecture such as "
                           "sm_90a");
  }

  void note(const std::string &text) { notes += "\n  " + text; }
  bool fail(const Status &status) {
    note(status.message());
    if (status.code() != StatusCode::NotFound) {
      code = status.code();
      unusable += (unusable.empty() ? "" : "; ") + status.message();
    }
    return false;
  }

  bool fromPackage(const std::string &target,
                   std::unique_ptr<DecodeKernel> &kernel) {
    const std::string path = options.packageDir + "/" +
                             Package::fileName(options.program, spec, target);
    Package package;
    Status status = Package::read(path, package);
    if (status.ok())
      status = checkNamed(path, target, package);
    if (status.ok())
      status = makeKernel(package, kernel);
    return status.ok() || fail(status);
  }

  /// A package must hold what its name says.
  Status checkNamed(const std::string &path, const std::string &target,
                    const Package &package) const {
    if (package.fileName() == Package::fileName(options.program, spec, target))
      return Status::success();
    return Status(StatusCode::Corrupt, "kernel package '" + path + "' holds '" +
                                           package.fileName() +
                                           "', expected what its name says");
  }

  Status makeKernel(const Package &package,
                    std::unique_ptr<DecodeKernel> &kernel) const {
    if (!onCpu()) {
      std::unique_ptr<CudaKernel> result;
      FFD_RETURN_IF_ERROR(CudaKernel::create(options.cuda, package, result));
      kernel = std::move(result);
      return Status::success();
    }
    if (package.kind != PackageKind::CpuObject)
      return Status(StatusCode::Corrupt,
                    "kernel package '" + package.fileName() + "' has kind " +
                        packageKindName(package.kind) +
                        ", expected cpu-object");
    std::shared_ptr<void> owner;
    CpuEntry entry = nullptr;
    FFD_RETURN_IF_ERROR(loadCode(package, owner, entry));
    kernel.reset(new CpuKernel(spec, options.program, package.target, entry,
                               std::move(owner), *options.pool));
    return Status::success();
  }

  /// What compiled kernels depend on besides their specification and target.
  std::string identity() const {
    std::string library = fileIdentity(jitFile(options.jitPath));
    if (library.empty()) {
      // Somewhere on the system's search path: only loading tells where.
      std::shared_ptr<const Jit> jit;
      Dl_info info;
      if (!loadJit(options.jitPath, jit).ok() ||
          !dladdr(reinterpret_cast<const void *>(jit->compile), &info))
        return "";
      library = fileIdentity(info.dli_fname);
    }
    return "abi " + std::to_string(FFD_ABI_VERSION) + "." +
           std::to_string(FFD_JIT_ABI_VERSION) + " compiler " + library +
           " target " + cacheTarget() +
           (onCpu() ? ""
                    : " driver " +
                          std::to_string(options.cuda->driver().version()));
  }
  /// What the JIT makes of its target.
  const std::string &cacheTarget() const {
    return jitTarget == "cpu" ? targets[0] : jitTarget;
  }
  KernelCache cache() const {
    const std::string key = options.cacheDir.empty() ? "" : identity();
    return KernelCache(key.empty() ? "" : options.cacheDir, key);
  }
  void cacheNote(const Status &status) const {
    if (options.cacheNote)
      *options.cacheNote +=
          (options.cacheNote->empty() ? "" : "; ") + status.message();
  }

  bool fromCache(std::unique_ptr<DecodeKernel> &kernel) {
    const KernelCache compiled = cache();
    if (!compiled.enabled())
      return false;
    Package package;
    Status status =
        compiled.read(options.program, spec, cacheTarget(), package);
    if (status.ok() && onCpu() && package.target != cacheTarget())
      status = Status(StatusCode::Corrupt, "the compiled kernel for '" +
                                               cacheTarget() + "' is for '" +
                                               package.target + "'");
    if (status.ok())
      status = makeKernel(package, kernel);
    if (!status.ok() && status.code() != StatusCode::NotFound)
      cacheNote(status);
    return status.ok();
  }

  bool fromJit(std::unique_ptr<DecodeKernel> &kernel) {
    std::shared_ptr<const Jit> jit;
    Status status = loadJit(options.jitPath, jit);
    if (status.ok())
      status = compile(*jit, kernel);
    return status.ok() || fail(status);
  }

  /// A kernel that cannot be stored is still a kernel.
  void store(const Package &package) const {
    const KernelCache compiled = cache();
    if (!compiled.enabled())
      return;
    Status status = compiled.write(package, cacheTarget());
    if (!status.ok())
      cacheNote(status);
  }

  /// Kernels of another rule, or of split execution.
  Status ofSelector(std::unique_ptr<DecodeKernel> &kernel) const {
    const Selector &selector = options.selector;
    const std::string what = "selector '" + selector.name() + "'" +
                             (selector.split ? " in split execution" : "");
    if (options.program != Program::Decode)
      return Status::invalid(what + " is given for program '" +
                             programName(options.program) +
                             "', expected a decode");
    if (!onCpu())
      return Status(StatusCode::Unsupported,
                    what + " is given for target '" + options.target +
                        "', expected a CPU target: kernels of GPUs have "
                        "'top_delta', fused, only");
    if (!options.useJit)
      return Status(StatusCode::NotFound,
                    what + " needs the compiler library, which was not asked");
    std::shared_ptr<const Jit> jit;
    FFD_RETURN_IF_ERROR(loadJit(options.jitPath, jit));
    const std::string attribute = " " + selector.attribute(spec);
    std::shared_ptr<ffdJitResult> first, second;
    if (!selector.split) {
      FFD_RETURN_IF_ERROR(compile(*jit, "decode" + attribute, first));
      kernel.reset(new CpuKernel(spec, options.program, targetOf(*first),
                                 first->entry, first, *options.pool));
      return Status::success();
    }
    FFD_RETURN_IF_ERROR(compile(*jit, "select" + attribute, first));
    FFD_RETURN_IF_ERROR(compile(*jit, "attend", second));
    kernel.reset(new SplitKernel(spec, selector, targetOf(*second),
                                 first->entry, second->entry, {first, second},
                                 *options.pool));
    return Status::success();
  }

  std::string targetOf(const ffdJitResult &result) const {
    return result.target ? result.target : jitTarget;
  }

  Status compile(const Jit &jit, const std::string &program,
                 std::shared_ptr<ffdJitResult> &result) const {
    char error[4096] = {};
    ffdJitResult raw = {};
    raw.struct_size = sizeof raw;
    raw.error = error;
    raw.error_size = sizeof error;
    if (jit.compile(&spec, jitTarget.c_str(), program.c_str(), &raw) != 0)
      return Status(StatusCode::CompileError,
                    "'" + jit.path + "' cannot compile for '" + jitTarget +
                        "': " + (error[0] ? error : "no reason given"));
    raw.error = nullptr; // of this frame; the result outlives it
    raw.error_size = 0;
    const auto release = jit.release;
    result.reset(new ffdJitResult(raw), [release](ffdJitResult *r) {
      release(r);
      delete r;
    });
    if (onCpu() && !raw.entry)
      return Status(StatusCode::CompileError,
                    "'" + jit.path + "' returned no function for '" +
                        jitTarget + "', expected one");
    return Status::success();
  }

  /// The package of a result, checked to be what was asked for.
  Status packageOf(const Jit &jit, const ffdJitResult &raw,
                   Package &package) const {
    FFD_RETURN_IF_ERROR(Package::parse(raw.package, size_t(raw.package_size),
                                       "(compiled)", package));
    if (package.spec == spec && package.program == options.program)
      return Status::success();
    return Status(StatusCode::CompileError,
                  "'" + jit.path + "' compiled '" + package.fileName() +
                      "', expected '" + programName(options.program) + "-" +
                      specName(spec) + "'");
  }

  Status compile(const Jit &jit, std::unique_ptr<DecodeKernel> &kernel) const {
    std::shared_ptr<ffdJitResult> result;
    FFD_RETURN_IF_ERROR(compile(jit, programName(options.program), result));
    const ffdJitResult &raw = *result;
    Package package;
    if (onCpu()) {
      kernel.reset(new CpuKernel(spec, options.program, targetOf(raw),
                                 raw.entry, result, *options.pool));
      if (raw.package && packageOf(jit, raw, package).ok())
        store(package);
      return Status::success();
    }
    if (!raw.package)
      return Status(StatusCode::CompileError,
                    "'" + jit.path + "' returned no package for '" + jitTarget +
                        "', expected one");
    FFD_RETURN_IF_ERROR(packageOf(jit, raw, package));
    // Machine code by the driver's own assembler: loading it again is quick.
    std::string cubin;
    if (package.kind == PackageKind::Ptx) {
      FFD_RETURN_IF_ERROR(
          options.cuda->assemble(package.payload, package.entry, cubin));
      package.kind = PackageKind::Cubin;
      package.payload = std::move(cubin);
      package.target = options.cuda->device().arch();
    }
    FFD_RETURN_IF_ERROR(makeKernel(package, kernel));
    store(package);
    return Status::success();
  }

  const ffdSpec &spec;
  const FindKernelOptions &options;
  std::vector<std::string> targets;
  std::string jitTarget, notes, unusable;
  StatusCode code = StatusCode::NotFound;
};
} // namespace

Status ffd::findKernel(const ffdSpec &spec, const FindKernelOptions &options,
                       std::unique_ptr<DecodeKernel> &kernel) {
  return Finder(spec, options).run(kernel);
}
