# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A function of many items in processes that share this one's memory."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

_work: Callable[[Any], Any] | None = None  # what forked workers run


def _call(item: Any) -> Any:
    return _work(item)


def parallel(function: Callable[[Any], Any], items: list, jobs: int,
             prepare: Callable[[], None] = lambda: None) -> Iterator[Any]:
    """function(item) of every item, in order. Workers are forked: a model and its
    cache are there without being copied, and `function` may be a closure. Each
    worker calls `prepare` first."""
    global _work
    if jobs <= 1 or len(items) <= 1:
        yield from map(function, items)
        return
    _work = function
    with multiprocessing.get_context("fork").Pool(min(jobs, len(items)), prepare) as pool:
        yield from pool.imap(_call, items)
