//===- CudaStream.cpp - Streams, events and graphs of a GPU -------------- ===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What orders work on a device, and what records and replays it.
//
//===----------------------------------------------------------------------===//

#include "CudaSymbols.h"

using namespace ffd;

Status CudaContext::finish(void *on) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.streamSynchronize(on),
                          "finish a copy from the device");
}

Status CudaContext::createStream(void *&created) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.streamCreate(&created, kNonBlocking),
                          "create a stream");
}

void CudaContext::destroyStream(void *created) const {
  CudaScope scope(*this);
  if (scope.entered().ok())
    scope.cuda.streamDestroy(created);
}

Status CudaContext::capturing(void *on, uint64_t &capture) const {
  CudaScope scope(*this);
  FFD_RETURN_IF_ERROR(scope.entered());
  int state = 0;
  unsigned long long number = 0;
  FFD_RETURN_IF_ERROR(
      scope.cuda.check(scope.cuda.streamCaptureInfo(on, &state, &number,
                                                    nullptr, nullptr, nullptr),
                       "ask a stream"));
  capture = state != 0 ? number + 1 : 0;
  return Status::success();
}

//===----------------------------------------------------------------------===//
// CudaEvent
//===----------------------------------------------------------------------===//

CudaEvent::~CudaEvent() {
  if (!handle)
    return;
  CudaScope scope(*context);
  if (scope.entered().ok())
    scope.cuda.eventDestroy(handle);
}

Status CudaEvent::create(std::shared_ptr<CudaContext> owner) {
  CudaScope scope(*owner);
  FFD_RETURN_IF_ERROR(scope.entered());
  Handle fresh = nullptr;
  FFD_RETURN_IF_ERROR(
      scope.cuda.check(scope.cuda.eventCreate(&fresh, 0), "create an event"));
  context = std::move(owner);
  handle = fresh;
  return Status::success();
}

Status CudaEvent::record(void *stream) {
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.eventRecord(handle, stream),
                          "record an event");
}

Status CudaEvent::reached(bool &yes) const {
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  const CUresult result = scope.cuda.eventQuery(handle);
  yes = result == 0;
  return result == kNotReady ? Status::success()
                             : scope.cuda.check(result, "query an event");
}

Status CudaEvent::wait() const {
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.eventSynchronize(handle),
                          "finish a kernel");
}

Status CudaEvent::since(const CudaEvent &start, float &milliseconds) const {
  FFD_RETURN_IF_ERROR(start.wait());
  FFD_RETURN_IF_ERROR(wait());
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(
      scope.cuda.eventElapsedTime(&milliseconds, start.handle, handle),
      "time a kernel");
}

//===----------------------------------------------------------------------===//
// CudaGraph
//===----------------------------------------------------------------------===//

CudaGraph::~CudaGraph() {
  if (!context)
    return;
  if (stream && !graph) // left in the middle of a capture
    (void)end();
  CudaScope scope(*context);
  if (!scope.entered().ok())
    return;
  if (executable)
    scope.cuda.graphExecDestroy(executable);
  if (graph)
    scope.cuda.graphDestroy(graph);
  if (stream)
    scope.cuda.streamDestroy(stream);
}

Status CudaGraph::begin(std::shared_ptr<CudaContext> owner) {
  if (stream || owner->stream)
    return Status::invalid("the context or the graph has captured before, "
                           "expected a fresh graph and none in progress");
  CudaScope scope(*owner);
  FFD_RETURN_IF_ERROR(scope.entered());
  context = std::move(owner);
  FFD_RETURN_IF_ERROR(scope.cuda.check(
      scope.cuda.streamCreate(&stream, kNonBlocking), "create a stream"));
  FFD_RETURN_IF_ERROR(
      scope.cuda.check(scope.cuda.beginCapture(stream, kCaptureThreadLocal),
                       "begin to capture a graph"));
  context->stream = stream;
  return Status::success();
}

Status CudaGraph::end() {
  if (!context || !stream || context->stream != stream)
    return Status::invalid("no graph is being captured, expected begin() "
                           "before end()");
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  context->stream = nullptr;
  FFD_RETURN_IF_ERROR(scope.cuda.check(scope.cuda.endCapture(stream, &graph),
                                       "capture a graph"));
  return scope.cuda.check(
      scope.cuda.graphInstantiate(&executable, graph, /*flags=*/0),
      "instantiate a graph");
}

Status CudaGraph::launch() {
  if (!executable)
    return Status::invalid("no graph is captured, expected end() before "
                           "launch()");
  CudaScope scope(*context);
  FFD_RETURN_IF_ERROR(scope.entered());
  return scope.cuda.check(scope.cuda.graphLaunch(executable, nullptr),
                          "launch a graph");
}
