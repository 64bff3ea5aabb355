//===- Pool.cpp - Copies of a sequence in the target's memory -------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One copy is uploaded, the others are made where the memory is.
//
//===----------------------------------------------------------------------===//

#include "Pool.h"

#include "support/Errors.h"

#include "ffd/Plan.h"
#include "ffd/Split.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace llvm;

namespace ffd::bench {

int64_t PoolShape::longest() const {
  return *std::max_element(lengths.begin(), lengths.end());
}

int64_t PoolShape::denseBytes() const {
  int64_t bytes = 0;
  for (int64_t length : lengths)
    bytes += length * kvHeads * 2 * (spec.head_dim + spec.value_dim);
  return bytes;
}

int64_t PoolShape::scanBytes() const {
  int64_t bytes = 0;
  for (int64_t length : lengths)
    bytes += committedBlocks(spec, length, lag) * kvHeads *
             layoutOf(spec).thumbnailBytes();
  return bytes;
}

int64_t Pool::splitBytes(const PoolShape &shape) {
  Layout l = layoutOf(shape.spec);
  return shape.sequences() * shape.kvHeads *
         committedBlocks(shape.spec, shape.longest(), shape.lag) *
         (l.thumbnailBytes() + l.residualBytes() + l.valueBytes());
}

int64_t Pool::denseBytes(const PoolShape &shape) {
  return shape.sequences() * shape.kvHeads * shape.longest() * 2 *
         (shape.spec.head_dim + shape.spec.value_dim);
}

/// Allocates and uploads an array.
template <typename T>
static Error put(Memory &memory, Machine &machine, const char *what,
                 const std::vector<T> &data) {
  int64_t bytes = int64_t(data.size() * sizeof(T));
  if (Error e = memory.allocate(machine.cuda(), what, bytes))
    return e;
  return memory.upload(data.data(), bytes);
}

Error Pool::setQueries(const Sequence &sequence, double keep) {
  const PoolShape &s = poolShape;
  int64_t perSequence = s.kvHeads * s.spec.group * s.spec.head_dim;
  hostQ.resize(size_t(s.sequences() * perSequence));
  // As many different queries as the sequence has; copies share them in turn.
  int variants = sequence.options().variants;
  std::vector<int64_t> repeats(size_t(s.sequences()), -1);
  for (int64_t i = 0; i < s.sequences(); ++i)
    for (int64_t j = i - variants; j >= 0 && repeats[size_t(i)] < 0;
         j -= variants)
      if (s.lengths[size_t(i % s.batch)] == s.lengths[size_t(j % s.batch)])
        repeats[size_t(i)] = j;
  machine.threads().parallelFor(s.sequences(), [&](int64_t i) {
    if (repeats[size_t(i)] < 0)
      sequence.queries(int(i % variants), s.lengths[size_t(i % s.batch)], keep,
                       hostQ.data() + i * perSequence);
  });
  for (int64_t i = 0; i < s.sequences(); ++i)
    if (int64_t from = repeats[size_t(i)]; from >= 0)
      std::copy_n(hostQ.data() + from * perSequence, perSequence,
                  hostQ.data() + i * perSequence);
  return put(q, machine, "queries", hostQ);
}

Error Pool::createCommon(const Sequence &sequence) {
  const PoolShape &s = poolShape;
  if (Error e = setQueries(sequence, sequence.options().keep))
    return e;
  std::vector<int32_t> visible;
  for (int64_t i = 0; i < s.sequences(); ++i)
    visible.push_back(int32_t(s.lengths[size_t(i % s.batch)]));
  if (Error e = put(lengths, machine, "lengths", visible))
    return e;
  int64_t heads = s.sequences() * s.kvHeads * s.spec.group;
  if (Error e = delta.allocate(machine.cuda(), "deltas", s.sequences() * 4))
    return e;
  if (Error e =
          out.allocate(machine.cuda(), "output", heads * s.spec.value_dim * 4))
    return e;
  if (Error e = lse.allocate(machine.cuda(), "lse", heads * 4))
    return e;
  if (s.spec.certificate)
    if (Error e = skipped.allocate(machine.cuda(), "skipped lse", heads * 4))
      return e;
  return reserveSplits(1);
}

/// The newest tokens of each sequence, row-major.
Error Pool::createTails(const Sequence &sequence) {
  const PoolShape &s = poolShape;
  for (int64_t length : s.lengths)
    tailStride = std::max(tailStride, tailTokens(s.spec, length, s.lag));
  tailStride = std::max<int64_t>(16, (tailStride + 15) / 16 * 16);
  int64_t rows = s.sequences() * s.kvHeads;
  std::vector<uint16_t> k(size_t(rows * tailStride * s.spec.head_dim), 0xFFFF);
  std::vector<uint16_t> v(size_t(rows * tailStride * s.spec.value_dim), 0xFFFF);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t length = s.lengths[size_t(row / s.kvHeads % s.batch)];
    int64_t head = row % s.kvHeads;
    int64_t tokens = tailTokens(s.spec, length, s.lag);
    std::copy_n(sequence.k(head, length - tokens), tokens * s.spec.head_dim,
                k.data() + row * tailStride * s.spec.head_dim);
    std::copy_n(sequence.v(head, length - tokens), tokens * s.spec.value_dim,
                v.data() + row * tailStride * s.spec.value_dim);
  }
  if (Error e = put(tailK, machine, "tails of K", k))
    return e;
  return put(tailV, machine, "tails of V", v);
}

Expected<std::unique_ptr<Pool>>
Pool::createSplit(const PoolShape &shape, const Sequence &sequence,
                  const SplitCache &cache, bool contiguous, Machine &machine) {
  std::unique_ptr<Pool> pool(new Pool(shape, machine));
  Pool &p = *pool;
  p.sparse = true;
  if (Error e = p.createCommon(sequence))
    return std::move(e);
  if (Error e = p.createTails(sequence))
    return std::move(e);

  const int64_t copies = shape.sequences(), pages = cache.pages();
  for (auto [memory, what, data, bytes] :
       {std::tuple(&p.thumbnails, "thumbnails", cache.thumbnail(0, 0),
                   cache.thumbnailPlaneBytes()),
        std::tuple(&p.residuals, "residuals", cache.residual(0, 0),
                   cache.residualPlaneBytes()),
        std::tuple(&p.values, "values", cache.value(0, 0),
                   cache.valuePlaneBytes())}) {
    if (Error e = memory->allocate(machine.cuda(), what, copies * bytes))
      return std::move(e);
    if (bytes == 0)
      continue;
    if (Error e = memory->upload(data, bytes))
      return std::move(e);
    if (Error e = memory->replicate(bytes, copies))
      return std::move(e);
  }

  // Block b of a sequence lies in another copy for each b.
  Layout l = layoutOf(shape.spec);
  p.pageStride = std::max<int64_t>(4, (cache.maxBlocks() + 3) / 4 * 4);
  p.selectStride = std::max<int64_t>(1, cache.maxSelects());
  std::vector<int32_t> table(size_t(copies * p.pageStride), -1);
  std::vector<uint16_t> scales(
      size_t(copies * shape.kvHeads * l.paddedHeadDim()), 0);
  for (int64_t i = 0; i < copies; ++i) {
    int64_t length = shape.lengths[size_t(i % shape.batch)];
    int64_t blocks = committedBlocks(shape.spec, length, shape.lag);
    for (int64_t b = 0; b < blocks; ++b) {
      uint64_t shift = uint64_t(b) * 0x9E3779B97F4A7C15 >> 20;
      int64_t copy = contiguous ? i : int64_t((uint64_t(i) + shift) % copies);
      table[size_t(i * p.pageStride + b)] =
          int32_t(copy * pages + cache.page(0, b));
    }
  }
  machine.threads().parallelFor(copies * shape.kvHeads, [&](int64_t row) {
    int64_t i = row / shape.kvHeads, head = row % shape.kvHeads;
    uint16_t *top = scales.data() + row * l.paddedHeadDim();
    int64_t blocks = committedBlocks(
        shape.spec, shape.lengths[size_t(i % shape.batch)], shape.lag);
    for (int64_t b = 0; b < blocks; ++b)
      maximiseScales(shape.spec, cache.thumbnail(cache.page(0, b), head), top);
  });
  if (Error e = put(p.pageTable, machine, "page table", table))
    return std::move(e);
  if (Error e = put(p.smax, machine, "smax", scales))
    return std::move(e);
  // A sequence without committed blocks has none, whatever the others have.
  std::vector<uint16_t> centres;
  for (int64_t i = 0; i < copies && !sequence.centres().empty(); ++i) {
    const bool some =
        committedBlocks(shape.spec, shape.lengths[size_t(i % shape.batch)],
                        shape.lag) > 0;
    for (uint16_t c : sequence.centres())
      centres.push_back(some ? c : 0);
  }
  if (!centres.empty())
    if (Error e = put(p.centre, machine, "centres", centres))
      return std::move(e);
  if (Error e = p.kept.allocate(machine.cuda(), "kept mask",
                                shape.rows() * p.selectStride))
    return std::move(e);
  return std::move(pool);
}

Expected<std::unique_ptr<Pool>> Pool::createDense(const PoolShape &shape,
                                                  const Sequence &sequence,
                                                  Machine &machine) {
  std::unique_ptr<Pool> pool(new Pool(shape, machine));
  Pool &p = *pool;
  if (Error e = p.createCommon(sequence))
    return std::move(e);
  p.tailStride = sequence.options().tokens;
  for (auto [memory, what, data, dim] :
       {std::tuple(&p.tailK, "keys", sequence.k(), shape.spec.head_dim),
        std::tuple(&p.tailV, "values", sequence.v(), shape.spec.value_dim)}) {
    int64_t bytes = shape.kvHeads * p.tailStride * dim * 2;
    if (Error e =
            memory->allocate(machine.cuda(), what, shape.sequences() * bytes))
      return std::move(e);
    if (Error e = memory->upload(data, bytes))
      return std::move(e);
    if (Error e = memory->replicate(bytes, shape.sequences()))
      return std::move(e);
  }
  return std::move(pool);
}

Error Pool::reserveSplits(int64_t splits) {
  pieces = 0;
  int64_t bytes =
      layoutOf(poolShape.spec)
          .workspaceBytes(poolShape.rows(), splits, poolShape.spec.group);
  if (Error e = workspace.allocate(machine.cuda(), "workspace", bytes))
    return e;
  return workspace.fill(0);
}

static Error makePlan(const PoolShape &shape, int64_t target,
                      std::vector<ffdPiece> &list) {
  PlanOptions options;
  options.batch = int32_t(shape.batch);
  options.kvHeads = int32_t(shape.kvHeads);
  options.lag = int32_t(shape.lag);
  options.target = target;
  std::vector<int32_t> visible(shape.lengths.begin(), shape.lengths.end());
  list.resize(size_t(std::max(target, shape.rows())));
  return tools::toError(planPieces(shape.spec, options, visible.data(),
                                   list.data(), int64_t(list.size())));
}

ffdPlanArgs Pool::planArgs(int64_t target) const {
  ffdPlanArgs a = {};
  a.lengths = lengths.as<int32_t>();
  a.plan = plan.as<ffdPiece>();
  a.batch = int32_t(poolShape.batch);
  a.kv_heads = int32_t(poolShape.kvHeads);
  a.lag = int32_t(poolShape.lag);
  a.pieces = int32_t(pieces);
  a.target = int32_t(target);
  return a;
}

Expected<bool> Pool::planIsRight(int64_t target) const {
  std::vector<ffdPiece> expected;
  if (Error e = makePlan(poolShape, target, expected))
    return std::move(e);
  std::vector<ffdPiece> found(expected.size());
  const int64_t bytes = int64_t(found.size() * sizeof(ffdPiece));
  if (Error e = plan.download(found.data(), bytes))
    return std::move(e);
  return std::memcmp(found.data(), expected.data(), size_t(bytes)) == 0;
}

Error Pool::reservePlan(int64_t target) {
  std::vector<ffdPiece> list;
  if (Error e = makePlan(poolShape, target, list))
    return e;
  if (Error e = put(plan, machine, "plan", list))
    return e;
  pieces = int64_t(list.size());
  int64_t bytes = layoutOf(poolShape.spec)
                      .plannedWorkspaceBytes(poolShape.rows(), pieces,
                                             poolShape.spec.group);
  if (Error e = workspace.allocate(machine.cuda(), "workspace", bytes))
    return e;
  return workspace.fill(0);
}

Error Pool::setDelta(float value) {
  std::vector<float> all(size_t(poolShape.sequences()), value);
  return delta.upload(all.data(), poolShape.sequences() * 4);
}

ffdDecodeArgs Pool::args(int64_t i, int64_t splits, bool withKept) const {
  const PoolShape &s = poolShape;
  int64_t first = i % s.rotations * s.batch; // sequence of the pool
  int64_t heads = s.kvHeads * s.spec.group;
  ffdDecodeArgs a = {};
  a.q = q.as<uint16_t>(first * heads * s.spec.head_dim);
  a.lengths = lengths.as<int32_t>(first);
  a.delta = delta.as<float>(first);
  a.out = out.as<float>(first * heads * s.spec.value_dim);
  a.lse = lse.as<float>(first * heads);
  a.skipped_lse =
      s.spec.certificate ? skipped.as<float>(first * heads) : nullptr;
  a.workspace = workspace.as<void *>();
  a.q_batch_stride = heads * s.spec.head_dim;
  a.q_head_stride = s.spec.head_dim;
  a.tail_k =
      tailK.as<uint16_t>(first * s.kvHeads * tailStride * s.spec.head_dim);
  a.tail_v =
      tailV.as<uint16_t>(first * s.kvHeads * tailStride * s.spec.value_dim);
  a.tail_batch_stride = s.kvHeads * tailStride;
  a.tail_head_stride = tailStride;
  a.batch = int32_t(s.batch);
  a.kv_heads = int32_t(s.kvHeads);
  a.splits = int32_t(splits);
  a.sm_scale = float(1 / std::sqrt(double(s.spec.head_dim)));
  if (!sparse)
    return a;
  a.lag = int32_t(s.lag);
  if (pieces) {
    a.plan = plan.as<ffdPiece>();
    a.pieces = int32_t(pieces);
  }
  a.thumbnails = thumbnails.as<uint8_t>();
  a.residuals = residuals.as<uint8_t>();
  a.values = values.as<uint8_t>();
  a.smax =
      smax.as<uint16_t>(first * s.kvHeads * layoutOf(s.spec).paddedHeadDim());
  if (s.spec.centre != FFD_CENTRE_NONE)
    a.centre = centre.as<uint16_t>(first * s.kvHeads * s.spec.head_dim);
  a.page_table = pageTable.as<int32_t>(first * pageStride);
  a.page_stride = pageStride;
  a.kept = withKept ? kept.as<uint8_t>() : nullptr;
  a.kept_stride = withKept ? selectStride : 0;
  return a;
}

Error Pool::poison() {
  if (sparse)
    if (Error e = kept.fill(0xFF))
      return e;
  if (Error e = lse.fill(0xFF))
    return e;
  if (sparse && poolShape.spec.certificate)
    if (Error e = skipped.fill(0xFF))
      return e;
  return out.fill(0xFF);
}

Error Pool::fetch(std::vector<float> &o, std::vector<float> &l,
                  std::vector<uint8_t> *mask) const {
  int64_t heads = poolShape.rows() * poolShape.spec.group;
  o.resize(size_t(heads * poolShape.spec.value_dim));
  l.resize(size_t(heads));
  if (Error e = out.download(o.data(), int64_t(o.size()) * 4))
    return e;
  if (Error e = lse.download(l.data(), int64_t(l.size()) * 4))
    return e;
  if (!mask)
    return Error::success();
  mask->resize(size_t(poolShape.rows() * selectStride));
  return kept.download(mask->data(), int64_t(mask->size()));
}

} // namespace ffd::bench
