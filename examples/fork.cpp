// fork.cpp - A prompt shared by two continuations: the C++ wrapper.
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//   fork [folder of kernel packages]

#include <ffd/ffd.hpp>

#include <cstdio>
#include <random>
#include <vector>

int main(int argc, char **argv) try {
  ffdContextOptions contextOptions;
  ffdContextOptionsInit(&contextOptions);
  contextOptions.package_dir = argc > 1 ? argv[1] : nullptr;
  const ffd::api::Context context(contextOptions);

  ffdCacheOptions options;
  ffdCacheOptionsInit(&options);
  options.spec = {128, 128, 4, FFD_F16, 2, 128, 16, 0};
  options.spec.pseudo_max = FFD_PSEUDO_MAX_REFINED;
  options.kv_heads = 2;
  options.sequences = 4;
  options.max_tokens = 4096;
  options.pages = 64;
  ffd::api::Cache cache(context, options);

  std::mt19937 random(1);
  const auto numbers = [&](size_t count) {
    std::vector<uint16_t> values(count);
    for (uint16_t &x : values) // f16 numbers of magnitude 0.5 to 1
      x = uint16_t((random() & 0x83FF) + 0x3800);
    return values;
  };
  const size_t row = 2 * 128;

  const int32_t parent = cache.create();
  const std::vector<uint16_t> k = numbers(1000 * row), v = numbers(1000 * row);
  cache.append(0, {parent}, {1000}, k.data(), v.data());
  const int64_t before = cache.info().free_pages;
  const int32_t child = cache.fork(parent);
  std::printf("a fork of 1000 tokens takes %ld pages\n",
              long(before - cache.info().free_pages));

  // Each goes its own way; one batch decodes both.
  const std::vector<uint16_t> k2 = numbers(2 * row), v2 = numbers(2 * row);
  cache.append(0, {parent, child}, {1, 1}, k2.data(), v2.data());
  const ffd::api::Buffer<uint16_t> q(numbers(2 * 4 * row));
  ffd::api::Buffer<float> out(2 * 4 * row);
  cache.decode(0, {parent, child}, q.data(), out.data());
  std::printf("out: %g of the parent, %g of the child\n", out[0], out[4 * row]);

  // The child's last token is taken back.
  cache.truncate(child, 1000);
  std::printf("lengths: %ld and %ld\n", long(cache.length(parent)),
              long(cache.length(child)));
  return cache.length(parent) == 1001 && cache.length(child) == 1000 ? 0 : 1;
} catch (const ffd::api::Error &error) {
  std::fprintf(stderr, "%s: %s\n", ffdStatusName(error.status()), error.what());
  return 1;
}
