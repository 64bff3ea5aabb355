# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ffd.split, ffd.reconstruct and ffd.merge against the float64 reference."""

from __future__ import annotations

import numpy as np
import pytest

import ffd
from arrays import half
from cases import HEAD_DIMS, KINDS, keys
from elements import BF16, F16
from ffd_reference import Spec, attend
from ffd_reference import split as reference_split

BOTH = pytest.mark.parametrize("element", (F16, BF16), ids=lambda e: e.name)
BITS = pytest.mark.parametrize("scan_bits", (2, 4, 8))


def some_keys(seed: int, element, shape) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    scale = 2.0 ** -20 if kind == "small" else 1.0  # subnormal scales in f16
    return element.round((keys(rng, kind, shape) * scale).astype(np.float32))


def check_split(k: np.ndarray, element, scan_bits: int, runtime) -> ffd.Split:
    spec = Spec(element, scan_bits)
    got = ffd.split(half(k, element), scan_bits=scan_bits, runtime=runtime)
    rebuilt = ffd.reconstruct(got)
    assert rebuilt.shape == k.shape and rebuilt.dtype == np.float32
    for b in range(k.shape[0]):
        for h in range(k.shape[2]):
            want = reference_split(k[b, :, h], spec)
            blocks = len(want.x)
            codes = got.codes[b, :, h].reshape(blocks, 128, -1)
            residuals = got.residuals[b, :, h].reshape(blocks, 128, -1)
            assert (codes == want.thumbnails).all() and (residuals == want.residuals).all()
            bits = got.scales[b, :, h].view(np.uint16)
            assert (bits == element.encode(want.scales)).all()
            assert (got.smax[b, h].view(np.uint16) == element.encode(want.smax())).all()
            np.testing.assert_array_equal(rebuilt[b, :, h], want.keys().astype(np.float32))
    return got


@BOTH
@BITS
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_random(element, scan_bits, head_dim, runtime):
    seed = head_dim + scan_bits
    check_split(some_keys(seed, element, (2, 256, 3, head_dim)), element, scan_bits, runtime)


@BOTH
@BITS
def test_bad_numbers(element, scan_bits, runtime):  # split_c3
    k = some_keys(1, element, (1, 256, 1, 64))
    k[0, 3, 0, 5], k[0, 200, 0, 6], k[0, 201, 0, 7] = np.nan, np.inf, -np.inf
    k[0, :, 0, 8] = 0
    got = check_split(k, element, scan_bits, runtime)
    assert np.isnan(got.scales[0, 0, 0, 5]) and got.scales[0, 0, 0, 6] > 0
    assert np.isnan(got.smax[0, 0, [5, 6, 7]].astype(np.float32)).all()
    assert got.smax[0, 0, 8] == 0


@BOTH
def test_error_of_the_split(element, runtime):
    k = some_keys(0, element, (1, 512, 2, 128))
    got = ffd.split(half(k, element), runtime=runtime)
    s = np.repeat(got.scales.astype(np.float64), 128, axis=1)
    assert (np.abs(ffd.reconstruct(got) - k) <= s / 512 * (1 + 1e-3)).all()


def test_without_tokens(runtime):
    got = ffd.split(np.zeros((2, 0, 3, 64), np.float16), runtime=runtime)
    assert got.codes.shape == (2, 0, 3, 64) and got.scales.shape == (2, 0, 3, 64)
    assert got.smax.shape == (2, 3, 64) and (got.smax == 0).all()


# --- Merge --------------------------------------------------------------------------

@pytest.mark.parametrize("parts", (1, 2, 5))
def test_merge_is_attention_over_all(parts):  # attend_c2
    rng = np.random.default_rng(parts)
    q, k, v = (rng.normal(size=s).astype(np.float32) for s in ((3, 4, 64), (500, 64), (500, 48)))
    cuts = [0, *sorted(rng.choice(499, parts - 1, replace=False) + 1), 500]
    outs, lses = [], []
    for a, b in zip(cuts, cuts[1:]):
        mask = np.zeros((3, 500), bool)
        mask[:, a:b] = True
        o, lse = attend(q, k, v, mask, 0.3)
        outs.append(o.astype(np.float32))
        lses.append(lse.astype(np.float32))
    want_o, want_lse = attend(q, k, v, np.ones((3, 500), bool), 0.3)
    o, lse = ffd.merge(outs, lses)
    assert o.dtype == lse.dtype == np.float32
    np.testing.assert_allclose(o, want_o, rtol=0, atol=1e-5)
    np.testing.assert_allclose(lse, want_lse, rtol=0, atol=1e-5)


def test_merge_of_nothing():  # attend_c3
    nothing = np.zeros((2, 16), np.float32), np.full(2, -np.inf, np.float32)
    some = np.ones((2, 16), np.float32), np.array([1.0, 900.0], np.float32)
    o, lse = ffd.merge([nothing[0], some[0], nothing[0]], [nothing[1], some[1], nothing[1]])
    assert (o == 1).all() and (lse == some[1]).all()
    o, lse = ffd.merge([nothing[0]] * 2, [nothing[1]] * 2)
    assert (o == 0).all() and (lse == -np.inf).all()


def test_merge_shows_nan():
    o, lse = ffd.merge([np.ones((1, 16)), np.full((1, 16), np.nan)], [np.zeros(1), np.zeros(1)])
    assert np.isnan(o).all() and lse[0] == np.float32(np.log(2))
    o, lse = ffd.merge([np.ones((1, 16))] * 2, [np.zeros(1), np.full(1, np.nan)])
    assert np.isnan(o).all() and np.isnan(lse).all()
