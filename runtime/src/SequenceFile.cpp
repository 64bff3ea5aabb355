//===- SequenceFile.cpp - Saving and loading a sequence ---------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The stream: 8 bytes of magic; a table of 64-bit little-endian numbers, the
// last of them its checksum; per layer the committed blocks (thumbnails,
// residuals and values of all heads), the tails, smax, the centres if there are
// any; the checksum of all that follows the table. Nothing is believed before
// its checksum is right.
//
//===----------------------------------------------------------------------===//

#include "Files.h"
#include "PagedCache.h"

#include "ffd/Package.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace ffd;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "numbers are written as they are in memory");

namespace {

constexpr char kMagic[8] = {'F', 'F', 'D', 'S', 'E', 'Q', '\r', '\n'};
constexpr int64_t kVersion = 2;

enum Field {
  Version,
  HeadDim,
  ValueDim,
  Group,
  Element,
  ScanBits,
  QuantBlock,
  SelectBlock,
  CentreKind, ///< ffdCentre
  Layers,
  KvHeads,
  Lag,
  LastOfLayout = Lag,
  Length,
  Committed, ///< blocks
  Delta,     ///< bits of the float
  Crc,
  FieldCount
};
constexpr const char *kFieldNames[FieldCount] = {
    "version", "head_dim",  "value_dim",   "group",
    "element", "scan_bits", "quant_block", "select_block",
    "centre",  "layers",    "kv_heads",    "lag",
    "length",  "committed", "delta",       "checksum"};

/// A stream and the checksum of what went through it.
class Stream {
public:
  Stream(ffdWriteFn write, ffdReadFn read, void *user)
      : writer(write), reader(read), user(user) {}

  Status write(const void *bytes, size_t size) {
    crc = crc32(bytes, size, crc);
    return result(writer(user, bytes, size), "write");
  }
  Status read(void *bytes, size_t size) {
    FFD_RETURN_IF_ERROR(result(reader(user, bytes, size), "read"));
    crc = crc32(bytes, size, crc);
    return Status::success();
  }
  uint32_t crc = 0;

private:
  static Status result(int error, const char *what) {
    if (error == 0)
      return Status::success();
    return Status(StatusCode::IoError,
                  std::string("cannot ") + what +
                      " a sequence: " + std::strerror(error));
  }
  ffdWriteFn writer;
  ffdReadFn reader;
  void *user;
};

Status corrupt(const std::string &text) {
  return Status(StatusCode::Corrupt, "the saved sequence " + text);
}

} // namespace

struct PagedCache::Header {
  int64_t field[FieldCount] = {};

  /// The fields that a cache decides.
  static Header of(const CacheShape &s) {
    Header h;
    h.field[Version] = kVersion;
    h.field[HeadDim] = s.spec.head_dim;
    h.field[ValueDim] = s.spec.value_dim;
    h.field[Group] = s.spec.group;
    h.field[Element] = s.spec.element;
    h.field[ScanBits] = s.spec.scan_bits;
    h.field[QuantBlock] = s.spec.quant_block;
    h.field[SelectBlock] = s.spec.select_block;
    h.field[CentreKind] = s.spec.centre;
    h.field[Layers] = s.layers;
    h.field[KvHeads] = s.heads;
    h.field[Lag] = s.lag;
    return h;
  }
  uint32_t checksum() const { return crc32(field, sizeof(int64_t) * Crc); }
};

Status PagedCache::save(int32_t slot, ffdWriteFn write, void *user,
                        void *stream) {
  FFD_RETURN_IF_ERROR(checkSlot(slot));
  FFD_RETURN_IF_ERROR(checkEven("save", slot));
  if (!write)
    return Status::invalid("'write' is null, expected a function");
  FFD_RETURN_IF_ERROR(checkNotCapturing("saving a sequence", stream));
  const Sequence &sequence = sequences[size_t(slot)];
  Header header = Header::of(shape);
  header.field[Length] = sequence.length[0];
  header.field[Committed] = sequence.committed[0];
  uint32_t bits;
  std::memcpy(&bits, &sequence.delta, 4);
  header.field[Delta] = bits;
  header.field[Crc] = header.checksum();
  Stream out(write, nullptr, user);
  FFD_RETURN_IF_ERROR(out.write(kMagic, sizeof kMagic));
  FFD_RETURN_IF_ERROR(out.write(header.field, sizeof header.field));
  out.crc = 0;

  const Layout &l = shape.layout;
  const int64_t tail =
      sequence.length[0] - sequence.committed[0] * shape.spec.quant_block;
  std::vector<uint8_t> buffer;
  const auto put = [&](const void *from, int64_t bytes) -> Status {
    buffer.resize(size_t(bytes));
    FFD_RETURN_IF_ERROR(memory->read(buffer.data(), from, bytes, stream));
    return out.write(buffer.data(), size_t(bytes));
  };
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    for (int64_t block = 0; block < sequence.committed[0]; ++block) {
      const int64_t page = sequence.pages[size_t(block)];
      FFD_RETURN_IF_ERROR(
          put(thumbnail(layer, page, 0), shape.heads * l.thumbnailBytes()));
      FFD_RETURN_IF_ERROR(
          put(residual(layer, page, 0), shape.heads * l.residualBytes()));
      FFD_RETURN_IF_ERROR(
          put(value(layer, page, 0), shape.heads * l.valueBytes()));
    }
    for (int64_t head = 0; tail > 0 && head < shape.heads; ++head) {
      FFD_RETURN_IF_ERROR(put(tailK(layer, slot, head), tail * l.headDim * 2));
      FFD_RETURN_IF_ERROR(put(tailV(layer, slot, head), tail * l.valueDim * 2));
    }
    FFD_RETURN_IF_ERROR(
        put(smaxRow(layer, slot, 0), shape.heads * l.scaleBytes()));
    if (centred())
      FFD_RETURN_IF_ERROR(
          put(centreRow(layer, slot, 0), shape.heads * l.headDim * 2));
  }
  const uint32_t crc = out.crc;
  return out.write(&crc, sizeof crc);
}

Status PagedCache::load(ffdReadFn read, void *user, void *stream,
                        int32_t &slot) {
  if (!read)
    return Status::invalid("'read' is null, expected a function");
  if (callerPages)
    return Status(StatusCode::Unsupported,
                  "cannot load into a cache created with caller_pages, "
                  "expected one that manages its pages");
  FFD_RETURN_IF_ERROR(checkNotCapturing("loading a sequence", stream));
  Stream in(nullptr, read, user);
  char magic[sizeof kMagic];
  FFD_RETURN_IF_ERROR(in.read(magic, sizeof magic));
  if (std::memcmp(magic, kMagic, sizeof magic) != 0)
    return corrupt("does not begin with FFDSEQ, expected a saved sequence");
  Header header;
  FFD_RETURN_IF_ERROR(in.read(header.field, sizeof header.field));
  if (header.field[Version] != kVersion)
    return Status(StatusCode::Unsupported,
                  "the saved sequence has version " +
                      std::to_string(header.field[Version]) + ", expected " +
                      std::to_string(kVersion));
  if (header.field[Crc] != header.checksum())
    return corrupt("has a damaged header (its checksum differs)");
  const Header mine = Header::of(shape);
  for (int i = 0; i <= LastOfLayout; ++i)
    if (header.field[i] != mine.field[i])
      return Status(StatusCode::Unsupported,
                    std::string("the saved sequence has ") + kFieldNames[i] +
                        " " + std::to_string(header.field[i]) +
                        ", expected the cache's " +
                        std::to_string(mine.field[i]));
  const int64_t length = header.field[Length];
  const int64_t blocks = header.field[Committed];
  const int64_t block = shape.spec.quant_block;
  if (length < 0 || length > shape.maxTokens)
    return Status(StatusCode::Unsupported,
                  "the saved sequence has length " + std::to_string(length) +
                      ", expected at most the cache's max_tokens, " +
                      std::to_string(shape.maxTokens));
  const int64_t usual = committedBlocks(shape.spec, length, shape.lag);
  if (blocks < usual || blocks > length / block)
    return corrupt("has " + std::to_string(blocks) + " committed blocks of " +
                   std::to_string(length) + " tokens, expected " +
                   std::to_string(usual));
  if (!owner->onCpu() && blocks != usual)
    return Status(StatusCode::Unsupported,
                  "the saved sequence has a tail of " +
                      std::to_string(length - blocks * block) +
                      " tokens, expected at least the lag on a GPU");

  int32_t fresh;
  FFD_RETURN_IF_ERROR(createSequence(stream, fresh));
  Sequence &sequence = sequences[size_t(fresh)];
  const auto fillIn = [&]() -> Status {
    FFD_RETURN_IF_ERROR(takePages({fresh}, {blocks}, stream));
    const Layout &l = shape.layout;
    const int64_t tail = length - blocks * block;
    in.crc = 0;
    std::vector<uint8_t> buffer;
    const auto get = [&](void *to, int64_t bytes) -> Status {
      buffer.resize(size_t(bytes));
      FFD_RETURN_IF_ERROR(in.read(buffer.data(), size_t(bytes)));
      return memory->write(to, buffer.data(), bytes, stream);
    };
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      for (int64_t i = 0; i < blocks; ++i) {
        const int64_t page = sequence.pages[size_t(i)];
        FFD_RETURN_IF_ERROR(
            get(thumbnail(layer, page, 0), shape.heads * l.thumbnailBytes()));
        FFD_RETURN_IF_ERROR(
            get(residual(layer, page, 0), shape.heads * l.residualBytes()));
        FFD_RETURN_IF_ERROR(
            get(value(layer, page, 0), shape.heads * l.valueBytes()));
      }
      for (int64_t head = 0; tail > 0 && head < shape.heads; ++head) {
        FFD_RETURN_IF_ERROR(
            get(tailK(layer, fresh, head), tail * l.headDim * 2));
        FFD_RETURN_IF_ERROR(
            get(tailV(layer, fresh, head), tail * l.valueDim * 2));
      }
      FFD_RETURN_IF_ERROR(
          get(smaxRow(layer, fresh, 0), shape.heads * l.scaleBytes()));
      if (centred())
        FFD_RETURN_IF_ERROR(
            get(centreRow(layer, fresh, 0), shape.heads * l.headDim * 2));
    }
    const uint32_t crc = in.crc;
    uint32_t stated;
    FFD_RETURN_IF_ERROR(in.read(&stated, sizeof stated));
    if (stated != crc)
      return corrupt("is damaged (its checksum differs)");
    std::fill(sequence.length.begin(), sequence.length.end(), length);
    std::fill(sequence.committed.begin(), sequence.committed.end(), blocks);
    const uint32_t bits = uint32_t(header.field[Delta]);
    std::memcpy(&sequence.delta, &bits, 4);
    if (!(sequence.delta >= 0))
      return corrupt("has a delta that is no number of at least 0");
    FFD_RETURN_IF_ERROR(writeDelta(fresh, stream));
    return writeLengths(fresh, stream);
  };
  Status status = fillIn();
  if (!status.ok()) {
    (void)freeSequence(fresh, stream);
    return status;
  }
  slot = fresh;
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static int writeFile(void *user, const void *bytes, size_t size) {
  const int file = *static_cast<int *>(user);
  const char *at = static_cast<const char *>(bytes);
  while (size > 0) {
    const ssize_t count = ::write(file, at, size);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return errno;
    at += count;
    size -= size_t(count);
  }
  return 0;
}

namespace {
struct OpenFile {
  int number = -1;
  bool endedEarly = false;
};
} // namespace

static int readFile(void *user, void *bytes, size_t size) {
  OpenFile &file = *static_cast<OpenFile *>(user);
  char *at = static_cast<char *>(bytes);
  while (size > 0) {
    const ssize_t count = ::read(file.number, at, size);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return errno;
    if (count == 0) {
      file.endedEarly = true;
      return ENODATA;
    }
    at += count;
    size -= size_t(count);
  }
  return 0;
}

static Status writeError(const char *path, int error) {
  return Status(error == ENOENT ? StatusCode::NotFound : StatusCode::IoError,
                std::string("cannot write sequence file '") + path +
                    "': " + std::strerror(error));
}

ffdStatus ffdSequenceSave(ffdCache *cache, int32_t sequence, ffdWriteFn write,
                          void *user, ffdStream stream) {
  if (!cache)
    return setLastError(Status::invalid("'cache' is null, expected a pointer"));
  return cache->impl->context().report(
      cache->impl->save(sequence, write, user, stream));
}

ffdStatus ffdSequenceLoad(ffdCache *cache, ffdReadFn read, void *user,
                          ffdStream stream, int32_t *sequence) {
  if (!cache || !sequence)
    return setLastError(Status::invalid(std::string("'") +
                                        (cache ? "sequence" : "cache") +
                                        "' is null, expected a pointer"));
  return cache->impl->context().report(
      cache->impl->load(read, user, stream, *sequence));
}

ffdStatus ffdSequenceSaveFile(ffdCache *cache, int32_t sequence,
                              const char *path, ffdStream stream) {
  if (!cache || !path)
    return setLastError(Status::invalid(std::string("'") +
                                        (cache ? "path" : "cache") +
                                        "' is null, expected a value"));
  const auto save = [&]() -> Status {
    // The file is put in the place of what is there, which for a device, a pipe
    // or a link is not what writing to it means.
    struct stat there;
    if (lstat(path, &there) == 0 && !S_ISREG(there.st_mode))
      return Status::invalid(std::string("the sequence file '") + path +
                             "' is no regular file, expected one or none");
    const std::string temporary =
        std::string(path) + "." + std::to_string(getpid()) + ".tmp";
    int file =
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0)
      return writeError(path, errno);
    Status status = cache->impl->save(sequence, writeFile, &file, stream);
    if (close(file) != 0 && status.ok())
      status = writeError(path, errno);
    if (status.ok() && rename(temporary.c_str(), path) != 0)
      status = writeError(path, errno);
    if (!status.ok())
      unlink(temporary.c_str());
    return status;
  };
  return cache->impl->context().report(save());
}

ffdStatus ffdSequenceLoadFile(ffdCache *cache, const char *path,
                              ffdStream stream, int32_t *sequence) {
  if (!cache || !path || !sequence)
    return setLastError(Status::invalid(std::string("'") +
                                        (!cache ? "cache"
                                         : path ? "sequence"
                                                : "path") +
                                        "' is null, expected a value"));
  const auto load = [&]() -> Status {
    OpenFile file;
    int64_t size = 0;
    FFD_RETURN_IF_ERROR(
        openRegularFile(path, "sequence file", file.number, size));
    Status status = cache->impl->load(readFile, &file, stream, *sequence);
    close(file.number);
    if (file.endedEarly)
      return Status(StatusCode::Corrupt,
                    std::string("sequence file '") + path + "' ends after " +
                        std::to_string(size) +
                        " bytes, expected a whole sequence");
    if (status.code() == StatusCode::IoError)
      return Status(status.code(), status.message() + " (file '" + path + "')");
    return status;
  };
  return cache->impl->context().report(load());
}
