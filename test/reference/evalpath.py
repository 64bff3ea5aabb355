# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes ffd.eval of this tree importable, whether or not the compiled part of
the package is installed."""
import importlib
import sys
from pathlib import Path

SOURCE = str(Path(__file__).resolve().parent.parent.parent / "python")

try:
    import ffd
except ImportError:
    sys.path.insert(0, SOURCE)
    import ffd
if f"{SOURCE}/ffd" not in ffd.__path__:
    ffd.__path__.insert(0, f"{SOURCE}/ffd")
importlib.import_module("ffd.eval")
