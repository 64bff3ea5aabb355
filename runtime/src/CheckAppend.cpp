//===- CheckAppend.cpp - Checking append arguments --------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a host sees of ffdAppendArgs whose memory is on a device: sizes, strides
// and addresses. What the memory says is the kernel's to check.
//
//===----------------------------------------------------------------------===//

#include "ffd/Kernel.h"

#include <string>
#include <tuple>

using namespace ffd;

static Status badField(const char *field, const std::string &value,
                       const std::string &expected) {
  return Status::invalid(std::string("'ffdAppendArgs' field '") + field +
                         "' is " + value + ", expected " + expected);
}

Status ffd::checkAppendArgs(const ffdSpec &spec, const ffdAppendArgs &a) {
  FFD_RETURN_IF_ERROR(checkSpec(spec));
  for (auto [field, value, least] :
       {std::tuple<const char *, int32_t, int32_t>{"batch", a.batch, 1},
        {"kv_heads", a.kv_heads, 1},
        {"splits", a.splits, 1},
        {"lag", a.lag, 0},
        {"pages", a.pages, 0},
        {"slot_count", a.slot_count, a.slots ? 1 : 0}})
    if (value < least)
      return badField(field, std::to_string(value),
                      "at least " + std::to_string(least));
  int64_t ctas;
  if (!checkedProduct({a.batch, a.kv_heads, a.splits}, ctas) ||
      ctas > INT32_MAX)
    return Status::invalid(
        "batch * kv_heads * splits of 'ffdAppendArgs' is " +
        std::to_string(a.batch) + " * " + std::to_string(a.kv_heads) + " * " +
        std::to_string(a.splits) + ", expected at most 2147483647");
  // Less could not even hold what is younger than the lag.
  const int64_t tail = int64_t(a.lag) + spec.quant_block - 1;
  if (a.tail_tokens < tail)
    return badField("tail_tokens", std::to_string(a.tail_tokens),
                    "at least lag + 127 = " + std::to_string(tail));
  for (auto [field, value, multiple] :
       {std::tuple<const char *, int64_t, int64_t>{"k_token_stride",
                                                   a.k_token_stride, 8},
        {"k_head_stride", a.k_head_stride, 8},
        {"v_token_stride", a.v_token_stride, 8},
        {"v_head_stride", a.v_head_stride, 8},
        {"page_stride", a.page_stride, 1},
        {"tail_batch_stride", a.tail_batch_stride, 1},
        {"tail_head_stride", a.tail_head_stride, 1}})
    if (value < 0 || value % multiple != 0)
      return badField(field, std::to_string(value),
                      multiple == 1 ? "at least 0"
                                    : "a multiple of 8, at least 0");
  // Rows that overlap would be written by several teams.
  if (a.kv_heads > 1 && a.tail_head_stride < a.tail_tokens)
    return badField("tail_head_stride", std::to_string(a.tail_head_stride),
                    "at least tail_tokens = " + std::to_string(a.tail_tokens));
  if (a.batch > 1 && a.tail_batch_stride < a.tail_tokens)
    return badField("tail_batch_stride", std::to_string(a.tail_batch_stride),
                    "at least tail_tokens = " + std::to_string(a.tail_tokens));
  const bool inPlace = a.new_lengths == a.lengths;
  struct Pointer {
    const char *field;
    const void *pointer;
    uintptr_t align;
    bool needed;
  };
  for (const Pointer &p :
       {Pointer{"k", a.k, 16, false}, Pointer{"v", a.v, 16, false},
        Pointer{"thumbnails", a.thumbnails, 16, false},
        Pointer{"residuals", a.residuals, 16, false},
        Pointer{"values", a.values, 16, false},
        Pointer{"smax", a.smax, 16, true},
        Pointer{"centre", a.centre, 16, spec.centre != FFD_CENTRE_NONE},
        Pointer{"tail_k", a.tail_k, 16, true},
        Pointer{"tail_v", a.tail_v, 16, true},
        Pointer{"page_table", a.page_table, 4, false},
        Pointer{"lengths", a.lengths, 4, true},
        Pointer{"new_lengths", a.new_lengths, 4, false},
        Pointer{"offsets", a.offsets, 4, true},
        Pointer{"reserved", a.reserved, 4, true},
        Pointer{"errors", a.errors, 4, true},
        Pointer{"slots", a.slots, 4, false},
        Pointer{"committed", a.committed, 4, false},
        Pointer{"workspace", a.workspace, 16, a.splits > 1 || inPlace}}) {
    if (!p.pointer && p.needed)
      return badField(p.field, "null", "a pointer");
    if (uintptr_t(p.pointer) % p.align != 0)
      return badField(p.field,
                      "not aligned (its address ends in " +
                          std::to_string(uintptr_t(p.pointer) % p.align) +
                          " of " + std::to_string(p.align) + ")",
                      "an address that is a multiple of " +
                          std::to_string(p.align));
  }
  return Status::success();
}
