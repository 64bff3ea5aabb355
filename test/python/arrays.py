# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of elements for the tests: numpy's, and one that only offers DLPack,
as PyTorch's bfloat16 tensors do."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np

from elements import Element


def half(values: np.ndarray, element: Element) -> np.ndarray:
    """float32 values of an element type as float16 or ml_dtypes.bfloat16."""
    bits = np.ascontiguousarray(element.encode(values))
    return bits.view(np.float16 if element.name == "f16" else ml_dtypes.bfloat16)


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("manager", ctypes.c_void_p), ("deleter", _DELETER)]

_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


_CODES = {"bfloat16": 4, "float16": 2, "float32": 2, "int32": 0}


class OnlyDLPack:
    """A tensor over numpy's memory, said to be on a device."""

    CPU, CUDA, CUDA_HOST = 1, 2, 3

    def __init__(self, array: np.ndarray, device: int = CPU):
        self.array, self.device = array, device
        self.shape = array.shape
        self.released = 0
        self.stream = None  # of the last who took it
        self._kept = []
        self._out = 0  # capsules that are not released

    _lent: set[OnlyDLPack] = set()  # alive as long as somebody has their memory

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, stream=None, **_):
        self.stream = stream

        def release(_managed):
            self.released += 1
            self._out -= 1
            if not self._out:
                self._lent.discard(self)

        self._out += 1
        self._lent.add(self)

        dims = self.array.ndim
        shape = (ctypes.c_int64 * dims)(*self.array.shape)
        size = self.array.itemsize
        strides = (ctypes.c_int64 * dims)(*(s // size for s in self.array.strides))
        managed = _Managed(
            _Tensor(self.array.__array_interface__["data"][0], self.device, 0, dims,
                    _CODES[self.array.dtype.name], 8 * size, 1, shape, strides, 0), None,
            _DELETER(release))
        self._kept.append((managed, shape, strides))
        return _capsule(ctypes.addressof(managed), b"dltensor", None)
