//===- FFDGPUOps.cpp - Ops of the GPU level --------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Verifiers of the ffd.gpu ops: what a warp holds in its registers must fit the
// shapes of the tensor core instructions that the ops become.
//
//===----------------------------------------------------------------------===//

#include "ffd/Dialect/FFDDialect.h"

#include "mlir/Dialect/LLVMIR/LLVMTypes.h"

using namespace mlir;
using namespace mlir::ffd;

bool mlir::ffd::isPointerTo(Type type, unsigned space) {
  auto pointer = dyn_cast<LLVM::LLVMPointerType>(type);
  return pointer && pointer.getAddressSpace() == space;
}

static int64_t sizeOf(Value value) {
  return cast<VectorType>(value.getType()).getDimSize(0);
}

/// Checks the number of entries of a vector operand or result.
static LogicalResult expectSize(Operation *op, StringRef what, Value value,
                                int64_t expected, StringRef constraint) {
  if (sizeOf(value) == expected)
    return success();
  return op->emitOpError("'")
         << what << "' has " << sizeOf(value) << " entries, expected "
         << expected << " (" << constraint << ")";
}

static LogicalResult expectBits(Operation *op, int64_t bits) {
  if (bits == 2 || bits == 4 || bits == 8)
    return success();
  return op->emitOpError("attribute 'bits' is ")
         << bits << ", expected 2, 4 or 8 (scan_o1)";
}

static LogicalResult expectFragment(Operation *op, StringRef what,
                                    Value value) {
  if (sizeOf(value) % 4 == 0)
    return success();
  return op->emitOpError("'") << what << "' has " << sizeOf(value)
                              << " words, expected four per channel group "
                                 "(fragment_c1)";
}

static LogicalResult expectElement(Operation *op, Type element) {
  if (element.isF16() || element.isBF16())
    return success();
  return op->emitOpError("attribute 'element' is ")
         << element << ", expected f16 or bf16 (spec_c3)";
}

LogicalResult GPUSharedOp::verify() {
  int64_t offset = getOffset();
  if (offset < 0 || offset % 4)
    return emitOpError("attribute 'offset' is ")
           << offset << ", expected a multiple of 4 from 0 (shared_c1)";
  return success();
}

LogicalResult GPULoadIfOp::verify() {
  int64_t words = sizeOf(getWords());
  if (words == 1 || words == 2 || words == 4)
    return success();
  return emitOpError("'words' has ")
         << words << " entries, expected 1, 2 or 4 (load_c1)";
}

LogicalResult GPURingInitOp::verify() {
  int64_t count = getCount();
  if (count <= 0)
    return emitOpError("attribute 'count' is ")
           << count << ", expected at least 1 (ring_c1)";
  return success();
}

LogicalResult GPURingFillOp::verify() {
  if (getSizes().size() != getTargets().size())
    return emitOpError("has ") << getTargets().size() << " copies and "
                               << getSizes().size() << " sizes (ring_c2)";
  for (int64_t size : getSizes())
    if (size <= 0 || size % 16)
      return emitOpError("has a copy of ")
             << size << " bytes, expected a positive multiple of 16 (ring_c2)";
  return success();
}

LogicalResult GPURingWaitOp::verify() {
  int64_t pending = getPending();
  if (pending < 0)
    return emitOpError("attribute 'pending' is ")
           << pending << ", expected at least 0 (ring_c3)";
  return success();
}

LogicalResult GPUQuantizeQueryOp::verify() {
  if (failed(expectElement(*this, getElement())) ||
      failed(expectFragment(*this, "query", getQuery())))
    return failure();
  int64_t words = sizeOf(getQuery());
  return success(
      succeeded(expectSize(*this, "smax", getSmax(), words, "fragment_c1")) &&
      succeeded(expectSize(*this, "qh", getQh(), words, "fragment_c1")));
}

LogicalResult GPUScaleQueryOp::verify() {
  if (failed(expectElement(*this, getElement())) ||
      failed(expectFragment(*this, "query", getQuery())))
    return failure();
  int64_t words = sizeOf(getQuery());
  return success(
      succeeded(expectSize(*this, "smax", getSmax(), words, "fragment_c1")) &&
      succeeded(
          expectSize(*this, "scaled", getScaled(), words, "fragment_c1")));
}

template <typename Op> static LogicalResult verifyFold(Op op) {
  if (failed(expectFragment(op, "query", op.getQuery())))
    return failure();
  int64_t words = sizeOf(op.getQuery());
  return success(
      succeeded(expectSize(op, "scales", op.getScales(), words, "fold_c1")) &&
      succeeded(
          expectSize(op, "result", op.getResult(), words / 2, "fold_c1")));
}

LogicalResult GPUFoldOp::verify() { return verifyFold(*this); }

LogicalResult GPUFoldHighOp::verify() { return verifyFold(*this); }

LogicalResult GPUCentreOp::verify() { return expectBits(*this, getBits()); }

LogicalResult GPUSquareSumOp::verify() {
  int64_t words = getFolded().getType().getDimSize(0);
  if (words % 2 == 0)
    return success();
  return emitOpError("operand 'folded' has ")
         << words << " words, expected two per channel group (square_sum_c1)";
}

LogicalResult GPUCentreHighOp::verify() {
  if (failed(expectBits(*this, getBits())))
    return failure();
  return expectSize(*this, "result", getResult(), 2, "centre_high_c1");
}

template <typename Op>
static LogicalResult verifyTileScan(Op op, int64_t wordsPerTile) {
  if (failed(expectBits(op, op.getBits())))
    return failure();
  int64_t groups =
      2 * sizeOf(op.getCodes()) / static_cast<int64_t>(op.getBits());
  if (failed(expectSize(op, "codes", op.getCodes(), groups * op.getBits() / 2,
                        "scan_o2")))
    return failure();
  for (Value folded : op.getFolded())
    if (failed(expectSize(op, "folded", folded, 2 * groups, "scan_o2")))
      return failure();
  return expectSize(op, "result", op.getResult(),
                    wordsPerTile * op.getStarts().size(), "scan_o2");
}

LogicalResult GPUScanTileOp::verify() { return verifyTileScan(*this, 2); }

LogicalResult GPUScreenTileOp::verify() {
  for (Value start : getStarts())
    if (failed(expectSize(*this, "starts", start, 2, "scan_o2")))
      return failure();
  return verifyTileScan(*this, 4);
}

LogicalResult GPUKeepMaskOp::verify() {
  int64_t block = getSelectBlock();
  if (block != 16 && block != 32 && block != 64 && block != 128)
    return emitOpError("attribute 'select_block' is ")
           << block << ", expected 16, 32, 64 or 128 (keep_c1)";
  return success();
}

LogicalResult GPUDotTileOp::verify() {
  if (failed(expectElement(*this, getElement())))
    return failure();
  for (Value query : getQueries())
    if (failed(expectFragment(*this, "queries", query)) ||
        failed(
            expectSize(*this, "keys", getKeys(), 2 * sizeOf(query), "dot_c1")))
      return failure();
  return expectSize(*this, "result", getResult(), 4 * getQueries().size(),
                    "dot_c1");
}

LogicalResult GPUQueueTakeOp::verify() {
  int64_t warps = getWarps();
  if (warps != 4 && warps != 8 && warps != 16)
    return emitOpError("attribute 'warps' is ")
           << warps << ", expected 4, 8 or 16 (queue_c1)";
  return success();
}

LogicalResult GPURefineTileOp::verify() {
  if (failed(expectBits(*this, getBits())) ||
      failed(expectElement(*this, getElement())) ||
      failed(expectFragment(*this, "residuals", getResiduals())))
    return failure();
  int64_t words = sizeOf(getResiduals());
  if (failed(expectSize(*this, "scales", getScales(), words, "refine_c1")) ||
      failed(expectSize(*this, "codes", getCodes(), words * getBits() / 8,
                        "refine_c1")))
    return failure();
  for (Value query : getQueries())
    if (failed(expectSize(*this, "queries", query, words, "refine_c1")))
      return failure();
  return expectSize(*this, "result", getResult(), 4 * getQueries().size(),
                    "refine_c1");
}

LogicalResult GPUSoftmaxStepOp::verify() {
  if (failed(expectElement(*this, getElement())))
    return failure();
  if (sizeOf(getOutput()) % 4)
    return emitOpError("'output' has ")
           << sizeOf(getOutput())
           << " floats, expected a multiple of 4 (softmax_c1)";
  return success();
}

LogicalResult GPUAccumulateOp::verify() {
  if (failed(expectElement(*this, getElement())))
    return failure();
  if (sizeOf(getOutput()) % 4)
    return emitOpError("'output' has ")
           << sizeOf(getOutput())
           << " floats, expected a multiple of 4 (accumulate_c1)";
  return expectSize(*this, "values", getValues(), sizeOf(getOutput()),
                    "accumulate_c1");
}

LogicalResult GPUKeyMaximaOp::verify() {
  if (sizeOf(getKeys()) % 8)
    return emitOpError("'keys' has ")
           << sizeOf(getKeys())
           << " words, expected eight per channel group (split_tile_c1)";
  return expectSize(*this, "result", getResult(), sizeOf(getKeys()),
                    "split_tile_c1");
}

LogicalResult GPUSplitScaleOp::verify() {
  return success(succeeded(expectBits(*this, getBits())) &&
                 succeeded(expectElement(*this, getElement())));
}

LogicalResult GPUSplitTileOp::verify() {
  if (failed(expectBits(*this, getBits())) ||
      failed(expectElement(*this, getElement())))
    return failure();
  int64_t words = sizeOf(getKeys());
  if (words % 8)
    return emitOpError("'keys' has ")
           << words
           << " words, expected eight per channel group (split_tile_c1)";
  return success(succeeded(expectSize(*this, "factors", getFactors(), words,
                                      "split_tile_c1")) &&
                 succeeded(expectSize(*this, "residuals", getResiduals(),
                                      words / 2, "split_tile_c1")) &&
                 succeeded(expectSize(*this, "codes", getCodes(),
                                      words / 2 * int64_t(getBits()) / 8,
                                      "split_tile_c1")));
}

LogicalResult GPURelativeKeysOp::verify() {
  int64_t words = sizeOf(getKeys());
  return success(succeeded(expectElement(*this, getElement())) &&
                 succeeded(expectSize(*this, "centre", getCentre(), words,
                                      "relative_c1")) &&
                 succeeded(expectSize(*this, "result", getResult(), words,
                                      "relative_c1")));
}

LogicalResult GPUAddKeysOp::verify() {
  int64_t entries = 2 * sizeOf(getKeys());
  return success(
      succeeded(expectElement(*this, getElement())) &&
      succeeded(expectSize(*this, "sums", getSums(), entries, "add_keys_c1")) &&
      succeeded(
          expectSize(*this, "result", getResult(), entries, "add_keys_c1")));
}

LogicalResult GPUCentreKeyOp::verify() {
  return success(
      succeeded(expectElement(*this, getElement())) &&
      succeeded(expectSize(*this, "sums", getSums(), 8, "centre_key_c1")));
}
