//===- ParsePtx.cpp - Inline assembly -------------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A parser for the statements that compilers put into inline assembly: labels,
// register declarations, predicated instructions with registers, immediates,
// addresses and vectors as operands.
//
//===----------------------------------------------------------------------===//

#include "Instruction.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/bit.h"

using namespace ffd::emulator;
using llvm::StringRef;

namespace {
class Parser {
public:
  Parser(StringRef text, unsigned count, GpuOp &op, std::string &error)
      : rest(text), op(op), error(error) {
    op.registers = count;
  }
  bool run();

private:
  bool fail(const llvm::Twine &message) {
    error = message.str();
    return false;
  }
  void skip();
  bool eat(char c) {
    skip();
    return rest.consume_front(StringRef(&c, 1));
  }
  StringRef word();
  bool statement();
  bool declaration();
  bool instruction();
  bool operand(Operand &result);
  bool address(Operand &result);
  int registerNamed(StringRef name) {
    auto it = names.find(name);
    return it == names.end() ? -1 : int(it->second);
  }

  StringRef rest;
  GpuOp &op;
  std::string &error;
  bool doubles = false; ///< of the instruction being parsed
  llvm::StringMap<unsigned> names;
  llvm::StringMap<int> labels;
  llvm::SmallVector<std::pair<size_t, std::string>> branches;
};
} // namespace

void Parser::skip() {
  while (true) {
    rest = rest.ltrim();
    if (rest.starts_with("//"))
      rest = rest.drop_until([](char c) { return c == '\n'; });
    else if (rest.starts_with("/*"))
      rest = rest.substr(std::min(rest.find("*/"), rest.size() - 2) + 2);
    else
      return;
  }
}

static bool isWord(char c) {
  return llvm::isAlnum(c) || c == '_' || c == '.' || c == '%';
}

StringRef Parser::word() {
  skip();
  size_t n = 0;
  while (n < rest.size() &&
         (isWord(rest[n]) || rest.substr(n).starts_with("::"))) {
    n += rest[n] == ':' ? 2 : 1;
  }
  StringRef result = rest.take_front(n);
  rest = rest.drop_front(n);
  return result;
}

bool Parser::run() {
  while (true) {
    skip();
    if (rest.empty())
      break;
    if (eat('{') || eat('}') || eat(';'))
      continue;
    if (!statement())
      return false;
  }
  for (auto &[index, label] : branches) {
    auto it = labels.find(label);
    if (it == labels.end())
      return fail("unknown label '" + label + "'");
    op.program[index].target = it->second;
  }
  return true;
}

bool Parser::statement() {
  if (rest.starts_with(".reg"))
    return declaration();
  // A label: a word and a single colon.
  StringRef saved = rest;
  StringRef name = word();
  if (!name.empty() && !name.contains('.') && eat(':')) {
    labels[name] = int(op.program.size());
    return true;
  }
  rest = saved;
  return instruction();
}

bool Parser::declaration() {
  word(); // .reg
  word(); // the type
  do {
    StringRef name = word();
    if (name.empty())
      return fail("expected a register name");
    names[name] = op.registers++;
  } while (eat(','));
  return eat(';') || fail("expected ';' after .reg");
}

bool Parser::instruction() {
  Instruction result;
  StringRef begin = rest;
  if (eat('@')) {
    result.predicateNegated = eat('!');
    Operand predicate;
    if (!operand(predicate) || predicate.kind != Operand::Register)
      return fail("expected a predicate register");
    result.predicate = predicate.reg;
  }
  StringRef name = word();
  if (name.empty())
    return fail("cannot parse '" + begin.take_front(40) + "'");
  llvm::SmallVector<StringRef> parts;
  name.split(parts, '.', -1, /*KeepEmpty=*/false);
  for (StringRef part : parts)
    result.parts.push_back(part.str());
  doubles = name.ends_with(".f64");
  if (result.part(0) == "bra") {
    StringRef label = word();
    branches.push_back({op.program.size(), label.str()});
  } else {
    skip();
    while (!rest.empty() && !rest.starts_with(";") && !rest.starts_with("}")) {
      Operand next;
      if (!operand(next))
        return false;
      result.operands.push_back(std::move(next));
      if (eat('|'))
        continue; // a second destination, as in d|p
      if (!eat(','))
        break;
    }
  }
  skip();
  result.text = begin.drop_back(rest.size()).rtrim().str();
  if (!eat(';') && !rest.empty() && !rest.starts_with("}"))
    return fail("expected ';' after '" + result.text + "'");
  op.program.push_back(std::move(result));
  return true;
}

bool Parser::address(Operand &result) {
  // Already past '['.
  Operand base;
  if (!operand(base))
    return false;
  result.kind = Operand::Memory;
  if (base.kind == Operand::Register)
    result.reg = base.reg;
  else if (base.kind == Operand::Immediate)
    result.imm = base.imm;
  else
    return fail("cannot parse an address");
  if (eat('+')) {
    Operand offset;
    if (!operand(offset) ||
        (offset.kind != Operand::Immediate && offset.kind != Operand::Register))
      return fail("cannot parse an address");
    if (offset.kind == Operand::Immediate)
      result.imm += offset.imm;
    else
      result.parts.push_back(offset); // a constant operand: "n"
  }
  return eat(']') || fail("expected ']'");
}

bool Parser::operand(Operand &result) {
  skip();
  if (eat('['))
    return address(result);
  if (eat('{')) {
    result.kind = Operand::Vector;
    do {
      Operand part;
      if (!operand(part))
        return false;
      result.parts.push_back(std::move(part));
    } while (eat(','));
    return eat('}') || fail("expected '}'");
  }
  if (eat('!')) {
    if (!operand(result))
      return false;
    result.negated = !result.negated;
    return true;
  }
  if (eat('$')) {
    bool braces = eat('{');
    StringRef digits = rest.take_while(llvm::isDigit);
    rest = rest.drop_front(digits.size());
    if (braces) {
      rest = rest.drop_until([](char c) { return c == '}'; });
      eat('}');
    }
    unsigned index;
    if (digits.getAsInteger(10, index))
      return fail("cannot parse an operand");
    result = Operand::ofRegister(int(index));
    return true;
  }
  bool minus = eat('-');
  StringRef name = word();
  if (name.empty())
    return fail("cannot parse an operand at '" + rest.take_front(20) + "'");
  if (name == "_")
    return true;
  uint64_t bits;
  if ((name.starts_with("0f") || name.starts_with("0F")) && name.size() == 10 &&
      !name.drop_front(2).getAsInteger(16, bits)) {
    result = Operand::ofImmediate(int64_t(bits));
    return true;
  }
  if ((name.starts_with("0d") || name.starts_with("0D")) && name.size() == 18 &&
      !name.drop_front(2).getAsInteger(16, bits)) {
    result = Operand::ofImmediate(int64_t(bits));
    return true;
  }
  double real;
  if (llvm::isDigit(name.front()) && name.contains('.') &&
      !name.getAsDouble(real)) {
    real = minus ? -real : real;
    result = Operand::ofImmediate(
        int64_t(doubles ? llvm::bit_cast<uint64_t>(real)
                        : llvm::bit_cast<uint32_t>(float(real))));
    return true;
  }
  int64_t number;
  if (llvm::isDigit(name.front())) {
    name.consume_back("U");
    if (name.getAsInteger(0, number) && name.getAsInteger(0, bits))
      return fail("cannot parse the number '" + name + "'");
    if (name.getAsInteger(0, number))
      number = int64_t(bits);
    result = Operand::ofImmediate(minus ? -number : number);
    return true;
  }
  if (int reg = registerNamed(name); reg >= 0) {
    result = Operand::ofRegister(reg);
    return true;
  }
  if (name.starts_with("%")) {
    result.kind = Operand::Special;
    result.name = name.drop_front().str();
    return true;
  }
  return fail("unknown register '" + name + "'");
}

bool ffd::emulator::parsePtx(StringRef text, unsigned count, GpuOp &op,
                             std::string &error) {
  // Unique suffixes of labels say nothing within one operation.
  std::string plain;
  while (!text.empty()) {
    if (text.consume_front("${:uid}"))
      continue;
    if (text.consume_front("$$")) {
      plain += '$';
      continue;
    }
    plain += text.front();
    text = text.drop_front();
  }
  if (!Parser(plain, count, op, error).run())
    return false;
  // All that are unknown, not only the first.
  error.clear();
  for (Instruction &instruction : op.program)
    if (!resolve(instruction))
      error += (error.empty() ? "unknown GPU operation '" : ", '") +
               instruction.text + "'";
  return error.empty();
}
