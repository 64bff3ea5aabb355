# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Drives test/unit/FakeCuda.cpp, a CUDA driver whose device memory is host
memory, from Python: each launch is a decode of the same arguments by a kernel for
the CPU. What it shows is what the package does around a kernel, never that a GPU
kernel is right. LD_LIBRARY_PATH has to name a folder where it is libcuda.so.1."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

import ffd

_P, _I, _L = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_POINTERS = ("q thumbnails residuals values smax tail_k tail_v page_table lengths delta out lse "
             "kept workspace kept_count plan").split()
_STRIDES = "q_batch q_head q_token page kept tail_batch tail_head".split()


class _Args(ctypes.Structure):  # ffdDecodeArgs
    _fields_ = [*((name, _P) for name in _POINTERS), *((name, _L) for name in _STRIDES),
                ("batch", _I), ("kv_heads", _I), ("splits", _I), ("lag", _I),
                ("sm_scale", ctypes.c_float), ("pieces", _I), ("centre", _P)]


class _Spec(ctypes.Structure):  # ffdSpec
    _fields_ = [(name, _I) for name in (
        "head_dim", "value_dim", "group", "element", "scan_bits", "quant_block", "select_block",
        "no_residuals", "query_tokens", "centre", "pseudo_max")]


class _Options(ctypes.Structure):  # ffdContextOptions
    _fields_ = [("struct_size", ctypes.c_size_t), ("device", _I), ("ordinal", _I),
                ("cuda_context", _P), ("threads", _I), ("use_compiler", _I),
                ("package_dir", ctypes.c_char_p), ("compiler", ctypes.c_char_p),
                ("kernel_cache_dir", ctypes.c_char_p), ("cuda_driver", ctypes.c_char_p),
                ("diagnostic", _P), ("diagnostic_user", _P)]


_KERNEL = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Args), _L, _L)
_PLANNED = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Args))


class _State(ctypes.Structure):  # FakeCudaState
    _fields_ = [("kernel", _KERNEL), ("launches", ctypes.c_int), ("threads", ctypes.c_int),
                ("shared_bytes", ctypes.c_int), ("shared_opt_in", ctypes.c_int), ("grid", _L),
                ("live_allocations", ctypes.c_int), ("live_modules", ctypes.c_int),
                ("context_depth", ctypes.c_int), ("retains", ctypes.c_int), ("memory_left", _L),
                ("major", ctypes.c_int), ("minor", ctypes.c_int), ("append", _P), ("plan", _P),
                ("planned", _PLANNED), ("plans", ctypes.c_int)]


class StandIn:
    """Takes the place of the GPU for ffd.Cache.decode and ffd.exact."""

    def __init__(self) -> None:
        assert ffd.cuda_devices() == (1, "")  # loads libffd and the driver
        driver = ctypes.CDLL("libcuda.so.1")
        driver.fakeCudaState.restype = ctypes.POINTER(_State)
        self.state = driver.fakeCudaState().contents
        self.problem = ""
        self.planned = 0
        self._spec: _Spec | None = None
        self._exact = False
        self._kernels: dict[bytes, Any] = {}
        self._lib = ctypes.CDLL("libffd.so.0")  # the one of the package
        self._lib.ffdLastErrorMessage.restype = ctypes.c_char_p
        options = _Options(struct_size=ctypes.sizeof(_Options), threads=1, use_compiler=1,
                           kernel_cache_dir=b"")
        self._context = _P()
        self._do("ffdContextCreate", ctypes.byref(options), ctypes.byref(self._context))
        self._callbacks = _KERNEL(self._cta), _PLANNED(self._launch_planned)
        self.state.kernel, self.state.planned = self._callbacks
        ffd.Cache.decode = self._watch(ffd.Cache.decode, self._see_decode)
        ffd.exact = self._watch(ffd.exact, self._see_exact)

    def _do(self, name: str, *arguments: Any) -> None:
        if getattr(self._lib, name)(*arguments):
            raise RuntimeError(f"{name}: {self._lib.ffdLastErrorMessage().decode()}")

    def _watch(self, function: Any, see: Any) -> Any:
        """The function, after what it is called with has become the spec."""
        @functools.wraps(function)
        def watched(*arguments: Any, **options: Any) -> Any:
            self._spec, self.problem = None, ""
            try:
                see(*arguments, **options)
            except (AttributeError, IndexError, TypeError, ZeroDivisionError):
                pass  # a call that will be refused
            result = function(*arguments, **options)
            if self.problem:
                raise RuntimeError(self.problem)
            return result
        return watched

    def _see_decode(self, cache: Any, q: Any, *, select_block: int = 16, **_: Any) -> None:
        tokens = q.shape[1] if len(q.shape) == 4 else 1
        self._exact = False
        self._spec = _Spec(cache.head_dim, cache.value_dim, q.shape[-2] // cache.kv_heads,
                           int(cache.dtype == "bfloat16"), cache.scan_bits, 128, select_block, 0,
                           tokens, int(cache.centre == "row"), 0)

    def _see_exact(self, q: Any, k: Any, v: Any, **_: Any) -> None:
        tokens = q.shape[1] if len(q.shape) == 4 else 1
        self._exact = True
        self._spec = _Spec(k.shape[3], v.shape[3], q.shape[-2] // k.shape[2],
                           int("bfloat16" in str(k.dtype)), 2, 128, 16, 0, tokens, 0, 0)

    def _cta(self, args: Any, row: int, split: int) -> None:
        if row == split == 0:
            self._launch(args)

    def _launch_planned(self, args: Any) -> None:
        self.planned += 1
        self._launch(args)

    def _launch(self, args: Any) -> None:
        try:
            self._decode(args.contents)
        except Exception as error:  # ctypes would print and forget it
            self.problem = f"{type(error).__name__}: {error}"

    def _decode(self, given: _Args) -> None:
        if self._spec is None:
            raise RuntimeError("a launch of an unknown kernel")
        key = bytes(self._spec)
        if key not in self._kernels:
            kernel = _P()
            self._do("ffdKernelCreate", self._context, ctypes.byref(self._spec),
                     ctypes.byref(kernel))
            self._kernels[key] = kernel
        kernel = self._kernels[key]
        args = _Args.from_buffer_copy(given)
        if self._exact:  # everything is tail
            args.lag = 1 << 30
            zeros = np.zeros(max(args.batch * args.kv_heads * 256 * 2, 4 * args.batch) + 64,
                             np.uint8)
            args.smax = args.delta = (zeros.ctypes.data + 63) // 64 * 64
        need = ctypes.c_uint64()
        self._do("ffdKernelWorkspaceBytes", kernel, args.batch, args.kv_heads, 1,
                 ctypes.byref(need))
        workspace = np.zeros(need.value + 64, np.uint8)
        args.workspace = (workspace.ctypes.data + 63) // 64 * 64
        args.splits, args.plan, args.pieces = 1, None, 0
        self._do("ffdKernelDecode", kernel, ctypes.byref(args), None)
