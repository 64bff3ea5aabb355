//===- CheckArgs.cpp - Checking decode arguments ----------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every field against abi.h and docs/numerics.md: scalars first, then what the
// per-sequence arrays say, then the pointers that are needed for that.
//
//===----------------------------------------------------------------------===//

#include "ArgExtents.h"

#include <algorithm>
#include <cmath>

using namespace ffd;

namespace {

Status badField(const std::string &field, const std::string &value,
                const std::string &expected) {
  return Status::invalid("'ffdDecodeArgs' field '" + field + "' is " + value +
                         ", expected " + expected);
}
Status badField(const std::string &field, int64_t value,
                const std::string &expected) {
  return badField(field, std::to_string(value), expected);
}

Status checkPointer(const char *field, const void *pointer, uintptr_t align) {
  if (!pointer)
    return badField(field, "null", "a pointer");
  if (uintptr_t(pointer) % align != 0)
    return badField(field,
                    "not aligned (its address ends in " +
                        std::to_string(uintptr_t(pointer) % align) + " of " +
                        std::to_string(align) + ")",
                    "an address that is a multiple of " +
                        std::to_string(align));
  return Status::success();
}

Status checkStride(const char *field, int64_t value, int64_t multiple) {
  if (value < 0 || value % multiple != 0)
    return badField(field, value,
                    multiple == 1
                        ? std::string("at least 0")
                        : "a multiple of " + std::to_string(multiple) +
                              ", at least 0");
  return Status::success();
}

/// (count0 - 1) * stride0 + (count1 - 1) * stride1 + last, times unit.
Status extentOf(const char *field, int64_t count0, int64_t stride0,
                int64_t count1, int64_t stride1, int64_t last, int64_t unit,
                int64_t &bytes) {
  int64_t a, b, sum;
  if (!checkedProduct({count0 - 1, stride0}, a) ||
      !checkedProduct({count1 - 1, stride1}, b) ||
      __builtin_add_overflow(a, b, &sum) ||
      __builtin_add_overflow(sum, last, &sum) ||
      !checkedProduct({sum, unit}, bytes))
    return Status::invalid(
        std::string("the extent of 'ffdDecodeArgs' field '") + field +
        "' does not fit in 64 bits, expected smaller strides");
  return Status::success();
}

class Checker {
public:
  Checker(const ffdSpec &spec, Program program, const ffdDecodeArgs &args,
          ArgExtents &extents)
      : spec(spec), layout(layoutOf(spec)), sparse(program == Program::Decode),
        a(args), x(extents) {}

  Status run() {
    FFD_RETURN_IF_ERROR(checkSpec(spec, /*ablations=*/true));
    FFD_RETURN_IF_ERROR(scalars());
    FFD_RETURN_IF_ERROR(sequences());
    FFD_RETURN_IF_ERROR(pointers());
    return sizes();
  }

private:
  Status scalars() {
    if (a.batch < 1)
      return badField("batch", a.batch, "at least 1");
    if (a.kv_heads < 1)
      return badField("kv_heads", a.kv_heads, "at least 1");
    if (a.splits < 0)
      return badField("splits", a.splits,
                      "at least 1, or 0 for the kernel's own choice");
    if (a.splits == 0 && a.workspace)
      return badField("splits", a.splits,
                      "at least 1 where a workspace is given");
    if (a.lag < 0)
      return badField("lag", a.lag, "at least 0");
    if (sparse && a.lag < queryTokens(spec) - 1)
      return badField("lag", a.lag,
                      "at least query_tokens - 1 = " +
                          std::to_string(queryTokens(spec) - 1) +
                          ": the tokens that ask must be in the tail");
    if (!(a.sm_scale > 0) || !std::isfinite(a.sm_scale))
      return badField("sm_scale", std::to_string(a.sm_scale),
                      "a finite number above 0");
    if (a.plan || a.pieces != 0)
      return Status::invalid("field 'plan' of 'ffdDecodeArgs' is given, "
                             "expected NULL and 0 pieces: a plan is for "
                             "launches over device memory");
    x.rows = int64_t(a.batch) * a.kv_heads;
    int64_t tasks;
    if (!checkedProduct({x.rows, std::max(1, a.splits)}, tasks) ||
        tasks > INT32_MAX)
      return Status::invalid(
          "batch * kv_heads * splits of 'ffdDecodeArgs' is " +
          std::to_string(a.batch) + " * " + std::to_string(a.kv_heads) + " * " +
          std::to_string(a.splits) + ", expected at most 2147483647");
    FFD_RETURN_IF_ERROR(checkStride("q_batch_stride", a.q_batch_stride, 8));
    FFD_RETURN_IF_ERROR(checkStride("q_head_stride", a.q_head_stride, 8));
    if (queryTokens(spec) > 1)
      FFD_RETURN_IF_ERROR(checkStride("q_token_stride", a.q_token_stride, 8));
    FFD_RETURN_IF_ERROR(
        checkStride("tail_batch_stride", a.tail_batch_stride, 1));
    FFD_RETURN_IF_ERROR(checkStride("tail_head_stride", a.tail_head_stride, 1));
    if (!sparse)
      return Status::success();
    FFD_RETURN_IF_ERROR(checkStride("page_stride", a.page_stride, 1));
    return a.kept ? checkStride("kept_stride", a.kept_stride, 1)
                  : Status::success();
  }

  Status sequences() {
    FFD_RETURN_IF_ERROR(checkPointer("lengths", a.lengths, 4));
    if (sparse)
      FFD_RETURN_IF_ERROR(checkPointer("delta", a.delta, 4));
    for (int64_t s = 0; s < a.batch; ++s) {
      const std::string index = "[" + std::to_string(s) + "]";
      const int64_t length = a.lengths[s];
      if (length < 0)
        return badField("lengths" + index, length, "at least 0");
      x.maxLength = std::max(x.maxLength, length);
      const int64_t blocks = sparse ? committedBlocks(spec, length, a.lag) : 0;
      maxTail =
          std::max(maxTail, sparse ? tailTokens(spec, length, a.lag) : length);
      maxBlocks = std::max(maxBlocks, blocks);
      if (!sparse)
        continue;
      if (!(a.delta[s] >= 0)) // NaN too
        return badField("delta" + index, std::to_string(a.delta[s]),
                        "a number of at least 0, or infinity");
      FFD_RETURN_IF_ERROR(pageIds(s, blocks));
    }
    return Status::success();
  }

  Status pageIds(int64_t sequence, int64_t blocks) {
    if (blocks == 0)
      return Status::success();
    if (blocks > a.page_stride)
      return badField("page_stride", a.page_stride,
                      "at least " + std::to_string(blocks) +
                          ", the committed blocks of sequence " +
                          std::to_string(sequence));
    const int64_t selects = blocks * layout.selectsPerBlock();
    if (a.kept && selects > a.kept_stride)
      return badField("kept_stride", a.kept_stride,
                      "at least " + std::to_string(selects) +
                          ", the selection blocks of sequence " +
                          std::to_string(sequence));
    FFD_RETURN_IF_ERROR(checkPointer("page_table", a.page_table, 4));
    int64_t first;
    if (!checkedProduct({sequence, a.page_stride, 4}, first))
      return badField("page_stride", a.page_stride, "a smaller stride");
    first /= 4;
    for (int64_t block = 0; block < blocks; ++block) {
      const int32_t page = a.page_table[first + block];
      if (page < 0)
        return badField("page_table[" + std::to_string(sequence) + "][" +
                            std::to_string(block) + "]",
                        page, "a page id of at least 0");
      x.pages = std::max<int64_t>(x.pages, int64_t(page) + 1);
    }
    x.pageTable = (first + blocks) * 4;
    return Status::success();
  }

  Status pointers() {
    FFD_RETURN_IF_ERROR(checkPointer("q", a.q, 16));
    FFD_RETURN_IF_ERROR(checkPointer("out", a.out, 16));
    if (a.kept_count)
      FFD_RETURN_IF_ERROR(checkPointer("kept_count", a.kept_count, 8));
    if (a.lse)
      FFD_RETURN_IF_ERROR(checkPointer("lse", a.lse, 4));
    if (certified())
      FFD_RETURN_IF_ERROR(checkPointer("skipped_lse", a.skipped_lse, 4));
    if (a.workspace)
      FFD_RETURN_IF_ERROR(checkPointer("workspace", a.workspace, 16));
    if (sparse)
      FFD_RETURN_IF_ERROR(checkPointer("smax", a.smax, 16));
    if (centred())
      FFD_RETURN_IF_ERROR(checkPointer("centre", a.centre, 16));
    if (maxBlocks > 0) {
      FFD_RETURN_IF_ERROR(checkPointer("thumbnails", a.thumbnails, 16));
      FFD_RETURN_IF_ERROR(checkPointer("residuals", a.residuals, 16));
      FFD_RETURN_IF_ERROR(checkPointer("values", a.values, 16));
    }
    if (maxTail > 0) {
      FFD_RETURN_IF_ERROR(checkPointer("tail_k", a.tail_k, 16));
      FFD_RETURN_IF_ERROR(checkPointer("tail_v", a.tail_v, 16));
    }
    return Status::success();
  }

  Status sizes() {
    const int64_t heads = int64_t(a.kv_heads) * spec.group;
    FFD_RETURN_IF_ERROR(extentOf("q", a.batch, a.q_batch_stride, heads,
                                 a.q_head_stride, spec.head_dim, 2, x.q));
    if (int64_t tokens; queryTokens(spec) > 1) {
      FFD_RETURN_IF_ERROR(extentOf("q", 1, 0, queryTokens(spec),
                                   a.q_token_stride, 0, 2, tokens));
      if (__builtin_add_overflow(x.q, tokens, &x.q))
        return badField("q_token_stride", a.q_token_stride, "a smaller stride");
    }
    if (maxTail > 0) {
      FFD_RETURN_IF_ERROR(extentOf("tail_k", a.batch, a.tail_batch_stride,
                                   a.kv_heads, a.tail_head_stride, maxTail,
                                   int64_t(spec.head_dim) * 2, x.tailK));
      FFD_RETURN_IF_ERROR(extentOf("tail_v", a.batch, a.tail_batch_stride,
                                   a.kv_heads, a.tail_head_stride, maxTail,
                                   int64_t(spec.value_dim) * 2, x.tailV));
      trimTails();
    }
    const int64_t outputs = x.rows * rowHeads(spec);
    bool fits =
        checkedProduct({x.pages, a.kv_heads, layout.thumbnailBytes()},
                       x.thumbnails) &&
        checkedProduct({x.pages, a.kv_heads, layout.residualBytes()},
                       x.residuals) &&
        checkedProduct({x.pages, a.kv_heads, layout.valueBytes()}, x.values) &&
        checkedProduct({outputs, spec.value_dim, 4}, x.out);
    if (sparse)
      fits &= checkedProduct({x.rows, layout.paddedHeadDim(), 2}, x.smax);
    if (centred())
      fits &= checkedProduct({x.rows, spec.head_dim, 2}, x.centre);
    if (sparse && a.kept)
      fits &= checkedProduct({x.rows, a.kept_stride}, x.kept);
    if (!fits)
      return Status::invalid("the memory behind 'ffdDecodeArgs' does not fit "
                             "in 64 bits, expected smaller shapes");
    x.lengths = int64_t(a.batch) * 4;
    x.delta = sparse ? int64_t(a.batch) * 4 : 0;
    x.lse = a.lse ? outputs * 4 : 0;
    x.skippedLse = certified() ? outputs * 4 : 0;
    return Status::success();
  }

  /// Without a certificate the field may be beyond the caller's struct.
  bool certified() const { return sparse && spec.certificate && a.skipped_lse; }
  bool centred() const { return sparse && spec.centre != FFD_CENTRE_NONE; }

  /// The exact ends of the tails: the longest one need not be the last.
  void trimTails() {
    int64_t end = 0;
    for (int64_t s = 0; s < a.batch; ++s) {
      const int64_t tokens =
          sparse ? tailTokens(spec, a.lengths[s], a.lag) : a.lengths[s];
      if (tokens > 0)
        end = std::max(end, s * a.tail_batch_stride +
                                (a.kv_heads - 1) * a.tail_head_stride + tokens);
    }
    x.tailK = end * spec.head_dim * 2;
    x.tailV = end * spec.value_dim * 2;
  }

  const ffdSpec &spec;
  const Layout layout;
  const bool sparse;
  const ffdDecodeArgs &a;
  ArgExtents &x;
  int64_t maxBlocks = 0, maxTail = 0;
};

} // namespace

Status ffd::measureArgs(const ffdSpec &spec, Program program,
                        const ffdDecodeArgs &args, ArgExtents &extents) {
  extents = ArgExtents();
  return Checker(spec, program, args, extents).run();
}

Status ffd::checkArgs(const ffdSpec &spec, Program program,
                      const ffdDecodeArgs &args) {
  ArgExtents extents;
  return measureArgs(spec, program, args, extents);
}

Status ffd::workspaceBytes(const ffdSpec &spec, int64_t rows, int64_t splits,
                           int64_t &bytes) {
  const Layout layout = layoutOf(spec);
  int64_t partials;
  if (!checkedProduct({rows, splits, rowHeads(spec), layout.partialFloats(), 4},
                      partials) ||
      partials > INT64_MAX / 2)
    return Status(StatusCode::OutOfMemory,
                  "the workspace of " + std::to_string(rows) + " rows in " +
                      std::to_string(splits) +
                      " pieces does not fit in 64 bits");
  bytes = layout.workspaceBytes(rows, splits, rowHeads(spec));
  return Status::success();
}

int32_t ffd::pickSplits(const ffdSpec &spec, int64_t rows, int64_t maxLength,
                        int64_t tasks) {
  constexpr int64_t kMinBlocks = 16, kMaxPieces = 1024;
  const int64_t blocks = maxLength / spec.quant_block;
  const int64_t wanted = rows > 0 ? (tasks + rows - 1) / rows : 1;
  const int64_t most = std::min(kMaxPieces, blocks / kMinBlocks);
  return int32_t(std::max<int64_t>(1, std::min(wanted, most)));
}
