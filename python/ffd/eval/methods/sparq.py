# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SparQ: scores from the channels in which the query is large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..problem import ELEMENT_BYTES, Outcome, Problem, attend, masked, union_bytes
from .base import Method, check
from .simple import token_budget, top_tokens


def softmax(f: np.ndarray) -> np.ndarray:
    p = np.exp(f - f.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


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
        R, G, D = problem.q.shape
        if self.rank > D:
            raise ValueError(f"sparq:rank={self.rank}: expected at most the {D} channels of K")
        size = np.abs(problem.q)
        order = np.argsort(-size.sum(axis=1), axis=-1, kind="stable")  # [R, D]
        used = np.zeros((R, D), bool)
        np.put_along_axis(used, order[:, :self.rank], True, axis=-1)
        q = np.where(used[:, None], problem.q, np.float32(0))
        # The temperature sqrt(D |q used|_1 / |q|_1) of the paper.
        total = size.sum(axis=-1)
        share = np.where(total > 0, np.abs(q).sum(axis=-1) / np.where(total > 0, total, 1), 1)
        share = np.where(share > 0, share, 1).astype(np.float32)
        f = (q.reshape(R * G, D) @ problem.k.T).reshape(R, G, -1)
        estimate = f * (problem.sm_scale / np.sqrt(share))[..., None]
        weights = softmax(masked(estimate, problem.visible[:, None]))
        count = token_budget(self.budget, problem.lengths)
        local = np.floor(self.local * count).astype(int)
        near = np.arange(len(problem.k)) >= (problem.lengths - local)[:, None]
        rank = weights.sum(axis=1) + np.where(near, np.float32(G + 1), np.float32(0))
        rank = masked(rank, problem.visible)
        kept = top_tokens(rank[:, None], count) & problem.visible[:, None]  # [R, 1, T]
        o, lse = attend(masked(problem.scores, kept), problem.v)
        alpha = np.where(kept, weights, np.float32(0)).sum(axis=-1)
        alpha = np.clip(alpha, np.finfo(np.float32).tiny, 1)
        mean = np.cumsum(problem.v, axis=0, dtype=np.float64)[problem.lengths - 1]
        mean = (mean / problem.lengths[:, None]).astype(np.float32)
        o = alpha[..., None] * o + (1 - alpha)[..., None] * mean[:, None]
        read = (problem.lengths * ELEMENT_BYTES * float(self.rank)
                + union_bytes(kept, problem.token_bytes)
                + ELEMENT_BYTES * problem.v.shape[1])
        return Outcome(o, lse - np.log(alpha), kept, read, estimate, missed=1 - alpha)
