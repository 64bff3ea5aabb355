# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The split of K and the integer scan of docs/numerics.md, fast in numpy and the
same to the bit. Citations are the constraints of that page.

Beyond the page, keys may be *centred*: an offset vector per block is subtracted
before the split, and q . offset added to the scores again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..problem import Problem, round_element

SMALLEST = np.float32(2.0 ** -100)


@dataclass
class Blocks:
    """n committed blocks of one kv head."""

    scales: np.ndarray  # [n, D]
    weights: np.ndarray  # [n, QB, D] int16: 2 t - (2^b - 1), the scan's operand
    keys: np.ndarray  # [n * QB, D] float32: what thumbnail and residual are worth
    offsets: np.ndarray | None  # [n, D], or None for plain keys

    def first(self, n: int) -> Blocks:
        return Blocks(self.scales[:n], self.weights[:n],
                      self.keys[:n * self.weights.shape[1]],
                      None if self.offsets is None else self.offsets[:n])


def split(blocks: np.ndarray, bits: int, element: str, centre: str,
          residual: bool = True) -> Blocks:
    """blocks [n, QB, D] of K."""
    n, QB, D = blocks.shape
    offsets = None
    if centre == "mean":
        offsets = round_element(blocks.mean(axis=1), element)
    elif centre == "middle":
        offsets = round_element((blocks.max(axis=1) + blocks.min(axis=1)) / 2, element)
    if offsets is not None:
        blocks = blocks - offsets[:, None]
    levels = np.float32((2 ** bits - 1) / 2)
    with np.errstate(all="ignore"):
        amax = np.max(np.abs(blocks), axis=1)
        s = round_element(amax / levels, element)  # split_c1
        if element == "bf16":
            s[s < SMALLEST] = 0  # split_c2
        s[~np.isfinite(amax)] = np.nan  # split_c3
        inv = np.where(s == 0, np.float32(0), np.float32(1) / s)
        # split_c4. The product is exact in float64, and the sum too unless the
        # product is tiny: then it must decide itself whether the float32 sum
        # rounds to the middle code or to just below it.
        scaled = blocks.astype(np.float64) * (inv * np.float32(256)).astype(np.float64)[:, None]
        middle = 2 ** (bits + 7)
        x = np.floor((scaled + middle).astype(np.float32))
        x[(x == middle) & (scaled < -2.0 ** (bits - 18))] = middle - 1
        x = np.clip(x, 0, 2 ** (bits + 8) - 1)
        x = np.where(np.isnan(s)[:, None], np.float32(0), x)  # split_c3
    codes = x.astype(np.int32)
    thumbnails = codes >> 8  # split_c5
    if residual:
        worth = (x + np.float32(0.5)) / np.float32(256) - np.float32(2 ** (bits - 1))
    else:
        worth = thumbnails.astype(np.float32) - levels
    keys = s[:, None] * worth
    if offsets is not None:
        keys += offsets[:, None]
    return Blocks(s, (2 * thumbnails - (2 ** bits - 1)).astype(np.int16),
                  keys.reshape(n * QB, D), offsets)


def split_of(problem: Problem, k: np.ndarray, n: int, QB: int, bits: int, centre: str,
             residual: bool = True) -> Blocks:
    """The first n blocks of k [T, D] (problem.k or a shifted copy of it); blocks
    within problem.fixed are split once and stored."""
    key = ("split", QB, bits, centre, residual)
    rows = "row" if centre.startswith("row") else centre
    known = min(problem.fixed, len(k)) // QB
    have: Blocks | None = problem.store.get(key)
    if known and (have is None or len(have.scales) < known):
        have = problem.store[key] = split(k[:known * QB].reshape(known, QB, -1), bits,
                                          problem.element, rows, residual)
    if have is not None and n <= known:
        return have.first(n)
    known = known if have is not None else 0
    new = split(k[known * QB:n * QB].reshape(n - known, QB, -1), bits, problem.element, rows,
                residual)
    if not known:
        return new
    old = have.first(known)
    return Blocks(*(None if a is None else np.concatenate((a, b))
                    for a, b in ((old.scales, new.scales), (old.weights, new.weights),
                                 (old.keys, new.keys), (old.offsets, new.offsets))))


def floor_log2(x: np.ndarray) -> np.ndarray:
    usable = np.isfinite(x) & (x > 0)
    return np.where(usable, np.frexp(np.where(usable, x, 1))[1] - 1, 0)


@dataclass
class Scan:
    """Scores of R rows in scan units."""

    a: np.ndarray  # [n, QB, R, G] float64 or float32, integers
    F: np.ndarray  # [R, G]: score of one unit
    nonfinite: np.ndarray  # [R], query_c5


def scan(q: np.ndarray, parts: Blocks, bits: int, element: str, sm_scale: np.float32) -> Scan:
    """q [R, G, D] against n >= 1 blocks."""
    R, G, D = q.shape
    n, QB, _ = parts.weights.shape
    with np.errstate(all="ignore"):
        smax = np.maximum.reduce(parts.scales, axis=0, initial=0)  # split_c6
        k = 0
        scales = parts.scales
        if element == "bf16":  # query_c1
            k = int(np.clip(floor_log2(np.max(smax)), -126, 126))
            smax, scales = (round_element(np.ldexp(s, -k), "f16") for s in (smax, scales))
        m = np.max(np.abs(q) * smax, axis=-1)  # query_c2
        m = np.where(m < SMALLEST, np.float32(0), m)
        inv = np.where(m == 0, np.float32(0), np.float32(126) / m)
        scaled = q * inv[..., None]
        used = smax != 0
        largest = np.max(np.where(used, np.abs(scaled), np.float32(0)), axis=-1)
        e = np.where(largest == 0, 0, np.clip(floor_log2(largest) - 14, 0, 15))  # query_c3
        power = np.ldexp(np.float32(1), e).astype(np.float32)[..., None]
        qh = np.where(used, round_element(scaled / power, "f16"), np.float32(0))
        F = np.ldexp(m / np.float32(126), k) * sm_scale * np.float32(2.0 ** -8)  # query_c4
        # scan_c1: hi + lo in one: y - hi is exact and 128 hi even, so that
        # 128 hi + rne(128 (y - hi)) = rne(128 y).
        product = round_element(qh.reshape(1, R * G, D) * scales[:, None], "f16")
        Q = np.rint(product * (128 * power).reshape(1, R * G, 1))
        Q[~np.isfinite(Q)] = 0
    # scan_c2. At two bits sums stay below 2^24, where float32 is exact.
    exact = np.float32 if bits == 2 else np.float64
    a = np.matmul(parts.weights.astype(exact), Q.astype(exact).transpose(0, 2, 1))
    nonfinite = ~np.isfinite(m).all(axis=-1)
    return Scan(a.reshape(n, QB, R, G), F.astype(np.float32), nonfinite)


def tail_scores(q: np.ndarray, k: np.ndarray, sm_scale: np.float32) -> np.ndarray:
    """tail_c1: q [R, G, D], k [t, D] -> [R, G, t] in the fixed order. Products
    of two 16-bit numbers are exact in float32, so multiply and add is the fma."""
    lanes = q.shape[-1] // 16
    q = q.reshape(*q.shape[:2], 1, lanes, 16)
    k = k.reshape(len(k), lanes, 16)
    p = np.zeros((*q.shape[:2], len(k), 16), np.float32)
    with np.errstate(all="ignore"):
        for j in range(lanes):
            p += q[..., j, :] * k[:, j, :]
        for width in (8, 4, 2, 1):
            p = p[..., :width] + p[..., width:2 * width]
        return sm_scale * p[..., 0]
