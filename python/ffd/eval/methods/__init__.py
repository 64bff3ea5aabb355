# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All methods by name."""

from __future__ import annotations

from .base import Method, build
from .ffd import FFD
from .kivi import Kivi
from .quest import Quest
from .simple import Exact, Oracle, Streaming
from .sparq import SparQ
from .twilight import Twilight

METHODS: dict[str, type[Method]] = {
    kind.name: kind for kind in (Exact, FFD, Quest, Twilight, SparQ, Streaming, Kivi, Oracle)}


def parse(text: str) -> Method:
    """A method from `name` or `name:key=value,key=value`."""
    name, _, arguments = text.strip().partition(":")
    if name not in METHODS:
        raise ValueError(f"unknown method '{name}': expected one of {', '.join(METHODS)}")
    return build(METHODS[name], arguments)


__all__ = ["METHODS", "Method", "parse", *(kind.__name__ for kind in METHODS.values())]
