//===- PackageTest.cpp - The package file under attack ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the writer writes the reader reads; every truncation, every flipped bit
// and every lie is refused with a message that says what differs.
//
//===----------------------------------------------------------------------===//

#include "RandomCase.h"

#include "ffd/Package.h"

#include "gtest/gtest.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace ffd;

namespace {

Package sample() {
  Package package;
  package.kind = PackageKind::Ptx;
  package.target = "sm_90a";
  package.entry = "ffd_decode";
  package.spec = makeSpec();
  package.threads = 256;
  package.sharedBytes = 65536;
  package.ctasPerSm = 2;
  package.payload = std::string("PTX\n\n\0binary=1\n", 15);
  return package;
}

std::string bytesOf(const Package &package) {
  std::string bytes;
  Status status = package.serialize(bytes);
  EXPECT_TRUE(status.ok()) << status.message();
  return bytes;
}

Status parse(const std::string &bytes) {
  Package package;
  return Package::parse(bytes.data(), bytes.size(), "t.ffdk", package);
}

/// The status after replacing `from` by `to` in the file.
Status edited(const std::string &from, const std::string &to) {
  std::string bytes = bytesOf(sample());
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return parse(bytes.replace(at, from.size(), to));
}

void expectMessage(const Status &status, const std::string &part) {
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

TEST(Package, RoundTrips) {
  Package in = sample(), out;
  in.program = Program::Exact;
  in.spec = makeSpec(80, 48, 7, FFD_BF16, 8, 64);
  in.spec.centre = FFD_CENTRE_ROW;
  const std::string bytes = bytesOf(in);
  ASSERT_TRUE(Package::parse(bytes.data(), bytes.size(), "t", out).ok());
  EXPECT_EQ(out.kind, in.kind);
  EXPECT_EQ(out.program, in.program);
  EXPECT_EQ(out.target, in.target);
  EXPECT_EQ(out.entry, in.entry);
  EXPECT_TRUE(out.spec == in.spec);
  EXPECT_EQ(out.threads, in.threads);
  EXPECT_EQ(out.sharedBytes, in.sharedBytes);
  EXPECT_EQ(out.ctasPerSm, in.ctasPerSm);
  EXPECT_EQ(out.payload, in.payload);
  EXPECT_EQ(bytesOf(out), bytes);
}

TEST(Package, HoldsTheKindOfPseudoMax) {
  Package in = sample(), out;
  in.spec.pseudo_max = FFD_PSEUDO_MAX_REFINED;
  const std::string bytes = bytesOf(in);
  EXPECT_NE(bytes.find("\npseudo_max=refined\n"), std::string::npos);
  ASSERT_TRUE(Package::parse(bytes.data(), bytes.size(), "t", out).ok());
  EXPECT_EQ(out.spec.pseudo_max, FFD_PSEUDO_MAX_REFINED);
  EXPECT_TRUE(out.spec != sample().spec);
  EXPECT_EQ(in.fileName(),
            "decode-d128-v128-g4-f16-b2-q128-s16-refined.sm_90a.ffdk");
  expectMessage(edited("pseudo_max=scan", "pseudo_max=best"),
                "has pseudo_max 'best', expected scan or refined");
}

TEST(Package, HoldsTheCertificate) {
  Package in = sample(), out;
  in.spec.certificate = FFD_CERTIFICATE_NOISE;
  const std::string bytes = bytesOf(in);
  EXPECT_NE(bytes.find("\ncertificate=noise\n"), std::string::npos);
  ASSERT_TRUE(Package::parse(bytes.data(), bytes.size(), "t", out).ok());
  EXPECT_EQ(out.spec.certificate, FFD_CERTIFICATE_NOISE);
  EXPECT_TRUE(out.spec != sample().spec);
  EXPECT_EQ(in.fileName(),
            "decode-d128-v128-g4-f16-b2-q128-s16-certnoise.sm_90a.ffdk");
  expectMessage(edited("certificate=none", "certificate=sure"),
                "has certificate 'sure', expected none, plain or noise");
}

TEST(Package, FileNameIsCanonical) {
  EXPECT_EQ(sample().fileName(),
            "decode-d128-v128-g4-f16-b2-q128-s16.sm_90a.ffdk");
  EXPECT_EQ(Package::fileName(Program::Exact, makeSpec(64, 32, 1, FFD_BF16),
                              "cpu:avx2"),
            "exact-d64-v32-g1-bf16-b2-q128-s16.cpu-avx2.ffdk");
}

TEST(Package, EveryTruncationIsRefused) {
  const std::string bytes = bytesOf(sample());
  for (size_t size = 0; size < bytes.size(); ++size)
    ASSERT_FALSE(parse(bytes.substr(0, size)).ok()) << size;
  ASSERT_TRUE(parse(bytes).ok());
  ASSERT_FALSE(parse(bytes + "x").ok());
}

TEST(Package, EveryFlippedBitIsRefused) {
  const std::string bytes = bytesOf(sample());
  for (size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = bytes;
      bad[i] = char(bad[i] ^ 1 << bit);
      ASSERT_FALSE(parse(bad).ok()) << "byte " << i << " bit " << bit;
    }
}

TEST(Package, MessagesNameTheField) {
  expectMessage(parse(""), "does not begin with the line FFDK1");
  expectMessage(parse("\177ELF and more"), "does not begin with");
  expectMessage(parse(std::string("FFDK1\n") + std::string(100000, 'a')),
                "ends inside its header");
  expectMessage(edited("centre=none", "centre=mean"),
                "has centre 'mean', expected none or row");
  expectMessage(edited("abi=" + std::to_string(FFD_ABI_VERSION), "abi=99"),
                "has abi 99, expected " + std::to_string(FFD_ABI_VERSION));
  expectMessage(edited("kind=ptx", "kind=elf"), "has kind 'elf'");
  expectMessage(edited("group=4", "group=17"), "'group' is 17");
  expectMessage(edited("group=4\n", ""), "lacks the field 'group'");
  expectMessage(edited("group=4\n", "group=4\ngroup=4\n"), "twice");
  expectMessage(edited("group=4\n", "group=4\nwarps=4\n"),
                "unknown field 'warps'");
  expectMessage(edited("group=4\n", "group\n"), "unknown field 'group'");
  expectMessage(edited("group=4", "group=+4"), "has group '+4'");
  expectMessage(edited("group=4", "group=04"), "has group '04'");
  expectMessage(edited("head_dim=128", "head_dim=100"), "'head_dim' is 100");
  expectMessage(edited("element=f16", "element=f32"), "has element 'f32'");
  expectMessage(edited("threads=256", "threads=250"), "multiple of 32");
  expectMessage(edited("payload=15", "payload=16"), "has payload '16'");
  expectMessage(edited("payload=15", "payload=99999999999999999999"),
                "has payload '9999");
  expectMessage(edited("binary=1", "binary=2"), "has crc32 '");
  expectMessage(edited("shared_bytes=65536", "shared_bytes=65535"),
                "has crc32 '");
}

TEST(Package, WriterRefusesWhatTheReaderWould) {
  Package package = sample();
  std::string bytes;
  package.entry = "two\nlines";
  EXPECT_FALSE(package.serialize(bytes).ok());
  package = sample();
  package.payload.clear();
  EXPECT_FALSE(package.serialize(bytes).ok());
  package = sample();
  package.spec.group = 0;
  EXPECT_FALSE(package.serialize(bytes).ok());
}

/// Every field of a specification comes back, or there is no package: a kernel
/// must not pass for that of another specification.
TEST(Package, NoFieldOfASpecificationIsLost) {
  const ffdSpec before = sample().spec;
  for (size_t field = 0; field < sizeof(ffdSpec) / 4; ++field)
    for (int32_t value : {0, 1, 2, 3, 4, 8, 16, 32, 64, 80, 128, 256}) {
      Package package = sample(), back;
      std::memcpy(reinterpret_cast<char *>(&package.spec) + 4 * field, &value,
                  4);
      std::string bytes;
      if (!package.serialize(bytes).ok())
        continue;
      ASSERT_TRUE(
          Package::parse(bytes.data(), bytes.size(), "test", back).ok());
      EXPECT_TRUE(back.spec == package.spec)
          << "field " << field << " " << value;
      EXPECT_EQ(back.fileName() == sample().fileName(), package.spec == before)
          << "field " << field << " " << value;
    }
  Package package = sample();
  package.spec.no_residuals = 1;
  std::string bytes;
  const Status status = package.serialize(bytes);
  EXPECT_EQ(status.code(), StatusCode::InvalidArgument);
  EXPECT_NE(status.message().find("one with residuals"), std::string::npos)
      << status.message();
}

TEST(Package, Crc32IsZlibs) {
  EXPECT_EQ(crc32("123456789", 9), 0xCBF43926u);
  EXPECT_EQ(crc32("56789", 5, crc32("1234", 4)), 0xCBF43926u);
}

TEST(Package, FilesAreWrittenWholeOrNotAtAll) {
  char folder[] = "/tmp/ffd-package-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/" + sample().fileName();
  Package package;
  EXPECT_EQ(Package::read(path, package).code(), StatusCode::NotFound);
  ASSERT_TRUE(sample().write(path).ok());
  ASSERT_TRUE(sample().write(path).ok()); // replaces
  Status status = Package::read(path, package);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(package.payload, sample().payload);
  EXPECT_FALSE(sample().write(std::string(folder) + "/none/x.ffdk").ok());
  // A pipe that no one writes to is not waited for.
  const std::string pipe = std::string(folder) + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const auto &[special, kind] :
       {std::pair<std::string, std::string>{folder, "folder"},
        {pipe, "pipe"},
        {"/dev/zero", "device"}}) {
    status = Package::read(special, package);
    EXPECT_EQ(status.code(), StatusCode::InvalidArgument);
    EXPECT_EQ(status.message(), "kernel package '" + special + "' is a " +
                                    kind + ", expected a regular file");
  }
  std::remove(pipe.c_str());
  std::remove(path.c_str());
  EXPECT_EQ(rmdir(folder), 0); // nothing temporary stayed
}

} // namespace
