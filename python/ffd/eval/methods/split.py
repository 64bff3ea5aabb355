# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The split of K and the integer scan of docs/numerics.md, the same to the bit on
numpy and on torch. Citations are the constraints of that page.

Beyond the page, keys may be *centred*: an offset vector per block is subtracted
before the split, and q . offset added to the scores again. `...` in shapes is as in
problem.py: kv heads, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array, array_namespace, exponent, power_of_two
from ..problem import Problem, round_element

SMALLEST = 2.0 ** -100


@dataclass
class Blocks:
    """n committed blocks of one kv head, or of several."""

    scales: Array  # [..., n, D]
    weights: Array  # [..., n, QB, D] int16: 2 t - (2^b - 1), the scan's operand
    residuals: Array  # [..., n, QB, D] uint8
    keys: Array  # [..., n * QB, D] float32: what thumbnail and residual are worth
    offsets: Array | None  # [..., n, D], or None for plain keys

    def first(self, n: int) -> Blocks:
        return Blocks(self.scales[..., :n, :], self.weights[..., :n, :, :],
                      self.residuals[..., :n, :, :],
                      self.keys[..., :n * self.weights.shape[-2], :],
                      None if self.offsets is None else self.offsets[..., :n, :])


def split(blocks: Array, bits: int, element: str, centre: str, residual: bool = True) -> Blocks:
    """blocks [..., n, QB, D] of K."""
    xp = array_namespace(blocks)
    *lead, n, QB, D = blocks.shape
    offsets = None
    if centre == "mean":
        offsets = round_element(xp.mean(blocks, axis=-2, dtype=xp.float64), element)
    elif centre == "middle":
        offsets = round_element((xp.max(blocks, axis=-2) + xp.min(blocks, axis=-2)) / 2, element)
    if offsets is not None:
        blocks = blocks - offsets[..., None, :]
    levels = (2 ** bits - 1) / 2
    with np.errstate(all="ignore"):
        amax = xp.max(xp.abs(blocks), axis=-2)
        s = round_element(amax / levels, element)  # split_c1
        if element == "bf16":
            s = xp.where(s < SMALLEST, 0.0, s)  # split_c2
        s = xp.where(xp.isfinite(amax), s, xp.nan)  # split_c3
        inv = xp.where(s == 0, 0.0, 1 / s)
        # split_c4. The product is exact in float64, and the sum too unless the
        # product is tiny: then it must decide itself whether the float32 sum
        # rounds to the middle code or to just below it.
        scaled = (xp.astype(blocks, xp.float64)
                  * xp.astype(inv * 256, xp.float64)[..., None, :])
        middle = 2 ** (bits + 7)
        x = xp.floor(xp.astype(scaled + middle, xp.float32))
        x = xp.where((x == middle) & (scaled < -2.0 ** (bits - 18)), middle - 1.0, x)
        x = xp.clip(x, 0, 2 ** (bits + 8) - 1)
        x = xp.where(xp.isnan(s)[..., None, :], 0.0, x)  # split_c3
    codes = xp.astype(x, xp.int32)
    thumbnails = codes >> 8  # split_c5
    if residual:
        worth = (x + 0.5) / 256 - 2 ** (bits - 1)
    else:
        worth = xp.astype(thumbnails, xp.float32) - levels
    keys = s[..., None, :] * worth
    if offsets is not None:
        keys = keys + offsets[..., None, :]
    return Blocks(s, xp.astype(2 * thumbnails - (2 ** bits - 1), xp.int16),
                  xp.astype(codes & 255, xp.uint8),
                  keys.reshape((*lead, n * QB, D)), offsets)


def split_of(problem: Problem, k: Array, n: int, QB: int, bits: int, centre: str,
             residual: bool = True) -> Blocks:
    """The first n blocks of k [..., T, D] (problem.k or a shifted copy of it); blocks
    within problem.fixed are split once and stored."""
    xp = array_namespace(k)
    key = ("split", QB, bits, centre, residual)
    rows = "row" if centre.startswith("row") else centre

    def blocks(first: int, stop: int) -> Blocks:
        part = k[..., first * QB:stop * QB, :]
        return split(part.reshape((*k.shape[:-2], stop - first, QB, k.shape[-1])), bits,
                     problem.element, rows, residual)
    known = min(problem.fixed, k.shape[-2]) // QB
    have: Blocks | None = problem.store.get(key)
    if known and (have is None or have.scales.shape[-2] < known):
        have = problem.store[key] = blocks(0, known)
    if have is not None and n <= known:
        return have.first(n)
    known = known if have is not None else 0
    new = blocks(known, n)
    if not known:
        return new
    old = have.first(known)
    return Blocks(*(None if a is None else xp.concat((a, b), axis=axis)
                    for a, b, axis in ((old.scales, new.scales, -2),
                                       (old.weights, new.weights, -3),
                                       (old.residuals, new.residuals, -3),
                                       (old.keys, new.keys, -2),
                                       (old.offsets, new.offsets, -2))))


@dataclass
class Scan:
    """Scores of R rows in scan units."""

    a: Array  # [..., n, QB, R, G] float64 or float32, integers
    F: Array  # [..., R, G]: score of one unit
    nonfinite: Array  # [..., R], query_c5
    Q: Array  # [..., n, R * G, D] float32, the folded query of scan_c1

    def refinement(self, parts: Blocks, block: int) -> Array:
        """select_c5: what the residuals of a block add to its scores, [..., QB, R, G]."""
        xp = array_namespace(self.Q)
        weights = 2 * xp.astype(parts.residuals[..., block, :, :], xp.float64) - 255
        r = weights @ xp.matrix_transpose(xp.astype(self.Q[..., block, :, :], xp.float64))
        scores = self.a[..., block, :, :, :]
        return xp.astype(xp.floor(r / 256), scores.dtype).reshape(scores.shape)


def scan(q: Array, parts: Blocks, bits: int, element: str, sm_scale: np.float32) -> Scan:
    """q [..., R, G, D] against n >= 1 blocks."""
    xp = array_namespace(q)
    *lead, R, G, D = q.shape
    n, QB, _ = parts.weights.shape[-3:]
    with np.errstate(all="ignore"):
        smax = xp.max(parts.scales, axis=-2)  # split_c6
        scales = parts.scales
        if element == "bf16":  # query_c1
            k = xp.clip(exponent(xp.max(smax, axis=-1)), -126, 126)
            unit = power_of_two(-k)[..., None]
            smax = round_element(smax * unit, "f16")
            scales = round_element(scales * unit[..., None], "f16")
        m = xp.max(xp.abs(q) * smax[..., None, None, :], axis=-1)  # query_c2
        m = xp.where(m < SMALLEST, 0.0, m)
        inv = xp.where(m == 0, 0.0, 126 / m)
        scaled = q * inv[..., None]
        used = smax[..., None, None, :] != 0
        largest = xp.max(xp.where(used, xp.abs(scaled), 0.0), axis=-1)
        e = xp.where(largest == 0, xp.zeros_like(exponent(largest)),
                     xp.clip(exponent(largest) - 14, 0, 15))  # query_c3
        power = power_of_two(e)[..., None]
        qh = xp.where(used, round_element(scaled / power, "f16"), 0.0)
        F = m / 126
        if element == "bf16":
            F = F * power_of_two(k)[..., None, None]
        F = F * float(sm_scale) * 2.0 ** -8  # query_c4
        # scan_c1: hi + lo in one: y - hi is exact and 128 hi even, so that
        # 128 hi + rne(128 (y - hi)) = rne(128 y).
        flat = (*lead, 1, R * G)
        product = round_element(qh.reshape((*flat, D)) * scales[..., None, :], "f16")
        Q = xp.round(product * (128 * power).reshape((*flat, 1)))
        Q = xp.where(xp.isfinite(Q), Q, 0.0)
    # scan_c2. At two bits sums stay below 2^24, where float32 is exact.
    exact = xp.float32 if bits == 2 else xp.float64
    a = xp.astype(parts.weights, exact) @ xp.matrix_transpose(xp.astype(Q, exact))
    nonfinite = ~xp.all(xp.isfinite(m), axis=-1)
    return Scan(a.reshape((*lead, n, QB, R, G)), F, nonfinite, Q)


def tail_scores(q: Array, k: Array, sm_scale: np.float32) -> Array:
    """tail_c1: q [..., R, G, D], k [..., t, D] -> [..., R, G, t] in the fixed order.
    Products of two 16-bit numbers are exact in float32, so multiply and add is the
    fma."""
    *lead, R, G, D = q.shape
    lanes = D // 16
    q = q.reshape((*lead, R, G, 1, lanes, 16))
    k = k.reshape((*lead, 1, 1, -1, lanes, 16))
    p = 0.0
    with np.errstate(all="ignore"):
        for j in range(lanes):
            p = p + q[..., j, :] * k[..., j, :]
        for width in (8, 4, 2, 1):
            p = p[..., :width] + p[..., width:2 * width]
        return p[..., 0] * float(sm_scale)
