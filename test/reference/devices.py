# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ffd.eval's methods can run on here: numpy, and torch's devices."""
from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import evalpath  # noqa: F401
from ffd.eval.arrays import host
from ffd.eval.problem import Outcome, Problem

DEVICES = ["numpy"]
try:
    import torch
    DEVICES += ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
except ImportError:
    torch = None


def on_device(x: np.ndarray, device: str) -> Any:
    return x if device == "numpy" else torch.tensor(x, device=device)


def moved(p: Problem, device: str) -> Problem:
    """The problem on a device; what methods store for it stays with the original."""
    q, k, v = (on_device(x, device) for x in (p.q, p.k, p.v))
    return Problem(q, k, v, p.lengths, p.layer, p.head, p.element, p.want_estimates, p.store,
                   p.fixed)


def outcome(out: Outcome) -> Outcome:
    """The same in numpy."""
    fields = {f.name: getattr(out, f.name) for f in dataclasses.fields(out)}
    return Outcome(**{name: None if x is None else host(x) for name, x in fields.items()})
