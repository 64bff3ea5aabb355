# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quest: pages ranked by an upper bound of their scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..problem import ELEMENT_BYTES, Outcome, Problem, attend, masked, union_bytes
from .base import Method, check
from .simple import Exact, token_budget, top_tokens


def page_bounds(problem: Problem, page: int) -> np.ndarray:
    """Per-channel minimum and maximum of every full page, [pages, 2, D]."""
    def bounds(k: np.ndarray) -> np.ndarray:
        pages = k.reshape(-1, page, k.shape[-1])
        return np.stack((pages.min(axis=1), pages.max(axis=1)), axis=1)
    return problem.stored(("quest", page), problem.k, page, bounds)


def page_scores(problem: Problem, page: int) -> np.ndarray:
    """The bound sum_c max(q_c low_c, q_c high_c) of full pages, [R, G, pages],
    as a score. For q_c > 0 the maximum is at `high`, otherwise at `low`."""
    bounds = page_bounds(problem, page)
    R, G, D = problem.q.shape
    q = problem.q.reshape(R * G, D) * problem.sm_scale
    bound = np.maximum(q, 0) @ bounds[:, 1].T + np.minimum(q, 0) @ bounds[:, 0].T
    return bound.reshape(R, G, -1)


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

    def candidates(self, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of the chosen pages [R, G, T] and the bounds by token."""
        T, page = len(problem.k), self.page
        bound = page_scores(problem, page)
        current = (problem.lengths - 1) // page  # the page of the newest token
        wanted = -(-token_budget(self.budget, problem.lengths) // page)
        older = np.arange(bound.shape[-1]) < current[:, None]
        chosen = top_tokens(masked(bound, older[:, None]), wanted - 1) & older[:, None]
        tokens = np.zeros((*chosen.shape[:2], T), bool)
        tokens[..., :bound.shape[-1] * page] = np.repeat(chosen, page, axis=-1)
        tokens |= (np.arange(T) // page == current[:, None])[:, None]
        by_token = np.full(tokens.shape, np.inf, np.float32)  # the current page: no bound
        by_token[..., :bound.shape[-1] * page] = np.repeat(bound, page, axis=-1)
        return tokens & problem.visible[:, None], by_token

    def metadata_bytes(self, problem: Problem) -> np.ndarray:
        """[R]: minimum and maximum of the pages before the current one."""
        pages = (problem.lengths - 1) // self.page
        return pages * 2.0 * ELEMENT_BYTES * problem.k.shape[1]

    def run(self, problem: Problem) -> Outcome:
        if problem.layer < self.dense_layers:
            return Exact().run(problem)
        kept, bound = self.candidates(problem)
        o, lse = attend(masked(problem.scores, kept), problem.v)
        read = self.metadata_bytes(problem) + union_bytes(kept, problem.token_bytes)
        return Outcome(o, lse, kept, read, bound)
