# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs methods over traces. Results are lines of JSON, one per trace, layer and
method; a run that was stopped goes on where it was.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
from tqdm import tqdm

from .files import regular_file
from .measures import Truth
from .methods import FFD, Exact, Method
from .parallel import parallel
from .trace import Layer, Trace

FIGURE_ROWS = 16  # queries whose kept blocks are stored for the figure


class Journal:
    """An append-only file of JSON lines; a torn last line is dropped."""

    def __init__(self, path: Path):
        self.path, self.records = path, []
        if path.exists():
            good = 0
            for line in regular_file(path).read_bytes().splitlines(keepends=True):
                try:
                    self.records.append(json.loads(line))
                except ValueError:
                    break
                good += len(line)
            if good < path.stat().st_size:
                with open(path, "r+b") as file:
                    file.truncate(good)

    def add(self, record: dict) -> None:
        self.records.append(record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record, separators=(",", ":")) + "\n")


def evaluate(trace: Trace, methods: list[Method], journal: Journal, queries: int = 0,
             layers: list[int] | None = None, jobs: int = 1, quiet: bool = False) -> None:
    """Measures every method on every layer (0 queries: all of the trace)."""
    name = trace.path.name
    have = {(r["layer"], r["method"], r["queries"]) for r in journal.records
            if r["trace"] == name}
    layers = trace.layers if layers is None else layers
    absent = [i for i in layers if i not in trace.layers]
    if absent:
        raise ValueError(f"--layers: {trace.path} has no layer {absent[0]}")
    drawn = next((m.text for m in methods if isinstance(m, FFD)), None)
    todo = {i: [m for m in methods if (i, m.text, queries) not in have] for i in layers}
    todo = {i: missing for i, missing in todo.items() if missing}

    def run(index: int) -> list[dict]:
        return _layer(trace.layer(index), todo[index], queries, drawn)

    with tqdm(total=sum(map(len, todo.values())), desc=name, unit="method", disable=quiet) as bar:
        for records in parallel(run, list(todo), jobs):
            for record in records:
                journal.add({"trace": name, "queries": queries, **record})
            bar.update(len(records))


def _layer(layer: Layer, methods: list[Method], queries: int, drawn: str | None) -> list[dict]:
    count = len(layer.lengths)
    rows = (np.arange(count) if queries == 0 or queries >= count
            else np.linspace(0, count - 1, queries).astype(int))
    found: dict[str, list[dict]] = {m.text: [] for m in methods}
    maps: list[dict] = []
    for head in range(layer.k.shape[1]):
        problem = layer.problem(head, rows)
        problem.fixed = int(problem.lengths.min())
        truth = Truth(problem, Exact().run(problem))
        for method in methods:
            out = method.run(problem)
            measured = truth.measure(out)
            if method.text == "exact":
                measured.update(truth.shape())
            found[method.text].append(measured)
            if method.text == drawn:
                maps.append(_map(out.kept[:FIGURE_ROWS, 0], method.select_block))
    return [{"layer": layer.index, "method": text, "tokens": int(layer.lengths.max()),
             "group": layer.q.shape[2],
             "heads": {key: sum((h[key] for h in heads), []) for key in heads[0]},
             **({"maps": maps} if text == drawn else {})} for text, heads in found.items()]


def _map(kept: np.ndarray, block: int) -> dict:
    """Kept blocks [rows, blocks] as base64 of packed bits."""
    blocks = kept[:, :kept.shape[1] // block * block].reshape(len(kept), -1, block).any(axis=2)
    return {"rows": len(blocks), "blocks": blocks.shape[1], "block": block,
            "bits": base64.b64encode(np.packbits(blocks)).decode()}


def unpack_map(entry: dict) -> np.ndarray:
    bits = np.unpackbits(np.frombuffer(base64.b64decode(entry["bits"]), np.uint8))
    return bits[:entry["rows"] * entry["blocks"]].reshape(entry["rows"], entry["blocks"]) != 0
