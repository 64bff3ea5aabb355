//===- Safetensors.cpp - Reading and writing .safetensors files -----------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A file is a little-endian 64-bit header length, a JSON object of that length
// and the bytes of the tensors. The checks here follow the format's definition:
// offsets match shapes, and the tensors cover the bytes without gap or overlap.
//
//===----------------------------------------------------------------------===//

#include "Safetensors.h"

#include "support/Files.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace ffd::safetensors {

/// Bytes before the header: its length.
static constexpr uint64_t kPrefixBytes = 8;
/// The longest header that the format allows.
static constexpr uint64_t kMaxHeaderBytes = 100'000'000;
/// Brackets that a valid header nests: object, tensor, array.
static constexpr size_t kMaxDepth = 3;

namespace {
struct TypeInfo {
  DType type;
  const char *name;
  int64_t bytes;
};
} // namespace

static constexpr TypeInfo kTypes[] = {
    {DType::BOOL, "BOOL", 1},       {DType::U8, "U8", 1},
    {DType::I8, "I8", 1},           {DType::F8_E4M3, "F8_E4M3", 1},
    {DType::F8_E5M2, "F8_E5M2", 1}, {DType::U16, "U16", 2},
    {DType::I16, "I16", 2},         {DType::F16, "F16", 2},
    {DType::BF16, "BF16", 2},       {DType::U32, "U32", 4},
    {DType::I32, "I32", 4},         {DType::F32, "F32", 4},
    {DType::U64, "U64", 8},         {DType::I64, "I64", 8},
    {DType::F64, "F64", 8}};

static const TypeInfo &info(DType type) {
  return *find_if(kTypes, [&](const TypeInfo &t) { return t.type == type; });
}

int64_t sizeOf(DType type) { return info(type).bytes; }
StringRef nameOf(DType type) { return info(type).name; }

template <typename... Ts>
static Error error(const char *format, Ts &&...values) {
  return createStringError(formatv(format, std::forward<Ts>(values)...).str());
}

/// Text of a file as it may appear in a message: short and printable.
static std::string printable(StringRef text) {
  std::string result;
  raw_string_ostream os(result);
  printEscapedString(text.take_front(64), os);
  if (text.size() > 64)
    os << "...";
  return result;
}

int64_t Tensor::elements() const {
  int64_t n = 1;
  for (int64_t dim : shape)
    n *= dim;
  return n;
}

std::string Tensor::describe() const {
  constexpr size_t kShown = 8;
  ArrayRef<int64_t> dims = ArrayRef(shape).take_front(kShown);
  return formatv("{0} [{1:$[, ]}{2}]", nameOf(type),
                 make_range(dims.begin(), dims.end()),
                 shape.size() > kShown ? ", ..." : "")
      .str();
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {
/// What the JSON parser would not say about a text: how deep it nests (the
/// parser recurses, so this is asked first) and the first key that an object
/// holds twice (the parser keeps the last one).
struct TextScan {
  size_t depth = 0;
  std::string duplicate;
  bool hasDuplicate = false;
};
} // namespace

static TextScan scanText(StringRef text) {
  TextScan result;
  SmallVector<StringSet<>, 4> open;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '[') {
      open.emplace_back();
      result.depth = std::max(result.depth, open.size());
      if (result.depth > kMaxDepth)
        return result;
    } else if (text[i] == '}' || text[i] == ']') {
      if (!open.empty())
        open.pop_back();
    } else if (text[i] == '"') {
      size_t begin = i++;
      while (i < text.size() && text[i] != '"')
        i += text[i] == '\\' ? 2 : 1;
      StringRef token = text.slice(begin, i + 1);
      if (!text.substr(i + 1).ltrim(" \t\r\n").starts_with(":"))
        continue;
      // Keys are compared after escapes are resolved, as the parser does.
      std::string key = token.str();
      if (token.contains('\\')) {
        if (Expected<json::Value> value = json::parse(token))
          key = value->getAsString().value_or(token).str();
        else
          consumeError(value.takeError());
      } else {
        key = token.drop_front().drop_back().str();
      }
      if (!open.empty() && !open.back().insert(key).second &&
          !result.hasDuplicate) {
        result.duplicate = key;
        result.hasDuplicate = true;
      }
    }
  }
  return result;
}

/// The header's JSON object, or why there is none.
static Expected<json::Object> parseHeader(StringRef text) {
  if (!text.starts_with("{"))
    return error("the header starts with '{0}' but must be a JSON object",
                 printable(text.take_front(1)));
  TextScan scan = scanText(text);
  if (scan.depth > kMaxDepth)
    return error("the header nests more than {0} brackets", kMaxDepth);
  Expected<json::Value> value = json::parse(text.rtrim(" \t\r\n"));
  if (!value)
    return error("the header is not valid JSON: {0}",
                 toString(value.takeError()));
  if (scan.hasDuplicate)
    return error("the header has the key '{0}' twice in one object",
                 printable(scan.duplicate));
  return std::move(*value->getAsObject());
}

namespace {
/// A tensor's description with its place in the bytes behind the header.
struct Entry {
  Tensor tensor;
  uint64_t begin = 0, end = 0;
};
} // namespace

/// Reads `shape` and returns the tensor's size in bytes.
static Expected<uint64_t> parseShape(const json::Object &fields, Tensor &tensor,
                                     StringRef shown) {
  const json::Array *shape = fields.getArray("shape");
  if (!shape)
    return error("tensor '{0}' has no array 'shape'", shown);
  int64_t bytes = sizeOf(tensor.type);
  for (const json::Value &value : *shape) {
    std::optional<int64_t> dim = value.getAsInteger();
    if (!dim || *dim < 0)
      return error("tensor '{0}' has the dimension {1} in 'shape' but "
                   "dimensions are integers from 0 to 2^63 - 1",
                   shown, printable(formatv("{0}", value).str()));
    if (MulOverflow(bytes, *dim, bytes))
      return error("tensor '{0}' has a 'shape' whose size in bytes exceeds "
                   "2^63 - 1",
                   shown);
    tensor.shape.push_back(*dim);
  }
  return static_cast<uint64_t>(bytes);
}

static Expected<Entry> parseEntry(StringRef name, const json::Value &value,
                                  uint64_t dataBytes) {
  Entry entry;
  entry.tensor.name = name.str();
  std::string shown = printable(name);
  const json::Object *fields = value.getAsObject();
  if (!fields)
    return error("tensor '{0}' is not described by a JSON object", shown);

  std::optional<StringRef> type = fields->getString("dtype");
  if (!type)
    return error("tensor '{0}' has no string 'dtype'", shown);
  const TypeInfo *known =
      find_if(kTypes, [&](const TypeInfo &t) { return *type == t.name; });
  if (known == std::end(kTypes))
    return error("tensor '{0}' has the unknown dtype '{1}'", shown,
                 printable(*type));
  entry.tensor.type = known->type;

  Expected<uint64_t> bytes = parseShape(*fields, entry.tensor, shown);
  if (!bytes)
    return bytes.takeError();

  const json::Array *offsets = fields->getArray("data_offsets");
  std::optional<int64_t> begin, end;
  if (offsets && offsets->size() == 2) {
    begin = (*offsets)[0].getAsInteger();
    end = (*offsets)[1].getAsInteger();
  }
  if (!begin || !end || *begin < 0 || *end < *begin)
    return error("tensor '{0}' needs 'data_offsets' of the form [begin, end] "
                 "with 0 <= begin <= end",
                 shown);
  entry.begin = *begin;
  entry.end = *end;
  if (entry.end > dataBytes)
    return error("tensor '{0}' has data_offsets [{1}, {2}] but the file has "
                 "only {3} bytes of data",
                 shown, entry.begin, entry.end, dataBytes);
  if (entry.end - entry.begin != *bytes)
    return error("tensor '{0}' has {1} bytes by its data_offsets [{2}, {3}] "
                 "but {4} takes {5}",
                 shown, entry.end - entry.begin, entry.begin, entry.end,
                 entry.tensor.describe(), *bytes);
  return entry;
}

/// The tensors have to cover `[0, dataBytes)` exactly, in the order of `begin`.
static Error checkCoverage(ArrayRef<Entry> entries, uint64_t dataBytes) {
  uint64_t covered = 0;
  for (const Entry &entry : entries) {
    if (entry.begin < covered)
      return error(
          "tensor '{0}' starts at data offset {1} and overlaps another "
          "tensor, which ends at {2}",
          printable(entry.tensor.name), entry.begin, covered);
    if (entry.begin > covered)
      return error("data offsets [{0}, {1}] belong to no tensor", covered,
                   entry.begin);
    covered = entry.end;
  }
  if (covered != dataBytes)
    return error("data offsets [{0}, {1}] belong to no tensor", covered,
                 dataBytes);
  return Error::success();
}

Expected<File> File::parse(std::unique_ptr<MemoryBuffer> buffer) {
  StringRef bytes = buffer->getBuffer();
  if (bytes.size() < kPrefixBytes)
    return error("the file has {0} bytes but starts with an {1}-byte header "
                 "length",
                 bytes.size(), kPrefixBytes);
  uint64_t headerBytes = support::endian::read64le(bytes.data());
  if (headerBytes > bytes.size() - kPrefixBytes)
    return error("the header length is {0} but only {1} bytes follow it",
                 headerBytes, bytes.size() - kPrefixBytes);
  if (headerBytes > kMaxHeaderBytes)
    return error("the header length is {0} but the format allows {1}",
                 headerBytes, kMaxHeaderBytes);
  Expected<json::Object> header =
      parseHeader(bytes.substr(kPrefixBytes, headerBytes));
  if (!header)
    return header.takeError();
  StringRef data = bytes.substr(kPrefixBytes + headerBytes);

  std::vector<Entry> entries;
  for (auto &[key, value] : *header) {
    if (StringRef(key) == "__metadata__")
      continue;
    Expected<Entry> entry = parseEntry(key, value, data.size());
    if (!entry)
      return entry.takeError();
    entries.push_back(std::move(*entry));
  }
  sort(entries, [](const Entry &a, const Entry &b) {
    return std::tie(a.begin, a.end, a.tensor.name) <
           std::tie(b.begin, b.end, b.tensor.name);
  });
  if (Error e = checkCoverage(entries, data.size()))
    return std::move(e);

  File file;
  for (Entry &entry : entries) {
    StringRef piece = data.slice(entry.begin, entry.end);
    entry.tensor.data = arrayRefFromStringRef(piece);
    file.indices[entry.tensor.name] = file.allTensors.size();
    file.allTensors.push_back(std::move(entry.tensor));
  }
  file.buffer = std::move(buffer);
  return file;
}

Expected<File> File::open(StringRef path) {
  if (Error e = tools::expectRegularFile(path))
    return std::move(e);
  ErrorOr<std::unique_ptr<MemoryBuffer>> buffer = MemoryBuffer::getFile(
      path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer)
    return error("'{0}': {1}", path, buffer.getError().message());
  Expected<File> file = parse(std::move(*buffer));
  if (!file)
    return error("'{0}': {1}", path, toString(file.takeError()));
  return file;
}

const Tensor *File::find(StringRef name) const {
  auto it = indices.find(name);
  return it == indices.end() ? nullptr : &allTensors[it->second];
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// Writes the pieces to an open file and says whether that succeeded.
static std::error_code writePieces(int fd, ArrayRef<ArrayRef<uint8_t>> pieces) {
  raw_fd_ostream os(fd, /*shouldClose=*/false);
  for (ArrayRef<uint8_t> piece : pieces)
    os << toStringRef(piece);
  os.flush();
  std::error_code ec = os.error();
  os.clear_error();
  return ec;
}

/// The file behind a symbolic link, so that a rename replaces that one.
static StringRef resolveLink(StringRef path, SmallVectorImpl<char> &storage) {
  bool link = false;
  if (sys::fs::is_symlink_file(path, link) || !link ||
      sys::fs::real_path(path, storage))
    return path;
  return StringRef(storage.data(), storage.size());
}

Error writeFile(StringRef path, ArrayRef<ArrayRef<uint8_t>> pieces) {
  SmallString<128> storage;
  StringRef target = resolveLink(path, storage);
  auto failed = [&](std::error_code ec) {
    return error("cannot write '{0}': {1}", path, ec.message());
  };
  sys::fs::file_status status;
  if (!sys::fs::status(target, status) && sys::fs::exists(status) &&
      !sys::fs::is_regular_file(status)) {
    int fd = -1;
    if (std::error_code ec = sys::fs::openFileForWrite(
            target, fd, sys::fs::CD_OpenExisting, sys::fs::OF_None))
      return failed(ec);
    std::error_code ec = writePieces(fd, pieces);
    sys::fs::file_t file = sys::fs::convertFDToNativeFile(fd);
    sys::fs::closeFile(file);
    return ec ? failed(ec) : Error::success();
  }
  // A rename would replace a file that its owner has made read-only.
  if (sys::fs::exists(status))
    if (std::error_code ec =
            sys::fs::access(target, sys::fs::AccessMode::Write))
      return failed(ec);

  Expected<sys::fs::TempFile> temp =
      sys::fs::TempFile::create(target + ".%%%%%%.tmp");
  if (!temp)
    return failed(errorToErrorCode(temp.takeError()));
  if (std::error_code ec = writePieces(temp->FD, pieces)) {
    consumeError(temp->discard());
    return failed(ec);
  }
  if (Error e = temp->keep(target))
    return failed(errorToErrorCode(std::move(e)));
  return Error::success();
}

Error checkWritable(StringRef path) {
  SmallString<128> storage;
  StringRef target = resolveLink(path, storage);
  sys::fs::file_status status;
  std::error_code ec;
  if (!sys::fs::status(target, status) && sys::fs::exists(status)) {
    ec = sys::fs::is_directory(status)
             ? std::make_error_code(std::errc::is_a_directory)
             : sys::fs::access(target, sys::fs::AccessMode::Write);
    if (ec)
      return error("cannot write '{0}': {1}", path, ec.message());
    if (!sys::fs::is_regular_file(status))
      return Error::success();
  }
  Expected<sys::fs::TempFile> temp =
      sys::fs::TempFile::create(target + ".%%%%%%.tmp");
  if (!temp)
    return error("cannot write '{0}': {1}", path,
                 errorToErrorCode(temp.takeError()).message());
  return temp->discard();
}

Error write(StringRef path, ArrayRef<Tensor> tensors) {
  // Wide elements first: with a padded header every tensor is then aligned.
  SmallVector<const Tensor *> order;
  for (int64_t bytes : {8, 4, 2, 1})
    for (const Tensor &tensor : tensors)
      if (sizeOf(tensor.type) == bytes)
        order.push_back(&tensor);

  std::string header;
  raw_string_ostream text(header);
  json::OStream json(text);
  uint64_t offset = 0;
  json.object([&] {
    for (const Tensor *tensor : order)
      json.attributeObject(tensor->name, [&] {
        json.attribute("dtype", nameOf(tensor->type));
        json.attributeArray("shape", [&] {
          for (int64_t dim : tensor->shape)
            json.value(dim);
        });
        json.attributeArray("data_offsets", [&] {
          json.value(static_cast<int64_t>(offset));
          offset += tensor->data.size();
          json.value(static_cast<int64_t>(offset));
        });
      });
  });
  header.append(alignTo(header.size(), 8) - header.size(), ' ');

  uint8_t prefix[kPrefixBytes];
  support::endian::write64le(prefix, header.size());
  SmallVector<ArrayRef<uint8_t>> pieces = {prefix,
                                           arrayRefFromStringRef(header)};
  for (const Tensor *tensor : order)
    pieces.push_back(tensor->data);
  return writeFile(path, pieces);
}

} // namespace ffd::safetensors
