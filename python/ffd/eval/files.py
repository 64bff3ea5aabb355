# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that users name."""

from __future__ import annotations

import stat
from pathlib import Path


def regular_file(path: str | Path) -> Path:
    """The path of a file to read. A pipe would block and a device never end, so what is
    there must be a regular file; what is missing is an OSError of whoever opens it."""
    path = Path(path)
    if path.exists() and not path.is_file():
        mode = path.stat().st_mode
        kind = ("folder" if stat.S_ISDIR(mode) else "pipe" if stat.S_ISFIFO(mode) else
                "socket" if stat.S_ISSOCK(mode) else "device")
        raise ValueError(f"'{path}' is a {kind}, expected a regular file")
    return path
