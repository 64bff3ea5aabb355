//===- Intrinsics.cpp - llvm.nvvm intrinsics as PTX -----------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rewrites an NVVM intrinsic, by its name, as the PTX instruction it stands
// for, so that there is one description of what instructions do.
//
//===----------------------------------------------------------------------===//

#include "Instruction.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace ffd::emulator;
using llvm::StringRef;

namespace {
/// Builds the text of one instruction.
class Text {
public:
  Text(const llvm::Twine &name) : text(name.str()) {}
  Text &reg(unsigned i) { return add("$" + llvm::utostr(i)); }
  Text &address(unsigned i) { return add("[$" + llvm::utostr(i) + "]"); }
  Text &number(int64_t n) { return add(llvm::itostr(n)); }
  Text &vector(unsigned first, unsigned n) {
    std::string list = "{";
    for (unsigned i = 0; i < n; ++i)
      list += (i ? ", $" : "$") + llvm::utostr(first + i);
    return add(list + "}");
  }
  std::string str() const { return text + ";"; }

private:
  Text &add(std::string operand) {
    text += (any ? ", " : " ") + operand;
    any = true;
    return *this;
  }
  std::string text;
  bool any = false;
};
} // namespace

static bool mmaOf(StringRef name, unsigned results, unsigned operands,
                  std::string &ptx) {
  llvm::SmallVector<StringRef> parts;
  name.split(parts, '.');
  // mma, shape, row, col, {satfinite}, types
  if (parts.size() < 5)
    return false;
  std::string head =
      ("mma.sync.aligned." + parts[1] + "." + parts[2] + "." + parts[3]).str();
  auto types = llvm::ArrayRef(parts).drop_front(4);
  if (types.front() == "satfinite") {
    head += ".satfinite";
    types = types.drop_front();
  }
  std::string all;
  StringRef a = types.front(), b = types.back();
  unsigned perWord;
  if (a == "u8" || a == "s8") {
    all = (".s32." + a + "." + b + ".s32").str();
    perWord = 4;
  } else if (types.size() == 1 && (a == "bf16" || a == "tf32")) {
    all = (".f32." + a + "." + a + ".f32").str();
    perWord = a == "tf32" ? 1 : 2;
  } else if (types.size() == 2 && (a == "f32" || a == "f16") && a == b) {
    all = ("." + a + ".f16.f16." + b).str();
    perWord = 2;
  } else {
    return false;
  }
  unsigned k;
  if (!parts[1].consume_front("m16n8k") || parts[1].getAsInteger(10, k))
    return false;
  unsigned wordsB = k / (4 * perWord), wordsA = 2 * wordsB;
  if (operands != wordsA + wordsB + results)
    return false;
  ptx = Text(head + all)
            .vector(0, results)
            .vector(results, wordsA)
            .vector(results + wordsA, wordsB)
            .vector(results + wordsA + wordsB, results)
            .str();
  return true;
}

/// Instructions of a warp. Intrinsics have the mask first.
static bool warpOf(StringRef name, unsigned results, unsigned r,
                   std::string &ptx) {
  if (name.consume_front("shfl.sync.")) {
    Text text("shfl.sync." + name.split('.').first + ".b32");
    text.reg(0);
    if (results == 2)
      text.reg(1);
    ptx = text.reg(r + 1).reg(r + 2).reg(r + 3).reg(r).str();
    return true;
  }
  if (name.consume_front("vote.")) {
    auto [mode, rest] = name.split('.');
    if (rest != "sync")
      return false;
    ptx = Text("vote.sync." + mode + (mode == "ballot" ? ".b32" : ".pred"))
              .reg(0)
              .reg(r + 1)
              .reg(r)
              .str();
    return true;
  }
  if (name.consume_front("match.")) {
    Text text("match." + name.split('.').first + ".sync" +
              (name.contains("i64") ? ".b64" : ".b32"));
    text.reg(0);
    if (results == 2)
      text.reg(1);
    ptx = text.reg(r + 1).reg(r).str();
    return true;
  }
  if (name.consume_front("redux.sync.")) {
    auto [op, rest] = name.split('.');
    std::string full;
    if (op.consume_front("f"))
      full = (op + (rest.contains("abs") ? ".abs" : "") +
              (rest.contains("NaN") ? ".NaN" : "") + ".f32")
                 .str();
    else if (op == "umin" || op == "umax")
      full = (op.drop_front() + ".u32").str();
    else
      full = (op + (op == "and" || op == "or" || op == "xor" ? ".b32" : ".s32"))
                 .str();
    ptx = Text("redux.sync." + full).reg(0).reg(r).reg(r + 1).str();
    return true;
  }
  if (name == "bar.warp.sync") {
    ptx = Text(name).reg(r).str();
    return true;
  }
  if (name == "elect.sync") {
    ptx = Text("elect.sync").reg(0).reg(1).reg(r).str();
    return true;
  }
  if (name == "activemask") {
    ptx = Text("activemask.b32").reg(0).str();
    return true;
  }
  if (name.starts_with("ldmatrix.sync.aligned.m8n8.x")) {
    ptx = Text(name.substr(0, name.find(".p")))
              .vector(0, results)
              .address(r)
              .str();
    return true;
  }
  return false;
}

static bool barrierOf(StringRef name, unsigned results, unsigned operands,
                      std::string &ptx) {
  unsigned r = results;
  if (name.consume_front("barrier.cta.")) {
    std::string head = name.starts_with("sync")       ? "bar.sync"
                       : name.starts_with("arrive")   ? "bar.arrive"
                       : name.starts_with("red.and")  ? "bar.red.and.pred"
                       : name.starts_with("red.or")   ? "bar.red.or.pred"
                       : name.starts_with("red.popc") ? "bar.red.popc.u32"
                                                      : "";
    if (head.empty())
      return false;
    Text text(head);
    for (unsigned i = 0; i < results + operands; ++i)
      text.reg(i);
    ptx = text.str();
    return true;
  }
  if (!name.consume_front("mbarrier."))
    return false;
  bool relaxed = name.contains("relaxed");
  std::string suffix = relaxed ? ".relaxed.shared.b64" : ".shared.b64";
  auto unary = [&](const char *head) {
    Text text(head + suffix);
    if (results)
      text.reg(0);
    text.address(r);
    for (unsigned i = 1; i < operands; ++i)
      text.reg(r + i);
    ptx = text.str();
    return true;
  };
  if (name.contains("drop") || name.contains("noComplete") ||
      name.contains("scope.cluster.space.cluster"))
    return false;
  if (name.starts_with("init"))
    return unary("mbarrier.init");
  if (name.starts_with("inval"))
    return unary("mbarrier.inval");
  if (name.starts_with("arrive.expect.tx"))
    return unary("mbarrier.arrive.expect_tx");
  if (name.starts_with("arrive"))
    return unary("mbarrier.arrive");
  if (name.starts_with("expect.tx"))
    return unary("mbarrier.expect_tx");
  if (name.starts_with("test.wait.parity"))
    return unary("mbarrier.test_wait.parity");
  if (name.starts_with("test.wait"))
    return unary("mbarrier.test_wait");
  if (name.starts_with("try.wait.parity"))
    return unary("mbarrier.try_wait.parity");
  if (name.starts_with("try.wait"))
    return unary("mbarrier.try_wait");
  return false;
}

static bool copyOf(StringRef name, unsigned operands, std::string &ptx) {
  if (name.starts_with("cp.async.bulk.global.to.shared")) {
    // (target, mbarrier, source, size, ..)
    ptx = Text("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes")
              .address(0)
              .address(2)
              .reg(3)
              .address(1)
              .str();
    return true;
  }
  if (name == "cp.async.bulk.prefetch.L2") {
    ptx = Text("cp.async.bulk.prefetch.L2.global").address(0).reg(1).str();
    return true;
  }
  if (name == "cp.async.bulk.shared.cta.to.global") {
    ptx = Text("cp.async.bulk.global.shared::cta.bulk_group")
              .address(0)
              .address(1)
              .reg(2)
              .str();
    return true;
  }
  if (name.starts_with("cp.async.ca.") || name.starts_with("cp.async.cg.")) {
    StringRef bytes = name;
    bytes.consume_back(".s");
    int64_t n;
    if (bytes.rsplit('.').second.getAsInteger(10, n))
      return false;
    Text text(name.substr(0, 11) + ".shared.global");
    text.address(0).address(1).number(n);
    if (operands == 3)
      text.reg(2);
    ptx = text.str();
    return true;
  }
  StringRef plain =
      llvm::StringSwitch<StringRef>(name)
          .Case("cp.async.commit.group", "cp.async.commit_group")
          .Case("cp.async.wait.group", "cp.async.wait_group")
          .Case("cp.async.wait.all", "cp.async.wait_all")
          .Case("cp.async.bulk.commit.group", "cp.async.bulk.commit_group")
          .Case("cp.async.bulk.wait.group", "cp.async.bulk.wait_group")
          .Case("cp.async.bulk.wait.group.read",
                "cp.async.bulk.wait_group.read")
          .Default("");
  if (plain.empty())
    return false;
  Text text(plain);
  if (operands)
    text.reg(0);
  ptx = text.str();
  return true;
}

/// Plain instructions: the name of the intrinsic, nearly, and operands in
/// order.
static bool plainOf(StringRef name, unsigned results, unsigned operands,
                    std::string &ptx) {
  std::string head;
  auto typed = [&](StringRef stem) {
    // f, ftz.f, f16x2, ..
    StringRef rest = name.drop_front(stem.size());
    auto [before, type] = rest.rsplit('.');
    if (type.empty()) {
      type = before;
      before = "";
    }
    StringRef ptxType = llvm::StringSwitch<StringRef>(type)
                            .Cases({"f", "f32"}, "f32")
                            .Cases({"d", "f64"}, "f64")
                            .Case("v2f16", "f16x2")
                            .Default(type);
    std::string middle = before.str();
    for (size_t at; (at = middle.find("nan")) != std::string::npos;)
      middle.replace(at, 3, "NaN");
    return (middle.empty() || middle[0] == '.' ? middle : "." + middle) + "." +
           ptxType.str();
  };
  for (StringRef op : {"fma", "add", "mul"})
    if (name.starts_with((op + ".r").str()))
      head = op.str() + typed(op);
  for (StringRef op : {"fmax", "fmin"})
    if (name.starts_with((op + ".").str()) && !name.contains("xorsign"))
      head = op.drop_front().str() + typed(op);
  for (StringRef op : {"ex2.approx", "lg2.approx", "rcp.approx", "rcp.rn",
                       "rsqrt.approx", "sqrt.approx", "sqrt.rn"})
    if (name.starts_with(op))
      head = op.str() + typed(op);
  if (name == "sqrt.f")
    head = "sqrt.rn.f32";
  if (name == "prmt")
    head = "prmt.b32";
  else if (name.starts_with("prmt."))
    head = "prmt.b32" + name.drop_front(4).str();
  if (name.starts_with("idp4a."))
    head = std::string("dp4a") + (name[6] == 's' ? ".s32" : ".u32") +
           (name[8] == 's' ? ".s32" : ".u32");
  if (name.starts_with("ff2f16x2.rn"))
    head = "cvt" + name.drop_front(8).str() + ".f16x2.f32";
  if (name.starts_with("ff2bf16x2.rn"))
    head = "cvt" + name.drop_front(9).str() + ".bf16x2.f32";
  if (name.starts_with("f2bf16.rn"))
    head = "cvt" + name.drop_front(6).str() + ".bf16.f32";
  if (name.starts_with("f2h.rn"))
    head = "cvt" + name.drop_front(3).str() + ".f16.f32";
  if (name.starts_with("membar.") || name.starts_with("fence.proxy.async") ||
      name.starts_with("fence.mbarrier_init") ||
      name.starts_with("fence.sc.") || name.starts_with("griddepcontrol.") ||
      name == "nanosleep") {
    ptx = Text(name).str();
    return !name.contains("async_generic");
  }
  if (name.starts_with("prefetch") || name.starts_with("applypriority")) {
    ptx = "prefetch;";
    return true;
  }
  if (head.empty())
    return false;
  Text text(head);
  for (unsigned i = 0; i < results + operands; ++i)
    text.reg(i);
  // Modes of prmt with one source leave the second one out.
  if (head.size() > 8 && StringRef(head).starts_with("prmt.b32.") &&
      operands == 2)
    text = Text(head).reg(0).reg(1).number(0).reg(2);
  ptx = text.str();
  return true;
}

bool ffd::emulator::ptxOfIntrinsic(StringRef name, unsigned results,
                                   unsigned operands, std::string &ptx) {
  if (name.starts_with("mma."))
    return mmaOf(name, results, operands, ptx);
  if (name.starts_with("stmatrix.sync.aligned.m8n8.x")) {
    ptx = Text(name.substr(0, name.find(".p")))
              .address(0)
              .vector(1, operands - 1)
              .str();
    return true;
  }
  if (name.consume_front("read.ptx.sreg.")) {
    std::string plain = name.str();
    if (!name.starts_with("tid") && !name.starts_with("ntid") &&
        !name.starts_with("ctaid") && !name.starts_with("nctaid"))
      std::replace(plain.begin(), plain.end(), '.', '_');
    ptx = "mov.b64 $0, %" + plain + ";";
    return true;
  }
  return warpOf(name, results, results, ptx) ||
         barrierOf(name, results, operands, ptx) ||
         copyOf(name, operands, ptx) || plainOf(name, results, operands, ptx);
}
