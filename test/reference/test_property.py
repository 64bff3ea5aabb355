# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Property tests: ffd-run against the float64 reference over random shapes,
lengths, deltas, element types, head dims, groups and block sizes.

FFD_RUN is the ffd-run binary (unset: skipped), FFD_TARGET its target (default
cpu), FFD_SEED repeats the fresh part of an earlier run: its seed is in the name
of every test that failed.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from pathlib import Path

import numpy as np
import pytest

from cases import HEAD_DIMS, Case, draw
from check_run import check, compare
from elements import BF16, F16
from ffd_reference import Spec, pseudo_max, rows_of, tail_scores
from tensorfile import TensorFile

RUN = os.environ.get("FFD_RUN")
TARGET = os.environ.get("FFD_TARGET", "cpu")
FRESH = int(os.environ.get("FFD_SEED") or secrets.randbits(31))
SLICE = Path(__file__).resolve().parent.parent / "data" / "smollm2-slice.safetensors"

pytestmark = pytest.mark.skipif(not RUN, reason="FFD_RUN does not name an ffd-run binary")


def run(source: Path, output: Path, spec: Spec) -> None:
    command = [str(RUN), f"--input={source}", f"--output={output}", f"--delta={spec.delta!r}",
               f"--select-block={spec.select_block}", f"--scan-bits={spec.scan_bits}",
               f"--pseudo-max={spec.pseudo_max}", f"--target={TARGET}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\nexit {done.returncode}\n{done.stderr[-2000:]}"


def results(case: Case, tmp_path: Path, name: str = "result") -> list[np.ndarray]:
    """o, lse, kept as ffd-run computes them."""
    source, output = tmp_path / f"{name}.in.safetensors", tmp_path / f"{name}.safetensors"
    case.write(source)
    run(source, output, case.spec)
    file = TensorFile(output)
    tensors = [file[n] for n in ("o", "lse", "kept")]
    assert [t.dtype for t in tensors] == ["F32", "F32", "U8"]
    return [t.values for t in tensors]


def verify(case: Case, tmp_path: Path, dense: bool = False) -> None:
    got = results(case, tmp_path)
    exact = case.reference(dense=True) if dense else None
    verdict = compare(*got, case.reference(), case.spec, dense=exact)
    assert not verdict.problem, f"{verdict.problem}\n{case.describe()}"


# --- Random cases ---------------------------------------------------------------

@pytest.mark.parametrize("seed", range(32))
def test_fixed(seed, tmp_path):
    # Head dims and groups go round, so that each of them occurs.
    case = draw(seed, head_dim=HEAD_DIMS[seed % 6], group=1 + seed % 16)
    case.poison()
    verify(case, tmp_path)


@pytest.mark.parametrize("seed", range(FRESH, FRESH + 8))
def test_fresh(seed, tmp_path):
    case = draw(seed)
    case.poison()
    verify(case, tmp_path)


@pytest.mark.parametrize("element", (F16, BF16), ids=lambda e: e.name)
@pytest.mark.parametrize("scan_bits", (2, 4, 8))
def test_infinite_delta_is_dense(element, scan_bits, tmp_path):
    case = draw(100 + scan_bits, element=element, scan_bits=scan_bits, delta=np.inf,
                deviation=1.0, kind="plain", planted=False, lengths=[700, 129, 300])
    verify(case, tmp_path, dense=True)


def delta_of(units: int, F: np.float32) -> float:
    """A float32 delta with ceil(delta / F) = units, in the middle of such."""
    delta = np.float32((units - 0.5) * float(F))
    assert np.ceil(delta / F) == units
    return float(delta)


@pytest.mark.parametrize("seed", range(500, 516))
def test_threshold_to_the_unit(seed, tmp_path):  # tail_c1, select_c1, select_c2
    # The pseudo-max comes from the tail, from a key whose score in units depends
    # on the order of the sum; the best token of one block lies exactly on the
    # threshold, then one unit below it.
    case = draw(seed, kv_heads=1, group=1, lengths=[600], scan_bits=(4, 2)[seed % 2], delta=0.0,
                select_block=16, kind="plain", planted=False, shared=False)
    aim = case.q[0, 0] / np.linalg.norm(case.q[0, 0])
    aim *= np.float32(8 * np.sqrt(case.k.var()))
    (_, _, row), = rows_of(case.q, case.k, case.v, np.array([600]), case.spec)
    noise = np.random.default_rng(seed).normal(size=(4000, case.head_dim)).astype(np.float32)
    tries = case.element.round(aim * (1 + noise / 64))
    exact = (tries.astype(np.float64) @ case.q[0, 0]) * float(row.sm_scale)
    ordered = tail_scores(case.q[:, :1], tries, row.sm_scale)[0, 0]
    F = row.scores.query.F[0, 0]
    differs = np.floor(ordered / F) != np.floor(exact.astype(np.float32) / F)
    case.k[0, 590, 0] = tries[np.argmax(differs)]
    (_, _, row), = rows_of(case.q, case.k, case.v, np.array([600]), case.spec)
    best = row.scores.a_int.reshape(-1, 16).max(axis=1)
    units = int(pseudo_max(row.scores)[0, 0]) - int(np.sort(best)[len(best) // 2])
    counts = []
    for below in (0, 1):
        case.delta = delta_of(units - below, F)
        counts.append(int(case.reference().kept.sum()))
        verify(case, tmp_path)
    assert counts[0] > counts[1] >= 1


@pytest.mark.parametrize("seed", range(540, 544))
def test_scores_far_below_the_pseudo_max(seed, tmp_path):  # attend_c2
    # Noise of the scan puts the pseudo-max so far above all scores that every
    # weight against it would be zero. No tail, whose scores are exact.
    case = draw(seed, group=4, lengths=[512, 256], scan_bits=2, delta=5.0, deviation=400.0,
                kind="plain", planted=False, shared=False)
    lse = case.reference().lse.reshape(2, case.kv_heads, 4)
    gaps = [pseudo_max(row.scores) * row.scores.query.F - lse[some, head] for some, head, row in
            rows_of(case.q, case.k, case.v, np.array(case.lengths), case.spec)]
    assert np.max(gaps) > 100
    verify(case, tmp_path)


# --- Lengths ----------------------------------------------------------------------

@pytest.mark.parametrize("lengths", ([0], [0, 0, 5], [1], [127, 128, 129], [384]), ids=str)
@pytest.mark.parametrize("shared", (False, True), ids=("own", "shared"))
def test_lengths(lengths, shared, tmp_path):  # attend_c3
    case = draw(200, lengths=lengths, shared=shared, delta=3.0, kind="plain")
    case.poison()
    verify(case, tmp_path)


def test_beyond_a_length_nothing_is_read(tmp_path):
    case = draw(201, lengths=[300, 140], shared=False, delta=4.0, planted=True)
    clean = results(case, tmp_path, "clean")
    case.poison()
    poisoned = results(case, tmp_path, "poisoned")
    assert all((a.view(np.uint8) == b.view(np.uint8)).all() for a, b in zip(clean, poisoned))


@pytest.mark.parametrize("seed", (300, 301))
def test_same_call_same_bits(seed, tmp_path):  # attend_c4
    case = draw(seed, lengths=[1100, 600], deviation=2.0, delta=3.0, planted=True)
    first = results(case, tmp_path, "first")
    for repetition in range(3):
        again = results(case, tmp_path, f"again{repetition}")
        assert all((a.view(np.uint8) == b.view(np.uint8)).all() for a, b in zip(first, again))


# --- Numbers that are not finite -----------------------------------------------------

BAD = pytest.mark.parametrize("bad", (np.nan, np.inf, -np.inf), ids=str)
BOTH = pytest.mark.parametrize("element", (F16, BF16), ids=lambda e: e.name)


def special(element) -> Case:
    return draw(400, element=element, head_dim=64, kv_heads=2, group=3, shared=False,
                lengths=[400, 290], delta=1.0, kind="plain", deviation=1.5, planted=True)


@BAD
@BOTH
def test_bad_query(bad, element, tmp_path):  # query_c5: the row keeps everything
    case = special(element)
    case.q[0, 1, 17] = bad
    got = case.reference()
    assert got.kept[0, 0].all() and np.isnan(got.o[0, 1]).all() and np.isfinite(got.o[0, [0, 2]]).all()
    verify(case, tmp_path)


@BAD
@BOTH
def test_bad_committed_key(bad, element, tmp_path):  # split_c3: NaN scale
    case = special(element)
    case.k[0, 200, 1, 9] = bad
    assert np.isnan(case.reference().o[0, 3:]).all()
    verify(case, tmp_path)


@BAD
@BOTH
def test_bad_tail_key(bad, element, tmp_path):  # select_c3: everything is kept
    case = special(element)
    case.k[0, 399, 1, 9] = bad
    assert case.reference().kept[0, 1].all()
    verify(case, tmp_path)


@BAD
@BOTH
def test_bad_value(bad, element, tmp_path):
    case = special(element)
    case.v[0, 395, 0, 5] = bad  # in the tail, which is always attended
    case.v[1, 100, 1, 6] = bad  # attended only where its block is kept
    assert not np.isfinite(case.reference().o[0, :3, 5]).any()
    verify(case, tmp_path)


@BOTH
@pytest.mark.parametrize("name", "qkv")
def test_all_zero(name, element, tmp_path):  # query_c2, split_c4: s = 0, F = 0
    case = special(element)
    getattr(case, name)[...] = 0
    verify(case, tmp_path)


# --- Real data -------------------------------------------------------------------------

@pytest.mark.parametrize("select_block", (16, 128))
@pytest.mark.parametrize("delta", (5.0, 7.0))
def test_slice_of_a_model(delta, select_block, tmp_path):
    spec = Spec(delta=delta, select_block=select_block)
    run(SLICE, tmp_path / "slice.safetensors", spec)
    problems = {v.layer: v.problem for v in check(SLICE, tmp_path / "slice.safetensors", spec)
                if v.problem}
    assert not problems
