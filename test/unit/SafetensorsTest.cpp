//===- SafetensorsTest.cpp - Reading and writing .safetensors files -------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every way in which a header can lie is an error that names it, and what the
// writer writes the reader reads back.
//
//===----------------------------------------------------------------------===//

#include "Safetensors.h"

#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "gtest/gtest.h"

using namespace ffd::safetensors;
using namespace llvm;

namespace {

/// A file with this header and `dataBytes` bytes 0, 1, 2 ...
std::string fileOf(StringRef header, size_t dataBytes) {
  char prefix[8];
  support::endian::write64le(prefix, header.size());
  std::string bytes = std::string(prefix, 8) + header.str();
  for (size_t i = 0; i < dataBytes; ++i)
    bytes.push_back(static_cast<char>(i));
  return bytes;
}

Expected<File> parse(StringRef bytes) {
  return File::parse(MemoryBuffer::getMemBufferCopy(bytes));
}

/// The message of the error that parsing these bytes gives.
std::string messageOf(StringRef bytes) {
  Expected<File> file = parse(bytes);
  return file ? "no error" : toString(file.takeError());
}

/// One tensor "x" with these fields.
std::string oneTensor(StringRef fields, size_t dataBytes) {
  return fileOf("{\"x\":{" + fields.str() + "}}", dataBytes);
}

void expectError(StringRef bytes, StringRef part) {
  std::string message = messageOf(bytes);
  EXPECT_TRUE(StringRef(message).contains(part)) << message;
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  Expected<File> file = parse(
      fileOf(R"({"__metadata__":{"a":"b"},)"
             R"("b":{"dtype":"I32","shape":[1],"data_offsets":[6,10]},)"
             R"("a":{"dtype":"F16","shape":[3,1],"data_offsets":[0,6]}}   )",
             10));
  ASSERT_TRUE(bool(file)) << toString(file.takeError());
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "a");
  EXPECT_EQ(file->tensors()[0].describe(), "F16 [3, 1]");
  const Tensor *b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->type, DType::I32);
  EXPECT_EQ(support::endian::read32le(b->data.data()), 0x09080706u);
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST(Safetensors, AcceptsEmptyFilesScalarsAndEmptyTensors) {
  EXPECT_EQ(messageOf(fileOf("{}", 0)), "no error");
  EXPECT_EQ(messageOf(oneTensor(
                R"("dtype":"U8","shape":[],"data_offsets":[0,1])", 1)),
            "no error");
  EXPECT_EQ(messageOf(oneTensor(
                R"("dtype":"F32","shape":[4,0],"data_offsets":[0,0])", 0)),
            "no error");
}

TEST(Safetensors, RejectsTruncatedFiles) {
  expectError("", "the file has 0 bytes");
  expectError("1234567", "the file has 7 bytes");
  std::string whole =
      oneTensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])", 16);
  for (size_t n = 0; n < whole.size(); ++n)
    EXPECT_NE(messageOf(StringRef(whole).take_front(n)), "no error") << n;
  EXPECT_EQ(messageOf(whole), "no error");
}

TEST(Safetensors, RejectsHeaderLengthsBeyondTheFile) {
  expectError(std::string(8, '\xff') + "{}",
              "the header length is 18446744073709551615 but only 2 bytes");
}

TEST(Safetensors, RejectsBadJson) {
  expectError(fileOf("", 0), "must be a JSON object");
  expectError(fileOf("[1]", 0), "must be a JSON object");
  expectError(fileOf("{\"x\":", 0), "not valid JSON");
  expectError(fileOf("{} {}", 0), "not valid JSON");
  expectError(fileOf("{\"\xff\":1}", 0), "not valid JSON");
  expectError(fileOf("{\"x\":" + std::string(1000000, '['), 0),
              "nests more than 3 brackets");
  expectError(fileOf("{\"x", 0), "not valid JSON");
  expectError(fileOf("{\"x\\", 0), "not valid JSON");
}

TEST(Safetensors, RejectsDuplicateNames) {
  StringRef tensor = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  expectError(fileOf(("{\"x\":" + tensor + ",\"x\":" + tensor + "}").str(), 0),
              "the key 'x' twice");
  expectError(
      fileOf(("{\"x\":" + tensor + ",\"\\u0078\" :" + tensor + "}").str(), 0),
      "the key 'x' twice");
  expectError(
      oneTensor(R"("dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0])",
                0),
      "the key 'dtype' twice");
}

TEST(Safetensors, RejectsBadFields) {
  expectError(fileOf(R"({"x":1})", 0), "not described by a JSON object");
  expectError(oneTensor(R"("shape":[1],"data_offsets":[0,1])", 1),
              "no string 'dtype'");
  expectError(oneTensor(R"("dtype":"F17","shape":[1],"data_offsets":[0,1])", 1),
              "unknown dtype 'F17'");
  expectError(oneTensor(R"("dtype":"U8","data_offsets":[0,1])", 1),
              "no array 'shape'");
  expectError(oneTensor(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])", 1),
              "the dimension -1");
  expectError(
      oneTensor(R"("dtype":"U8","shape":[1.5],"data_offsets":[0,1])", 1),
      "the dimension 1.5");
  expectError(
      oneTensor(
          R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1])",
          1),
      "the dimension 18446744073709551615");
  for (StringRef offsets : {"[0]", "[0,1,2]", "[1,0]", "[-1,0]", "[\"0\",1]",
                            "[0,18446744073709551615]", "7"})
    expectError(
        oneTensor(
            (R"("dtype":"U8","shape":[1],"data_offsets":)" + offsets).str(), 1),
        "needs 'data_offsets' of the form");
}

TEST(Safetensors, RejectsShapesThatOverflow) {
  expectError(
      oneTensor(
          R"("dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0])",
          0),
      "exceeds 2^63 - 1");
}

TEST(Safetensors, RejectsOffsetsThatDoNotFit) {
  expectError(oneTensor(R"("dtype":"U8","shape":[2],"data_offsets":[0,2])", 1),
              "the file has only 1 bytes of data");
  expectError(oneTensor(R"("dtype":"F16","shape":[2],"data_offsets":[0,3])", 3),
              "F16 [2] takes 4");
}

TEST(Safetensors, RejectsOverlapsAndGaps) {
  auto two = [](StringRef a, StringRef b, size_t bytes) {
    return fileOf((R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
                   R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b +
                   "}}")
                      .str(),
                  bytes);
  };
  EXPECT_EQ(messageOf(two("[2,4]", "[0,2]", 4)), "no error");
  expectError(two("[0,2]", "[1,3]", 3), "overlaps another tensor");
  expectError(two("[0,2]", "[0,2]", 2), "overlaps another tensor");
  expectError(two("[0,2]", "[3,5]", 5), "[2, 3] belong to no tensor");
  expectError(two("[0,2]", "[2,4]", 5), "[4, 5] belong to no tensor");
}

TEST(Safetensors, WritesWhatItReads) {
  SmallString<128> path;
  ASSERT_FALSE(sys::fs::createTemporaryFile("ffd", "safetensors", path));
  std::vector<uint8_t> bytes = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<Tensor> tensors(3);
  tensors[0] = {"kept", DType::U8, {3}, ArrayRef(bytes).take_front(3)};
  tensors[1] = {"layers.0.o", DType::F32, {1, 2}, bytes};
  tensors[2] = {"empty", DType::F32, {0, 2}, {}};
  ASSERT_FALSE(bool(write(path, tensors)));
  {
    Expected<File> file = File::open(path);
    ASSERT_TRUE(bool(file)) << toString(file.takeError());
    ASSERT_EQ(file->tensors().size(), 3u);
    for (const Tensor &tensor : tensors) {
      const Tensor *read = file->find(tensor.name);
      ASSERT_NE(read, nullptr) << tensor.name;
      EXPECT_EQ(read->describe(), tensor.describe());
      EXPECT_EQ(read->data, tensor.data);
    }
  }
  sys::fs::remove(path);
}

TEST(Safetensors, ReportsUnreadableAndUnwritablePaths) {
  Expected<File> file = File::open("/nonexistent/x.safetensors");
  EXPECT_FALSE(bool(file));
  consumeError(file.takeError());
  for (StringRef path : {"/nonexistent/x.safetensors", "/", "/dev/full"}) {
    Error e = write(path, {});
    EXPECT_TRUE(bool(e)) << path.str();
    consumeError(std::move(e));
  }
}

} // namespace
