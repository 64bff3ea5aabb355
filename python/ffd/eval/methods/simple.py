# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Methods that need no estimate of scores: everything, a fixed pattern, and an
oracle that knows the scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array, array_namespace, is_numpy_array
from ..problem import Outcome, Problem, attend, masked, union_bytes
from .base import Method, check


@dataclass(frozen=True)
class Exact(Method):
    """Attention over every visible token."""

    name = "exact"
    paper = "Vaswani et al. 2017, arXiv 1706.03762"

    def run(self, problem: Problem) -> Outcome:
        o, lse = attend(problem.scores, problem.v)
        kept = problem.visible[:, None]
        return Outcome(o, lse, kept, union_bytes(kept, problem.token_bytes))


@dataclass(frozen=True)
class Streaming(Method):
    """The first `sinks` and the newest `window` tokens (below 1: that share of the
    visible ones). Positions stay those of the text: keys come with the rotary
    embedding applied, and contexts here are within what the model was trained for."""

    sinks: int = 4
    window: float = 1020.0
    name = "streaming"
    paper = "Xiao et al. 2023, StreamingLLM, arXiv 2309.17453"

    def __post_init__(self) -> None:
        check(self.sinks >= 0, "streaming:sinks", self.sinks, "0 or more")
        check(self.window > 0, "streaming:window", self.window, "more than 0")

    def run(self, problem: Problem) -> Outcome:
        window = self.window if self.window >= 1 else np.ceil(self.window * problem.lengths)
        near = problem.at >= problem.on((problem.lengths - window).astype(int))[:, None]
        kept = (((problem.at < self.sinks) | near) & problem.visible)[:, None]
        o, lse = attend(masked(problem.scores, kept), problem.v)
        return Outcome(o, lse, kept, union_bytes(kept, problem.token_bytes))


@dataclass(frozen=True)
class Oracle(Method):
    """The `budget` tokens of highest exact score per query head, found for free:
    what any selector of single tokens is measured against. A budget up to 1 is a
    share of the visible tokens."""

    budget: float = 256.0
    name = "oracle"
    paper = "upper bound, not a method"

    def __post_init__(self) -> None:
        check(self.budget > 0, "oracle:budget", self.budget, "more than 0")

    def run(self, problem: Problem) -> Outcome:
        f = problem.scores
        count = problem.on(token_budget(self.budget, problem.lengths))
        kept = top_tokens(f, count[:, None]) & problem.visible[:, None]
        o, lse = attend(masked(f, kept), problem.v)
        return Outcome(o, lse, kept, union_bytes(kept, problem.token_bytes))


def token_budget(budget: float, lengths: np.ndarray) -> np.ndarray:
    """[R]: tokens per row, at least 1. Up to 1, `budget` is a share."""
    count = np.ceil(budget * lengths) if budget <= 1 else np.full(len(lengths), budget)
    return np.maximum(1, np.minimum(count, lengths)).astype(int)


def top_tokens(f: Array, count: Array) -> Array:
    """[..., N] -> mask of the count [...] highest, ties to the lower index. Sorting
    values and comparing is many times faster than argsort."""
    xp = array_namespace(f)
    N = f.shape[-1]
    if N == 0:
        return xp.zeros_like(f, dtype=xp.bool)
    count = xp.broadcast_to(count, f.shape[:-1])
    at = xp.clip(N - count, 0, N - 1)[..., None]
    least = xp.take_along_axis(xp.sort(f, axis=-1), at, axis=-1)
    above, equal = f > least, f == least
    room = count - xp.sum(above, axis=-1)
    # Of equal ones the first; a GPU would have to wait to learn whether there are any.
    tied = xp.sum(equal, axis=-1) > room if is_numpy_array(f) else ...
    if tied is ... or tied.any():
        some = equal[tied]
        order = xp.cumulative_sum(some, axis=-1, dtype=xp.int32)
        equal[tied] = some & (order <= room[tied][..., None])
    return (above | equal) & (count > 0)[..., None]
