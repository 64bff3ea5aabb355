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

#include "../ffd-run/Errors.h"

#include "ffd/FindKernel.h"

#include <algorithm>
#include <limits>

using namespace llvm;
using ffd::run::error;
using ffd::run::toError;

namespace ffd::bench {

static constexpr int kVariants = 4;
/// Launches read this many times the cache before the first copy comes again.
static constexpr int64_t kCacheTimes = 4;
static constexpr int64_t kMaxSplits = 1024;

Error Bench::prepareSequence(int64_t tokens) {
  if (sequence && sequenceTokens == tokens)
    return Error::success();
  sequence.reset();
  SequenceOptions o;
  o.spec = options.spec;
  o.spec.select_block = 128;
  o.kvHeads = options.kvHeads;
  o.tokens = tokens + options.tail;
  o.lag = options.lag();
  ragged = options.ragged ? raggedLengths(options.ragged, o.tokens)
                          : std::vector<int64_t>();
  o.lengths = ragged;
  if (!options.ragged)
    o.lengths.push_back(o.tokens);
  o.variants = kVariants;
  o.keep = options.keep;
  o.delta = options.delta;
  Expected<std::unique_ptr<Sequence>> made =
      Sequence::generate(o, machine.threads());
  if (!made)
    return made.takeError();
  sequence = std::move(*made);
  sequenceTokens = tokens;
  return Error::success();
}

Expected<DecodeKernel *> Bench::find(Program program, const ffdSpec &spec) {
  std::unique_ptr<DecodeKernel> &slot =
      kernels[std::string(programName(program)) + specName(spec)];
  if (!slot) {
    FindKernelOptions request;
    request.program = program;
    request.target = options.target;
    request.packageDir = options.kernelDir;
    request.pool = &machine.threads();
    request.cuda = machine.cuda();
    if (Error e = toError(findKernel(spec, request, slot)))
      return std::move(e);
  }
  return slot.get();
}

/// Batches of copies, so that a rotation reads several times the cache, within
/// the memory there is.
Expected<int64_t> Bench::rotationsFor(const PoolShape &shape,
                                      int64_t launchBytes, int64_t poolBytes) {
  const int64_t budget = options.onGpu() ? machine.memoryBytes() / 8 * 5
                                         : machine.memoryBytes() / 8;
  const int64_t fit = budget / std::max<int64_t>(1, poolBytes);
  if (fit < 1)
    return error("the batch takes {0} MB, expected at most {1} MB",
                 poolBytes >> 20, budget >> 20);
  const int64_t wanted = (kCacheTimes * machine.cacheBytes() + launchBytes) /
                         std::max<int64_t>(1, launchBytes);
  const int64_t most = options.onGpu() ? 256 : 16;
  return std::min(fit, std::clamp<int64_t>(wanted, 2, most));
}

std::vector<int64_t> Bench::splitsToTry(DecodeKernel &kernel,
                                        const PoolShape &shape,
                                        SplitsMode mode) {
  const int64_t tasks = machine.parallelTasks(kernel);
  if (planned(kernel)) {
    if (mode == SplitsMode::Fixed)
      return {options.splits};
    if (mode == SplitsMode::Auto)
      return {2 * tasks};
    std::vector<int64_t> result;
    for (int64_t halves : {2, 3, 4, 6, 8, 12})
      result.push_back(tasks * halves / 2);
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
  if (Error e = toError(machine.run(kernel, pool.args(0, splits, withKept))))
    return e;
  return machine.wait();
}

Expected<ProgramTiming> Bench::time(DecodeKernel &kernel, Pool &pool,
                                    SplitsMode mode) {
  const int64_t rotations = pool.shape().rotations;
  const int launches = int(rotations * ((8 + rotations - 1) / rotations));
  ProgramTiming result;
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
  Expected<DecodeKernel *> kernel = find(Program::Plan, pool.shape().spec);
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

Error Bench::measureSplit(PoolShape shape, Point &point) {
  Expected<DecodeKernel *> kernel = find(Program::Decode, shape.spec);
  if (!kernel)
    return kernel.takeError();
  point.kernel = (*kernel)->target();
  if (options.onGpu())
    if (Error e = toError(static_cast<CudaKernel *>(*kernel)->resources(
            point.registers, point.localBytes)))
      return e;

  const SequenceOptions &source = sequence->options();
  SplitCacheOptions request;
  request.spec = shape.spec;
  request.batch = request.kvBatch = 1;
  request.kvHeads = shape.kvHeads;
  request.tokens = source.tokens;
  request.k = {sequence->k(), 0, shape.spec.head_dim,
               source.tokens * shape.spec.head_dim};
  request.v = {sequence->v(), 0, shape.spec.value_dim,
               source.tokens * shape.spec.value_dim};
  request.lag = shape.lag;
  request.pageSeed = options.contiguousPages ? 0 : 1;
  std::unique_ptr<SplitCache> cache;
  if (Error e = toError(SplitCache::create(request, machine.threads(), cache)))
    return e;

  Expected<int64_t> rotations =
      rotationsFor(shape, shape.scanBytes(), Pool::splitBytes(shape));
  if (!rotations)
    return rotations.takeError();
  shape.rotations = point.rotations = *rotations;
  Expected<std::unique_ptr<Pool>> pool = Pool::createSplit(
      shape, *sequence, *cache, options.contiguousPages, machine);
  if (!pool)
    return pool.takeError();
  if (Error e = (*pool)->setDelta(options.delta))
    return e;

  const int64_t splits = splitsToTry(**kernel, shape, SplitsMode::Auto).front();
  if (Error e = launchOnce(
          **kernel, **pool,
          options.splitsMode == SplitsMode::Fixed ? options.splits : splits,
          /*withKept=*/true))
    return e;
  Expected<CheckResult> check = checkSparse(
      **pool, *sequence, *cache, options.delta, tolerant, machine.threads());
  if (!check)
    return check.takeError();
  point.check = *check;
  point.checkNote = check->note;
  point.bytes = check->bytes.total() + shape.outputBytes();

  Expected<ProgramTiming> decode =
      time(**kernel, **pool,
           options.profileSplits ? SplitsMode::Sweep : options.splitsMode);
  if (!decode)
    return decode.takeError();
  point.decode = *decode;
  if (planned(**kernel))
    if (Error e = measurePlan(**pool, decode->best.splits, point))
      return e;
  if (options.dense) {
    if (Error e = (*pool)->setDelta(std::numeric_limits<float>::infinity()))
      return e;
    Expected<ProgramTiming> all = time(**kernel, **pool, SplitsMode::Sweep);
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
  Expected<DecodeKernel *> kernel = find(Program::Exact, shape.spec);
  if (!kernel) {
    point.exactNote = toString(kernel.takeError());
    return Error::success();
  }
  Expected<int64_t> rotations =
      rotationsFor(shape, shape.denseBytes(), Pool::denseBytes(shape));
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
      checkExact(**pool, *sequence, tolerant, machine.threads());
  if (!check)
    return error("exact attention: {0}", toString(check.takeError()));
  point.exactNote = check->note;
  Expected<ProgramTiming> exact = time(**kernel, **pool, SplitsMode::Sweep);
  if (!exact)
    return exact.takeError();
  point.exact = exactTimes[{point.tokens, point.batch}] = *exact;
  return Error::success();
}

Expected<Point> Bench::measure(int64_t tokens, int64_t batch,
                               int64_t selectBlock) {
  if (Error e = prepareSequence(tokens))
    return std::move(e);
  PoolShape shape;
  shape.spec = options.spec;
  shape.spec.select_block = int32_t(selectBlock);
  shape.kvHeads = options.kvHeads;
  shape.batch = batch;
  shape.lag = options.lag();
  shape.lengths = options.ragged ? ragged
                                 : std::vector<int64_t>(size_t(batch),
                                                        tokens + options.tail);
  Point point;
  point.tokens = tokens;
  point.batch = batch;
  point.selectBlock = selectBlock;
  for (int64_t length : shape.lengths)
    point.visibleTokens += length;
  if (Error e = measureSplit(shape, point))
    return std::move(e);
  if (options.dense)
    if (Error e = measureExact(shape, point))
      return std::move(e);
  return point;
}

} // namespace ffd::bench
