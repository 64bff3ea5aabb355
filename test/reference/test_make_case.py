# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/make-case: the keep ratio it was asked for, the shapes ffd-run
expects, the label "synthetic", and messages for wrong options."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ffd_reference as ref
from tensorfile import TensorFile

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make-case"


def make(output: Path, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, str(SCRIPT), "-o", str(output), *options],
                          capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("options, shape", [
    (("--tokens=8192", "--kv-heads=2", "--keep=0.06"), (1, 1, 2, 4, 128, 128)),
    (("--tokens=8192", "--kv-heads=2", "--keep=0.06", "--pseudo-max=scan"), (1, 1, 2, 4, 128, 128)),
    (("--tokens=4000", "--kv-heads=1", "--batch=3", "--ragged", "--keep=0.25", "--dtype=bf16",
      "--head-dim=64", "--value-dim=96", "--group=7"), (3, 3, 1, 7, 64, 96)),
    (("--tokens=6000", "--kv-heads=1", "--batch=2", "--shared", "--keep=0.5", "--group=1",
      "--head-dim=80", "--delta=7", "--scan-bits=4"), (2, 1, 1, 1, 80, 80)),
])
def test_keep_ratio_and_shapes(options, shape, tmp_path):
    path = tmp_path / "case.safetensors"
    done = make(path, *options)
    assert done.returncode == 0, done.stderr
    file = TensorFile(path)
    q, k, v, lengths = (file[n] for n in ("q", "k", "v", "lengths"))
    B, sources, Hkv, G, D, Dv = shape
    T = k.values.shape[1]
    assert q.values.shape == (B, Hkv * G, D)
    assert k.values.shape == (sources, T, Hkv, D) and v.values.shape == (sources, T, Hkv, Dv)
    assert lengths.dtype == "I32" and lengths.values.max() == T
    assert file.metadata["synthetic"] == "yes" and "SYNTHETIC" in file.metadata["note"]
    given = dict(o[2:].split("=") for o in options if "=" in o)
    spec = ref.Spec(k.element, int(given.get("scan-bits", 2)), select_block=128,
                    delta=float(given.get("delta", 5)),
                    pseudo_max=given.get("pseudo-max", "refined"))
    got = ref.decode(q.values, k.values, v.values, lengths.values, spec)
    keep, asked = got.kept.sum() / (got.selectable.sum() * Hkv), float(given["keep"])
    assert abs(keep - asked) <= max(0.2 * asked, 128 / lengths.values.min())
    assert np.isfinite(got.o).all()


def test_same_seed_same_bytes(tmp_path):
    options = ("--tokens=700", "--kv-heads=1", "--keep=0.4")
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert make(tmp_path / name, *options, f"--seed={seed}").returncode == 0
    a, b, c = ((tmp_path / n).read_bytes() for n in "abc")
    assert a == b != c


@pytest.mark.parametrize("option", ("--keep=0", "--keep=2", "--head-dim=100", "--tokens=0", "--delta=-1"))
def test_wrong_options_are_named(option, tmp_path):
    done = make(tmp_path / "x", option)
    assert done.returncode != 0 and option.split("=")[0] in done.stderr
    assert "Traceback" not in done.stderr
