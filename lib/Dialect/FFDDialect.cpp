//===- FFDDialect.cpp - The ffd dialect ------------------- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Registration of everything the dialect holds, and its types.
//
//===----------------------------------------------------------------------===//

#include "ffd/Dialect/FFDDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ffd;

#include "ffd/Dialect/FFDDialect.cpp.inc"
#include "ffd/Dialect/FFDEnums.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "ffd/Dialect/FFDTypes.cpp.inc"
#define GET_OP_CLASSES
#include "ffd/Dialect/FFDOps.cpp.inc"

namespace {
/// Prints specs once, as an alias: they recur in every type of a program.
struct FFDOpAsmInterface : OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;
  AliasResult getAlias(Attribute attr, raw_ostream &os) const override {
    if (!isa<SpecAttr>(attr))
      return AliasResult::NoAlias;
    os << "spec";
    return AliasResult::FinalAlias;
  }
};
} // namespace

void FFDDialect::initialize() {
  addInterfaces<FFDOpAsmInterface>();
  registerAttributes();
  addTypes<
#define GET_TYPEDEF_LIST
#include "ffd/Dialect/FFDTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "ffd/Dialect/FFDOps.cpp.inc"
      >();
}

SpecAttr mlir::ffd::getSpec(Type type) {
  return llvm::TypeSwitch<Type, SpecAttr>(type)
      .Case<CacheType, QueryType, ThumbnailType, BodyType, TailType, ScoresType,
            LogitsType, RowMaxType, ThresholdType, MaskType, WorklistType,
            StateType>([](auto t) { return t.getSpec(); })
      .Default([](Type) { return SpecAttr(); });
}

bool mlir::ffd::haveOneSpec(TypeRange operands, TypeRange results) {
  SpecAttr spec;
  for (TypeRange range : {operands, results})
    for (Type type : range)
      if (SpecAttr other = getSpec(type)) {
        if (spec && spec != other)
          return false;
        spec = other;
      }
  return true;
}
