# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a method is asked, and what it answers.

A Problem is one kv head with the queries of several positions; an Outcome is
what a method makes of it. Arrays are numpy's or torch's, float32, and hold values
of the 16-bit element type. R counts queries (rows), G query heads of a kv head, T
tokens; `...` is nothing for one kv head, or counts several that see the same
prefixes: a GPU is busy with all heads of a layer, not with one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .arrays import Array, array_namespace, constant, is_numpy_array, round_element

__all__ = ["ELEMENT_BYTES", "Outcome", "Problem", "attend", "masked", "round_element", "span",
           "union_bytes"]

ELEMENT_BYTES = 2  # of q, K, V and scales: f16 or bf16


@dataclass
class Problem:
    """R queries of one kv head (or of several), each of which sees a prefix of the
    tokens."""

    q: Array  # [..., R, G, D]
    k: Array  # [..., T, D], after the rotary embedding
    v: Array  # [..., T, Dv]
    lengths: np.ndarray  # [R]: row r sees the tokens below lengths[r]
    layer: int = 0
    head: int = 0  # kv head, the first of several
    element: str = "f16"  # or "bf16"
    want_estimates: bool = False  # Outcome.estimate is filled in
    # What methods precompute of K and V, kept between calls with the same
    # first `fixed` tokens. A fresh dictionary and 0 if there are none.
    store: dict = field(default_factory=dict)
    fixed: int = 0

    def __post_init__(self) -> None:
        self.lengths = np.asarray(self.lengths, int)
        q, k, v = (tuple(x.shape) for x in (self.q, self.k, self.v))
        if len(q) < 3 or q[-1] != k[-1] or k[:-1] != v[:-1] or q[:-3] != k[:-2]:
            raise ValueError(f"q {q}, k {k}, v {v}: expected [..., R, G, D], [..., T, D], "
                             "[..., T, Dv]")
        R, T = q[-3], k[-2]
        if self.lengths.shape != (R,) or R == 0:
            raise ValueError(f"lengths {self.lengths.shape}: expected one for each of the "
                             f"{R} queries, and at least one")
        if self.lengths.min() < 1 or self.lengths.max() > T:
            raise ValueError(f"lengths from {self.lengths.min()} to {self.lengths.max()}: "
                             f"expected 1 to {T}")
        stop = int(self.lengths.max())  # what nobody sees is not looked at
        self.k, self.v = self.k[..., :stop, :], self.v[..., :stop, :]

    @property
    def shape(self) -> tuple[tuple[int, ...], int, int, int]:
        """What `...` stands for, R, G and T."""
        *lead, R, G, _ = self.q.shape
        return tuple(lead), R, G, self.k.shape[-2]

    @property
    def sm_scale(self) -> np.float32:
        return np.float32(1 / math.sqrt(self.q.shape[-1]))

    @property
    def token_bytes(self) -> int:
        """Of K and V of one token."""
        return ELEMENT_BYTES * (self.k.shape[-1] + self.v.shape[-1])

    def on(self, x: np.ndarray) -> Array:
        """x, a constant, where the keys are."""
        return x if is_numpy_array(self.k) else constant(x, self.k)

    @cached_property
    def sees(self) -> Array:
        """`lengths` where the keys are."""
        return self.on(self.lengths)

    @cached_property
    def at(self) -> Array:
        """[T]: positions."""
        return self.on(np.arange(self.k.shape[-2]))

    def stored(self, key: tuple, x: Array, unit: int,
               function: Callable[[Array], Array]) -> Array:
        """function(x[..., :m, :]) for the largest multiple m of `unit`, where function
        treats every `unit` tokens on their own and returns as many rows for each: the
        part within `fixed` is computed once."""
        full = x.shape[-2] // unit * unit
        known = min(full, self.fixed // unit * unit)
        if not known:
            return function(x[..., :full, :])
        have = self.store.get(key)
        if have is None or have[0] < known:
            have = self.store[key] = (known, function(x[..., :known, :]))
        if have[0] > full:
            return function(x[..., :full, :])
        if full == have[0]:
            return have[1]
        xp = array_namespace(x)
        return xp.concat((have[1], function(x[..., have[0]:full, :])), axis=-2)

    @cached_property
    def visible(self) -> Array:
        """[R, T]"""
        return self.at < self.sees[:, None]

    def products(self, keys: Array) -> Array:
        """sm_scale * q . keys, [..., R, G, len(keys)]."""
        lead, R, G, _ = self.shape
        q = self.q.reshape((*lead, R * G, -1)) * float(self.sm_scale)
        keys = array_namespace(keys).matrix_transpose(keys)
        return (q @ keys).reshape((*lead, R, G, -1))

    @cached_property
    def scores(self) -> Array:
        """Exact scores [..., R, G, T]; -inf where a row does not see."""
        return masked(self.products(self.k), self.visible[:, None])


@dataclass
class Outcome:
    """One method's attention. `...` may be absent where all heads are alike."""

    o: Array  # [..., R, G, Dv]
    lse: Array  # [..., R, G], natural log
    kept: Array  # [..., R, G or 1, T]: tokens whose value was read
    bytes: Array  # [..., R], read for each kv head
    estimate: Array | None = None  # [..., R, G, T], what selection looked at, or None
    pseudo_max: Array | None = None  # [..., R, G], as a score, or None
    # [..., R, G], the method's own estimate of the mass it skipped
    missed: Array | None = None


def attend(f: Array, v: Array) -> tuple[Array, Array]:
    """Softmax of f [..., R, G, T] (-inf: not attended) times v [..., T, Dv]: o and
    lse. Every row attends to something."""
    xp = array_namespace(f)
    *lead, R, G, T = f.shape
    top = xp.max(f, axis=-1, keepdims=True)
    p = xp.exp(f - top)
    total = xp.sum(p, axis=-1)
    o = (p.reshape((*lead, R * G, T)) @ v).reshape((*lead, R, G, -1)) / total[..., None]
    return o, top[..., 0] + xp.log(total)


def masked(f: Array, mask: Array) -> Array:
    xp = array_namespace(f)
    return xp.where(mask, f, -xp.inf)


def union_bytes(kept: Array, token_bytes: float) -> Array:
    """[..., R]: a token that several heads of a group keep is read once."""
    xp = array_namespace(kept)
    return xp.sum(xp.any(kept, axis=-2), axis=-1) * float(token_bytes)


def span(rows: np.ndarray) -> slice | np.ndarray:
    """Ascending indices as a slice where they are one: indexing then copies
    nothing."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
