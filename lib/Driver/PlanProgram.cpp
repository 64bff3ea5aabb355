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

// Shared memory: lengths (-1: no slot), sequences by rank, first pieces by rank,
// committed blocks, 4096 words of each; then the number of pieces, and the
// sizes of pieces for the three numbers of them that are considered and the sum
// of the blocks.
const char *const mlir::ffd::planText = R"mlir(
llvm.func @plan(%args: !llvm.ptr {llvm.align = 8 : i64,
    llvm.byval = !llvm.struct<(ptr, ptr, ptr, i32, i32, i32, i32, i32, i32, ptr, ptr, i32, i32, i32)>,
    nvvm.grid_constant})
    attributes {nvvm.kernel, nvvm.reqntid = array<i32: 1024>,
                nvvm.minctasm = 1 : i32, ffd.threads = 1024 : i64,
                ffd.shared_bytes = 65568 : i64, ffd.ctas = 1 : i64, ffd.spec = $SPEC} {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
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
  %9 = llvm.getelementptr %args[48] : (!llvm.ptr) -> !llvm.ptr, i8
  %slots = llvm.load %9 : !llvm.ptr -> !llvm.ptr<1>
  %10 = llvm.getelementptr %args[56] : (!llvm.ptr) -> !llvm.ptr, i8
  %committed_at = llvm.load %10 : !llvm.ptr -> !llvm.ptr<1>
  %11 = llvm.getelementptr %args[64] : (!llvm.ptr) -> !llvm.ptr, i8
  %slot_count = llvm.load %11 : !llvm.ptr -> i32
  %12 = llvm.getelementptr %args[68] : (!llvm.ptr) -> !llvm.ptr, i8
  %multiprocessors = llvm.load %12 : !llvm.ptr -> i32
  %13 = llvm.getelementptr %args[72] : (!llvm.ptr) -> !llvm.ptr, i8
  %resident = llvm.load %13 : !llvm.ptr -> i32
  %null = arith.constant 0 : i64
  %slots_address = llvm.ptrtoint %slots : !llvm.ptr<1> to i64
  %listed = arith.cmpi ne, %slots_address, %null : i64
  %committed_address = llvm.ptrtoint %committed_at : !llvm.ptr<1> to i64
  %has_committed = arith.cmpi ne, %committed_address, %null : i64

  %thread = ffd.gpu.id thread
  %lane = ffd.gpu.id lane
  %warp = ffd.gpu.id warp
  %lengths = ffd.gpu.shared 0 : !llvm.ptr<3>
  %order = ffd.gpu.shared 16384 : !llvm.ptr<3>
  %firsts = ffd.gpu.shared 32768 : !llvm.ptr<3>
  %blocks_at = ffd.gpu.shared 49152 : !llvm.ptr<3>
  %total_at = ffd.gpu.shared 65536 : !llvm.ptr<3>
  %sizes_at = ffd.gpu.shared 65552 : !llvm.ptr<3>

  scf.for %s = %thread to %batch step %threads : i32 {
    %slot, %exists = scf.if %listed -> (i32, i1) {
      %slot_at = llvm.getelementptr %slots[%s] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      %listed_slot = llvm.load %slot_at invariant : !llvm.ptr<1> -> i32
      %below = arith.cmpi ult, %listed_slot, %slot_count : i32
      scf.yield %listed_slot, %below : i32, i1
    } else {
      %always = arith.constant true
      scf.yield %s, %always : i32, i1
    }
    %length, %blocks = scf.if %exists -> (i32, i32) {
      %from = llvm.getelementptr %lengths_at[%slot] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      %tokens = llvm.load %from invariant : !llvm.ptr<1> -> i32
      %least = scf.if %has_committed -> i32 {
        %least_at = llvm.getelementptr %committed_at[%slot] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
        %value = llvm.load %least_at invariant : !llvm.ptr<1> -> i32
        scf.yield %value : i32
      } else {
        scf.yield %zero : i32
      }
      %old0 = arith.subi %tokens, %lag : i32
      %old = arith.maxsi %old0, %zero : i32
      %usual = arith.shrui %old, %c7 : i32
      %all = arith.maxsi %usual, %least : i32
      %negative = arith.cmpi slt, %tokens, %zero : i32
      %known = arith.select %negative, %minus_one, %all : i32
      %length0 = arith.maxsi %tokens, %minus_one : i32
      scf.yield %length0, %known : i32, i32
    } else {
      scf.yield %minus_one, %minus_one : i32, i32
    }
    %to = llvm.getelementptr %lengths[%s] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    llvm.store %length, %to : i32, !llvm.ptr<3>
    %blocks_to = llvm.getelementptr %blocks_at[%s] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    llvm.store %blocks, %blocks_to : i32, !llvm.ptr<3>
  }
  ffd.gpu.team_barrier

  // The size of a piece, by a warp for each number of pieces considered.
  %mine = scf.for %s = %lane to %batch step %c32 iter_args(%m = %zero) -> i32 : i32 {
    %at = llvm.getelementptr %blocks_at[%s] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    %blocks = llvm.load %at : !llvm.ptr<3> -> i32
    %more = arith.maxsi %m, %blocks : i32
    scf.yield %more : i32
  }
  %most = nvvm.redux.sync max %mine, %minus_one : i32 -> i32
  %first_warp = arith.cmpi eq, %warp, %zero : i32
  %second_warp = arith.cmpi eq, %warp, %one : i32
  %third_warp = arith.cmpi eq, %warp, %two : i32
  %aim0 = arith.select %second_warp, %resident, %target : i32
  %aim = arith.select %first_warp, %multiprocessors, %aim0 : i32
  // The others have nothing to search.
  %one_of_two = arith.ori %first_warp, %second_warp : i1
  %searches = arith.ori %one_of_two, %third_warp : i1
  %longest_piece = arith.maxsi %most, %c8 : i32
  %high0 = arith.select %searches, %longest_piece, %c8 : i32
  %rows = arith.muli %batch, %heads : i32
  %wanted = arith.maxsi %aim, %rows : i32
  %allowed = arith.divui %wanted, %heads : i32
  %found:2 = scf.while (%low = %c8, %high = %high0) : (i32, i32) -> (i32, i32) {
    %more = arith.cmpi slt, %low, %high : i32
    scf.condition(%more) %low, %high : i32, i32
  } do {
  ^bb0(%low: i32, %high: i32):
    %both = arith.addi %low, %high : i32
    %middle = arith.shrui %both, %one : i32
    %part = scf.for %s = %lane to %batch step %c32 iter_args(%n = %zero) -> i32 : i32 {
      %at = llvm.getelementptr %blocks_at[%s] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
      %blocks = llvm.load %at : !llvm.ptr<3> -> i32
      %up0 = arith.addi %blocks, %middle : i32
      %up = arith.addi %up0, %minus_one : i32
      %pieces0 = arith.divui %up, %middle : i32
      %pieces1 = arith.maxsi %pieces0, %one : i32
      %pieces2 = arith.minsi %pieces1, %many : i32
      %none = arith.cmpi slt, %blocks, %zero : i32
      %pieces = arith.select %none, %zero, %pieces2 : i32
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
  %sum_mine = scf.for %s = %lane to %batch step %c32 iter_args(%n = %zero) -> i32 : i32 {
    %at = llvm.getelementptr %blocks_at[%s] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    %blocks = llvm.load %at : !llvm.ptr<3> -> i32
    %some = arith.maxsi %blocks, %zero : i32
    %sum = arith.addi %n, %some : i32
    scf.yield %sum : i32
  }
  %sum_all = nvvm.redux.sync add %sum_mine, %minus_one : i32 -> i32
  %leads = arith.cmpi eq, %lane, %zero : i32
  %reports = arith.andi %leads, %searches : i1
  scf.if %reports {
    %to = llvm.getelementptr %sizes_at[%warp] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
    llvm.store %found#0, %to : i32, !llvm.ptr<3>
  }
  ffd.gpu.team_barrier
  %size_few = llvm.load %sizes_at : !llvm.ptr<3> -> i32
  %all_at = llvm.getelementptr %sizes_at[4] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
  %size_all = llvm.load %all_at : !llvm.ptr<3> -> i32
  %target_at = llvm.getelementptr %sizes_at[8] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i8
  %size_target = llvm.load %target_at : !llvm.ptr<3> -> i32
  // choosePieceBlocks of Plan.cpp.
  %sum64 = arith.extui %sum_all : i32 to i64
  %heads64 = arith.extui %heads : i32 to i64
  %work = arith.muli %sum64, %heads64 : i64
  %few64 = arith.extui %size_few : i32 to i64
  %all64 = arith.extui %size_all : i32 to i64
  %target64 = arith.extui %size_target : i32 to i64
  %processors64 = arith.extui %multiprocessors : i32 to i64
  %resident64 = arith.extui %resident : i32 to i64
  %two64 = arith.constant 2 : i64
  %three64 = arith.constant 3 : i64
  %long = arith.constant 48 : i32
  %short = arith.cmpi slt, %size_all, %long : i32
  %shortest = arith.cmpi sle, %size_few, %c8 : i32
  %few_share = arith.muli %few64, %processors64 : i64
  %few_twice = arith.muli %few_share, %two64 : i64
  %work_thrice = arith.muli %work, %three64 : i64
  %few_even = arith.cmpi ule, %few_twice, %work_thrice : i64
  %few_fits = arith.ori %shortest, %few_even : i1
  %take_few = arith.andi %short, %few_fits : i1
  %all_share = arith.muli %all64, %resident64 : i64
  %all_twice = arith.muli %all_share, %two64 : i64
  %target_share = arith.muli %target64, %resident64 : i64
  %work_twice = arith.muli %work, %two64 : i64
  %ragged = arith.addi %work_twice, %target_share : i64
  %take_all = arith.cmpi ule, %all_twice, %ragged : i64
  %chosen0 = arith.select %take_all, %size_all, %size_target : i32
  %chosen1 = arith.select %take_few, %size_few, %chosen0 : i32
  %asked = arith.cmpi sgt, %multiprocessors, %zero : i32
  %chosen = arith.select %asked, %chosen1, %size_target : i32
  %is_given = arith.cmpi sgt, %given, %zero : i32
  %size = arith.select %is_given, %given, %chosen : i32

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
  scf.if %first_warp {
    %total = scf.for %base = %zero to %batch step %c32 iter_args(%sum = %zero) -> i32 : i32 {
      %rank = arith.addi %base, %lane : i32
      %valid = arith.cmpi slt, %rank, %batch : i32
      %count = scf.if %valid -> i32 {
        %order_at = llvm.getelementptr %order[%rank] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
        %s = llvm.load %order_at : !llvm.ptr<3> -> i32
        %at = llvm.getelementptr %blocks_at[%s] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
        %blocks = llvm.load %at : !llvm.ptr<3> -> i32
        %up0 = arith.addi %blocks, %size : i32
        %up = arith.addi %up0, %minus_one : i32
        %pieces0 = arith.divui %up, %size : i32
        %pieces1 = arith.maxsi %pieces0, %one : i32
        %pieces2 = arith.minsi %pieces1, %many : i32
        %none = arith.cmpi slt, %blocks, %zero : i32
        %pieces = arith.select %none, %zero, %pieces2 : i32
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
    scf.if %leads {
      // Rows cut to a given size may be too many: then nothing is planned.
      %exceeds = arith.cmpi ugt, %total, %entries : i32
      %planned = arith.select %exceeds, %zero, %total : i32
      llvm.store %planned, %total_at : i32, !llvm.ptr<3>
      %address = llvm.ptrtoint %error : !llvm.ptr<1> to i64
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
    %row, %split, %splits, %first, %length, %place, %blocks = scf.if %used -> (i32, i32, i32, i32, i32, i32, i32) {
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
      %slot = scf.if %listed -> i32 {
        %slot_at = llvm.getelementptr %slots[%s] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
        %listed_slot = llvm.load %slot_at invariant : !llvm.ptr<1> -> i32
        scf.yield %listed_slot : i32
      } else {
        scf.yield %s : i32
      }
      %blocks_from = llvm.getelementptr %blocks_at[%s] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
      %blocks = llvm.load %blocks_from : !llvm.ptr<3> -> i32
      %up0 = arith.addi %blocks, %size : i32
      %up = arith.addi %up0, %minus_one : i32
      %pieces0 = arith.divui %up, %size : i32
      %pieces = arith.maxsi %pieces0, %one : i32
      %local = arith.subi %i, %start : i32
      %head = arith.divui %local, %pieces : i32
      %of_head = arith.muli %head, %pieces : i32
      %split = arith.subi %local, %of_head : i32
      %first = arith.addi %start, %of_head : i32
      %rows_before = arith.muli %slot, %heads : i32
      %row = arith.addi %rows_before, %head : i32
      scf.yield %row, %split, %pieces, %first, %length, %s, %blocks : i32, i32, i32, i32, i32, i32, i32
    } else {
      scf.yield %minus_one, %zero, %one, %zero, %zero, %zero, %zero : i32, i32, i32, i32, i32, i32, i32
    }
    %wide = arith.extui %i : i32 to i64
    %bytes = arith.constant 48 : i64
    %offset = arith.muli %wide, %bytes : i64
    %to = llvm.getelementptr %plan[%offset] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, i8
    %a = vector.from_elements %row, %split, %splits, %first : vector<4xi32>
    llvm.store %a, %to {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
    %to16 = llvm.getelementptr %to[16] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
    %b = vector.from_elements %length, %zero, %zero, %zero : vector<4xi32>
    llvm.store %b, %to16 {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
    %to32 = llvm.getelementptr %to[32] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
    %c = vector.from_elements %place, %blocks, %zero, %zero : vector<4xi32>
    llvm.store %c, %to32 {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
  }
  llvm.return
}
)mlir";
