//===- SplitFunctions.cpp - Split, reconstruction and merge for Python
//-------------===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SplitFunctions.h"

#include "ffd/Float16.h"
#include "ffd/Merge.h"
#include "ffd/Split.h"

#include <vector>

namespace ffd::python {

nb::tuple split(Runtime &runtime, nb::handle kArray, int scanBits) {
  const ElementArray k("k", kArray, 4, 4,
                       "[batch, tokens, kv_heads, head_dim]");
  k.expectHeadDim();
  ffdSpec spec = {};
  spec.head_dim = int32_t(k.shape(3));
  spec.value_dim = 16;
  spec.group = 1;
  spec.element = k.element();
  spec.scan_bits = scanBits;
  spec.quant_block = 128;
  spec.select_block = 16;
  check(checkSpec(spec));
  const int64_t heads = k.shape(2), dim = k.shape(3), quant = spec.quant_block;
  const int64_t blocks = k.shape(1) / quant;
  const size_t batch = size_t(k.shape(0));
  const NewArray<uint8_t> codes(
      {batch, size_t(blocks * quant), size_t(heads), size_t(dim)});
  const NewArray<uint8_t> residuals(
      {batch, size_t(blocks * quant), size_t(heads), size_t(dim)});
  const NewArray<uint16_t> scales(
      {batch, size_t(blocks), size_t(heads), size_t(dim)});
  const Layout layout = layoutOf(spec);
  const TokenView view = k.tokens();
  const auto splitOne = [&](int64_t task) {
    std::vector<uint8_t> thumbnail(size_t(layout.thumbnailBytes())),
        residual(size_t(layout.residualBytes()));
    for (int64_t h = 0; h < heads; ++h) {
      splitBlock(spec, view.at(task / blocks, task % blocks * quant, h),
                 view.tokenStride, thumbnail.data(), residual.data());
      for (int64_t c = 0; c < dim; ++c)
        scales.data()[(task * heads + h) * dim + c] =
            scaleAt(layout, thumbnail.data(), c);
      for (int64_t t = 0; t < quant; ++t)
        for (int64_t c = 0; c < dim; ++c) {
          const int64_t to = ((task * quant + t) * heads + h) * dim + c;
          codes.data()[to] = uint8_t(codeAt(layout, thumbnail.data(), t, c));
          residuals.data()[to] =
              uint8_t(residualAt(layout, residual.data(), t, c));
        }
    }
  };
  {
    nb::gil_scoped_release release;
    runtime.pool().parallelFor(k.shape(0) * blocks, splitOne);
  }
  return nb::make_tuple(codes.object(), residuals.object(), scales.object(),
                        spec.element == FFD_BF16);
}

/// The state of a part from what it gave: its tokens weigh exp(lse) together.
static Partial<double> partialOf(const float *out, float lse, size_t dim) {
  Partial<double> part(dim);
  part.seen = !(lse == -std::numeric_limits<float>::infinity());
  if (!part.seen)
    return part;
  part.o.assign(out, out + dim);
  part.ref = lse;
  part.l = 1;
  return part;
}

nb::tuple merge(const HostArray<const float, 3> &outs,
                const HostArray<const float, 2> &lses) {
  const size_t parts = outs.shape(0), rows = outs.shape(1), dim = outs.shape(2);
  const NewArray<float> out({rows, dim});
  const NewArray<float> lse({rows});
  {
    nb::gil_scoped_release release;
    for (size_t row = 0; row < rows; ++row) {
      Partial<double> total(dim);
      for (size_t p = 0; p < parts; ++p)
        total.merge(partialOf(outs.data() + (p * rows + row) * dim,
                              lses.data()[p * rows + row], dim));
      for (size_t i = 0; i < dim; ++i)
        out.data()[row * dim + i] = float(total.output(i));
      lse.data()[row] = float(total.lse());
    }
  }
  return nb::make_tuple(out.object(), lse.object());
}

} // namespace ffd::python
