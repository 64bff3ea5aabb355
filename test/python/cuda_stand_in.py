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


class _AppendArgs(ctypes.Structure):  # ffdAppendArgs
    _fields_ = [*((name, _P) for name in (
        "k v thumbnails residuals values smax tail_k tail_v page_table lengths new_lengths offsets "
        "reserved errors workspace").split()),
        *((name, _L) for name in "k_token k_head v_token v_head page tail_batch tail_head".split()),
        *((name, _I) for name in "batch kv_heads splits lag pages tail_tokens".split()),
        ("centre", _P), ("slots", _P), ("committed", _P), ("slot_count", _I)]


class _PlanArgs(ctypes.Structure):  # ffdPlanArgs
    _fields_ = [("lengths", _P), ("plan", _P), ("error", _P),
                *((name, _I) for name in "batch kv_heads lag pieces target blocks".split()),
                ("slots", _P), ("committed", _P), ("slot_count", _I), ("multiprocessors", _I),
                ("resident", _I)]


class _Spec(ctypes.Structure):  # ffdSpec
    _fields_ = [(name, _I) for name in (
        "head_dim", "value_dim", "group", "element", "scan_bits", "quant_block", "select_block",
        "no_residuals", "query_tokens", "centre")]
    _fields_ += [("pseudo_max", ctypes.c_int16), ("certificate", ctypes.c_int16)]


class _Options(ctypes.Structure):  # ffdContextOptions
    _fields_ = [("struct_size", ctypes.c_size_t), ("device", _I), ("ordinal", _I),
                ("cuda_context", _P), ("threads", _I), ("use_compiler", _I),
                ("package_dir", ctypes.c_char_p), ("compiler", ctypes.c_char_p),
                ("kernel_cache_dir", ctypes.c_char_p), ("cuda_driver", ctypes.c_char_p),
                ("diagnostic", _P), ("diagnostic_user", _P)]


_KERNEL = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Args), _L, _L)
_PLANNED = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Args))
_APPEND = ctypes.CFUNCTYPE(None, ctypes.POINTER(_AppendArgs))
_PLAN = ctypes.CFUNCTYPE(None, ctypes.POINTER(_PlanArgs))


def _words(address: int, shape: tuple[int, ...], kind: Any = np.int32) -> np.ndarray:
    """Memory as an array."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), kind).reshape(shape)


class _State(ctypes.Structure):  # FakeCudaState
    _fields_ = [("kernel", _KERNEL), ("launches", ctypes.c_int), ("threads", ctypes.c_int),
                ("shared_bytes", ctypes.c_int), ("shared_opt_in", ctypes.c_int), ("grid", _L),
                ("live_allocations", ctypes.c_int), ("live_modules", ctypes.c_int),
                ("context_depth", ctypes.c_int), ("retains", ctypes.c_int), ("memory_left", _L),
                ("major", ctypes.c_int), ("minor", ctypes.c_int), ("append", _APPEND), ("plan", _PLAN),
                ("planned", _PLANNED), ("plans", ctypes.c_int), ("init_result", ctypes.c_int),
                ("pending", ctypes.c_int), ("copies_left", ctypes.c_int)]


class StandIn:
    """Takes the place of the GPU for ffd.Cache.decode and ffd.exact, and for one
    ffd.PagedCache (`stand_in_for`) whose sequences are all tail."""

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
        self._slots: list[int] | None = None  # of the last plan of a paged cache
        self._callbacks = (_KERNEL(self._cta), _PLANNED(self._launch_planned),
                           _APPEND(self._append), _PLAN(self._plan))
        (self.state.kernel, self.state.planned, self.state.append,
         self.state.plan) = self._callbacks
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

    def _see_decode(self, cache: Any, q: Any, *, select_block: int = 16,
                    refined_max: bool | None = None, **_: Any) -> None:
        tokens = q.shape[1] if len(q.shape) == 4 else 1
        self._exact = False
        self._spec = _Spec(cache.head_dim, cache.value_dim, q.shape[-2] // cache.kv_heads,
                           int(cache.dtype == "bfloat16"), cache.scan_bits, 128, select_block, 0,
                           tokens, int(cache.centre == "row"), int(refined_max is not False))

    def _see_exact(self, q: Any, k: Any, v: Any, **_: Any) -> None:
        tokens = q.shape[1] if len(q.shape) == 4 else 1
        self._exact = True
        self._spec = _Spec(k.shape[3], v.shape[3], q.shape[-2] // k.shape[2],
                           int("bfloat16" in str(k.dtype)), 2, 128, 16, 0, tokens, 0, 0)

    def stand_in_for(self, cache: ffd.PagedCache) -> None:
        self._exact = False
        self._spec = _Spec(cache.head_dim, cache.value_dim, cache.heads // cache.kv_heads,
                           int(cache.dtype == "bfloat16"), 2, 128, 16, 0, cache.query_tokens, 0, 1)

    def _append(self, args: Any) -> None:
        """Into tails alone: whoever appends 128 tokens is told."""
        a = args.contents
        d, dv = self._spec.head_dim, self._spec.value_dim
        slots = _words(a.slots, (a.batch,)).tolist() if a.slots else range(a.batch)
        offsets = _words(a.offsets, (a.batch + 1,)).tolist()
        for i, slot in enumerate(slots):
            if a.slots and not 0 <= slot < a.slot_count:
                continue
            if _words(a.reserved + 4 * slot, (1,))[0] < 0:
                continue
            length = _words(a.lengths + 4 * slot, (1,))
            begin, end = offsets[i], offsets[i + 1]
            if int(length[0]) + end - begin >= 128:
                self.problem = "the stand-in commits no blocks"
                continue
            for head in range(a.kv_heads):
                row = slot * a.tail_batch + head * a.tail_head + int(length[0])
                for to, of, token, stride, dim in ((a.tail_k, a.k, a.k_token, a.k_head, d),
                                                   (a.tail_v, a.v, a.v_token, a.v_head, dv)):
                    for t in range(begin, end):
                        ctypes.memmove(to + 2 * dim * (row + t - begin),
                                       of + 2 * (t * token + head * stride), 2 * dim)
            length[0] += end - begin

    def _plan(self, args: Any) -> None:
        a = args.contents
        self._slots = (_words(a.slots, (a.batch,)).tolist() if a.slots else list(range(a.batch)))
        self._slot_count = a.slot_count if a.slots else a.batch

    def _each(self, given: _Args) -> None:
        """A decode of a paged cache, one of its sequences after the other."""
        spec = self._spec
        rows = given.kv_heads * spec.group * spec.query_tokens
        for place, slot in enumerate(self._slots):
            if not 0 <= slot < self._slot_count:
                continue
            a = _Args.from_buffer_copy(given)
            zeros = np.zeros(a.kv_heads * 1024 + 64, np.uint8)  # nothing is committed
            a.smax = (zeros.ctypes.data + 63) // 64 * 64
            a.batch, a.kept_count = 1, None
            a.q += 2 * place * a.q_batch
            a.tail_k += 2 * spec.head_dim * slot * a.tail_batch
            a.tail_v += 2 * spec.value_dim * slot * a.tail_batch
            a.page_table += 4 * slot * a.page
            a.lengths += 4 * slot
            a.delta += 4 * slot
            a.out += 4 * place * rows * spec.value_dim
            a.lse = a.lse + 4 * place * rows if a.lse else None
            self._launch(ctypes.pointer(a))

    def _cta(self, args: Any, row: int, split: int) -> None:
        if row == split == 0:
            self._launch(args)

    def _launch_planned(self, args: Any) -> None:
        self.planned += 1
        if self._slots is None:
            self._launch(args)
        else:
            self._each(args.contents)

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
