# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of the Python package against the float64 reference of
test/reference. PYTHONPATH names the folder of the package (build/python),
FFD_TARGET where to decode (default cpu)."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "reference"))

import ffd  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "cpu: what only kernels for the CPU have")


@pytest.fixture(scope="session")
def runtime():
    """One thread: several test workers share the machine."""
    return ffd.Runtime(os.environ.get("FFD_TARGET", "cpu"), threads=1)


@pytest.fixture(autouse=True)
def only_on_the_cpu(request):
    """Tests marked so do not apply to another target."""
    if request.node.get_closest_marker("cpu") and os.environ.get("FFD_TARGET", "cpu") != "cpu":
        pytest.skip("only kernels for the CPU have this")
