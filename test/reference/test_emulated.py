# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Some cases of the property tests on the emulated GPU, whatever FFD_TARGET is.
With FFD_TARGET=emulate all of test_property.py and test_refined_max.py run there.
"""

from __future__ import annotations

import numpy as np
import pytest

import test_certificate
import test_property
import test_refined_max
from cases import HEAD_DIMS, draw
from elements import BF16, F16
from test_property import FRESH, pytestmark  # noqa: F401: skipped as those are


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    monkeypatch.setattr(test_property, "TARGET", "emulate")
    monkeypatch.setattr(test_refined_max, "TARGET", "emulate")
    monkeypatch.setattr(test_certificate, "TARGET", "emulate")


@pytest.mark.parametrize("seed", range(6))
def test_fixed(seed, tmp_path):
    case = draw(seed, head_dim=HEAD_DIMS[seed % 6], group=1 + 3 * seed, lengths=[900 - 60 * seed, 0, 129])
    case.poison()
    test_property.verify(case, tmp_path)


@pytest.mark.parametrize("seed", range(FRESH, FRESH + 2))
def test_fresh(seed, tmp_path):
    case = draw(seed)
    case.poison()
    test_property.verify(case, tmp_path)


@pytest.mark.parametrize("element", (F16, BF16), ids=lambda e: e.name)
def test_infinite_delta_is_dense(element, tmp_path):
    case = draw(101, element=element, scan_bits=4, delta=np.inf, deviation=1.0, kind="plain",
                planted=False, lengths=[700, 129])
    test_property.verify(case, tmp_path, dense=True)


def test_threshold_to_the_unit(tmp_path):
    test_property.test_threshold_to_the_unit(501, tmp_path)


def test_scores_far_below_the_pseudo_max(tmp_path):
    test_property.test_scores_far_below_the_pseudo_max(540, tmp_path)


@pytest.mark.parametrize("seed", (600, 601, 605, FRESH))
def test_refined_max_fixed(seed, tmp_path):
    test_refined_max.test_fixed(seed, tmp_path)


def test_refined_max_centred(tmp_path):
    test_refined_max.test_centred(611, tmp_path)


@pytest.mark.parametrize("seed", (620, 621))
def test_refined_max_to_the_unit(seed, tmp_path):
    test_refined_max.test_threshold_to_the_unit(seed, tmp_path)


@pytest.mark.parametrize("seed", (920, 925, 927))
def test_certificate_fixed(seed, tmp_path):
    test_certificate.test_fixed(seed, tmp_path)


def test_certificate_far_below(tmp_path):
    test_certificate.test_far_below("noise", tmp_path)


def test_screen_gives_way_and_comes_back(tmp_path):
    # Above four heads blocks are screened, until a warp sees many pass: those of the first
    # part of this row, which takes more than a round of every warp. Then few are kept again.
    dense, blocks = 300, 700
    case = draw(601, head_dim=64, value_dim=64, kv_heads=1, group=8, lengths=[blocks * 128],
                scan_bits=2, select_block=16, delta=2.0, deviation=1.0, element=F16, kind="plain",
                planted=False, shared=False)
    noise = np.random.default_rng(601).normal(size=case.q.shape)
    q = case.q[:, :1] * (1 + 0.05 * noise)
    case.q = case.element.round(q.astype(np.float32))
    aim = case.q[0, 0] * (8 * np.sqrt(64) / (case.q[0, 0] ** 2).sum())  # 8 in natural log
    for block in range(0, dense):
        case.k[0, block * 128 + 37, 0] += aim
    case.k[0, -5, 0] += aim
    case.k = case.element.round(case.k.astype(np.float32))
    kept = case.reference().kept.reshape(blocks, 8).any(axis=1)
    assert kept[:dense].mean() > 0.6 and kept[dense:].mean() < 0.1
    test_property.verify(case, tmp_path)
