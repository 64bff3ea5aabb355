//===- PagedCache.cpp - Caches that grow, for Python callers --------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PagedCache.h"

#include "Names.h"

#include <nanobind/stl/string.h>

#include <limits>

namespace ffd::python {

/// The exception of a status of ffd.h. On the thread of the call, with the GIL.
static void checkCall(ffdStatus status, const char *said) {
  if (status == FFD_SUCCESS)
    return;
  const std::string text = withPythonNames(said);
  const char *message = text.c_str();
  switch (status) {
  case FFD_INVALID_ARGUMENT:
    throw nb::value_error(message);
  case FFD_OUT_OF_MEMORY:
    PyErr_SetString(PyExc_MemoryError, message);
    throw nb::python_error();
  case FFD_IO_ERROR:
    PyErr_SetString(PyExc_OSError, message);
    throw nb::python_error();
  case FFD_OUT_OF_PAGES:
    throw OutOfPages(message);
  case FFD_OUT_OF_SEQUENCES:
    throw OutOfSequences(message);
  default:
    throw Error(message);
  }
}

static void checkCall(ffdStatus status) {
  checkCall(status, status == FFD_SUCCESS ? "" : ffdLastErrorMessage());
}

static constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

template <typename T>
static T *at(Address address) {
  return reinterpret_cast<T *>(address);
}
static ffdStream streamAt(Address stream) { return at<void>(stream); }
/// Lists that a batch need not have.
static const int32_t *listOf(const Slots &values) {
  return values.empty() ? nullptr : values.data();
}

//===----------------------------------------------------------------------===//
// Contexts
//===----------------------------------------------------------------------===//

PagedContext::PagedContext(int ordinal, int threads,
                           const std::string &kernelDir, bool jit,
                           const std::string &jitPath) {
  ffdContextOptions options;
  ffdContextOptionsInit(&options);
  options.device = ordinal < 0 ? FFD_DEVICE_CPU : FFD_DEVICE_CUDA;
  options.ordinal = ordinal < 0 ? 0 : ordinal;
  options.threads = threads;
  options.use_compiler = jit;
  options.package_dir = kernelDir.empty() ? nullptr : kernelDir.c_str();
  options.compiler = jitPath.empty() ? nullptr : jitPath.c_str();
  ffdContext *fresh = nullptr;
  ffdStatus status;
  {
    nb::gil_scoped_release release;
    status = ffdContextCreate(&options, &fresh);
  }
  checkCall(status);
  handle.reset(fresh);
  if (ordinal < 0)
    return;
  std::shared_ptr<const CudaDriver> driver;
  check(CudaDriver::load("", driver));
  check(CudaContext::create(driver, ordinal, cuda));
}

Status PagedContext::synchronize() const {
  return cuda ? cuda->synchronize() : Status::success();
}

//===----------------------------------------------------------------------===//
// Caches
//===----------------------------------------------------------------------===//

PagedCache::PagedCache(std::shared_ptr<PagedContext> on, ffdCacheOptions given,
                       std::optional<uint64_t> bytes)
    : context(std::move(on)), options(given) {
  ffdStatus status = FFD_SUCCESS;
  {
    nb::gil_scoped_release release;
    if (bytes)
      status = ffdCacheFit(&options, *bytes, &options.pages, nullptr);
    if (status == FFD_SUCCESS)
      status = ffdCacheCreate(context->get(), &options, &handle);
  }
  checkCall(status);
  deltas.assign(size_t(options.sequences), kUnknown);
}

PagedCache::~PagedCache() { close(); }

void PagedCache::close() {
  std::deque<Kept> done; // goes once the GIL is back
  nb::gil_scoped_release release;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!handle)
    return;
  // Whatever became of the device, its memory is no longer used.
  (void)context->synchronize();
  ffdCacheDestroy(handle);
  handle = nullptr;
  done.swap(kept);
}

bool PagedCache::closed() const {
  nb::gil_scoped_release release;
  const std::lock_guard<std::mutex> lock(mutex);
  return !handle;
}

template <typename Call>
ffdStatus PagedCache::raw(Call call) const {
  ffdStatus status = FFD_SUCCESS;
  bool open = false;
  {
    nb::gil_scoped_release release;
    const std::lock_guard<std::mutex> lock(mutex);
    open = handle != nullptr;
    if (open)
      status = call(handle);
  }
  if (!open)
    raiseValue("the cache is closed, expected an open one");
  return status;
}

template <typename Call>
void PagedCache::run(Call call) const {
  checkCall(raw(call));
}

int32_t PagedCache::create(std::optional<float> delta, Address stream) {
  int32_t sequence = 0;
  std::string why;
  const ffdStatus status = raw([&](ffdCache *c) {
    ffdStatus made = ffdSequenceCreate(c, streamAt(stream), &sequence);
    if (made == FFD_SUCCESS) {
      deltas[size_t(sequence)] = options.delta;
      if (!delta)
        return made;
      made = setDelta(c, sequence, *delta, stream);
      if (made == FFD_SUCCESS)
        return made;
      why = ffdLastErrorMessage();
      deltas[size_t(sequence)] = kUnknown;
      (void)ffdSequenceFree(c, sequence, streamAt(stream));
      return made;
    }
    why = ffdLastErrorMessage();
    return made;
  });
  checkCall(status, why.c_str());
  return sequence;
}

void PagedCache::free(int32_t sequence, Address stream) {
  run([&](ffdCache *c) {
    const ffdStatus status = ffdSequenceFree(c, sequence, streamAt(stream));
    if (status == FFD_SUCCESS)
      deltas[size_t(sequence)] = kUnknown;
    return status;
  });
}

int32_t PagedCache::fork(int32_t sequence, Address stream) {
  int32_t forked = 0;
  run([&](ffdCache *c) {
    const ffdStatus status =
        ffdSequenceFork(c, sequence, streamAt(stream), &forked);
    if (status == FFD_SUCCESS)
      deltas[size_t(forked)] = deltas[size_t(sequence)];
    return status;
  });
  return forked;
}

void PagedCache::truncate(int32_t sequence, int64_t length, Address stream) {
  run([&](ffdCache *c) {
    return ffdSequenceTruncate(c, sequence, length, streamAt(stream));
  });
}

ffdStatus PagedCache::setDelta(ffdCache *cache, int32_t sequence, float delta,
                               Address stream) {
  float &known = deltas[size_t(sequence)];
  if (known == delta)
    return FFD_SUCCESS;
  known = kUnknown;
  const ffdStatus status =
      ffdSequenceSetDelta(cache, sequence, delta, streamAt(stream));
  if (status == FFD_SUCCESS)
    known = delta;
  return status;
}

ffdStatus PagedCache::setEach(ffdCache *cache, const Slots &sequences,
                              const std::vector<float> &values,
                              Address stream) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto slot = size_t(sequences[i]);
    if (slot < deltas.size() && deltas[slot] == values[i])
      continue;
    ffdSequenceInfo info = {};
    info.struct_size = sizeof info;
    const ffdStatus status = ffdSequenceGetInfo(cache, sequences[i], &info);
    if (status != FFD_SUCCESS)
      return status;
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    const ffdStatus status = setDelta(cache, sequences[i], values[i], stream);
    if (status != FFD_SUCCESS)
      return status;
  }
  return FFD_SUCCESS;
}

void PagedCache::setDeltas(const Slots &sequences,
                           const std::vector<float> &values, Address stream) {
  if (sequences.size() != values.size())
    raiseValue("there are " + std::to_string(values.size()) +
               " thresholds, expected " + std::to_string(sequences.size()));
  run([&](ffdCache *c) { return setEach(c, sequences, values, stream); });
}

void PagedCache::reserve(const Slots &sequences,
                         const std::vector<int64_t> &tokens, Address stream) {
  run([&](ffdCache *c) {
    return ffdReserve(c, int32_t(sequences.size()), sequences.data(),
                      tokens.data(), streamAt(stream));
  });
}

void PagedCache::advance(const Slots &sequences, const Slots &tokens) {
  run([&](ffdCache *c) {
    return ffdAdvance(c, int32_t(sequences.size()), sequences.data(),
                      tokens.data());
  });
}

std::tuple<int64_t, int64_t, int64_t>
PagedCache::sequence(int32_t sequence) const {
  ffdSequenceInfo info = {};
  info.struct_size = sizeof info;
  run([&](ffdCache *c) { return ffdSequenceGetInfo(c, sequence, &info); });
  return {info.length, info.committed, info.reserved};
}

//===----------------------------------------------------------------------===//
// Tokens
//===----------------------------------------------------------------------===//

void PagedCache::append(int layer, int count, const Slots &sequences,
                        const Slots &tokens, Address deviceSequences,
                        Address deviceOffsets, Address k, Address v,
                        std::pair<int64_t, int64_t> kStrides,
                        std::pair<int64_t, int64_t> vStrides, Address stream) {
  ffdAppendBatch batch;
  ffdAppendBatchInit(&batch);
  batch.layer = layer;
  batch.count = count;
  batch.sequences = listOf(sequences);
  batch.tokens = listOf(tokens);
  batch.device_sequences = at<const int32_t>(deviceSequences);
  batch.device_offsets = at<const int32_t>(deviceOffsets);
  batch.k = at<const void>(k);
  batch.v = at<const void>(v);
  std::tie(batch.k_token_stride, batch.k_head_stride) = kStrides;
  std::tie(batch.v_token_stride, batch.v_head_stride) = vStrides;
  run([&](ffdCache *c) { return ffdAppend(c, &batch, streamAt(stream)); });
}

void PagedCache::decode(int layer, int count, const Slots &sequences,
                        const std::vector<float> &values,
                        Address deviceSequences, Address q,
                        std::pair<int64_t, int64_t> strides, Address out,
                        Address lse, Address skippedLse, Address stream) {
  if (!values.empty() && values.size() != sequences.size())
    raiseValue("there are " + std::to_string(values.size()) +
               " thresholds, expected " + std::to_string(sequences.size()));
  ffdDecodeBatch batch;
  ffdDecodeBatchInit(&batch);
  batch.layer = layer;
  batch.count = count;
  batch.sequences = listOf(sequences);
  batch.device_sequences = at<const int32_t>(deviceSequences);
  batch.q = at<const void>(q);
  std::tie(batch.q_batch_stride, batch.q_head_stride) = strides;
  batch.out = at<float>(out);
  batch.lse = at<float>(lse);
  batch.skipped_lse = at<float>(skippedLse);
  run([&](ffdCache *c) {
    if (!values.empty()) {
      const ffdStatus status = setEach(c, sequences, values, stream);
      if (status != FFD_SUCCESS)
        return status;
    }
    return ffdDecode(c, &batch, streamAt(stream));
  });
}

void PagedCache::gather(int layer, int32_t sequence, int64_t first,
                        int64_t count, Address k, Address v, Address stream) {
  run([&](ffdCache *c) {
    return ffdGather(c, layer, sequence, first, count, at<void>(k), at<void>(v),
                     streamAt(stream));
  });
}

void PagedCache::keep(nb::object owner, Address stream) {
  std::vector<nb::object> done; // goes once the GIL is back
  nb::gil_scoped_release release;
  const std::lock_guard<std::mutex> lock(mutex);
  const std::shared_ptr<CudaContext> &device = context->device();
  uint64_t capture = 0;
  if (!handle || !device ||
      (device->capturing(streamAt(stream), capture).ok() && capture)) {
    done.push_back(std::move(owner));
    return;
  }
  const auto reached = [](const CudaEvent &event) {
    bool yes = false;
    // Of a device that has failed nothing more is to be waited for.
    return !event.reached(yes).ok() || yes;
  };
  while (!kept.empty() && reached(*kept.front().until)) {
    done.push_back(std::move(kept.front().owner));
    kept.pop_front();
  }
  auto event = std::make_unique<CudaEvent>();
  Status status = event->create(device);
  if (status.ok())
    status = event->record(streamAt(stream));
  if (status.ok()) {
    kept.push_back({std::move(event), std::move(owner)});
    return;
  }
  // Without an event the memory is safe once the stream is done.
  (void)device->finish(streamAt(stream));
  done.push_back(std::move(owner));
}

//===----------------------------------------------------------------------===//
// What happened
//===----------------------------------------------------------------------===//

void PagedCache::requestStatistics(Address stream) {
  run([&](ffdCache *c) { return ffdStatisticsRequest(c, streamAt(stream)); });
}

nb::object PagedCache::statistics() {
  const NewArray<uint64_t> result(
      {size_t(options.layers), size_t(options.kv_heads), 2});
  static_assert(sizeof(ffdHeadStatistics) == 16, "two counters");
  const ffdStatus status = raw([&](ffdCache *c) {
    return ffdStatisticsFetch(
        c, reinterpret_cast<ffdHeadStatistics *>(result.data()));
  });
  if (status == FFD_NOT_READY)
    return nb::none();
  checkCall(status);
  return result.object();
}

nb::object PagedCache::errors() const {
  const NewArray<int32_t> result({size_t(options.sequences)});
  int32_t any = 0;
  run([&](ffdCache *c) { return ffdCacheGetErrors(c, &any, result.data()); });
  return result.object();
}

void PagedCache::clearErrors() { run(ffdCacheClearErrors); }

/// Of a call about a file.
static void checkFile(ffdStatus status) {
  if (status == FFD_NOT_FOUND) {
    PyErr_SetString(PyExc_FileNotFoundError, ffdLastErrorMessage());
    throw nb::python_error();
  }
  checkCall(status);
}

void PagedCache::save(int32_t sequence, const std::string &path,
                      Address stream) {
  checkFile(raw([&](ffdCache *c) {
    return ffdSequenceSaveFile(c, sequence, path.c_str(), streamAt(stream));
  }));
}

int32_t PagedCache::load(const std::string &path, Address stream) {
  int32_t sequence = 0;
  checkFile(raw([&](ffdCache *c) {
    const ffdStatus status =
        ffdSequenceLoadFile(c, path.c_str(), streamAt(stream), &sequence);
    if (status == FFD_SUCCESS)
      deltas[size_t(sequence)] = kUnknown; // the file's
    return status;
  }));
  return sequence;
}

std::tuple<int64_t, int64_t, int32_t> PagedCache::info() const {
  ffdCacheInfo info = {};
  info.struct_size = sizeof info;
  run([&](ffdCache *c) { return ffdCacheGetInfo(c, &info); });
  return {info.pages, info.free_pages, info.sequences};
}

std::pair<int64_t, int64_t> PagedCache::fit(uint64_t bytes) const {
  int64_t pages = 0, tokens = 0;
  checkCall(ffdCacheFit(&options, bytes, &pages, &tokens));
  return {pages, tokens};
}

ffdCacheSizes PagedCache::sizes() const {
  ffdCacheSizes sizes = {};
  sizes.struct_size = sizeof sizes;
  checkCall(ffdCacheMeasure(&options, &sizes));
  return sizes;
}

//===----------------------------------------------------------------------===//
// DLPack
//===----------------------------------------------------------------------===//

static std::string dtypeName(nb::dlpack::dtype type) {
  static const std::pair<nb::dlpack::dtype_code, const char *> known[] = {
      {nb::dlpack::dtype_code::Int, "int"},
      {nb::dlpack::dtype_code::UInt, "uint"},
      {nb::dlpack::dtype_code::Float, "float"},
      {nb::dlpack::dtype_code::Bfloat, "bfloat"}};
  for (const auto &entry : known)
    if (uint8_t(entry.first) == type.code && type.lanes == 1)
      return entry.second + std::to_string(type.bits);
  return "of DLPack code " + std::to_string(type.code) + ", " +
         std::to_string(type.bits) + " bits, " + std::to_string(type.lanes) +
         " lanes";
}

/// The fields of `describe`; the array goes with the last.
template <typename Array>
static nb::tuple describeAs(nb::handle capsule, const char *expected) {
  auto array = std::make_unique<Array>();
  if (!nb::try_cast(capsule, *array)) {
    PyErr_Clear();
    throw nb::type_error(expected);
  }
  nb::list shape, strides;
  for (size_t i = 0; i < array->ndim(); ++i) {
    shape.append(array->shape(i));
    strides.append(array->stride(i));
  }
  const Address address = Address(reinterpret_cast<uintptr_t>(array->data()));
  const std::string dtype = dtypeName(array->dtype());
  nb::capsule owner(array.release(),
                    [](void *p) noexcept { delete static_cast<Array *>(p); });
  return nb::make_tuple(address, nb::tuple(shape), nb::tuple(strides), dtype,
                        owner);
}

nb::tuple describe(nb::handle capsule, bool write) {
  if (write)
    return describeAs<nb::ndarray<>>(capsule, "expected memory to write to");
  return describeAs<nb::ndarray<nb::ro>>(capsule, "expected a DLPack capsule");
}

} // namespace ffd::python
