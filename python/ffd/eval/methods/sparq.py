# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SparQ: scores from the channels in which the query is large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array, array_namespace
from ..problem import ELEMENT_BYTES, Outcome, Problem, attend, masked, union_bytes
from .base import Method, check
from .simple import token_budget, top_tokens


def softmax(f: Array) -> Array:
    xp = array_namespace(f)
    p = xp.exp(f - xp.max(f, axis=-1, keepdims=True))
    return p / xp.sum(p, axis=-1, keepdims=True)


def mean_values(problem: Problem) -> Array:
    """[..., R, Dv]: the mean of the values that a row sees."""
    xp = array_namespace(problem.v)
    sums = xp.cumulative_sum(problem.v, axis=-2, dtype=xp.float64)[..., problem.sees - 1, :]
    return xp.astype(sums / problem.sees[:, None], xp.float32)


@dataclass(frozen=True)
class SparQ(Method):
    """`rank` channels (largest sum of |q| over the group) give approximate
    weights; the newest `local` share of the budget and the tokens with the
    largest sum of weights over the group are read; the rest of the weight goes to
    the mean of all values. A budget up to 1 is a share of the visible tokens."""

    rank: int = 16
    budget: float = 128.0
    local: float = 0.25
    name = "sparq"
    paper = "Ribar et al. 2023, SparQ, arXiv 2312.04985"

    def __post_init__(self) -> None:
        check(self.rank >= 1, "sparq:rank", self.rank, "1 or more")
        check(self.budget > 0, "sparq:budget", self.budget, "more than 0")
        check(0 <= self.local <= 1, "sparq:local", self.local, "0 to 1")

    def run(self, problem: Problem) -> Outcome:
        xp = array_namespace(problem.q)
        lead, R, G, _ = problem.shape
        D = problem.q.shape[-1]
        if self.rank > D:
            raise ValueError(f"sparq:rank={self.rank}: expected at most the {D} channels of K")
        size = xp.abs(problem.q)
        order = xp.argsort(-xp.sum(size, axis=-2), axis=-1, stable=True)  # [..., R, D]
        used = xp.argsort(order, axis=-1) < self.rank
        q = xp.where(used[..., None, :], problem.q, 0.0)
        # The temperature sqrt(D |q used|_1 / |q|_1) of the paper.
        total = xp.sum(size, axis=-1)
        share = xp.where(total > 0, xp.sum(xp.abs(q), axis=-1) / xp.where(total > 0, total, 1.0),
                         1.0)
        share = xp.where(share > 0, share, 1.0)
        keys = xp.matrix_transpose(problem.k)
        f = (q.reshape((*lead, R * G, D)) @ keys).reshape((*lead, R, G, -1))
        estimate = f * (float(problem.sm_scale) / xp.sqrt(share))[..., None]
        weights = softmax(masked(estimate, problem.visible[:, None]))
        count = token_budget(self.budget, problem.lengths)
        local = np.floor(self.local * count).astype(int)
        near = problem.at >= problem.on(problem.lengths - local)[:, None]
        rank = xp.sum(weights, axis=-2) + xp.astype(near, xp.float32) * (G + 1)
        rank = masked(rank, problem.visible)
        kept = top_tokens(rank, problem.on(count)) & problem.visible
        kept = kept[..., None, :]  # [..., R, 1, T]
        o, lse = attend(masked(problem.scores, kept), problem.v)
        alpha = xp.sum(xp.where(kept, weights, 0.0), axis=-1)
        alpha = xp.clip(alpha, float(np.finfo(np.float32).tiny), 1)
        mean = mean_values(problem)
        o = alpha[..., None] * o + (1 - alpha)[..., None] * mean[..., None, :]
        read = (problem.on(problem.lengths * ELEMENT_BYTES * float(self.rank))
                + union_bytes(kept, problem.token_bytes)
                + ELEMENT_BYTES * problem.v.shape[-1])
        return Outcome(o, lse - xp.log(alpha), kept, read, estimate, missed=1 - alpha)
