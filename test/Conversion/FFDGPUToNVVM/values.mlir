// RUN: ffd-opt --ffd-values-to-llvm --split-input-file %s | FileCheck %s

// An element of a vector that was put together is what went in.
// CHECK-LABEL: llvm.func @elements(
// CHECK-SAME:    %[[A:.*]]: f32, %[[B:.*]]: f32)
// CHECK-NEXT:  %[[Y:.*]] = llvm.fmul %[[A]], %[[B]] : f32
// CHECK-NEXT:  llvm.return %[[Y]] : f32
llvm.func @elements(%a: f32, %b: f32) -> f32 {
  %v = vector.from_elements %a, %b : vector<2xf32>
  %x = vector.extract %v[1] : f32 from vector<2xf32>
  %y = arith.mulf %a, %x : f32
  llvm.return %y : f32
}

// -----

// A vector that leaves the block is built; positions are constants, one for
// each value.
// CHECK-LABEL: llvm.func @vectors(
// CHECK-SAME:    %[[A:.*]]: i32, %[[B:.*]]: i32, %[[P:.*]]: !llvm.ptr)
// CHECK-DAG:   %[[ZERO:.*]] = llvm.mlir.constant(0 : i64) : i64
// CHECK-DAG:   %[[ONE:.*]] = llvm.mlir.constant(1 : i64) : i64
// CHECK-NOT:   llvm.mlir.constant
// CHECK:       %[[V:.*]] = llvm.mlir.poison : vector<2xi32>
// CHECK:       %[[W:.*]] = llvm.insertelement %[[A]], %[[V]][%[[ZERO]] : i64]
// CHECK:       %[[X:.*]] = llvm.insertelement %[[B]], %[[W]][%[[ONE]] : i64]
// CHECK:       llvm.store %[[X]], %[[P]]
// CHECK:       %[[L:.*]] = llvm.load %[[P]]
// CHECK:       llvm.extractelement %[[L]][%[[ONE]] : i64]
llvm.func @vectors(%a: i32, %b: i32, %p: !llvm.ptr) -> i32 {
  %v = vector.from_elements %a, %b : vector<2xi32>
  llvm.store %v, %p : vector<2xi32>, !llvm.ptr
  %w = llvm.load %p : !llvm.ptr -> vector<2xi32>
  %x = vector.extract %w[1] : i32 from vector<2xi32>
  llvm.return %x : i32
}

// -----

// CHECK-LABEL: llvm.func @branches(
// CHECK:       %[[C:.*]] = llvm.mlir.constant(7 : i32) : i32
// CHECK-NOT:   llvm.mlir.constant
// CHECK:       llvm.br ^[[HEAD:.*]](%[[C]] : i32)
// CHECK:     ^[[HEAD]](%[[I:.*]]: i32):
// CHECK:       %[[LESS:.*]] = llvm.icmp "ult" %[[I]], %{{.*}} : i32
// CHECK:       %[[NEXT:.*]] = llvm.add %[[I]], %[[C]] : i32
// CHECK:       llvm.cond_br %[[LESS]], ^[[HEAD]](%[[NEXT]] : i32), ^{{.*}}
// CHECK:       llvm.fcmp "uno"
// CHECK:       llvm.intr.smax
// CHECK:       llvm.select
llvm.func @branches(%n: i32, %x: f32) -> i32 {
  %0 = arith.constant 7 : i32
  cf.br ^head(%0 : i32)
^head(%i: i32):
  %less = arith.cmpi ult, %i, %n : i32
  %1 = arith.constant 7 : i32
  %next = arith.addi %i, %1 : i32
  cf.cond_br %less, ^head(%next : i32), ^done
^done:
  %nan = arith.cmpf uno, %x, %x : f32
  %most = arith.maxsi %i, %n : i32
  %result = arith.select %nan, %n, %most : i32
  llvm.return %result : i32
}

// -----

// Flags and other ops are left to the upstream conversions.
// CHECK-LABEL: llvm.func @overflow(
// CHECK:       llvm.add %{{.*}}, %{{.*}} overflow<nsw> : i32
llvm.func @overflow(%n: i32) -> i32 {
  %a = arith.addi %n, %n overflow<nsw> : i32
  llvm.return %a : i32
}

// -----

// CHECK-LABEL: llvm.func @fastmath(
// CHECK:       llvm.fadd %{{.*}}, %{{.*}} {fastmathFlags = #llvm.fastmath<contract>} : f32
llvm.func @fastmath(%x: f32) -> f32 {
  %a = arith.addf %x, %x fastmath<contract> : f32
  llvm.return %a : f32
}

// -----

// CHECK-LABEL: llvm.func @exact(
// CHECK:       llvm.lshr exact
llvm.func @exact(%n: i32) -> i32 {
  %a = arith.shrui %n, %n exact : i32
  llvm.return %a : i32
}

// -----

// CHECK-LABEL: llvm.func @other(
// CHECK:       llvm.intr.umin
// CHECK-NOT:   arith.
llvm.func @other(%n: i32) -> i32 {
  %a = arith.addi %n, %n : i32
  %b = arith.minui %a, %n : i32
  llvm.return %b : i32
}
