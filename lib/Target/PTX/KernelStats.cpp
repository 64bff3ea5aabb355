//===- KernelStats.cpp - What a compiled GPU kernel costs -----------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which instructions are of which kind, which loop is the scan, and how many
// CTAs fit a multiprocessor (by the rules of NVIDIA's occupancy calculator).
//
//===----------------------------------------------------------------------===//

#include "ffd/Target/KernelStats.h"

#include "Assembly.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace mlir::ffd;
using Kind = InstructionKind;

//===--- Kinds
//-------------------------------------------------------------===//

static Kind sharedLoadOf(int64_t bytes) {
  return bytes >= 16  ? Kind::SharedLoad16
         : bytes >= 8 ? Kind::SharedLoad8
                      : Kind::SharedLoad4;
}

static Kind kindOfPTX(const AssemblyInstruction &instruction) {
  StringRef opcode = instruction.opcode;
  SmallVector<StringRef> parts;
  opcode.split(parts, '.');
  StringRef name = parts[0];
  auto has = [&](StringRef part) {
    return llvm::any_of(parts, [&](StringRef p) {
      return p == part || (p.starts_with(part) && p[part.size()] == ':');
    });
  };
  if (name == "mma" || name == "wgmma")
    return Kind::Mma;
  if (name == "ldmatrix")
    return sharedLoadOf(has("x4") ? 16 : has("x2") ? 8 : 4);
  if (opcode.starts_with("cp.async.wait") ||
      opcode.starts_with("cp.async.commit") ||
      opcode.starts_with("cp.async.bulk.wait") ||
      opcode.starts_with("cp.async.bulk.commit"))
    return Kind::Control;
  if (name == "cp")
    return Kind::Copy;
  if (has("local"))
    return Kind::Local;
  if (name == "ld" || name == "st" || name == "atom" || name == "red" ||
      name == "ldu") {
    if (has("param") || has("const"))
      return Kind::Move;
    if (!has("shared"))
      return name == "ld" || name == "ldu" ? Kind::GlobalLoad
                                           : Kind::GlobalStore;
    if (name != "ld")
      return Kind::SharedStore;
    int64_t bytes = has("v4") ? 4 : has("v2") ? 2 : 1, bits = 32;
    parts.back().drop_front().getAsInteger(10, bits);
    return sharedLoadOf(bytes * bits / 8);
  }
  Kind number = Kind::Integer;
  for (StringRef type : {"f16", "f16x2", "bf16", "bf16x2", "f32", "f64"})
    if (has(type))
      number = Kind::Float;
  return llvm::StringSwitch<Kind>(name)
      .Cases({"bra", "brx", "ret", "exit", "trap", "call", "bar", "barrier",
              "mbarrier", "fence", "membar", "nanosleep", "griddepcontrol"},
             Kind::Control)
      .Cases({"shfl", "vote", "redux", "match", "activemask", "movmatrix",
              "elect"},
             Kind::Exchange)
      .Cases({"mov", "cvt", "cvta", "prefetch"}, Kind::Move)
      .Default(number);
}

static Kind kindOfSASS(const AssemblyInstruction &instruction) {
  StringRef opcode = instruction.opcode;
  SmallVector<StringRef> parts;
  opcode.split(parts, '.');
  StringRef name = parts[0];
  auto has = [&](StringRef part) { return llvm::is_contained(parts, part); };
  if (name == "LDS")
    return sharedLoadOf(has("128") ? 16 : has("64") ? 8 : 4);
  if (name == "LDSM")
    return sharedLoadOf(llvm::is_contained(parts, "4")   ? 16
                        : llvm::is_contained(parts, "2") ? 8
                                                         : 4);
  // An integer multiply-add is also how registers are copied.
  if (name == "IMAD" && parts.size() > 1 && parts[1] == "MOV")
    return Kind::Move;
  return llvm::StringSwitch<Kind>(name)
      .Cases({"IMMA", "HMMA", "QMMA", "IGMMA", "HGMMA"}, Kind::Mma)
      .Cases({"STS", "ATOMS"}, Kind::SharedStore)
      .Cases({"UBLKCP", "LDGSTS", "UTMALDG"}, Kind::Copy)
      .Cases({"LDG", "LD"}, Kind::GlobalLoad)
      .Cases({"STG", "ST", "ATOMG", "ATOM", "RED", "REDG"}, Kind::GlobalStore)
      .Cases({"LDL", "STL"}, Kind::Local)
      .Cases({"SHFL", "VOTE", "VOTEU", "REDUX", "CREDUX", "MATCH", "MOVM"},
             Kind::Exchange)
      .Cases({"BRA", "EXIT", "RET", "CALL", "BSSY", "BSYNC", "BREAK", "BAR"},
             Kind::Control)
      .Cases({"WARPSYNC", "SYNCS", "DEPBAR", "LDGDEPBAR", "ARRIVES", "MEMBAR",
              "FENCE", "NOP", "ELECT", "YIELD"},
             Kind::Control)
      .Cases({"NANOSLEEP", "ERRBAR", "CCTL", "CGAERRBAR", "BRX", "ACQBULK"},
             Kind::Control)
      .Cases({"MOV", "UMOV", "CS2R", "S2R", "S2UR", "R2UR", "LDC", "LDCU"},
             Kind::Move)
      .Cases({"ULDC", "F2F", "F2FP", "F2I", "I2F", "I2FP", "P2R", "R2P"},
             Kind::Move)
      .Cases({"UMOV32I", "MOV32I", "CS2UR", "UR2UP", "UP2UR"}, Kind::Move)
      .Cases({"FADD", "FMUL", "FFMA", "FMNMX", "FSEL", "FSETP", "FSET"},
             Kind::Float)
      .Cases({"HADD2", "HMUL2", "HFMA2", "HSETP2", "HMNMX2", "HSET2", "MUFU"},
             Kind::Float)
      .Cases({"FCHK", "FRND", "FSWZADD", "FADD2", "FMUL2", "FFMA2", "FMNMX3"},
             Kind::Float)
      .Default(Kind::Integer);
}

//===--- The scan loop
//-----------------------------------------------------===//

namespace {
/// How one of the two languages writes what a scan loop is known by.
struct Language {
  Kind (*kind)(const AssemblyInstruction &);
  bool (*multiplies)(const AssemblyInstruction &); ///< codes by the query
  bool (*waits)(const AssemblyInstruction &);      ///< for a ring
};

const Language ptxLanguage = {
    kindOfPTX,
    [](const AssemblyInstruction &i) {
      return StringRef(i.opcode).starts_with("mma.sync") &&
             StringRef(i.opcode).contains(".s32.u8.s8.s32");
    },
    [](const AssemblyInstruction &i) {
      return StringRef(i.opcode).starts_with("mbarrier.try_wait") ||
             StringRef(i.opcode).starts_with("cp.async.wait_group");
    }};

const Language sassLanguage = {
    kindOfSASS,
    [](const AssemblyInstruction &i) {
      return StringRef(i.opcode).starts_with("IMMA");
    },
    [](const AssemblyInstruction &i) {
      return StringRef(i.opcode).contains("TRYWAIT") ||
             StringRef(i.opcode).starts_with("DEPBAR");
    }};
} // namespace

/// Counts the scan loop; nothing if there is none. More than one is an error.
static FailureOr<std::optional<InstructionMix>>
countScan(const AssemblyFunction &function, const Language &language,
          StringRef name, std::string &error) {
  auto contains = [&](const AssemblyFunction::Loop &loop, auto what) {
    return llvm::any_of(loop,
                        [&](unsigned i) { return what(function.code[i]); });
  };
  std::vector<AssemblyFunction::Loop> loops = function.findLoops();
  llvm::erase_if(loops, [&](const AssemblyFunction::Loop &loop) {
    return !contains(loop, language.multiplies);
  });
  // The innermost ones.
  std::vector<AssemblyFunction::Loop> inner;
  for (const auto &loop : loops)
    if (llvm::none_of(loops, [&](const AssemblyFunction::Loop &other) {
          return other.size() < loop.size() &&
                 std::includes(loop.begin(), loop.end(), other.begin(),
                               other.end());
        }))
      inner.push_back(loop);
  if (llvm::any_of(inner, [&](const AssemblyFunction::Loop &loop) {
        return contains(loop, language.waits);
      }))
    llvm::erase_if(inner, [&](const AssemblyFunction::Loop &loop) {
      return !contains(loop, language.waits);
    });
  if (inner.empty())
    return std::optional<InstructionMix>();
  if (inner.size() > 1) {
    error = "kernel '" + function.name + "' has " +
            std::to_string(inner.size()) +
            " innermost loops with integer matrix multiplications in its " +
            name.str() + ", expected one, the scan";
    return failure();
  }
  InstructionMix mix;
  mix.total = inner[0].size();
  for (unsigned i : inner[0])
    ++mix.counts[static_cast<size_t>(language.kind(function.code[i]))];
  mix.conditional =
      mix.total - int64_t(function.alwaysExecuted(inner[0]).size());
  return std::optional<InstructionMix>(mix);
}

//===--- Occupancy
//---------------------------------------------------------===//

int64_t KernelStats::registerLimit() const {
  int64_t ctas = std::max<int64_t>(1, promisedCtas);
  int64_t most = arch.registersPerSM / (ctas * std::max<int64_t>(1, threads));
  return std::min<int64_t>(255, most / 8 * 8);
}

int64_t KernelStats::ctasByRegisters() const {
  if (!assembled || !assembled->registers || !threads)
    return promisedCtas;
  // Registers come in 256 per warp; each of four schedulers has its own, and
  // warps are dealt to them in turn.
  int64_t warps = llvm::divideCeil(threads, 32);
  int64_t perWarp = llvm::alignTo(assembled->registers * 32, 256);
  int64_t resident = arch.registersPerSM / 4 / perWarp * 4;
  return resident / llvm::alignTo(warps, 4);
}

int64_t KernelStats::ctasByShared() const {
  // In units of 128 bytes, and 1 KB of each CTA is the system's.
  int64_t bytes = llvm::alignTo(dynamicShared + staticShared, 128) + 1024;
  return arch.sharedPerSM / bytes;
}

int64_t KernelStats::ctasByThreads() const {
  if (!threads)
    return arch.ctasPerSM;
  return std::min(arch.ctasPerSM,
                  arch.threadsPerSM / int64_t(llvm::alignTo(threads, 32)));
}

int64_t KernelStats::residentCtas() const {
  return std::min({ctasByRegisters(), ctasByShared(), ctasByThreads()});
}

//===--- All of it
//---------------------------------------------------------===//

/// The numbers after a directive of an entry, as ".reqntid 256".
static int64_t directive(StringRef entry, StringRef name) {
  size_t at = entry.find(name);
  int64_t value = 0;
  if (at != StringRef::npos)
    entry.substr(at + name.size()).ltrim().consumeInteger(10, value);
  return value;
}

/// Bytes of the shared variables of a module that are not the launch's.
static int64_t staticSharedBytes(StringRef ptx) {
  int64_t total = 0;
  for (StringRef line : llvm::split(ptx, '\n')) {
    size_t at = line.find(".shared .align");
    if (at == StringRef::npos || line.contains(".extern"))
      continue;
    auto [declaration, size] = line.substr(at).split('[');
    int64_t count = 1, bits = 8;
    size.split(']').first.getAsInteger(10, count);
    declaration.rsplit(".b").second.consumeInteger(10, bits);
    total += count * bits / 8;
  }
  return total;
}

FailureOr<std::vector<KernelStats>> mlir::ffd::collectKernelStats(
    StringRef ptx, const GPUArch &arch,
    llvm::function_ref<int64_t(StringRef)> dynamicShared, bool assemble,
    std::string &error) {
  std::vector<KernelStats> result;
  for (const AssemblyFunction &function : parsePTX(ptx)) {
    KernelStats stats(arch);
    stats.name = function.name;
    StringRef head =
        ptx.substr(ptx.find(".entry " + stats.name)).split('{').first;
    stats.threads = directive(head, ".reqntid");
    stats.promisedCtas = directive(head, ".minnctapersm");
    stats.dynamicShared = dynamicShared(stats.name);
    stats.staticShared = staticSharedBytes(ptx);
    FailureOr<std::optional<InstructionMix>> scan =
        countScan(function, ptxLanguage, "PTX", error);
    if (failed(scan))
      return failure();
    stats.scanPTX = *scan;
    result.push_back(std::move(stats));
  }

  auto note = [&](const Twine &text) {
    for (KernelStats &stats : result)
      stats.notes.push_back(text.str());
  };
  if (!assemble) {
    note(Twine("registers and spills are not known: ") +
         (findCudaProgram("ptxas").empty() ? "found no ptxas"
                                           : "not assembled"));
    return result;
  }
  std::string problem;
  std::vector<PtxasReport> reports;
  FailureOr<std::string> cubin =
      assemblePTX(ptx, arch.name, problem, {}, &reports);
  if (failed(cubin)) {
    error = problem;
    return failure();
  }
  for (KernelStats &stats : result)
    for (const PtxasReport &report : reports)
      if (report.kernel == stats.name) {
        stats.assembled = report;
        stats.staticShared = report.sharedBytes;
      }
  FailureOr<std::string> code = disassemble(*cubin, problem);
  if (failed(code)) {
    note("machine code is not counted: " + problem);
    return result;
  }
  for (const AssemblyFunction &function : parseSASS(*code))
    for (KernelStats &stats : result)
      if (stats.name == function.name && stats.scanPTX) {
        FailureOr<std::optional<InstructionMix>> scan =
            countScan(function, sassLanguage, "machine code", problem);
        if (failed(scan))
          stats.notes.push_back("machine code is not counted: " + problem);
        else
          stats.scanSASS = *scan;
      }
  return result;
}
