# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads and writes safetensors files with 16-bit tensors of either kind.

numpy has no bf16, so tensors of 16-bit floats are returned as float32 values
together with their element type. The format is eight bytes of header length,
a JSON header, then the tensors' bytes.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elements import BF16, F16, Element

_PLAIN = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64,
          "U8": np.uint8, "I8": np.int8}
_HALVES = {e.safetensors: e for e in (F16, BF16)}


@dataclass
class Tensor:
    """Values and the dtype they have on disk. 16-bit floats are float32 values,
    or uint16 bits where a large tensor was encoded piece by piece."""

    values: np.ndarray
    dtype: str

    @property
    def element(self) -> Element | None:
        return _HALVES.get(self.dtype)


def half(values: np.ndarray, element: Element) -> Tensor:
    """A tensor that is stored as `element`; its values are rounded to it."""
    return Tensor(element.round(values), element.safetensors)


def plain(values: np.ndarray) -> Tensor:
    """A tensor stored as the numpy dtype it has."""
    for name, dtype in _PLAIN.items():
        if values.dtype == dtype:
            return Tensor(values, name)
    raise TypeError(f"no safetensors dtype for {values.dtype}")


def save(path: str | Path, tensors: dict[str, Tensor],
         metadata: dict[str, str] | None = None) -> None:
    """Writes one file; tensors keep the order of the dictionary."""
    header: dict = {"__metadata__": metadata} if metadata else {}
    chunks, offset = [], 0
    for name, tensor in tensors.items():
        if tensor.element and tensor.values.dtype != np.uint16:
            data = tensor.element.encode(tensor.values)
        else:
            data = tensor.values
        data = np.ascontiguousarray(data).tobytes()
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.values.shape),
                        "data_offsets": [offset, offset + len(data)]}
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(chunks)


class TensorFile:
    """A safetensors file opened for reading; tensors load when asked for."""

    def __init__(self, path: str | Path):
        self._bytes = np.memmap(path, np.uint8, "r")
        (length,) = struct.unpack("<Q", self._bytes[:8].tobytes())
        self._base = 8 + length
        self._header = json.loads(self._bytes[8:self._base].tobytes())
        self.metadata: dict[str, str] = self._header.pop("__metadata__", {})

    def __contains__(self, name: str) -> bool:
        return name in self._header

    def names(self) -> list[str]:
        return list(self._header)

    def __getitem__(self, name: str) -> Tensor:
        entry = self._header[name]
        start, stop = entry["data_offsets"]
        raw = self._bytes[self._base + start:self._base + stop].tobytes()
        element = _HALVES.get(entry["dtype"])
        values = np.frombuffer(raw, np.uint16 if element else _PLAIN[entry["dtype"]])
        if element:
            values = element.decode(values)
        return Tensor(values.reshape(entry["shape"]), entry["dtype"])

    def layers(self) -> list[str]:
        """Prefixes of the cases in the file: "" or "layers.<i>." in order."""
        if "q" in self:
            return [""]
        found = {n.rsplit(".", 1)[0] + "." for n in self._header
                 if n.startswith("layers.") and n.endswith(".q")}
        return sorted(found, key=lambda prefix: int(prefix.split(".")[1]))
