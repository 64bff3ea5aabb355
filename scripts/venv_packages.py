# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""For scripts that need packages of requirements.txt, which scripts/install-deps
puts into .venv and not into the interpreter that '#!' finds.
"""
import importlib.util
import os
import sys
from pathlib import Path

VENV = Path(__file__).resolve().parent.parent / ".venv"


def need(*packages: str) -> None:
    """Continues the script in .venv if this interpreter lacks one of them."""
    missing = [name for name in packages if not importlib.util.find_spec(name)]
    if not missing:
        return
    python = VENV / "bin" / "python"
    if os.access(python, os.X_OK) and not os.path.samefile(sys.prefix, VENV):
        os.execv(python, [str(python), *sys.argv])
    sys.exit(f"{Path(sys.argv[0]).name}: error: no Python package {', '.join(missing)}; "
             "run scripts/install-deps")
