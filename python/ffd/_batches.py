# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The arguments of `PagedCache`: lists of sequences and tokens, and the strides of
what is appended and asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _arguments as check
from ._views import View

_DTYPES = {"f16": "float16", "bf16": "bfloat16", "float16": "float16", "bfloat16": "bfloat16"}


# --- Small arguments ----------------------------------------------------------------------

def dtype_of(value: Any) -> str:
    name = value if isinstance(value, str) else str(value).replace("torch.", "")
    if name not in _DTYPES and not isinstance(value, str):
        try:
            name = np.dtype(value).name
        except TypeError:
            pass
    if name not in _DTYPES:
        raise ValueError(f"argument 'dtype' is '{value}', expected 'float16' or 'bfloat16'")
    return _DTYPES[name]


def device_of(target: Any) -> tuple[str, int]:
    name = check.text("target", target)
    if name == "cpu":
        return name, 0
    head, colon, number = name.partition(":")
    if head == "cuda" and (not colon or number.isdecimal() and number.isascii()
                           and len(number) < 6):
        return f"cuda:{int(number or 0)}", int(number or 0)
    raise ValueError(f"argument 'target' is '{target}', expected 'cpu', 'cuda' or 'cuda:0', "
                     "'cuda:1' ...")


def delta_of(value: Any) -> float:
    return float(check.deltas(check.real("delta", value), 1)[0])


def slot_of(sequence: Any) -> int:
    return check.integer("sequence", sequence, 0)


def on_device(value: Any) -> bool:
    """Whether an argument of integers is an array in the memory of a device."""
    if isinstance(value, (int, list, tuple, np.ndarray, np.generic, range)):
        return False
    kind = getattr(getattr(value, "device", None), "type", None)  # PyTorch
    if kind is not None:
        return bool(kind != "cpu")
    return hasattr(value, "__cuda_array_interface__") or (
        hasattr(value, "__dlpack_device__") and int(value.__dlpack_device__()[0]) not in (1, 3, 11))


def integers_of(name: str, value: Any) -> list[int]:
    if isinstance(value, (list, tuple, range)) and all(type(x) is int for x in value):
        return list(value)
    array = check.host_array(name, value)
    if array.ndim > 1:
        raise ValueError(f"argument '{name}' has shape {list(array.shape)}, expected one axis")
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"argument '{name}' has dtype {array.dtype}, expected integers")
    numbers: list[int] = array.reshape(-1).tolist()
    return numbers


def slots_of(sequences: Any) -> list[int]:
    numbers = integers_of("sequences", sequences)
    for n in numbers:
        if not 0 <= n <= check.INT_MAX:
            raise ValueError(f"argument 'sequences' has {n}, expected slots of sequences")
    return numbers


def counts_of(name: str, value: Any, count: int) -> list[int]:
    """A number for each sequence, or one for all."""
    numbers = integers_of(name, value)
    if np.ndim(value) == 0:
        numbers = numbers * count
    if len(numbers) != count:
        raise ValueError(f"argument '{name}' has {len(numbers)} numbers, expected {count}, one per "
                         "sequence")
    for n in numbers:
        if not 0 <= n <= check.INT_MAX:
            raise ValueError(f"argument '{name}' has {n}, expected 0 to {check.INT_MAX}")
    return numbers


def count_of(offsets: Any) -> int:
    shape: Sequence[int] = getattr(offsets, "shape", None) or np.shape(offsets)
    return int(shape[0]) if len(shape) else 0


def rows_of_each(tokens: Any, offsets: Any, count: int, rows: int) -> list[int]:
    """Rows of k that each sequence gets, which are all there are."""
    if offsets is not None:
        limits = integers_of("offsets", offsets)
        if len(limits) != count + 1 or limits[0] != 0 or limits[-1] != rows or any(
                a > b for a, b in zip(limits, limits[1:])):
            raise ValueError(f"argument 'offsets' is {limits}, expected {count + 1} numbers that "
                             f"rise from 0 to {rows}, the rows of 'k'")
        return [b - a for a, b in zip(limits, limits[1:])]
    if tokens is not None:
        each = counts_of("tokens", tokens, count)
        if sum(each) != rows:
            raise ValueError(f"argument 'tokens' adds up to {sum(each)}, expected {rows}, the rows "
                             "of 'k'")
        return each
    if count == 0 or rows % count:
        raise ValueError(f"argument 'k' has {rows} rows for {count} sequences, expected a "
                         "multiple, or 'tokens' or 'offsets' to say whose they are")
    return [rows // count] * count


# --- Layouts ------------------------------------------------------------------------------

def expect_dtype(v: View, dtype: str, whose: str = "") -> None:
    if v.dtype != dtype:
        raise TypeError(f"argument '{v.name}' has dtype {v.dtype}, expected {dtype}{whose}")


def _aligned(v: View, *strides: int) -> bool:
    """To 16 bytes, in 16-bit elements."""
    return v.address % 16 == 0 and all(s >= 0 and s % 8 == 0 for s in strides)


def row_strides(v: View, kv_heads: int, gpu: bool) -> tuple[View, tuple[int, int]]:
    """Strides of tokens and heads of k or v, of a copy if it has none."""
    *outer, heads, channels = v.strides
    dim, rows = v.shape[-1], v.shape[:-2]
    if kv_heads == 1:
        heads = dim
    token, regular = kv_heads * dim, True
    for size, stride in zip(rows, outer):  # an axis of one has any stride
        if size > 1:
            token = stride
    if len(rows) == 2 and rows[0] > 1 and rows[1] > 1:
        regular = outer[0] == rows[1] * token
    if gpu:
        regular = regular and _aligned(v, token, heads)
    else:
        regular = regular and v.address % 2 == 0 and token >= 0
    if 0 in rows or (regular and channels == 1 and heads >= dim):
        return v, (token, max(heads, dim))
    return v.copy(), (kv_heads * dim, dim)


def query_strides(v: View) -> tuple[View, tuple[int, int]]:
    """Strides of sequences and heads of q, of a copy if it has none."""
    *outer, heads, channels = v.strides
    *_, count, dim = v.shape
    if count == 1:
        heads = dim
    row, regular = count * heads, True
    if len(outer) == 2 and v.shape[1] > 1:  # query tokens
        regular = outer[1] == row
        row *= v.shape[1]
    batch = outer[0] if v.shape[0] > 1 else row
    if 0 in v.shape or (regular and channels == 1 and heads >= dim and _aligned(v, batch, heads)):
        return v, (batch, heads)
    return v.copy(), (int(np.prod(v.shape[1:])), dim)


def check_result(v: View, shape: tuple[int, ...]) -> None:
    """That results of that shape can be written to an argument."""
    expect_dtype(v, "float32")
    if v.shape != shape:
        raise ValueError(f"argument '{v.name}' has shape {list(v.shape)}, expected {list(shape)}")
    stride = 1
    for size, got in zip(reversed(v.shape), reversed(v.strides)):
        if size > 1 and got != stride:
            raise ValueError(f"argument '{v.name}' has strides {list(v.strides)}, expected a "
                             "contiguous array")
        stride *= size
    if v.address % 16:
        raise ValueError(f"argument '{v.name}' is at address {v.address:#x}, expected a multiple "
                         "of 16 bytes")
    if v.framework == "numpy" and not v.array.flags.writeable:
        raise ValueError(f"argument '{v.name}' is read-only, expected an array to write to")


def check_apart(a: View, b: View) -> None:
    """That two contiguous float32 results do not share memory."""
    ends = [v.address + 4 * int(np.prod(v.shape)) for v in (a, b)]
    if a.address < ends[1] and b.address < ends[0]:
        raise ValueError(f"arguments '{a.name}' and '{b.name}' overlap, expected memory of their "
                         "own")
