//===- Tables.cpp - Tables of the FFD paper -------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All rows decode the same keys, values and queries. top_k and top_p are given
// as many blocks as top_delta keeps, as the paper does.
//
//===----------------------------------------------------------------------===//

#include "Tables.h"

#include "Bench.h"
#include "Variant.h"
#include "support/EmulatedTarget.h"
#include "support/Errors.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

#include <cmath>

using namespace llvm;
using ffd::tools::error;
using ffd::tools::toError;

namespace ffd::bench {

/// Compilations that the search for top_p's p may take, and how near is near.
static constexpr int kSearchSteps = 10;
static constexpr double kNearEnough = 0.01;

namespace {
class TableMaker {
public:
  TableMaker(const Options &options, Machine &machine, raw_ostream &os)
      : options(options), machine(machine), os(os) {}

  Expected<TableResult> run();

private:
  /// A cache of the sequence, and copies of it in the target's memory.
  struct Data {
    std::unique_ptr<SplitCache> cache;
    std::unique_ptr<Pool> pool;
  };

  ffdSpec specOf(int64_t scanBits, bool residuals) const;
  PoolShape shapeOf(const ffdSpec &spec) const;
  Expected<Data *> dataOf(const ffdSpec &spec);
  Expected<Variant *> variantOf(const ffdSpec &spec, const Selector &selector);
  Expected<CheckResult> launchOnce(Variant &variant, Data &data, bool rows);
  Expected<Timing> time(const Pool &pool, function_ref<Status(int)> launch);

  Error addSelection();
  Error addScanDepth();
  Error addAblation();
  /// Measures a row; what the target has no kernel for is noted in it.
  Error add(const ffdSpec &spec, const Selector &selector);
  Error addExact();
  Error addRead();
  void addNote(const ffdSpec &spec, const Selector &selector, std::string note);
  void finish(TableRow row);
  TableRow startRow(const ffdSpec &spec, const Selector &selector) const;
  /// Selection blocks per row that top_delta keeps.
  Expected<double> keptByDelta();
  /// top_p with the p that keeps about as many.
  Expected<Selector> findTopP(double wanted);

  const Options &options;
  Machine &machine;
  raw_ostream &os;
  std::unique_ptr<Sequence> sequence;
  Data data;
  /// Variants in split execution by specification, which lend their second
  /// kernel.
  std::map<std::string, std::unique_ptr<Variant>> splits;
  std::unique_ptr<Variant> current;
  TableResult result;
};
} // namespace

static Selector selectorOf(Rule rule, bool split) {
  Selector selector;
  selector.rule = rule;
  selector.split = split;
  return selector;
}

ffdSpec TableMaker::specOf(int64_t scanBits, bool residuals) const {
  ffdSpec spec = options.spec;
  spec.select_block = int32_t(options.selectBlocks.front());
  spec.scan_bits = int32_t(scanBits);
  spec.no_residuals = residuals ? 0 : 1;
  return spec;
}

PoolShape TableMaker::shapeOf(const ffdSpec &spec) const {
  PoolShape shape;
  shape.spec = spec;
  shape.kvHeads = options.kvHeads;
  shape.batch = options.batches.front();
  shape.lag = options.lag();
  shape.lengths.assign(size_t(shape.batch),
                       options.tokens.front() + options.tail);
  return shape;
}

Expected<TableMaker::Data *> TableMaker::dataOf(const ffdSpec &spec) {
  if (data.pool && specName(data.pool->shape().spec) == specName(spec))
    return &data;
  data = Data(); // one pool at a time takes what memory there is
  Data &d = data;
  PoolShape shape = shapeOf(spec);
  if (Error e = makeSplitCache(shape, *sequence, options.contiguousPages,
                               machine.threads(), d.cache))
    return std::move(e);
  Expected<int64_t> rotations = rotationsFor(
      options, machine, shape.scanBytes(), Pool::splitBytes(shape));
  if (!rotations)
    return rotations.takeError();
  shape.rotations = *rotations;
  Expected<std::unique_ptr<Pool>> pool = Pool::createSplit(
      shape, *sequence, *d.cache, options.contiguousPages, machine);
  if (!pool)
    return pool.takeError();
  if (Error e = (*pool)->setDelta(options.delta))
    return std::move(e);
  d.pool = std::move(*pool);
  return &d;
}

/// Lives until the next one is asked for.
Expected<Variant *> TableMaker::variantOf(const ffdSpec &spec,
                                          const Selector &selector) {
  std::unique_ptr<Variant> &lender = splits[specName(spec)];
  Expected<std::unique_ptr<Variant>> made =
      Variant::create(spec, selector, options, machine,
                      selector.split ? lender.get() : nullptr);
  if (!made)
    return made.takeError();
  if (selector.split && !lender && (*made)->selects()) {
    lender = std::move(*made);
    return lender.get();
  }
  current = std::move(*made);
  return current.get();
}

Expected<CheckResult> TableMaker::launchOnce(Variant &variant, Data &d,
                                             bool rows) {
  Pool &pool = *d.pool;
  const int64_t splits = variant.splitsFor(pool.shape());
  if (Error e = pool.reserveSplits(splits))
    return std::move(e);
  if (Error e = pool.poison())
    return std::move(e);
  ffdDecodeArgs args = pool.args(0, splits, /*withKept=*/true);
  if (options.emulated())
    args.workspace = nullptr; // the emulator has its own, with guard zones
  if (Error e = toError(variant.run(args)))
    return std::move(e);
  if (Error e = machine.wait())
    return std::move(e);
  return checkSparse(pool, *sequence, *d.cache, options.delta, options.tolerant,
                     rows, machine.threads());
}

Expected<Timing> TableMaker::time(const Pool &pool,
                                  function_ref<Status(int)> launch) {
  if (options.emulated())
    return Timing();
  const int64_t rotations = pool.shape().rotations;
  const int64_t launches = options.onGpu()
                               ? rotations * ((8 + rotations - 1) / rotations)
                               : rotations;
  return machine.time(int(launches), options.reps, launch);
}

TableRow TableMaker::startRow(const ffdSpec &spec,
                              const Selector &selector) const {
  TableRow row;
  row.scanBits = spec.scan_bits;
  row.rule = selector.name();
  row.execution = selector.split ? "split" : "fused";
  return row;
}

Error TableMaker::add(const ffdSpec &spec, const Selector &selector) {
  Expected<Variant *> variant = variantOf(spec, selector);
  if (!variant) {
    addNote(spec, selector, toString(variant.takeError()));
    return Error::success();
  }
  Expected<Data *> d = dataOf(spec);
  if (!d)
    return d.takeError();
  // Other rules keep other sets than the check knows.
  const bool known = selector.rule == Rule::TopDelta && !spec.no_residuals;
  Expected<CheckResult> check = launchOnce(**variant, **d, known);
  if (!check)
    return check.takeError();
  Pool &pool = *(*d)->pool;
  TableRow row = startRow(spec, selector);
  row.kept = check->bytes.keepRatio();
  row.bytes = check->bytes.total() + pool.shape().outputBytes();
  row.note = check->note;
  Expected<double> wrong = errorToExact(pool, *sequence);
  if (!wrong)
    return wrong.takeError();
  row.error = *wrong;
  const int64_t splits = (*variant)->splitsFor(pool.shape());
  Expected<Timing> decode = time(pool, [&](int i) {
    return (*variant)->run(pool.args(i, splits, selector.split));
  });
  if (!decode)
    return decode.takeError();
  row.decode = *decode;
  if ((*variant)->selects()) {
    Expected<Timing> select = time(pool, [&](int i) {
      return (*variant)->select(pool.args(i, splits, /*withKept=*/true));
    });
    if (!select)
      return select.takeError();
    row.select = *select;
  }
  finish(std::move(row));
  return Error::success();
}

void TableMaker::addNote(const ffdSpec &spec, const Selector &selector,
                         std::string note) {
  TableRow row = startRow(spec, selector);
  row.kept = 0;
  row.note = std::move(note);
  finish(std::move(row));
}

/// Exact attention over 16-bit K and V.
Error TableMaker::addExact() {
  const ffdSpec spec = specOf(2, true);
  TableRow row;
  row.scanBits = 16;
  row.rule = "exact";
  std::unique_ptr<DecodeKernel> kernel;
  if (options.emulated()) {
    if (Error e = toError(tools::makeEmulatedKernel(
            spec, Program::Exact, options.arch, /*seed=*/1, kernel)))
      return e;
  } else {
    FindKernelOptions request;
    request.program = Program::Exact;
    request.target = options.target;
    request.pool = &machine.threads();
    request.cuda = machine.cuda();
    if (Error e = toError(findKernel(spec, request, kernel)))
      return e;
  }
  data = Data();
  PoolShape shape = shapeOf(spec);
  Expected<int64_t> rotations = rotationsFor(
      options, machine, shape.denseBytes(), Pool::denseBytes(shape));
  if (!rotations)
    return rotations.takeError();
  shape.rotations = *rotations;
  Expected<std::unique_ptr<Pool>> pool =
      Pool::createDense(shape, *sequence, machine);
  if (!pool)
    return pool.takeError();
  const int64_t splits = options.onGpu()
                             ? static_cast<CudaKernel &>(*kernel).splitsFor(
                                   shape.rows(), shape.longest())
                             : pickSplits(spec, shape.rows(), shape.longest(),
                                          machine.parallelTasks(*kernel));
  if (Error e = (*pool)->reserveSplits(splits))
    return e;
  if (Error e = (*pool)->poison())
    return e;
  ffdDecodeArgs args = (*pool)->args(0, splits);
  if (options.emulated())
    args.workspace = nullptr;
  if (Error e = toError(machine.run(*kernel, args)))
    return e;
  if (Error e = machine.wait())
    return e;
  Expected<double> wrong = errorToExact(**pool, *sequence);
  if (!wrong)
    return wrong.takeError();
  row.error = *wrong;
  row.bytes = shape.denseBytes() + shape.outputBytes();
  Expected<Timing> decode = time(**pool, [&](int i) {
    return machine.run(*kernel, (*pool)->args(i, splits));
  });
  if (!decode)
    return decode.takeError();
  row.decode = *decode;
  finish(std::move(row));
  return Error::success();
}

/// The floor of every selector: its thumbnails, read and nothing else.
Error TableMaker::addRead() {
  TableRow row;
  row.scanBits = 2;
  row.rule = "plain read";
  row.bytes = shapeOf(specOf(2, true)).scanBytes();
  Expected<Timing> read = machine.timeRead(row.bytes);
  if (!read)
    return read.takeError();
  row.select = *read;
  finish(std::move(row));
  return Error::success();
}

void TableMaker::finish(TableRow row) {
  auto micros = [](const std::optional<Timing> &timing, double per) {
    std::string text = "-";
    if (timing && timing->runs) {
      text.clear();
      raw_string_ostream(text) << format("%.2f", timing->median * 1e6 / per);
    }
    return text;
  };
  auto number = [](const char *pattern, double value) {
    std::string text;
    raw_string_ostream(text) << format(pattern, value);
    return text;
  };
  const double heads =
      double(options.kvHeads) * double(options.batches.front());
  os << right_justify(std::to_string(row.scanBits), 4) << "  "
     << left_justify(row.rule, 16) << left_justify(row.execution, 10);
  if (row.kept == 0 && !row.note.empty()) {
    os << row.note << "\n";
  } else {
    // Half of a selection table is about the selector, the rest about decodes.
    const std::optional<Timing> &main =
        options.table == Table::Selection && row.select ? row.select
                                                        : row.decode;
    os << right_justify(number("%.2f", 100 * row.kept) + "%", 8)
       << right_justify(number("%.2f", double(row.bytes) * 1e-6), 9)
       << right_justify(micros(row.select, 1), 11)
       << right_justify(micros(row.decode, 1), 11)
       << right_justify(micros(main, heads), 11)
       << right_justify(row.error ? number("%.1e", *row.error) : "-", 10)
       << "\n";
    if (!row.note.empty())
      os << "      note: " << row.note << "\n";
  }
  os.flush();
  result.rows.push_back(std::move(row));
}

Expected<double> TableMaker::keptByDelta() {
  const ffdSpec spec = specOf(2, true);
  Expected<Variant *> variant =
      variantOf(spec, selectorOf(Rule::TopDelta, false));
  if (!variant)
    return variant.takeError();
  Expected<Data *> d = dataOf(spec);
  if (!d)
    return d.takeError();
  Expected<CheckResult> check = launchOnce(**variant, **d, true);
  if (!check)
    return check.takeError();
  return double(check->bytes.keptBlocks) / double((*d)->pool->shape().rows());
}

Expected<Selector> TableMaker::findTopP(double wanted) {
  const ffdSpec spec = specOf(2, true);
  Expected<Data *> d = dataOf(spec);
  if (!d)
    return d.takeError();
  Selector best = selectorOf(Rule::TopP, true);
  best.p = 0.5;
  double low = 0, high = 1, nearest = HUGE_VAL;
  for (int step = 0; step < kSearchSteps; ++step) {
    Selector next = best;
    next.p = std::round((low + high) / 2 * 1e4) / 1e4;
    Expected<Variant *> variant = variantOf(spec, next);
    if (!variant)
      return variant.takeError();
    Expected<CheckResult> check = launchOnce(**variant, **d, false);
    if (!check)
      return check.takeError();
    double kept =
        double(check->bytes.keptBlocks) / double((*d)->pool->shape().rows());
    if (std::fabs(kept - wanted) < nearest) {
      nearest = std::fabs(kept - wanted);
      best = next;
    }
    if (nearest < kNearEnough * wanted)
      break;
    (kept < wanted ? low : high) = next.p;
  }
  return best;
}

Error TableMaker::addSelection() {
  Expected<double> kept = keptByDelta();
  if (!kept)
    return kept.takeError();
  const ffdSpec spec = specOf(2, true);
  if (Error e = add(spec, selectorOf(Rule::TopDelta, true)))
    return e;
  Selector topK = selectorOf(Rule::TopK, true);
  topK.k = std::max<int64_t>(1, std::llround(*kept));
  if (Error e = add(spec, topK))
    return e;
  Selector topP = selectorOf(Rule::TopP, true);
  topP.p = 0.5;
  if (!options.onGpu() && !options.emulated()) {
    Expected<Selector> found = findTopP(*kept);
    if (!found)
      return found.takeError();
    topP = *found;
  }
  if (Error e = add(spec, topP))
    return e;
  // All 2-bit keys and all values, as KIVI does.
  if (Error e = add(specOf(2, false), selectorOf(Rule::All, false)))
    return e;
  return addRead();
}

Error TableMaker::addScanDepth() {
  for (int64_t bits : {2, 4, 8})
    if (Error e = add(specOf(bits, true), selectorOf(Rule::TopDelta, false)))
      return e;
  return addExact();
}

Error TableMaker::addAblation() {
  Expected<double> kept = keptByDelta();
  if (!kept)
    return kept.takeError();
  Selector topK = selectorOf(Rule::TopK, true);
  topK.k = std::max<int64_t>(1, std::llround(*kept));
  const Selector split = selectorOf(Rule::TopDelta, true);
  for (const ffdSpec &spec : {specOf(16, false), specOf(2, true)})
    for (const Selector &selector : {topK, split})
      if (Error e = add(spec, selector))
        return e;
  Selector fusedK = topK;
  fusedK.split = false;
  addNote(specOf(2, true), fusedK,
          "a rule over the whole row takes two kernels");
  if (Error e = add(specOf(2, true), selectorOf(Rule::TopDelta, false)))
    return e;
  return addExact();
}

Expected<TableResult> TableMaker::run() {
  Expected<std::unique_ptr<Sequence>> made = Sequence::generate(
      sequenceOptionsFor(options, options.tokens.front()), machine.threads());
  if (!made)
    return made.takeError();
  sequence = std::move(*made);
  os << "tokens " << options.tokens.front() << ", batch "
     << options.batches.front() << ", selection block "
     << options.selectBlocks.front() << "\n";
  os << "scan  rule            execution     kept       MB  select us  "
        "decode us    us/head     error\n";
  os.flush();
  Error failed = Error::success();
  switch (options.table) {
  case Table::Selection:
    result.name = "selection";
    failed = addSelection();
    break;
  case Table::ScanDepth:
    result.name = "scan-depth";
    failed = addScanDepth();
    break;
  case Table::Ablation:
  case Table::None:
    result.name = "ablation";
    failed = addAblation();
    break;
  }
  if (failed)
    return std::move(failed);
  os << "MB: what a fused kernel must move; us/head: of "
     << (options.table == Table::Selection ? "the selector" : "a decode")
     << " and kv head; error: of o, relative to exact attention\n";
  return std::move(result);
}

Expected<TableResult> makeTable(const Options &options, Machine &machine,
                                raw_ostream &os) {
  return TableMaker(options, machine, os).run();
}

} // namespace ffd::bench
