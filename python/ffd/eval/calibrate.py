# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chooses delta per layer and kv head: the smallest of a grid at which the mean
missed softmax mass of some queries stays below a target."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
from tqdm import tqdm

from .methods import FFD, Exact
from .trace import Trace

GRID = np.arange(0.5, 20.5, 0.5)


def calibrate(trace: Trace, method: FFD, target: float, queries: int, path: Path,
              rows: slice = slice(None), quiet: bool = False) -> dict[int, list[float]]:
    """Writes the table that ffd:deltas=PATH reads, and returns it. Of the trace's
    queries `rows`, `queries` spread ones are looked at."""
    if not 0 < target < 1:
        raise ValueError(f"--target={target}: expected a share between 0 and 1")
    deltas: dict[int, list[float]] = {}
    for index in tqdm(trace.layers, desc="layers", disable=quiet):
        layer, chosen = trace.layer(index), []
        all_rows = np.arange(len(layer.lengths))[rows]
        some = all_rows[np.unique(np.linspace(0, len(all_rows) - 1, queries).astype(int))]
        for head in range(layer.k.shape[1]):
            problem = layer.problem(head, some)
            problem.want_estimates = False
            problem.fixed = int(problem.lengths.min())
            p = np.exp(problem.scores - Exact().run(problem).lse[..., None])

            def missed(delta: float) -> float:
                kept = dataclasses.replace(method, delta=float(delta), deltas="").run(problem).kept
                return float((1 - np.where(kept, p, 0).sum(axis=-1)).mean())
            low, high = 0, len(GRID) - 1  # missed mass falls with delta
            while low < high:
                middle = (low + high) // 2
                low, high = (low, middle) if missed(GRID[middle]) <= target else (middle + 1, high)
            chosen.append(float(GRID[low]))
        deltas[index] = chosen
    path.write_text(json.dumps({
        "method": method.text, "target": target, "trace": trace.path.name, "queries": queries,
        "deltas": {str(i): row for i, row in deltas.items()}}, indent=1) + "\n", encoding="utf-8")
    return deltas
