//===- Bench.cpp - One point of the grid ----------------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The pools of the split and the row-major cache are never in memory together.
//
//===----------------------------------------------------------------------===//

#include "Bench.h"

#include "support/EmulatedTarget.h"
#include "support/Errors.h"

#include "ffd/FindKernel.h"
#include "ffd/Plan.h"

#include <algorithm>
#include <limits>

using namespace llvm;
using ffd::tools::error;
using ffd::tools::toError;

namespace ffd::bench {

static constexpr int kVariants = 4;
/// Launches read this many times the cache before the first copy comes again.
static constexpr int64_t kCacheTimes = 4;
static constexpr int64_t kMaxSplits = 1024;
/// Exact attention over more tokens is not checked in a grid: it takes seconds.
static constexpr int64_t kGridCheckTokens = 65536;

SequenceOptions sequenceOptionsFor(const Options &options, int64_t tokens) {
  SequenceOptions o;
  o.spec = options.spec;
  o.spec.select_block = 128;
  o.kvHeads = options.kvHeads;
  o.tokens = tokens + options.tail;
  o.lag = options.lag();
  if (options.ragged)
    o.lengths = raggedLengths(options.ragged, o.tokens);
  else
    o.lengths = {o.tokens};
  o.variants = kVariants;
  o.keep = options.keep();
  o.delta = options.delta;
  return o;
}

Error Bench::prepareSequence(int64_t tokens) {
  if (sequence && sequenceTokens == tokens)
    return Error::success();
  sequence.reset();
  cache.reset();
  Expected<std::unique_ptr<Sequence>> made = Sequence::generate(
      sequenceOptionsFor(options, tokens), machine.threads());
  if (!made)
    return made.takeError();
  sequence = std::move(*made);
  sequenceTokens = tokens;
  return Error::success();
}

Expected<DecodeKernel *> Bench::find(Program program, const ffdSpec &spec) {
  std::unique_ptr<DecodeKernel> &slot =
      kernels[std::string(programName(program)) + specName(spec)];
  if (slot)
    return slot.get();
  if (options.emulated()) {
    if (Error e = toError(tools::makeEmulatedKernel(spec, program, options.arch,
                                                    /*seed=*/1, slot)))
      return std::move(e);
    return slot.get();
  }
  FindKernelOptions request;
  request.program = program;
  request.target = options.target;
  request.packageDir = options.kernelDir;
  request.pool = &machine.threads();
  request.cuda = machine.cuda();
  if (Error e = toError(findKernel(spec, request, slot)))
    return std::move(e);
  return slot.get();
}

static int64_t memoryBudget(const Options &options, const Machine &machine) {
  return options.onGpu() ? machine.memoryBytes() / 8 * 5
                         : machine.memoryBytes() / 8;
}

static std::string doesNotFit(int64_t bytes, int64_t budget) {
  return formatv("the batch takes {0} MB, expected at most {1} MB", bytes >> 20,
                 budget >> 20)
      .str();
}

Expected<int64_t> rotationsFor(const Options &options, const Machine &machine,
                               int64_t launchBytes, int64_t poolBytes) {
  const int64_t budget = memoryBudget(options, machine);
  const int64_t fit = budget / std::max<int64_t>(1, poolBytes);
  if (fit < 1)
    return error("{0}", doesNotFit(poolBytes, budget));
  if (options.emulated())
    return 1;
  const int64_t wanted = (kCacheTimes * machine.cacheBytes() + launchBytes) /
                         std::max<int64_t>(1, launchBytes);
  const int64_t most = options.onGpu() ? 256 : 16;
  return std::min(fit, std::clamp<int64_t>(wanted, 2, most));
}

PoolShape Bench::shapeOf(int64_t tokens, int64_t batch,
                         int64_t selectBlock) const {
  PoolShape shape;
  shape.spec = options.spec;
  shape.spec.select_block = int32_t(selectBlock);
  shape.kvHeads = options.kvHeads;
  shape.batch = batch;
  shape.lag = options.lag();
  shape.lengths =
      options.ragged
          ? raggedLengths(options.ragged, tokens + options.tail)
          : std::vector<int64_t>(size_t(batch), tokens + options.tail);
  return shape;
}

std::string Bench::tooLarge(int64_t tokens, int64_t batch) const {
  const int64_t bytes = Pool::splitBytes(shapeOf(tokens, batch, 128));
  const int64_t budget = memoryBudget(options, machine);
  return bytes > budget ? doesNotFit(bytes, budget) : "";
}

std::vector<int64_t> Bench::splitsToTry(DecodeKernel &kernel,
                                        const PoolShape &shape,
                                        SplitsMode mode) {
  if (options.emulated()) // runs are too slow to try several
    return {mode == SplitsMode::Fixed ? options.splits : 2};
  const int64_t tasks = machine.parallelTasks(kernel);
  if (planned(kernel)) {
    if (mode == SplitsMode::Fixed)
      return {options.splits};
    if (mode == SplitsMode::Auto)
      return {raggedPieces(shape.rows(), tasks)};
    std::vector<int64_t> result;
    const int64_t rows = shape.rows();
    for (int64_t quarters : {0, 1, 2, 3, 4, 6, 8, 12})
      result.push_back(std::max(tasks, rows + tasks * quarters / 4));
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
  }
  const int64_t picked =
      options.onGpu()
          ? static_cast<CudaKernel &>(kernel).splitsFor(shape.rows(),
                                                        shape.longest())
          : pickSplits(shape.spec, shape.rows(), shape.longest(), tasks);
  if (mode == SplitsMode::Fixed)
    return {options.splits};
  if (mode == SplitsMode::Auto)
    return {picked};
  const int64_t base = std::max<int64_t>(1, tasks / shape.rows());
  const int64_t most = std::clamp<int64_t>(
      shape.longest() / shape.spec.quant_block, 1, kMaxSplits);
  std::vector<int64_t> result = {picked};
  for (int64_t quarters : {2, 3, 4, 6, 8, 12, 16})
    result.push_back(std::clamp<int64_t>(base * quarters / 4, 1, most));
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

bool Bench::planned(const DecodeKernel &kernel) const {
  return options.planned() && kernel.program() == Program::Decode;
}

Error Bench::reserve(const DecodeKernel &kernel, Pool &pool, int64_t splits) {
  return planned(kernel) ? pool.reservePlan(splits)
                         : pool.reserveSplits(splits);
}

Error Bench::launchOnce(DecodeKernel &kernel, Pool &pool, int64_t splits,
                        bool withKept) {
  if (Error e = reserve(kernel, pool, splits))
    return e;
  if (Error e = pool.poison())
    return e;
  ffdDecodeArgs args = pool.args(0, splits, withKept);
  if (options.emulated())
    args.workspace = nullptr; // the emulator has its own, with guard zones
  if (Error e = toError(machine.run(kernel, args)))
    return e;
  return machine.wait();
}

Expected<ProgramTiming> Bench::time(DecodeKernel &kernel, Pool &pool,
                                    SplitsMode mode) {
  const int64_t rotations = pool.shape().rotations;
  const int launches = int(rotations * ((8 + rotations - 1) / rotations));
  ProgramTiming result;
  if (options.emulated()) {
    result.best.splits = splitsToTry(kernel, pool.shape(), mode).front();
    return result;
  }
  for (int64_t splits : splitsToTry(kernel, pool.shape(), mode)) {
    if (Error e = reserve(kernel, pool, splits))
      return std::move(e);
    Expected<Timing> timing = machine.time(
        options.onGpu() ? launches : int(rotations), options.reps,
        [&](int i) { return machine.run(kernel, pool.args(i, splits)); });
    if (!timing)
      return timing.takeError();
    SplitsTiming one = {splits, *timing};
    result.all.push_back(one);
    if (result.all.size() == 1 || one.timing.median < result.best.timing.median)
      result.best = one;
  }
  return result;
}

/// The plan of a batch, made on the device: checked, then timed.
Error Bench::measurePlan(Pool &pool, int64_t target, Point &point) {
  ffdSpec spec = withoutRule(pool.shape().spec);
  spec.centre = FFD_CENTRE_NONE; // of the spec nothing matters to it
  Expected<DecodeKernel *> kernel = find(Program::Plan, spec);
  if (!kernel)
    return kernel.takeError();
  auto &planner = static_cast<CudaKernel &>(**kernel);
  if (Error e = pool.reservePlan(target))
    return e;
  if (Error e = pool.poisonPlan())
    return e;
  const ffdPlanArgs args = pool.planArgs(target);
  if (Error e = toError(planner.launchPlan(args)))
    return e;
  if (Error e = machine.wait())
    return e;
  Expected<bool> right = pool.planIsRight(target);
  if (!right)
    return right.takeError();
  if (!*right)
    return error("the plan made on the device is not the host's");
  Expected<Timing> timing = machine.time(
      16, options.reps, [&](int) { return planner.launchPlan(args); });
  if (!timing)
    return timing.takeError();
  point.plan = *timing;
  return Error::success();
}

Error Bench::prepareCache(const PoolShape &shape) {
  if (cache && cacheSelectBlock == shape.spec.select_block)
    return Error::success();
  cache.reset();
  cacheSelectBlock = shape.spec.select_block;
  return makeSplitCache(shape, *sequence, options.contiguousPages,
                        machine.threads(), cache);
}

Error makeSplitCache(const PoolShape &shape, const Sequence &sequence,
                     bool contiguousPages, ThreadPool &threads,
                     std::unique_ptr<SplitCache> &cache) {
  const SequenceOptions &source = sequence.options();
  SplitCacheOptions request;
  request.spec = shape.spec;
  request.spec.centre = FFD_CENTRE_NONE; // the sequence's keys have theirs
  request.batch = request.kvBatch = 1;
  request.kvHeads = shape.kvHeads;
  request.tokens = source.tokens;
  request.k = {sequence.k(), 0, shape.spec.head_dim,
               source.tokens * shape.spec.head_dim};
  request.v = {sequence.v(), 0, shape.spec.value_dim,
               source.tokens * shape.spec.value_dim};
  request.lag = shape.lag;
  request.pageSeed = contiguousPages ? 0 : 1;
  return toError(SplitCache::create(request, threads, cache));
}

Error Bench::measureSplit(PoolShape shape, std::vector<Point> &points) {
  Expected<DecodeKernel *> kernel = find(Program::Decode, shape.spec);
  if (!kernel)
    return kernel.takeError();
  if (Error e = prepareCache(shape))
    return e;
  Expected<int64_t> rotations = rotationsFor(
      options, machine, shape.scanBytes(), Pool::splitBytes(shape));
  if (!rotations)
    return rotations.takeError();
  shape.rotations = *rotations;
  Expected<std::unique_ptr<Pool>> pool = Pool::createSplit(
      shape, *sequence, *cache, options.contiguousPages, machine);
  if (!pool)
    return pool.takeError();
  for (Point &point : points) {
    point.kernel = (*kernel)->target();
    point.rotations = shape.rotations;
    if (Error e = measureKeep(**kernel, **pool, point))
      return e;
  }
  return Error::success();
}

Error Bench::measureKeep(DecodeKernel &kernel, Pool &pool, Point &point) {
  const PoolShape &shape = pool.shape();
  if (options.onGpu())
    if (Error e = toError(static_cast<CudaKernel &>(kernel).resources(
            point.registers, point.localBytes)))
      return e;
  const float infinite = std::numeric_limits<float>::infinity();
  const float delta = point.keep >= 1 ? infinite : options.delta;
  if (point.keep < 1 && options.keeps.size() > 1)
    if (Error e = pool.setQueries(*sequence, point.keep))
      return e;
  if (Error e = pool.setDelta(delta))
    return e;

  const int64_t splits = splitsToTry(kernel, shape, SplitsMode::Auto).front();
  if (Error e = launchOnce(
          kernel, pool,
          options.splitsMode == SplitsMode::Fixed ? options.splits : splits,
          /*withKept=*/true))
    return e;
  Expected<CheckResult> check =
      checkSparse(pool, *sequence, *cache, delta, tolerant,
                  /*rows=*/!options.grid || point.keep == options.keep(),
                  machine.threads());
  if (!check)
    return check.takeError();
  point.check = *check;
  point.checkNote = check->note;
  point.bytes = check->bytes.total() + shape.outputBytes();

  Expected<ProgramTiming> decode =
      time(kernel, pool,
           options.profileSplits ? SplitsMode::Sweep : options.splitsMode);
  if (!decode)
    return decode.takeError();
  point.decode = *decode;
  if (planned(kernel))
    if (Error e = measurePlan(pool, decode->best.splits, point))
      return e;
  if (options.dense && !options.grid) {
    if (Error e = pool.setDelta(infinite))
      return e;
    Expected<ProgramTiming> all = time(kernel, pool, SplitsMode::Sweep);
    if (!all)
      return all.takeError();
    point.keepAll = *all;
  }
  Expected<Timing> read = machine.timeRead(point.bytes);
  if (!read)
    return read.takeError();
  point.read = *read;
  return Error::success();
}

Error Bench::measureExact(PoolShape shape, Point &point) {
  auto known = exactTimes.find({point.tokens, point.batch});
  if (known != exactTimes.end()) {
    point.exact = known->second;
    return Error::success();
  }
  shape.spec.centre = FFD_CENTRE_NONE; // exact attention knows none
  Expected<DecodeKernel *> kernel =
      find(Program::Exact, withoutRule(shape.spec));
  if (!kernel) {
    point.exactNote = toString(kernel.takeError());
    return Error::success();
  }
  Expected<int64_t> rotations = rotationsFor(
      options, machine, shape.denseBytes(), Pool::denseBytes(shape));
  if (!rotations) {
    point.exactNote = toString(rotations.takeError());
    return Error::success();
  }
  shape.rotations = *rotations;
  Expected<std::unique_ptr<Pool>> pool =
      Pool::createDense(shape, *sequence, machine);
  if (!pool)
    return pool.takeError();
  const int64_t splits = splitsToTry(**kernel, shape, SplitsMode::Auto).front();
  if (Error e = launchOnce(**kernel, **pool, splits, /*withKept=*/false))
    return e;
  Expected<CheckResult> check =
      checkExact(**pool, *sequence, tolerant,
                 /*rows=*/!options.grid || point.tokens <= kGridCheckTokens,
                 machine.threads());
  if (!check)
    return error("exact attention: {0}", toString(check.takeError()));
  point.exactNote = check->note;
  Expected<ProgramTiming> exact = time(
      **kernel, **pool, options.grid ? SplitsMode::Auto : SplitsMode::Sweep);
  if (!exact)
    return exact.takeError();
  point.exact = exactTimes[{point.tokens, point.batch}] = *exact;
  return Error::success();
}

Error Bench::measure(int64_t tokens, int64_t batch, int64_t selectBlock,
                     function_ref<void(Point)> sink) {
  if (Error e = prepareSequence(tokens))
    return e;
  const PoolShape shape = shapeOf(tokens, batch, selectBlock);
  std::vector<Point> points;
  for (double keep : options.keeps) {
    Point point;
    point.spec = shape.spec;
    point.tokens = tokens;
    point.batch = batch;
    point.selectBlock = selectBlock;
    point.keep = keep;
    for (int64_t length : shape.lengths)
      point.visibleTokens += length;
    points.push_back(std::move(point));
  }
  if (Error e = measureSplit(shape, points))
    return e;
  for (Point &point : points) {
    if (options.dense)
      if (Error e = measureExact(shape, point))
        return e;
    sink(std::move(point));
  }
  return Error::success();
}

} // namespace ffd::bench
