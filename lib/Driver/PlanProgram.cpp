//===- PlanProgram.cpp - Dividing a batch on the device ----- -*- C++ -*-===//
//
// Part of the FFD project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The kernel that writes a plan (`ffdPiece`) from lengths in device memory: the
// algorithm of planPieces in ffd/Plan.h, by one CTA. It has no head dim and no
// tiles, so it is written at the GPU level.
//
//===----------------------------------------------------------------------===//

#include "PlanProgram.h"

// Shared memory: lengths, sequences by rank, first pieces by rank, 4096 words
// of each; then the number of pieces.
const char *const mlir::ffd::planText = R"mlir(
llvm.func @plan(%args: !llvm.ptr {llvm.align = 8 : i64,
    llvm.byval = !llvm.struct<(ptr, ptr, ptr, i32, i32, i32, i32, i32, i32)>,
    nvvm.grid_constant})
    attributes {nvvm.kernel, nvvm.reqntid = array<i32: 1024>,
                nvvm.minctasm = 1 : i32, ffd.threads = 1024 : i64,
                ffd.shared_bytes = 49168 : i64, ffd.ctas = 1 : i64, ffd.spec = $SPEC} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %c5 = arith.constant 5 : i32
  %c7 = arith.constant 7 : i32
  %c8 = arith.constant 8 : i32
  %c31 = arith.constant 31 : i32
  %c32 = arith.constant 32 : i32
  %threads = arith.constant 1024 : i32
  %minus_one = arith.constant -1 : i32
  // A sequence of more pieces than this fits no plan: sums stay in 32 bits.
  %many = arith.constant 262144 : i32

  // ffdPlanArgs
  %lengths_at = llvm.load %args : !llvm.ptr -> !llvm.ptr<1>
  %1 = llvm.getelementptr %args[8] : (!llvm.ptr) -> !llvm.ptr, i8
  %plan = llvm.load %1 : !llvm.ptr -> !llvm.ptr<1>
  %2 = llvm.getelementptr %args[16] : (!llvm.ptr) -> !llvm.ptr, i8
  %error = llvm.load %2 : !llvm.ptr -> !llvm.ptr<1>
  %3 = llvm.getelementptr %args[24] : (!llvm.ptr) -> !llvm.ptr, i8
  %batch = llvm.load %3 : !llvm.ptr -> i32
  %4 = llvm.getelementptr %args[28] : (!llvm.ptr) -> !llvm.ptr, i8
  %heads = llvm.load %4 : !llvm.ptr -> i32
  %5 = llvm.getelementptr %args[32] : (!llvm.ptr) -> !llvm.ptr, i8
  %lag = llvm.load %5 : !llvm.ptr -> i32
  %6 = llvm.getelementptr %args[36] : (!llvm.ptr) -> !llvm.ptr, i8
  %entries = llvm.load %6 : !llvm.ptr -> i32
  %7 = llvm.getelementptr %args[40] : (!llvm.ptr) -> !llvm.ptr, i8
  %target = llvm.load %7 : !llvm.ptr -> i32
  %8 = llvm.getelementptr %args[44] : (!llvm.ptr) -> !llvm.ptr, i8
  %given = llvm.load %8 : !llvm.ptr -> i32

  %thread = ffd.gpu.id thread
  %lane = ffd.gpu.id lane
  %warp = ffd.gpu.id warp
  %lengths = ffd.gpu.shared 0 : !llvm.ptr<3>
  %order = ffd.gpu.shared 16384 : !llvm.ptr<3>
  %firsts = ffd.gpu.shared 32768 : !llvm.ptr<3>
  %total_at = ffd.gpu.shared 49152 : !llvm.ptr<3>

  scf.for %s = %thread to %batch step %threads : i32 {
    %from = llvm.getelementptr %lengths_at[%s] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
    %length = llvm.load %from invariant : !llvm.ptr<1> -> i32
    %to = llvm.getelementptr %lengths[%s] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    llvm.store %length, %to : i32, !llvm.ptr<3>
  }
  ffd.gpu.team_barrier

  // The size of a piece. Every warp finds it for itself.
  %mine = scf.for %s = %lane to %batch step %c32 iter_args(%m = %zero) -> i32 : i32 {
    %at = llvm.getelementptr %lengths[%s] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    %length = llvm.load %at : !llvm.ptr<3> -> i32
    %old = arith.subi %length, %lag : i32
    %more = arith.maxsi %m, %old : i32
    scf.yield %more : i32
  }
  %longest = nvvm.redux.sync max %mine, %minus_one : i32 -> i32
  %most = arith.shrui %longest, %c7 : i32
  %high0 = arith.maxsi %most, %c8 : i32
  %rows = arith.muli %batch, %heads : i32
  %wanted = arith.maxsi %target, %rows : i32
  %allowed = arith.divui %wanted, %heads : i32
  %found:2 = scf.while (%low = %c8, %high = %high0) : (i32, i32) -> (i32, i32) {
    %more = arith.cmpi slt, %low, %high : i32
    scf.condition(%more) %low, %high : i32, i32
  } do {
  ^bb0(%low: i32, %high: i32):
    %both = arith.addi %low, %high : i32
    %middle = arith.shrui %both, %one : i32
    %part = scf.for %s = %lane to %batch step %c32 iter_args(%n = %zero) -> i32 : i32 {
      %at = llvm.getelementptr %lengths[%s] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
      %length = llvm.load %at : !llvm.ptr<3> -> i32
      %old = arith.subi %length, %lag : i32
      %committed = arith.maxsi %old, %zero : i32
      %blocks = arith.shrui %committed, %c7 : i32
      %up0 = arith.addi %blocks, %middle : i32
      %up = arith.addi %up0, %minus_one : i32
      %pieces0 = arith.divui %up, %middle : i32
      %pieces1 = arith.maxsi %pieces0, %one : i32
      %pieces = arith.minsi %pieces1, %many : i32
      %sum = arith.addi %n, %pieces : i32
      scf.yield %sum : i32
    }
    %all = nvvm.redux.sync add %part, %minus_one : i32 -> i32
    %fits = arith.cmpi ule, %all, %allowed : i32
    %above = arith.addi %middle, %one : i32
    %low1 = arith.select %fits, %low, %above : i32
    %high1 = arith.select %fits, %middle, %high : i32
    scf.yield %low1, %high1 : i32, i32
  }
  %is_given = arith.cmpi sgt, %given, %zero : i32
  %size = arith.select %is_given, %given, %found#0 : i32

  // Longer sequences first.
  scf.for %s = %thread to %batch step %threads : i32 {
    %at = llvm.getelementptr %lengths[%s] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    %length = llvm.load %at : !llvm.ptr<3> -> i32
    %rank = scf.for %t = %zero to %batch step %one iter_args(%r = %zero) -> i32 : i32 {
      %other_at = llvm.getelementptr %lengths[%t] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
      %other = llvm.load %other_at : !llvm.ptr<3> -> i32
      %longer = arith.cmpi sgt, %other, %length : i32
      %equal = arith.cmpi eq, %other, %length : i32
      %earlier = arith.cmpi slt, %t, %s : i32
      %tie = arith.andi %equal, %earlier : i1
      %before = arith.ori %longer, %tie : i1
      %step = arith.extui %before : i1 to i32
      %next = arith.addi %r, %step : i32
      scf.yield %next : i32
    }
    %to = llvm.getelementptr %order[%rank] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    llvm.store %s, %to : i32, !llvm.ptr<3>
  }
  ffd.gpu.team_barrier

  // Where the pieces of each rank start.
  %first_warp = arith.cmpi eq, %warp, %zero : i32
  scf.if %first_warp {
    %total = scf.for %base = %zero to %batch step %c32 iter_args(%sum = %zero) -> i32 : i32 {
      %rank = arith.addi %base, %lane : i32
      %valid = arith.cmpi slt, %rank, %batch : i32
      %count = scf.if %valid -> i32 {
        %order_at = llvm.getelementptr %order[%rank] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
        %s = llvm.load %order_at : !llvm.ptr<3> -> i32
        %at = llvm.getelementptr %lengths[%s] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
        %length = llvm.load %at : !llvm.ptr<3> -> i32
        %old = arith.subi %length, %lag : i32
        %committed = arith.maxsi %old, %zero : i32
        %blocks = arith.shrui %committed, %c7 : i32
        %up0 = arith.addi %blocks, %size : i32
        %up = arith.addi %up0, %minus_one : i32
        %pieces0 = arith.divui %up, %size : i32
        %pieces1 = arith.maxsi %pieces0, %one : i32
        %pieces = arith.minsi %pieces1, %many : i32
        %of_heads = arith.muli %pieces, %heads : i32
        scf.yield %of_heads : i32
      } else {
        scf.yield %zero : i32
      }
      // The sum over the lanes up to this one.
      %upto = scf.for %k = %zero to %c5 step %one iter_args(%x = %count) -> i32 : i32 {
        %distance = arith.shli %one, %k : i32
        %source = arith.subi %lane, %distance : i32
        %other = ffd.gpu.shuffle %x from %source : i32
        %has = arith.cmpi sge, %source, %zero : i32
        %add = arith.select %has, %other, %zero : i32
        %y = arith.addi %x, %add : i32
        scf.yield %y : i32
      }
      scf.if %valid {
        %before = arith.subi %upto, %count : i32
        %first = arith.addi %sum, %before : i32
        %to = llvm.getelementptr %firsts[%rank] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
        llvm.store %first, %to : i32, !llvm.ptr<3>
      }
      %all = ffd.gpu.shuffle %upto from %c31 : i32
      %next = arith.addi %sum, %all : i32
      scf.yield %next : i32
    }
    %leader = arith.cmpi eq, %lane, %zero : i32
    scf.if %leader {
      // Rows cut to a given size may be too many: then nothing is planned.
      %exceeds = arith.cmpi ugt, %total, %entries : i32
      %planned = arith.select %exceeds, %zero, %total : i32
      llvm.store %planned, %total_at : i32, !llvm.ptr<3>
      %address = llvm.ptrtoint %error : !llvm.ptr<1> to i64
      %null = arith.constant 0 : i64
      %reported = arith.cmpi ne, %address, %null : i64
      %report = arith.andi %exceeds, %reported : i1
      scf.if %report {
        llvm.store %one, %error : i32, !llvm.ptr<1>
      }
    }
  }
  ffd.gpu.team_barrier

  %total = llvm.load %total_at : !llvm.ptr<3> -> i32
  scf.for %i = %thread to %entries step %threads : i32 {
    %used = arith.cmpi slt, %i, %total : i32
    %row, %split, %splits, %first, %length = scf.if %used -> (i32, i32, i32, i32, i32) {
      // The last rank that starts at or before i.
      %between:2 = scf.while (%low = %zero, %high = %batch) : (i32, i32) -> (i32, i32) {
        %width = arith.subi %high, %low : i32
        %more = arith.cmpi sgt, %width, %one : i32
        scf.condition(%more) %low, %high : i32, i32
      } do {
      ^bb0(%low: i32, %high: i32):
        %both = arith.addi %low, %high : i32
        %middle = arith.shrui %both, %one : i32
        %at = llvm.getelementptr %firsts[%middle] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
        %start = llvm.load %at : !llvm.ptr<3> -> i32
        %starts = arith.cmpi sle, %start, %i : i32
        %low1 = arith.select %starts, %middle, %low : i32
        %high1 = arith.select %starts, %high, %middle : i32
        scf.yield %low1, %high1 : i32, i32
      }
      %order_at = llvm.getelementptr %order[%between#0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
      %s = llvm.load %order_at : !llvm.ptr<3> -> i32
      %start_at = llvm.getelementptr %firsts[%between#0] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
      %start = llvm.load %start_at : !llvm.ptr<3> -> i32
      %at = llvm.getelementptr %lengths[%s] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
      %length = llvm.load %at : !llvm.ptr<3> -> i32
      %old = arith.subi %length, %lag : i32
      %committed = arith.maxsi %old, %zero : i32
      %blocks = arith.shrui %committed, %c7 : i32
      %up0 = arith.addi %blocks, %size : i32
      %up = arith.addi %up0, %minus_one : i32
      %pieces0 = arith.divui %up, %size : i32
      %pieces = arith.maxsi %pieces0, %one : i32
      %local = arith.subi %i, %start : i32
      %head = arith.divui %local, %pieces : i32
      %of_head = arith.muli %head, %pieces : i32
      %split = arith.subi %local, %of_head : i32
      %first = arith.addi %start, %of_head : i32
      %rows_before = arith.muli %s, %heads : i32
      %row = arith.addi %rows_before, %head : i32
      scf.yield %row, %split, %pieces, %first, %length : i32, i32, i32, i32, i32
    } else {
      scf.yield %minus_one, %zero, %one, %zero, %zero : i32, i32, i32, i32, i32
    }
    %wide = arith.extui %i : i32 to i64
    %bytes = arith.constant 32 : i64
    %offset = arith.muli %wide, %bytes : i64
    %to = llvm.getelementptr %plan[%offset] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
    %a = vector.from_elements %row, %split, %splits, %first : vector<4xi32>
    llvm.store %a, %to {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
    %to16 = llvm.getelementptr %to[16] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
    %b = vector.from_elements %length, %zero, %zero, %zero : vector<4xi32>
    llvm.store %b, %to16 {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
  }
  llvm.return
}
)mlir";
