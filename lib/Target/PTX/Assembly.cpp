//===- Assembly.cpp - Control flow of assembly text -----------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two readers and one search for loops. Kernels have a few thousand
// instructions, so the search is the plain one, over single instructions.
//
//===----------------------------------------------------------------------===//

#include "Assembly.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::ffd;

//===--- Loops
//-------------------------------------------------------------===//

SmallVector<unsigned, 2> AssemblyFunction::successors(unsigned index) const {
  SmallVector<unsigned, 2> result;
  const AssemblyInstruction &instruction = code[index];
  if (instruction.falls && index + 1 < code.size())
    result.push_back(index + 1);
  auto label = labels.find(instruction.target);
  if (!instruction.target.empty() && label != labels.end() &&
      label->second < code.size())
    result.push_back(label->second);
  return result;
}

std::vector<AssemblyFunction::Loop> AssemblyFunction::findLoops() const {
  const unsigned n = code.size();
  std::vector<SmallVector<unsigned, 2>> previous(n);
  for (unsigned i = 0; i < n; ++i)
    for (unsigned next : successors(i))
      previous[next].push_back(i);

  // The edges back in a depth-first walk close the loops. Compilers emit
  // reducible code, where this is all that dominators would tell.
  enum { New, Open, Done };
  std::vector<char> state(n, New);
  std::vector<SmallVector<unsigned>> latches(n);
  std::vector<std::pair<unsigned, unsigned>> stack; // instruction, next edge
  if (n)
    stack.push_back({0, 0}), state[0] = Open;
  while (!stack.empty()) {
    auto [at, edge] = stack.back();
    SmallVector<unsigned, 2> nexts = successors(at);
    if (edge == nexts.size()) {
      state[at] = Done;
      stack.pop_back();
      continue;
    }
    ++stack.back().second;
    unsigned next = nexts[edge];
    if (state[next] == Open)
      latches[next].push_back(at);
    else if (state[next] == New)
      stack.push_back({next, 0}), state[next] = Open;
  }

  std::vector<Loop> loops;
  for (unsigned header = 0; header < n; ++header) {
    if (latches[header].empty())
      continue;
    llvm::BitVector inside(n);
    inside.set(header);
    SmallVector<unsigned> work = latches[header];
    while (!work.empty()) {
      unsigned at = work.pop_back_val();
      if (inside.test(at))
        continue;
      inside.set(at);
      for (unsigned from : previous[at])
        if (state[from] != New)
          work.push_back(from);
    }
    loops.emplace_back(inside.set_bits_begin(), inside.set_bits_end());
  }
  return loops;
}

AssemblyFunction::Loop
AssemblyFunction::alwaysExecuted(const Loop &loop) const {
  llvm::BitVector inside(code.size());
  for (unsigned i : loop)
    inside.set(i);
  // The header is where the loop is entered: from outside, or, in a function
  // that is all loop, at its start.
  unsigned header = loop.front();
  for (unsigned i = 0; i < code.size(); ++i)
    if (!inside.test(i))
      for (unsigned next : successors(i))
        if (inside.test(next))
          header = next;
  auto goesRoundWithout = [&](unsigned missing) {
    llvm::BitVector seen(code.size());
    SmallVector<unsigned> work = {header};
    while (!work.empty()) {
      unsigned at = work.pop_back_val();
      if (at == missing || seen.test(at))
        continue;
      seen.set(at);
      for (unsigned next : successors(at)) {
        if (next == header)
          return true;
        if (inside.test(next))
          work.push_back(next);
      }
    }
    return false;
  };
  // All instructions of a straight line have the same answer.
  llvm::BitVector targets(code.size());
  for (unsigned i = 0; i < code.size(); ++i)
    for (unsigned next : successors(i))
      if (next != i + 1)
        targets.set(next);
  Loop result;
  bool always = true;
  for (unsigned i : loop) {
    bool straight = i != loop.front() && inside.test(i - 1) &&
                    code[i - 1].falls && code[i - 1].target.empty() &&
                    !targets.test(i);
    if (!straight)
      always = i == header || !goesRoundWithout(i);
    if (always)
      result.push_back(i);
  }
  return result;
}

//===--- PTX
//---------------------------------------------------------------===//

namespace {
class PTXReader {
public:
  explicit PTXReader(StringRef text) : rest(text) {}
  std::vector<AssemblyFunction> run();

private:
  void skip();
  AssemblyFunction entry();
  /// Of a label in the innermost scope that has it, or might come to have it.
  std::string scoped(StringRef label, unsigned depth) const;

  StringRef rest;
  /// Labels in braces are local to them: a number per open brace.
  SmallVector<unsigned> scopes;
  unsigned scopeCount = 0;
};
} // namespace

void PTXReader::skip() {
  while (true) {
    rest = rest.ltrim();
    if (rest.starts_with("//"))
      rest = rest.drop_until([](char c) { return c == '\n'; });
    else if (rest.starts_with("/*"))
      rest = rest.split("*/").second;
    else
      return;
  }
}

std::string PTXReader::scoped(StringRef label, unsigned depth) const {
  return (label + "@" + Twine(scopes[depth])).str();
}

/// Splits "opcode operands".
static void setOpcode(AssemblyInstruction &result, StringRef text) {
  auto end = text.find_first_of(" \t\n");
  result.opcode = text.take_front(end).str();
  result.operands = text.substr(result.opcode.size()).trim().str();
}

AssemblyFunction PTXReader::entry() {
  AssemblyFunction function;
  skip();
  function.name =
      rest.take_while([](char c) {
            return llvm::isAlnum(c) || c == '_' || c == '$' || c == '%';
          })
          .str();
  rest = rest.drop_until([](char c) { return c == '{'; });
  // Branches to be resolved at the end: instruction, label, open scopes.
  std::vector<std::tuple<unsigned, std::string, SmallVector<unsigned>>> open;
  while (true) {
    skip();
    if (rest.empty())
      break;
    if (rest.consume_front("{")) {
      scopes.push_back(++scopeCount);
      continue;
    }
    if (rest.consume_front("}")) {
      scopes.pop_back();
      if (scopes.empty())
        break;
      continue;
    }
    if (rest.consume_front(";"))
      continue;
    StringRef word = rest.take_while(
        [](char c) { return llvm::isAlnum(c) || c == '_' || c == '$'; });
    StringRef after = rest.drop_front(word.size()).ltrim();
    if (!word.empty() && after.starts_with(":") && !after.starts_with("::")) {
      function.labels[scoped(word, scopes.size() - 1)] = function.code.size();
      rest = after.drop_front();
      continue;
    }
    StringRef statement = rest.take_until([](char c) { return c == ';'; });
    rest = rest.drop_front(statement.size());
    statement = statement.trim();
    if (statement.starts_with("."))
      continue; // a declaration
    AssemblyInstruction instruction;
    bool predicated = statement.consume_front("@");
    if (predicated)
      statement = statement.drop_until(llvm::isSpace).ltrim();
    setOpcode(instruction, statement);
    StringRef name = StringRef(instruction.opcode).split('.').first;
    if (name == "bra")
      open.push_back({function.code.size(), instruction.operands, scopes});
    instruction.falls =
        predicated || (name != "bra" && name != "ret" && name != "exit" &&
                       name != "trap" && name != "brx");
    function.code.push_back(std::move(instruction));
  }
  for (auto &[index, label, within] : open)
    for (unsigned scope : llvm::reverse(within)) {
      std::string name = label + "@" + std::to_string(scope);
      if (function.labels.contains(name)) {
        function.code[index].target = name;
        break;
      }
    }
  return function;
}

std::vector<AssemblyFunction> PTXReader::run() {
  std::vector<AssemblyFunction> functions;
  while (true) {
    size_t at = rest.find(".entry");
    if (at == StringRef::npos)
      return functions;
    rest = rest.drop_front(at + strlen(".entry"));
    functions.push_back(entry());
  }
}

std::vector<AssemblyFunction> mlir::ffd::parsePTX(StringRef text) {
  return PTXReader(text).run();
}

//===--- Machine code
//------------------------------------------------------===//

/// The label that an operand list names, as `(.L_x_1) or as an address.
static std::string targetOf(StringRef operands) {
  if (size_t at = operands.rfind("`("); at != StringRef::npos)
    return operands.substr(at + 2).split(')').first.str();
  if (size_t at = operands.rfind("0x"); at != StringRef::npos)
    return ("/" +
            operands.substr(at + 2).take_while(llvm::isHexDigit).ltrim('0'))
        .str();
  return {};
}

std::vector<AssemblyFunction> mlir::ffd::parseSASS(StringRef text) {
  std::vector<AssemblyFunction> functions;
  // Where threads that wait at a barrier go on.
  llvm::StringMap<std::string> joins;
  for (StringRef line : llvm::split(text, '\n')) {
    line = line.trim();
    StringRef name = line;
    if (name.consume_front(".text.") || name.consume_front("Function : ")) {
      functions.emplace_back();
      functions.back().name = name.rtrim(':').str();
      joins.clear();
      continue;
    }
    if (functions.empty())
      continue;
    AssemblyFunction &function = functions.back();
    if (line.starts_with(".L") && line.ends_with(":")) {
      function.labels[line.drop_back()] = function.code.size();
      continue;
    }
    // /*address*/ @predicate OPCODE operands ; /* encoding */
    if (!line.consume_front("/*"))
      continue;
    auto [address, statement] = line.split("*/");
    if (address.empty() || !llvm::all_of(address, llvm::isHexDigit))
      continue;
    function.labels[("/" + address.ltrim('0')).str()] = function.code.size();
    statement = statement.take_until([](char c) { return c == ';'; }).trim();
    AssemblyInstruction instruction;
    bool predicated = statement.consume_front("@");
    // What never happens only takes its time.
    bool never = predicated && (statement.starts_with("!PT") ||
                                statement.starts_with("!UPT"));
    if (predicated)
      statement = statement.drop_until(llvm::isSpace).ltrim();
    setOpcode(instruction, never ? "NOP" : statement);
    if (instruction.opcode.empty())
      continue;
    StringRef operation = StringRef(instruction.opcode).split('.').first;
    StringRef operands = instruction.operands;
    instruction.falls = true;
    if (operation == "BRA") {
      instruction.target = targetOf(operands);
      // A branch may have its condition among its operands.
      instruction.falls = predicated || operands.contains(',');
    } else if (operation == "BSSY") {
      joins[operands.split(',').first.trim()] = targetOf(operands);
    } else if (operation == "BSYNC") {
      auto join = joins.find(operands.trim());
      if (join != joins.end()) {
        instruction.target = join->second;
        instruction.falls = predicated;
      }
    } else if (operation == "EXIT" || operation == "RET" ||
               operation == "BRX" || operation == "JMX") {
      instruction.falls = predicated;
    }
    function.code.push_back(std::move(instruction));
  }
  return functions;
}
