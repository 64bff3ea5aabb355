# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of the float64 reference itself: against exact scalar arithmetic, the
bounds that docs/numerics.md promises, and the special values it names."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import ffd_reference as ref
import scalar
from elements import BF16, ELEMENTS, F16, Element, fma_f32
from tensorfile import TensorFile, half, plain, save

CASES = [(e, b) for e in ("f16", "bf16") for b in (2, 4, 8)]


def draw(seed: int, element: Element, *shape: int, spread: float = 1.5,
         size: float = 1.0) -> np.ndarray:
    """Normal numbers with log-normal scales per channel, one channel all zero
    and two almost so."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) * size * np.exp(spread * rng.normal(size=shape[-1]))
    x[..., 3] = 0
    x[..., 5] *= 2.0 ** -22
    x[..., 7] *= 2.0 ** -14
    return element.round(x.astype(np.float32))


def fractions(x: np.ndarray) -> list:
    return [Fraction(float(v)) for v in x] if x.ndim == 1 else [fractions(v) for v in x]


# --- Elements -----------------------------------------------------------------

@pytest.mark.parametrize("name", ELEMENTS)
def test_element_rounds_like_exact_arithmetic(name):
    rng = np.random.default_rng(1)
    x = np.ldexp(rng.normal(size=3000), rng.integers(-30, 15, 3000)).astype(np.float32)
    ties = (np.arange(1, 2000) * 0.5 + 1024).astype(np.float32)  # ties of f16
    x = np.concatenate((x, ties, ties * np.float32(2 ** -20)))
    got = ELEMENTS[name].round(x)
    assert [Fraction(float(v)) for v in got] == [scalar.rounded(Fraction(float(v)), name) for v in x]


@pytest.mark.parametrize("element", (F16, BF16))
def test_element_keeps_every_bit_pattern(element):
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = element.decode(bits)
    number = ~np.isnan(values)
    assert (element.encode(values)[number] == bits[number]).all()
    assert (element.encode(values)[~number] == element.canonical_nan).all()


def test_fma_rounds_once():
    rng = np.random.default_rng(2)
    n = 20000
    a, b, c = (np.ldexp(rng.normal(size=n), rng.integers(-20, 20, n)).astype(np.float32)
               for _ in range(3))
    # Halfway cases of float32 that a float64 sum rounds onto the tie.
    c[:2000] = np.float32(1 + 2.0 ** -23)
    a[:2000] = np.float32(2.0 ** -12) * (1 + rng.integers(-1, 2, 2000) * np.float32(2.0 ** -23))
    b[:2000] = np.float32(2.0 ** -12) * (1 + rng.integers(-1, 2, 2000) * np.float32(2.0 ** -23))
    a[2000:2100], b[2000:2100] = np.float32(2.0 ** -70), np.float32(2.0 ** -75)
    c[2000:2100] = np.ldexp(np.float32(1), -149) * rng.integers(-9, 9, 100).astype(np.float32)
    got = fma_f32(a, b, c)
    naive = (a.astype(np.float64) * b + c).astype(np.float32)
    exact = [scalar.fma(*map(Fraction, map(float, t))) for t in zip(a, b, c)]
    assert [Fraction(float(v)) for v in got] == exact
    assert (naive != got).any(), "the cases do not provoke double rounding"
    assert np.isnan(fma_f32(np.float32(np.inf), np.float32(0), np.float32(1)))


# --- Against the scalar oracle --------------------------------------------------

@pytest.mark.parametrize("name, bits", CASES)
def test_split_is_exact(name, bits):
    spec = ref.Spec(ELEMENTS[name], bits, quant_block=32)
    k = draw(bits, spec.element, 96, 32)
    parts = ref.split(k, spec)
    for block in range(3):
        for c in range(32):
            column = fractions(k[32 * block:32 * block + 32, c])
            s, x = scalar.split_channel(column, bits, name)
            assert Fraction(float(parts.scales[block, c])) == s
            assert list(parts.x[block, :, c]) == x


@pytest.mark.parametrize("name, bits", CASES)
@pytest.mark.parametrize("length, lag, size", [(100, 0, 1), (100, 9, 1), (128, 0, 3), (31, 0, 1)])
def test_scan_and_selection_are_exact(name, bits, length, lag, size):
    spec = ref.Spec(ELEMENTS[name], bits, quant_block=32, lag=lag, delta=3.0)
    k = draw(7 * bits, spec.element, length, 32)
    q = draw(8 * bits, spec.element, 1, 3, 32, size=size, spread=0.5)
    q[0, 1:, 7] = 2.0 ** 15  # where K is tiny: query_c3's exponent e is not zero
    row = ref.Row(q, k, k, np.array([length]), spec)
    scores, scale = row.scores, Fraction(float(row.sm_scale))
    smax = fractions(row.parts.smax())
    heads = [scalar.Head(fractions(x), smax, scale, name) for x in q[0]]
    codes = [[int(t) for t in token] for token in row.parts.thumbnails.reshape(-1, 32)]
    a, tails = [], []
    for h, head in enumerate(heads):
        assert Fraction(float(scores.query.F[0, h])) == head.F
        assert [Fraction(float(x)) for x in scores.query.qh[0, h]] == head.qh
        a.append([head.score(fractions(row.parts.scales[t // 32]), code, bits)
                  for t, code in enumerate(codes)])
        assert list(scores.a_int[0, h]) == a[h]
        tails.append([scalar.tail_score(fractions(q[0, h]), fractions(x), scale)
                      for x in k[row.start:]])
        assert [Fraction(float(x)) for x in scores.tail[0, h]] == tails[h]
    expected = scalar.kept_blocks(heads, a, tails, Fraction(3), 32, 16)
    assert list(row.select()[0]) == expected


# --- Bounds of the page -----------------------------------------------------------

@pytest.mark.parametrize("name, bits", CASES)
def test_split_error_is_bounded(name, bits):
    spec = ref.Spec(ELEMENTS[name], bits)
    k = draw(11, spec.element, 256, 64)
    parts = ref.split(k, spec)
    error = np.abs(parts.keys().reshape(2, 128, 64) - k.reshape(2, 128, 64))
    s = parts.scales[:, None].astype(np.float64)
    precision, smallest = scalar.FORMATS[name]
    # What the rounding of s clips: L times half a unit of s. And the fma of
    # split_c4 may round up to the next code.
    clipped = float(spec.levels) * np.maximum(s * 2.0 ** -precision, 2.0 ** (smallest - 1))
    assert (error <= s / 512 * (1 + 2.0 ** -12) + clipped).all()


@pytest.mark.parametrize("name, bits", CASES)
@pytest.mark.parametrize("dim", (64, 256))
def test_scan_error_is_bounded(name, bits, dim):
    spec = ref.Spec(ELEMENTS[name], bits)
    k = draw(12, spec.element, 512, dim)
    q = draw(13, spec.element, 2, 4, dim)
    q[1, 1:] *= np.float32(2.0 ** -8)
    q[1, 1:, 7] = 2.0 ** 15  # where K is tiny: query_c3's exponent e is not zero
    row = ref.Row(q, k, k, np.array([512, 512]), spec)
    query, sm_scale = row.scores.query, float(row.sm_scale)
    assert (query.e[1, 1:] > 0).all() and (query.e[0] == 0).all()
    s = row.parts.scales.astype(np.float64)
    levels = (row.parts.thumbnails - float(spec.levels))  # [n, QB, D]
    exact = sm_scale * np.einsum("rgd,nd,ntd->rgnt", q.astype(np.float64), s, levels)
    got = query.F[..., None].astype(np.float64) * row.scores.a_int
    smax = row.parts.smax().astype(np.float64)
    u = (np.abs(q) * smax).max(axis=-1) / 126
    y = np.abs(q[:, :, None] * s) / u[..., None, None]  # [r, g, n, d]
    per_channel = 2.0 ** -8 + 2.0 ** -10 * (1 + y)
    bound = sm_scale * u[..., None, None] * np.einsum("ntd,rgnd->rgnt", np.abs(levels), per_channel)
    if name == "bf16":  # s' of a scale far below the largest is a subnormal f16
        lost = np.abs(q.astype(np.float64)) * 2.0 ** (query.k - 25)
        bound += sm_scale * np.einsum("ntd,rgd->rgnt", np.abs(levels), lost)
    error = np.abs(got.reshape(exact.shape) - exact)
    assert (error <= bound).all(), (error / bound).max()


@pytest.mark.parametrize("element", (F16, BF16))
def test_everything_kept_is_close_to_dense(element):
    q = draw(14, element, 3, 4, 64, spread=0.2)
    k = draw(15, element, 3, 300, 2, 64, spread=0.2)
    v = draw(16, element, 3, 300, 2, 80, spread=0.2)
    lengths = np.array([300, 129, 255])
    sparse = ref.decode(q, k, v, lengths, ref.Spec(element, delta=np.inf))
    dense = ref.decode(q, k, v, lengths, ref.Spec(element), dense=True)
    assert sparse.kept.sum(axis=(1, 2)).tolist() == [32, 16, 16]  # zero-padded
    assert np.linalg.norm(sparse.o - dense.o) <= 5e-3 * np.linalg.norm(dense.o)
    assert np.abs(sparse.lse - dense.lse).max() <= 5e-3


def test_dense_is_plain_softmax():
    q, k, v = draw(17, F16, 1, 2, 32), draw(18, F16, 1, 40, 1, 32), draw(19, F16, 1, 40, 1, 32)
    got = ref.decode(q, k, v, np.array([37]), ref.Spec(), dense=True)
    for h in range(2):
        f = [sum(float(x) * float(y) for x, y in zip(q[0, h], k[0, t, 0])) * float(ref.Spec().scale(32))
             for t in range(37)]
        p = [np.exp(x) for x in f]
        o = sum(w * v[0, t, 0].astype(float) for t, w in enumerate(p)) / sum(p)
        assert np.allclose(got.o[0, h], o, rtol=1e-12)
        assert np.isclose(got.lse[0, h], np.log(sum(p)), rtol=1e-12)


# --- Special values ------------------------------------------------------------------

def case(length: int = 300, seed: int = 20):
    return (draw(seed, F16, 1, 2, 32), draw(seed + 1, F16, 1, 384, 1, 32),
            draw(seed + 2, F16, 1, 384, 1, 32), np.array([length]))


def test_no_tokens():  # attend_c3
    q, k, v, _ = case()
    got = ref.decode(q, k * np.float32(np.nan), v, np.array([0]), ref.Spec())
    assert (got.o == 0).all() and (got.lse == -np.inf).all() and got.kept.shape == (1, 1, 0)


@pytest.mark.parametrize("bad", (np.nan, np.inf, -np.inf))
def test_bad_query_keeps_everything_and_surfaces(bad):  # query_c5, select_c3
    q, k, v, lengths = case()
    q[0, 1, 4] = bad
    got = ref.decode(q, k, v, lengths, ref.Spec(delta=0.0))
    assert got.kept.all()
    assert np.isfinite(got.o[0, 0]).all() and not np.isfinite(got.o[0, 1]).any()


@pytest.mark.parametrize("bad", (np.nan, np.inf))
@pytest.mark.parametrize("token", (130, 290))
def test_bad_key_keeps_everything_and_surfaces(bad, token):  # split_c3, select_c3
    q, k, v, lengths = case()
    k[0, token, 0, 4] = bad
    parts = ref.split(k[0, :256, 0], ref.Spec())
    if token < 256:
        assert np.isnan(parts.scales[1, 4]) and (parts.x[1, :, 4] == 0).all()
        assert F16.encode(parts.scales)[1, 4] == 0x7E00
    got = ref.decode(q, k, v, lengths, ref.Spec(delta=0.0))
    assert got.kept.all()
    assert not np.isfinite(got.o).any() if np.isnan(bad) or token < 256 else True


def test_bad_value_surfaces_where_it_is_attended():
    q, k, v, lengths = case()
    v[0, 299, 0, 2] = np.nan
    got = ref.decode(q, k, v, lengths, ref.Spec())
    assert np.isnan(got.o[..., 2]).all() and np.isfinite(np.delete(got.o, 2, -1)).all()
    assert np.isfinite(got.lse).all()


def test_what_lies_beyond_a_length_is_not_seen():
    q, k, v, lengths = case()
    want = ref.decode(q, k, v, lengths, ref.Spec())
    k[:, 300:], v[:, 300:] = np.nan, np.inf
    got = ref.decode(q, k, v, lengths, ref.Spec())
    assert (got.o == want.o).all() and (got.lse == want.lse).all() and (got.kept == want.kept).all()


@pytest.mark.parametrize("delta", (np.inf, -1.0, np.nan))
def test_odd_deltas_keep_everything(delta):  # select_c3
    assert ref.decode(*case(), ref.Spec(delta=delta)).kept.all()


def test_zero_query_keeps_everything():  # query_c2, select_c3: F = 0
    q, k, v, lengths = case()
    got = ref.decode(q * 0, k, v, lengths, ref.Spec(delta=0.0))
    assert got.kept.all() and np.allclose(got.lse, np.log(300))


def test_lag_moves_tokens_into_the_tail():
    q, k, v, lengths = case(length=384)
    assert ref.decode(q, k, v, lengths, ref.Spec(lag=1)).selectable[0] == 16
    assert ref.decode(q, k, v, lengths, ref.Spec(lag=0)).selectable[0] == 24
    assert ref.decode(q, k, v, lengths, ref.Spec(lag=999)).selectable[0] == 0


# --- Selectors and files ---------------------------------------------------------------

def test_selectors():
    q, k, v, lengths = case(length=384)
    q *= np.float32(4)
    row = ref.Row(q, k[0, :, 0], v[0, :, 0], lengths, ref.Spec())
    a = row.scores.query.F[..., None] * row.scores.a_int
    w = a.reshape(1, 2, 24, 16).max(axis=(1, 3))[0]

    def kept(name, parameter):
        return row.select(ref.Spec(selector=name, parameter=parameter))[0]

    assert kept("all", 0).all()
    assert set(np.flatnonzero(kept("top_k", 5))) == set(np.argsort(-w)[:5])
    assert kept("top_k", 99).all() and not kept("top_k", 0).any()
    sizes = [kept("top_p", p).sum() for p in (0.0, 0.5, 0.9, 1.0)]
    assert sizes == sorted(sizes) and sizes[0] == 1
    mass = np.exp(a - a.max()).reshape(1, 2, 24, 16).sum(axis=(1, 3))[0]
    some = kept("top_p", 0.9)
    assert mass[some].sum() / mass.sum() >= 0.9
    assert mass[some].sum() - mass[some][np.argmin(w[some])] < 0.9 * mass.sum()


def test_tensor_files_round_trip(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "case.safetensors"
    values = np.array([[1.0, -2.5], [np.inf, 0.1]], np.float32)
    save(path, {"h": half(values, F16), "b": half(values, BF16),
                "i": plain(np.arange(3, dtype=np.int32))}, {"note": "text"})
    file = TensorFile(path)
    assert file.metadata == {"note": "text"} and file["b"].dtype == "BF16"
    assert (file["h"].values == F16.round(values)).all()
    assert (file["b"].values == BF16.round(values)).all()
    from safetensors import safe_open
    with safe_open(str(path), "np") as theirs:  # their numpy side has no bf16
        assert (theirs.get_tensor("h") == values.astype(np.float16)).all()
        assert (theirs.get_tensor("i") == np.arange(3)).all()
