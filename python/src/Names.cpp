//===- Names.cpp - Names of the C interface in Python ---------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Names.h"

#include <cctype>
#include <string_view>

namespace ffd::python {

namespace {
struct Name {
  std::string_view inC, inPython;
};
} // namespace

/// Fields, of any struct, that Python calls otherwise.
static constexpr Name kFields[] = {
    {"count", "argument 'sequences'"},
    {"device", "argument 'target'"},
    {"device_offsets", "argument 'offsets'"},
    {"device_sequences", "argument 'sequences'"},
    {"element", "argument 'dtype'"},
    {"group", "heads / kv_heads"},
    {"k_head_stride", "the stride of heads of argument 'k'"},
    {"k_token_stride", "the stride of tokens of argument 'k'"},
    {"no_residuals", "residual_bits == 0"},
    {"ordinal", "the number in argument 'target'"},
    {"q_batch_stride", "the stride of sequences of argument 'q'"},
    {"q_head_stride", "the stride of heads of argument 'q'"},
    {"sequences", "argument 'max_sequences'"},
    {"v_head_stride", "the stride of heads of argument 'v'"},
    {"v_token_stride", "the stride of tokens of argument 'v'"},
};

/// Functions whose methods are named otherwise than what follows "ffd" and
/// "ffdSequence", in lower case with underscores.
static constexpr Name kFunctions[] = {
    {"ffdStatisticsFetch", "statistics"},
    {"ffdStatisticsRequest", "request_statistics"},
    {"ffdSequenceLoadFile", "load"},
    {"ffdSequenceSaveFile", "save"},
};

static std::string fieldName(std::string_view field) {
  for (const Name &name : kFields)
    if (name.inC == field)
      return std::string(name.inPython);
  return "argument '" + std::string(field) + "'";
}

static std::string functionName(std::string_view function) {
  for (const Name &name : kFunctions)
    if (name.inC == function)
      return std::string(name.inPython);
  for (std::string_view prefix : {"ffdSequence", "ffd"})
    if (function.substr(0, prefix.size()) == prefix) {
      function.remove_prefix(prefix.size());
      break;
    }
  std::string result;
  for (char c : function) {
    if (std::isupper(static_cast<unsigned char>(c)) && !result.empty())
      result += '_';
    result += char(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

static bool isWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

/// The word at the start of a text.
static std::string_view wordOf(std::string_view text) {
  size_t size = 0;
  while (size < text.size() && isWord(text[size]))
    ++size;
  return text.substr(0, size);
}

/// Takes a text from the front of another.
static bool consume(std::string_view &text, std::string_view start) {
  if (text.substr(0, start.size()) != start)
    return false;
  text.remove_prefix(start.size());
  return true;
}

/// Takes "'ffdSpec' field 'group'", and gives "group".
static std::string_view takeField(std::string_view &text) {
  std::string_view rest = text;
  if (!consume(rest, "'ffd"))
    return {};
  rest.remove_prefix(wordOf(rest).size());
  if (!consume(rest, "' field '"))
    return {};
  std::string_view field = wordOf(rest);
  // With an index.
  if (rest.size() > field.size() && rest[field.size()] == '[')
    field = rest.substr(0, rest.find(']') + 1);
  rest.remove_prefix(field.size());
  if (field.empty() || !consume(rest, "'"))
    return {};
  text = rest;
  return field;
}

std::string withPythonNames(const std::string &message) {
  std::string result;
  for (std::string_view rest = message; !rest.empty();) {
    if (const std::string_view field = takeField(rest); !field.empty()) {
      result += fieldName(field);
      continue;
    }
    const std::string_view word = wordOf(rest);
    const bool function = word.size() > 3 && word.substr(0, 3) == "ffd" &&
                          std::isupper(static_cast<unsigned char>(word[3]));
    // In a path, or quoted, it is something else.
    const char before = result.empty() ? ' ' : result.back();
    const char after = word.size() < rest.size() ? rest[word.size()] : ' ';
    if (function && (before == ' ' || before == '(') && after != '.' &&
        after != '/')
      result += functionName(word);
    else
      result += word.empty() ? rest.substr(0, 1) : word;
    rest.remove_prefix(word.empty() ? 1 : word.size());
  }
  return result;
}

} // namespace ffd::python
