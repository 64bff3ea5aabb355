//===- KernelCache.h - Compiled kernels on disk -----------------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A folder of kernels that the JIT has compiled before. An entry is a line with
// the identity of what made it (compiler, target, driver) and a package. It is
// used only if that line is exactly the one expected and the package passes its
// own checks; anything else is as good as missing and is written anew. Entries
// appear by rename, so any number of processes may share the folder.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SRC_KERNELCACHE_H
#define FFD_SRC_KERNELCACHE_H

#include "ffd/Package.h"
#include "ffd/Status.h"

#include <string>

namespace ffd {

class KernelCache {
public:
  /// An empty folder disables the cache.
  KernelCache(std::string folder, std::string identity)
      : folder(std::move(folder)), identity(std::move(identity)) {}

  bool enabled() const { return !folder.empty(); }
  /// NotFound if there is none, Corrupt if what is there is not it.
  Status read(Program program, const ffdSpec &spec, const std::string &target,
              Package &package) const;
  /// Creates the folder where it is missing. The package may be of another
  /// kind, but is found under this target.
  Status write(const Package &package, const std::string &target) const;

private:
  std::string pathOf(Program program, const ffdSpec &spec,
                     const std::string &target) const;
  std::string folder, identity;
};

/// $FFD_CACHE_DIR, else $XDG_CACHE_HOME/ffd, else $HOME/.cache/ffd, else "".
std::string defaultKernelCacheFolder();

/// What distinguishes the file of a library from any other build of it: size
/// and time of change; "" if there is no such file.
std::string fileIdentity(const std::string &path);

} // namespace ffd
#endif // FFD_SRC_KERNELCACHE_H
