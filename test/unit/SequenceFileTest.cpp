//===- SequenceFileTest.cpp - Saved sequences ------------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Round trips, damaged streams, other caches; a failed load leaves no trace.
//
//===----------------------------------------------------------------------===//

#include "ApiCase.h"

#include "gtest/gtest.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <sys/stat.h>
#include <unistd.h>

using namespace ffd;

namespace {

struct Bytes {
  std::string bytes;
  size_t at = 0;
  static int write(void *user, const void *data, size_t size) {
    static_cast<Bytes *>(user)->bytes.append(static_cast<const char *>(data),
                                             size);
    return 0;
  }
  static int read(void *user, void *data, size_t size) {
    auto *b = static_cast<Bytes *>(user);
    if (size > b->bytes.size() - b->at)
      return ENODATA;
    std::memcpy(data, b->bytes.data() + b->at, size);
    b->at += size;
    return 0;
  }
};

ffdCacheInfo infoOf(ffdCache *cache) {
  ffdCacheInfo info = {};
  info.struct_size = sizeof info;
  EXPECT_EQ(ffdCacheGetInfo(cache, &info), FFD_SUCCESS);
  return info;
}

TEST(SequenceFile, RoundTrip) {
  bool centre = false;
  for (int64_t length : {0, 1, 127, 128, 500, 501, 128, 127}) {
    ffdCacheOptions options = ApiCase::small(makeSpec(64, 32, 2));
    options.lag = 3;
    options.spec.centre = centre ? FFD_CENTRE_ROW : FFD_CENTRE_NONE;
    centre |= length == 500; // from then on
    ApiCase c(options, uint32_t(length));
    c.keyMean = 4;
    const int32_t a = c.create();
    ASSERT_EQ(c.append({a}, {int32_t(length)}), FFD_SUCCESS);
    if (length == 128 * 3 + 116)
      ASSERT_EQ(c.truncate(a, 385), FFD_SUCCESS); // shorter than the lag
    FFD_OK(ffdSequenceSetDelta(c.cache, a, 4.25f, nullptr));
    Bytes bytes;
    FFD_OK(ffdSequenceSave(c.cache, a, Bytes::write, &bytes, nullptr));

    // Another cache of the same kind, whose slots and pages are elsewhere.
    options.sequences = 9;
    options.pages = 11;
    options.delta = 4.25f;
    ApiCase other(options, 2);
    const int32_t first = other.create();
    ASSERT_EQ(other.append({first}, {300}), FFD_SUCCESS);
    int32_t loaded = -1;
    FFD_OK(ffdSequenceLoad(other.cache, Bytes::read, &bytes, nullptr, &loaded));
    EXPECT_EQ(bytes.at, bytes.bytes.size());
    other.tokens[loaded] = c.tokens[a];
    other.check({loaded, first});
    other.checkGather(loaded);
    ASSERT_EQ(other.append({loaded}, {200}), FFD_SUCCESS);
    other.check({loaded, first});
  }
}

TEST(SequenceFile, DamagedStreams) {
  ApiCase c(ApiCase::small(makeSpec(64, 16, 1)), 8);
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {140}), FFD_SUCCESS);
  Bytes saved;
  FFD_OK(ffdSequenceSave(c.cache, a, Bytes::write, &saved, nullptr));
  const ffdCacheInfo before = infoOf(c.cache);
  const auto load = [&](const std::string &bytes) {
    Bytes stream{bytes};
    int32_t sequence = -1;
    const ffdStatus status =
        ffdSequenceLoad(c.cache, Bytes::read, &stream, nullptr, &sequence);
    if (status != FFD_SUCCESS) {
      EXPECT_EQ(sequence, -1);
      EXPECT_EQ(infoOf(c.cache).free_pages, before.free_pages);
      EXPECT_EQ(infoOf(c.cache).sequences, before.sequences);
    }
    return status;
  };
  EXPECT_EQ(load(""), FFD_IO_ERROR);
  EXPECT_EQ(load(saved.bytes.substr(0, 60)), FFD_IO_ERROR);
  EXPECT_EQ(load(saved.bytes.substr(0, saved.bytes.size() - 1)), FFD_IO_ERROR);
  EXPECT_EQ(load(std::string(4096, 'x')), FFD_CORRUPT);
  // A flipped bit anywhere is found.
  for (size_t i = 0; i < saved.bytes.size();
       i += i < 150 ? 1 : saved.bytes.size() / 97) {
    std::string bytes = saved.bytes;
    bytes[i] = char(bytes[i] ^ 4);
    EXPECT_NE(load(bytes), FFD_SUCCESS) << "byte " << i;
  }
  std::string last = saved.bytes;
  last.back() = char(last.back() ^ 1);
  EXPECT_EQ(load(last), FFD_CORRUPT);
  c.check({a});
  EXPECT_EQ(load(saved.bytes), FFD_SUCCESS);
}

/// Every field that must agree is named when it does not.
TEST(SequenceFile, OtherCaches) {
  const ffdCacheOptions options = ApiCase::small(makeSpec(64, 64, 2));
  ApiCase c(options, 8);
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {200}), FFD_SUCCESS);
  Bytes saved;
  FFD_OK(ffdSequenceSave(c.cache, a, Bytes::write, &saved, nullptr));
  const auto refused = [&](const char *part,
                           const std::function<void(ffdCacheOptions &)> &edit,
                           ffdStatus expected = FFD_UNSUPPORTED) {
    ffdCacheOptions o = options;
    edit(o);
    ApiCase other(o, 1);
    Bytes stream{saved.bytes};
    int32_t sequence = -1;
    EXPECT_EQ(
        ffdSequenceLoad(other.cache, Bytes::read, &stream, nullptr, &sequence),
        expected);
    EXPECT_NE(std::string(ffdLastErrorMessage()).find(part), std::string::npos)
        << ffdLastErrorMessage();
    EXPECT_EQ(infoOf(other.cache).sequences, 0);
  };
  refused("has centre 0, expected the cache's 1",
          [](ffdCacheOptions &o) { o.spec.centre = FFD_CENTRE_ROW; });
  refused("has head_dim 64, expected the cache's 128",
          [](ffdCacheOptions &o) { o.spec.head_dim = 128; });
  refused("has value_dim 64",
          [](ffdCacheOptions &o) { o.spec.value_dim = 32; });
  refused("has element 0", [](ffdCacheOptions &o) { o.spec.element = 1; });
  refused("has scan_bits 2", [](ffdCacheOptions &o) { o.spec.scan_bits = 4; });
  refused("has group 2", [](ffdCacheOptions &o) { o.spec.group = 1; });
  refused("has select_block 16",
          [](ffdCacheOptions &o) { o.spec.select_block = 128; });
  refused("has layers 2", [](ffdCacheOptions &o) { o.layers = 1; });
  refused("has kv_heads 2", [](ffdCacheOptions &o) { o.kv_heads = 3; });
  refused("has lag 0", [](ffdCacheOptions &o) { o.lag = 1; });
  refused("has length 200", [](ffdCacheOptions &o) { o.max_tokens = 199; });
  refused(
      "pages free", [](ffdCacheOptions &o) { o.pages = 0; }, FFD_OUT_OF_PAGES);
}

TEST(SequenceFile, Files) {
  char folder[] = "/tmp/ffd-sequence-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/a.ffds";
  ApiCase c(ApiCase::small(makeSpec(64, 16, 1)), 8);
  const int32_t a = c.create();
  ASSERT_EQ(c.append({a}, {150}), FFD_SUCCESS);
  FFD_OK(ffdSequenceSaveFile(c.cache, a, path.c_str(), nullptr));
  int32_t loaded = -1;
  FFD_OK(ffdSequenceLoadFile(c.cache, path.c_str(), nullptr, &loaded));
  c.tokens[loaded] = c.tokens[a];
  c.check({loaded, a});
  const std::string missing = std::string(folder) + "/no/b.ffds";
  const std::string pipe = path + ".pipe", link = path + ".link";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(symlink(path.c_str(), link.c_str()), 0);
  for (const std::string &special : {pipe, link}) {
    EXPECT_EQ(ffdSequenceSaveFile(c.cache, a, special.c_str(), nullptr),
              FFD_INVALID_ARGUMENT);
    struct stat there;
    ASSERT_EQ(lstat(special.c_str(), &there), 0);
    EXPECT_FALSE(S_ISREG(there.st_mode)) << special << " was replaced";
  }
  // No one writes to the pipe, and loading does not wait for it.
  for (const auto &[special, kind] :
       {std::pair<std::string, std::string>{pipe, "pipe"},
        {folder, "folder"},
        {"/dev/zero", "device"}}) {
    EXPECT_EQ(ffdSequenceLoadFile(c.cache, special.c_str(), nullptr, &loaded),
              FFD_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(ffdLastErrorMessage()),
              "sequence file '" + special + "' is a " + kind +
                  ", expected a regular file");
  }
  FFD_OK(ffdSequenceLoadFile(c.cache, link.c_str(), nullptr, &loaded));
  FFD_OK(ffdSequenceFree(c.cache, loaded, nullptr));
  unlink(pipe.c_str());
  unlink(link.c_str());
  EXPECT_EQ(ffdSequenceSaveFile(c.cache, a, missing.c_str(), nullptr),
            FFD_NOT_FOUND);
  EXPECT_EQ(ffdSequenceLoadFile(c.cache, missing.c_str(), nullptr, &loaded),
            FFD_NOT_FOUND);
  // A full disk: the old file stays.
  EXPECT_EQ(ffdSequenceSaveFile(c.cache, a, "/dev/full/x", nullptr),
            FFD_IO_ERROR);
  FILE *file = std::fopen(path.c_str(), "r+b");
  ASSERT_NE(file, nullptr);
  std::fseek(file, -40, SEEK_END);
  std::fputc(1, file);
  std::fputc(200, file);
  std::fclose(file);
  EXPECT_EQ(ffdSequenceLoadFile(c.cache, path.c_str(), nullptr, &loaded),
            FFD_CORRUPT);
  std::remove(path.c_str());
  EXPECT_EQ(rmdir(folder), 0) << "temporary files are left";
}

} // namespace
