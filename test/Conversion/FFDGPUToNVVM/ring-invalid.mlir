// RUN: ffd-opt %s --ffd-gpu-to-nvvm=arch=sm_80 --verify-diagnostics

func.func @bulk(%bar: !llvm.ptr<3>) {
  // expected-error @below {{'ffd.gpu.ring.init' op copies in bulk, which sm_80 cannot do, expected 'async'}}
  ffd.gpu.ring.init bulk %bar count 2 : !llvm.ptr<3>
  return
}
