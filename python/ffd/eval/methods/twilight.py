# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Twilight: top-p over the candidates of another selector."""

from __future__ import annotations

from dataclasses import dataclass

from ..arrays import Array, array_namespace
from ..problem import ELEMENT_BYTES, Outcome, Problem, attend, masked, union_bytes
from .base import Method, check
from .kivi import quantise
from .quest import Quest
from .simple import Exact, top_tokens


def top_p(f: Array, p: float) -> Array:
    """Mask of the fewest entries of each row of f [..., N] (-inf: none) whose
    share of the softmax reaches p; ties to the lower index."""
    xp = array_namespace(f)
    ranked = -xp.sort(-f, axis=-1)
    mass = xp.exp(xp.astype(ranked, xp.float64) - xp.astype(ranked[..., :1], xp.float64))
    share = xp.cumulative_sum(mass, axis=-1)
    taken = (share - mass < p * share[..., -1:]) & (mass > 0)
    return top_tokens(f, xp.sum(taken, axis=-1))


@dataclass(frozen=True)
class Twilight(Method):
    """Quest chooses a generous set (`budget`, up to 1 a share), scores of it are
    estimated with keys at `bits` bits (asymmetric, per token), and the fewest
    tokens with `p` of the estimated softmax are read. 0.25 is the share that a
    budget of 8192 is of 32K tokens."""

    p: float = 0.85
    budget: float = 0.25
    page: int = 16
    bits: int = 4
    dense_layers: int = 2
    name = "twilight"
    paper = "Lin et al. 2025, Twilight, arXiv 2502.02770"

    def __post_init__(self) -> None:
        check(0 < self.p <= 1, "twilight:p", self.p, "more than 0, up to 1")
        check(self.bits in range(1, 9), "twilight:bits", self.bits, "1 to 8")
        self._base()

    def _base(self) -> Quest:
        return Quest(self.budget, self.page, self.dense_layers)

    def run(self, problem: Problem) -> Outcome:
        if problem.layer < self.dense_layers:
            return Exact().run(problem)
        base = self._base()
        candidates, _ = base.candidates(problem)
        keys = problem.stored(("twilight", self.bits), problem.k, 1,
                              lambda k: quantise(k, -1, self.bits, problem.element))
        estimate = problem.products(keys)
        kept = top_p(masked(estimate, candidates), self.p)
        o, lse = attend(masked(problem.scores, kept), problem.v)
        per_candidate = self.bits / 8 * problem.k.shape[-1] + 2 * ELEMENT_BYTES
        read = (base.metadata_bytes(problem) + union_bytes(candidates, per_candidate)
                + union_bytes(kept, problem.token_bytes))
        return Outcome(o, lse, kept, read, estimate)
