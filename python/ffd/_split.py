# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The split of K by itself, and the merge of partial results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from . import _arguments as check
from . import _ffd
from ._runtime import Runtime, native


@dataclass(frozen=True)
class Split:
    """Committed blocks of K as thumbnails, residuals and scales (split_c1 to
    split_c6 of docs/numerics.md), in the order of K."""

    codes: np.ndarray
    """uint8 [batch, tokens, kv_heads, head_dim]: thumbnails t, 0 to
    2^scan_bits - 1, worth (t - L) * s with L = (2^scan_bits - 1) / 2."""
    residuals: np.ndarray
    """uint8, the same shape: r, worth (r - 127.5) / 256 * s."""
    scales: np.ndarray
    """float16 or ml_dtypes.bfloat16 [batch, tokens / 128, kv_heads, head_dim]: s,
    one per block of 128 tokens and channel; NaN where K is not finite."""
    smax: np.ndarray
    """The same dtype, [batch, kv_heads, head_dim]: largest scale of a channel, 0
    without tokens."""
    scan_bits: int


def split(k: Any, *, scan_bits: int = 2, runtime: Runtime | None = None) -> Split:
    """Splits K.

    k: float16 or bfloat16 [batch, tokens, kv_heads, head_dim] as of `Cache`;
        tokens is a multiple of 128.
    scan_bits: bits of a thumbnail: 2, 4 or 8.
    """
    bits = check.choice("scan_bits", scan_bits, (2, 4, 8))
    shape: tuple[int, ...] = tuple(getattr(k, "shape", ()))
    if len(shape) == 4 and shape[1] % 128:
        raise ValueError(f"argument 'k' has shape {list(shape)}, expected a multiple of 128 tokens "
                         "in axis 1: only full blocks are split")
    codes, residuals, scales, brain = _ffd.split(native(runtime), k, bits)
    scales = scales.view(ml_dtypes.bfloat16 if brain else np.float16)
    wide = scales.astype(np.float32)
    smax = np.maximum.reduce(wide, axis=1, initial=0).astype(scales.dtype)  # NaN propagates
    return Split(codes, residuals, scales, smax, bits)


def reconstruct(parts: Split) -> np.ndarray:
    """The K that refined scores see, float32 [batch, tokens, kv_heads, head_dim]:
    s * ((t - L) + (r - 127.5) / 256), rounded once."""
    if not isinstance(parts, Split):
        raise TypeError(f"argument 'parts' is {type(parts).__name__}, expected ffd.Split")
    levels = (2 ** parts.scan_bits - 1) / 2
    value = (parts.codes - levels) + (parts.residuals - 127.5) / 256  # float64, exact
    scales = np.repeat(parts.scales.astype(np.float64), 128, axis=1)
    keys: np.ndarray = (scales * value).astype(np.float32)
    return keys


def merge(outs: Sequence[Any], lses: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Merges results of the same queries over different tokens, by their lse.

    outs: one array per part, [..., value_dim], any real dtype in host memory.
    lses: one per part, [...], natural log; -inf for a part without tokens.
    Returns (out, lse), float32, of attention over all the tokens: out is the mean
    of the parts weighted by exp(lse), lse the log of the sum of exp(lse). Parts
    are merged in the order given; a NaN in a part surfaces.
    """
    if len(outs) != len(lses) or not len(outs):
        raise ValueError(f"arguments 'outs' and 'lses' have {len(outs)} and {len(lses)} parts, "
                         "expected the same number, at least 1")
    parts = [_floats(f"outs[{i}]", x) for i, x in enumerate(outs)]
    logs = [_floats(f"lses[{i}]", x) for i, x in enumerate(lses)]
    shape = parts[0].shape
    for i, (part, log) in enumerate(zip(parts, logs)):
        if part.ndim < 1 or part.shape != shape:
            raise ValueError(f"argument 'outs[{i}]' has shape {list(part.shape)}, expected "
                             f"{list(shape) or '[..., value_dim]'} as 'outs[0]'")
        if log.shape != shape[:-1]:
            raise ValueError(f"argument 'lses[{i}]' has shape {list(log.shape)}, expected "
                             f"{list(shape[:-1])}")
    rows = int(np.prod(shape[:-1], dtype=np.int64))
    out, lse = _ffd.merge(np.stack(parts).reshape(len(parts), rows, shape[-1]),
                          np.stack(logs).reshape(len(parts), rows))
    return out.reshape(shape), lse.reshape(shape[:-1])


def _floats(name: str, value: Any) -> np.ndarray:
    array = check.host_array(name, value)
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise TypeError(f"argument '{name}' has dtype {array.dtype}, expected real numbers")
    return array.astype(np.float32)
