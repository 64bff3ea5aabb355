# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The interface of all methods, and their textual form `name:key=value,...`."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ..problem import Outcome, Problem


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to attend. Fields of a subclass are its parameters."""

    name: ClassVar[str]
    paper: ClassVar[str]

    def run(self, problem: Problem) -> Outcome:
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The form parse() reads: parameters that differ from the default."""
        given = [f"{f.name}={_shown(getattr(self, f.name))}" for f in dataclasses.fields(self)
                 if getattr(self, f.name) != f.default]
        return self.name + (":" + ",".join(given) if given else "")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _value(text: str, default: object, what: str) -> object:
    if isinstance(default, bool):
        if text in ("True", "true", "1", "False", "false", "0"):
            return text in ("True", "true", "1")
        raise ValueError(f"{what}={text}: expected true or false")
    if isinstance(default, str):
        return text
    kind = int if isinstance(default, int) else float
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{what}={text}: expected {'an integer' if kind is int else 'a number'}"
                         ) from None


def build(kind: type[Method], arguments: str) -> Method:
    """An instance from "key=value,..."."""
    known = {f.name: f.default for f in dataclasses.fields(kind)}
    given: dict[str, object] = {}
    for item in filter(None, arguments.split(",")):
        key, equals, text = item.partition("=")
        if not equals or key not in known:
            raise ValueError(f"method '{kind.name}' has no parameter '{item}': expected "
                             f"{', '.join(f'{k}=..' for k in known) or 'none'}")
        given[key] = _value(text, known[key], f"{kind.name}:{key}")
    return kind(**given)


def check(condition: bool, what: str, value: object, expected: str) -> None:
    if not condition:
        raise ValueError(f"{what}={value}: expected {expected}")
