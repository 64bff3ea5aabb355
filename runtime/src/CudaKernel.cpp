//===- CudaKernel.cpp - Launching a kernel on a GPU -------------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Host arguments are copied to device buffers that live as long as the kernel;
// the launch gets the same struct with device pointers.
//
//===----------------------------------------------------------------------===//

#include "ArgExtents.h"

#include "ffd/CudaDriver.h"
#include "ffd/Package.h"
#include "ffd/Plan.h"

#include <algorithm>

using namespace ffd;

/// What a CTA needs of an SM, when the package does not say.
static constexpr int kDefaultCtasPerSm = 2;

/// Whether the kernel takes ffdDecodeArgs.
static bool attends(Program program) {
  return program == Program::Decode || program == Program::Exact;
}

struct CudaKernel::State {
  std::shared_ptr<CudaContext> context;
  CudaFunction function;
  int threads = 0, sharedBytes = 0, ctasPerSm = 0;

  CudaBuffer q, thumbnails, residuals, values, smax, centre, tailK, tailV,
      pageTable, lengths, delta, out, lse, kept, keptCount, skippedLse,
      workspace, plan;
  ffdDecodeArgs device = {}; ///< what launches get
  ArgExtents extents;
  bool resident = false;

  /// CTAs of a launch.
  static int64_t grid(const ffdDecodeArgs &args) {
    return args.plan ? args.pieces
                     : int64_t(args.batch) * args.kv_heads * args.splits;
  }
  Status putPlan(const ffdSpec &spec, const ffdDecodeArgs &host);

  /// Copies `bytes` and sets the device pointer; a valid address even for none.
  template <typename T>
  Status put(CudaBuffer &buffer, const char *what, const void *host,
             int64_t bytes, T *&pointer) {
    FFD_RETURN_IF_ERROR(
        buffer.reserve(context, what, std::max<int64_t>(bytes, 16)));
    if (bytes > 0 && host)
      FFD_RETURN_IF_ERROR(buffer.upload(host, bytes));
    pointer = buffer.as<T>();
    return Status::success();
  }
};

/// Cuts rows of unequal lengths into pieces of equal size.
Status CudaKernel::State::putPlan(const ffdSpec &spec,
                                  const ffdDecodeArgs &host) {
  PlanOptions options;
  options.batch = host.batch;
  options.kvHeads = host.kv_heads;
  options.lag = host.lag;
  options.multiprocessors = context->device().multiprocessors;
  options.resident = options.multiprocessors * ctasPerSm;
  options.target = raggedPieces(extents.rows, options.resident);
  std::vector<ffdPiece> pieces(size_t(options.target));
  FFD_RETURN_IF_ERROR(planPieces(spec, options, host.lengths, pieces.data(),
                                 int64_t(pieces.size())));
  FFD_RETURN_IF_ERROR(put(plan, "plan", pieces.data(),
                          int64_t(pieces.size() * sizeof(ffdPiece)),
                          device.plan));
  device.pieces = int32_t(pieces.size());
  return Status::success();
}

CudaKernel::CudaKernel(const ffdSpec &spec, Program program, std::string target)
    : DecodeKernel(spec, program, std::move(target)), state(new State) {}

CudaKernel::~CudaKernel() = default;

Status CudaKernel::create(std::shared_ptr<CudaContext> context,
                          const Package &package,
                          std::unique_ptr<CudaKernel> &kernel) {
  if (package.kind == PackageKind::CpuObject)
    return Status::invalid("kernel package '" + package.fileName() +
                           "' has kind cpu-object, expected ptx or cubin");
  const CudaDeviceInfo &device = context->device();
  if (!device.runs(package.target, package.kind == PackageKind::Cubin))
    return Status(StatusCode::Unsupported,
                  "kernel package '" + package.fileName() + "' has target " +
                      package.target + ", expected one that runs on '" +
                      device.name + "' (" + device.arch() + ")");
  if (package.sharedBytes > device.maxSharedPerBlock)
    return Status(StatusCode::Unsupported,
                  "kernel package '" + package.fileName() +
                      "' has shared_bytes " +
                      std::to_string(package.sharedBytes) +
                      ", expected at most the device's " +
                      std::to_string(device.maxSharedPerBlock));
  std::unique_ptr<CudaKernel> result(
      new CudaKernel(package.spec, package.program, package.target));
  State &s = *result->state;
  FFD_RETURN_IF_ERROR(s.function.load(context, package.payload,
                                      package.kind == PackageKind::Ptx,
                                      package.entry, package.sharedBytes));
  s.context = std::move(context);
  s.threads = package.threads;
  s.sharedBytes = package.sharedBytes;
  s.ctasPerSm = package.ctasPerSm > 0 ? package.ctasPerSm : kDefaultCtasPerSm;
  kernel = std::move(result);
  return Status::success();
}

Status CudaKernel::upload(const ffdDecodeArgs &args) {
  State &s = *state;
  s.resident = false;
  if (!attends(kernelProgram))
    return badProgram("decode' or 'exact");
  ArgExtents &x = s.extents;
  FFD_RETURN_IF_ERROR(measureArgs(kernelSpec, kernelProgram, args, x));
  s.device = args;
  ffdDecodeArgs &d = s.device;
  const bool ragged =
      std::any_of(args.lengths, args.lengths + args.batch,
                  [&](int32_t length) { return length != args.lengths[0]; });
  if (d.splits == 0 && ragged && kernelProgram == Program::Decode)
    FFD_RETURN_IF_ERROR(s.putPlan(kernelSpec, args));
  if (d.splits == 0)
    d.splits = splitsFor(x.rows, x.maxLength);
  FFD_RETURN_IF_ERROR(s.put(s.q, "queries", args.q, x.q, d.q));
  FFD_RETURN_IF_ERROR(s.put(s.thumbnails, "thumbnails", args.thumbnails,
                            x.thumbnails, d.thumbnails));
  FFD_RETURN_IF_ERROR(s.put(s.residuals, "residuals", args.residuals,
                            x.residuals, d.residuals));
  FFD_RETURN_IF_ERROR(
      s.put(s.values, "values", args.values, x.values, d.values));
  FFD_RETURN_IF_ERROR(s.put(s.smax, "smax", args.smax, x.smax, d.smax));
  FFD_RETURN_IF_ERROR(
      s.put(s.centre, "centres", args.centre, x.centre, d.centre));
  FFD_RETURN_IF_ERROR(
      s.put(s.tailK, "tails of K", args.tail_k, x.tailK, d.tail_k));
  FFD_RETURN_IF_ERROR(
      s.put(s.tailV, "tails of V", args.tail_v, x.tailV, d.tail_v));
  FFD_RETURN_IF_ERROR(s.put(s.pageTable, "page table", args.page_table,
                            x.pageTable, d.page_table));
  FFD_RETURN_IF_ERROR(
      s.put(s.lengths, "lengths", args.lengths, x.lengths, d.lengths));
  FFD_RETURN_IF_ERROR(s.put(s.delta, "deltas", args.delta, x.delta, d.delta));
  FFD_RETURN_IF_ERROR(s.put(s.out, "output", nullptr, x.out, d.out));
  FFD_RETURN_IF_ERROR(s.out.fill(0xFF, x.out));
  if (args.lse) {
    FFD_RETURN_IF_ERROR(s.put(s.lse, "lse", nullptr, x.lse, d.lse));
    FFD_RETURN_IF_ERROR(s.lse.fill(0xFF, x.lse));
  }
  if (x.skippedLse) {
    FFD_RETURN_IF_ERROR(s.put(s.skippedLse, "skipped lse", nullptr,
                              x.skippedLse, d.skipped_lse));
    FFD_RETURN_IF_ERROR(s.skippedLse.fill(0xFF, x.skippedLse));
  } else {
    d.skipped_lse = nullptr;
  }
  // The kernel writes the mask of committed tokens only; the rest comes back
  // as the caller had it.
  if (args.kept && kernelProgram == Program::Decode)
    FFD_RETURN_IF_ERROR(s.put(s.kept, "kept mask", args.kept, x.kept, d.kept));
  else
    d.kept = nullptr;
  if (args.kept_count && kernelProgram == Program::Decode)
    FFD_RETURN_IF_ERROR(s.put(s.keptCount, "kept counters", args.kept_count,
                              x.rows * 8, d.kept_count));
  else
    d.kept_count = nullptr;
  int64_t bytes;
  if (d.plan)
    bytes = layoutOf(kernelSpec)
                .plannedWorkspaceBytes(x.rows, d.pieces, rowHeads(kernelSpec));
  else
    FFD_RETURN_IF_ERROR(workspaceBytes(kernelSpec, x.rows, d.splits, bytes));
  FFD_RETURN_IF_ERROR(
      s.put(s.workspace, "workspace", nullptr, bytes, d.workspace));
  FFD_RETURN_IF_ERROR(s.workspace.fill(0, Layout::partialsOffset(x.rows)));
  s.resident = true;
  return Status::success();
}

Status CudaKernel::launch() {
  State &s = *state;
  if (!s.resident)
    return Status::invalid("nothing is uploaded, expected upload() before "
                           "launch()");
  return s.function.launch(State::grid(s.device), s.threads, s.sharedBytes,
                           &s.device);
}

/// What a launch over device memory needs, as far as the host sees it.
static Status checkResident(const ffdDecodeArgs &device) {
  if (device.workspace && (device.plan ? device.pieces : device.splits) >= 1)
    return Status::success();
  return Status::invalid(
      "launch over device memory: splits and pieces are " +
      std::to_string(device.splits) + " and " + std::to_string(device.pieces) +
      ", expected at least 1 of what applies, and a workspace");
}

Status CudaKernel::launchResident(const ffdDecodeArgs &device) {
  if (!attends(kernelProgram))
    return badProgram("decode' or 'exact");
  FFD_RETURN_IF_ERROR(checkResident(device));
  return state->function.launch(State::grid(device), state->threads,
                                state->sharedBytes, &device);
}

Status CudaKernel::launchResidentOn(void *stream, const ffdDecodeArgs &device) {
  if (!attends(kernelProgram))
    return badProgram("decode' or 'exact");
  FFD_RETURN_IF_ERROR(checkResident(device));
  return state->function.launchOn(stream, State::grid(device), state->threads,
                                  state->sharedBytes, &device);
}

Status CudaKernel::launchAppend(const ffdAppendArgs &device, void *stream) {
  const State &s = *state;
  if (kernelProgram != Program::Append)
    return badProgram("append");
  FFD_RETURN_IF_ERROR(checkAppendArgs(kernelSpec, device));
  const int64_t grid = int64_t(device.batch) * device.kv_heads * device.splits;
  return stream ? s.function.launchOn(stream, grid, s.threads, s.sharedBytes,
                                      &device)
                : s.function.launch(grid, s.threads, s.sharedBytes, &device);
}

Status CudaKernel::launchPlan(const ffdPlanArgs &device, void *stream) {
  const State &s = *state;
  if (kernelProgram != Program::Plan)
    return badProgram("plan");
  FFD_RETURN_IF_ERROR(checkPlanArgs(device));
  return stream
             ? s.function.launchOn(stream, 1, s.threads, s.sharedBytes, &device)
             : s.function.launch(1, s.threads, s.sharedBytes, &device);
}

Status CudaKernel::badProgram(const char *expected) const {
  return Status::invalid(std::string("the kernel's program is '") +
                         programName(kernelProgram) + "', expected '" +
                         expected + "'");
}

int32_t CudaKernel::splitsFor(int64_t rows, int64_t maxLength) const {
  const int64_t sms = state->context->device().multiprocessors;
  return kernelProgram == Program::Decode
             ? pickGpuSplits(kernelSpec, rows, maxLength, sms, state->ctasPerSm)
             // Exact attention has no prologue that short pieces repeat.
             : pickGpuSplits(kernelSpec, rows, maxLength,
                             sms * state->ctasPerSm, 1);
}

int64_t CudaKernel::residentCtas() const {
  return int64_t(state->context->device().multiprocessors) * state->ctasPerSm;
}

Status CudaKernel::resources(int &registers, int &localBytes) const {
  return state->function.resources(registers, localBytes);
}

Status CudaKernel::timeLaunches(int warmup, int count,
                                std::vector<float> &milliseconds) {
  if (warmup < 0 || count < 1)
    return Status::invalid(
        "timed launches: warmup is " + std::to_string(warmup) + " and count " +
        std::to_string(count) + ", expected at least 0 and 1");
  for (int i = 0; i < warmup; ++i)
    FFD_RETURN_IF_ERROR(launch());
  std::vector<CudaEvent> events(size_t(count) + 1);
  for (CudaEvent &event : events)
    FFD_RETURN_IF_ERROR(event.create(state->context));
  FFD_RETURN_IF_ERROR(events[0].record());
  for (int i = 0; i < count; ++i) {
    FFD_RETURN_IF_ERROR(launch());
    FFD_RETURN_IF_ERROR(events[size_t(i) + 1].record());
  }
  FFD_RETURN_IF_ERROR(events.back().wait());
  milliseconds.resize(size_t(count));
  for (int i = 0; i < count; ++i)
    FFD_RETURN_IF_ERROR(events[size_t(i) + 1].since(events[size_t(i)],
                                                    milliseconds[size_t(i)]));
  return Status::success();
}

Status CudaKernel::download(const ffdDecodeArgs &args) {
  State &s = *state;
  if (!s.resident)
    return Status::invalid("nothing is uploaded, expected upload() before "
                           "download()");
  FFD_RETURN_IF_ERROR(s.context->synchronize());
  FFD_RETURN_IF_ERROR(s.out.download(args.out, s.extents.out));
  if (args.lse && s.device.lse)
    FFD_RETURN_IF_ERROR(s.lse.download(args.lse, s.extents.lse));
  if (s.device.skipped_lse)
    FFD_RETURN_IF_ERROR(
        s.skippedLse.download(args.skipped_lse, s.extents.skippedLse));
  if (args.kept && s.device.kept)
    FFD_RETURN_IF_ERROR(s.kept.download(args.kept, s.extents.kept));
  if (args.kept_count && s.device.kept_count)
    FFD_RETURN_IF_ERROR(
        s.keptCount.download(args.kept_count, s.extents.rows * 8));
  return Status::success();
}

Status CudaKernel::decode(const ffdDecodeArgs &args) {
  FFD_RETURN_IF_ERROR(upload(args));
  FFD_RETURN_IF_ERROR(launch());
  return download(args);
}
