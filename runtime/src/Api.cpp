//===- Api.cpp - The functions of ffd.h -------------------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Thin: null handles and struct sizes are checked here, everything else where
// the work is.
//
//===----------------------------------------------------------------------===//

#include "ArgExtents.h"
#include "PagedCache.h"

#include "ffd/CudaDriver.h"
#include "ffd/Merge.h"
#include "ffd/ffd.h"

#include <algorithm>
#include <cmath>

using namespace ffd;

static Status nullArgument(const char *name) {
  return Status::invalid(std::string("'") + name + "' is null, expected a " +
                         "pointer");
}

/// Reports the outcome of a call on an object of a context.
template <typename Handle, typename Call>
static ffdStatus onContext(Handle *handle, const char *name, Call call) {
  if (!handle)
    return setLastError(nullArgument(name));
  return handle->impl->report(call(*handle->impl));
}
template <typename Handle, typename Call>
static ffdStatus onCache(Handle *handle, Call call) {
  if (!handle)
    return setLastError(nullArgument("cache"));
  return handle->impl->context().report(call(*handle->impl));
}

uint32_t ffdApiVersion(void) { return FFD_API_VERSION; }
uint32_t ffdAbiVersion(void) { return FFD_ABI_VERSION; }

const char *ffdStatusName(int32_t status) {
  static const char *const names[] = {
      "FFD_SUCCESS",      "FFD_INVALID_ARGUMENT", "FFD_OUT_OF_MEMORY",
      "FFD_NOT_FOUND",    "FFD_UNSUPPORTED",      "FFD_CORRUPT",
      "FFD_IO_ERROR",     "FFD_DEVICE_ERROR",     "FFD_COMPILE_ERROR",
      "FFD_OUT_OF_PAGES", "FFD_OUT_OF_SEQUENCES", "FFD_NOT_READY"};
  const size_t index = size_t(uint32_t(status));
  return index < sizeof names / sizeof *names ? names[index]
                                              : "unknown ffdStatus";
}

//===----------------------------------------------------------------------===//
// Contexts and kernels
//===----------------------------------------------------------------------===//

ffdStatus ffdContextCreate(const ffdContextOptions *options,
                           ffdContext **context) {
  if (!context)
    return setLastError(nullArgument("context"));
  ffdContextOptions o;
  ffdContextOptionsInit(&o);
  Status status = options ? takeOptions("ffdContextOptions", options, o)
                          : Status::success();
  std::shared_ptr<Context> impl;
  if (status.ok())
    status = Context::create(o, impl);
  if (!status.ok()) {
    if (o.diagnostic)
      o.diagnostic(o.diagnostic_user, toCode(status), status.message().c_str());
    return setLastError(status);
  }
  *context = new ffdContext{std::move(impl)};
  return FFD_SUCCESS;
}

void ffdContextDestroy(ffdContext *context) { delete context; }

ffdStatus ffdContextGetInfo(const ffdContext *context, ffdContextInfo *info) {
  return onContext(context, "context", [&](const Context &c) {
    ffdContextInfo result = {};
    c.describe(result);
    return giveResult("ffdContextInfo", result, info);
  });
}

ffdStatus ffdKernelCreate(ffdContext *context, const ffdSpec *spec,
                          ffdKernel **kernel) {
  return onContext(context, "context", [&](Context &c) {
    if (!spec || !kernel)
      return nullArgument(spec ? "kernel" : "spec");
    std::shared_ptr<const KernelSet> set;
    FFD_RETURN_IF_ERROR(c.kernels(*spec, set));
    *kernel = new ffdKernel{context->impl, std::move(set)};
    return Status::success();
  });
}

void ffdKernelDestroy(ffdKernel *kernel) { delete kernel; }

const char *ffdKernelTarget(const ffdKernel *kernel) {
  return kernel ? kernel->set->decode->target().c_str() : "";
}

ffdStatus ffdKernelWorkspaceBytes(const ffdKernel *kernel, int32_t batch,
                                  int32_t kv_heads, int32_t splits,
                                  uint64_t *bytes) {
  if (!kernel || !bytes)
    return setLastError(nullArgument(kernel ? "bytes" : "kernel"));
  if (batch < 1 || kv_heads < 1 || splits < 1)
    return setLastError(Status::invalid(
        "batch, kv_heads and splits are " + std::to_string(batch) + ", " +
        std::to_string(kv_heads) + " and " + std::to_string(splits) +
        ", expected at least 1 each"));
  int64_t size;
  Status status = workspaceBytes(kernel->set->decode->spec(),
                                 int64_t(batch) * kv_heads, splits, size);
  if (status.ok())
    *bytes = uint64_t(size);
  return kernel->context->report(status);
}

ffdStatus ffdKernelDecode(const ffdKernel *kernel, const ffdDecodeArgs *args,
                          ffdStream stream) {
  if (!kernel || !args)
    return setLastError(nullArgument(kernel ? "args" : "kernel"));
  const KernelSet &set = *kernel->set;
  return kernel->context->report(
      set.cpu ? set.cpu->decodeAll(args, 1)
              : set.cuda->launchResidentOn(stream, *args));
}

//===----------------------------------------------------------------------===//
// Caches
//===----------------------------------------------------------------------===//

static Status takeCacheOptions(const ffdCacheOptions *from,
                               ffdCacheOptions &options) {
  ffdCacheOptionsInit(&options);
  return takeOptions("ffdCacheOptions", from, options,
                     offsetof(ffdCacheOptions, piece_tokens));
}

ffdStatus ffdCacheMeasure(const ffdCacheOptions *options,
                          ffdCacheSizes *sizes) {
  ffdCacheOptions o;
  CacheShape shape;
  Status status = takeCacheOptions(options, o);
  if (status.ok())
    status = CacheShape::of(o, shape);
  if (status.ok())
    status = giveResult("ffdCacheSizes", shape.sizes, sizes);
  return setLastError(status);
}

ffdStatus ffdCacheFit(const ffdCacheOptions *options, uint64_t bytes,
                      int64_t *pages, int64_t *tokens) {
  ffdCacheOptions o;
  CacheShape shape;
  Status status = takeCacheOptions(options, o);
  if (status.ok()) {
    o.pages = 0;
    status = CacheShape::of(o, shape);
  }
  if (!status.ok())
    return setLastError(status);
  const uint64_t slots = shape.sizes.total_bytes;
  if (bytes < slots)
    return setLastError(
        Status(StatusCode::OutOfMemory,
               "the sequences alone take " + std::to_string(slots) +
                   " bytes, expected at least that instead of " +
                   std::to_string(bytes)));
  const uint64_t count =
      std::min<uint64_t>((bytes - slots) / shape.sizes.page_bytes, INT32_MAX);
  if (pages)
    *pages = int64_t(count);
  if (tokens)
    *tokens = int64_t(count) * shape.spec.quant_block;
  return FFD_SUCCESS;
}

ffdStatus ffdCacheCreate(ffdContext *context, const ffdCacheOptions *options,
                         ffdCache **cache) {
  return onContext(context, "context", [&](Context &) {
    if (!cache)
      return nullArgument("cache");
    ffdCacheOptions o;
    FFD_RETURN_IF_ERROR(takeCacheOptions(options, o));
    std::unique_ptr<PagedCache> impl;
    FFD_RETURN_IF_ERROR(PagedCache::create(context->impl, o, impl));
    *cache = new ffdCache{std::move(impl)};
    return Status::success();
  });
}

void ffdCacheDestroy(ffdCache *cache) { delete cache; }

ffdStatus ffdCacheGetInfo(const ffdCache *cache, ffdCacheInfo *info) {
  return onCache(cache, [&](const PagedCache &c) {
    ffdCacheInfo result = {};
    c.info(result);
    return giveResult("ffdCacheInfo", result, info);
  });
}

//===----------------------------------------------------------------------===//
// Sequences
//===----------------------------------------------------------------------===//

ffdStatus ffdSequenceCreate(ffdCache *cache, ffdStream stream,
                            int32_t *sequence) {
  return onCache(cache, [&](PagedCache &c) {
    return sequence ? c.createSequence(stream, *sequence)
                    : nullArgument("sequence");
  });
}

ffdStatus ffdSequenceFree(ffdCache *cache, int32_t sequence, ffdStream stream) {
  return onCache(
      cache, [&](PagedCache &c) { return c.freeSequence(sequence, stream); });
}

ffdStatus ffdSequenceFork(ffdCache *cache, int32_t sequence, ffdStream stream,
                          int32_t *fork) {
  return onCache(cache, [&](PagedCache &c) {
    return fork ? c.fork(sequence, stream, *fork) : nullArgument("fork");
  });
}

ffdStatus ffdSequenceTruncate(ffdCache *cache, int32_t sequence, int64_t length,
                              ffdStream stream) {
  return onCache(cache, [&](PagedCache &c) {
    return c.truncate(sequence, length, stream);
  });
}

ffdStatus ffdSequenceSetDelta(ffdCache *cache, int32_t sequence, float delta,
                              ffdStream stream) {
  return onCache(cache, [&](PagedCache &c) {
    return c.setDelta(sequence, delta, stream);
  });
}

ffdStatus ffdSequenceGetInfo(const ffdCache *cache, int32_t sequence,
                             ffdSequenceInfo *info) {
  return onCache(cache, [&](const PagedCache &c) {
    ffdSequenceInfo result = {};
    FFD_RETURN_IF_ERROR(c.sequenceInfo(sequence, result));
    return giveResult("ffdSequenceInfo", result, info);
  });
}

ffdStatus ffdReserve(ffdCache *cache, int32_t count, const int32_t *sequences,
                     const int64_t *tokens, ffdStream stream) {
  return onCache(cache, [&](PagedCache &c) {
    return c.reserve(count, sequences, tokens, stream);
  });
}

ffdStatus ffdSequenceSetPages(ffdCache *cache, int32_t sequence, int64_t first,
                              const int32_t *pages, int64_t count,
                              ffdStream stream) {
  return onCache(cache, [&](PagedCache &c) {
    return c.setPages(sequence, first, pages, count, stream);
  });
}

//===----------------------------------------------------------------------===//
// Append and decode
//===----------------------------------------------------------------------===//

ffdStatus ffdAppend(ffdCache *cache, const ffdAppendBatch *batch,
                    ffdStream stream) {
  return onCache(cache, [&](PagedCache &c) {
    ffdAppendBatch b;
    ffdAppendBatchInit(&b);
    FFD_RETURN_IF_ERROR(
        takeOptions("ffdAppendBatch", batch, b,
                    offsetof(ffdAppendBatch, device_sequences)));
    return c.append(b, stream);
  });
}

ffdStatus ffdAdvance(ffdCache *cache, int32_t count, const int32_t *sequences,
                     const int32_t *tokens) {
  return onCache(cache, [&](PagedCache &c) {
    return c.advance(count, sequences, tokens);
  });
}

ffdStatus ffdDecode(ffdCache *cache, const ffdDecodeBatch *batch,
                    ffdStream stream) {
  return onCache(cache, [&](PagedCache &c) {
    ffdDecodeBatch b;
    ffdDecodeBatchInit(&b);
    FFD_RETURN_IF_ERROR(
        takeOptions("ffdDecodeBatch", batch, b,
                    offsetof(ffdDecodeBatch, device_sequences)));
    return c.decode(b, stream);
  });
}

ffdStatus ffdMerge(int32_t parts, int64_t rows, int32_t value_dim,
                   const float *const *out, const float *const *lse,
                   float *merged_out, float *merged_lse) {
  if (parts < 1 || rows < 0 || value_dim < 1)
    return setLastError(Status::invalid(
        "parts, rows and value_dim are " + std::to_string(parts) + ", " +
        std::to_string(rows) + " and " + std::to_string(value_dim) +
        ", expected at least 1, 0 and 1"));
  if (!out || !lse || !merged_out)
    return setLastError(nullArgument(!out   ? "out"
                                     : !lse ? "lse"
                                            : "merged_out"));
  for (int32_t part = 0; part < parts; ++part)
    if (rows > 0 && (!out[part] || !lse[part]))
      return setLastError(Status::invalid("out or lse of part " +
                                          std::to_string(part) +
                                          " is null, expected the results of " +
                                          std::to_string(rows) + " rows"));
  for (int64_t row = 0; row < rows; ++row) {
    Partial<float> sum{size_t(value_dim)};
    for (int32_t part = 0; part < parts; ++part) {
      // A finished result is a partial one whose sum of weights is 1.
      Partial<float> one{size_t(value_dim)};
      const float *values = out[part] + row * value_dim;
      std::copy_n(values, value_dim, one.o.begin());
      one.ref = lse[part][row];
      one.l = 1;
      one.seen = !(std::isinf(one.ref) && one.ref < 0);
      if (one.seen)
        sum.merge(one);
    }
    for (int32_t i = 0; i < value_dim; ++i)
      merged_out[row * value_dim + i] = sum.output(size_t(i));
    if (merged_lse)
      merged_lse[row] = sum.lse();
  }
  return FFD_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Reading back
//===----------------------------------------------------------------------===//

ffdStatus ffdGather(ffdCache *cache, int32_t layer, int32_t sequence,
                    int64_t first, int64_t count, void *k_out, void *v_out,
                    ffdStream stream) {
  return onCache(cache, [&](PagedCache &c) {
    return c.gather(layer, sequence, first, count,
                    static_cast<uint16_t *>(k_out),
                    static_cast<uint16_t *>(v_out), stream);
  });
}

ffdStatus ffdStatisticsRequest(ffdCache *cache, ffdStream stream) {
  return onCache(cache,
                 [&](PagedCache &c) { return c.requestStatistics(stream); });
}

ffdStatus ffdStatisticsFetch(ffdCache *cache, ffdHeadStatistics *statistics) {
  return onCache(cache,
                 [&](PagedCache &c) { return c.fetchStatistics(statistics); });
}

ffdStatus ffdCacheGetErrors(const ffdCache *cache, int32_t *errors,
                            int32_t *each) {
  return onCache(cache, [&](const PagedCache &c) {
    return errors ? c.errors(*errors, each) : nullArgument("errors");
  });
}

ffdStatus ffdCacheClearErrors(ffdCache *cache) {
  return onCache(cache, [&](PagedCache &c) { return c.clearErrors(); });
}
