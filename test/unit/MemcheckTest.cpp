//===- MemcheckTest.cpp - Every byte that a CPU kernel touches --------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ffd-memcheck-tests, for scripts/check-sanitizers: runs the kernel packages of
// $FFD_MEMCHECK_KERNELS under valgrind's memcheck. Machine code knows no
// sanitizer, so the test says which bytes exist for it: the planes only where
// the page table leads, residuals and V only of kept selection blocks, tails
// only as far as the lengths go. Outputs and partial results begin as
// undefined.
//
//===----------------------------------------------------------------------===//

#include "RandomCase.h"

#include "ffd/FindKernel.h"
#include "ffd/Package.h"

#include "gtest/gtest.h"

#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <sys/stat.h>
#include <valgrind/memcheck.h>

using namespace ffd;

namespace {

void hide(const void *from, int64_t bytes) {
  (void)VALGRIND_MAKE_MEM_NOACCESS(from, bytes);
}
void show(const void *from, int64_t bytes) {
  (void)VALGRIND_MAKE_MEM_DEFINED(from, bytes);
}
void undefine(const void *from, int64_t bytes) {
  (void)VALGRIND_MAKE_MEM_UNDEFINED(from, bytes);
}
/// Whether some byte of an output was not written, or from undefined bytes.
bool undefinedIn(const void *from, int64_t bytes) {
  return VALGRIND_CHECK_MEM_IS_DEFINED(from, bytes) != 0;
}

/// A case whose memory memcheck knows; everything is accessible again
/// afterwards.
class WatchedCase {
public:
  WatchedCase(RandomCase &c, Program program, HostBuffer &workspace)
      : c(c), cache(*c.cache), a(c.args), spec(c.shape.spec),
        layout(layoutOf(spec)), program(program), workspace(workspace) {
    keptCopy.assign(c.kept.data(), c.kept.data() + c.kept.size());
    hidePlanes();
    for (int64_t s = 0; s < c.batch(); ++s)
      showSequence(s);
    showTails();
    undefine(c.out.data(), c.out.size());
    undefine(c.lse.data(), c.lse.size());
    const int64_t counters = Layout::partialsOffset(cache.rows());
    undefine(workspace.data() + counters, workspace.size() - counters);
  }
  ~WatchedCase() {
    show(a.thumbnails, cache.thumbnailPlaneBytes());
    show(a.residuals, cache.residualPlaneBytes());
    show(a.values, cache.valuePlaneBytes());
    show(a.tail_k, tailRows() * spec.head_dim * 2);
    show(a.tail_v, tailRows() * spec.value_dim * 2);
    if (cache.maxBlocks())
      show(a.page_table, c.batch() * a.page_stride * 4);
    show(c.kept.data(), c.kept.size());
    show(c.out.data(), c.out.size());
    show(c.lse.data(), c.lse.size());
    show(workspace.data(), workspace.size());
  }

  /// The first kept selection block's residuals, or null.
  const uint8_t *keptResidual = nullptr;

  bool outputsAreDefined() const {
    bool undefined = undefinedIn(c.out.data(), c.out.size()) ||
                     undefinedIn(c.lse.data(), c.lse.size());
    for (int64_t row = 0; program == Program::Decode && row < cache.rows();
         ++row)
      undefined |= undefinedIn(a.kept + row * a.kept_stride,
                               cache.selects(row / c.shape.kvHeads));
    return !undefined;
  }

private:
  int64_t tailRows() const { return a.tail_batch_stride * c.batch(); }

  void hidePlanes() {
    hide(a.thumbnails, cache.thumbnailPlaneBytes());
    hide(a.residuals, cache.residualPlaneBytes());
    hide(a.values, cache.valuePlaneBytes());
    if (cache.maxBlocks())
      hide(a.page_table, c.batch() * a.page_stride * 4);
    hide(c.kept.data(), c.kept.size());
  }

  void showSequence(int64_t s) {
    if (program != Program::Decode)
      return;
    const int64_t blocks = cache.blocks(s);
    if (blocks)
      show(a.page_table + s * a.page_stride, blocks * 4);
    for (int64_t head = 0; head < c.shape.kvHeads; ++head) {
      const int64_t row = s * c.shape.kvHeads + head;
      undefine(a.kept + row * a.kept_stride, cache.selects(s));
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t page = cache.page(s, block);
        show(cache.thumbnail(page, head), layout.thumbnailBytes());
        showKept(page, head,
                 row * a.kept_stride + block * layout.selectsPerBlock());
        if (spec.pseudo_max == FFD_PSEUDO_MAX_REFINED &&
            (block == 0 || block == blocks - 1))
          show(cache.residual(page, head), layout.residualBytes());
      }
    }
  }

  void showKept(int64_t page, int64_t head, int64_t firstSelect) {
    const int64_t tiles = spec.select_block / kTileTokens;
    const int64_t residual = tiles * layout.residualTileBytes();
    const int64_t value = tiles * layout.valueTileBytes();
    for (int64_t select = 0; select < layout.selectsPerBlock(); ++select) {
      if (!keptCopy[size_t(firstSelect + select)])
        continue;
      show(cache.residual(page, head) + select * residual, residual);
      show(cache.value(page, head) + select * value, value);
      if (!keptResidual && residual)
        keptResidual = cache.residual(page, head) + select * residual;
    }
  }

  void showTails() {
    hide(a.tail_k, tailRows() * spec.head_dim * 2);
    hide(a.tail_v, tailRows() * spec.value_dim * 2);
    for (int64_t s = 0; s < c.batch(); ++s)
      for (int64_t head = 0; head < c.shape.kvHeads; ++head) {
        const int64_t row = s * a.tail_batch_stride + head * a.tail_head_stride;
        show(static_cast<const uint16_t *>(a.tail_k) + row * spec.head_dim,
             cache.tailLength(s) * spec.head_dim * 2);
        show(static_cast<const uint16_t *>(a.tail_v) + row * spec.value_dim,
             cache.tailLength(s) * spec.value_dim * 2);
      }
  }

  RandomCase &c;
  const SplitCache &cache;
  const ffdDecodeArgs &a;
  const ffdSpec &spec;
  const Layout layout;
  const Program program;
  HostBuffer &workspace;
  std::vector<uint8_t> keptCopy;
};

std::vector<Package> packages() {
  std::vector<Package> found;
  const char *folder = std::getenv("FFD_MEMCHECK_KERNELS");
  DIR *directory = folder ? opendir(folder) : nullptr;
  while (const dirent *entry = directory ? readdir(directory) : nullptr) {
    const std::string path = std::string(folder) + "/" + entry->d_name;
    if (path.size() < 5 || path.substr(path.size() - 5) != ".ffdk")
      continue;
    found.emplace_back();
    const Status status = Package::read(path, found.back());
    EXPECT_TRUE(status.ok()) << status.message();
  }
  if (directory)
    closedir(directory);
  return found;
}

/// The loader wants the canonical name, in a folder of its own.
std::unique_ptr<DecodeKernel> load(const Package &package) {
  const std::string folder =
      std::string(std::getenv("FFD_MEMCHECK_KERNELS")) + "/named";
  mkdir(folder.c_str(), 0777);
  EXPECT_TRUE(package.write(folder + "/" + package.fileName()).ok());
  FindKernelOptions options;
  options.program = package.program;
  options.target = package.target;
  options.packageDir = folder;
  options.useJit = false;
  options.pool = &testPool();
  std::unique_ptr<DecodeKernel> kernel;
  const Status status = findKernel(package.spec, options, kernel);
  EXPECT_TRUE(status.ok()) << status.message();
  return kernel;
}

std::vector<CaseShape> shapesOf(const Package &package) {
  std::vector<CaseShape> shapes;
  const int queries = queryTokens(package.spec);
  for (const std::vector<int64_t> &lengths : std::vector<std::vector<int64_t>>{
           {0}, {1}, {127}, {128}, {129, 17}, {300, 0, 15, 640}})
    for (int64_t lag : {queries - 1, 20}) {
      CaseShape shape;
      shape.spec = package.spec;
      shape.lengths = lengths;
      // Exact reads everything from the tails.
      shape.lag = package.program == Program::Exact ? 1000 : lag;
      shape.kvHeads = lengths.size() == 1 ? 1 : 2;
      shape.pageSeed = 7;
      shape.delta = 1;
      shape.keySpread = 2;
      shapes.push_back(shape);
    }
  return shapes;
}

Status allocateWorkspace(RandomCase &c, int splits, HostBuffer &workspace) {
  const ffdSpec &spec = c.shape.spec;
  FFD_RETURN_IF_ERROR(workspace.allocate(
      "workspace",
      layoutOf(spec).workspaceBytes(c.cache->rows(), splits, rowHeads(spec)),
      0));
  c.args.splits = splits;
  c.args.workspace = workspace.data();
  return Status::success();
}

/// Decodes once with everything accessible, to know what is kept, and once
/// more.
void check(DecodeKernel &kernel, const CaseShape &shape, int splits,
           int64_t &keptBlocks, int64_t &blocks) {
  RandomCase c(shape, 11);
  HostBuffer workspace;
  ASSERT_TRUE(allocateWorkspace(c, splits, workspace).ok());
  Status status = kernel.decode(c.args);
  ASSERT_TRUE(status.ok()) << status.message();
  const std::vector<uint8_t> out(c.out.data(), c.out.data() + c.out.size());
  if (kernel.program() == Program::Decode) {
    const DecodeBytes bytes =
        c.cache->decodeBytes(c.kept.data(), c.args.kept_stride);
    keptBlocks += bytes.keptBlocks;
    blocks += bytes.selectBlocks;
  }

  const auto before = VALGRIND_COUNT_ERRORS;
  {
    WatchedCase watched(c, kernel.program(), workspace);
    status = kernel.decode(c.args);
    EXPECT_TRUE(watched.outputsAreDefined());
  }
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(VALGRIND_COUNT_ERRORS - before, 0u);
  EXPECT_EQ(std::memcmp(c.out.data(), out.data(), out.size()), 0);
}

TEST(Memcheck, KernelsTouchWhatTheyMay) {
  ASSERT_TRUE(RUNNING_ON_VALGRIND) << "expected to run under valgrind";
  const std::vector<Package> all = packages();
  ASSERT_FALSE(all.empty()) << "no package in $FFD_MEMCHECK_KERNELS";
  for (const Package &package : all) {
    const std::unique_ptr<DecodeKernel> kernel = load(package);
    ASSERT_TRUE(kernel);
    int64_t keptBlocks = 0, blocks = 0;
    for (const CaseShape &shape : shapesOf(package))
      for (int splits : {1, 3}) {
        SCOPED_TRACE(package.fileName() + " splits " + std::to_string(splits) +
                     " lag " + std::to_string(shape.lag) + " first length " +
                     std::to_string(shape.lengths[0]));
        check(*kernel, shape, splits, keptBlocks, blocks);
      }
    // Otherwise there was nothing to leave alone, or nothing to read.
    if (package.program == Program::Decode) {
      EXPECT_GT(keptBlocks, 0) << package.fileName();
      EXPECT_LT(keptBlocks, blocks) << package.fileName();
    }
  }
}

/// What would be found: a byte less to read or to write is an error.
TEST(Memcheck, SeesAByteTooFar) {
  ASSERT_TRUE(RUNNING_ON_VALGRIND) << "expected to run under valgrind";
  for (const Package &package : packages()) {
    if (package.program != Program::Decode || package.spec.no_residuals)
      continue;
    const std::unique_ptr<DecodeKernel> kernel = load(package);
    ASSERT_TRUE(kernel);
    const CaseShape shape = shapesOf(package).back();
    for (const char *what : {"residual", "out"}) {
      RandomCase c(shape, 11);
      HostBuffer workspace;
      ASSERT_TRUE(allocateWorkspace(c, 1, workspace).ok());
      ASSERT_TRUE(kernel->decode(c.args).ok());
      WatchedCase watched(c, package.program, workspace);
      ASSERT_NE(watched.keptResidual, nullptr);
      hide(*what == 'r' ? watched.keptResidual + 3
                        : c.out.data() + c.out.size() - 1,
           1);
      const auto before = VALGRIND_COUNT_ERRORS;
      VALGRIND_PRINTF("the test expects an error to be reported now\n");
      (void)kernel->decode(c.args);
      EXPECT_GT(VALGRIND_COUNT_ERRORS - before, 0u) << what;
    }
    return;
  }
  FAIL() << "no decode package in $FFD_MEMCHECK_KERNELS";
}

} // namespace
