//===- KernelCacheTest.cpp - Compiled kernels on disk, and loading them -- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A stand-in compiler that counts, a folder, and everything that can be wrong
// with it: the kernel is right all the same.
//
//===----------------------------------------------------------------------===//

#include "FakeCuda.h"
#include "RandomCase.h"

#include "ffd/CudaDriver.h"
#include "ffd/FindKernel.h"
#include "ffd/Package.h"
#include "ffd/ffd.h"

#include "gtest/gtest.h"

#include <csignal>
#include <cstdlib>
#include <dirent.h>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <random>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace ffd;

extern char **environ;

namespace {

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file),
          std::istreambuf_iterator<char>()};
}

int compilations() {
  static const auto count = reinterpret_cast<int (*)()>(
      dlsym(dlopen(FFD_FAKE_JIT, RTLD_NOW), "fakeJitCompilations"));
  return count();
}

class KernelCacheTest : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(root), nullptr);
    folder = std::string(root) + "/a/b"; // does not exist yet
    options.pool = &testPool();
    options.jitPath = FFD_FAKE_JIT;
    options.cacheDir = folder;
    options.cacheNote = &note;
    spec.value_dim = 64;
    setenv("FFD_FAKE_JIT_OBJECT", FFD_LOADABLE_KERNEL, 1);
  }
  void TearDown() override {
    unsetenv("FFD_FAKE_JIT_OBJECT");
    const std::string remove = "rm -rf '" + std::string(root) + "'";
    EXPECT_EQ(std::system(remove.c_str()), 0);
  }

  void useGpu() {
    auto *fake = reinterpret_cast<FakeCudaState *(*)()>(
        dlsym(dlopen(FFD_FAKE_CUDA, RTLD_NOW), "fakeCudaState"))();
    fake->kernel = nullptr;
    std::shared_ptr<const CudaDriver> driver;
    ASSERT_TRUE(CudaDriver::load(FFD_FAKE_CUDA, driver).ok());
    ASSERT_TRUE(CudaContext::create(driver, 0, options.cuda).ok());
    options.target = "cuda";
  }

  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    if (DIR *dir = opendir(folder.c_str())) {
      while (const dirent *entry = readdir(dir))
        if (entry->d_name[0] != '.')
          names.push_back(folder + "/" + entry->d_name);
      closedir(dir);
    }
    return names;
  }

  /// Finds the kernel and returns how often the compiler was asked.
  int find() {
    const int before = compilations();
    note.clear();
    kernel.reset();
    Status status = findKernel(spec, options, kernel);
    EXPECT_TRUE(status.ok()) << status.message();
    return compilations() - before;
  }

  /// The loadable kernel computes what its source says.
  void run() {
    CaseShape shape;
    shape.spec = spec;
    shape.lengths = {3, 4};
    RandomCase c(shape, 1);
    for (int row = 0; row < 4; ++row)
      c.args.out[row * 64] = -1;
    Status status = kernel->decode(c.args);
    ASSERT_TRUE(status.ok()) << status.message();
    const double table[] = {0.5, 1.25, 8.0, -3.0};
    for (int row = 0; row < 4; ++row)
      EXPECT_EQ(c.args.out[row * 64],
                float(table[row] * c.args.sm_scale) + float(row + 1));
  }

  char root[32] = "/tmp/ffd-cache-XXXXXX";
  std::string folder, note;
  ffdSpec spec = makeSpec();
  FindKernelOptions options;
  std::unique_ptr<DecodeKernel> kernel;
};

TEST_F(KernelCacheTest, CpuKernelsAreCompiledOnce) {
  EXPECT_EQ(find(), 1);
  ASSERT_EQ(entries().size(), 1u);
  EXPECT_EQ(find(), 0) << note;
  run();
  spec.scan_bits = 4;
  EXPECT_EQ(find(), 1);
  EXPECT_EQ(find(), 0);
  EXPECT_EQ(entries().size(), 2u);
  EXPECT_EQ(note, "");
  options.cacheDir.clear();
  EXPECT_EQ(find(), 1);
}

TEST_F(KernelCacheTest, GpuKernelsAreKeptAsMachineCode) {
  useGpu();
  EXPECT_EQ(find(), 1);
  ASSERT_EQ(entries().size(), 1u);
  EXPECT_NE(readFile(entries()[0]).find("kind=cubin"), std::string::npos);
  EXPECT_NE(readFile(entries()[0]).find("machine code of compiled"),
            std::string::npos);
  EXPECT_EQ(find(), 0);
  EXPECT_EQ(kernel->target(), "sm_90a");
}

/// Another build of the compiler must not be served the old one's kernels.
TEST_F(KernelCacheTest, OtherCompiler) {
  EXPECT_EQ(find(), 1);
  const std::string copy = std::string(root) + "/libffd-jit.so";
  {
    std::ofstream out(copy, std::ios::binary);
    out << readFile(FFD_FAKE_JIT) << "newer";
  }
  options.jitPath = copy;
  note.clear();
  kernel.reset();
  Status status = findKernel(spec, options, kernel);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(entries().size(), 2u);
}

/// Cut, flipped, foreign, empty, a folder: rebuilt, never trusted.
TEST_F(KernelCacheTest, DamagedEntriesAreRebuilt) {
  EXPECT_EQ(find(), 1);
  const std::string path = entries()[0], good = readFile(path);
  std::vector<std::string> bad = {"",
                                  "x",
                                  good.substr(0, 20),
                                  good.substr(0, good.size() - 1),
                                  good + "x",
                                  std::string(5000, '\0'),
                                  good.substr(good.find('\n') + 1)};
  for (size_t at = 0; at < good.size(); at += 1 + good.size() / 40) {
    bad.push_back(good);
    bad.back()[at] = char(bad.back()[at] ^ 1);
  }
  for (const std::string &bytes : bad) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    EXPECT_EQ(find(), 1) << bytes.size() << " bytes";
    EXPECT_NE(note, "");
    EXPECT_EQ(readFile(path), good) << "written anew";
    EXPECT_EQ(find(), 0);
    run();
  }
  ASSERT_EQ(std::remove(path.c_str()), 0);
  ASSERT_EQ(mkdir(path.c_str(), 0755), 0);
  EXPECT_EQ(find(), 1);
}

/// The kernel of another specification under this one's name.
TEST_F(KernelCacheTest, ForeignEntry) {
  EXPECT_EQ(find(), 1);
  const std::string first = entries()[0];
  spec.scan_bits = 8;
  EXPECT_EQ(find(), 1);
  for (const std::string &path : entries())
    if (path != first)
      std::ofstream(path, std::ios::binary | std::ios::trunc)
          << readFile(first);
  EXPECT_EQ(find(), 1);
  EXPECT_NE(note.find("expected what its name says"), std::string::npos)
      << note;
}

/// Folders that cannot be: the kernel is compiled each time, and said so.
TEST_F(KernelCacheTest, FoldersThatCannotBeWritten) {
  const std::string file = std::string(root) + "/file";
  std::ofstream(file) << "x";
  for (const std::string &place :
       {file, file + "/below", std::string("/proc/ffd"),
        std::string("/dev/null/ffd")}) {
    options.cacheDir = place;
    EXPECT_EQ(find(), 1) << place;
    EXPECT_NE(note, "") << place;
  }
}

TEST_F(KernelCacheTest, WhereTheFolderIs) {
  const std::string own = std::string(root) + "/own",
                    shared = std::string(root) + "/xdg",
                    home = std::string(root) + "/home";
  const char *names[] = {"FFD_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
  std::vector<std::string> saved;
  for (const char *name : names)
    saved.push_back(std::getenv(name) ? std::getenv(name) : "");
  setenv("FFD_CACHE_DIR", own.c_str(), 1);
  setenv("XDG_CACHE_HOME", shared.c_str(), 1);
  setenv("HOME", home.c_str(), 1);
  const std::string expected[] = {own, shared + "/ffd", home + "/.cache/ffd",
                                  ""};
  for (int i = 0; i < 4; ++i) {
    ffdContextOptions o;
    ffdContextOptionsInit(&o);
    o.threads = 1;
    o.compiler = FFD_FAKE_JIT;
    ffdContext *context = nullptr;
    ASSERT_EQ(ffdContextCreate(&o, &context), FFD_SUCCESS);
    ffdKernel *found = nullptr;
    EXPECT_EQ(ffdKernelCreate(context, &spec, &found), FFD_SUCCESS)
        << ffdLastErrorMessage();
    ffdKernelDestroy(found);
    ffdContextDestroy(context);
    folder = expected[i];
    EXPECT_EQ(entries().size(), i < 3 ? 1u : 0u) << i;
    if (i < 3)
      unsetenv(names[i]);
  }
  for (int i = 0; i < 3; ++i)
    if (!saved[size_t(i)].empty())
      setenv(names[i], saved[size_t(i)].c_str(), 1);
}

/// What a child process does: finds the kernel, maybe on a full disk. Nothing
/// in the parent.
TEST(KernelCacheChild, Find) {
  const char *folder = std::getenv("FFD_TEST_CACHE");
  if (!folder)
    return;
  if (std::getenv("FFD_TEST_FULL_DISK")) {
    std::signal(SIGXFSZ, SIG_IGN); // writes beyond the limit fail instead
    const rlimit limit = {64, 64};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  FindKernelOptions options;
  options.pool = &testPool();
  options.jitPath = FFD_FAKE_JIT;
  options.cacheDir = folder;
  std::string note;
  options.cacheNote = &note;
  if (std::getenv("FFD_TEST_GPU")) {
    std::shared_ptr<const CudaDriver> driver;
    ASSERT_TRUE(CudaDriver::load(FFD_FAKE_CUDA, driver).ok());
    ASSERT_TRUE(CudaContext::create(driver, 0, options.cuda).ok());
    options.target = "cuda";
  }
  ffdSpec spec = makeSpec();
  spec.value_dim = 64;
  std::unique_ptr<DecodeKernel> kernel;
  for (int i = 0; i < 10; ++i) {
    Status status = findKernel(spec, options, kernel);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(note.empty(), !std::getenv("FFD_TEST_FULL_DISK")) << note;
}

class KernelCacheProcesses : public KernelCacheTest {
protected:
  pid_t start() {
    std::string self = "/proc/self/exe",
                filter = "--gtest_filter=KernelCacheChild.*",
                brief = "--gtest_brief=1";
    // The link is read here: in the child it would be the child's.
    char path[4096];
    const ssize_t size = readlink(self.c_str(), path, sizeof path - 1);
    EXPECT_GT(size, 0);
    path[size > 0 ? size : 0] = 0;
    char *arguments[] = {path, filter.data(), brief.data(), nullptr};
    setenv("FFD_TEST_CACHE", folder.c_str(), 1);
    // The child's output file is none of this test's.
    unsetenv("GTEST_OUTPUT");
    pid_t child = -1;
    EXPECT_EQ(posix_spawn(&child, path, nullptr, nullptr, arguments, environ),
              0);
    unsetenv("FFD_TEST_CACHE");
    return child;
  }
  void finish(pid_t child) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
};

TEST_F(KernelCacheProcesses, ManyOnOneFolder) {
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i)
    children.push_back(start());
  for (pid_t child : children)
    finish(child);
  EXPECT_EQ(entries().size(), 1u) << "one kernel, no temporary files";
  EXPECT_EQ(find(), 0);
  run();
}

TEST_F(KernelCacheProcesses, ManyOnOneFolderForAGpu) {
  setenv("FFD_TEST_GPU", "1", 1);
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i)
    children.push_back(start());
  for (pid_t child : children)
    finish(child);
  unsetenv("FFD_TEST_GPU");
  EXPECT_EQ(entries().size(), 1u) << "one kernel, no temporary files";
  useGpu();
  EXPECT_EQ(find(), 0);
}

/// Threads with options of their own, as contexts have them.
TEST_F(KernelCacheTest, ManyThreadsOnOneFolder) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([this] {
      FindKernelOptions own = options;
      std::string ownNote;
      own.cacheNote = &ownNote;
      for (int again = 0; again < 5; ++again) {
        std::unique_ptr<DecodeKernel> found;
        const Status status = findKernel(spec, own, found);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      EXPECT_EQ(ownNote, "");
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(entries().size(), 1u) << "one kernel, no temporary files";
  EXPECT_EQ(find(), 0);
  run();
}

TEST_F(KernelCacheProcesses, FullDisk) {
  setenv("FFD_TEST_FULL_DISK", "1", 1);
  finish(start());
  unsetenv("FFD_TEST_FULL_DISK");
  EXPECT_EQ(entries().size(), 0u) << "nothing half written";
}

//===----------------------------------------------------------------------===//
// Relocatable objects
//===----------------------------------------------------------------------===//

class LoadObjectTest : public KernelCacheTest {
protected:
  Status load(const std::string &object,
              const char *entry = "ffd_test_kernel") {
    Package package;
    package.kind = PackageKind::CpuObject;
    package.target = "cpu";
    package.entry = entry;
    package.spec = spec;
    package.payload = object;
    options.packageDir = root;
    options.useJit = false;
    Status status =
        package.write(std::string(root) + "/" +
                      Package::fileName(Program::Decode, spec, "cpu"));
    return status.ok() ? findKernel(spec, options, kernel) : status;
  }
};

TEST_F(LoadObjectTest, Runs) {
  const Status status = load(readFile(FFD_LOADABLE_KERNEL));
  ASSERT_TRUE(status.ok()) << status.message();
  run();
}

TEST_F(LoadObjectTest, MissingEntry) {
  const Status status = load(readFile(FFD_LOADABLE_KERNEL), "table");
  EXPECT_EQ(status.code(), StatusCode::Corrupt);
  EXPECT_NE(status.message().find("lacks its entry 'table'"),
            std::string::npos);
}

TEST_F(LoadObjectTest, UnknownFunction) {
  std::string object = readFile(FFD_LOADABLE_KERNEL);
  // The last one: debug information has the name too.
  const size_t at = object.rfind(std::string("\0memset\0", 8));
  ASSERT_NE(at, std::string::npos);
  object[at + 1] = 'n';
  const Status status = load(object);
  EXPECT_NE(status.message().find("needs the function 'nemset'"),
            std::string::npos)
      << status.message();
}

/// Whatever the bytes are, loading ends in a status. Nothing is run.
TEST_F(LoadObjectTest, DamagedObjects) {
  const std::string good = readFile(FFD_LOADABLE_KERNEL);
  for (size_t size = 1; size < good.size(); size += 1 + good.size() / 60)
    EXPECT_FALSE(load(good.substr(0, size)).ok());
  std::mt19937 random(7);
  for (int i = 0; i < 1500; ++i) {
    std::string bytes = good;
    for (int flips = 1 + int(random() % 3); flips > 0; --flips)
      bytes[random() % bytes.size()] = char(random());
    (void)load(bytes);
  }
}

} // namespace
