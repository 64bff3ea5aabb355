//===- TextKernel.cpp - Kernels written as text -------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// See TextKernel.h.
//
//===----------------------------------------------------------------------===//

#include "TextKernel.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Parser/Parser.h"

using namespace ffd::emulator;

Report ffd::emulator::run(const std::string &text,
                          llvm::ArrayRef<Argument> arguments,
                          llvm::ArrayRef<Buffer> buffers, LaunchConfig config,
                          Options options) {
  mlir::DialectRegistry registry;
  registry.insert<mlir::LLVM::LLVMDialect, mlir::NVVM::NVVMDialect>();
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module) {
    Report report;
    report.ok = false;
    report.message = "cannot parse";
    return report;
  }
  Report report =
      emulateKernel(*module, "kernel", config, arguments, buffers, options);
  // Locations end with their context.
  report.location.reset();
  report.otherLocation.reset();
  return report;
}

static std::string number(unsigned i) { return std::to_string(i); }

std::string WordKernel::text() const {
  std::string s =
      "llvm.mlir.global internal @shared() {addr_space = 3 : i32, alignment = "
      "128 : i64} : !llvm.array<" +
      number(kSharedWords) + " x i32>\n";
  s += "llvm.func @kernel(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %global: "
       "!llvm.ptr<1>) attributes {nvvm.kernel} {\n"
       "%lane = nvvm.read.ptx.sreg.tid.x : i32\n"
       "%all = llvm.mlir.constant(-1 : i32) : i32\n"
       "%s = llvm.mlir.addressof @shared : !llvm.ptr<3>\n"
       "%sa = llvm.ptrtoint %s : !llvm.ptr<3> to i32\n"
       "%ga = llvm.ptrtoint %global : !llvm.ptr<1> to i64\n";
  s += "%ni = llvm.mlir.constant(" + number(in) + " : i32) : i32\n";
  s += "%no = llvm.mlir.constant(" + number(out) + " : i32) : i32\n";
  s += "%oi = llvm.mul %lane, %ni : i32\n%oo = llvm.mul %lane, %no : i32\n";
  auto element = [&](const std::string &name, const char *base,
                     const char *index, const char *space) {
    s += name + " = llvm.getelementptr " + base + "[" + index +
         "] : (!llvm.ptr<" + space + ">, i32) -> !llvm.ptr<" + space +
         ">, i32\n";
  };
  element("%pi", "%in", "%oi", "1");
  element("%po", "%out", "%oo", "1");
  element("%ps", "%s", "%oi", "3");
  std::string operands, types, constraints, results;
  for (unsigned i = 0; i < in; ++i) {
    const std::string n = number(i);
    s += "%a" + n + " = llvm.getelementptr %pi[" + n +
         "] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32\n%x" + n + " = llvm.load %a" +
         n + " : !llvm.ptr<1> -> i32\n";
    s += "%s" + n + " = llvm.getelementptr %ps[" + n +
         "] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i32\nllvm.store %x" + n + ", %s" +
         n + " : i32, !llvm.ptr<3>\n";
    operands += "%x" + n + ", ";
    types += "i32, ";
  }
  s += "nvvm.bar.warp.sync %all : i32\n";
  for (unsigned i = 0; i < out; ++i) {
    constraints += "=r,";
    results += i ? ", i32" : "i32";
  }
  for (unsigned i = 0; i < in; ++i)
    constraints += "r,";
  std::string record = out == 1   ? "i32"
                       : out == 0 ? "!llvm.void"
                                  : "!llvm.struct<(" + results + ")>";
  s += (out ? "%r = " : "") +
       std::string("llvm.inline_asm has_side_effects \"") + ptx + "\", \"" +
       constraints + "r,l,~{memory}\" " + operands + "%sa, %ga : (" + types +
       "i32, i64) -> " + record + "\n";
  for (unsigned i = 0; i < out; ++i) {
    std::string value = "%r";
    if (out > 1) {
      value = "%y" + number(i);
      s += value + " = llvm.extractvalue %r[" + number(i) + "] : " + record +
           "\n";
    }
    s += "%b" + number(i) + " = llvm.getelementptr %po[" + number(i) +
         "] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32\nllvm.store " + value +
         ", %b" + number(i) + " : i32, !llvm.ptr<1>\n";
  }
  return s + "llvm.return\n}\n";
}

Report ffd::emulator::runWords(const WordKernel &kernel,
                               const std::vector<uint32_t> &words,
                               std::vector<uint32_t> &results,
                               std::vector<uint32_t> &global, uint64_t seed) {
  DeviceMemory input(words.data(), words.size() * 4),
      output(32 * kernel.out * 4), memory(global.data(), global.size() * 4);
  Options options;
  options.seed = seed;
  Report report = run(
      kernel.text(),
      {Argument::of(input.data()), Argument::of(output.data()),
       Argument::of(memory.data())},
      {input.buffer("in", true), output.buffer("out"), memory.buffer("global")},
      {}, options);
  results.assign(output.as<uint32_t>(),
                 output.as<uint32_t>() + 32 * kernel.out);
  if (!global.empty())
    std::memcpy(global.data(), memory.data(), memory.size());
  return report;
}

std::vector<uint32_t>
ffd::emulator::runWords(unsigned out, unsigned in, const std::string &ptx,
                        const std::vector<uint32_t> &words) {
  std::vector<uint32_t> results, global(4);
  Report report = runWords({out, in, ptx}, words, results, global);
  EXPECT_TRUE(report.ok) << report.str();
  return results;
}
