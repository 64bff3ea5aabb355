//===- Cache.cpp - Split caches of Python callers -------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cache.h"

#include "Scan.h"

#include <algorithm>
#include <cstring>

namespace ffd::python {

static constexpr char kQueryAxes[] =
    "[batch, heads, head_dim] or [batch, query tokens, heads, head_dim]";
static constexpr char kTokenAxes[] = "[batch, tokens, kv_heads, channels]";

/// K, V and the lengths of a call, checked against each other.
namespace {
struct Tokens {
  ElementArray k, v;
  std::vector<int64_t> lengths; ///< of every sequence
  int64_t longest = 0;

  Tokens(nb::handle kArray, nb::handle vArray,
         const std::optional<Lengths> &given)
      : k("k", kArray, 4, 4, kTokenAxes), v("v", vArray, 4, 4, kTokenAxes) {
    v.expectElement(k);
    for (size_t axis = 0; axis < 3; ++axis)
      v.expectSize(axis, k.shape(axis), "as in 'k'");
    checkDims();
    const int64_t sources = k.shape(0), tokens = k.shape(1);
    const int64_t batch = given ? int64_t(given->shape(0)) : sources;
    if (batch < 1)
      raiseValue("argument 'k' has shape " + k.shapeText() +
                 ", expected at least one sequence");
    if (k.shape(2) < 1)
      raiseValue("argument 'k' has shape " + k.shapeText() +
                 ", expected at least one kv head");
    if (sources != 1 && sources != batch)
      raiseValue("argument 'lengths' has " + std::to_string(batch) +
                 " entries, expected " + std::to_string(sources) +
                 ", the sequences of 'k' (any number only if 'k' holds one "
                 "sequence for all)");
    lengths.assign(size_t(batch), tokens);
    for (size_t i = 0; given && i < lengths.size(); ++i) {
      lengths[i] = given->data()[i];
      if (lengths[i] < 0 || lengths[i] > tokens)
        raiseValue("argument 'lengths' has " + std::to_string(lengths[i]) +
                   " at " + std::to_string(i) + ", expected 0 to " +
                   std::to_string(tokens) + ", the tokens of 'k'");
    }
    longest = *std::max_element(lengths.begin(), lengths.end());
  }

  int64_t batch() const { return int64_t(lengths.size()); }

private:
  void checkDims() const {
    k.expectHeadDim();
    const int64_t dv = v.shape(3);
    if (dv < 16 || dv > 256 || dv % 16)
      raiseValue("argument 'v' has shape " + v.shapeText() +
                 ", expected a head dim that is a multiple of 16 from 16 to "
                 "256");
  }
};

/// q in aligned, dense memory. Without an axis of query tokens there is one.
struct Query {
  HostBuffer elements;
  int64_t batch, tokens, heads, dim;
  bool tokenAxis;

  explicit Query(const ElementArray &q)
      : batch(q.shape(0)), tokens(q.rank() == 4 ? q.shape(1) : 1),
        heads(q.shape(q.rank() - 2)), dim(q.shape(q.rank() - 1)),
        tokenAxis(q.rank() == 4) {
    check(elements.allocate("query", batch * tokens * heads * dim * 2, 0));
    const int64_t tokenStride = tokenAxis ? q.stride(1) : 0;
    const int64_t headStride = q.stride(q.rank() - 2);
    uint16_t *to = elements.as<uint16_t>();
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < tokens; ++i)
        for (int64_t h = 0; h < heads; ++h, to += dim)
          std::memcpy(
              to, q.data() + b * q.stride(0) + i * tokenStride + h * headStride,
              size_t(dim) * 2);
  }

  void fill(ffdDecodeArgs &args) const {
    args.q = elements.data();
    args.q_batch_stride = tokens * heads * dim;
    args.q_token_stride = heads * dim;
    args.q_head_stride = dim;
  }

  /// [batch, (query tokens,) heads (, last)].
  std::vector<size_t>
  outputShape(std::optional<int64_t> last = std::nullopt) const {
    std::vector<size_t> shape = {size_t(batch), size_t(heads)};
    if (tokenAxis)
      shape.insert(shape.begin() + 1, size_t(tokens));
    if (last)
      shape.push_back(size_t(*last));
    return shape;
  }
};
} // namespace

/// That q fits `batch` sequences of `kvHeads` heads of which the newest lag + 1
/// tokens at least are in 16 bit; sets the spec's group and query tokens.
static void checkQuery(const ElementArray &q, int64_t batch, int64_t kvHeads,
                       int64_t lag, ffdSpec &spec) {
  const int32_t element = spec.element;
  if (q.element() != element)
    throw nb::type_error(
        (std::string("argument 'q' has dtype ") +
         (q.element() == FFD_F16 ? "float16" : "bfloat16") + ", expected " +
         (element == FFD_F16 ? "float16" : "bfloat16") + ", the dtype of K")
            .c_str());
  q.expectSize(0, batch, "the sequences of K and V");
  q.expectSize(q.rank() - 1, spec.head_dim, "the head dim of K");
  const int64_t heads = q.shape(q.rank() - 2), group = heads / kvHeads;
  const int64_t tokens = q.rank() == 4 ? q.shape(1) : 1;
  const auto bad = [&](const std::string &expected) {
    raiseValue("argument 'q' has shape " + q.shapeText() + ", expected " +
               expected);
  };
  if (heads % kvHeads != 0 || group < 1 || group > 16)
    bad("heads that are 1 to 16 times the kv heads of K, " +
        std::to_string(kvHeads));
  if (tokens < 1 || tokens > 8)
    bad("1 to 8 query tokens");
  if (group * tokens > 16)
    bad("at most 16 queries per kv head; " + std::to_string(tokens) +
        " query tokens of " + std::to_string(group) + " heads are " +
        std::to_string(tokens * group));
  if (tokens - 1 > lag)
    bad("at most " + std::to_string(lag + 1) +
        " query tokens, one more than the cache's 'lag': they all are to see "
        "all of its split blocks");
  spec.group = int32_t(group);
  spec.query_tokens = int32_t(tokens);
}

Selector parseSelector(const std::string &selector,
                       const std::string &execution) {
  Selector result;
  check(Selector::parse(selector, execution, "argument 'selector'",
                        "argument 'execution'", result));
  return result;
}

Cache::Cache(Runtime &runtime, nb::handle kArray, nb::handle vArray,
             std::optional<Lengths> lengths, int scanBits, bool residuals,
             int64_t lag, int centre) {
  Tokens tokens(kArray, vArray, lengths);
  const ElementArray &k = tokens.k, &v = tokens.v;
  SplitCacheOptions options;
  options.spec.head_dim = int32_t(k.shape(3));
  options.spec.value_dim = int32_t(v.shape(3));
  options.spec.group = 1; // the caller's query decides
  options.spec.element = k.element();
  options.spec.scan_bits = scanBits;
  options.spec.no_residuals = !residuals;
  options.spec.centre = centre;
  options.spec.quant_block = 128;
  options.spec.select_block = 16; // likewise; the layout is the same for all
  options.batch = tokens.batch();
  options.kvHeads = k.shape(2);
  options.kvBatch = k.shape(0);
  options.tokens = k.shape(1);
  options.k = k.tokens();
  options.v = v.tokens();
  options.lengths = tokens.lengths;
  options.lag = lag;
  Status status;
  {
    nb::gil_scoped_release release;
    status = SplitCache::create(options, runtime.pool(), cache);
  }
  check(status);
}

struct Cache::Call {
  ffdSpec spec;
  ffdDecodeArgs args = {};
  std::optional<Query> query;

  Call(const SplitCache &cache, nb::handle qArray, int selectBlock,
       float smScale, bool refinedMax, int certificate = FFD_CERTIFICATE_NONE)
      : spec(cache.spec()) {
    const ElementArray q("q", qArray, 3, 4, kQueryAxes);
    checkQuery(q, cache.batch(), cache.kvHeads(), cache.lag(), spec);
    spec.select_block = selectBlock;
    spec.pseudo_max = refinedMax ? FFD_PSEUDO_MAX_REFINED : FFD_PSEUDO_MAX_SCAN;
    spec.certificate = int16_t(certificate);
    query.emplace(q);
    cache.fill(args);
    query->fill(args);
    args.sm_scale = smScale;
  }
};

nb::tuple Cache::decode(Runtime &runtime, nb::handle q,
                        const ConstFloats1 &delta, float smScale,
                        int selectBlock, int splits,
                        const std::string &selector,
                        const std::string &execution, bool refinedMax,
                        int certificate) const {
  const Selector rule = parseSelector(selector, execution);
  if (refinedMax && rule.rule != Rule::TopDelta)
    raiseValue("argument 'refined_max' is True with selector '" + rule.name() +
               "', expected 'top_delta'");
  if (refinedMax && cache->spec().no_residuals)
    raiseValue("argument 'refined_max' is True with a cache without residuals, "
               "expected residual_bits 8");
  if (certificate && !rule.isDefault())
    raiseValue(std::string("argument 'certificate' is '") +
               certificateName(certificate) + "' with selector '" +
               rule.name() + "'" + (rule.split ? " in split execution" : "") +
               ", expected 'top_delta' in fused execution");
  Call call(*cache, q, selectBlock, smScale, refinedMax, certificate);
  check(checkSpec(call.spec, /*ablations=*/true));
  const size_t batch = size_t(cache->batch());
  if (delta.shape(0) != batch)
    raiseValue("argument 'delta' has " + std::to_string(delta.shape(0)) +
               " entries, expected 1 or " + std::to_string(batch) +
               ", the sequences of the cache");
  const NewArray<float> out(call.query->outputShape(call.spec.value_dim));
  const NewArray<float> lse(call.query->outputShape());
  const NewArray<uint8_t> kept(
      {batch, size_t(cache->kvHeads()), size_t(selects(selectBlock))});
  std::optional<NewArray<float>> skipped;
  if (certificate)
    skipped.emplace(call.query->outputShape());
  ffdDecodeArgs &args = call.args;
  args.skipped_lse = skipped ? skipped->data() : nullptr;
  args.delta = delta.data();
  args.out = out.data();
  args.lse = lse.data();
  args.splits = splits;
  args.kept = kept.data();
  args.kept_stride = selects(selectBlock);
  Status status;
  {
    nb::gil_scoped_release release;
    status = runtime.decode(call.spec, Program::Decode, rule, args);
  }
  check(status);
  return nb::make_tuple(out.object(), lse.object(), kept.object(),
                        skipped ? skipped->object() : nb::none());
}

nb::tuple Cache::scan(Runtime &runtime, nb::handle q, float smScale,
                      bool wantUnits, bool wantScores, bool refinedMax) const {
  if (refinedMax && cache->spec().no_residuals)
    raiseValue("argument 'refined_max' is True with a cache without residuals, "
               "expected residual_bits 8");
  Call call(*cache, q, 16, smScale, refinedMax);
  const Query &query = *call.query;
  int64_t longest = 0;
  for (int64_t s = 0; s < cache->batch(); ++s)
    longest = std::max(longest, cache->length(s));
  const int64_t committed = cache->maxBlocks() * call.spec.quant_block;
  std::optional<NewArray<int32_t>> units;
  std::optional<NewArray<float>> scores;
  const NewArray<float> unit(query.outputShape()),
      pseudoMax(query.outputShape());
  ScanOutputs outputs;
  if (wantUnits) {
    units.emplace(query.outputShape(committed));
    outputs.units = units->data();
    outputs.unitsStride = committed;
  }
  if (wantScores) {
    scores.emplace(query.outputShape(longest));
    outputs.scores = scores->data();
    outputs.scoresStride = longest;
  }
  outputs.unit = unit.data();
  outputs.pseudoMax = pseudoMax.data();
  {
    nb::gil_scoped_release release;
    scanScores(call.spec, call.args, runtime.pool(), outputs);
  }
  return nb::make_tuple(units ? units->object() : nb::none(), unit.object(),
                        scores ? scores->object() : nb::none(),
                        pseudoMax.object());
}

nb::object Cache::centres() const {
  if (cache->spec().centre == FFD_CENTRE_NONE)
    return nb::none();
  const size_t dim = size_t(cache->spec().head_dim);
  const NewArray<uint16_t> result(
      {size_t(cache->batch()), size_t(cache->kvHeads()), dim});
  std::memcpy(result.data(), cache->centre(0, 0),
              size_t(cache->rows()) * dim * 2);
  return result.object();
}

DecodeBytes Cache::bytes(const std::optional<ConstKept> &kept) const {
  if (!kept)
    return cache->decodeBytes(nullptr, 0);
  if (int64_t(kept->shape(0)) != cache->batch() ||
      int64_t(kept->shape(1)) != cache->kvHeads() ||
      int64_t(kept->shape(2)) < cache->maxSelects())
    raiseValue("argument 'kept' has shape [" + std::to_string(kept->shape(0)) +
               ", " + std::to_string(kept->shape(1)) + ", " +
               std::to_string(kept->shape(2)) + "], expected [" +
               std::to_string(cache->batch()) + ", " +
               std::to_string(cache->kvHeads()) + ", " +
               std::to_string(cache->maxSelects()) + "]");
  return cache->decodeBytes(kept->data(), int64_t(kept->shape(2)));
}

/// K or V as the exact kernel reads it: [sequence][head][token][channel].
static Status transpose(const ElementArray &from, int64_t longest,
                        ThreadPool &pool, HostBuffer &to) {
  const int64_t sources = from.shape(0), heads = from.shape(2),
                dim = from.shape(3);
  int64_t bytes = 0;
  if (!checkedProduct({sources, heads, longest, dim, 2}, bytes))
    return Status(StatusCode::OutOfMemory,
                  "the size of row-major K and V does not fit in 64 bits");
  FFD_RETURN_IF_ERROR(to.allocate("row-major K and V", bytes, 0xFF));
  pool.parallelFor(sources * heads, [&](int64_t row) {
    for (int64_t t = 0; t < longest; ++t)
      std::memcpy(to.as<uint16_t>() + (row * longest + t) * dim,
                  from.tokens().at(row / heads, t, row % heads),
                  size_t(dim) * 2);
  });
  return Status::success();
}

nb::tuple exact(Runtime &runtime, nb::handle qArray, nb::handle kArray,
                nb::handle vArray, std::optional<Lengths> lengths,
                float smScale) {
  Tokens tokens(kArray, vArray, lengths);
  const ElementArray q("q", qArray, 3, 4, kQueryAxes);
  const ElementArray &k = tokens.k, &v = tokens.v;
  ffdSpec spec = {};
  spec.head_dim = int32_t(k.shape(3));
  spec.value_dim = int32_t(v.shape(3));
  spec.element = k.element();
  checkQuery(q, tokens.batch(), k.shape(2), /*lag=*/INT32_MAX, spec);
  spec.scan_bits = 2;
  spec.quant_block = 128;
  spec.select_block = 16;
  check(checkSpec(spec));
  const Query query(q);
  const NewArray<float> out(query.outputShape(spec.value_dim));
  const NewArray<float> lse(query.outputShape());
  const std::vector<int32_t> lengths32(tokens.lengths.begin(),
                                       tokens.lengths.end());
  ffdDecodeArgs args = {};
  query.fill(args);
  args.lengths = lengths32.data();
  args.out = out.data();
  args.lse = lse.data();
  args.batch = int32_t(tokens.batch());
  args.kv_heads = int32_t(k.shape(2));
  args.sm_scale = smScale;
  args.tail_head_stride = tokens.longest;
  args.tail_batch_stride = k.shape(0) == 1 ? 0 : k.shape(2) * tokens.longest;
  HostBuffer kRows, vRows;
  Status status;
  {
    nb::gil_scoped_release release;
    status = transpose(k, tokens.longest, runtime.pool(), kRows);
    if (status.ok())
      status = transpose(v, tokens.longest, runtime.pool(), vRows);
    args.tail_k = kRows.data();
    args.tail_v = vRows.data();
    if (status.ok())
      status = runtime.decode(spec, Program::Exact, Selector(), args);
  }
  check(status);
  return nb::make_tuple(out.object(), lse.object());
}

} // namespace ffd::python
