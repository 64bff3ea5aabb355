# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quest: pages ranked by an upper bound of their scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..arrays import Array, array_namespace, device
from ..problem import ELEMENT_BYTES, Outcome, Problem, attend, masked, union_bytes
from .base import Method, check
from .simple import Exact, token_budget, top_tokens


def page_bounds(problem: Problem, page: int) -> tuple[Array, Array]:
    """Per-channel minimum and maximum of every full page, [..., pages, D]."""
    xp = array_namespace(problem.k)

    def bounds(function: Callable[..., Array]) -> Callable[[Array], Array]:
        return lambda k: function(k.reshape((*k.shape[:-2], -1, page, k.shape[-1])), axis=-2)
    return tuple(problem.stored(("quest", name, page), problem.k, page, bounds(function))
                 for name, function in (("low", xp.min), ("high", xp.max)))


def page_scores(problem: Problem, page: int) -> Array:
    """The bound sum_c max(q_c low_c, q_c high_c) of full pages, [..., R, G, pages],
    as a score. For q_c > 0 the maximum is at `high`, otherwise at `low`."""
    xp = array_namespace(problem.k)
    low, high = page_bounds(problem, page)
    lead, R, G, _ = problem.shape
    q = problem.q.reshape((*lead, R * G, -1)) * float(problem.sm_scale)
    low, high = xp.matrix_transpose(low), xp.matrix_transpose(high)
    bound = xp.clip(q, 0, None) @ high + xp.clip(q, None, 0) @ low
    return bound.reshape((*lead, R, G, -1))


@dataclass(frozen=True)
class Quest(Method):
    """Every query head reads the pages with the highest bounds, up to `budget`
    tokens (up to 1: that share of the visible ones). The page being written is
    always read and counts. The first `dense_layers` layers are exact, as in the
    paper. Heads choose for themselves; a page that several heads of a group
    choose counts once."""

    budget: float = 0.5
    page: int = 16
    dense_layers: int = 2
    name = "quest"
    paper = "Tang et al. 2024, Quest, arXiv 2406.10774"

    def __post_init__(self) -> None:
        check(self.budget > 0, "quest:budget", self.budget, "more than 0")
        check(self.page >= 1, "quest:page", self.page, "1 or more")

    def candidates(self, problem: Problem) -> tuple[Array, Array]:
        """Tokens of the chosen pages [..., R, G, T] and the bounds by token."""
        xp = array_namespace(problem.k)
        T, page = problem.k.shape[-2], self.page
        bound = page_scores(problem, page)
        full = bound.shape[-1] * page
        current = (problem.sees - 1) // page  # the page of the newest token
        wanted = problem.on(-(-token_budget(self.budget, problem.lengths) // page))
        older = (problem.on(np.arange(bound.shape[-1])) < current[:, None])[:, None]
        chosen = top_tokens(masked(bound, older), (wanted - 1)[:, None]) & older
        tokens = xp.repeat(chosen, page, axis=-1)
        by_token = xp.repeat(bound, page, axis=-1)
        if full < T:  # a last page that is not full; the current one has no bound
            rest = (*bound.shape[:-1], T - full)
            tokens, by_token = (
                xp.concat((x, xp.full(rest, value, dtype=x.dtype, device=device(x))), axis=-1)
                for x, value in ((tokens, False), (by_token, xp.inf)))
        tokens = tokens | (problem.at // page == current[:, None])[:, None]
        return tokens & problem.visible[:, None], by_token

    def metadata_bytes(self, problem: Problem) -> Array:
        """[R]: minimum and maximum of the pages before the current one."""
        pages = (problem.lengths - 1) // self.page
        return problem.on(pages * 2.0 * ELEMENT_BYTES * problem.k.shape[-1])

    def run(self, problem: Problem) -> Outcome:
        if problem.layer < self.dense_layers:
            return Exact().run(problem)
        kept, bound = self.candidates(problem)
        o, lse = attend(masked(problem.scores, kept), problem.v)
        read = self.metadata_bytes(problem) + union_bytes(kept, problem.token_bytes)
        return Outcome(o, lse, kept, read, bound)
