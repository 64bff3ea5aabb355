# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Single instructions whose results a GPU recorded (scripts/record-gpu): the
same text runs there as PTX and on the emulator as inline assembly. Inputs are
made from integers alone, so that every machine has the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable

import numpy as np

from gpu_cases import mixed

U32, U64 = np.uint32, np.uint64


@dataclass(frozen=True)
class Probe:
    """`text` with operands $0.. of 32 bits: `out` results, then `inputs`."""

    name: str
    text: str
    out: int
    inputs: int
    warps: int
    make: Callable[[str, int], np.ndarray]  # (stream, threads) -> [threads, inputs]

    def words(self) -> np.ndarray:
        words = self.make(self.name, 32 * self.warps).astype(U32)
        assert words.shape == (32 * self.warps, self.inputs), words.shape
        return words

    def ptx(self) -> str:
        """A module with one kernel, `probe(in, out)`: one block per warp."""
        names = [f"%r{i}" for i in range(self.out + self.inputs)]
        body = re.sub(r"\$(\d+)", lambda m: names[int(m[1])], self.text)
        load = "\n".join(f"ld.global.b32 {names[self.out + i]}, [%in+{4 * i}];"
                         for i in range(self.inputs))
        store = "\n".join(f"st.global.b32 [%out+{4 * i}], {names[i]};" for i in range(self.out))
        return f""".version 8.0
.target sm_80
.address_size 64
.visible .entry probe(.param .u64 in, .param .u64 out) {{
.reg .b32 %r<{len(names)}>;
.reg .b32 %t, %n;
.reg .b64 %in, %out;
mov.u32 %t, %ctaid.x;
mov.u32 %n, %tid.x;
mad.lo.u32 %t, %t, 32, %n;
ld.param.u64 %in, [in];
ld.param.u64 %out, [out];
mad.wide.u32 %in, %t, {4 * self.inputs}, %in;
mad.wide.u32 %out, %t, {4 * self.out}, %out;
{load}
{body}
{store}
ret;
}}
"""

    def mlir(self) -> str:
        """The same kernel in the LLVM and NVVM dialects."""
        loads, stores = [], []
        for i in range(self.inputs):
            loads.append(f"%a{i} = llvm.getelementptr %pi[{i}] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32\n"
                         f"%x{i} = llvm.load %a{i} : !llvm.ptr<1> -> i32")
        record = "i32" if self.out == 1 else f"!llvm.struct<({', '.join(['i32'] * self.out)})>"
        for i in range(self.out):
            value = "%r"
            if self.out > 1:
                value = f"%y{i}"
                stores.append(f"{value} = llvm.extractvalue %r[{i}] : {record}")
            stores.append(f"%b{i} = llvm.getelementptr %po[{i}] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32\n"
                          f"llvm.store {value}, %b{i} : i32, !llvm.ptr<1>")
        constraints = ",".join(["=r"] * self.out + ["r"] * self.inputs)
        operands = ", ".join(f"%x{i}" for i in range(self.inputs))
        newline = "\n"
        return f"""
llvm.func @probe(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>) attributes {{nvvm.kernel}} {{
%w = nvvm.read.ptx.sreg.ctaid.x : i32
%l = nvvm.read.ptx.sreg.tid.x : i32
%c32 = llvm.mlir.constant(32 : i32) : i32
%ni = llvm.mlir.constant({self.inputs} : i32) : i32
%no = llvm.mlir.constant({self.out} : i32) : i32
%w32 = llvm.mul %w, %c32 : i32
%t = llvm.add %w32, %l : i32
%oi = llvm.mul %t, %ni : i32
%oo = llvm.mul %t, %no : i32
%pi = llvm.getelementptr %in[%oi] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
%po = llvm.getelementptr %out[%oo] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
{newline.join(loads)}
%r = llvm.inline_asm has_side_effects "{self.text}", "{constraints}" {operands} : ({', '.join(['i32'] * self.inputs)}) -> {record}
{newline.join(stores)}
llvm.return
}}
"""


def words_of(stream: str, threads: int, count: int) -> np.ndarray:
    return (mixed(stream, threads * count) & U64(0xFFFFFFFF)).astype(U32).reshape(threads, count)


def random_words(count: int) -> Callable[[str, int], np.ndarray]:
    return lambda stream, threads: words_of(stream, threads, count)


def floats(bits: np.ndarray, exponents: int, digits: int, lowest: int, count: int) -> np.ndarray:
    """Numbers of a binary format with a random sign and mantissa, and one of
    `count` exponents (with bias) from `lowest` on."""
    bits = bits.astype(U64)
    sign = (bits & U64(1)) << U64(exponents + digits)
    exponent = (bits >> U64(1)) % U64(count) + U64(lowest)
    mantissa = (bits >> U64(32)) & U64((1 << digits) - 1)
    return sign | exponent << U64(digits) | mantissa


# Of the lowest f16 exponent and how many, of A, B and (f32) C, by warp: numbers
# of one size, of all sizes, small integers as subnormals with a C or without.
REGIMES = (((14, 3), (14, 3), (127, 2)), ((5, 20), (8, 14), (118, 18)),
           ((0, 1), (13, 4), (103, 12)), ((0, 1), (13, 4), (0, 1)))


def mma_floats(bfloat: bool) -> Callable[[str, int], np.ndarray]:
    def make(stream: str, threads: int) -> np.ndarray:
        halves = mixed(stream + " ab", threads * 12).reshape(threads, 12)
        accumulators = mixed(stream + " c", threads * 4).reshape(threads, 4)
        words = np.empty((threads, 10), U32)
        for warp in range(threads // 32):
            at = slice(32 * warp, 32 * warp + 32)
            a, b, c = REGIMES[warp % 4]
            for where, (lowest, count), columns in ((slice(0, 4), a, slice(0, 8)),
                                                    (slice(4, 6), b, slice(8, 12))):
                bits = halves[at, columns]
                if bfloat:  # of the same sizes; what is subnormal in f16 is an integer
                    x = floats(bits, 8, 7, lowest + 112 if lowest else 120, count if lowest else 8)
                else:
                    x = floats(bits, 5, 10, lowest, count)
                x = x.astype(U32)
                words[at, where] = x[:, 0::2] | x[:, 1::2] << U32(16)
            lowest, count = c
            words[at, 6:] = 0 if lowest == 0 else floats(accumulators[at], 8, 23, lowest, count)
        return words
    return make


def spread(lowest: int, count: int, both: bool) -> Callable[[str, int], np.ndarray]:
    """One f32: exponents from a range, then what is special."""
    def make(stream: str, threads: int) -> np.ndarray:
        x = floats(mixed(stream, threads), 8, 23, lowest, count).astype(U32)
        if not both:
            x &= U32(0x7FFFFFFF)
        special = [0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F800000, 0xBF800000, 1,
                   0x80000001, 0x007FFFFF, 0xC2FC0000, 0xC2FE0000, 0xC3000000, 0xC3160000, 0x42FFFFFF,
                   0x43000000]
        x[:len(special)] = special
        return x.reshape(threads, 1)
    return make


MMA = "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
PROBES = [
    Probe("mma-f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 " + MMA, 4, 10, 32,
          mma_floats(False)),
    Probe("mma-bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 " + MMA, 4, 10, 32,
          mma_floats(True)),
    Probe("mma-u8", "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 " + MMA, 4, 10, 4,
          random_words(10)),
    Probe("ex2", "ex2.approx.ftz.f32 $0, $1;", 1, 1, 128, spread(110, 26, True)),
    Probe("lg2", "lg2.approx.f32 $0, $1;", 1, 1, 64, spread(1, 250, False)),
    Probe("fma-f16x2", "fma.rn.f16x2 $0, $1, $2, $3;", 1, 3, 16, random_words(3)),
    Probe("fma-bf16x2", "fma.rn.bf16x2 $0, $1, $2, $3;", 1, 3, 16, random_words(3)),
    Probe("cvt-f16x2", "cvt.rn.f16x2.f32 $0, $1, $2;", 1, 2, 16, random_words(2)),
    Probe("cvt-bf16x2", "cvt.rn.bf16x2.f32 $0, $1, $2;", 1, 2, 16, random_words(2)),
    Probe("prmt", "prmt.b32 $0, $1, $2, $3;", 1, 3, 8, random_words(3)),
    Probe("movmatrix", "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", 1, 1, 4, random_words(1)),
    Probe("redux", "redux.sync.min.s32 $0, $1, 0xFFFFFFFF;", 1, 1, 4, random_words(1)),
]
