//===- EmulatedTarget.cpp - GPU kernels without a GPU ---------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// See EmulatedTarget.h. The library is searched where libffd is, then where the
// system's loader does.
//
//===----------------------------------------------------------------------===//

#include "EmulatedTarget.h"

#include "ffd/Emulated/Emulate.h"

#include <dlfcn.h>
#include <string>

namespace ffd::tools {

static constexpr char kLibrary[] = "libffd-emulate.so";

namespace {
/// The functions of libffd-emulate, which stays loaded: LLVM does not survive
/// being unloaded.
struct Library {
  decltype(&ffdEmulateCreate) create = nullptr;
  decltype(&ffdEmulateRun) run = nullptr;
  decltype(&ffdEmulateRelease) release = nullptr;
};

class EmulatedKernel : public DecodeKernel {
public:
  EmulatedKernel(const ffdSpec &spec, Program program, const std::string &arch,
                 const Library &library, ffdEmulatedKernel *kernel,
                 uint64_t seed)
      : DecodeKernel(spec, program, arch + ", emulated"), library(library),
        kernel(kernel), seed(seed) {}
  ~EmulatedKernel() override { library.release(kernel); }

  Status decode(const ffdDecodeArgs &args) override {
    char error[8192] = {};
    if (library.run(kernel, &args, seed, error, sizeof error))
      return Status(StatusCode::DeviceError, error);
    return Status::success();
  }

private:
  Library library;
  ffdEmulatedKernel *kernel;
  uint64_t seed;
};
} // namespace

/// The folder of libffd, or of the program that it is linked into, with a slash
/// at its end; empty if unknown.
static std::string runtimeFolder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<const void *>(&checkArgs), &info) ||
      !info.dli_fname)
    return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

static Status loadLibrary(Library &library) {
  std::string tried;
  void *handle = nullptr;
  for (const std::string &place :
       {runtimeFolder() + kLibrary, std::string(kLibrary)}) {
    handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle)
      break;
    tried += std::string(tried.empty() ? "" : "; ") + dlerror();
  }
  if (!handle)
    return Status(StatusCode::NotFound,
                  "cannot load the emulator for --target=emulate: " + tried);
  auto version = reinterpret_cast<decltype(&ffdEmulateAbiVersion)>(
      dlsym(handle, "ffdEmulateAbiVersion"));
  library.create = reinterpret_cast<decltype(&ffdEmulateCreate)>(
      dlsym(handle, "ffdEmulateCreate"));
  library.run = reinterpret_cast<decltype(&ffdEmulateRun)>(
      dlsym(handle, "ffdEmulateRun"));
  library.release = reinterpret_cast<decltype(&ffdEmulateRelease)>(
      dlsym(handle, "ffdEmulateRelease"));
  if (!version || !library.create || !library.run || !library.release)
    return Status(StatusCode::Unsupported,
                  std::string("'") + kLibrary +
                      "' lacks a function of ffd/Emulated/Emulate.h");
  if (version() != FFD_EMULATE_ABI_VERSION)
    return Status(StatusCode::Unsupported,
                  std::string("'") + kLibrary + "' has ABI version " +
                      std::to_string(version()) + ", expected " +
                      std::to_string(FFD_EMULATE_ABI_VERSION));
  return Status::success();
}

Status makeEmulatedKernel(const ffdSpec &spec, Program program,
                          const std::string &arch, uint64_t seed,
                          std::unique_ptr<DecodeKernel> &kernel, bool split) {
  Library library;
  FFD_RETURN_IF_ERROR(loadLibrary(library));
  char error[8192] = {};
  ffdEmulatedKernel *compiled =
      library.create(&spec, split ? "split" : programName(program),
                     arch.c_str(), error, sizeof error);
  if (!compiled)
    return Status(StatusCode::CompileError,
                  std::string("cannot compile '") + programName(program) + "-" +
                      specName(spec) + "' for '" + arch + "': " + error);
  kernel.reset(
      new EmulatedKernel(spec, program, arch, library, compiled, seed));
  return Status::success();
}

} // namespace ffd::tools
