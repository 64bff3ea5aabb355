# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The refined pseudo-max (select_c5, select_c6): what the reference says of it,
and ffd-run against the reference, with identical kept sets.

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
from ffd_reference import Spec, decode, pseudo_max, rows_of
from test_ablations import needs_run
from test_ablations import verify as verify_on
from test_centre import shifted

TARGET = os.environ.get("FFD_TARGET", "cpu")
FRESH = int(os.environ.get("FFD_SEED") or secrets.randbits(31))


def refined(case: Case, **changes) -> Spec:
    return replace(case.spec, pseudo_max="refined", **changes)


def rows(case: Case, spec: Spec) -> list:
    return [row for _, _, row in rows_of(case.q, case.k, case.v, np.array(case.lengths), spec)]


# --- The definition -----------------------------------------------------------------

@pytest.mark.parametrize("seed", range(12))
def test_refined_scores_are_those_of_whole_codes(seed):
    """Near q . k~ of the two blocks: at most one unit below for the floor, and what
    scan_c1 rounds (the bound of docs/numerics.md, with |t - L| + 1/2)."""
    case = draw(seed, head_dim=HEAD_DIMS[seed % 6], element=(F16, BF16)[seed % 2], group=2,
                scan_bits=(2, 4, 8)[seed % 3], kind="plain", lengths=[300, 700])
    for row in rows(case, refined(case)):
        ends = row.scores.ends
        F = row.scores.query.F.astype(float)[..., None]
        n = row.start // 128
        blocks = row.parts.keys().reshape(n, 128, -1)[[0, n - 1]].reshape(256, -1)
        exact = float(row.sm_scale) * np.einsum("rgd,td->rgt", row.q.astype(float), blocks)
        smax = row.parts.smax().astype(float)
        u = (np.abs(row.q) * smax).max(axis=-1, keepdims=True) / 126
        codes = (row.parts.x[[0, n - 1]].reshape(256, -1) + 0.5) / 256 - 2 ** (row.spec.scan_bits - 1)
        bound = np.abs(codes).sum(axis=-1) + case.head_dim / 2
        bound = float(row.sm_scale) * u * bound * (2 ** -8 + 127 * 2 ** -10)
        assert (ends * F <= exact + bound).all() and (ends * F >= exact - bound - F).all()
        if case.scan_bits == 2:  # the scan's own error is far larger
            a = row.scores.a_int
            scanned = np.concatenate((a[..., :128], a[..., -128:]), axis=-1) * F
            assert np.abs(ends * F - exact).max() < 0.25 * np.abs(scanned - exact).max()


def test_both_ends_are_kept():  # select_c6
    case = draw(7, head_dim=64, group=1, kv_heads=1, lengths=[700], planted=False, shared=False,
                select_block=16, scan_bits=2, delta=0.0, kind="plain")
    best = np.argmax(case.k[0, 640:700, 0] @ case.q[0, 0]) + 640
    case.k[0, best, 0] += 60 * case.q[0, 0] / np.linalg.norm(case.q[0, 0])  # the tail decides
    for n in (0, 128, 300, 700):
        case.lengths = [n]
        kept = decode(case.q, case.k, case.v, np.array([n]), refined(case)).kept[0, 0]
        assert len(kept) == n // 128 * 8
        assert not n // 128 or kept[0] and kept[-1]
    assert kept.sum() == 2
    assert decode(case.q, case.k, case.v, np.array([700]), case.spec).kept.sum() == 0


def test_noise_does_not_raise_it():
    """Many noisy estimates have a larger maximum than what they estimate."""
    lower = []
    for seed in range(20, 26):
        case = draw(seed, head_dim=64, group=4, scan_bits=2, kind="plain", planted=False,
                    lengths=[256], deviation=2.0)
        for plain, fine in zip(rows(case, case.spec), rows(case, refined(case))):
            F = plain.scores.query.F
            lower.append(((pseudo_max(plain.scores) - pseudo_max(fine.scores)) * F).ravel())
    assert np.median(np.concatenate(lower)) > 0.5


# --- ffd-run ------------------------------------------------------------------------

def verify(case: Case, spec: Spec, tmp_path, execution: str | None = None):
    return verify_on(case, spec, tmp_path, execution, TARGET)


@needs_run
@pytest.mark.parametrize("seed", range(600, 606))
def test_fixed(seed, tmp_path):
    case = draw(seed, head_dim=HEAD_DIMS[seed % 6], group=(1, 2, 4, 5, 8, 16)[seed // 2 % 6],
                scan_bits=(2, 4, 8)[seed % 3], select_block=(16, 32, 64, 128)[seed % 4])
    spec = refined(case, lag=(0, 0, 40)[seed % 3])
    # On GPUs ffd-run has the fused execution alone.
    split = seed % 4 == 3 and TARGET == "cpu"
    verify(case, spec, tmp_path, "split" if split else None)


@needs_run
@pytest.mark.parametrize("seed", range(610, 614))
def test_centred(seed, tmp_path):
    """The pseudo-max of centred keys is that of what the cache holds."""
    case = shifted(draw(seed, head_dim=HEAD_DIMS[seed % 6], group=1 + seed % 5,
                        scan_bits=(2, 4, 8)[seed % 3]))
    verify(case, refined(case, centre="row", lag=(0, 128, 1, 200)[seed % 4]), tmp_path)


@needs_run
@pytest.mark.parametrize("seed", range(FRESH, FRESH + 2))
def test_fresh(seed, tmp_path):
    case = draw(seed)
    verify(case, refined(case), tmp_path)


def delta_of(units: int, F: np.float32) -> float:
    """A float32 delta with ceil(delta / F) = units, in the middle of such."""
    delta = np.float32((units - 0.5) * float(F))
    assert np.ceil(delta / F) == units
    return float(delta)


@needs_run
@pytest.mark.parametrize("seed", range(620, 623))
def test_threshold_to_the_unit(seed, tmp_path):  # select_c5
    """The pseudo-max comes from a refined score of the first or the last block; the
    best token of a block lies exactly on the threshold, then one unit below it."""
    case = draw(seed, kv_heads=1, group=1, lengths=[512], scan_bits=(2, 4)[seed % 2],
                head_dim=(64, 96, 128)[seed % 3], select_block=16, kind="plain", planted=False, shared=False)
    token = (5, 470)[seed % 2]
    case.k[0, token, 0] += case.element.round(
        np.float32(4 * np.sqrt(case.k.var())) * case.q[0, 0] / np.abs(case.q[0, 0]).max())
    case.k = case.element.round(case.k)
    spec = refined(case)
    row, = rows(case, spec)
    pm = int(pseudo_max(row.scores)[0, 0])
    ends = row.scores.ends[0, 0]
    assert pm == ends.max() == ends[token if token < 128 else token - 256]
    gaps = pm - row.scores.a_int.reshape(-1, 16).max(axis=1)[1:-1]
    units = int(np.sort(gaps[gaps > 1])[2])
    counts = []
    for below in (0, 1):
        want = verify(case, replace(spec, delta=delta_of(units - below, row.scores.query.F[0, 0])),
                      tmp_path)
        counts.append(int(want.kept.sum()))
    assert counts[0] > counts[1] >= 2


@needs_run
@pytest.mark.parametrize("where", ("query", "committed"))
def test_bad_numbers(where, tmp_path):  # select_c3
    case = draw(630, head_dim=64, kv_heads=2, group=2, shared=False, lengths=[400, 290],
                kind="plain", scan_bits=2)
    if where == "query":
        case.q[0, 1, 3] = np.inf
    else:
        case.k[0, 40, 0, 5] = np.nan
    kept = decode(case.q, case.k, case.v, np.array(case.lengths), refined(case)).kept
    assert kept[0, 0].all() and not kept[1].all()
