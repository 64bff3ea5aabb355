# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Traces: what the layers of a model attend with, in a safetensors file.

Per layer `layers.<i>.q [N, Hq, D]`, `.k` and `.v [1, T, Hkv, D]` and `.lengths
[N]` in F16, BF16 or F32, as scripts/export-trace writes them; or one layer
without the prefix. Keys and queries are after the rotary embedding.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .files import regular_file
from .problem import Problem, round_element

_WIDTHS = {"F16": 2, "BF16": 2, "F32": 4, "I32": 4, "I64": 8}


class TraceError(ValueError):
    """The file is no trace; says what is wrong with it."""


@dataclass
class Layer:
    index: int
    q: np.ndarray  # [N, Hkv, G, D]
    k: np.ndarray  # [T, Hkv, D]
    v: np.ndarray  # [T, Hkv, Dv]
    lengths: np.ndarray  # [N]
    element: str

    def problem(self, head: int, rows: np.ndarray) -> Problem:
        return Problem(self.q[rows, head], self.k[:, head], self.v[:, head], self.lengths[rows],
                       self.index, head, self.element, want_estimates=True)


class Trace:
    """An open trace; a layer is read when asked for."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        try:
            self._data = np.memmap(regular_file(path), np.uint8, "r")
            (length,) = struct.unpack("<Q", self._data[:8].tobytes())
            self._base = 8 + length
            self._header = json.loads(self._data[8:self._base].tobytes())
            if not isinstance(self._header, dict):
                raise ValueError("the header is no JSON object")
        except (OSError, ValueError, struct.error) as error:
            raise TraceError(f"{path}: not a safetensors file: {error}") from error
        self.metadata: dict[str, str] = self._header.pop("__metadata__", {})
        found = {name[7:-2] for name in self._header
                 if name.startswith("layers.") and name.endswith(".q")}
        self._prefixes = {int(i): f"layers.{i}." for i in found if i.isdigit()}
        if "q" in self._header:
            self._prefixes = {0: ""}
        if not self._prefixes:
            raise TraceError(f"{path}: has neither 'q' nor 'layers.<i>.q'")
        self.layers = sorted(self._prefixes)

    def _read(self, name: str) -> tuple[np.ndarray, str]:
        entry = self._header.get(name)
        if entry is None:
            raise TraceError(f"{self.path}: no tensor '{name}'")
        try:
            kind, (start, stop) = entry["dtype"], map(int, entry["data_offsets"])
            shape = [int(n) for n in entry["shape"]]
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(f"{self.path}: '{name}' has no valid dtype, shape and data_offsets "
                             "in the header") from error
        if kind not in _WIDTHS:
            raise TraceError(f"{self.path}: '{name}' is {kind}, expected {', '.join(_WIDTHS)}")
        count = math.prod(shape)
        if start < 0 or min(shape, default=1) < 0 or stop - start != count * _WIDTHS[kind] or self._base + stop > len(self._data):
            raise TraceError(f"{self.path}: '{name}' is cut short")
        raw = self._data[self._base + start:self._base + stop].tobytes()
        if kind == "BF16":
            x = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            x = np.frombuffer(raw, {"F16": np.float16, "F32": np.float32, "I32": np.int32,
                                    "I64": np.int64}[kind])
        return x.reshape(shape), kind

    def layer(self, index: int) -> Layer:
        prefix = self._prefixes[index]
        (q, kind), (k, _), (v, _) = (self._read(prefix + n) for n in "qkv")
        if q.ndim != 3 or k.ndim != 4 or v.ndim != 4 or k.shape[0] != 1 or \
                k.shape[:3] != v.shape[:3] or q.shape[2] != k.shape[3] or \
                k.shape[2] == 0 or q.shape[1] % k.shape[2]:
            raise TraceError(f"{self.path}: '{prefix}' has q {q.shape}, k {k.shape}, v {v.shape}; "
                             "expected [N, Hq, D], [1, T, Hkv, D], [1, T, Hkv, Dv]")
        lengths = np.full(len(q), k.shape[1])
        if prefix + "lengths" in self._header:
            lengths = self._read(prefix + "lengths")[0].astype(int)
        if lengths.shape != (len(q),):
            raise TraceError(f"{self.path}: '{prefix}lengths' has shape {lengths.shape}, expected "
                             f"({len(q)},), one for each query")
        element = "bf16" if kind == "BF16" else "f16"
        q, k, v = (round_element(x.astype(np.float32), element) for x in (q, k[0], v[0]))
        return Layer(index, q.reshape(len(q), k.shape[1], -1, q.shape[2]), k, v, lengths, element)
