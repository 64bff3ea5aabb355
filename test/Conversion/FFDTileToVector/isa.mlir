// RUN: not ffd-opt %s --ffd-tile-to-vector=isa=sse2 2>&1 | FileCheck %s

// CHECK: error: 'isa' is 'sse2', expected avx2, avx512 or avx512vnni
module {
}
