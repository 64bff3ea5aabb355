# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of small arguments; messages name the argument, its value and what was
expected. Arrays of elements are checked by the extension."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

INT_MAX = 2 ** 31 - 1


def integer(name: str, value: Any, least: int, most: int = INT_MAX) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"argument '{name}' is {type(value).__name__}, expected int") from None
    if not least <= number <= most:
        raise ValueError(f"argument '{name}' is {number}, expected {least} to {most}")
    return number


def choice(name: str, value: Any, among: tuple[int, ...]) -> int:
    number = integer(name, value, -INT_MAX)
    if number not in among:
        raise ValueError(f"argument '{name}' is {number}, expected "
                         f"{', '.join(map(str, among[:-1]))} or {among[-1]}")
    return number


def sm_scale(value: Any, head_dim: int) -> float:
    """The default is 1 / sqrt(head_dim); the kernel sees it rounded to f32."""
    if value is None:
        return float(np.float32(1 / math.sqrt(head_dim)))
    with np.errstate(over="ignore"):
        number = float(np.float32(real("sm_scale", value)))
    if not (number > 0 and math.isfinite(number)):
        raise ValueError(f"argument 'sm_scale' is {value}, expected a finite number above 0 that "
                         "fits in float32")
    return number


CENTRES = ("none", "row")
CERTIFICATES = ("none", "plain", "noise")


def centre(value: Any) -> int:
    """The number of an argument 'centre'."""
    if text("centre", value) not in CENTRES:
        raise ValueError(f"argument 'centre' is '{value}', expected 'none' or 'row'")
    return CENTRES.index(value)


def certificate(value: Any) -> int:
    """The number of an argument 'certificate'."""
    if text("certificate", value) not in CERTIFICATES:
        raise ValueError(f"argument 'certificate' is '{value}', expected 'none', 'plain' or "
                         "'noise'")
    return CERTIFICATES.index(value)


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"argument '{name}' is {type(value).__name__}, expected str")
    return value


def real(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"argument '{name}' is {type(value).__name__}, expected a number") from None


def host_array(name: str, value: Any) -> np.ndarray:
    """A small argument as numpy array, whatever framework it comes from."""
    try:
        if str(getattr(value, "dtype", "")) == "torch.bfloat16":
            value = value.float()  # exact; torch does not make numpy arrays of that type
        array = np.asarray(value)
    except Exception as error:  # a framework's own refusal, such as a GPU tensor
        raise TypeError(f"argument '{name}' is {type(value).__name__}, expected numbers in host "
                        f"memory ({error})") from None
    if array.dtype == object:
        raise TypeError(f"argument '{name}' is {type(value).__name__}, expected numbers")
    return array


def deltas(value: Any, batch: int) -> np.ndarray:
    """delta of every sequence, float32 [batch]."""
    array = host_array("delta", value)
    if array.ndim > 1 or (array.ndim == 1 and len(array) != batch):
        raise ValueError(f"argument 'delta' has shape {list(array.shape)}, expected a number or "
                         f"[{batch}], one per sequence")
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise TypeError(f"argument 'delta' has dtype {array.dtype}, expected real numbers")
    with np.errstate(over="ignore"):
        result = np.array(np.broadcast_to(array, (batch,)), np.float32)
    bad = np.flatnonzero(~(result >= 0))  # NaN too
    if len(bad):
        where = f" at {bad[0]}" if array.ndim else ""
        raise ValueError(f"argument 'delta' is {result[bad[0]]}{where}, expected a number of at "
                         "least 0, or infinity")
    return result


def lengths(value: Any) -> np.ndarray | None:
    """Visible tokens, int64 [batch]; None: all."""
    if value is None:
        return None
    array = host_array("lengths", value)
    if array.ndim != 1:
        raise ValueError(f"argument 'lengths' has shape {list(array.shape)}, expected [batch]")
    if array.dtype.kind not in "iu":
        raise TypeError(f"argument 'lengths' has dtype {array.dtype}, expected integers")
    return np.ascontiguousarray(array, np.int64)
