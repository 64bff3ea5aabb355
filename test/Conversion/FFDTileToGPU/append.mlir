// RUN: ffd-compile --program=append --head-dim=64 --emit=tile -o %t.mlir
// RUN: ffd-opt %t.mlir --ffd-tile-to-gpu | FileCheck %s
// RUN: not ffd-opt %t.mlir --ffd-tile-to-vector 2>&1 | FileCheck %s --check-prefix=CPU
// RUN: sed 's/commit(%%first, %%end/commit(%%first, %%first/' %t.mlir > %t.other.mlir
// RUN: not ffd-opt %t.other.mlir --ffd-tile-to-gpu 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: sed '/ffd.tile.store_block/d' %t.mlir > %t.unstored.mlir
// RUN: not ffd-opt %t.unstored.mlir --ffd-tile-to-gpu 2>&1 | FileCheck %s --check-prefix=UNSTORED

// A warp for every tile of a block; page ids are looked at before anything is
// written, tail and smax come last.

// CHECK: llvm.func @append
// CHECK-SAME: ffd.threads = 256
// CHECK: ffd.gpu.any
// CHECK: ffd.gpu.team_barrier
// CHECK: scf.for
// CHECK: ffd.gpu.key_maxima %{{.*}} : (vector<16xi32>) -> vector<16xi32>
// CHECK: ffd.gpu.team_barrier
// CHECK: ffd.gpu.split_scale
// CHECK: ffd.gpu.team_barrier
// CHECK: ffd.gpu.split_tile
// CHECK-COUNT-4: ffd.gpu.transpose
// CHECK-NOT: ffd.gpu.transpose
// CHECK: ffd.gpu.arrive
// CHECK: ffd.gpu.arrive
// CHECK-NOT: ffd.tile

// CPU: error: 'ffd.tile.append_extent' op cannot be lowered for the CPU
// OTHER: error: 'ffd.tile.distribute' op domain commit runs over other values than its team's, expected 'first' and 'end' of 'ffd.tile.append_extent'
// UNSTORED: error: 'ffd.tile.distribute' op does not load, split, store and yield its block
