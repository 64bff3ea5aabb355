//===- Files.cpp - Opening, reading and writing files ------------------ ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Files.h"

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

static Status checkMode(const std::string &path, const char *what,
                        const struct stat &info) {
  if (S_ISREG(info.st_mode))
    return Status::success();
  const char *kind = S_ISDIR(info.st_mode)    ? "folder"
                     : S_ISFIFO(info.st_mode) ? "pipe"
                     : S_ISSOCK(info.st_mode) ? "socket"
                                              : "device";
  return Status::invalid(std::string(what) + " '" + path + "' is a " + kind +
                         ", expected a regular file");
}

Status ffd::checkRegularFile(const std::string &path, const char *what) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? checkMode(path, what, info)
                                        : Status::success();
}

Status ffd::checkLibraryFile(const std::string &path, const char *what) {
  return path.find('/') != std::string::npos ? checkRegularFile(path, what)
                                             : Status::success();
}

Status ffd::openRegularFile(const std::string &path, const char *what,
                            int &file, int64_t &size) {
  FFD_RETURN_IF_ERROR(checkRegularFile(path, what));
  // It could be another one by now.
  const int opened =
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (opened < 0)
    return ioError("read", what, path);
  struct stat info;
  Status status = fstat(opened, &info) == 0 ? checkMode(path, what, info)
                                            : ioError("read", what, path);
  if (!status.ok()) {
    close(opened);
    return status;
  }
  file = opened;
  size = info.st_size;
  return Status::success();
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
  int file = -1;
  int64_t size = 0;
  FFD_RETURN_IF_ERROR(openRegularFile(path, what, file, size));
  if (size > kMaxFile) {
    close(file);
    return Status(
        StatusCode::Corrupt,
        std::string(what) + " '" + path + "' has " + std::to_string(size) +
            " bytes, expected a file of at most " + std::to_string(kMaxFile));
  }
  std::string bytes(size_t(size), '\0');
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
