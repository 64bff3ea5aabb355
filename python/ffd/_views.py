# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays where they are: addresses, shapes and strides of arrays in host memory or
on a CUDA device, the streams of those who made them, and new arrays of the same
kind. PyTorch and CuPy are asked directly, others by DLPack; neither is imported."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from . import _ffd

_HOST = (1, 3, 11)  # DLDeviceType: page-locked memory is host memory
_CUDA = (2, 13)  # managed memory is the device's as well
_NAMES = {4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi", 15: "webgpu"}

_NUMPY = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16),
          "float32": np.dtype(np.float32)}


class View(NamedTuple):
    name: str
    """Of the argument."""
    array: Any
    """The caller's, which keeps the memory alive."""
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    dtype: str
    device: str
    """"cpu", "cuda:0", or another framework's name of it."""
    framework: str
    """"numpy", "torch", "cupy", or "" of what is taken by DLPack."""
    owner: Any = None

    def copy(self) -> View:
        """A contiguous one on the same device, made on the framework's stream."""
        if self.framework == "torch":
            fresh = self.array.detach().clone(memory_format=_torch().contiguous_format)
        elif self.framework == "numpy":
            fresh = self.array.copy(order="C")
        elif self.framework == "cupy":
            with _cupy().cuda.Device(self.array.device.id):  # not that of the thread
                fresh = self.array.copy(order="C")
        else:
            raise ValueError(f"argument '{self.name}' has strides {list(self.strides)}, expected "
                             "channels side by side and addresses and strides that are multiples "
                             "of 16 bytes")
        return view(self.name, fresh)


def _torch() -> Any:
    return sys.modules.get("torch")


def _cupy() -> Any:
    return sys.modules.get("cupy")


def view(name: str, array: Any, stream: int = 0, write: bool = False) -> View:
    """Of an argument `name`; what is taken by DLPack is ready on `stream`."""
    if isinstance(array, np.ndarray):
        return _of_numpy(name, array)
    torch = _torch()
    if torch is not None and isinstance(array, torch.Tensor):
        return _of_torch(name, array, torch)
    cupy = _cupy()
    if cupy is not None and isinstance(array, cupy.ndarray):
        return View(name, array, array.data.ptr, array.shape,
                    _in_elements(name, array.strides, array.itemsize), array.dtype.name,
                    f"cuda:{array.device.id}", "cupy")
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(name, array, stream, write)
    try:
        seen = np.asarray(memoryview(array))
    except TypeError:
        raise TypeError(f"argument '{name}' is {type(array).__name__}, expected an array of numpy, "
                        "PyTorch or CuPy, or one that offers DLPack") from None
    return _of_numpy(name, seen)


def _in_elements(name: str, strides: tuple[int, ...], size: int) -> tuple[int, ...]:
    if any(s % size for s in strides):
        raise ValueError(f"argument '{name}' has strides of {list(strides)} bytes, expected "
                         f"multiples of its {size} bytes an element")
    return tuple(s // size for s in strides)


def _of_numpy(name: str, array: np.ndarray) -> View:
    if not array.dtype.isnative:
        raise TypeError(f"argument '{name}' has dtype {array.dtype.str} of the other byte order, "
                        "expected the machine's")
    return View(name, array, array.__array_interface__["data"][0], array.shape,
                _in_elements(name, array.strides, array.itemsize), array.dtype.name, "cpu", "numpy")


def _of_torch(name: str, tensor: Any, torch: Any) -> View:
    if tensor.layout != torch.strided:
        raise TypeError(f"argument '{name}' has layout {tensor.layout}, expected a dense tensor")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise TypeError(f"argument '{name}' requires grad, expected a tensor that does not, or "
                        "torch.no_grad(): a cache has no backward")
    device = str(tensor.device)
    address = tensor.data_ptr() if device == "cpu" or device.startswith("cuda") else 0
    return View(name, tensor, address, tuple(tensor.shape), tensor.stride(),
                str(tensor.dtype)[len("torch."):], device, "torch")


def _of_dlpack(name: str, array: Any, stream: int, write: bool) -> View:
    kind, number = (int(x) for x in array.__dlpack_device__())
    if kind not in _HOST + _CUDA:
        device = f"{_NAMES.get(kind, f'DLPack device type {kind}')}:{number}"
        return View(name, array, 0, tuple(array.shape), (), str(array.dtype), device, "")
    device = "cpu" if kind in _HOST else f"cuda:{number}"
    if write and type(array).__module__.startswith("jax"):  # also where its flags do not say so
        raise TypeError(f"argument '{name}' is {type(array).__name__}, which cannot be written to, "
                        "expected an array of numpy, PyTorch or CuPy")
    # DLPack calls the default stream 1.
    options: dict[str, Any] = {} if device == "cpu" else {"stream": stream or 1}
    try:
        if write:  # versions below 1 do not say what is read-only
            try:
                capsule = array.__dlpack__(max_version=(1, 0), **options)
            except TypeError:
                capsule = array.__dlpack__(**options)
        else:
            capsule = array.__dlpack__(**options)
        address, shape, strides, dtype, owner = _ffd.describe(capsule, write)
    except (TypeError, BufferError) as error:
        raise TypeError(f"argument '{name}' is {type(array).__name__}, which does not pass by "
                        f"DLPack: {error}") from None
    return View(name, array, address, shape, strides, dtype, device, "", owner)


def empty(like: str, shape: tuple[int, ...], dtype: str, device: str, instead: str) -> View:
    """A new array of a framework; numpy's where that has none of its own. `instead`: what
    a caller can give where nobody allocates."""
    if like == "torch":
        torch = _torch()
        fresh = torch.empty(shape, dtype=getattr(torch, dtype), device=device)
    elif like == "cupy":
        cupy = _cupy()
        with cupy.cuda.Device(int(device[5:])):
            fresh = cupy.empty(shape, _NUMPY[dtype])
    elif device == "cpu":
        fresh = np.empty(shape, _NUMPY[dtype])
    else:
        raise TypeError(f"results on {device} are allocated by PyTorch or CuPy, expected {instead}")
    return view("out", fresh)


# --- Streams ------------------------------------------------------------------------------

def stream_address(stream: Any, device: str) -> int:
    """Of an argument 'stream': a number, or a stream of PyTorch, CuPy or any other
    that has `__cuda_stream__`."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        if stream < 0:
            raise ValueError(f"argument 'stream' is {stream}, expected the address of a stream, or "
                             "0 for the default one")
        return 0 if stream == 1 else stream  # CU_STREAM_LEGACY
    if hasattr(stream, "cuda_stream"):
        if str(getattr(stream, "device", device)) != device:
            raise TypeError(f"argument 'stream' is on {stream.device}, expected {device}, the "
                            "device of the cache")
        return int(stream.cuda_stream)
    if hasattr(stream, "__cuda_stream__"):
        given = stream.__cuda_stream__
        return int((given() if callable(given) else given)[1])
    if isinstance(getattr(stream, "ptr", None), int):
        return int(stream.ptr)
    raise TypeError(f"argument 'stream' is {type(stream).__name__}, expected int, "
                    "torch.cuda.Stream, cupy.cuda.Stream or an object with __cuda_stream__")


def current_stream(framework: str, number: int) -> int:
    """The stream that a framework gives work to, of CUDA device `number`."""
    if framework == "torch":
        return int(_torch().cuda.current_stream(number).cuda_stream)
    if framework == "cupy":
        cupy = _cupy()
        with cupy.cuda.Device(number):
            return int(cupy.cuda.get_current_stream().ptr)
    return 0


def known_framework() -> str:
    """Which one uses the GPU in this process, before there is an array to tell: PyTorch
    if it does, else CuPy."""
    torch = _torch()
    if torch is not None and torch.cuda.is_initialized():
        return "torch"
    return "cupy" if _cupy() is not None else ""


def order(views: list[View], stream: int, number: int) -> Callable[[], None] | None:
    """Makes `stream` wait for the work so far of the frameworks' streams, where they
    are others, and keeps memory of PyTorch and CuPy until its work is done. What comes
    back is to be called once that work is enqueued."""
    after = None
    for framework in {v.framework for v in views}:
        if framework not in ("torch", "cupy") or current_stream(framework, number) == stream:
            continue
        if framework == "torch":
            cuda = _torch().cuda
            on = cuda.ExternalStream(stream, device=number) if stream else cuda.default_stream(
                number)
            on.wait_stream(cuda.current_stream(number))
            for v in views:
                if v.framework == "torch":
                    v.array.record_stream(on)
        else:  # whose memory belongs to the stream that took it
            cuda = _cupy().cuda
            with cuda.Device(number):
                mine = cuda.get_current_stream()
                theirs = _cupy_stream(cuda, stream, number)
                theirs.wait_event(mine.record())
            after = functools.partial(_wait, mine, theirs, number)
    return after


class _Address:
    """A stream by the protocol of CUDA's Python packages."""

    def __init__(self, stream: int) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream


def _cupy_stream(cuda: Any, stream: int, number: int) -> Any:
    if not stream:
        return cuda.Stream.null
    if hasattr(cuda.Stream, "from_external"):  # CuPy 14
        return cuda.Stream.from_external(_Address(stream))
    return cuda.ExternalStream(stream, number)


def _wait(mine: Any, theirs: Any, number: int) -> None:
    with _cupy().cuda.Device(number):
        mine.wait_event(theirs.record())


def framework_of(array: Any) -> str:
    """"torch", "cupy", "numpy" or ""."""
    if isinstance(array, np.ndarray):
        return "numpy"
    for name, module, kind in (("torch", _torch(), "Tensor"), ("cupy", _cupy(), "ndarray")):
        if module is not None and isinstance(array, getattr(module, kind)):
            return name
    return ""
