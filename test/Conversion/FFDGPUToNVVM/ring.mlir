// RUN: ffd-opt %s --ffd-gpu-to-nvvm=arch=sm_90a --split-input-file | FileCheck %s

// Bulk copies: one lane issues, under a predicate, without a branch.
// CHECK-LABEL: func.func @bulk
func.func @bulk(%bar: !llvm.ptr<3>, %dst: !llvm.ptr<3>, %src: !llvm.ptr<1>, %c: i1, %p: i32) {
  // CHECK-COUNT-2: mbarrier.init.shared::cta.b64 [$0], 1;
  // CHECK: fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;
  ffd.gpu.ring.init bulk %bar count 2 : !llvm.ptr<3>
  // CHECK-NOT: scf.if
  // CHECK: llvm.inline_asm has_side_effects
  // CHECK-SAME: @one mbarrier.arrive.expect_tx.shared::cta.b64 _, [$1], 4352;
  // CHECK-SAME: @one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$2], [$3], 4096, [$1];
  // CHECK-SAME: @one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$4], [$5], 256, [$1];
  // CHECK-SAME: "r,r,r,l,r,l,~{memory}"
  ffd.gpu.ring.fill bulk %bar if %c copy %dst, %dst from %src, %src sizes [4096, 256]
      : !llvm.ptr<3> copy !llvm.ptr<3>, !llvm.ptr<3> from !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: mbarrier.try_wait.parity.shared::cta.b64
  ffd.gpu.ring.wait bulk %bar parity %p pending 1 : !llvm.ptr<3>
  // CHECK: fence.proxy.async.shared::cta;
  ffd.gpu.ring.handover bulk
  return
}

// -----

// Groups of cp.async: 16 bytes a lane; the last 256 bytes take half a warp. The
// group is closed even where nothing was copied.
// CHECK-LABEL: func.func @async
// CHECK-NOT: mbarrier
func.func @async(%bar: !llvm.ptr<3>, %dst: !llvm.ptr<3>, %src: !llvm.ptr<1>, %c: i1, %p: i32) {
  ffd.gpu.ring.init async %bar count 2 : !llvm.ptr<3>
  // CHECK: scf.if
  // CHECK-COUNT-2: cp.async.cg.shared.global [$0], [$1], 16;
  // CHECK: scf.if
  // CHECK: cp.async.cg.shared.global
  // CHECK: cp.async.commit_group;
  ffd.gpu.ring.fill async %bar if %c copy %dst from %src sizes [1280]
      : !llvm.ptr<3> copy !llvm.ptr<3> from !llvm.ptr<1>
  // CHECK: cp.async.wait_group $0;
  // CHECK: nvvm.bar.warp.sync
  ffd.gpu.ring.wait async %bar parity %p pending 1 : !llvm.ptr<3>
  // CHECK-NOT: fence
  ffd.gpu.ring.handover async
  return
}
