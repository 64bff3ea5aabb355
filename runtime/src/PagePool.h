//===- PagePool.h - Which pages are free, and who shares them ---*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ids and reference counts only; the memory behind the ids is elsewhere. The
// page given back last is the first to be taken again.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_SRC_PAGEPOOL_H
#define FFD_SRC_PAGEPOOL_H

#include <cstdint>
#include <vector>

namespace ffd {

class PagePool {
public:
  explicit PagePool(int64_t pages = 0) : references(size_t(pages), 0) {
    unused.reserve(size_t(pages));
    for (int64_t page = pages - 1; page >= 0; --page)
      unused.push_back(int32_t(page));
  }

  int64_t pages() const { return int64_t(references.size()); }
  int64_t freePages() const { return int64_t(unused.size()); }

  /// Appends `count` pages with one reference each; all or none.
  bool take(int64_t count, std::vector<int32_t> &to) {
    if (count > freePages())
      return false;
    for (int64_t i = 0; i < count; ++i) {
      to.push_back(unused.back());
      unused.pop_back();
      references[size_t(to.back())] = 1;
    }
    return true;
  }
  void share(int32_t page) { ++references[size_t(page)]; }
  void giveBack(int32_t page) {
    if (--references[size_t(page)] == 0)
      unused.push_back(page);
  }

private:
  std::vector<int32_t> references; ///< sequences that hold a page
  std::vector<int32_t> unused;     ///< a stack
};

} // namespace ffd
#endif // FFD_SRC_PAGEPOOL_H
