//===- GuardedCase.cpp - A decode in memory that ends at a guard ----------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// See GuardedCase.h.
//
//===----------------------------------------------------------------------===//

#include "GuardedCase.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace ffd;

GuardedBuffer::GuardedBuffer(const void *from, int64_t bytes, bool atEnd)
    : bytes(bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t inside = (bytes + page - 1) / page * page;
  mapped = inside + 2 * page;
  void *memory = mmap(nullptr, size_t(mapped), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    ADD_FAILURE() << "mmap of " << mapped << " bytes";
    std::abort();
  }
  mapping = static_cast<uint8_t *>(memory);
  if (inside)
    mprotect(mapping + page, size_t(inside), PROT_READ | PROT_WRITE);
  begin = mapping + page + (atEnd ? inside - bytes : 0);
  if (bytes)
    std::memcpy(begin, from, size_t(bytes));
}

GuardedBuffer::~GuardedBuffer() { munmap(mapping, size_t(mapped)); }

void GuardedBuffer::makeReadOnly() {
  const int64_t page = sysconf(_SC_PAGESIZE);
  mprotect(mapping + page, size_t(mapped - 2 * page), PROT_READ);
}

template <typename T>
void GuardedCase::place(T *&pointer, int64_t bytes, bool readOnly) {
  buffers.push_back(std::make_unique<GuardedBuffer>(pointer, bytes, atEnd));
  if (readOnly)
    buffers.back()->makeReadOnly();
  pointer = reinterpret_cast<T *>(buffers.back()->data());
}

GuardedCase::GuardedCase(RandomCase &original, int splits, bool atEnd)
    : original(original), atEnd(atEnd), guarded(original.args) {
  const ffdSpec &spec = original.shape.spec;
  const SplitCache &cache = *original.cache;
  ffdDecodeArgs &a = guarded;
  a.splits = splits;
  // The last tail token and table entry, of whichever sequence has it; kept up
  // to the last selection block of the last row.
  int64_t tail = 0, table = 0, pages = 0;
  for (int64_t s = 0; s < a.batch; ++s) {
    if (int64_t count = cache.tailLength(s))
      tail = std::max(tail, s * a.tail_batch_stride +
                                (a.kv_heads - 1) * a.tail_head_stride + count);
    if (int64_t blocks = cache.blocks(s)) {
      table = s * a.page_stride + blocks;
      keptBytes = ((s + 1) * a.kv_heads - 1) * a.kept_stride + cache.selects(s);
    }
    for (int64_t block = 0; block < cache.blocks(s); ++block)
      pages = std::max(pages, cache.page(s, block) + 1);
  }
  const Layout layout = layoutOf(spec);
  const int64_t slots = pages * a.kv_heads;
  place(a.q, original.q.size(), true);
  place(a.thumbnails, slots * layout.thumbnailBytes(), true);
  place(a.residuals, slots * layout.residualBytes(), true);
  place(a.values, slots * layout.valueBytes(), true);
  place(a.smax, cache.rows() * layout.paddedHeadDim() * 2, true);
  if (spec.centre != FFD_CENTRE_NONE)
    place(a.centre, cache.rows() * spec.head_dim * 2, true);
  place(a.tail_k, tail * spec.head_dim * 2, true);
  place(a.tail_v, tail * spec.value_dim * 2, true);
  place(a.page_table, table * 4, true);
  place(a.lengths, a.batch * 4, true);
  place(a.delta, a.batch * 4, true);
  std::memset(original.out.data(), 0xFF, size_t(original.out.size()));
  std::memset(original.lse.data(), 0xFF, size_t(original.lse.size()));
  place(a.out, original.out.size(), false);
  place(a.lse, original.lse.size(), false);
  if (spec.certificate) {
    std::memset(original.skipped.data(), 0xFF, size_t(original.skipped.size()));
    place(a.skipped_lse, original.skipped.size(), false);
  }
  place(a.kept, keptBytes, false);
  const int64_t bytes = layout.workspaceBytes(cache.rows(), splits, spec.group);
  std::vector<uint8_t> workspace(size_t(bytes), 0xFF);
  std::fill_n(workspace.begin(), cache.rows() * 4, uint8_t(0));
  a.workspace = workspace.data();
  place(a.workspace, bytes, false);
}

void GuardedCase::copyResults() {
  std::memcpy(original.args.out, guarded.out, size_t(original.out.size()));
  std::memcpy(original.args.lse, guarded.lse, size_t(original.lse.size()));
  if (original.args.skipped_lse)
    std::memcpy(original.args.skipped_lse, guarded.skipped_lse,
                size_t(original.skipped.size()));
  if (keptBytes)
    std::memcpy(original.args.kept, guarded.kept, size_t(keptBytes));
}
