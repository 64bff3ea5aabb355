//===- ApiContextTest.cpp - Contexts, options, messages --------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a caller can get wrong before anything is decoded, and what it is told.
//
//===----------------------------------------------------------------------===//

#include "ApiCase.h"
#include "FakeCuda.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <vector>

using namespace ffd;

extern "C" int ffdTestHeaderInC(void); // ApiHeader.c

namespace {

struct Heard {
  std::vector<ffdStatus> codes;
  std::vector<std::string> texts;
  static void listen(void *user, ffdStatus status, const char *message) {
    auto *heard = static_cast<Heard *>(user);
    heard->codes.push_back(status);
    heard->texts.push_back(message);
  }
};

TEST(ApiContext, HeaderIsC) { EXPECT_EQ(ffdTestHeaderInC(), 0); }

TEST(ApiContext, Versions) {
  EXPECT_EQ(ffdApiVersion(), uint32_t(FFD_API_VERSION));
  EXPECT_EQ(ffdAbiVersion(), uint32_t(FFD_ABI_VERSION));
  EXPECT_STREQ(ffdStatusName(FFD_OUT_OF_PAGES), "FFD_OUT_OF_PAGES");
  EXPECT_STREQ(ffdStatusName(FFD_NOT_READY), "FFD_NOT_READY");
  EXPECT_STREQ(ffdStatusName(99), "unknown ffdStatus");
}

TEST(ApiContext, DefaultIsTheCpu) {
  ffdContext *context = nullptr;
  FFD_OK(ffdContextCreate(nullptr, &context));
  ffdContextInfo info = {};
  EXPECT_EQ(ffdContextGetInfo(context, &info), FFD_INVALID_ARGUMENT);
  info.struct_size = sizeof info;
  FFD_OK(ffdContextGetInfo(context, &info));
  EXPECT_EQ(info.device, FFD_DEVICE_CPU);
  EXPECT_GE(info.threads, 1);
  EXPECT_STREQ(info.arch, "cpu");
  ffdContextDestroy(context);
  ffdContextDestroy(nullptr);
  ffdCacheDestroy(nullptr);
  ffdKernelDestroy(nullptr);
}

TEST(ApiContext, BadOptions) {
  Heard heard;
  ffdContextOptions options;
  ffdContextOptionsInit(&options);
  options.diagnostic = Heard::listen;
  options.diagnostic_user = &heard;
  options.device = 7;
  ffdContext *context = nullptr;
  EXPECT_EQ(ffdContextCreate(&options, &context), FFD_INVALID_ARGUMENT);
  EXPECT_EQ(context, nullptr);
  ASSERT_EQ(heard.texts.size(), 1u);
  EXPECT_EQ(heard.texts[0], ffdLastErrorMessage());
  EXPECT_EQ(heard.texts[0], "'ffdContextOptions' field 'device' is 7, expected "
                            "FFD_DEVICE_CPU or FFD_DEVICE_CUDA");
  options.device = FFD_DEVICE_CPU;
  options.threads = -1;
  EXPECT_EQ(ffdContextCreate(&options, &context), FFD_INVALID_ARGUMENT);
  options.threads = 1;
  EXPECT_EQ(ffdContextCreate(&options, nullptr), FFD_INVALID_ARGUMENT);

  // An uninitialised struct, an older and a newer caller.
  options.struct_size = 0;
  EXPECT_EQ(ffdContextCreate(&options, &context), FFD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(ffdLastErrorMessage()).find("ffdContextOptionsInit"),
            std::string::npos);
  struct {
    ffdContextOptions known;
    int64_t unknown;
  } newer;
  std::memset(&newer, 0, sizeof newer);
  ffdContextOptionsInit(&newer.known);
  newer.known.struct_size = sizeof newer;
  newer.known.threads = 1;
  newer.unknown = 1;
  EXPECT_EQ(ffdContextCreate(&newer.known, &context), FFD_UNSUPPORTED);
  newer.unknown = 0;
  FFD_OK(ffdContextCreate(&newer.known, &context));
  ffdContextDestroy(context);
}

/// Calls with every size that the struct of an older program may have, with no
/// memory or with garbage behind it; what is too short for the first version is
/// refused.
template <typename T, typename Call>
void callWithEverySize(const T &options, size_t first, Call call) {
  for (size_t size = sizeof size; size <= sizeof(T); ++size)
    for (size_t spare : {size_t(0), sizeof(T) - size}) {
      std::unique_ptr<char[]> memory(new char[size + spare]);
      std::memset(memory.get(), 0xFF, size + spare);
      std::memcpy(memory.get(), &options, size);
      std::memcpy(memory.get(), &size, sizeof size);
      EXPECT_EQ(call(reinterpret_cast<const T *>(memory.get())),
                size < first ? FFD_INVALID_ARGUMENT : FFD_SUCCESS)
          << size << " of " << sizeof(T) << " bytes: " << ffdLastErrorMessage();
    }
}

TEST(ApiContext, OlderCallers) {
  ffdContextOptions context;
  ffdContextOptionsInit(&context);
  context.threads = 1;
  callWithEverySize(context, sizeof context, [](const ffdContextOptions *o) {
    ffdContext *created = nullptr;
    const ffdStatus status = ffdContextCreate(o, &created);
    ffdContextDestroy(created);
    return status;
  });
  const ffdCacheOptions small = ApiCase::small();
  // What sizeof was in the first version of the header.
  static_assert(sizeof(void *) == 8, "sizes below are of 64-bit programs");
  const size_t first = 120;
  callWithEverySize(small, first, [](const ffdCacheOptions *o) {
    ffdCache *created = nullptr;
    const ffdStatus status = ffdCacheCreate(referenceContext(), o, &created);
    ffdCacheDestroy(created);
    return status;
  });
  callWithEverySize(small, first, [](const ffdCacheOptions *o) {
    ffdCacheSizes sizes = {};
    sizes.struct_size = sizeof sizes;
    return ffdCacheMeasure(o, &sizes);
  });
  callWithEverySize(small, first, [](const ffdCacheOptions *o) {
    int64_t pages = 0;
    return ffdCacheFit(o, 1 << 30, &pages, nullptr);
  });

  ApiCase c(small);
  const int32_t a = c.create();
  HostBuffer q, out;
  ASSERT_TRUE(q.allocate("q", c.queryHeads() * 128 * 2, 0).ok());
  ASSERT_TRUE(out.allocate("out", c.queryHeads() * 128 * 4, 0).ok());
  ffdAppendBatch append;
  ffdAppendBatchInit(&append);
  append.count = 1;
  append.sequences = &a;
  append.k = append.v = q.data();
  callWithEverySize(append, 96, [&](const ffdAppendBatch *batch) {
    return ffdAppend(c.cache, batch, nullptr);
  });
  ffdDecodeBatch decode;
  ffdDecodeBatchInit(&decode);
  decode.count = 1;
  decode.sequences = &a;
  decode.q = q.data();
  decode.out = out.as<float>();
  callWithEverySize(decode, 64, [&](const ffdDecodeBatch *batch) {
    return ffdDecode(c.cache, batch, nullptr);
  });
}

/// Results fill what the caller's struct has, and no byte more.
TEST(ApiContext, OlderResults) {
  const ffdCacheOptions options = ApiCase::small();
  ffdCacheSizes all = {};
  all.struct_size = sizeof all;
  FFD_OK(ffdCacheMeasure(&options, &all));
  for (size_t size = sizeof size; size <= sizeof all; ++size) {
    alignas(ffdCacheSizes) char bytes[sizeof all + 1];
    std::memset(bytes, 0x5A, sizeof bytes);
    std::memcpy(bytes, &size, sizeof size);
    FFD_OK(ffdCacheMeasure(&options, reinterpret_cast<ffdCacheSizes *>(bytes)));
    EXPECT_EQ(std::memcmp(bytes + sizeof size,
                          reinterpret_cast<char *>(&all) + sizeof size,
                          size - sizeof size),
              0);
    for (size_t i = size; i < sizeof bytes; ++i)
      EXPECT_EQ(bytes[i], 0x5A) << i << " of " << size;
  }
}

TEST(ApiContext, DriverThatIsMissing) {
  ffdContextOptions options;
  ffdContextOptionsInit(&options);
  options.device = FFD_DEVICE_CUDA;
  options.cuda_driver = "/nonexistent/libcuda.so";
  ffdContext *context = nullptr;
  EXPECT_EQ(ffdContextCreate(&options, &context), FFD_NOT_FOUND);
  EXPECT_NE(std::string(ffdLastErrorMessage()).find("install"),
            std::string::npos);
}

/// A library that is no driver, or one from before the functions that the
/// runtime calls.
TEST(ApiContext, DriverThatIsTooOld) {
  ffdContextOptions options;
  ffdContextOptionsInit(&options);
  options.device = FFD_DEVICE_CUDA;
  options.cuda_driver = FFD_OLD_CUDA;
  ffdContext *context = nullptr;
  EXPECT_EQ(ffdContextCreate(&options, &context), FFD_UNSUPPORTED);
  EXPECT_EQ(std::string(ffdLastErrorMessage()),
            std::string("the CUDA driver library '") + FFD_OLD_CUDA +
                "' lacks the function 'cuStreamGetCaptureInfo_v2'; install a "
                "driver that supports CUDA 11.4 or newer");
  EXPECT_EQ(context, nullptr);
}

TEST(ApiContext, DriverThatDoesNotStart) {
  auto *fake = reinterpret_cast<FakeCudaState *(*)()>(
      dlsym(dlopen(FFD_FAKE_CUDA, RTLD_NOW), "fakeCudaState"))();
  ffdContextOptions options;
  ffdContextOptionsInit(&options);
  options.device = FFD_DEVICE_CUDA;
  options.cuda_driver = FFD_FAKE_CUDA;
  ffdContext *context = nullptr;
  fake->initResult = 100; // CUDA_ERROR_NO_DEVICE
  EXPECT_EQ(ffdContextCreate(&options, &context), FFD_NOT_FOUND);
  EXPECT_NE(std::string(ffdLastErrorMessage()).find("finds no device"),
            std::string::npos)
      << ffdLastErrorMessage();
  fake->initResult = 803; // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
  EXPECT_EQ(ffdContextCreate(&options, &context), FFD_DEVICE_ERROR);
  EXPECT_NE(std::string(ffdLastErrorMessage()).find("(803)"), std::string::npos)
      << ffdLastErrorMessage();
  fake->initResult = 0;
  EXPECT_EQ(context, nullptr);
  FFD_OK(ffdContextCreate(&options, &context));
  ffdContextDestroy(context);
}

TEST(ApiContext, NoKernelAnywhere) {
  ffdContextOptions options;
  ffdContextOptionsInit(&options);
  options.use_compiler = 0;
  options.threads = 1;
  options.kernel_cache_dir = "";
  Heard heard;
  options.diagnostic = Heard::listen;
  options.diagnostic_user = &heard;
  ffdContext *context = nullptr;
  FFD_OK(ffdContextCreate(&options, &context));
  ffdKernel *kernel = nullptr;
  ffdSpec spec = makeSpec();
  EXPECT_EQ(ffdKernelCreate(context, &spec, &kernel), FFD_NOT_FOUND);
  EXPECT_EQ(heard.codes, std::vector<ffdStatus>{FFD_NOT_FOUND});
  spec.head_dim = 100;
  EXPECT_EQ(ffdKernelCreate(context, &spec, &kernel), FFD_INVALID_ARGUMENT);
  EXPECT_EQ(ffdKernelCreate(context, nullptr, &kernel), FFD_INVALID_ARGUMENT);
  EXPECT_EQ(ffdKernelCreate(nullptr, &spec, &kernel), FFD_INVALID_ARGUMENT);
  EXPECT_EQ(kernel, nullptr);
  ffdContextDestroy(context);
}

/// Objects keep what they need alive, whatever is destroyed first.
TEST(ApiContext, AnyOrderOfDestruction) {
  ffdContextOptions options;
  ffdContextOptionsInit(&options);
  options.threads = 2;
  options.compiler = FFD_REFERENCE_JIT;
  options.kernel_cache_dir = "";
  ffdContext *context = nullptr;
  FFD_OK(ffdContextCreate(&options, &context));
  ffdKernel *kernel = nullptr;
  const ffdSpec spec = makeSpec();
  FFD_OK(ffdKernelCreate(context, &spec, &kernel));
  {
    ApiCase c(ApiCase::small(), 1, context);
    ffdContextDestroy(context);
    const int32_t a = c.create();
    ASSERT_EQ(c.append({a}, {140}), FFD_SUCCESS);
    c.check({a});
  }
  EXPECT_STREQ(ffdKernelTarget(kernel), "cpu:reference");
  ffdKernelDestroy(kernel);
}

TEST(ApiContext, CacheSizes) {
  ffdCacheOptions options = ApiCase::small();
  ffdCacheSizes sizes = {};
  sizes.struct_size = sizeof sizes;
  FFD_OK(ffdCacheMeasure(&options, &sizes));
  EXPECT_EQ(sizes.thumbnails, 40u * 2 * 4352);
  EXPECT_EQ(sizes.residuals, 40u * 2 * 16384);
  EXPECT_EQ(sizes.values, 40u * 2 * 32768);
  EXPECT_EQ(sizes.page_bytes, 2u * 2 * (4352 + 16384 + 32768));
  EXPECT_EQ(sizes.total_bytes,
            40 * sizes.page_bytes + 6 * sizes.sequence_bytes);
  int64_t pages = 0, tokens = 0;
  FFD_OK(ffdCacheFit(&options, sizes.total_bytes, &pages, &tokens));
  EXPECT_EQ(pages, 40);
  EXPECT_EQ(tokens, 40 * 128);
  FFD_OK(ffdCacheFit(&options, sizes.total_bytes - 1, &pages, nullptr));
  EXPECT_EQ(pages, 39);
  EXPECT_EQ(ffdCacheFit(&options, 1000, &pages, nullptr), FFD_OUT_OF_MEMORY);

  const auto refused = [&](const char *part) {
    EXPECT_NE(ffdCacheMeasure(&options, &sizes), FFD_SUCCESS);
    EXPECT_NE(std::string(ffdLastErrorMessage()).find(part), std::string::npos)
        << ffdLastErrorMessage();
    options = ApiCase::small();
  };
  options.layers = 0;
  refused("'layers' is 0, expected 1 to");
  options.kv_heads = -3;
  refused("'kv_heads' is -3");
  options.sequences = 0;
  refused("'sequences' is 0");
  options.lag = -1;
  refused("'lag' is -1");
  options.max_tokens = int64_t(1) << 31;
  refused("'max_tokens' is 2147483648");
  options.pages = -1;
  refused("'pages' is -1");
  options.delta = std::nanf("");
  refused("'delta' is nan");
  options.sm_scale = -1;
  refused("'sm_scale' is -1");
  options.spec.scan_bits = 3;
  refused("'scan_bits' is 3");
  options.pages = INT32_MAX;
  options.layers = 65536;
  options.kv_heads = 65536;
  refused("does not fit in 64 bits");
  options.pages = 2000000000; // 3 * 10^14 bytes: nobody has them
  ffdCache *cache = nullptr;
  EXPECT_EQ(ffdCacheCreate(referenceContext(), &options, &cache),
            FFD_OUT_OF_MEMORY);
  EXPECT_EQ(cache, nullptr);
  options = ApiCase::small();
  options.host_pages = 1;
  EXPECT_EQ(ffdCacheCreate(referenceContext(), &options, &cache),
            FFD_INVALID_ARGUMENT);
  EXPECT_EQ(ffdCacheCreate(referenceContext(), nullptr, &cache),
            FFD_INVALID_ARGUMENT);
}

} // namespace
