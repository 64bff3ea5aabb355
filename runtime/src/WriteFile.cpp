//===- WriteFile.cpp - Whole files ------------------------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WriteFile.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace ffd;

static Status ioError(const char *task, const char *what,
                      const std::string &path) {
  const int error = errno;
  return Status(error == ENOENT ? StatusCode::NotFound : StatusCode::IoError,
                std::string("cannot ") + task + " " + what + " '" + path +
                    "': " + std::strerror(error));
}

Status ffd::writeWholeFile(const std::string &path, const char *what,
                           const std::string &bytes) {
  // The process id keeps processes apart, the number threads of one process.
  static std::atomic<unsigned> number{0};
  const std::string temporary = path + "." + std::to_string(getpid()) + "-" +
                                std::to_string(number++) + ".tmp";
  const int file =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0)
    return ioError("write", what, path);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        ::write(file, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      break;
    done += size_t(count);
  }
  const bool written = done == bytes.size();
  const bool closed = written && close(file) == 0;
  if (!closed || rename(temporary.c_str(), path.c_str()) != 0) {
    Status status = ioError("write", what, path);
    if (!written)
      close(file);
    unlink(temporary.c_str());
    return status;
  }
  return Status::success();
}

Status ffd::readWholeFile(const std::string &path, const char *what,
                          std::string &result) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info;
  if (file < 0)
    return ioError("read", what, path);
  if (fstat(file, &info) != 0) {
    Status status = ioError("read", what, path);
    close(file);
    return status;
  }
  if (!S_ISREG(info.st_mode) || info.st_size > kMaxFile) {
    close(file);
    return Status(StatusCode::Corrupt,
                  std::string(what) + " '" + path + "' has " +
                      std::to_string(int64_t(info.st_size)) +
                      " bytes, expected a file of at most " +
                      std::to_string(kMaxFile));
  }
  std::string bytes(size_t(info.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(file, &bytes[done], bytes.size() - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0) {
      Status status = ioError("read", what, path);
      close(file);
      return status;
    }
    if (count == 0)
      break;
    done += size_t(count);
  }
  close(file);
  bytes.resize(done);
  result = std::move(bytes);
  return Status::success();
}
