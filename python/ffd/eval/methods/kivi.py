# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""KIVI: everything is read, at two bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..problem import ELEMENT_BYTES, Outcome, Problem, round_element
from .base import Method, check


def quantise(x: np.ndarray, axis: int, bits: int, element: str) -> np.ndarray:
    """Asymmetric rounding of x along `axis` (one group) to 2^bits levels from
    its minimum to its maximum; step and minimum are kept in 16 bit."""
    low = round_element(x.min(axis=axis, keepdims=True), element)
    levels = np.float32(2 ** bits - 1)
    step = round_element((x.max(axis=axis, keepdims=True) - low) / levels, element)
    safe = np.where(step > 0, step, np.float32(1))
    codes = np.clip(np.rint((x - low) / safe), 0, levels)
    return np.where(step > 0, codes * step, 0) + low


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

    def keys(self, problem: Problem) -> np.ndarray:
        """All keys that fill groups, quantised; the others as they are."""
        def packed(k: np.ndarray) -> np.ndarray:
            groups = k.reshape(-1, self.group, k.shape[1])
            return quantise(groups, 1, self.bits, problem.element).reshape(k.shape)
        done = problem.stored(("kivi k", self.bits, self.group), problem.k, self.group, packed)
        return np.concatenate((done, problem.k[len(done):]))

    def values(self, problem: Problem) -> np.ndarray:
        Dv = problem.v.shape[1]
        if Dv % self.group:
            raise ValueError(f"kivi:group={self.group}: expected a divisor of the "
                             f"{Dv} channels of V")

        def packed(v: np.ndarray) -> np.ndarray:
            groups = v.reshape(len(v), -1, self.group)
            return quantise(groups, 2, self.bits, problem.element).reshape(v.shape)
        return problem.stored(("kivi v", self.bits, self.group), problem.v, 1, packed)

    def run(self, problem: Problem) -> Outcome:
        T, (R, G, D) = len(problem.k), problem.q.shape
        at, lengths = np.arange(T), problem.lengths
        packed_k = lengths // self.residual * self.residual  # [R]
        packed_v = np.maximum(0, lengths - self.residual)
        f = np.where((at < packed_k[:, None])[:, None], problem.products(self.keys(problem)),
                     problem.scores)
        f = np.where(problem.visible[:, None], f, np.float32(-np.inf))
        top = f.max(axis=-1, keepdims=True)
        p = np.exp(f - top)
        total = p.sum(axis=-1)
        old = np.where((at < packed_v[:, None])[:, None], p, np.float32(0))
        o = (old.reshape(R * G, T) @ self.values(problem)
             + (p - old).reshape(R * G, T) @ problem.v).reshape(R, G, -1)
        Dv = problem.v.shape[1]
        per_channel = self.bits / 8 + 2 * ELEMENT_BYTES / self.group  # codes, step, minimum
        read = ((packed_k * D + packed_v * Dv) * per_channel
                + ELEMENT_BYTES * ((lengths - packed_k) * D + (lengths - packed_v) * Dv))
        return Outcome(o / total[..., None], top[..., 0] + np.log(total),
                       problem.visible[:, None], read.astype(float), f)
