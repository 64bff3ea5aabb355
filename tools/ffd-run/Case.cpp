//===- Case.cpp - The tensors of one decode -------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Names, shapes and types first, for all cases of a file, so that a bad layer
// is an error before the first one runs; elements later, layer by layer.
//
//===----------------------------------------------------------------------===//

#include "Case.h"
#include "support/Errors.h"

#include "ffd/Float16.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"

#include <algorithm>
#include <limits>
#include <set>

using namespace llvm;
using namespace ffd::tools;
using ffd::safetensors::DType;
using ffd::safetensors::Tensor;

namespace ffd::run {

int64_t CaseShape::visibleTokens(int64_t s) const {
  if (kvBatch == batch)
    return lengths[s];
  return *std::max_element(lengths.begin(), lengths.end());
}

int64_t CaseShape::visibleBytes() const {
  int64_t visible = 0;
  for (int64_t s = 0; s < kvBatch; ++s)
    visible += visibleTokens(s);
  return visible * kvHeads * (headDim + valueDim) * 2;
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

static bool isRole(StringRef name) {
  return name == "q" || name == "k" || name == "v" || name == "lengths";
}

/// The layer of `layers.<i>.q` and its like.
static std::optional<int64_t> layerOf(StringRef name) {
  if (!name.consume_front("layers."))
    return std::nullopt;
  auto [digits, role] = name.split('.');
  int64_t layer = 0;
  bool canonical = digits == "0" || (!digits.empty() && digits[0] != '0');
  if (!canonical || !all_of(digits, isDigit) ||
      digits.getAsInteger(10, layer) || !isRole(role))
    return std::nullopt;
  return layer;
}

//===----------------------------------------------------------------------===//
// Shapes and types
//===----------------------------------------------------------------------===//

namespace {
/// Finds and checks the tensors of one case.
class ShapeReader {
public:
  ShapeReader(const safetensors::File &file, CaseShape &shape)
      : file(file), shape(shape) {}

  Error read(std::optional<int32_t> element) {
    if (Error e = find())
      return e;
    if (Error e = readShapes())
      return e;
    if (Error e = checkLimits())
      return e;
    if (Error e = chooseElement(element))
      return e;
    return readLengths();
  }

private:
  std::string name(StringRef role) const { return shape.prefix + role.str(); }

  Error find() {
    for (auto [role, tensor, rank, dims] :
         {std::tuple("q", &q, 3, "[B, Hq, D], or 4 [B, n, Hq, D]"),
          std::tuple("k", &k, 4, "[B or 1, T, Hkv, D]"),
          std::tuple("v", &v, 4, "[B or 1, T, Hkv, Dv]")}) {
      *tensor = file.find(name(role));
      if (!*tensor)
        return error("tensor '{0}' is missing, expected '{1}q', '{1}k' and "
                     "'{1}v'",
                     name(role), shape.prefix);
      DType type = (*tensor)->type;
      if (type != DType::F16 && type != DType::BF16 && type != DType::F32)
        return error("tensor '{0}' is {1}, expected dtype F16, BF16 or F32",
                     name(role), (*tensor)->describe());
      bool severalTokens = tensor == &q && (*tensor)->rank() == 4;
      if ((*tensor)->rank() != rank && !severalTokens)
        return error("tensor '{0}' is {1}, expected {2} dimensions {3}",
                     name(role), (*tensor)->describe(), rank, dims);
    }
    return Error::success();
  }

  Error expectDim(const Tensor &tensor, int dim, StringRef what,
                  int64_t expected) {
    if (tensor.shape[dim] == expected)
      return Error::success();
    return error("tensor '{0}' is {1}, expected {2} in dimension {3}: {4}",
                 tensor.name, tensor.describe(), expected, dim, what);
  }

  Error readShapes() {
    shape.batch = q->shape[0];
    bool severalTokens = q->rank() == 4;
    shape.queryTokens = severalTokens ? q->shape[1] : 1;
    shape.queryHeads = q->shape[1 + severalTokens];
    shape.headDim = q->shape[2 + severalTokens];
    shape.kvBatch = k->shape[0];
    shape.tokens = k->shape[1];
    shape.kvHeads = k->shape[2];
    shape.valueDim = v->shape[3];
    for (auto [value, tensor, what] : {std::tuple(shape.batch, q, "sequences"),
                                       std::tuple(shape.queryHeads, q, "heads"),
                                       std::tuple(shape.kvHeads, k, "heads")})
      if (value < 1 || value > std::numeric_limits<int32_t>::max())
        return error("tensor '{0}' has {1} {2}, expected 1 to 2147483647",
                     tensor->name, value, what);
    if (shape.kvBatch != shape.batch && shape.kvBatch != 1)
      return error("tensor '{0}' is {1}, expected {2}1 in dimension 0: the "
                   "sequences of '{3}', or one for all",
                   k->name, k->describe(),
                   shape.batch == 1 ? "" : std::to_string(shape.batch) + " or ",
                   q->name);
    if (Error e = expectDim(*k, 3, "the head dimension of '" + q->name + "'",
                            shape.headDim))
      return e;
    for (auto [dim, what, expected] :
         {std::tuple(0, "sequences", shape.kvBatch),
          std::tuple(1, "tokens", shape.tokens),
          std::tuple(2, "heads", shape.kvHeads)})
      if (Error e = expectDim(*v, dim,
                              formatv("the {0} of '{1}'", what, k->name).str(),
                              expected))
        return e;
    return Error::success();
  }

  /// The limits of a kernel specialisation, see abi.h.
  Error checkLimits() {
    if (shape.queryHeads % shape.kvHeads)
      return error("tensor '{0}' has {1} heads, expected a multiple of the {2} "
                   "heads of '{3}'",
                   q->name, shape.queryHeads, shape.kvHeads, k->name);
    if (shape.group() > 16)
      return error("tensor '{0}' has {1} heads for each of the {2} heads of "
                   "'{3}', expected a group of at most 16",
                   q->name, shape.group(), shape.kvHeads, k->name);
    if (shape.queryTokens < 1 || shape.queryTokens > 8)
      return error("tensor '{0}' has {1} tokens for each sequence, expected 1 "
                   "to 8",
                   q->name, shape.queryTokens);
    if (shape.group() * shape.queryTokens > 16)
      return error("tensor '{0}' has {1} tokens of {2} heads for each head of "
                   "'{3}', expected a product of at most 16",
                   q->name, shape.queryTokens, shape.group(), k->name);
    if (!is_contained({64, 80, 96, 128, 192, 256}, shape.headDim))
      return error("tensor '{0}' has the head dimension {1}, expected 64, 80, "
                   "96, 128, 192 or 256",
                   q->name, shape.headDim);
    if (shape.valueDim < 16 || shape.valueDim > 256 || shape.valueDim % 16)
      return error("tensor '{0}' has the head dimension {1}, expected a "
                   "multiple of 16 from 16 to 256",
                   v->name, shape.valueDim);
    if (shape.tokens > std::numeric_limits<int32_t>::max())
      return error("tensor '{0}' has {1} tokens, expected at most 2147483647",
                   k->name, shape.tokens);
    return Error::success();
  }

  /// The one 16-bit type among q, k and v; F16 if all are F32.
  Error chooseElement(std::optional<int32_t> element) {
    if (element) {
      shape.element = *element;
      return Error::success();
    }
    const Tensor *first = nullptr;
    for (const Tensor *tensor : {k, v, q}) {
      if (tensor->type == DType::F32)
        continue;
      if (first && first->type != tensor->type)
        return error("tensor '{0}' is {1} but '{2}' is {3}, expected the same "
                     "dtype or the option --element",
                     tensor->name, tensor->describe(), first->name,
                     first->describe());
      first = first ? first : tensor;
    }
    shape.element = first && first->type == DType::BF16 ? FFD_BF16 : FFD_F16;
    return Error::success();
  }

  Error readLengths() {
    const Tensor *lengths = file.find(name("lengths"));
    if (!lengths) {
      shape.lengths.assign(shape.batch, shape.tokens);
      return Error::success();
    }
    if (lengths->type != DType::I32 && lengths->type != DType::I64)
      return error("tensor '{0}' is {1}, expected dtype I32 or I64",
                   lengths->name, lengths->describe());
    if (lengths->rank() != 1 || lengths->shape[0] != shape.batch)
      return error("tensor '{0}' is {1}, expected the shape [{2}]: one length "
                   "per sequence of '{3}'",
                   lengths->name, lengths->describe(), shape.batch, q->name);
    for (int64_t i = 0; i < shape.batch; ++i) {
      const uint8_t *data = lengths->data.data() + i * sizeOf(lengths->type);
      int64_t length =
          lengths->type == DType::I64
              ? static_cast<int64_t>(support::endian::read64le(data))
              : static_cast<int32_t>(support::endian::read32le(data));
      if (length < 0 || length > shape.tokens)
        return error("tensor '{0}' holds {1} at [{2}], expected 0 to {3}, the "
                     "tokens of '{4}'",
                     lengths->name, length, i, shape.tokens, k->name);
      shape.lengths.push_back(length);
    }
    return Error::success();
  }

  const safetensors::File &file;
  CaseShape &shape;
  const Tensor *q = nullptr, *k = nullptr, *v = nullptr;
};
} // namespace

Expected<CaseFile> CaseFile::open(StringRef path,
                                  std::optional<int32_t> element) {
  Expected<safetensors::File> opened = safetensors::File::open(path);
  if (!opened)
    return opened.takeError();
  CaseFile result(std::move(*opened));

  std::set<int64_t> layers;
  const Tensor *plain = nullptr, *layered = nullptr;
  for (const Tensor &tensor : result.file.tensors()) {
    if (isRole(tensor.name)) {
      plain = &tensor;
    } else if (std::optional<int64_t> layer = layerOf(tensor.name)) {
      layered = &tensor;
      layers.insert(*layer);
    } else {
      result.ignoredNames.push_back(tensor.name);
    }
  }
  if (plain && layered)
    return error("'{0}': tensor '{1}' is of a single case and '{2}' of a "
                 "trace, expected one of the two",
                 path, plain->name, layered->name);
  if (!plain && !layered)
    return error("'{0}': tensor 'q' is missing, expected 'q', 'k' and 'v', or "
                 "'layers.<i>.q' and so on",
                 path);

  if (plain)
    result.caseShapes.emplace_back();
  for (int64_t layer : layers) {
    CaseShape &shape = result.caseShapes.emplace_back();
    shape.layer = layer;
    shape.prefix = formatv("layers.{0}.", layer).str();
  }
  for (CaseShape &shape : result.caseShapes)
    if (Error e = ShapeReader(result.file, shape).read(element))
      return error("'{0}': {1}", path, toString(std::move(e)));
  return result;
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

/// Converts `count` elements that start at byte `from`, rounding to nearest.
static void convert(const Tensor &tensor, int64_t first, int64_t count,
                    int32_t element, uint16_t *to) {
  const uint8_t *from = tensor.data.data() + first * sizeOf(tensor.type);
  DType same = element == FFD_F16 ? DType::F16 : DType::BF16;
  if (tensor.type == same && sys::IsLittleEndianHost) {
    if (count)
      std::memcpy(to, from, count * 2);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    float value =
        tensor.type == DType::F32
            ? floatFromBits(support::endian::read32le(from + i * 4))
            : elementToF32(tensor.type == DType::F16 ? FFD_F16 : FFD_BF16,
                           support::endian::read16le(from + i * 2));
    to[i] = f32ToElement(element, value);
  }
}

Expected<Case> CaseFile::load(size_t index, ThreadPool &pool) const {
  Case result;
  const CaseShape &shape = result.shape = caseShapes[index];
  for (auto [role, buffer] :
       {std::pair("q", &result.q), std::pair("k", &result.k),
        std::pair("v", &result.v)}) {
    const Tensor &tensor = *file.find(shape.prefix + role);
    // 0xFFFF is a NaN in both element types.
    if (Error e = toError(
            buffer->allocate(role, tensor.elements() * 2, /*fill=*/0xFF)))
      return std::move(e);
    if (role[0] == 'q') {
      convert(tensor, 0, tensor.elements(), shape.element,
              buffer->as<uint16_t>());
      continue;
    }
    int64_t row = tensor.shape[2] * tensor.shape[3];
    constexpr int64_t kTokensPerTask = 256;
    for (int64_t s = 0; s < shape.kvBatch; ++s) {
      int64_t visible = shape.visibleTokens(s), start = s * shape.tokens;
      uint16_t *to = buffer->as<uint16_t>();
      pool.parallelFor(divideCeil(visible, kTokensPerTask), [&](int64_t task) {
        int64_t token = task * kTokensPerTask;
        int64_t count = std::min(kTokensPerTask, visible - token);
        int64_t first = (start + token) * row;
        convert(tensor, first, count * row, shape.element, to + first);
      });
    }
  }
  return result;
}

} // namespace ffd::run
