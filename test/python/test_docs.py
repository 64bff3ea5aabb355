# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The examples of docs/python.md run, one after the other."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(os.environ.get("FFD_DOCS", Path(__file__).parents[2] / "docs")) / "python.md"


@pytest.mark.skipif(not PAGE.exists(), reason=f"no {PAGE}")
def test_examples():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    result, reference = names["result"], names["reference"]
    assert result.out.shape == reference.out.shape == (2, 8, 64)
    assert np.abs(names["keys"] - names["k"][:, :896]).max() < 0.02
    assert np.abs(names["out"] - ffd_exact(names)).max() < 5e-3


def ffd_exact(names: dict) -> np.ndarray:
    return names["ffd"].exact(names["q"], names["k"], names["v"]).out
