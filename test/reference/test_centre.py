# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Centred keys: the reference against exact arithmetic, and ffd-run against the
reference over random shapes, lengths, lags and bad numbers.

FFD_RUN is the ffd-run binary (unset: skipped), FFD_TARGET its target (default
cpu), FFD_SEED repeats the fresh part.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import ffd_reference as ref
import scalar
from cases import HEAD_DIMS, Case, draw
from check_run import compare
from elements import BF16, ELEMENTS, F16
from tensorfile import TensorFile
from test_property import SLICE

RUN = os.environ.get("FFD_RUN")
TARGET = os.environ.get("FFD_TARGET", "cpu")
FRESH = int(os.environ.get("FFD_SEED") or secrets.randbits(31))
BOTH = pytest.mark.parametrize("element", (F16, BF16), ids=lambda e: e.name)
needs_run = pytest.mark.skipif(not RUN, reason="FFD_RUN does not name an ffd-run binary")


# --- The reference ------------------------------------------------------------

def nearest_f32(x: Fraction) -> Fraction:
    """Of the sums of 16-bit numbers here, which neither overflow nor underflow."""
    return Fraction(float(np.float32(float(x)))) if x else x


@BOTH
def test_centre_is_exact(element):  # centre_c1, centre_c3
    rng = np.random.default_rng(7)
    k = element.round((rng.normal(size=(256, 9)) * np.exp(2 * rng.normal(size=9))
                       + 9 * rng.normal(size=9)).astype(np.float32))
    spec = ref.Spec(element, centre="row")
    c = ref.centre_of(k, spec)
    for channel in range(k.shape[1]):
        p = [Fraction(0)] * 8
        for t in range(128):
            p[t % 8] = nearest_f32(p[t % 8] + Fraction(float(k[t, channel])))
        for width in (4, 2, 1):
            p = [nearest_f32(p[i] + p[i + width]) for i in range(width)]
        mean = scalar.rounded(p[0] / 128, element.name)
        assert Fraction(float(c[channel])) == mean
        d = [scalar.rounded(nearest_f32(Fraction(float(x)) - mean), element.name)
             for x in k[:, channel]]
        assert [Fraction(float(x)) for x in ref.centred(k, c, spec)[:, channel]] == d


@BOTH
def test_bad_channels_have_no_centre(element):  # centre_c1
    k = np.ones((128, 64), np.float32)
    k[5, 3], k[7, 4] = np.nan, np.inf
    k[[1, 2], 6] = np.inf, -np.inf
    k[:, 8] = element.decode(np.array([0x7BFF if element is F16 else 0x7F7F], np.uint16))
    c = ref.centre_of(k, ref.Spec(element, centre="row"))
    # The sum of the largest bfloat16 numbers overflows, that of float16 does not.
    assert (c[[3, 4, 6]] == 0).all() and (c[8] == (k[0, 8] if element is F16 else 0))
    assert (np.delete(c, [3, 4, 6, 8]) == 1).all()


@BOTH
def test_lse_is_that_of_the_keys(element):  # centre_c4
    case = draw(31, element=element, delta=np.inf, deviation=1.0, kind="offset", planted=False,
                lengths=[700, 129, 127, 0], shared=False, scan_bits=8)
    got = ref.decode(case.q, case.k, case.v, np.array(case.lengths), replace(case.spec, centre="row"))
    dense = case.reference(dense=True)
    finite = np.isfinite(dense.lse)
    assert np.abs(got.lse[finite] - dense.lse[finite]).max() < 5e-3
    assert (got.lse[~finite] == dense.lse[~finite]).all()
    # A row without committed blocks has none of it.
    assert (got.lse[2] == case.reference().lse[2]).all()


# --- ffd-run ------------------------------------------------------------------

def shifted(case: Case, size: float = 3.0) -> Case:
    """The case with a mean in every key channel."""
    rng = np.random.default_rng(case.seed)
    mean = (size * rng.normal(size=case.k.shape[-1]) * case.k.std()).astype(np.float32)
    case.k = case.element.round(case.k + mean)
    return case


def run(case: Case, spec: ref.Spec, tmp_path, *more: str) -> list[np.ndarray]:
    source, output = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    case.write(source)
    command = [str(RUN), f"--input={source}", f"--output={output}", f"--delta={spec.delta!r}",
               f"--select-block={spec.select_block}", f"--scan-bits={spec.scan_bits}",
               f"--lag={spec.lag}", f"--centre={spec.centre}",
               f"--pseudo-max={spec.pseudo_max}", f"--target={TARGET}", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\nexit {done.returncode}\n{done.stderr[-2000:]}"
    file = TensorFile(output)
    return [file[n].values for n in ("o", "lse", "kept")]


def verify(case: Case, tmp_path, *more: str, lag: int = 0, dense: bool = False,
           **options) -> None:
    case.poison()
    spec = replace(case.spec, centre="row", lag=lag, **options)
    want = ref.decode(case.q, case.k, case.v, np.array(case.lengths), spec)
    exact = case.reference(dense=True) if dense else None
    verdict = compare(*run(case, spec, tmp_path, *more), want, spec, dense=exact)
    assert not verdict.problem, f"{verdict.problem}\nlag={lag}\n{case.describe()}"


@needs_run
@pytest.mark.parametrize("seed", range(600, 605))
def test_fixed(seed, tmp_path):
    case = shifted(draw(seed, head_dim=HEAD_DIMS[seed % 6], group=1 + seed % 5))
    verify(case, tmp_path, lag=(0, 128, 1, 200, 0)[seed % 5])


@needs_run
@pytest.mark.parametrize("seed", range(FRESH, FRESH + 2))
def test_fresh(seed, tmp_path):
    rng = np.random.default_rng(seed)
    case = draw(seed, group=1 + seed % 5)
    if rng.random() < 0.7:
        case = shifted(case)
    verify(case, tmp_path, lag=int(rng.choice((0, 0, rng.integers(300)))))


@needs_run
@pytest.mark.parametrize("element, lag, shared", ((F16, 0, False), (BF16, 130, False), (F16, 1, True)))
def test_lengths(element, lag, shared, tmp_path):  # centre_c2
    around = [128 * n + i for n in (1, 2, 3) for i in (-1, 0, 1)]
    case = draw(620, element=element, lengths=[0, 1, *around], delta=3.0, shared=shared,
                kind="plain", head_dim=64, kv_heads=2, group=2)
    verify(shifted(case), tmp_path, lag=lag)


@needs_run
@BOTH
def test_infinite_delta_is_dense(element, tmp_path):
    case = draw(622, element=element, scan_bits=2, delta=np.inf, deviation=1.0, kind="plain",
                planted=False, lengths=[700, 129, 300], head_dim=64, group=2)
    verify(shifted(case, 1.0), tmp_path, dense=True)


@needs_run
@pytest.mark.parametrize("element, bad", ((F16, np.nan), (BF16, np.inf), (F16, -np.inf)))
def test_bad_keys(element, bad, tmp_path):
    # In block 0 the channel has no centre; in all blocks its scale is NaN, or in
    # the tail the score of its token.
    case = shifted(draw(400, element=element, head_dim=64, kv_heads=2, group=2, shared=False,
                        lengths=[400] * 3, delta=1.0, kind="plain", deviation=1.5, planted=True))
    for sequence, token in enumerate((100, 200, 399)):
        case.k[sequence, token, 1, 9] = bad
    verify(case, tmp_path)


@needs_run
@BOTH
def test_differences_overflow(element, tmp_path):  # centre_c3
    case = draw(401, element=element, head_dim=64, kv_heads=1, group=2, shared=False,
                lengths=[400], delta=1.0, kind="plain", deviation=1.5)
    largest = element.decode(np.array([0x7BFF if element is F16 else 0x7F7F], np.uint16))[0]
    case.k[0, :128, 0, 9] = largest / 128
    case.k[0, 300, 0, 9] = -largest  # beyond the range by a little: rounds to infinity
    verify(case, tmp_path)


@needs_run
@pytest.mark.parametrize("scan_bits, residual_bits, selector",
                         ((16, 0, "top_delta"), (2, 0, "all"), (2, 8, "top_k=5")))
def test_ablations(scan_bits, residual_bits, selector, tmp_path):
    if TARGET != "cpu":
        pytest.skip("on the CPU only")
    case = shifted(draw(630, lengths=[700, 300], scan_bits=scan_bits, group=2, head_dim=64,
                        select_block=16, delta=2.0, kind="plain"))
    rule, _, parameter = selector.partition("=")
    verify(case, tmp_path, f"--selector={selector}", f"--residual-bits={residual_bits}",
           residual_bits=residual_bits, selector=rule, parameter=float(parameter or 0))


@needs_run
def test_real_keys_gain(tmp_path):
    """On attention of a model the error falls by much for the same bytes."""
    totals = {}
    for centre, delta in (("none", 7), ("row", 5)):
        report = tmp_path / f"{centre}.json"
        done = subprocess.run(
            [str(RUN), f"--input={SLICE}", f"--delta={delta}", f"--centre={centre}",
             "--pseudo-max=scan", f"--target={TARGET}", "--repeat=1", f"--json={report}"],
            capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        result = json.loads(report.read_text())
        assert result["centre"] == centre
        totals[centre], = (row for row in result["rows"] if row["total"])
    assert totals["row"]["bytes_read"] < 1.02 * totals["none"]["bytes_read"]
    assert totals["row"]["relative_error"] < 0.6 * totals["none"]["relative_error"]
    assert totals["row"]["lse_error"] < 0.6 * totals["none"]["lse_error"]
