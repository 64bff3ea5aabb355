# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""KIVI: everything is read, at two bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array, array_namespace
from ..problem import ELEMENT_BYTES, Outcome, Problem, masked, round_element
from .base import Method, check


def quantise(x: Array, axis: int, bits: int, element: str) -> Array:
    """Asymmetric rounding of x along `axis` (one group) to 2^bits levels from
    its minimum to its maximum; step and minimum are kept in 16 bit."""
    xp = array_namespace(x)
    low = round_element(xp.min(x, axis=axis, keepdims=True), element)
    levels = float(2 ** bits - 1)
    step = round_element((xp.max(x, axis=axis, keepdims=True) - low) / levels, element)
    safe = xp.where(step > 0, step, 1.0)
    codes = xp.clip(xp.round((x - low) / safe), 0, levels)
    return xp.where(step > 0, codes * step, 0.0) + low


@dataclass(frozen=True)
class Kivi(Method):
    """K quantised per channel over `group` tokens, V per token over `group`
    channels. Of K, the newest `tokens mod residual` stay 16 bit; of V, the newest
    `residual`."""

    bits: int = 2
    group: int = 32
    residual: int = 128
    name = "kivi"
    paper = "Liu et al. 2024, KIVI, arXiv 2402.02750"

    def __post_init__(self) -> None:
        check(self.bits in range(1, 9), "kivi:bits", self.bits, "1 to 8")
        check(self.group >= 1, "kivi:group", self.group, "1 or more")
        check(self.residual >= 1 and self.residual % self.group == 0, "kivi:residual",
              self.residual, f"a multiple of group={self.group}")

    def keys(self, problem: Problem) -> Array:
        """All keys that fill groups, quantised; the others as they are."""
        def packed(k: Array) -> Array:
            groups = k.reshape((*k.shape[:-2], -1, self.group, k.shape[-1]))
            return quantise(groups, -2, self.bits, problem.element).reshape(k.shape)
        xp = array_namespace(problem.k)
        done = problem.stored(("kivi k", self.bits, self.group), problem.k, self.group, packed)
        return xp.concat((done, problem.k[..., done.shape[-2]:, :]), axis=-2)

    def values(self, problem: Problem) -> Array:
        Dv = problem.v.shape[-1]
        if Dv % self.group:
            raise ValueError(f"kivi:group={self.group}: expected a divisor of the "
                             f"{Dv} channels of V")

        def packed(v: Array) -> Array:
            groups = v.reshape((*v.shape[:-1], -1, self.group))
            return quantise(groups, -1, self.bits, problem.element).reshape(v.shape)
        return problem.stored(("kivi v", self.bits, self.group), problem.v, 1, packed)

    def run(self, problem: Problem) -> Outcome:
        xp = array_namespace(problem.k)
        lead, R, G, T = problem.shape
        D, Dv = problem.k.shape[-1], problem.v.shape[-1]
        lengths = problem.lengths
        packed_k = lengths // self.residual * self.residual  # [R]
        packed_v = np.maximum(0, lengths - self.residual)
        old_k, old_v = ((problem.at < problem.on(n)[:, None])[:, None]
                        for n in (packed_k, packed_v))
        f = xp.where(old_k, problem.products(self.keys(problem)), problem.scores)
        f = masked(f, problem.visible[:, None])
        top = xp.max(f, axis=-1, keepdims=True)
        p = xp.exp(f - top)
        total = xp.sum(p, axis=-1)
        old = xp.where(old_v, p, 0.0)
        flat = (*lead, R * G, T)
        o = (old.reshape(flat) @ self.values(problem)
             + (p - old).reshape(flat) @ problem.v).reshape((*lead, R, G, Dv))
        per_channel = self.bits / 8 + 2 * ELEMENT_BYTES / self.group  # codes, step, minimum
        read = ((packed_k * D + packed_v * Dv) * per_channel
                + ELEMENT_BYTES * ((lengths - packed_k) * D + (lengths - packed_v) * Dv))
        return Outcome(o / total[..., None], top[..., 0] + xp.log(total),
                       problem.visible[:, None], problem.on(read.astype(float)), f)
