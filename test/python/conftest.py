# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of the Python package against the float64 reference of
test/reference. PYTHONPATH names the folder of the package (build/python)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "reference"))

import ffd  # noqa: E402


@pytest.fixture(scope="session")
def runtime():
    """One thread: several test workers share the machine."""
    return ffd.Runtime(threads=1)
