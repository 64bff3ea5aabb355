//===- LoadCode.cpp - Packages of CPU code ----------------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shared objects go through a file in memory to the system's loader.
//
//===----------------------------------------------------------------------===//

#include "LoadCode.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#ifdef __linux__
#include <elf.h>
#endif
#include <sys/mman.h>
#include <unistd.h>

using namespace ffd;

#ifdef __linux__
static bool isRelocatable(const std::string &bytes) {
  Elf64_Ehdr header;
  if (bytes.size() < sizeof header)
    return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_type == ET_REL;
}

/// That the file is a shared object and has all of it: the system's loader maps
/// segments without looking at the file's end, and a read there is fatal.
static Status checkSharedObject(const std::string &name,
                                const std::string &bytes) {
  Elf64_Ehdr header;
  if (bytes.size() >= sizeof header)
    std::memcpy(&header, bytes.data(), sizeof header);
  if (bytes.size() < sizeof header ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN)
    return Status(StatusCode::Unsupported,
                  name + " holds no ELF code, expected a shared or relocatable "
                         "object");
  const auto inside = [&](uint64_t offset, uint64_t size) {
    return offset <= bytes.size() && size <= bytes.size() - offset;
  };
  bool whole =
      header.e_phentsize == sizeof(Elf64_Phdr) &&
      inside(header.e_phoff, uint64_t(header.e_phnum) * sizeof(Elf64_Phdr));
  for (int i = 0; whole && i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment,
                bytes.data() + header.e_phoff + size_t(i) * sizeof segment,
                sizeof segment);
    whole = inside(segment.p_offset, segment.p_filesz);
  }
  if (!whole)
    return Status(StatusCode::Corrupt,
                  name + " holds a shared object whose segments exceed its " +
                      std::to_string(bytes.size()) +
                      " bytes, expected a whole one");
  return Status::success();
}
#endif

Status ffd::loadCode(const Package &package, std::shared_ptr<void> &owner,
                     CpuEntry &entry) {
  const std::string name = "kernel package '" + package.fileName() + "'";
  const std::string &bytes = package.payload;
#ifdef __linux__
  if (isRelocatable(bytes))
    return loadRelocatable(name, bytes, package.entry, owner, entry);
  FFD_RETURN_IF_ERROR(checkSharedObject(name, bytes));
  const int file = memfd_create("ffd-kernel", MFD_CLOEXEC);
  if (file < 0)
    return Status(StatusCode::IoError, "cannot create a file in memory for " +
                                           name + ": " + std::strerror(errno));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = write(file, bytes.data() + done, bytes.size() - done);
    if (count <= 0 && errno != EINTR)
      break;
    done += count > 0 ? size_t(count) : 0;
  }
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  void *library = done == bytes.size()
                      ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)
                      : nullptr;
  const char *error = library ? nullptr : dlerror();
  close(file);
  if (!library)
    return Status(StatusCode::Unsupported,
                  "cannot load the code of " + name + ": " +
                      (error ? error : "the file in memory is too small"));
  owner = std::shared_ptr<void>(library, [](void *l) { dlclose(l); });
  entry = reinterpret_cast<CpuEntry>(dlsym(library, package.entry.c_str()));
  if (!entry)
    return Status(StatusCode::Corrupt,
                  name + " lacks its entry '" + package.entry + "'");
  return Status::success();
#else
  (void)owner;
  (void)entry;
  return Status(StatusCode::Unsupported,
                name + " holds CPU code, which only Linux loads");
#endif
}
