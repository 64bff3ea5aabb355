//===- KernelCache.cpp - Compiled kernels on disk ---------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelCache.h"

#include "Files.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

using namespace ffd;

static constexpr char kMagic[] = "FFDJIT1 ";

std::string KernelCache::pathOf(Program program, const ffdSpec &spec,
                                const std::string &target) const {
  // Entries of several compilers and drivers live side by side.
  char hash[9];
  std::snprintf(hash, sizeof hash, "%08x",
                crc32(identity.data(), identity.size()));
  std::string name = Package::fileName(program, spec, target);
  name.resize(name.size() - std::strlen(".ffdk"));
  return folder + "/" + name + "." + hash + ".ffdj";
}

Status KernelCache::read(Program program, const ffdSpec &spec,
                         const std::string &target, Package &package) const {
  const std::string path = pathOf(program, spec, target);
  std::string bytes;
  FFD_RETURN_IF_ERROR(readWholeFile(path, "compiled kernel", bytes));
  const std::string line = kMagic + identity + "\n";
  if (bytes.compare(0, line.size(), line) != 0)
    return Status(StatusCode::Corrupt,
                  "the compiled kernel '" + path +
                      "' does not begin as expected from this compiler");
  Package result;
  FFD_RETURN_IF_ERROR(Package::parse(bytes.data() + line.size(),
                                     bytes.size() - line.size(), path, result));
  if (result.spec != spec || result.program != program)
    return Status(StatusCode::Corrupt, "the compiled kernel '" + path +
                                           "' holds '" + result.fileName() +
                                           "', expected what its name says");
  package = std::move(result);
  return Status::success();
}

/// mkdir -p; whether the folder is there afterwards.
static bool makeFolder(const std::string &path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0)
    return S_ISDIR(info.st_mode);
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash > 0 &&
      !makeFolder(path.substr(0, slash)))
    return false;
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
}

Status KernelCache::write(const Package &package,
                          const std::string &target) const {
  std::string bytes;
  FFD_RETURN_IF_ERROR(package.serialize(bytes));
  if (!makeFolder(folder))
    return Status(StatusCode::IoError,
                  "cannot create the folder of compiled kernels '" + folder +
                      "': " + std::strerror(errno));
  return writeWholeFile(pathOf(package.program, package.spec, target),
                        "compiled kernel", kMagic + identity + "\n" + bytes);
}

std::string ffd::defaultKernelCacheFolder() {
  const auto get = [](const char *name) {
    const char *value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string own = get("FFD_CACHE_DIR"); !own.empty())
    return own;
  if (const std::string shared = get("XDG_CACHE_HOME"); !shared.empty())
    return shared + "/ffd";
  const std::string home = get("HOME");
  return home.empty() ? "" : home + "/.cache/ffd";
}

std::string ffd::fileIdentity(const std::string &path) {
  struct stat info;
  if (path.empty() || stat(path.c_str(), &info) != 0)
    return "";
  return std::to_string(int64_t(info.st_size)) + "-" +
         std::to_string(int64_t(info.st_mtim.tv_sec)) + "." +
         std::to_string(int64_t(info.st_mtim.tv_nsec));
}
