# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/numerics.md once more, one number at a time, in exact fractions.

Checks ffd_reference.py, which is vectorised and leans on numpy's float
arithmetic. Here every quantity is a Fraction, every rounding is an explicit
call, and nothing is clever. Finite inputs only.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor

LIMIT = 1 << 30
TINY = Fraction(1, 2 ** 100)
# precision in bits, exponent of the smallest subnormal
FORMATS = {"f32": (24, -149), "f16": (11, -24), "bf16": (8, -133)}


def exponent(x: Fraction) -> int:
    """floor(log2(x)) of x > 0."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if x >= Fraction(2) ** e else e - 1


def rne(x: Fraction) -> int:
    return round(x)  # Python rounds a Fraction to the nearest, ties to even


def rounded(x: Fraction, fmt: str = "f32") -> Fraction:
    """IEEE rounding to nearest even with gradual underflow, no overflow."""
    if x == 0:
        return x
    precision, smallest = FORMATS[fmt]
    unit = Fraction(2) ** max(exponent(abs(x)) - precision + 1, smallest)
    return rne(x / unit) * unit


def fma(a: Fraction, b: Fraction, c: Fraction) -> Fraction:
    return rounded(a * b + c)


def clamp(x, low, high):
    return min(max(x, low), high)


def split_channel(k: list[Fraction], bits: int, element: str) -> tuple[Fraction, list[int]]:
    """The scale and the codes x of one (block, channel)."""
    L = Fraction(2 ** bits - 1, 2)
    s = rounded(rounded(max(abs(x) for x in k) / L), element)
    if element == "bf16" and s < TINY:
        s = Fraction(0)
    inv = rounded(1 / s) if s else Fraction(0)
    return s, [clamp(floor(fma(x, inv * 256, Fraction(2 ** (bits + 7)))), 0,
                     2 ** (bits + 8) - 1) for x in k]


def scan_scale(s: Fraction, k: int, element: str) -> Fraction:
    return s if element == "f16" else rounded(rounded(s / Fraction(2) ** k), "f16")


class Head:
    """One query head against the largest scales of its row."""

    def __init__(self, q: list[Fraction], smax: list[Fraction], sm_scale: Fraction, element: str):
        self.element = element
        top = max(smax)
        self.k = 0
        if element == "bf16" and top:
            self.k = clamp(exponent(top), -126, 126)
        largest = [scan_scale(s, self.k, element) for s in smax]
        m = max(rounded(abs(x) * s) for x, s in zip(q, largest))
        self.m = m = Fraction(0) if m < TINY else m
        inv = rounded(Fraction(126) / m) if m else Fraction(0)
        A = max((rounded(abs(x) * inv) for x, s in zip(q, largest) if s), default=Fraction(0))
        self.e = clamp(exponent(A) - 14, 0, 15) if A else 0
        self.qh = [rounded(rounded(rounded(x * inv) / 2 ** self.e), "f16") if s else Fraction(0)
                   for x, s in zip(q, largest)]
        F = rounded(rounded(m / 126) * Fraction(2) ** self.k)
        self.F = rounded(rounded(F * sm_scale) / 256)

    def score(self, scales: list[Fraction], codes: list[int], bits: int) -> int:
        """a_int of one token with thumbnail codes `codes`."""
        total = 0
        for qh, s, t in zip(self.qh, scales, codes):
            y = 2 ** self.e * rounded(qh * scan_scale(s, self.k, self.element), "f16")
            hi = rne(y)
            lo = rne(128 * (y - hi))
            assert abs(hi) <= 126 and abs(lo) <= 64  # scan_c1
            total += (128 * hi + lo) * (2 * t - (2 ** bits - 1))
        assert abs(total) < LIMIT  # scan_c2
        return total


def tail_score(q: list[Fraction], k: list[Fraction], sm_scale: Fraction) -> Fraction:
    p = [Fraction(0)] * 16
    for c, (x, y) in enumerate(zip(q, k)):
        p[c % 16] = fma(x, y, p[c % 16])
    for width in (8, 4, 2, 1):
        for i in range(width):
            p[i] = rounded(p[i] + p[i + width])
    return rounded(sm_scale * p[0])


def kept_blocks(heads: list[Head], a: list[list[int]], tails: list[list[Fraction]],
                delta: Fraction, quant_block: int, select_block: int) -> list[bool]:
    """a[h][token] of the committed tokens, tails[h][token] -> kept."""
    tokens = len(a[0])
    kept = [False] * (tokens // select_block)
    for head, scores, tail in zip(heads, a, tails):
        thr = -LIMIT
        if head.F and rounded(delta / head.F) < LIMIT:
            pm = max(scores[:quant_block] + scores[-quant_block:], default=-LIMIT)
            if tail:
                pm = max(pm, clamp(floor(rounded(max(tail) / head.F)), -LIMIT, LIMIT))
            d = -floor(-rounded(delta / head.F))
            thr = clamp(pm - d, -LIMIT, LIMIT)
        for j in range(len(kept)):
            if max(scores[j * select_block:(j + 1) * select_block]) >= thr:
                kept[j] = True
    return kept
