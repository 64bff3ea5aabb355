// Exchanges between lanes, by their definition in the PTX manual.
// RUN: ffd-emulate %s --kernel=shuffles --arg='>i32[32]' --arg='>i32[32]' --arg='>i32[32]' --arg='>i32[32]' --arg='>i32[32]' | FileCheck %s --check-prefix=SHFL
// RUN: ffd-emulate %s --kernel=votes --arg='>x32[4]' | FileCheck %s --check-prefix=VOTE
// RUN: ffd-emulate %s --kernel=matches --arg='>x32[32]' --arg='>x32[32]' | FileCheck %s --check-prefix=MATCH
// RUN: ffd-emulate %s --kernel=reduces --arg='>i32[8]' | FileCheck %s --check-prefix=REDUX

// up by 3, down by 3, xor 5, index 7, and down by 1 in segments of eight
// SHFL: {{^}}0 1 2 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28{{$}}
// SHFL-NEXT: {{^}}3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 29 30 31{{$}}
// SHFL-NEXT: {{^}}5 4 7 6 1 0 3 2 13 12 15 14 9 8 11 10 21 20 23 22 17 16 19 18 29 28 31 30 25 24 27 26{{$}}
// SHFL-NEXT: {{^}}7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7{{$}}
// SHFL-NEXT: {{^}}1 2 3 4 5 6 7 107 9 10 11 12 13 14 15 115 17 18 19 20 21 22 23 123 25 26 27 28 29 30 31 131{{$}}
llvm.func @shuffles(%up: !llvm.ptr<1>, %down: !llvm.ptr<1>, %xor: !llvm.ptr<1>, %idx: !llvm.ptr<1>, %seg: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %lane = nvvm.read.ptx.sreg.laneid : i32
  %all = llvm.mlir.constant(-1 : i32) : i32
  %c0 = llvm.mlir.constant(0 : i32) : i32
  %c1 = llvm.mlir.constant(1 : i32) : i32
  %c3 = llvm.mlir.constant(3 : i32) : i32
  %c5 = llvm.mlir.constant(5 : i32) : i32
  %c7 = llvm.mlir.constant(7 : i32) : i32
  %c31 = llvm.mlir.constant(31 : i32) : i32
  %c100 = llvm.mlir.constant(100 : i32) : i32
  // Segment mask 0b11000 at bit 8, clamp 31.
  %segments = llvm.mlir.constant(6175 : i32) : i32
  %0 = nvvm.shfl.sync up %all, %lane, %c3, %c0 : i32 -> i32
  %1 = nvvm.shfl.sync down %all, %lane, %c3, %c31 : i32 -> i32
  %2 = nvvm.shfl.sync bfly %all, %lane, %c5, %c31 : i32 -> i32
  %3 = nvvm.shfl.sync idx %all, %lane, %c7, %c31 : i32 -> i32
  %4 = nvvm.shfl.sync down %all, %lane, %c1, %segments {return_value_and_is_valid} : i32 -> !llvm.struct<(i32, i1)>
  %5 = llvm.extractvalue %4[0] : !llvm.struct<(i32, i1)>
  %6 = llvm.extractvalue %4[1] : !llvm.struct<(i32, i1)>
  %7 = llvm.add %5, %c100 : i32
  %8 = llvm.select %6, %5, %7 : i1, i32
  %p0 = llvm.getelementptr %up[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
  %p1 = llvm.getelementptr %down[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
  %p2 = llvm.getelementptr %xor[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
  %p3 = llvm.getelementptr %idx[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
  %p4 = llvm.getelementptr %seg[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
  llvm.store %0, %p0 : i32, !llvm.ptr<1>
  llvm.store %1, %p1 : i32, !llvm.ptr<1>
  llvm.store %2, %p2 : i32, !llvm.ptr<1>
  llvm.store %3, %p3 : i32, !llvm.ptr<1>
  llvm.store %8, %p4 : i32, !llvm.ptr<1>
  llvm.return
}

// Lanes below 7: ballot, any, all, and any of the upper half's mask.
// VOTE: {{^}}0x0000007f 0x00000001 0x00000000 0x00000000{{$}}
llvm.func @votes(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %lane = nvvm.read.ptx.sreg.laneid : i32
  %all = llvm.mlir.constant(-1 : i32) : i32
  %upper = llvm.mlir.constant(0xFFFF0000 : i32) : i32
  %c7 = llvm.mlir.constant(7 : i32) : i32
  %c16 = llvm.mlir.constant(16 : i32) : i32
  %below = llvm.icmp "ult" %lane, %c7 : i32
  %b = nvvm.vote.sync ballot %all, %below -> i32
  %any = nvvm.vote.sync any %all, %below -> i1
  %every = nvvm.vote.sync all %all, %below -> i1
  %any32 = llvm.zext %any : i1 to i32
  %every32 = llvm.zext %every : i1 to i32
  %c0 = llvm.mlir.constant(0 : i32) : i32
  %first = llvm.icmp "eq" %lane, %c0 : i32
  %isUpper = llvm.icmp "uge" %lane, %c16 : i32
  llvm.cond_br %isUpper, ^upper, ^lower
^upper:
  %half = nvvm.vote.sync any %upper, %below -> i1
  %half32 = llvm.zext %half : i1 to i32
  %p3 = llvm.getelementptr %out[3] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
  %last = llvm.icmp "eq" %lane, %c16 : i32
  llvm.cond_br %last, ^store, ^end
^store:
  llvm.store %half32, %p3 : i32, !llvm.ptr<1>
  llvm.br ^end
^lower:
  llvm.cond_br %first, ^write, ^end
^write:
  %p1 = llvm.getelementptr %out[1] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
  %p2 = llvm.getelementptr %out[2] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32
  llvm.store %b, %out : i32, !llvm.ptr<1>
  llvm.store %any32, %p1 : i32, !llvm.ptr<1>
  llvm.store %every32, %p2 : i32, !llvm.ptr<1>
  llvm.br ^end
^end:
  llvm.return
}

// MATCH: {{^}}0x11111111 0x22222222 0x44444444 0x88888888
// MATCH-NEXT: {{^}}0x00000000 0x00000000
llvm.func @matches(%any: !llvm.ptr<1>, %every: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %lane = nvvm.read.ptx.sreg.laneid : i32
  %all = llvm.mlir.constant(-1 : i32) : i32
  %c3 = llvm.mlir.constant(3 : i32) : i32
  %class = llvm.and %lane, %c3 : i32
  %0 = nvvm.match.sync any %all, %class : i32 -> i32
  %1 = nvvm.match.sync all %all, %class : i32 -> !llvm.struct<(i32, i1)>
  %2 = llvm.extractvalue %1[0] : !llvm.struct<(i32, i1)>
  %p0 = llvm.getelementptr %any[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
  %p1 = llvm.getelementptr %every[%lane] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
  llvm.store %0, %p0 : i32, !llvm.ptr<1>
  llvm.store %2, %p1 : i32, !llvm.ptr<1>
  llvm.return
}

// Of lane - 5: sum, signed and unsigned minimum and maximum, and, or, xor.
// REDUX: {{^}}336 -5 26 0 -1 0 -1 -32{{$}}
llvm.func @reduces(%out: !llvm.ptr<1>) attributes {nvvm.kernel} {
  %lane = nvvm.read.ptx.sreg.laneid : i32
  %all = llvm.mlir.constant(-1 : i32) : i32
  %c5 = llvm.mlir.constant(5 : i32) : i32
  %c0 = llvm.mlir.constant(0 : i32) : i32
  %x = llvm.sub %lane, %c5 : i32
  %0 = nvvm.redux.sync add %x, %all : i32 -> i32
  %1 = nvvm.redux.sync min %x, %all : i32 -> i32
  %2 = nvvm.redux.sync max %x, %all : i32 -> i32
  %3 = nvvm.redux.sync umin %x, %all : i32 -> i32
  %4 = nvvm.redux.sync umax %x, %all : i32 -> i32
  %5 = nvvm.redux.sync and %x, %all : i32 -> i32
  %6 = nvvm.redux.sync or %x, %all : i32 -> i32
  %7 = nvvm.redux.sync xor %x, %all : i32 -> i32
  %first = llvm.icmp "eq" %lane, %c0 : i32
  llvm.cond_br %first, ^write, ^end
^write:
  %v0 = llvm.mlir.undef : vector<8xi32>
  %i0 = llvm.mlir.constant(0 : i64) : i64
  %i1 = llvm.mlir.constant(1 : i64) : i64
  %i2 = llvm.mlir.constant(2 : i64) : i64
  %i3 = llvm.mlir.constant(3 : i64) : i64
  %i4 = llvm.mlir.constant(4 : i64) : i64
  %i5 = llvm.mlir.constant(5 : i64) : i64
  %i6 = llvm.mlir.constant(6 : i64) : i64
  %i7 = llvm.mlir.constant(7 : i64) : i64
  %v1 = llvm.insertelement %0, %v0[%i0 : i64] : vector<8xi32>
  %v2 = llvm.insertelement %1, %v1[%i1 : i64] : vector<8xi32>
  %v3 = llvm.insertelement %2, %v2[%i2 : i64] : vector<8xi32>
  %v4 = llvm.insertelement %3, %v3[%i3 : i64] : vector<8xi32>
  %v5 = llvm.insertelement %4, %v4[%i4 : i64] : vector<8xi32>
  %v6 = llvm.insertelement %5, %v5[%i5 : i64] : vector<8xi32>
  %v7 = llvm.insertelement %6, %v6[%i6 : i64] : vector<8xi32>
  %v8 = llvm.insertelement %7, %v7[%i7 : i64] : vector<8xi32>
  llvm.store %v8, %out {alignment = 32 : i64} : vector<8xi32>, !llvm.ptr<1>
  llvm.br ^end
^end:
  llvm.return
}
