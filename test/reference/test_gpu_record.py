# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The emulator against a real GPU: single instructions and whole decodes that
scripts/record-gpu recorded (test/data/README.md says on which device).

FFD_RUN is the ffd-run binary, next to ffd-emulate (unset: skipped).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from elements import F16
from gpu_cases import CASES, kernel_digest
from gpu_probes import PROBES
from measures import lse_errors
from tensorfile import TensorFile, save

RUN = os.environ.get("FFD_RUN")
DATA = Path(__file__).resolve().parent.parent / "data"

pytestmark = pytest.mark.skipif(not RUN, reason="FFD_RUN does not name an ffd-run binary")


def record(name: str) -> TensorFile:
    return TensorFile(DATA / f"gpu-{name}.safetensors")


def call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\nexit {done.returncode}\n{done.stderr[-2000:]}"
    return done.stdout


def emulate(probe, folder: Path) -> np.ndarray:
    """What the emulator computes, as uint32 [threads, out]."""
    words = np.ascontiguousarray(probe.words())
    source, kernel = folder / "words", folder / "probe.mlir"
    source.write_bytes(words.tobytes())
    kernel.write_text(probe.mlir())
    count = len(words) * probe.out
    out = call(str(Path(RUN).with_name("ffd-emulate")), str(kernel), "--kernel=probe",
               "--tensor-cores=hopper", f"--grid={probe.warps}", f"--arg=~i32[{words.size}]=@{source}",
               f"--arg=>x32[{count}]")
    return np.array([int(w, 16) for w in out.split()], np.uint32).reshape(-1, probe.out)


def ordered(bits: np.ndarray) -> np.ndarray:
    """Integers in the order of the floats, so that differences count ulps."""
    x = bits.astype(np.int64)
    return np.where(x & 0x80000000, -(x & 0x7FFFFFFF), x)


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Distance of f32 bits; NaN is NaN, and nothing else is."""
    a, b = got.view(np.float32), want.view(np.float32)
    gap = np.abs(ordered(got) - ordered(want))
    return np.where(np.isnan(a) & np.isnan(b), 0, np.where(np.isnan(a) | np.isnan(b), 1 << 31, gap))


# How far the emulator may be off: approximations of the GPU are not the host's.
# ex2.approx was seen 2 units apart; lg2.approx is off absolutely where it is
# small, by at most 2^-22 according to the manual, and so is the host's by less.
def allowed(probe, got: np.ndarray, want: np.ndarray) -> np.ndarray:
    if probe.name == "ex2":
        return ulps(got, want) <= 2
    if probe.name == "lg2":
        a, b = got.view(np.float32), want.view(np.float32)
        return (ulps(got, want) <= 2) | (np.abs(a - b) <= 2.0 ** -21)
    return got == want


@pytest.mark.parametrize("probe", PROBES, ids=lambda p: p.name)
def test_instruction(probe, tmp_path):
    """To the last bit: tensor cores on integers and floats, fragments, 16-bit
    arithmetic, permutations. Within a bound: approximations."""
    file = record("instructions")
    assert file.metadata["capability"] == "9.0", "the emulator's sums are those of Hopper here"
    want = file[probe.name].values.view(np.uint32)
    with np.errstate(invalid="ignore"):
        wrong = ~allowed(probe, emulate(probe, tmp_path), want)
    assert not wrong.any(), f"{int(wrong.sum())} of {wrong.size} words differ, first in thread {np.argwhere(wrong)[0][0]}"


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_decode(case, tmp_path):
    """Kept sets are identical. With the very kernel of the record, outputs
    differ by what ex2.approx and lg2.approx do; another kernel may add in
    another order and round weights elsewhere (attend_c2)."""
    file = record("decode")
    assert case.digest() == file.metadata[case.name], "the inputs are not those of the record"
    source, output = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    save(source, case.tensors())
    call(str(RUN), f"--input={source}", f"--output={output}", "--target=emulate", "--arch=sm_90a",
         *case.options())
    got = TensorFile(output)
    o, lse, kept = ((got[n].values, file[f"{case.name}.{n}"].values) for n in ("o", "lse", "kept"))
    assert (kept[0] == kept[1]).all()
    same = kernel_digest(RUN, case) == json.loads((DATA / "gpu-kernels.json").read_text())[case.name]
    # Per head, of its largest number: 2^-22 was seen, 2^-11 is the unit to which
    # a weight is rounded.
    relative, absolute = (2.0 ** -20, 2.0 ** -19) if same else (2.0 ** -8 if case.element is F16 else 2.0 ** -5, 2.0 ** -8)
    size = np.abs(o[1]).max(axis=-1)
    gap = np.abs(o[0].astype(np.float64) - o[1]).max(axis=-1)
    assert (gap <= relative * size).all(), f"o is off by {np.max(gap / np.where(size > 0, size, 1)):.1e} of its size"
    assert (lse_errors(*lse) <= absolute).all(), f"lse is off by {lse_errors(*lse).max():.1e}"
