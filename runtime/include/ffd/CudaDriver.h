//===- CudaDriver.h - The CUDA driver, found at run time --------*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The few functions of libcuda that the runtime needs, loaded with dlopen so
// that nothing links against CUDA, and thin owners of what they create. Every
// member function makes its context current for its own duration and restores
// the caller's.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_CUDADRIVER_H
#define FFD_CUDADRIVER_H

#include "ffd/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ffd {

struct CudaSymbols; ///< the table of functions, src/CudaSymbols.h

/// The loaded driver library. Stays loaded while referenced.
class CudaDriver {
public:
  /// Loads `path`, or libcuda.so.1 as the system finds it if `path` is empty,
  /// and initialises it.
  static Status load(const std::string &path,
                     std::shared_ptr<const CudaDriver> &driver);
  ~CudaDriver();

  Status deviceCount(int &count) const;
  /// The CUDA version the driver supports, for example 12040.
  int version() const { return driverVersion; }
  const CudaSymbols &symbols() const { return *table; }

private:
  CudaDriver();
  void *library = nullptr;
  std::unique_ptr<CudaSymbols> table;
  int driverVersion = 0;
};

struct CudaDeviceInfo {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;   ///< SM count
  int maxSharedPerBlock = 0; ///< bytes, after opting in
  int64_t memoryBytes = 0;
  int64_t cacheBytes = 0; ///< of L2
  /// The architecture to compile for: "sm_80", "sm_90a", "sm_100a".
  std::string arch() const;
  /// Whether it runs code for `target`: machine code of its own generation, or
  /// PTX of any up to its own; what is architecture-specific only here.
  bool runs(const std::string &target, bool machineCode) const;
};

/// The primary context of one device.
class CudaContext {
public:
  static Status create(std::shared_ptr<const CudaDriver> driver, int device,
                       std::shared_ptr<CudaContext> &context);
  ~CudaContext();

  const CudaDeviceInfo &device() const { return info; }
  const CudaDriver &driver() const { return *cuda; }

  /// The same over a CUcontext of that device which the caller keeps alive.
  static Status adopt(std::shared_ptr<const CudaDriver> driver, int device,
                      void *handle, std::shared_ptr<CudaContext> &context);

  /// Waits for all work of the context.
  Status synchronize() const;
  /// Machine code of PTX for the device, by the driver's assembler; `name` is
  /// the kernel's, for messages.
  Status assemble(const std::string &ptx, const std::string &name,
                  std::string &cubin) const;

  /// Memory of the device, or pinned memory of the host that the device
  /// accesses at the same address. The caller frees it.
  Status allocate(const char *what, int64_t bytes, bool onHost,
                  void *&pointer) const;
  void free(void *pointer, bool onHost) const;
  /// Copies on a CUstream (null: the default one). `host` may be reused when
  /// copyIn returns; copyOut waits, copyOutLater needs pinned memory and does
  /// not.
  Status copyIn(void *to, const void *host, int64_t bytes, void *stream) const;
  Status copyOut(void *host, const void *from, int64_t bytes,
                 void *stream) const;
  Status copyOutLater(void *pinned, const void *from, int64_t bytes,
                      void *stream) const;
  /// `rows` times `bytes`, `stride` apart at the source, side by side at the
  /// target; like copyOutLater.
  Status copyRowsOutLater(void *pinned, const void *from, int64_t bytes,
                          int64_t rows, int64_t stride, void *stream) const;
  /// Waits for the stream's work.
  Status finish(void *stream) const;
  Status copyWithin(void *to, const void *from, int64_t bytes,
                    void *stream) const;
  Status fill(void *to, uint8_t value, int64_t bytes, void *stream) const;
  /// A CUstream that is not ordered with the default one.
  Status createStream(void *&stream) const;
  void destroyStream(void *stream) const;
  /// The number of the capture that records the stream's work into a graph, a
  /// different one for each; 0 if there is none.
  Status capturing(void *stream, uint64_t &capture) const;

private:
  friend class CudaScope;
  friend class CudaFunction;
  friend class CudaGraph;
  CudaContext() = default;
  void *stream = nullptr; ///< launches go here: the default one, or a capture
  std::shared_ptr<const CudaDriver> cuda;
  CudaDeviceInfo info;
  int ordinal = 0;
  void *handle = nullptr;
  bool retained = false; ///< handle is the primary context, ours to release
};

/// Device memory; freed with the object.
class CudaBuffer {
public:
  CudaBuffer() = default;
  ~CudaBuffer();
  CudaBuffer(const CudaBuffer &) = delete;
  CudaBuffer &operator=(const CudaBuffer &) = delete;

  /// Makes room for at least `bytes`; the contents are undefined afterwards.
  Status reserve(std::shared_ptr<CudaContext> owner, const char *what,
                 int64_t bytes);
  Status upload(const void *host, int64_t bytes);
  Status download(void *host, int64_t bytes) const;
  Status fill(uint8_t value, int64_t bytes);
  /// Copies `bytes` from offset `from` to offset `to` of this buffer.
  Status repeat(int64_t to, int64_t from, int64_t bytes);

  uint64_t address() const { return pointer; }
  template <typename T>
  T *as() const {
    return reinterpret_cast<T *>(uintptr_t(pointer));
  }
  int64_t size() const { return capacity; }

private:
  void release();
  std::shared_ptr<CudaContext> context;
  uint64_t pointer = 0;
  int64_t capacity = 0;
};

/// A kernel of a loaded module.
class CudaFunction {
public:
  CudaFunction() = default;
  ~CudaFunction();
  CudaFunction(const CudaFunction &) = delete;
  CudaFunction &operator=(const CudaFunction &) = delete;

  /// Loads PTX text or a cubin; the status of PTX that the driver rejects holds
  /// its error log. Opts in to `sharedBytes` of dynamic shared memory.
  Status load(std::shared_ptr<CudaContext> owner, const std::string &image,
              bool isPtx, const std::string &entry, int sharedBytes);

  /// Launches on the default stream of the context, or into the graph that is
  /// being captured; does not wait.
  Status launch(int64_t grid, int threads, int sharedBytes,
                const void *parameter) const;
  /// The same on a CUstream.
  Status launchOn(void *stream, int64_t grid, int threads, int sharedBytes,
                  const void *parameter) const;

  /// Registers per thread and bytes of local memory (spills) per thread.
  Status resources(int &registers, int &localBytes) const;

private:
  std::shared_ptr<CudaContext> context;
  void *module = nullptr;
  void *function = nullptr;
};

/// A point in the default stream.
class CudaEvent {
public:
  CudaEvent() = default;
  ~CudaEvent();
  CudaEvent(const CudaEvent &) = delete;
  CudaEvent &operator=(const CudaEvent &) = delete;

  Status create(std::shared_ptr<CudaContext> owner);
  Status record(void *stream = nullptr);
  Status wait() const;
  /// Whether all before the recording has finished; does not wait.
  Status reached(bool &yes) const;
  /// Milliseconds from `start` to this event; waits for both.
  Status since(const CudaEvent &start, float &milliseconds) const;

private:
  std::shared_ptr<CudaContext> context;
  void *handle = nullptr;
};

/// Launches recorded once and replayed as a whole, without the host's time
/// between them.
class CudaGraph {
public:
  CudaGraph() = default;
  ~CudaGraph();
  CudaGraph(const CudaGraph &) = delete;
  CudaGraph &operator=(const CudaGraph &) = delete;

  /// Until end(), launches of the context are recorded instead of executed.
  /// One graph of a context is captured at a time, and once.
  Status begin(std::shared_ptr<CudaContext> owner);
  Status end();
  /// Replays on the default stream; does not wait.
  Status launch();

private:
  std::shared_ptr<CudaContext> context;
  void *stream = nullptr;
  void *graph = nullptr;
  void *executable = nullptr;
};

} // namespace ffd
#endif // FFD_CUDADRIVER_H
