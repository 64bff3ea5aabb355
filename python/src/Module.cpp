//===- Module.cpp - The extension module ffd._ffd -------------------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The few functions below the package's Python layer (python/ffd), which fills
// in defaults, allocates results and documents them. python/ffd/_ffd.pyi types
// them.
//
//===----------------------------------------------------------------------===//

#include "Cache.h"
#include "PagedCache.h"
#include "SplitFunctions.h"

#include "ffd/CudaDriver.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

using namespace ffd;
using namespace ffd::python;
using namespace nb::literals;

/// Devices that the CUDA driver offers, and why there are none.
static std::tuple<int, std::string> cudaDevices() {
  std::shared_ptr<const CudaDriver> driver;
  int count = 0;
  Status status = CudaDriver::load("", driver);
  if (status.ok())
    status = driver->deviceCount(count);
  return {status.ok() ? count : 0, status.message()};
}

static nb::dict bytesOf(const DecodeBytes &bytes) {
  nb::dict result;
  result["scan"] = bytes.scan;
  result["kept"] = bytes.kept;
  result["tail"] = bytes.tail;
  result["dense"] = bytes.dense;
  result["kept_blocks"] = bytes.keptBlocks;
  result["select_blocks"] = bytes.selectBlocks;
  return result;
}

/// A cache of the arguments of ffd.PagedCache; `pages` below 0: by `bytes`.
static void makePaged(PagedCache *place, std::shared_ptr<PagedContext> context,
                      const nb::dict &given, std::optional<uint64_t> bytes) {
  ffdCacheOptions options;
  ffdCacheOptionsInit(&options);
  const auto integer = [&](const char *name, auto &field) {
    field = nb::cast<std::decay_t<decltype(field)>>(given[name]);
  };
  integer("head_dim", options.spec.head_dim);
  integer("value_dim", options.spec.value_dim);
  integer("group", options.spec.group);
  integer("element", options.spec.element);
  integer("scan_bits", options.spec.scan_bits);
  options.spec.quant_block = 128;
  integer("select_block", options.spec.select_block);
  integer("query_tokens", options.spec.query_tokens);
  integer("centre", options.spec.centre);
  integer("pseudo_max", options.spec.pseudo_max);
  integer("certificate", options.spec.certificate);
  integer("layers", options.layers);
  integer("kv_heads", options.kv_heads);
  integer("sequences", options.sequences);
  integer("lag", options.lag);
  integer("max_tokens", options.max_tokens);
  integer("pages", options.pages);
  integer("delta", options.delta);
  integer("sm_scale", options.sm_scale);
  integer("host_pages", options.host_pages);
  integer("batch_invariant", options.batch_invariant);
  integer("piece_tokens", options.piece_tokens);
  new (place) PagedCache(std::move(context), options, bytes);
}

static nb::dict sizesOf(const PagedCache &cache) {
  const ffdCacheSizes sizes = cache.sizes();
  nb::dict result;
  result["page"] = sizes.page_bytes;
  result["sequence"] = sizes.sequence_bytes;
  result["total"] = sizes.total_bytes;
  return result;
}

static void bindPaged(nb::module_ &m, nb::handle error) {
  nb::exception<OutOfPages>(m, "OutOfPages", error);
  nb::exception<OutOfSequences>(m, "OutOfSequences", error);
  nb::class_<PagedContext>(m, "PagedContext", nb::is_weak_referenceable())
      .def(nb::init<int, int, const std::string &, bool, const std::string &>(),
           "ordinal"_a, "threads"_a, "kernel_dir"_a, "jit"_a, "jit_path"_a);
  nb::class_<PagedCache>(m, "PagedCache")
      .def("__init__", &makePaged, "context"_a, "options"_a, "bytes"_a.none())
      .def("close", &PagedCache::close)
      .def_prop_ro("closed", &PagedCache::closed)
      .def("create", &PagedCache::create, "delta"_a.none(), "stream"_a)
      .def("free", &PagedCache::free, "sequence"_a, "stream"_a)
      .def("fork", &PagedCache::fork, "sequence"_a, "stream"_a)
      .def("truncate", &PagedCache::truncate, "sequence"_a, "length"_a,
           "stream"_a)
      .def("set_deltas", &PagedCache::setDeltas, "sequences"_a, "deltas"_a,
           "stream"_a)
      .def("reserve", &PagedCache::reserve, "sequences"_a, "tokens"_a,
           "stream"_a)
      .def("advance", &PagedCache::advance, "sequences"_a, "tokens"_a)
      .def("sequence", &PagedCache::sequence, "sequence"_a)
      .def("append", &PagedCache::append, "layer"_a, "count"_a, "sequences"_a,
           "tokens"_a, "device_sequences"_a, "device_offsets"_a, "k"_a, "v"_a,
           "k_strides"_a, "v_strides"_a, "stream"_a)
      .def("decode", &PagedCache::decode, "layer"_a, "count"_a, "sequences"_a,
           "deltas"_a, "device_sequences"_a, "q"_a, "strides"_a, "out"_a,
           "lse"_a, "skipped_lse"_a, "stream"_a)
      .def("gather", &PagedCache::gather, "layer"_a, "sequence"_a, "first"_a,
           "count"_a, "k"_a, "v"_a, "stream"_a)
      .def("keep", &PagedCache::keep, "owner"_a, "stream"_a)
      .def("request_statistics", &PagedCache::requestStatistics, "stream"_a)
      .def("statistics", &PagedCache::statistics)
      .def("errors", &PagedCache::errors)
      .def("clear_errors", &PagedCache::clearErrors)
      .def("save", &PagedCache::save, "sequence"_a, "path"_a, "stream"_a)
      .def("load", &PagedCache::load, "path"_a, "stream"_a)
      .def("info", &PagedCache::info)
      .def("fit", &PagedCache::fit, "bytes"_a)
      .def("sizes", &sizesOf);
  m.def("describe", &describe, "capsule"_a, "write"_a);
}

NB_MODULE(_ffd, m) {
  // A runtime that something keeps to the end of the interpreter, such as an
  // attention function registered with a framework, is no error to report.
  nb::set_leak_warnings(false);
  const nb::exception<Error> error(m, "Error", PyExc_RuntimeError);
  bindPaged(m, error);

  nb::class_<Runtime>(m, "Runtime")
      .def(nb::init<std::string, int, std::string, bool, std::string>(),
           "target"_a, "threads"_a, "kernel_dir"_a, "jit"_a, "jit_path"_a)
      .def_prop_ro("target", &Runtime::target)
      .def_prop_ro("threads", [](Runtime &r) { return r.pool().threads(); })
      .def(
          "prepare",
          [](Runtime &r, const std::string &program, int headDim, int valueDim,
             int group, const std::string &element, int scanBits,
             int selectBlock, bool residuals, const std::string &selector,
             const std::string &execution, int centre, int queryTokens,
             bool refinedMax, int certificate) {
            ffdSpec spec = {};
            spec.head_dim = headDim;
            spec.value_dim = valueDim;
            spec.group = group;
            spec.element = element == "bfloat16" ? FFD_BF16 : FFD_F16;
            spec.scan_bits = scanBits;
            spec.quant_block = 128;
            spec.select_block = selectBlock;
            spec.no_residuals = !residuals;
            spec.centre = centre;
            spec.query_tokens = queryTokens;
            spec.pseudo_max =
                refinedMax ? FFD_PSEUDO_MAX_REFINED : FFD_PSEUDO_MAX_SCAN;
            spec.certificate = int16_t(certificate);
            const Selector rule = parseSelector(selector, execution);
            std::string target;
            Status status;
            {
              nb::gil_scoped_release release;
              status = r.prepare(
                  spec, program == "exact" ? Program::Exact : Program::Decode,
                  rule, target);
            }
            check(status);
            return target;
          },
          "program"_a, "head_dim"_a, "value_dim"_a, "group"_a, "element"_a,
          "scan_bits"_a, "select_block"_a, "residuals"_a, "selector"_a,
          "execution"_a, "centre"_a, "query_tokens"_a, "refined_max"_a,
          "certificate"_a);

  nb::class_<Cache>(m, "Cache")
      .def(nb::init<Runtime &, nb::handle, nb::handle, std::optional<Lengths>,
                    int, bool, int64_t, int>(),
           "runtime"_a, "k"_a, "v"_a, "lengths"_a.none(), "scan_bits"_a,
           "residuals"_a, "lag"_a, "centre"_a)
      .def("decode", &Cache::decode, "runtime"_a, "q"_a, "delta"_a,
           "sm_scale"_a, "select_block"_a, "splits"_a, "selector"_a,
           "execution"_a, "refined_max"_a, "certificate"_a)
      .def("scan", &Cache::scan, "runtime"_a, "q"_a, "sm_scale"_a, "units"_a,
           "scores"_a, "refined_max"_a)
      .def("selects", &Cache::selects, "select_block"_a)
      .def(
          "bytes",
          [](const Cache &c, const std::optional<ConstKept> &kept) {
            return bytesOf(c.bytes(kept));
          },
          "kept"_a.none())
      .def_prop_ro("batch", [](const Cache &c) { return c.split().batch(); })
      .def_prop_ro("kv_heads",
                   [](const Cache &c) { return c.split().kvHeads(); })
      .def_prop_ro("head_dim",
                   [](const Cache &c) { return c.split().spec().head_dim; })
      .def_prop_ro("value_dim",
                   [](const Cache &c) { return c.split().spec().value_dim; })
      .def_prop_ro("element",
                   [](const Cache &c) {
                     return c.split().spec().element == FFD_BF16 ? "bfloat16"
                                                                 : "float16";
                   })
      .def_prop_ro("scan_bits",
                   [](const Cache &c) { return c.split().spec().scan_bits; })
      .def_prop_ro(
          "residuals",
          [](const Cache &c) { return !c.split().spec().no_residuals; })
      .def_prop_ro("centred",
                   [](const Cache &c) {
                     return c.split().spec().centre != FFD_CENTRE_NONE;
                   })
      .def_prop_ro("centres", &Cache::centres)
      .def_prop_ro("lag", [](const Cache &c) { return c.split().lag(); })
      .def_prop_ro("nbytes",
                   [](const Cache &c) { return c.split().totalBytes(); })
      .def_prop_ro("lengths", [](const Cache &c) {
        std::vector<int64_t> lengths;
        for (int64_t s = 0; s < c.split().batch(); ++s)
          lengths.push_back(c.split().length(s));
        return lengths;
      });

  m.def("exact", &exact, "runtime"_a, "q"_a, "k"_a, "v"_a, "lengths"_a.none(),
        "sm_scale"_a);
  m.def("split", &ffd::python::split, "runtime"_a, "k"_a, "scan_bits"_a);
  m.def("merge", &merge, "outs"_a, "lses"_a);
  m.def("cuda_devices", &cudaDevices);
}
