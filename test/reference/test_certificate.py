# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The certificate of skipped mass (cert_c1 to cert_c4): what the reference says of
it, and ffd-run against the reference.

FFD_RUN is the ffd-run binary (unset: only the reference is tested), FFD_TARGET
its target (default cpu), FFD_SEED repeats the fresh part.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import replace

import numpy as np
import pytest

from cases import HEAD_DIMS, Case, draw
from elements import BF16, F16
from ffd_reference import Spec, decode, fold, rows_of
from test_ablations import needs_run, reference, run
from test_ablations import verify as verify_on
from test_centre import shifted

TARGET = os.environ.get("FFD_TARGET", "cpu")
FRESH = int(os.environ.get("FFD_SEED") or secrets.randbits(31))
KINDS = ("plain", "noise")


def certified(case: Case, kind: str, **changes) -> Spec:
    return replace(case.spec, certificate=kind, **changes)


def rows(case: Case, spec: Spec) -> list:
    return [row for _, _, row in rows_of(case.q, case.k, case.v, np.array(case.lengths), spec)]


# --- The definition -----------------------------------------------------------------

def test_noise_is_that_of_the_codes():  # cert_c2
    """Errors of the scan over many tokens have the variance that the scales say."""
    case = draw(900, head_dim=128, kv_heads=1, group=2, scan_bits=2, kind="plain", planted=False,
                lengths=[1700], element=F16, shared=False)
    row, = rows(case, certified(case, "noise"))
    F = row.scores.query.F.astype(float)[..., None]
    fine = float(row.sm_scale) * np.einsum("rgd,td->rgt", row.q.astype(float), row.parts.keys())
    variance = (F * row.scores.a_int - fine).var(axis=-1)
    Q = fold(row.scores.query, row.parts.scales, row.spec).astype(float)
    stated = (F ** 2 / 3 * (Q ** 2).sum(axis=-1)).mean(axis=-1)
    assert np.allclose(variance, stated, rtol=0.1)


@pytest.mark.parametrize("seed", range(900, 906))
def test_estimates_the_mass(seed):
    """Of all tokens, as if nothing were kept: plain has what noise adds, noise has
    not. (Of those below a threshold, noise is too low: they were chosen.)"""
    case = draw(seed, head_dim=128, group=4, kv_heads=2, scan_bits=2, kind="plain",
                lengths=[1500, 1800], shared=False, delta=1.0, select_block=16, deviation=1.5,
                planted=False)
    gaps = {}
    for kind in KINDS:
        gaps[kind] = []
        for row in rows(case, certified(case, kind)):
            nothing = np.zeros((1, row.start // 16), bool)
            least, most = row.skipped(nothing)
            assert (most >= least).all() and (most - least < 1e-6).all()
            f = float(row.sm_scale) * np.einsum("rgd,td->rgt", row.q.astype(float),
                                                row.parts.keys())
            gaps[kind].append((least - np.log(np.exp(f).sum(axis=-1))).ravel())
    plain, noise = (np.concatenate(gaps[kind]) for kind in KINDS)
    assert plain.mean() > 0.1 and abs(noise.mean()) < plain.mean() / 2
    assert (noise < plain).all() and np.abs(noise).max() < 0.5


def test_nothing_skipped():  # cert_c1
    case = draw(910, lengths=[0, 1, 100, 700], shared=False, delta=np.inf, kind="plain")
    for bound in reference(case, certified(case, "plain")).skipped:
        assert np.isneginf(bound).all()


# --- ffd-run ------------------------------------------------------------------------

def verify(case: Case, spec: Spec, tmp_path):
    return verify_on(case, spec, tmp_path, None, TARGET)


@needs_run
@pytest.mark.parametrize("seed", range(920, 932))
def test_fixed(seed, tmp_path):
    """Every head dim, group, code width and selection block; both kinds."""
    group = (1, 2, 3, 4, 5, 8, 11, 16)[seed % 8]
    # Many heads, or many tokens, keep nearly every block.
    case = draw(seed, head_dim=HEAD_DIMS[seed % 6], group=group, kv_heads=2,
                scan_bits=(2, 4, 8)[seed % 3], lengths=[900, 300, 0], planted=True,
                select_block=16 if group > 4 else (16, 32, 64, 128)[seed // 2 % 4],
                element=(F16, BF16)[seed // 3 % 2], deviation=3.0, kind=("plain", "offset")[seed % 2],
                delta=0.0 if group > 2 else (0.0, 0.5, 2.0)[seed // 4 % 3])
    want = verify(case, certified(case, KINDS[seed % 2], lag=(0, 0, 40)[seed % 3],
                                  pseudo_max=("scan", "scan", "refined")[seed % 3]), tmp_path)
    assert np.isfinite(want.skipped[0]).any()


@needs_run
@pytest.mark.parametrize("seed", range(940, 944))
def test_centred(seed, tmp_path):  # in units of lse
    case = shifted(draw(seed, head_dim=HEAD_DIMS[seed % 6], group=1 + 3 * (seed % 4), delta=2.0,
                        scan_bits=(2, 4, 8)[seed % 3]))
    verify(case, certified(case, KINDS[seed % 2], centre="row", lag=(0, 128, 1, 200)[seed % 4]),
           tmp_path)


@needs_run
@pytest.mark.parametrize("seed", range(FRESH, FRESH + 4))
def test_fresh(seed, tmp_path):
    case = draw(seed)
    verify(case, certified(case, KINDS[seed % 2], pseudo_max=("scan", "refined")[seed // 2 % 2]),
           tmp_path)


@needs_run
def test_all_kept_or_nothing_there(tmp_path):  # cert_c1
    case = draw(950, lengths=[0, 1, 128, 500], shared=False, delta=np.inf)
    want = verify(case, certified(case, "plain"), tmp_path)
    assert np.isneginf(want.skipped[0]).all()


@needs_run
@pytest.mark.parametrize("kind", KINDS)
def test_far_below(kind, tmp_path):  # cert_c3
    """One token hundreds of nat above the rest: what is skipped is not lost."""
    case = draw(951, head_dim=64, kv_heads=1, group=2, lengths=[600], shared=False, kind="plain",
                planted=False, scan_bits=4, select_block=16, element=F16, delta=1.0)
    case.q[0, 1] = case.q[0, 0]
    case.k[0, 5, 0] = F16.round(1700 * case.q[0, 0] / (case.q[0, 0] ** 2).sum())
    want = verify(case, certified(case, kind), tmp_path)
    least, most = want.skipped
    assert (most > least + 100).all() and (want.lse > most + 50).all()


@needs_run
@pytest.mark.parametrize("where", ("query", "committed"))
def test_bad_numbers(where, tmp_path):  # select_c3
    case = draw(952, head_dim=64, kv_heads=2, group=2, shared=False, lengths=[400, 290],
                kind="plain", scan_bits=2, delta=1.0)
    if where == "query":
        case.q[0, 1, 3] = np.inf
    else:
        case.k[0, 40, 0, 5] = np.nan
    want = decode(case.q, case.k, case.v, np.array(case.lengths), certified(case, "noise"))
    assert np.isneginf(want.skipped[0][0, :2]).all() and np.isfinite(want.skipped[0][1]).all()
    got = run(case, certified(case, "noise"), tmp_path, None, TARGET)[3]
    assert np.isneginf(got[0, :2]).all() and np.isfinite(got[1]).all()


@needs_run
@pytest.mark.parametrize("kind", KINDS)
def test_changes_nothing_else(kind, tmp_path):  # cert_c4
    case = draw(953, group=4, head_dim=128, lengths=[900, 300], shared=False, scan_bits=2, delta=2.0)
    plain = run(case, case.spec, tmp_path, None, TARGET)
    with_it = run(case, certified(case, kind), tmp_path, None, TARGET)
    for a, b in zip(plain, with_it):
        assert a.tobytes() == b.tobytes()
    again = run(case, certified(case, kind), tmp_path, None, TARGET)
    assert with_it[3].tobytes() == again[3].tobytes()
