// Arguments that no run can take are refused before it.
// RUN: not ffd-emulate %s --kernel=k --arg='i32[99999999999999]' 2>&1 | FileCheck %s --check-prefix=LARGE
// LARGE: error: a buffer of 99999999999999 elements of 4 bytes, expected at most 4294967296 bytes
// RUN: not ffd-emulate %s --kernel=k --arg='i32[2]=1,2,3' 2>&1 | FileCheck %s --check-prefix=MANY
// MANY: error: 3 values for 2 elements
// RUN: not ffd-emulate %s --kernel=k --arg='i32[2]' --seeds=0 2>&1 | FileCheck %s --check-prefix=SEEDS
// SEEDS: error: option --seeds is 0, expected 1 to 1048576
// RUN: ffd-emulate %s --kernel=k --arg='i32[2]=1,2'

llvm.func @k(%p: !llvm.ptr<1>) attributes {nvvm.kernel} {
  llvm.return
}
