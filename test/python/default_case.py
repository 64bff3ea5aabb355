# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random cases whose specification is what calls without further arguments do."""

from __future__ import annotations

import cases


def draw(seed: int, **given) -> cases.Case:
    """The case of a seed, with a refined pseudo-max unless said otherwise."""
    return cases.draw(seed, **{"pseudo_max": "refined", **given})
