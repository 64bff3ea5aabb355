//===- FFDDialect.h - The ffd dialect ---------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Declarations of the dialect, its attributes, types and ops, all generated
// from dialect/*.td.
//
//===----------------------------------------------------------------------===//
#ifndef FFD_DIALECT_FFDDIALECT_H
#define FFD_DIALECT_FFDDIALECT_H

#include "ffd/layout.h"
#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::ffd {
/// Whether all ffd types of the ranges carry the same spec (tile_c1).
bool haveOneSpec(TypeRange operands, TypeRange results);
/// Whether the type is an LLVM pointer to this address space.
bool isPointerTo(Type type, unsigned space);
} // namespace mlir::ffd

#include "ffd/Dialect/FFDDialect.h.inc"
#include "ffd/Dialect/FFDEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "ffd/Dialect/FFDAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "ffd/Dialect/FFDTypes.h.inc"
#define GET_OP_CLASSES
#include "ffd/Dialect/FFDOps.h.inc"

namespace mlir::ffd {
/// The spec an ffd type carries, null for other types.
SpecAttr getSpec(Type type);
/// Whether a selector (or null) takes its pseudo-max from refined scores.
bool isRefined(Attribute selector);
/// The estimate of the skipped mass that a selector (or null) asks for.
Certificate getCertificate(Attribute selector);
/// Registers the bufferisation of the L1 ops.
void registerBufferizableOpInterfaceExternalModels(DialectRegistry &registry);
} // namespace mlir::ffd

#endif // FFD_DIALECT_FFDDIALECT_H
