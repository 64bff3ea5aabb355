# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the array API standard lacks, for the libraries that methods run on.

A method is written against the standard and runs on the arrays that it is given:
numpy's, or torch's on a GPU. Figures agree between the two but for sums that are
taken in another order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array, is_torch_array

Array = Any  # numpy.ndarray or torch.Tensor
_constants: dict[tuple, Array] = {}

__all__ = ["Array", "array_namespace", "as_float", "constant", "device", "exponent", "host", "is_numpy_array", "like",
           "power_of_two", "round_element"]


def like(x: Any, other: Array) -> Array:
    """The numpy array, list or number x as an array where `other` is."""
    if is_numpy_array(other):
        return np.asarray(x)
    return array_namespace(other).asarray(x, device=device(other))


def constant(x: np.ndarray, other: Array) -> Array:
    """like(), for what nobody writes to: lengths and masks of a step are the same for
    every layer, and a copy to a GPU waits until the GPU is idle."""
    x = np.asarray(x)
    key = (device(other), x.dtype, x.shape, x.tobytes())
    if key not in _constants:
        if len(_constants) >= 4096:
            _constants.clear()
        _constants[key] = like(x, other)
    return _constants[key]


def host(x: Array) -> np.ndarray:
    """x as a numpy array."""
    return x.cpu().numpy() if is_torch_array(x) else np.asarray(x)


def as_float(x: Array) -> Array:
    xp = array_namespace(x)
    return xp.astype(x, xp.float32, copy=False)


def round_element(x: Array, element: str) -> Array:
    """float32 -> nearest value of the element type, ties to even."""
    xp = array_namespace(x)
    if element not in ("f16", "bf16"):
        raise ValueError(f"element type '{element}': expected f16 or bf16")
    x = xp.astype(x, xp.float32, copy=False)
    if element == "f16":
        with np.errstate(over="ignore"):
            return xp.astype(xp.astype(x, xp.float16), xp.float32)
    if is_torch_array(x):
        return xp.astype(xp.astype(x, xp.bfloat16), xp.float32)
    wide = x.view(np.uint32)
    bits = (wide + 0x7FFF + ((wide >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, bits.astype(np.uint32).view(np.float32))


def exponent(x: Array) -> Array:
    """floor(log2(x)) of positive normal float32 numbers, as int32; 0 of zero and of
    what is not finite."""
    xp = array_namespace(x)
    power = ((x.view(xp.int32) >> 23) & 255) - 127
    return xp.where(xp.isfinite(x) & (x > 0), power, xp.zeros_like(power))


def power_of_two(k: Array) -> Array:
    """2^k in float32 of int32 k from -126 to 127."""
    xp = array_namespace(k)
    return ((xp.astype(k, xp.int32) + 127) << 23).view(xp.float32)
