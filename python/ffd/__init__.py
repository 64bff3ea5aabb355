# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FFD: sparse decode attention over a split KV cache.

Every key is split into a thumbnail of 2, 4 or 8 bits and an 8-bit residual. A
decode scans the thumbnails, keeps the blocks whose best estimate comes within
`delta` (natural-log units) of a pseudo-max, and attends to those alone.

    import ffd
    cache = ffd.Cache(k, v)                # [batch, tokens, kv_heads, dim]
    result = cache.decode(q, delta=5.0)    # [batch, heads, dim]
    result.out, result.lse, result.kept

`ffd.PagedCache` is a KV cache that grows, on the CPU or a GPU.

docs/numerics.md defines every result, docs/python.md shows how to use this
package. What needs the compiled extension is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._cache import Cache as Cache
    from ._cache import ReadBytes as ReadBytes
    from ._cache import Result as Result
    from ._cache import Scan as Scan
    from ._cache import decode as decode
    from ._cache import exact as exact
    from ._paged import OutOfPages as OutOfPages
    from ._paged import OutOfSequences as OutOfSequences
    from ._paged import PagedCache as PagedCache
    from ._paged import Statistics as Statistics
    from ._runtime import Error as Error
    from ._runtime import Runtime as Runtime
    from ._runtime import cuda_devices as cuda_devices
    from ._runtime import default_runtime as default_runtime
    from ._split import Split as Split
    from ._split import merge as merge
    from ._split import reconstruct as reconstruct
    from ._split import split as split

__version__ = "0.1.0"

_MODULES = {
    "Cache": "_cache", "ReadBytes": "_cache", "Result": "_cache", "Scan": "_cache",
    "decode": "_cache", "exact": "_cache",
    "OutOfPages": "_paged", "OutOfSequences": "_paged", "PagedCache": "_paged",
    "Statistics": "_paged",
    "Error": "_runtime", "Runtime": "_runtime", "cuda_devices": "_runtime",
    "default_runtime": "_runtime",
    "Split": "_split", "merge": "_split", "reconstruct": "_split", "split": "_split",
}

__all__ = sorted([*_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'ffd' has no attribute '{name}'")
    value = getattr(import_module("." + _MODULES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
