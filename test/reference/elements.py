# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The arithmetic that docs/numerics.md builds on, exact to the bit in numpy.

Two element types, f16 and bf16, whose values travel as float32 arrays (every
value of both is a float32) and are rounded explicitly; and a fused
multiply-add of float32 with one correct rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Element:
    """One 16-bit element type: how it rounds, encodes and decodes."""

    name: str  # "f16" or "bf16"
    safetensors: str  # the name in a safetensors header
    canonical_nan: int

    def encode(self, values: np.ndarray) -> np.ndarray:
        """float32 -> uint16 bits, to nearest even; every NaN is canonical."""
        values = np.asarray(values, np.float32)
        if self.name == "f16":
            with np.errstate(over="ignore"):
                bits = values.astype(np.float16).view(np.uint16)
        else:
            wide = values.view(np.uint32)
            # Add just under half a unit of the 16 bits kept, or exactly half
            # when the lowest kept bit is odd; the carry may reach infinity.
            bits = ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)
        return np.where(np.isnan(values), np.uint16(self.canonical_nan), bits)

    def decode(self, bits: np.ndarray) -> np.ndarray:
        """uint16 bits -> float32, exact."""
        bits = np.asarray(bits, np.uint16)
        if self.name == "f16":
            return bits.view(np.float16).astype(np.float32)
        return (bits.astype(np.uint32) << 16).view(np.float32)

    def round(self, values: np.ndarray) -> np.ndarray:
        """float32 -> the nearest value of the element type, as float32."""
        return self.decode(self.encode(values))


F16 = Element("f16", "F16", 0x7E00)
BF16 = Element("bf16", "BF16", 0x7FC0)
ELEMENTS = {e.name: e for e in (F16, BF16)}


def round_f16(values: np.ndarray) -> np.ndarray:
    """float32 -> nearest f16 -> float32."""
    return F16.round(values)


def fma_f32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """f32(a * b + c) of float32 arrays with a single rounding.

    The product of two float32 numbers is exact in float64 (48 bits). The sum
    with c is not, and rounding it to 53 and then to 24 bits would round twice.
    So the sum is *rounded to odd*: TwoSum yields the exact error of the float64
    addition; where it is not zero, the float64 result becomes that one of its
    two neighbours whose last bit is 1. The odd bit keeps a record that the sum
    lies strictly between, so the rounding to float32 is the correct one
    (Boldo and Melquiond, 2008; it needs 24 + 2 <= 53 bits).
    """
    with np.errstate(invalid="ignore", over="ignore"):
        product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
        addend = np.asarray(c, np.float64)
        total = np.array(product + addend)  # an array of its own, even if 0-d
        back = total - product
        error = (product - (total - back)) + (addend - back)
        bits = total.view(np.int64)
        fix = (error != 0) & np.isfinite(total) & ((bits & 1) == 0)
        # Same sign as the total: the magnitude is larger than what was kept.
        away = (error > 0) == (total > 0)
        bits[fix] += np.where(away, 1, -1)[fix]
        return total.astype(np.float32)


def floor_log2(values: np.ndarray) -> np.ndarray:
    """floor(log2(x)) of positive finite float32 numbers, exact; else 0."""
    values = np.asarray(values, np.float32)
    usable = np.isfinite(values) & (values > 0)
    return np.where(usable, np.frexp(np.where(usable, values, 1))[1] - 1, 0)
