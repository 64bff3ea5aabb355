# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The compiled part of the package; use what `ffd` exports instead.
from typing import Any

import numpy as np
from numpy.typing import NDArray

class Error(RuntimeError): ...
class OutOfPages(Error): ...
class OutOfSequences(Error): ...

class Runtime:
    def __init__(
        self, target: str, threads: int, kernel_dir: str, jit: bool, jit_path: str
    ) -> None: ...
    @property
    def target(self) -> str: ...
    @property
    def threads(self) -> int: ...
    def prepare(
        self,
        program: str,
        head_dim: int,
        value_dim: int,
        group: int,
        element: str,
        scan_bits: int,
        select_block: int,
        residuals: bool,
        selector: str,
        execution: str,
        centre: int,
        query_tokens: int,
        refined_max: bool,
        certificate: int,
    ) -> str: ...

class Cache:
    def __init__(
        self,
        runtime: Runtime,
        k: Any,
        v: Any,
        lengths: NDArray[np.int64] | None,
        scan_bits: int,
        residuals: bool,
        lag: int,
        centre: int,
    ) -> None: ...
    def decode(
        self,
        runtime: Runtime,
        q: Any,
        delta: NDArray[np.float32],
        sm_scale: float,
        select_block: int,
        splits: int,
        selector: str,
        execution: str,
        refined_max: bool,
        certificate: int,
    ) -> tuple[
        NDArray[np.float32], NDArray[np.float32], NDArray[np.uint8], NDArray[np.float32] | None
    ]: ...
    def scan(
        self,
        runtime: Runtime,
        q: Any,
        sm_scale: float,
        units: bool,
        scores: bool,
        refined_max: bool,
    ) -> tuple[
        NDArray[np.int32] | None,
        NDArray[np.float32],
        NDArray[np.float32] | None,
        NDArray[np.float32],
    ]: ...
    def selects(self, select_block: int) -> int: ...
    def bytes(self, kept: NDArray[np.uint8] | None) -> dict[str, int]: ...
    @property
    def batch(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def value_dim(self) -> int: ...
    @property
    def element(self) -> str: ...
    @property
    def scan_bits(self) -> int: ...
    @property
    def residuals(self) -> bool: ...
    @property
    def centred(self) -> bool: ...
    @property
    def centres(self) -> NDArray[np.uint16] | None: ...
    @property
    def lag(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def lengths(self) -> list[int]: ...

def exact(
    runtime: Runtime, q: Any, k: Any, v: Any, lengths: NDArray[np.int64] | None, sm_scale: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]: ...
def split(
    runtime: Runtime, k: Any, scan_bits: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint16], bool]: ...
def merge(
    outs: NDArray[np.float32], lses: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]: ...
def cuda_devices() -> tuple[int, str]: ...
def describe(
    capsule: Any, write: bool
) -> tuple[int, tuple[int, ...], tuple[int, ...], str, Any]: ...

class PagedContext:
    def __init__(
        self, ordinal: int, threads: int, kernel_dir: str, jit: bool, jit_path: str
    ) -> None: ...

class PagedCache:
    def __init__(
        self, context: PagedContext, options: dict[str, Any], bytes: int | None
    ) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def create(self, delta: float | None, stream: int) -> int: ...
    def free(self, sequence: int, stream: int) -> None: ...
    def fork(self, sequence: int, stream: int) -> int: ...
    def truncate(self, sequence: int, length: int, stream: int) -> None: ...
    def set_deltas(
        self, sequences: list[int], deltas: list[float], stream: int
    ) -> None: ...
    def reserve(self, sequences: list[int], tokens: list[int], stream: int) -> None: ...
    def advance(self, sequences: list[int], tokens: list[int]) -> None: ...
    def sequence(self, sequence: int) -> tuple[int, int, int]: ...
    def append(
        self,
        layer: int,
        count: int,
        sequences: list[int],
        tokens: list[int],
        device_sequences: int,
        device_offsets: int,
        k: int,
        v: int,
        k_strides: tuple[int, int],
        v_strides: tuple[int, int],
        stream: int,
    ) -> None: ...
    def decode(
        self,
        layer: int,
        count: int,
        sequences: list[int],
        deltas: list[float],
        device_sequences: int,
        q: int,
        strides: tuple[int, int],
        out: int,
        lse: int,
        skipped_lse: int,
        stream: int,
    ) -> None: ...
    def gather(
        self, layer: int, sequence: int, first: int, count: int, k: int, v: int, stream: int
    ) -> None: ...
    def keep(self, owner: Any, stream: int) -> None: ...
    def request_statistics(self, stream: int) -> None: ...
    def statistics(self) -> NDArray[np.uint64] | None: ...
    def errors(self) -> NDArray[np.int32]: ...
    def clear_errors(self) -> None: ...
    def save(self, sequence: int, path: str, stream: int) -> None: ...
    def load(self, path: str, stream: int) -> int: ...
    def info(self) -> tuple[int, int, int]: ...
    def fit(self, bytes: int) -> tuple[int, int]: ...
    def sizes(self) -> dict[str, int]: ...
