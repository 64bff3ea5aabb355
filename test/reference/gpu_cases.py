# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decode cases whose results a GPU recorded (scripts/record-gpu): small, and
the same on every machine and with every numpy, because their numbers come from
integers alone. Every input is exact in f16 and in bf16.
"""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elements import BF16, F16, Element
from ffd_reference import Spec
from tensorfile import Tensor, half, plain


def mixed(stream: str, count: int) -> np.ndarray:
    """`count` uint64 without structure; `stream` names the sequence."""
    seed = int.from_bytes(hashlib.sha256(stream.encode()).digest()[:8], "little")
    with np.errstate(over="ignore"):  # splitmix64
        x = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def bells(stream: str, shape: tuple[int, ...]) -> np.ndarray:
    """Integers from -126 to 126, roughly normal with deviation 37: the sum of
    four six-bit numbers."""
    x = mixed(stream, int(np.prod(shape)))
    parts = [(x >> np.uint64(16 * i)) & np.uint64(63) for i in range(4)]
    return (sum(p.astype(np.int64) for p in parts) - 126).astype(np.float32).reshape(shape)


@dataclass(frozen=True)
class GpuCase:
    """One call of ffd-run. `splits` is given: the kernel's own choice depends on
    the device."""

    name: str
    head_dim: int
    value_dim: int
    group: int
    element: Element
    scan_bits: int
    select_block: int
    lengths: tuple[int, ...]
    delta: float
    splits: int
    kv_heads: int = 1
    lag: int = 0

    @property
    def spec(self) -> Spec:
        return Spec(self.element, self.scan_bits, select_block=self.select_block,
                    delta=self.delta, lag=self.lag)

    def inputs(self) -> dict[str, np.ndarray]:
        """q, k, v as float32 and lengths; channels differ in scale, and some
        tokens score well above the others."""
        B, T, D = len(self.lengths), max(1, *self.lengths), self.head_dim
        Hq = self.kv_heads * self.group
        power = (mixed(self.name + " channels", D) % np.uint64(3)).astype(np.float32) - 1
        k = bells(self.name + " k", (B, T, self.kv_heads, D)) * np.float32(2) ** (power - 6)
        q = bells(self.name + " q", (B, Hq, D)) * np.float32(2) ** (-3 - power)
        # Eight tokens look like the first query of their head: their channels
        # are its integers, or zero.
        for b, length in enumerate(self.lengths):
            for t in mixed(f"{self.name} hits {b}", 8) % np.uint64(max(1, length)):
                for h in range(self.kv_heads):
                    like = q[b, h * self.group] * np.float32(2) ** (2 * power - 2)
                    keep = mixed(f"{self.name} {b} {t} {h}", D) % np.uint64(4) == 0
                    k[b, int(t), h] = np.where(keep, like, k[b, int(t), h])
        v = bells(self.name + " v", (B, T, self.kv_heads, self.value_dim)) * np.float32(2.0 ** -6)
        return {"q": q, "k": k, "v": v, "lengths": np.array(self.lengths, np.int32)}

    def tensors(self) -> dict[str, Tensor]:
        given = self.inputs()
        for name in "qkv":  # that nothing depends on rounding
            if (self.element.round(given[name]) != given[name]).any():
                raise AssertionError(f"{self.name}: {name} is not exact in {self.element.name}")
        return {name: half(x, self.element) if name != "lengths" else plain(x)
                for name, x in given.items()}

    def digest(self) -> str:
        """Of the inputs: what a record must belong to."""
        sha = hashlib.sha256()
        for name, tensor in self.tensors().items():
            sha.update(name.encode() + tensor.values.astype("<f4").tobytes())
        return sha.hexdigest()[:16]

    def options(self) -> list[str]:
        """Of ffd-run, apart from files and target."""
        return [f"--delta={self.delta!r}", f"--select-block={self.select_block}",
                f"--scan-bits={self.scan_bits}", f"--splits={self.splits}", f"--lag={self.lag}",
                "--pseudo-max=scan"]


def kernel_digest(run: str | Path, case: GpuCase) -> str:
    """Of the PTX that the ffd-compile next to `run` makes for a case."""
    done = subprocess.run(
        [str(Path(run).with_name("ffd-compile")), "--arch=sm_90a", "--emit=ptx", "-o", "-",
         f"--head-dim={case.head_dim}", f"--value-dim={case.value_dim}", f"--group={case.group}",
         f"--kv-type={case.element.name}", f"--scan-bits={case.scan_bits}",
         f"--select-block={case.select_block}", "--pseudo-max=scan"], capture_output=True, text=True, check=True)
    return hashlib.sha256(done.stdout.encode()).hexdigest()[:16]


CASES = [
    GpuCase("d64", 64, 64, 4, F16, 2, 16, (700, 300), 1.0, 2),
    GpuCase("d64-bf16", 64, 64, 3, BF16, 2, 32, (513,), 1.0, 1),
    GpuCase("d80", 80, 80, 2, F16, 2, 16, (640, 127), 3.0, 2),
    GpuCase("d96-b4", 96, 96, 8, F16, 4, 64, (900,), 0.0, 3),
    GpuCase("d128", 128, 128, 4, F16, 2, 16, (2300, 5), 1.5, 2),
    GpuCase("d128-bf16", 128, 128, 4, BF16, 2, 16, (1000,), 1.0, 2),
    GpuCase("d128-b8", 128, 64, 1, F16, 8, 128, (1024, 129), 1.0, 1, kv_heads=2),
    GpuCase("d128-g16", 128, 128, 16, F16, 2, 32, (800,), 0.5, 2),
    GpuCase("d128-lag", 128, 128, 8, BF16, 4, 16, (900, 0), 0.5, 3, lag=200),
    GpuCase("d192", 192, 128, 5, F16, 2, 16, (777,), 0.75, 2),
    GpuCase("d256", 256, 256, 2, BF16, 8, 64, (650,), 1.0, 1),
    GpuCase("all", 64, 64, 4, F16, 2, 16, (600,), float("inf"), 2),
]
