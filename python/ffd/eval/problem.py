# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a method is asked, and what it answers.

A Problem is one kv head with the queries of several positions; an Outcome is
what a method makes of it. Arrays are float32 and hold values of the 16-bit
element type. R counts queries (rows), G query heads of the kv head, T tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

ELEMENT_BYTES = 2  # of q, K, V and scales: f16 or bf16


@dataclass
class Problem:
    """R queries of one kv head, each of which sees a prefix of the tokens."""

    q: np.ndarray  # [R, G, D]
    k: np.ndarray  # [T, D], after the rotary embedding
    v: np.ndarray  # [T, Dv]
    lengths: np.ndarray  # [R]: row r sees the tokens below lengths[r]
    layer: int = 0
    head: int = 0  # kv head
    element: str = "f16"  # or "bf16"
    want_estimates: bool = False  # Outcome.estimate is filled in
    # What methods precompute of K and V, kept between calls with the same
    # first `fixed` tokens. A fresh dictionary and 0 if there are none.
    store: dict = field(default_factory=dict)
    fixed: int = 0

    def __post_init__(self) -> None:
        self.lengths = np.asarray(self.lengths, int)
        T = len(self.k)
        if self.q.ndim != 3 or self.q.shape[2] != self.k.shape[1] or len(self.v) != T:
            raise ValueError(f"q {self.q.shape}, k {self.k.shape}, v {self.v.shape}: expected "
                             "[R, G, D], [T, D], [T, Dv]")
        if self.lengths.shape != (len(self.q),) or len(self.q) == 0:
            raise ValueError(f"lengths {self.lengths.shape}: expected one for each of the "
                             f"{len(self.q)} queries, and at least one")
        if self.lengths.min() < 1 or self.lengths.max() > T:
            raise ValueError(f"lengths from {self.lengths.min()} to {self.lengths.max()}: "
                             f"expected 1 to {T}")
        stop = int(self.lengths.max())  # what nobody sees is not looked at
        self.k, self.v = self.k[:stop], self.v[:stop]

    @property
    def sm_scale(self) -> np.float32:
        return np.float32(1 / math.sqrt(self.q.shape[-1]))

    @property
    def token_bytes(self) -> int:
        """Of K and V of one token."""
        return ELEMENT_BYTES * (self.k.shape[1] + self.v.shape[1])

    def stored(self, key: tuple, x: np.ndarray, unit: int,
               function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """function(x[:m]) for the largest multiple m of `unit`, where function
        treats every `unit` tokens on their own: the part within `fixed` is
        computed once."""
        full = len(x) // unit * unit
        known = min(full, self.fixed // unit * unit)
        if not known:
            return function(x[:full])
        have = self.store.get(key)
        if have is None or have[0] < known:
            have = self.store[key] = (known, function(x[:known]))
        if have[0] > full:
            return function(x[:full])
        return np.concatenate((have[1], function(x[have[0]:full]))) if full > have[0] else have[1]

    @cached_property
    def visible(self) -> np.ndarray:
        """[R, T]"""
        return np.arange(len(self.k)) < self.lengths[:, None]

    def products(self, keys: np.ndarray) -> np.ndarray:
        """sm_scale * q . keys, [R, G, len(keys)]."""
        R, G, D = self.q.shape
        return ((self.q.reshape(R * G, D) * self.sm_scale) @ keys.T).reshape(R, G, -1)

    @cached_property
    def scores(self) -> np.ndarray:
        """Exact scores [R, G, T]; -inf where a row does not see."""
        f = self.products(self.k)
        return np.where(self.visible[:, None], f, np.float32(-np.inf))


@dataclass
class Outcome:
    """One method's attention."""

    o: np.ndarray  # [R, G, Dv]
    lse: np.ndarray  # [R, G], natural log
    kept: np.ndarray  # [R, G or 1, T]: tokens whose value was read
    bytes: np.ndarray  # [R], read for this kv head
    estimate: np.ndarray | None = None  # [R, G, T], what selection looked at, or None
    pseudo_max: np.ndarray | None = None  # [R, G], as a score, or None
    missed: np.ndarray | None = None  # [R, G], the method's own estimate of the mass it skipped


def attend(f: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Softmax of f [R, G, T] (-inf: not attended) times v [T, Dv]: o and lse.
    Every row attends to something."""
    R, G, T = f.shape
    top = f.max(axis=-1, keepdims=True)
    p = np.exp(f - top)
    total = p.sum(axis=-1)
    o = (p.reshape(R * G, T) @ v).reshape(R, G, -1) / total[..., None]
    return o, top[..., 0] + np.log(total)


def masked(f: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.where(mask, f, np.float32(-np.inf))


def union_bytes(kept: np.ndarray, token_bytes: float) -> np.ndarray:
    """[R]: a token that several heads of a group keep is read once."""
    return kept.any(axis=1).sum(axis=-1) * float(token_bytes)


def round_element(x: np.ndarray, element: str) -> np.ndarray:
    """float32 -> nearest value of the element type, ties to even."""
    x = np.asarray(x, np.float32)
    if element == "f16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float32)
    if element != "bf16":
        raise ValueError(f"element type '{element}': expected f16 or bf16")
    wide = x.view(np.uint32)
    bits = (wide + 0x7FFF + ((wide >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, bits.astype(np.uint32).view(np.float32))
