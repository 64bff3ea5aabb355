# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The examples of docs/python.md run, one after the other."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

import ffd

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
    paged = names["paged"]
    assert names["answer"].shape == (2, 8, 64) and paged.length(names["other"]) == 256
    assert paged.pages - paged.pages_free == 4


@pytest.mark.skipif(not ffd.cuda_devices()[0], reason="no GPU")
def test_examples_on_a_gpu():
    pytest.importorskip("torch")
    blocks = re.findall(r"^```python torch\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        names: dict = {"ffd": ffd}
        exec(compile(block, str(PAGE), "exec"), names)
        assert np.isfinite(names["answer"].numpy()).all()


def ffd_exact(names: dict) -> np.ndarray:
    return names["ffd"].exact(names["q"], names["k"], names["v"]).out
