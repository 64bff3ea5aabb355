//===- Package.cpp - The kernel package file ---------------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One table of fields serves the writer and the reader, so that they cannot
// disagree. The reader believes nothing: every key exactly once, every number
// in its range, the payload exactly as long as stated, its checksum right.
//
//===----------------------------------------------------------------------===//

#include "ffd/Package.h"

#include "Files.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

using namespace ffd;

namespace {

constexpr char kMagic[] = "FFDK1\n";
/// The header of any package fits; a foreign file is not searched further.
constexpr size_t kMaxHeader = 4096;

constexpr PackageKind kKinds[] = {PackageKind::Ptx, PackageKind::Cubin,
                                  PackageKind::CpuObject};

/// The keys, in the order in which they are written.
enum Key {
  Abi,
  Kind,
  ProgramKey,
  Target,
  Entry,
  HeadDim,
  ValueDim,
  Group,
  Element,
  ScanBits,
  QuantBlock,
  SelectBlock,
  QueryTokens,
  Centre,
  PseudoMax,
  CertificateKey,
  Threads,
  SharedBytes,
  CtasPerSm,
  Crc,
  Payload,
  KeyCount
};
constexpr const char *kKeys[KeyCount] = {
    "abi",         "kind",         "program",      "target",      "entry",
    "head_dim",    "value_dim",    "group",        "element",     "scan_bits",
    "quant_block", "select_block", "query_tokens", "centre",      "pseudo_max",
    "certificate", "threads",      "shared_bytes", "ctas_per_sm", "crc32",
    "payload"};
/// By ffdPseudoMax.
constexpr const char *kPseudoMaxima[] = {"scan", "refined"};

std::string hex32(uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

/// Names of targets and symbols: no character that a header line, a file name
/// or a symbol table could stumble over.
bool isName(const std::string &text) {
  if (text.empty() || text.size() > 256)
    return false;
  for (char c : text)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
          (c >= '0' && c <= '9') || c == '_' || c == ':' || c == '.' ||
          c == '$' || c == '-' || c == '+'))
      return false;
  return text[0] != '.';
}

/// Decimal digits without sign, leading zeros or anything else.
bool parseNumber(const std::string &text, int64_t limit, int64_t &value) {
  if (text.empty() || text.size() > 18 || (text.size() > 1 && text[0] == '0'))
    return false;
  value = 0;
  for (char c : text) {
    if (c < '0' || c > '9')
      return false;
    value = value * 10 + (c - '0');
  }
  return value <= limit;
}

/// The header lines; the checksum's as given.
std::string headerText(const std::string (&text)[KeyCount]) {
  std::string header = kMagic;
  for (int key = 0; key < KeyCount; ++key)
    header += std::string(kKeys[key]) + "=" + text[key] + "\n";
  return header + "\n";
}

/// The checksum covers the header too, in the order in which it is written and
/// with an empty checksum, and then the payload.
uint32_t headerChecksum(const std::string (&text)[KeyCount]) {
  std::string blank[KeyCount];
  std::copy(text, text + KeyCount, blank);
  blank[Crc].clear();
  const std::string header = headerText(blank);
  return crc32(header.data(), header.size());
}

/// Parses one file and remembers its name for messages.
class Reader {
public:
  Reader(const std::string &name, Package &package)
      : name(name), package(package) {}

  Status parse(const char *bytes, size_t size) {
    const size_t magic = sizeof kMagic - 1;
    if (size < magic || std::memcmp(bytes, kMagic, magic) != 0)
      return corrupt("does not begin with the line FFDK1, expected a kernel "
                     "package of FFD");
    size_t at = magic;
    while (true) {
      const size_t window = std::min(size, kMaxHeader);
      const char *end = at < window ? static_cast<const char *>(std::memchr(
                                          bytes + at, '\n', window - at))
                                    : nullptr;
      if (!end)
        return corrupt("ends inside its header, expected an empty line after "
                       "the fields");
      const std::string line(bytes + at, end);
      at = size_t(end - bytes) + 1;
      if (line.empty())
        break;
      FFD_RETURN_IF_ERROR(takeLine(line));
    }
    for (int key = 0; key < KeyCount; ++key)
      if (!seen[key])
        return corrupt(std::string("lacks the field '") + kKeys[key] + "'");
    FFD_RETURN_IF_ERROR(readFields());
    return takePayload(bytes + at, size - at);
  }

private:
  Status corrupt(const std::string &text) const {
    return Status(StatusCode::Corrupt, "kernel package '" + name + "' " + text);
  }
  Status badField(int key, const std::string &expected) const {
    return corrupt(std::string("has ") + kKeys[key] + " '" + text[key] +
                   "', expected " + expected);
  }

  Status takeLine(const std::string &line) {
    const size_t equals = line.find('=');
    const std::string key = line.substr(0, equals);
    for (int i = 0; i < KeyCount; ++i) {
      if (key != kKeys[i] || equals == std::string::npos)
        continue;
      if (seen[i])
        return corrupt("has the field '" + key + "' twice, expected once");
      seen[i] = true;
      text[i] = line.substr(equals + 1);
      return Status::success();
    }
    return corrupt("has the unknown field '" + printable(key) + "'");
  }

  static std::string printable(std::string key) {
    if (key.size() > 40)
      key.resize(40);
    for (char &c : key)
      if (c < ' ' || c > '~')
        c = '?';
    return key;
  }

  Status readNumber(int key, int64_t limit, int32_t &value) const {
    int64_t number;
    if (!parseNumber(text[key], limit, number))
      return badField(key, "a number from 0 to " + std::to_string(limit));
    value = int32_t(number);
    return Status::success();
  }

  Status readFields() {
    FFD_RETURN_IF_ERROR(readNumber(Abi, INT32_MAX, package.abi));
    if (package.abi != FFD_ABI_VERSION)
      return Status(StatusCode::Unsupported,
                    "kernel package '" + name + "' has abi " + text[Abi] +
                        ", expected " + std::to_string(FFD_ABI_VERSION));
    bool known = false;
    for (PackageKind kind : kKinds)
      if (text[Kind] == packageKindName(kind)) {
        package.kind = kind;
        known = true;
      }
    if (!known)
      return badField(Kind, "ptx, cubin or cpu-object");
    known = false;
    for (Program program :
         {Program::Decode, Program::Exact, Program::Append, Program::Plan})
      if (text[ProgramKey] == programName(program)) {
        package.program = program;
        known = true;
      }
    if (!known)
      return badField(ProgramKey, "decode, exact, append or plan");
    if (!isName(text[Target]))
      return badField(Target, "the name of a target");
    if (!isName(text[Entry]))
      return badField(Entry, "the name of a symbol");
    package.target = text[Target];
    package.entry = text[Entry];
    if (text[Element] != "f16" && text[Element] != "bf16")
      return badField(Element, "f16 or bf16");
    ffdSpec &spec = package.spec;
    spec.element = text[Element] == "f16" ? FFD_F16 : FFD_BF16;
    FFD_RETURN_IF_ERROR(readNumber(HeadDim, 65536, spec.head_dim));
    FFD_RETURN_IF_ERROR(readNumber(ValueDim, 65536, spec.value_dim));
    FFD_RETURN_IF_ERROR(readNumber(Group, 65536, spec.group));
    FFD_RETURN_IF_ERROR(readNumber(ScanBits, 65536, spec.scan_bits));
    FFD_RETURN_IF_ERROR(readNumber(QuantBlock, 65536, spec.quant_block));
    FFD_RETURN_IF_ERROR(readNumber(SelectBlock, 65536, spec.select_block));
    FFD_RETURN_IF_ERROR(readNumber(QueryTokens, 65536, spec.query_tokens));
    if (text[Centre] != "none" && text[Centre] != "row")
      return badField(Centre, "none or row");
    spec.centre = text[Centre] == "row" ? FFD_CENTRE_ROW : FFD_CENTRE_NONE;
    if (text[PseudoMax] != kPseudoMaxima[0] &&
        text[PseudoMax] != kPseudoMaxima[1])
      return badField(PseudoMax, "scan or refined");
    spec.pseudo_max = text[PseudoMax] == kPseudoMaxima[FFD_PSEUDO_MAX_REFINED];
    bool estimates = false;
    for (int16_t certificate :
         {FFD_CERTIFICATE_NONE, FFD_CERTIFICATE_PLAIN, FFD_CERTIFICATE_NOISE})
      if (text[CertificateKey] == certificateName(certificate)) {
        spec.certificate = certificate;
        estimates = true;
      }
    if (!estimates)
      return badField(CertificateKey, "none, plain or noise");
    Status valid = checkSpec(spec);
    if (!valid.ok())
      return corrupt("is invalid: " + valid.message());
    FFD_RETURN_IF_ERROR(readNumber(Threads, 1024, package.threads));
    FFD_RETURN_IF_ERROR(readNumber(SharedBytes, 1 << 20, package.sharedBytes));
    FFD_RETURN_IF_ERROR(readNumber(CtasPerSm, 64, package.ctasPerSm));
    if (package.kind != PackageKind::CpuObject && package.threads % 32 != 0)
      return badField(Threads, "a multiple of 32");
    if (package.kind != PackageKind::CpuObject && package.threads == 0)
      return badField(Threads, "at least 32 for a GPU kernel");
    return Status::success();
  }

  Status takePayload(const char *bytes, size_t size) {
    int64_t stated;
    if (!parseNumber(text[Payload], kMaxFile, stated) || stated == 0)
      return badField(Payload, "a number of bytes from 1 to " +
                                   std::to_string(kMaxFile));
    if (uint64_t(stated) != size)
      return badField(Payload, "the " + std::to_string(size) +
                                   " bytes that follow the header");
    const std::string actual = hex32(crc32(bytes, size, headerChecksum(text)));
    if (text[Crc] != actual)
      return badField(Crc, actual + " as computed from the file");
    package.payload.assign(bytes, size);
    return Status::success();
  }

  const std::string &name;
  Package &package;
  bool seen[KeyCount] = {};
  std::string text[KeyCount];
};

} // namespace

const char *ffd::packageKindName(PackageKind kind) {
  switch (kind) {
  case PackageKind::Ptx:
    return "ptx";
  case PackageKind::Cubin:
    return "cubin";
  case PackageKind::CpuObject:
    return "cpu-object";
  }
  return "unknown";
}

uint32_t ffd::crc32(const void *bytes, size_t size, uint32_t before) {
  struct Table {
    uint32_t entry[256];
    Table() {
      for (uint32_t i = 0; i < 256; ++i) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit)
          value = value >> 1 ^ (value & 1 ? 0xEDB88320 : 0);
        entry[i] = value;
      }
    }
  };
  static const Table table;
  uint32_t crc = ~before;
  for (size_t i = 0; i < size; ++i)
    crc = crc >> 8 ^
          table.entry[(crc ^ static_cast<const uint8_t *>(bytes)[i]) & 0xFF];
  return ~crc;
}

std::string Package::fileName(Program program, const ffdSpec &spec,
                              const std::string &target) {
  std::string suffix = target;
  for (char &c : suffix)
    if (c == ':')
      c = '-';
  return std::string(programName(program)) + "-" + specName(spec) + "." +
         suffix + ".ffdk";
}

std::string Package::fileName() const {
  return fileName(program, spec, target);
}

Status Package::serialize(std::string &bytes) const {
  std::string text[KeyCount];
  text[Abi] = std::to_string(abi);
  text[Kind] = packageKindName(kind);
  text[ProgramKey] = programName(program);
  text[Target] = target;
  text[Entry] = entry;
  text[HeadDim] = std::to_string(spec.head_dim);
  text[ValueDim] = std::to_string(spec.value_dim);
  text[Group] = std::to_string(spec.group);
  text[Element] = elementName(spec.element);
  text[ScanBits] = std::to_string(spec.scan_bits);
  text[QuantBlock] = std::to_string(spec.quant_block);
  text[SelectBlock] = std::to_string(spec.select_block);
  text[QueryTokens] = std::to_string(queryTokens(spec));
  text[Centre] = centreName(spec.centre);
  text[PseudoMax] = kPseudoMaxima[spec.pseudo_max == FFD_PSEUDO_MAX_REFINED];
  text[CertificateKey] = certificateName(spec.certificate);
  text[Threads] = std::to_string(threads);
  text[SharedBytes] = std::to_string(sharedBytes);
  text[CtasPerSm] = std::to_string(ctasPerSm);
  text[Payload] = std::to_string(payload.size());
  text[Crc] =
      hex32(crc32(payload.data(), payload.size(), headerChecksum(text)));
  std::string result = headerText(text) + payload;
  // Whatever is wrong with a field, the reader has the words for it.
  Package check;
  FFD_RETURN_IF_ERROR(parse(result.data(), result.size(), fileName(), check));
  // A field that the header has no line for would come back as its default.
  if (check.spec != spec)
    return Status::invalid("kernel package '" + fileName() +
                           "' would read back as '" + check.fileName() +
                           "', expected a specification that packages hold: "
                           "one with residuals");
  bytes = std::move(result);
  return Status::success();
}

Status Package::parse(const void *bytes, size_t size, const std::string &name,
                      Package &package) {
  Package result;
  FFD_RETURN_IF_ERROR(
      Reader(name, result).parse(static_cast<const char *>(bytes), size));
  package = std::move(result);
  return Status::success();
}

Status Package::write(const std::string &path) const {
  std::string bytes;
  FFD_RETURN_IF_ERROR(serialize(bytes));
  return writeWholeFile(path, "kernel package", bytes);
}

Status Package::read(const std::string &path, Package &package) {
  std::string bytes;
  FFD_RETURN_IF_ERROR(readWholeFile(path, "kernel package", bytes));
  return parse(bytes.data(), bytes.size(), path, package);
}
