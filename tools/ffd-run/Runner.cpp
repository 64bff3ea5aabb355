//===- Runner.cpp - Decoding cases and timing them ------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Results are poisoned before every run and checked after it: an element that
// a kernel leaves alone is an error here, not a plausible number in a file.
//
//===----------------------------------------------------------------------===//

#include "Runner.h"
#include "support/EmulatedTarget.h"
#include "support/Errors.h"

#include "ffd/FindKernel.h"
#include "ffd/Float16.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

using namespace llvm;
using namespace ffd::tools;

namespace ffd::run {

/// Fills results before a run: as a float a NaN that no arithmetic makes, as a
/// byte of `kept` neither 0 nor 1.
static constexpr int kPoison = 0xFF;
static constexpr uint32_t kPoisonBits = 0xFFFFFFFF;

struct Runner::Call {
  ffdDecodeArgs args = {};
  HostBuffer out, lse, skipped, kept, delta;

  int64_t outFloats() const { return out.size() / 4; }
  int64_t lseFloats() const { return lse.size() / 4; }

  void poison() {
    std::memset(out.data(), kPoison, out.size());
    std::memset(lse.data(), kPoison, lse.size());
    std::memset(skipped.data(), kPoison, skipped.size());
    std::memset(kept.data(), kPoison, kept.size());
  }
};

/// An error if a kernel left an element unwritten.
static Error checkFloats(StringRef name, const float *data, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (floatBits(data[i]) == kPoisonBits)
      return error("internal error: the kernel did not write element {0} of "
                   "'{1}', expected all {2} written",
                   i, name, count);
  return Error::success();
}

/// An error if a byte of `kept` is neither 0 nor 1. Zeroes the padding.
static Error checkKept(const SplitCache &cache, int64_t stride, uint8_t *kept) {
  for (int64_t row = 0; row < cache.rows(); ++row) {
    uint8_t *bytes = kept + row * stride;
    int64_t selects = cache.selects(row / cache.kvHeads());
    for (int64_t j = 0; j < selects; ++j)
      if (bytes[j] > 1)
        return error("internal error: the kernel left {0} in 'kept' for block "
                     "{1} of row {2}, expected 0 or 1",
                     bytes[j], j, row);
    std::memset(bytes + selects, 0, stride - selects);
  }
  return Error::success();
}

static double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

Runner::Runner(RunOptions options, ThreadPool &pool)
    : settings(std::move(options)), pool(pool) {}

Runner::~Runner() = default;

Error Runner::prepare() {
  if (!settings.onGpu())
    return Error::success();
  std::shared_ptr<const CudaDriver> driver;
  if (Error e = toError(CudaDriver::load("", driver)))
    return e;
  return toError(CudaContext::create(driver, /*device=*/0, cuda));
}

Status Runner::find(Program program, const ffdSpec &spec,
                    DecodeKernel *&kernel) {
  std::unique_ptr<DecodeKernel> &slot =
      kernels[std::string(programName(program)) + "-" + specName(spec)];
  if (!slot && settings.emulated())
    FFD_RETURN_IF_ERROR(
        makeEmulatedKernel(spec, program, settings.arch, settings.seed, slot));
  if (!slot) {
    FindKernelOptions request;
    request.program = program;
    if (program == Program::Decode)
      request.selector = settings.selector;
    request.target = settings.target;
    request.packageDir = settings.kernelDir;
    request.pool = &pool;
    request.cuda = cuda;
    std::string passedOver;
    request.passedOver = &passedOver;
    FFD_RETURN_IF_ERROR(findKernel(spec, request, slot));
    if (!passedOver.empty())
      note("ffd-run", passedOver + "; using a kernel for '" + slot->target() +
                          "' instead");
  }
  kernel = slot.get();
  return Status::success();
}

float Runner::scaleOf(const CaseShape &shape) const {
  return settings.smScale
             ? *settings.smScale
             : static_cast<float>(1 / std::sqrt(double(shape.headDim)));
}

Error Runner::fillCall(const Case &c, int64_t maxSelects, Call &call) const {
  const CaseShape &s = c.shape;
  int64_t heads = s.batch * s.queryTokens * s.queryHeads;
  for (auto [buffer, what, bytes] :
       {std::tuple(&call.out, "output", heads * s.valueDim * 4),
        std::tuple(&call.lse, "lse", heads * 4),
        std::tuple(&call.skipped, "skipped lse",
                   settings.certificate ? heads * 4 : 0),
        std::tuple(&call.kept, "kept mask", s.batch * s.kvHeads * maxSelects),
        std::tuple(&call.delta, "deltas", s.batch * 4)})
    if (Error e = toError(buffer->allocate(what, bytes, kPoison)))
      return e;
  ffdDecodeArgs &args = call.args;
  args.q = c.q.data();
  args.out = call.out.as<float>();
  args.lse = call.lse.as<float>();
  args.skipped_lse = settings.certificate ? call.skipped.as<float>() : nullptr;
  args.kept = call.kept.data();
  args.kept_stride = maxSelects;
  args.delta = call.delta.as<float>();
  args.q_token_stride = s.queryHeads * s.headDim;
  args.q_batch_stride = s.queryTokens * args.q_token_stride;
  args.q_head_stride = s.headDim;
  args.splits = settings.splits;
  args.sm_scale = scaleOf(s);
  return Error::success();
}

/// Runs a call and returns the seconds it takes: the median over the repeats,
/// after one run that is not counted if there are several. `cache` is null for
/// exact attention, which writes no mask.
Expected<double> Runner::decode(DecodeKernel &kernel, Call &call,
                                const SplitCache *cache) {
  auto check = [&]() -> Error {
    if (Error e = checkFloats("o", call.out.as<float>(), call.outFloats()))
      return e;
    if (Error e = checkFloats("lse", call.lse.as<float>(), call.lseFloats()))
      return e;
    if (Error e = checkFloats("skipped_lse", call.skipped.as<float>(),
                              cache ? call.skipped.size() / 4 : 0))
      return e;
    return cache ? checkKept(*cache, call.args.kept_stride, call.kept.data())
                 : Error::success();
  };

  if (settings.onGpu()) {
    auto &gpu = static_cast<CudaKernel &>(kernel);
    std::vector<float> milliseconds;
    call.poison();
    if (Error e = toError(gpu.upload(call.args)))
      return std::move(e);
    if (Error e = toError(gpu.launch()))
      return std::move(e);
    if (Error e = toError(gpu.download(call.args)))
      return std::move(e);
    if (Error e = check())
      return std::move(e);
    if (Error e = toError(
            gpu.timeLaunches(/*warmup=*/1, settings.repeat, milliseconds)))
      return std::move(e);
    return median({milliseconds.begin(), milliseconds.end()}) * 1e-3;
  }

  std::vector<double> seconds;
  for (int i = settings.repeat > 1 ? -1 : 0; i < settings.repeat; ++i) {
    call.poison();
    auto start = std::chrono::steady_clock::now();
    if (Error e = toError(kernel.decode(call.args)))
      return std::move(e);
    std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    if (Error e = check())
      return std::move(e);
    if (i >= 0)
      seconds.push_back(elapsed.count());
  }
  return median(seconds);
}

/// K or V as the exact kernel reads it: [sequence][head][token][dim]. What no
/// length reaches stays NaN.
static Status transpose(const CaseShape &s, const HostBuffer &from, int64_t dim,
                        ThreadPool &pool, HostBuffer &to) {
  FFD_RETURN_IF_ERROR(
      to.allocate("row-major K and V", from.size(), /*fill=*/0xFF));
  pool.parallelFor(s.kvBatch * s.kvHeads, [&](int64_t row) {
    int64_t sequence = row / s.kvHeads, head = row % s.kvHeads;
    for (int64_t t = 0; t < s.visibleTokens(sequence); ++t)
      std::memcpy(to.as<uint16_t>() + (row * s.tokens + t) * dim,
                  from.as<uint16_t>() +
                      ((sequence * s.tokens + t) * s.kvHeads + head) * dim,
                  dim * 2);
  });
  return Status::success();
}

Error Runner::timeExact(const Case &c, const ffdSpec &spec, Call &call,
                        const ExactResult &reference, CaseResult &result) {
  const CaseShape &s = c.shape;
  if (settings.emulated()) {
    noExact = "an emulated kernel has no times";
    return Error::success();
  }
  DecodeKernel *kernel = nullptr;
  ffdSpec plain = withoutRule(spec);
  plain.centre = FFD_CENTRE_NONE; // exact attention reads keys as they are
  if (Status status = find(Program::Exact, plain, kernel); !status.ok()) {
    noExact = status.message();
    return Error::success();
  }
  HostBuffer k, v, lengths;
  if (Error e = toError(transpose(s, c.k, s.headDim, pool, k)))
    return e;
  if (Error e = toError(transpose(s, c.v, s.valueDim, pool, v)))
    return e;
  if (Error e = toError(lengths.allocate("lengths", s.batch * 4, /*fill=*/0)))
    return e;
  std::copy(s.lengths.begin(), s.lengths.end(), lengths.as<int32_t>());

  // The fields that fillCall sets stay; those of the cache are not read.
  ffdDecodeArgs args = {};
  args.q = call.args.q;
  args.tail_k = k.data();
  args.tail_v = v.data();
  args.lengths = lengths.as<int32_t>();
  args.out = call.args.out;
  args.lse = call.args.lse;
  args.q_batch_stride = call.args.q_batch_stride;
  args.q_head_stride = call.args.q_head_stride;
  args.q_token_stride = call.args.q_token_stride;
  args.tail_head_stride = s.tokens;
  args.tail_batch_stride = s.kvBatch == 1 ? 0 : s.kvHeads * s.tokens;
  args.batch = static_cast<int32_t>(s.batch);
  args.kv_heads = static_cast<int32_t>(s.kvHeads);
  args.splits = settings.splits;
  args.sm_scale = call.args.sm_scale;
  call.args = args;

  Expected<double> seconds = decode(*kernel, call, /*cache=*/nullptr);
  if (!seconds)
    return seconds.takeError();
  result.exactSeconds = *seconds;
  result.exactAccuracy =
      compare(call.out.as<float>(), call.lse.as<float>(), reference);
  return Error::success();
}

Expected<CaseResult> Runner::run(const Case &c) {
  const CaseShape &s = c.shape;
  SplitCacheOptions request;
  request.spec.head_dim = static_cast<int32_t>(s.headDim);
  request.spec.value_dim = static_cast<int32_t>(s.valueDim);
  request.spec.group = static_cast<int32_t>(s.group());
  request.spec.element = s.element;
  request.spec.scan_bits = settings.scanBits;
  request.spec.quant_block = 128;
  request.spec.select_block = settings.selectBlock;
  request.spec.no_residuals = !settings.residuals;
  request.spec.centre = settings.centre;
  request.spec.pseudo_max =
      settings.refinedMax ? FFD_PSEUDO_MAX_REFINED : FFD_PSEUDO_MAX_SCAN;
  request.spec.certificate = settings.certificate;
  request.spec.query_tokens = static_cast<int32_t>(s.queryTokens);
  if (settings.lag < s.queryTokens - 1)
    return error("option --lag is {0}, expected at least {1} with the {2} "
                 "query tokens of '{3}q': they must be in the tail",
                 settings.lag, s.queryTokens - 1, s.queryTokens, s.prefix);
  request.batch = s.batch;
  request.kvHeads = s.kvHeads;
  request.kvBatch = s.kvBatch;
  request.tokens = s.tokens;
  request.k =
      TokenView::dense(c.k.as<uint16_t>(), s.tokens, s.kvHeads, s.headDim);
  request.v =
      TokenView::dense(c.v.as<uint16_t>(), s.tokens, s.kvHeads, s.valueDim);
  request.lengths = s.lengths;
  request.lag = settings.lag;

  // The kernel first: it is the likelier one to be missing.
  DecodeKernel *kernel = nullptr;
  if (Error e = toError(find(Program::Decode, request.spec, kernel)))
    return std::move(e);
  std::unique_ptr<SplitCache> cache;
  if (Error e = toError(SplitCache::create(request, pool, cache)))
    return std::move(e);

  CaseResult result;
  result.shape = s;
  result.maxSelects = cache->maxSelects();
  result.target = kernel->target();
  Call call;
  if (Error e = fillCall(c, result.maxSelects, call))
    return std::move(e);
  cache->fill(call.args);

  ExactResult reference;
  if (settings.measure)
    reference = exactAttention(c, call.args.sm_scale, pool);

  for (float delta : settings.deltas) {
    std::fill_n(call.delta.as<float>(), s.batch, delta);
    Expected<double> seconds = decode(*kernel, call, cache.get());
    if (!seconds)
      return seconds.takeError();
    DeltaResult &one = result.deltas.emplace_back();
    one.delta = delta;
    one.seconds = settings.emulated() ? std::nan("") : *seconds;
    one.out.assign(call.args.out, call.args.out + call.outFloats());
    one.lse.assign(call.args.lse, call.args.lse + call.lseFloats());
    one.skipped.assign(call.skipped.as<float>(),
                       call.skipped.as<float>() + call.skipped.size() / 4);
    one.kept.assign(call.kept.data(), call.kept.data() + call.kept.size());
    one.bytes = cache->decodeBytes(one.kept.data(), result.maxSelects);
    if (settings.measure)
      one.accuracy = compare(one.out.data(), one.lse.data(), reference);
  }
  if (settings.measure)
    if (Error e = timeExact(c, request.spec, call, reference, result))
      return std::move(e);
  return result;
}

} // namespace ffd::run
