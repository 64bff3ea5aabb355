//===- Machine.cpp - Memory and time of a target --------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The yardstick kernel is PTX written here: 512 threads per CTA, eight 16-byte
// loads in flight per thread, as a plain read is fastest.
//
//===----------------------------------------------------------------------===//

#include "Machine.h"

#include "support/Bandwidth.h"
#include "support/Errors.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <unistd.h>

using namespace llvm;
using ffd::tools::error;
using ffd::tools::toError;

namespace ffd::bench {

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Error Memory::allocate(std::shared_ptr<CudaContext> cuda, const char *what,
                       int64_t bytes) {
  bytes = std::max<int64_t>(bytes, 16);
  onGpu = cuda != nullptr;
  return toError(onGpu ? device.reserve(std::move(cuda), what, bytes)
                       : host.allocate(what, bytes, /*fill=*/0xFF));
}

uintptr_t Memory::address() const {
  return onGpu ? uintptr_t(device.address()) : uintptr_t(host.data());
}

Error Memory::upload(const void *from, int64_t bytes) {
  if (onGpu)
    return toError(device.upload(from, bytes));
  std::memcpy(host.data(), from, size_t(bytes));
  return Error::success();
}

Error Memory::download(void *to, int64_t bytes) const {
  if (onGpu)
    return toError(device.download(to, bytes));
  std::memcpy(to, host.data(), size_t(bytes));
  return Error::success();
}

Error Memory::fill(uint8_t value) {
  if (onGpu)
    return toError(device.fill(value, device.size()));
  std::memset(host.data(), value, size_t(host.size()));
  return Error::success();
}

Error Memory::replicate(int64_t bytes, int64_t count) {
  for (int64_t done = 1; done < count;) {
    int64_t more = std::min(done, count - done);
    if (onGpu) {
      if (Error e = toError(device.repeat(done * bytes, 0, more * bytes)))
        return e;
    } else {
      std::memcpy(host.data() + done * bytes, host.data(),
                  size_t(more * bytes));
    }
    done += more;
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// The yardstick kernels
//===----------------------------------------------------------------------===//

static constexpr int kReadThreads = 512;
static constexpr int kReadUnroll = 8;

namespace {
struct ReadParameters {
  const void *data;
  int64_t count; ///< of 16 bytes
  void *sink;    ///< never written, but the compiler does not know
};
} // namespace

/// Reads `count` units of 16 bytes with a grid-wide stride.
static std::string readPtx() {
  std::string loads, folds, offsets;
  for (int i = 0; i < kReadUnroll; ++i) {
    auto r = [&](int j) { return "%r" + std::to_string(16 + 4 * i + j); };
    std::string address = "%a" + std::to_string(i);
    if (i > 0)
      loads += "  add.u64 " + address + ", %a" + std::to_string(i - 1) +
               ", %step;\n";
    loads += "  ld.global.nc.v4.u32 {" + r(0) + "," + r(1) + "," + r(2) + "," +
             r(3) + "}, [" + address + "];\n";
    for (int j = 0; j < 4; ++j)
      folds += "  xor.b32 %sum, %sum, " + r(j) + ";\n";
  }
  return R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry ffd_bench_empty(.param .align 8 .b8 args[24])
{
  ret;
}
.visible .entry ffd_bench_read(.param .align 8 .b8 args[24])
.maxntid 512, 1, 1
{
  .reg .pred %p, %q;
  .reg .b32 %r<64>, %sum;
  .reg .b64 %data, %count, %sink, %i, %x, %stride, %step, %last, %jump, %a<8>;
  ld.param.u64 %data, [args];
  ld.param.u64 %count, [args+8];
  ld.param.u64 %sink, [args+16];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %i, %r1, %r2;
  cvt.u64.u32 %x, %r3;
  add.u64 %i, %i, %x;
  mul.wide.u32 %stride, %r4, %r2;
  shl.b64 %step, %stride, 4;
  mul.lo.u64 %jump, %stride, 8;
  mul.lo.u64 %last, %stride, 7;
  shl.b64 %x, %i, 4;
  add.u64 %a0, %data, %x;
  mov.b32 %sum, 0;
LOOP:
  add.u64 %x, %i, %last;
  setp.ge.u64 %p, %x, %count;
  @%p bra REST;
)" + loads +
         folds +
         R"(  add.u64 %a0, %a7, %step;
  add.u64 %i, %i, %jump;
  bra LOOP;
REST:
  setp.ge.u64 %p, %i, %count;
  @%p bra DONE;
  ld.global.nc.v4.u32 {%r16,%r17,%r18,%r19}, [%a0];
  xor.b32 %r16, %r16, %r17;
  xor.b32 %r18, %r18, %r19;
  xor.b32 %sum, %sum, %r16;
  xor.b32 %sum, %sum, %r18;
  add.u64 %a0, %a0, %step;
  add.u64 %i, %i, %stride;
  bra REST;
DONE:
  setp.ne.u32 %q, %sum, 305419896;
  @%q bra END;
  st.global.u32 [%sink], %sum;
END:
  ret;
}
)";
}

/// Adds up memory; vectorises to plain loads.
static uint64_t sumBytes(const uint64_t *data, int64_t words) {
  constexpr int kLanes = 64;
  uint64_t sums[kLanes] = {}, total = 0;
  int64_t i = 0;
  for (; i + kLanes <= words; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane)
      sums[lane] += data[i + lane];
  for (; i < words; ++i)
    total += data[i];
  for (uint64_t sum : sums)
    total += sum;
  return total;
}

//===----------------------------------------------------------------------===//
// Machine
//===----------------------------------------------------------------------===//

Expected<std::unique_ptr<Machine>> Machine::open(const Options &options,
                                                 ThreadPool &pool) {
  std::unique_ptr<Machine> machine(new Machine(options, pool));
  if (options.onGpu()) {
    if (Error e = machine->openDevice())
      return std::move(e);
    return std::move(machine);
  }
  for (int name : {_SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE})
    machine->cache = std::max<int64_t>(machine->cache, sysconf(name));
  machine->memory =
      int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 2;
  return std::move(machine);
}

Error Machine::openDevice() {
  std::shared_ptr<const CudaDriver> driver;
  if (Error e = toError(CudaDriver::load("", driver)))
    return e;
  if (Error e = toError(CudaContext::create(driver, /*device=*/0, context)))
    return e;
  cache = std::max<int64_t>(context->device().cacheBytes, 0);
  memory = context->device().memoryBytes;
  if (Error e = toError(readKernel.load(context, readPtx(), /*isPtx=*/true,
                                        "ffd_bench_read", 0)))
    return e;
  return toError(emptyKernel.load(context, readPtx(), /*isPtx=*/true,
                                  "ffd_bench_empty", 0));
}

std::string Machine::name() const {
  if (options.emulated())
    return options.arch + ", emulated, without times";
  if (context)
    return context->device().name + " (" + context->device().arch() + ", " +
           std::to_string(context->device().multiprocessors) + " SMs)";
  return std::to_string(pool.threads()) +
         (pool.threads() > 1 ? " threads" : " thread");
}

int64_t Machine::parallelTasks(DecodeKernel &kernel) const {
  if (context)
    return static_cast<CudaKernel &>(kernel).residentCtas();
  return pool.threads() == 1 ? 1 : 4 * pool.threads();
}

Status Machine::run(DecodeKernel &kernel, const ffdDecodeArgs &args) {
  return context ? static_cast<CudaKernel &>(kernel).launchResident(args)
                 : kernel.decode(args);
}

Error Machine::wait() {
  return context ? toError(context->synchronize()) : Error::success();
}

static Timing summarise(std::vector<double> seconds, int launches) {
  std::sort(seconds.begin(), seconds.end());
  auto at = [&](double share) {
    return seconds[size_t(share * double(seconds.size() - 1) + 0.5)];
  };
  return {at(0.5), seconds.front(), at(0.1),
          at(0.9), launches,        int(seconds.size())};
}

Expected<Timing> Machine::time(int launches, int runs,
                               function_ref<Status(int)> launch) {
  std::vector<double> seconds;
  if (!context) {
    for (int run = -1; run < runs; ++run) {
      auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < launches; ++i)
        if (Error e = toError(launch(i)))
          return std::move(e);
      std::chrono::duration<double> elapsed =
          std::chrono::steady_clock::now() - start;
      if (run >= 0)
        seconds.push_back(elapsed.count() / launches);
    }
    return summarise(std::move(seconds), launches);
  }

  constexpr int kWarmups = 3;
  CudaGraph graph;
  CudaEvent start, stop;
  auto record = [&]() -> Status {
    FFD_RETURN_IF_ERROR(graph.begin(context));
    for (int i = 0; i < launches; ++i)
      FFD_RETURN_IF_ERROR(launch(i));
    FFD_RETURN_IF_ERROR(graph.end());
    FFD_RETURN_IF_ERROR(start.create(context));
    return stop.create(context);
  };
  if (Error e = toError(record()))
    return std::move(e);
  auto replay = [&](float &milliseconds) -> Status {
    FFD_RETURN_IF_ERROR(start.record());
    FFD_RETURN_IF_ERROR(graph.launch());
    FFD_RETURN_IF_ERROR(stop.record());
    return stop.since(start, milliseconds);
  };
  for (int run = -kWarmups; run < runs; ++run) {
    float milliseconds = 0;
    if (Error e = toError(replay(milliseconds)))
      return std::move(e);
    if (run >= 0)
      seconds.push_back(milliseconds * 1e-3 / launches);
  }
  return summarise(std::move(seconds), launches);
}

Expected<Timing> Machine::timeRead(int64_t bytes) {
  if (options.emulated())
    return Timing();
  if (bytes > readBytes) { // at that size the time is proportional to it
    Expected<Timing> whole = timeRead(readBytes);
    if (!whole)
      return whole.takeError();
    for (double *time :
         {&whole->median, &whole->fastest, &whole->p10, &whole->p90})
      *time *= double(bytes) / double(readBytes);
    return *whole;
  }
  bytes = std::max<int64_t>(bytes / 16 * 16, 16);
  if (auto it = reads.find(bytes); it != reads.end())
    return it->second;
  int64_t copies = std::max<int64_t>(1, readBytes / bytes);
  int launches = int(std::clamp<int64_t>(copies, 4, 64));
  int runs = std::max(5, options.reps / 2);
  Timing best;
  if (context) {
    const int64_t sms = context->device().multiprocessors;
    for (int64_t grid : {sms, 2 * sms, 4 * sms, 8 * sms}) {
      Expected<Timing> one = time(launches, runs, [&](int i) {
        ReadParameters parameters = {readBuffer.as<uint8_t>(i % copies * bytes),
                                     bytes / 16,
                                     readBuffer.as<uint8_t>(readBytes)};
        return readKernel.launch(grid, kReadThreads, 0, &parameters);
      });
      if (!one)
        return one.takeError();
      if (best.runs == 0 || one->median < best.median)
        best = *one;
    }
  } else {
    std::atomic<uint64_t> total{0};
    int64_t words = bytes / 8, parts = pool.threads();
    Expected<Timing> one = time(launches, runs, [&](int i) {
      const auto *data = readBuffer.as<uint64_t>(i % copies * words);
      pool.parallelFor(parts, [&](int64_t part) {
        int64_t first = words * part / parts;
        total += sumBytes(data + first, words * (part + 1) / parts - first);
      });
      return Status::success();
    });
    if (!one)
      return one.takeError();
    best = *one;
  }
  reads[bytes] = best;
  return best;
}

Error Machine::measurePeak() {
  if (options.emulated())
    return Error::success();
  if (!context) {
    Expected<tools::Bandwidth> bandwidth = tools::measureReadBandwidth(pool);
    if (!bandwidth)
      return bandwidth.takeError();
    peakRate = bandwidth->bytesPerSecond;
    readBytes = bandwidth->bufferBytes;
  } else {
    readBytes = std::min<int64_t>(int64_t(4) << 30, memory / 8);
  }
  if (Error e = readBuffer.allocate(context, "read yardstick", readBytes + 256))
    return e;
  if (Error e = readBuffer.fill(0x5A))
    return e;
  if (!context)
    return Error::success();
  Expected<Timing> read = timeRead(readBytes);
  if (!read)
    return read.takeError();
  peakRate = double(readBytes) / read->median;
  return Error::success();
}

Expected<Timing> Machine::timeEmpty() {
  if (options.emulated())
    return Timing();
  if (!context)
    return time(64, options.reps, [&](int) {
      pool.parallelFor(pool.threads(), [](int64_t) {});
      return Status::success();
    });
  ReadParameters none = {};
  return time(64, options.reps, [&](int) {
    return emptyKernel.launch(context->device().multiprocessors, 256, 0, &none);
  });
}

} // namespace ffd::bench
