# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random decode cases for the property tests: a seed makes a shape, a spec and
the tensors. Small, but every branch of the numerics page is somewhere in them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from elements import ELEMENTS, Element
from ffd_reference import Result, Spec, decode
from tensorfile import half, plain, save

HEAD_DIMS = (64, 80, 96, 128, 192, 256)
KINDS = ("plain", "offset", "small", "zeros", "integers")


@dataclass
class Case:
    """Inputs of one call; what is not given to `draw` follows from the seed."""

    seed: int
    head_dim: int
    value_dim: int
    kv_heads: int
    group: int
    shared: bool  # k, v with B = 1
    lengths: list[int]
    element: Element
    scan_bits: int
    select_block: int
    delta: float
    deviation: float  # of the scores, natural log
    kind: str  # of numbers
    planted: bool  # some tokens score far above the others
    q: np.ndarray = field(repr=False)
    k: np.ndarray = field(repr=False)
    v: np.ndarray = field(repr=False)
    pseudo_max: str = "scan"

    @property
    def spec(self) -> Spec:
        return Spec(self.element, self.scan_bits, select_block=self.select_block, delta=self.delta,
                    pseudo_max=self.pseudo_max)

    def reference(self, dense: bool = False) -> Result:
        return decode(self.q, self.k, self.v, np.array(self.lengths), self.spec, dense)

    def poison(self) -> None:
        """NaN beyond every length: nothing there may be read."""
        ends = [max(self.lengths)] if self.shared else self.lengths
        for source, end in enumerate(ends):
            self.k[source, end:] = np.nan
            self.v[source, end:] = np.nan

    def write(self, path: Path) -> None:
        save(path, {"q": half(self.q, self.element), "k": half(self.k, self.element),
                    "v": half(self.v, self.element),
                    "lengths": plain(np.array(self.lengths, np.int32))},
             {"synthetic": "yes", "seed": str(self.seed)})

    def describe(self) -> str:
        shown = {f.name: getattr(self, f.name) for f in fields(self) if f.repr}
        shown["element"] = self.element.name
        return ", ".join(f"{name}={value}" for name, value in shown.items())


def some_length(rng: np.random.Generator, most: int) -> int:
    """Mostly long, often at the edge of a block or next to one; sometimes very
    short or nothing."""
    if rng.random() < 0.15:
        return int(rng.choice((0, 1, rng.integers(2, 128))))
    length = int(rng.integers(most // 3, most + 1))
    if rng.random() < 0.4:
        length = length // 128 * 128 + int(rng.integers(-1, 2))
    return min(max(length, 0), most)


def keys(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    D = shape[-1]
    k = rng.normal(size=shape) * np.exp(0.3 * rng.normal(size=D))
    if kind == "offset":  # outlier channels with a mean of their own
        k[..., rng.choice(D, D // 16, replace=False)] += 6 * rng.choice((-1, 1), D // 16)
    elif kind == "zeros":  # channels and whole stretches without content
        k[..., rng.choice(D, D // 8, replace=False)] = 0
        k[:, 128:256] = 0
    elif kind == "integers":  # many ties
        k = np.rint(k)
    return k


def draw(seed: int, **given) -> Case:
    """The case of a seed; keyword arguments replace what it would draw."""
    rng = np.random.default_rng(seed)
    options = dict(
        head_dim=int(rng.choice(HEAD_DIMS)), kv_heads=int(rng.integers(1, 4)),
        group=int(rng.integers(1, 17)), shared=bool(rng.random() < 0.4),
        element=ELEMENTS[str(rng.choice(list(ELEMENTS)))],
        scan_bits=int(rng.choice((2, 2, 4, 8))), select_block=int(rng.choice((16, 32, 64, 128))),
        delta=float(np.float32(rng.choice((0.0, 2.0, 5.0, np.inf, *rng.uniform(0, 8, 4))))),
        deviation=float(rng.choice((1.0, 2.0, 3.0))), kind=str(rng.choice(KINDS)),
        planted=bool(rng.random() < 0.7))
    sequences = int(rng.integers(1, 5))
    most = int(rng.choice((400, 900, 1800)))
    options["lengths"] = [some_length(rng, most) for _ in range(sequences)]
    options.update(given)
    options.setdefault("value_dim", int(options["head_dim"] if rng.random() < 0.6
                                        else rng.choice(HEAD_DIMS)))
    element, kind = options["element"], options["kind"]
    D, Dv, Hkv, G = (options[n] for n in ("head_dim", "value_dim", "kv_heads", "group"))
    B = len(options["lengths"])
    T = max(1, max(options["lengths"]) + int(rng.integers(0, 40)))
    sources = 1 if options["shared"] else B

    k = keys(rng, kind, (sources, T, Hkv, D))
    q = rng.normal(size=(B, Hkv, G, D)) * np.exp(0.3 * rng.normal(size=D))
    if options["planted"]:  # heads look for the same, and find it here and there
        q += 1.5 * rng.normal(size=(1, Hkv, 1, D))
    q *= options["deviation"] / np.sqrt((q ** 2).sum(axis=-1, keepdims=True) * k.var() / D)
    if options["planted"]:
        aim = q.mean(axis=(0, 2))  # [Hkv, D]
        aim *= np.sqrt(k.var() / (aim ** 2).sum(axis=-1, keepdims=True))
        k[:, 0] += 6 * aim
        for _ in range(6):
            k[:, int(rng.integers(T))] += rng.uniform(3, 7) * aim
    if kind == "small":  # keys near the smallest normal f16, queries to match
        k, q = k * 2.0 ** -12, q * 2.0 ** 12
    v = rng.normal(size=(sources, T, Hkv, Dv)) + rng.normal(size=Dv)
    rounded = [element.round(x.astype(np.float32)) for x in (q.reshape(B, -1, D), k, v)]
    return Case(seed, q=rounded[0], k=rounded[1], v=rounded[2], **options)
