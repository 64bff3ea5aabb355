//===- DecodeFaultsTest.cpp - Faults planted into the kernel ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Takes the generated decode kernel, removes or changes one operation at a
// time, and expects the emulator, or the comparison with the reference, to
// notice: what the emulator is for.
//
//===----------------------------------------------------------------------===//

#include "EmulatedDecode.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

#include <functional>

using namespace ffd;
using mlir::LLVM::InlineAsmOp;

namespace {

using Find = std::function<bool(mlir::Operation *)>;
using Change = std::function<void(mlir::Operation *)>;

bool isAsm(mlir::Operation *op, llvm::StringRef text) {
  auto code = mlir::dyn_cast<InlineAsmOp>(op);
  return code && code.getAsmString().contains(text);
}

void erase(mlir::Operation *op) { op->erase(); }

/// Changes a piece of inline assembly.
Change edit(std::string from, std::string to) {
  return [=](mlir::Operation *op) {
    auto code = mlir::cast<InlineAsmOp>(op);
    std::string text = code.getAsmString().str();
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
         at += to.size())
      text.replace(at, from.size(), to);
    code.setAsmString(text);
  };
}

struct Fault {
  const char *name;
  const char *arch;
  Find find;
  Change change;
  /// Places where the operation orders nothing that is not ordered anyway: it
  /// keeps the compiler from moving loads, or another one follows.
  size_t redundant = 0;
  /// Look at every so many places only.
  size_t stride = 1;
  /// What every message has one of, separated by '|'.
  const char *says = "";
  /// Copies are waited for by number: one too few may show at any wait.
  bool anywhere = false;
};

void PrintTo(const Fault &fault, std::ostream *os) { *os << fault.name; }

/// The line of the kernel's text; 0: none.
unsigned lineOf(const std::optional<mlir::Location> &location) {
  auto line = location ? mlir::dyn_cast<mlir::FileLineColLoc>(*location)
                       : mlir::FileLineColLoc();
  return line ? line.getLine() : 0;
}

/// Whether a report leads to a line: names it or one close by, or two
/// operations between which it lies. The other operation came first, maybe in
/// an earlier round of a loop.
bool leadsTo(const emulator::Report &report, unsigned line) {
  constexpr unsigned kClose = 150;
  const unsigned last = lineOf(report.location),
                 first = lineOf(report.otherLocation);
  for (unsigned named : {first, last})
    if (named && named + kClose >= line && named <= line + kClose)
      return true;
  if (!first || !last)
    return false;
  return first <= last ? first <= line && line <= last
                       : line >= first || line <= last;
}

struct Symptom {
  std::string text; ///< empty: nothing was noticed
  /// To the place of the fault. A comparison of numbers has no place.
  bool leads = false;
};

/// What the emulator says about the kernel with the fault in the `index`th
/// place. `count` is the number of places.
Symptom symptom(const Fault &fault, size_t index, size_t &count,
                std::string &place) {
  unsigned line = 0;
  std::string error;
  CaseShape shape;
  shape.spec = makeSpec(64, 64, 4, FFD_F16, 2, 16);
  shape.kvHeads = 1;
  // Keeps some of the blocks, so that a wrong score shows.
  shape.delta = 0.7f;
  EmulatedDecode decode(
      shape.spec, fault.arch, error, [&](mlir::ModuleOp module) {
        std::vector<mlir::Operation *> places;
        module.walk([&](mlir::Operation *op) {
          if (fault.find(op))
            places.push_back(op);
        });
        count = places.size();
        if (index >= count)
          return;
        llvm::raw_string_ostream(place) << places[index]->getLoc();
        line = lineOf(places[index]->getLoc());
        fault.change(places[index]);
      });
  if (!error.empty())
    return {error, false};
  if (index >= count)
    return {};
  // Several rows and pieces; then a row that goes through every ring and queue
  // more than once (a round is 32 blocks per warp).
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    shape.lengths = seed == 1 ? std::vector<int64_t>{2500, 300}
                              : std::vector<int64_t>{33500};
    const int splits = seed == 1 ? 2 : 1;
    RandomCase c(shape, uint32_t(seed));
    emulator::Options options;
    options.seed = seed;
    options.stepBudget = 100'000'000;
    emulator::Report report = decode.run(c, splits, options, 1);
    if (!report.ok)
      return {report.str(), leadsTo(report, line)};
    if (auto result = matchesReference(c); !result)
      return {result.message(), true};
  }
  return {};
}

bool saysOneOf(llvm::StringRef message, llvm::StringRef choices) {
  llvm::SmallVector<llvm::StringRef> words;
  choices.split(words, '|');
  return llvm::any_of(
      words, [&](llvm::StringRef word) { return message.contains(word); });
}

class DecodeFaults : public testing::TestWithParam<Fault> {};

TEST_P(DecodeFaults, AreFound) {
  const Fault &fault = GetParam();
  size_t count = 1, missed = 0;
  std::string log;
  for (size_t i = 0; i < count; i += fault.stride) {
    std::string place;
    const Symptom found = symptom(fault, i, count, place);
    missed += found.text.empty();
    log +=
        place + ": " + (found.text.empty() ? "NOT FOUND" : found.text) + "\n";
    if (found.text.empty())
      continue;
    EXPECT_TRUE(saysOneOf(found.text, fault.says)) << place << found.text;
    EXPECT_TRUE(found.leads || fault.anywhere) << "fault at " << place << "\n"
                                               << found.text;
  }
  EXPECT_GT(count, 0u);
  EXPECT_LE(missed, fault.redundant) << log;
  RecordProperty("found", log);
}

bool isBarrier(mlir::Operation *op) {
  return mlir::isa<mlir::NVVM::BarrierOp>(op);
}
bool isWarpBarrier(mlir::Operation *op) {
  return mlir::isa<mlir::NVVM::SyncWarpOp>(op);
}
Find asmWith(std::string text) {
  return [=](mlir::Operation *op) { return isAsm(op, text); };
}

mlir::Value throughCasts(mlir::Value value) {
  while (auto cast = value.getDefiningOp<mlir::LLVM::BitcastOp>())
    value = cast.getArg();
  return value;
}
/// An mma whose first two A registers differ.
bool isMma(mlir::Operation *op) {
  auto mma = mlir::dyn_cast<mlir::NVVM::MmaOp>(op);
  return mma && mma.getOperandA().size() == 4 &&
         throughCasts(mma.getOperandA()[0]) !=
             throughCasts(mma.getOperandA()[1]);
}
void swapRegisters(mlir::Operation *op) {
  mlir::Value first = op->getOperand(0);
  op->setOperand(0, op->getOperand(1));
  op->setOperand(1, first);
}

bool isVote(mlir::Operation *op) {
  return mlir::isa<mlir::NVVM::VoteSyncOp>(op);
}
/// A load of a number that an index finds, as a page id by a block's.
bool isIndexedLoad(mlir::Operation *op) {
  auto load = mlir::dyn_cast<mlir::LLVM::InlineAsmOp>(op);
  if (!load || !load.getAsmString().contains("ld.global.nc.b32 $0"))
    return false;
  auto address = load.getOperand(0).getDefiningOp<mlir::LLVM::GEPOp>();
  if (!address || address.getDynamicIndices().size() != 1)
    return false;
  auto offset =
      address.getDynamicIndices()[0].getDefiningOp<mlir::LLVM::ShlOp>();
  return offset && offset.getLhs().getDefiningOp<mlir::LLVM::AddOp>();
}
/// The index is off by one.
void nextIndex(mlir::Operation *op) {
  auto address = op->getOperand(0).getDefiningOp();
  mlir::OpBuilder b(op);
  auto next = mlir::LLVM::GEPOp::create(
      b, op->getLoc(), address->getResult(0).getType(), b.getI32Type(),
      address->getResult(0), llvm::ArrayRef<mlir::LLVM::GEPArg>{1});
  op->setOperand(0, next);
}

/// Lane 31 votes although the mask says it does not.
void narrowMask(mlir::Operation *op) {
  mlir::OpBuilder b(op);
  op->setOperand(
      0, mlir::LLVM::ConstantOp::create(b, op->getLoc(), b.getI32Type(),
                                        b.getI32IntegerAttr(0x7FFFFFFF)));
}

// What a missing order shows as.
#define UNORDERED "race: |that nothing wrote|not ordered after"

const Fault faults[] = {
    {"barrier", "sm_90a", isBarrier, erase, 0, 1, UNORDERED},
    {"barrier_cp_async", "sm_80", isBarrier, erase, 0, 1, UNORDERED},
    {"warp_barrier", "sm_90a", isWarpBarrier, erase, 4, 1, UNORDERED},
    {"warp_barrier_cp_async", "sm_80", isWarpBarrier, erase, 3, 1, UNORDERED},
    // Before the copies of a later round there are only reads of ring memory.
    {"fence", "sm_90a", asmWith("fence."), erase, 1, 1, "missing proxy fence"},
    {"mbarrier_wait", "sm_90a", asmWith("try_wait"), erase, 0, 1, UNORDERED},
    {"cp_async_wait", "sm_80", asmWith("cp.async.wait_group"), erase, 0, 1,
     UNORDERED},
    {"cp_async_commit", "sm_80", asmWith("cp.async.commit_group"), erase, 0, 1,
     UNORDERED, /*anywhere=*/true},
    // Nothing orders the merge after the partial results of others.
    {"relaxed_arrival", "sm_90a", asmWith("atom.acq_rel"),
     edit("acq_rel", "relaxed"), 0, 1, UNORDERED},
    {"block_scope_arrival", "sm_90a", asmWith("atom.acq_rel"),
     edit("acq_rel.gpu", "acq_rel.cta"), 0, 1, UNORDERED},
    {"expected_bytes", "sm_90a", asmWith("expect_tx"),
     edit("_, [$1], ", "_, [$1], 1"), 1, 1, "bytes are missing"},
    {"copied_bytes", "sm_90a", asmWith("128, [$1]"),
     edit("128, [$1]", "112, [$1]"), 0, 1, "bytes are missing"},
    // Of a scan, of a refined score, of an output.
    {"swapped_fragment", "sm_90a", isMma, swapRegisters, 0, 7,
     "selection block|lse is|relative error"},
    {"vote_mask", "sm_90a", isVote, narrowMask, 0, 1,
     "by a lane that is not in its mask"},
    {"next_block", "sm_90a", isIndexedLoad, nextIndex, 0, 1,
     "out-of-bounds access|selection block|lse is|relative error"},
};

INSTANTIATE_TEST_SUITE_P(Planted, DecodeFaults, testing::ValuesIn(faults),
                         [](const auto &info) {
                           return std::string(info.param.name);
                         });

} // namespace
