# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Threads, device and kernels: what outlives single calls."""

from __future__ import annotations

import os
import threading

import numpy as np

from . import _arguments

try:
    from . import _ffd
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "the compiled part of the package 'ffd' cannot be loaded: install it with "
        f"'pip install .', or put python/ of a build folder on PYTHONPATH ({error})") from error

Error = _ffd.Error

_ELEMENTS = ("float16", "bfloat16")
_TARGETS = ("cpu", "cpu:avx2", "cpu:avx512", "cpu:avx512vnni", "cuda")


class Runtime:
    """A thread pool, the GPU if the target is one, and compiled kernels.

    Any number of threads may use one runtime at the same time; calls that need
    the same kernel run one after the other, each on all threads of the pool.
    The global interpreter lock is released while a call computes or compiles.

    target: "cpu" (the best instruction set of this machine), "cpu:avx2",
        "cpu:avx512", "cpu:avx512vnni", "cuda" (the first device), or an
        architecture of it such as "sm_90a".
    threads: of the pool, the caller's included; 0: one per core this process
        may run on.
    kernel_dir: folder of kernel packages (`ffd-compile --emit=package`), looked
        at first.
    jit: compile what no package provides, with libffd-jit.
    jit_path: libffd-jit.so; None: the one installed beside this package, then
        where the system's loader searches.

    Raises Error if the target needs a device or a driver that is not there.
    """

    def __init__(self, target: str = "cpu", *, threads: int = 0,
                 kernel_dir: str | os.PathLike[str] | None = None, jit: bool = True,
                 jit_path: str | os.PathLike[str] | None = None) -> None:
        if not isinstance(target, str):
            raise TypeError(f"argument 'target' is {type(target).__name__}, expected str")
        if target not in _TARGETS and not target.startswith("sm_"):
            raise ValueError(f"argument 'target' is '{target}', expected 'cpu', 'cpu:avx2', "
                             "'cpu:avx512', 'cpu:avx512vnni', 'cuda' or 'sm_...'")
        if isinstance(threads, bool) or not isinstance(threads, int):
            raise TypeError(f"argument 'threads' is {type(threads).__name__}, expected int")
        if not 0 <= threads <= 4096:
            raise ValueError(f"argument 'threads' is {threads}, expected 0 to 4096")
        folder = "" if kernel_dir is None else os.fspath(kernel_dir)
        path = "" if jit_path is None else os.fspath(jit_path)
        self._native = _ffd.Runtime(target, threads, folder, bool(jit), path)

    @property
    def target(self) -> str:
        """As given."""
        return self._native.target

    @property
    def threads(self) -> int:
        """Threads of the pool, the caller's included."""
        return self._native.threads

    def prepare(self, *, head_dim: int, group: int, value_dim: int | None = None,
                dtype: str = "float16", scan_bits: int = 2, select_block: int = 16,
                residual_bits: int | None = None, selector: str = "top_delta",
                execution: str | None = None, refined_max: bool | None = None,
                program: str = "decode", centre: str = "none", query_tokens: int = 1,
                certificate: str = "none") -> str:
        """Finds or compiles a kernel before it is needed.

        head_dim: 64, 80, 96, 128, 192 or 256. value_dim: a multiple of 16 up to
        256, default head_dim. group: query heads per kv head, 1 to 16. dtype:
        "float16" or "bfloat16". program: "decode" or "exact". query_tokens: that
        ask at once, 1 to 8. The other arguments are those of Cache and
        Cache.decode.
        Returns what it was compiled for, such as "cpu:avx512vnni".
        """
        if dtype not in _ELEMENTS:
            raise ValueError(f"argument 'dtype' is '{dtype}', expected 'float16' or 'bfloat16'")
        if program not in ("decode", "exact"):
            raise ValueError(f"argument 'program' is '{program}', expected 'decode' or 'exact'")
        residuals = has_residuals(scan_bits, residual_bits)
        refined = takes_refined(refined_max, selector, residuals and program == "decode")
        return self._native.prepare(program, head_dim, head_dim if value_dim is None else value_dim,
                                    group, dtype, scan_bits, select_block,
                                    residuals, selector, execution or "",
                                    _arguments.centre(centre),
                                    _arguments.integer("query_tokens", query_tokens, 1, 8),
                                    refined, _arguments.certificate(certificate))

    def __repr__(self) -> str:
        return f"ffd.Runtime('{self.target}', threads={self.threads})"


def has_residuals(scan_bits: int, residual_bits: int | None) -> bool:
    """Of an argument 'residual_bits', whose default follows from the scan bits."""
    if residual_bits is None:
        return scan_bits != 16
    if residual_bits not in (0, 8):
        raise ValueError(f"argument 'residual_bits' is {residual_bits}, expected 8 or 0")
    if residual_bits and scan_bits == 16:
        raise ValueError(f"argument 'residual_bits' is {residual_bits} with scan_bits 16, expected "
                         "0: keys that are not split have no residuals")
    return residual_bits == 8


def takes_refined(refined_max: bool | None, selector: str, residuals: bool) -> bool:
    """Of an argument 'refined_max': None is True where the rule has a pseudo-max and
    there are residuals that refine it."""
    if refined_max is None:
        return residuals and selector == "top_delta"
    if not isinstance(refined_max, (bool, np.bool_)):
        raise TypeError(f"argument 'refined_max' is {type(refined_max).__name__}, expected bool "
                        "or None")
    return bool(refined_max)


_lock = threading.Lock()
_default: Runtime | None = None


def default_runtime() -> Runtime:
    """The runtime of calls that are given none: "cpu", all cores. Made on first
    use and kept."""
    global _default
    with _lock:
        if _default is None:
            _default = Runtime()
        return _default


def native(runtime: Runtime | None) -> _ffd.Runtime:
    """The extension's object of an argument 'runtime'."""
    if runtime is None:
        runtime = default_runtime()
    if not isinstance(runtime, Runtime):
        raise TypeError(f"argument 'runtime' is {type(runtime).__name__}, expected ffd.Runtime")
    return runtime._native


def cuda_devices() -> tuple[int, str]:
    """How many GPUs the CUDA driver offers, and why if there are none."""
    return _ffd.cuda_devices()
