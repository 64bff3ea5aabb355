# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decodes through the package against the float64 reference: kept sets, integer
scores and units identical, outputs and lse within the bars of docs/numerics.md.
FFD_SEED repeats the fresh part of an earlier run.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import replace

import numpy as np
import pytest

import ffd
import measures
from arrays import half
from cases import HEAD_DIMS, Case
from check_run import compare
from default_case import draw
from elements import BF16, F16
from ffd_reference import LIMIT, centre_of, decode, pseudo_max, rows_of

FRESH = int(os.environ.get("FFD_SEED") or secrets.randbits(31))
BOTH = pytest.mark.parametrize("element", (F16, BF16), ids=lambda e: e.name)


def inputs(case: Case) -> list[np.ndarray]:
    return [half(x, case.element) for x in (case.q, case.k, case.v)]


def cache_of(case: Case, runtime, **options) -> ffd.Cache:
    _, k, v = inputs(case)
    return ffd.Cache(k, v, lengths=case.lengths, scan_bits=case.scan_bits, runtime=runtime,
                     **options)


def verify(case: Case, runtime, lag: int = 0, sm_scale: float | None = None) -> ffd.Result:
    case.poison()
    spec = replace(case.spec, lag=lag, sm_scale=sm_scale)
    got = ffd.decode(*inputs(case), lengths=case.lengths, delta=case.delta, sm_scale=sm_scale,
                     scan_bits=case.scan_bits, select_block=case.select_block, lag=lag,
                     runtime=runtime)
    want = decode(case.q, case.k, case.v, np.array(case.lengths), spec)
    assert got.out.dtype == got.lse.dtype == np.float32 and got.kept.dtype == bool
    verdict = compare(got.out, got.lse, got.kept.astype(np.uint8), want, spec)
    assert not verdict.problem, f"{verdict.problem}\n{case.describe()}"
    return got


# Few and small groups: a kernel is compiled for each, and test_property.py covers
# the kernels themselves.
@pytest.mark.parametrize("seed", range(4))
def test_fixed(seed, runtime):
    verify(draw(seed, head_dim=HEAD_DIMS[seed % 6], group=1 + seed), runtime)


@pytest.mark.parametrize("seed", range(FRESH, FRESH + 2))
def test_fresh(seed, runtime):
    verify(draw(seed, group=1 + seed % 4), runtime)


SMALL = dict(head_dim=64, value_dim=64, group=2, kv_heads=2, scan_bits=2, select_block=16,
             deviation=2.0, kind="plain", planted=True, element=F16)


@pytest.mark.parametrize("lag", (1, 64, 200, 5000))
def test_lag(lag, runtime):
    verify(draw(600 + lag, lengths=[700, 300, 128], shared=False, delta=3.0, **SMALL), runtime,
           lag=lag)


def test_sm_scale(runtime):
    got = verify(draw(610, lengths=[700], delta=3.0, **SMALL), runtime, sm_scale=0.25)
    other = verify(draw(610, lengths=[700], delta=3.0, **SMALL), runtime)
    assert not np.allclose(got.lse, other.lse, atol=0.1)


def test_delta_of_every_sequence(runtime):
    case = draw(611, lengths=[900, 900, 900], shared=True, delta=0.0, **SMALL)
    deltas = np.array([0.0, 2.0, np.inf])
    q, k, v = inputs(case)
    cache = cache_of(case, runtime)
    got = cache.decode(q, delta=deltas, runtime=runtime)
    for b, delta in enumerate(deltas):
        case.delta = float(delta)
        want = case.reference()
        assert (got.kept[b] == (want.kept[b] != 0)).all()
        assert measures.lse_errors(got.lse[b], want.lse[b]).max() < 1e-2
    assert got.kept[0].sum() < got.kept[1].sum() < got.kept[2].sum() == got.kept[2].size


def test_select_blocks_of_one_cache(runtime):
    case = draw(612, lengths=[900, 500], shared=False, delta=2.0, **SMALL)
    q, cache = inputs(case)[0], cache_of(case, runtime)
    for block in (16, 32, 64, 128):
        case.select_block = block
        got = cache.decode(q, delta=2.0, select_block=block, runtime=runtime)
        want = case.reference()
        assert not compare(got.out, got.lse, got.kept.astype(np.uint8), want, case.spec).problem


@pytest.mark.parametrize("lengths", ([0], [0, 5], [127, 128, 129]), ids=str)
def test_lengths(lengths, runtime):  # attend_c3
    case = draw(613, lengths=lengths, shared=False, delta=3.0, **SMALL)
    got = verify(case, runtime)
    assert (got.lse[np.array(lengths) == 0] == -np.inf).all()


def test_splits_and_repetition(runtime):  # attend_c4
    case = draw(614, lengths=[5000, 3000], shared=False, delta=3.0, **SMALL)
    q, cache = inputs(case)[0], cache_of(case, runtime)
    first = cache.decode(q, delta=3.0, splits=3, runtime=runtime)
    again = cache.decode(q, delta=3.0, splits=3, runtime=runtime)
    one = cache.decode(q, delta=3.0, splits=1, runtime=runtime)
    assert (first.out == again.out).all() and (first.lse == again.lse).all()
    assert (first.kept == one.kept).all()
    assert measures.relative_error(first.out, one.out) < 1e-4


@BOTH
def test_exact(element, runtime):
    case = draw(615, lengths=[700, 0, 129], shared=False, delta=np.inf,
                **{**SMALL, "element": element})
    case.poison()
    got = ffd.exact(*inputs(case), lengths=case.lengths, runtime=runtime)
    want = case.reference(dense=True)
    assert got.kept is None
    assert not measures.disagreement(got.out, got.lse, want.o, want.lse,
                                     measures.DENSE[element.name])


def test_parts_merge(runtime):
    case = draw(616, lengths=[900], shared=False, delta=np.inf, **SMALL)
    q, k, v = inputs(case)
    parts = [ffd.decode(q, k[:, a:b], v[:, a:b], delta=np.inf, runtime=runtime)
             for a, b in ((0, 400), (400, 900))]
    out, lse = ffd.merge([p.out for p in parts], [p.lse for p in parts])
    want = case.reference(dense=True)
    assert not measures.disagreement(out, lse, want.o, want.lse, measures.DENSE["f16"])


@BOTH
@pytest.mark.parametrize("lag", (0, 150))
def test_centre(element, lag, runtime):
    case = draw(617, shared=False, lengths=[700, 127 + lag, 128 + lag],
                delta=3.0, **{**SMALL, "element": element})
    case.k = element.round(case.k + 2 * case.k.std(axis=(0, 1, 2)))
    case.poison()
    spec = replace(case.spec, lag=lag, centre="row")
    q = inputs(case)[0]
    cache = cache_of(case, runtime, lag=lag, centre="row")
    assert cache.centre == "row" and "centre='row'" in repr(cache)
    for b, length in enumerate(case.lengths):
        for head in range(case.kv_heads):
            want = centre_of(case.k[b, :, head], spec) if spec.committed(length) else 0
            assert (cache.centres[b, head] == want).all()
    got, scan = cache.decode(q, delta=3.0, runtime=runtime), cache.scan(q, runtime=runtime)
    want = decode(case.q, case.k, case.v, np.array(case.lengths), spec)
    assert not compare(got.out, got.lse, got.kept.astype(np.uint8), want, spec).problem
    for some, head, row in rows_of(case.q, case.k, case.v, np.array(case.lengths), spec):
        heads = slice(head * case.group, (head + 1) * case.group)
        assert (scan.units[some, heads, :row.start] == row.scores.a_int).all()
    plain = cache_of(case, runtime, lag=lag)
    assert plain.centre == "none" and plain.centres is None


# --- Several query tokens -------------------------------------------------------------

def asked_by(case: Case, tokens: int, seed: int) -> np.ndarray:
    """Queries [B, tokens, Hq, D] of a case: its own first, others near them."""
    rng = np.random.default_rng(seed)
    near = [case.q + 0.3 * rng.normal(size=case.q.shape) for _ in range(tokens - 1)]
    return case.element.round(np.stack([case.q, *near], axis=1).astype(np.float32))


@pytest.mark.parametrize("tokens, element, centre", ((1, F16, "none"), (2, BF16, "none"),
                                                     (4, F16, "row"), (8, F16, "none")),
                         ids=str)
def test_query_tokens(tokens, element, centre, runtime):  # tokens_c1 to tokens_c3
    """Outputs, kept sets and scores; a sequence shorter than the tokens that ask."""
    case = draw(620 + tokens, shared=False, lengths=[900, 0, 3, 511 + tokens], delta=2.0,
                **{**SMALL, "element": element})
    case.poison()
    q, lag = asked_by(case, tokens, 620 + tokens), tokens + 1
    spec = replace(case.spec, lag=lag, centre=centre)
    cache = cache_of(case, runtime, lag=lag, centre=centre)
    got = cache.decode(half(q, element), delta=2.0, runtime=runtime)
    want = decode(q, case.k, case.v, np.array(case.lengths), spec)
    assert got.out.shape == want.o.shape == (4, tokens, 4, 64)
    problem = compare(got.out, got.lse, got.kept.astype(np.uint8), want, spec).problem
    assert not problem
    assert 0 < got.kept.sum() < got.kept[0].size
    scan, G = cache.scan(half(q, element), refined_max=False, runtime=runtime), case.group
    for some, head, row in rows_of(q, case.k, case.v, np.array(case.lengths), spec):
        heads = slice(head * G, (head + 1) * G)

        def mine(x: np.ndarray) -> np.ndarray:  # [R, tokens * G, ...], as the row has it
            return x[some, :, heads].reshape(len(some), tokens * G, *x.shape[3:])
        units, F = row.scores.a_int, row.scores.query.F
        start, stop = row.start, row.stop
        np.testing.assert_array_equal(mine(scan.units)[..., :start], units)
        np.testing.assert_array_equal(mine(scan.unit), F)
        np.testing.assert_array_equal(mine(scan.scores)[..., :start],
                                      F[..., None] * units.astype(np.float32))
        np.testing.assert_array_equal(mine(scan.scores)[..., start:stop], row.scores.tail)
        assert (mine(scan.scores)[..., stop:] == -np.inf).all()
        ends = np.concatenate([mine(scan.scores)[..., :min(start, 128)],
                               mine(scan.scores)[..., max(0, start - 128):]], axis=-1)
        np.testing.assert_array_equal(mine(scan.pseudo_max), ends.max(axis=-1))
    asked = cache.decode(half(q, element), delta=2.0, refined_max=False, pseudo_max=True,
                         scores=True, runtime=runtime)
    assert (asked.pseudo_max == scan.pseudo_max).all()
    np.testing.assert_array_equal(asked.scores, scan.scores)


def test_query_tokens_of_any_strides(runtime):
    case = draw(640, shared=False, lengths=[400, 300], delta=2.0, **SMALL)
    q = half(asked_by(case, 3, 1), F16)
    apart = np.ascontiguousarray(q.transpose(2, 1, 0, 3)).transpose(2, 1, 0, 3)
    cache = cache_of(case, runtime, lag=2)
    one, other = (cache.decode(x, delta=2.0, runtime=runtime) for x in (q, apart))
    assert apart.strides != q.strides
    assert (one.out == other.out).all() and (one.lse == other.lse).all()


def test_exact_of_query_tokens(runtime):
    case = draw(641, shared=False, lengths=[300, 0, 2, 129], delta=np.inf, **SMALL)
    case.poison()
    q = asked_by(case, 4, 2)
    got = ffd.exact(half(q, F16), *inputs(case)[1:], lengths=case.lengths, runtime=runtime)
    want = decode(q, case.k, case.v, np.array(case.lengths), case.spec, dense=True)
    assert got.out.shape == (4, 4, 4, 64)
    assert not measures.disagreement(got.out, got.lse, want.o, want.lse, measures.DENSE["f16"])


@pytest.mark.parametrize("shape, lag, message", (
    ((2, 0, 4, 64), 7, r"shape \[2, 0, 4, 64\], expected 1 to 8 query tokens"),
    ((2, 9, 4, 64), 9, "expected 1 to 8 query tokens"),
    ((2, 8, 8, 64), 7, "expected at most 16 queries per kv head; 8 query tokens of 4 heads are 32"),
    ((2, 4, 4, 64), 2, "expected at most 3 query tokens, one more than the cache's 'lag'"),
    ((2, 4, 3, 64), 3, "expected heads that are 1 to 16 times the kv heads of K, 2"),
    ((2, 2, 4, 80), 3, "expected 64 in axis 3, the head dim of K"),
    ((1, 2, 4, 64), 3, "expected 2 in axis 0, the sequences of K and V"),
    ((2, 1, 2, 4, 64), 3, "5 axes, expected .* or .batch, query tokens, heads, head_dim."),
    ((4, 64), 3, "2 axes, expected")), ids=str)
def test_query_tokens_refused(shape, lag, message, runtime):
    case = draw(642, shared=False, lengths=[200, 130], delta=2.0, **SMALL)
    cache = cache_of(case, runtime, lag=lag)
    for call in (cache.decode, cache.scan):
        with pytest.raises(ValueError, match="argument 'q' has .*" + message):
            call(np.zeros(shape, np.float16), runtime=runtime)


def test_prepare_for_query_tokens(runtime):
    assert runtime.prepare(head_dim=64, group=2, query_tokens=4)
    for tokens in (0, 9):
        with pytest.raises(ValueError, match=f"'query_tokens' is {tokens}, expected 1 to 8"):
            runtime.prepare(head_dim=64, group=2, query_tokens=tokens)


# --- Ablations ------------------------------------------------------------------------

@pytest.mark.cpu
def test_ablations_are_a_loop(runtime):
    """Scan, rule and execution, as in the paper's ablation; the kernels themselves
    are tested in test/reference/test_ablations.py."""
    case = draw(630, lengths=[900, 200], shared=False, delta=2.0, **SMALL)
    q, k, v = inputs(case)
    for bits, residual in ((2, 8), (2, 0), (16, 0)):
        cache = ffd.Cache(k, v, lengths=case.lengths, scan_bits=bits, residual_bits=residual,
                          runtime=runtime)
        assert (cache.scan_bits, cache.residual_bits) == (bits, residual)
        for rule, execution in (("top_delta", "split"), ("top_k=9", None), ("all", "fused")):
            if residual == 0 and bits == 2 and rule != "top_k=9":
                continue  # compiling takes its time
            got = cache.decode(q, delta=2.0, selector=rule, execution=execution, runtime=runtime)
            spec = replace(case.spec, scan_bits=bits, residual_bits=residual,
                           selector=rule.partition("=")[0], parameter=9)
            if rule != "top_delta" or not residual:
                spec = replace(spec, pseudo_max="scan")
            want = decode(case.q, case.k, case.v, np.array(case.lengths), spec)
            verdict = compare(got.out, got.lse, got.kept.astype(np.uint8), want, spec)
            assert not verdict.problem, (rule, bits, residual, verdict.problem)


# --- Scores and pseudo-max ------------------------------------------------------------

def check_scan(case: Case, runtime, lag: int = 0, refined: bool = False) -> None:
    case.poison()
    spec = replace(case.spec, lag=lag, pseudo_max="refined" if refined else "scan")
    cache = cache_of(case, runtime, lag=lag)
    got = cache.scan(inputs(case)[0], refined_max=refined, runtime=runtime)
    lengths = np.array(case.lengths)
    B, (G, Hkv) = len(lengths), (case.group, case.kv_heads)
    assert got.scores.shape == (B, G * Hkv, lengths.max())
    assert got.units.shape == (B, G * Hkv, cache.committed.max())
    for some, head, row in rows_of(case.q, case.k, case.v, lengths, spec):
        heads = slice(head * G, (head + 1) * G)
        units, F = row.scores.a_int, row.scores.query.F
        bad = row.scores.query.nonfinite
        start = units.shape[-1]
        for r, b in enumerate(some):
            assert (got.units[b, heads, start:] == 0).all()
            np.testing.assert_array_equal(got.unit[b, heads], F[r])
            scores = got.scores[b, heads]
            tail = row.scores.tail[r, :, :lengths[b] - start]
            np.testing.assert_array_equal(scores[:, start:lengths[b]], tail)
            assert (scores[:, lengths[b]:] == -np.inf).all()
            if bad[r]:
                assert np.isnan(scores[:, :start]).all()
                assert start == 0 or np.isnan(got.pseudo_max[b, heads]).all()
                continue
            np.testing.assert_array_equal(got.units[b, heads, :start], units[r])
            np.testing.assert_array_equal(scores[:, :start],
                                          F[r][:, None] * units[r].astype(np.float32))
            if not refined:
                check_pseudo_max(got.pseudo_max[b, heads], scores, start, lengths[b])
            # Rounded down to units it is what the kernels compare with.
            with np.errstate(all="ignore"):
                inside = (F[r] > 0) & np.isfinite(tail).all(axis=-1)
                floor = np.floor(got.pseudo_max[b, heads] / F[r])
            pm = pseudo_max(row.scores)[r]
            inside &= np.abs(pm) < 2 ** 22
            assert (np.abs(floor - pm)[inside & (np.abs(pm) < LIMIT)] <= 1).all()


def check_pseudo_max(got: np.ndarray, scores: np.ndarray, start: int, length: int) -> None:
    ends = [scores[:, :min(start, 128)], scores[:, max(start - 128, 0):start],
            scores[:, start:length]]
    want = np.maximum.reduce(np.concatenate(ends, axis=1), axis=1, initial=-np.inf)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", range(24))
def test_scan_fixed(seed, runtime):
    check_scan(draw(700 + seed, head_dim=HEAD_DIMS[seed % 6]), runtime, lag=(0, 0, 70)[seed % 3])


@pytest.mark.parametrize("seed", range(FRESH + 100, FRESH + 106))
def test_scan_fresh(seed, runtime):
    check_scan(draw(seed), runtime)
    check_scan(draw(seed), runtime, refined=True)


@pytest.mark.parametrize("seed", range(6))
def test_refined_pseudo_max(seed, runtime):  # select_c5
    check_scan(draw(720 + seed, head_dim=HEAD_DIMS[seed % 6]), runtime, lag=(0, 0, 70)[seed % 3],
               refined=True)


@pytest.mark.cpu
def test_decode_with_a_refined_pseudo_max(runtime):  # select_c5, select_c6
    case = draw(631, lengths=[900, 200], shared=False, delta=1.0, **SMALL)
    cache, q = cache_of(case, runtime), inputs(case)[0]
    got = cache.decode(q, delta=1.0, refined_max=True, pseudo_max=True, runtime=runtime)
    spec = replace(case.spec, pseudo_max="refined")
    want = decode(case.q, case.k, case.v, np.array(case.lengths), spec)
    verdict = compare(got.out, got.lse, got.kept.astype(np.uint8), want, spec)
    assert not verdict.problem, verdict.problem
    usual = cache.decode(q, delta=1.0, pseudo_max=True, runtime=runtime)  # the default
    assert all((getattr(usual, name) == getattr(got, name)).all()
               for name in ("out", "lse", "kept", "pseudo_max"))
    plain = cache.decode(q, delta=1.0, refined_max=False, pseudo_max=True, runtime=runtime)
    assert (plain.pseudo_max != got.pseudo_max).any()
    spec = replace(spec, pseudo_max="scan")
    want = decode(case.q, case.k, case.v, np.array(case.lengths), spec)
    verdict = compare(plain.out, plain.lse, plain.kept.astype(np.uint8), want, spec)
    assert not verdict.problem, verdict.problem
    assert (plain.kept != got.kept).any()
    assert (cache.scan(q, runtime=runtime).pseudo_max == got.pseudo_max).all()
    assert (cache.scan(q, refined_max=True, runtime=runtime).pseudo_max == got.pseudo_max).all()
    with pytest.raises(ValueError, match="'refined_max' is True with selector 'all'"):
        cache.decode(q, refined_max=True, selector="all", runtime=runtime)
    bare = ffd.Cache(*inputs(case)[1:], residual_bits=0, runtime=runtime)
    for call in (bare.decode, bare.scan):
        with pytest.raises(ValueError, match="'refined_max' is True with a cache without resid"):
            call(q, refined_max=True, runtime=runtime)
    # Where there is nothing to refine, who asks for nothing gets the scan's.
    for options in (dict(), dict(selector="top_k=9")):
        some = [bare.decode(q, delta=1.0, runtime=runtime, **options, **given).out
                for given in (dict(), dict(refined_max=False))]
        assert (some[0] == some[1]).all()


@pytest.mark.cpu
@pytest.mark.parametrize("certificate", ("plain", "noise"))
def test_decode_with_a_certificate(certificate, runtime):  # cert_c1 to cert_c4
    case = draw(632, lengths=[900, 200, 0, 100], shared=False, delta=1.0, **SMALL)
    cache, q = cache_of(case, runtime), inputs(case)[0]
    got = cache.decode(q, delta=1.0, refined_max=False, certificate=certificate, runtime=runtime)
    spec = replace(case.spec, certificate=certificate, pseudo_max="scan")
    want = decode(case.q, case.k, case.v, np.array(case.lengths), spec)
    verdict = compare(got.out, got.lse, got.kept.astype(np.uint8), want, spec,
                      skipped=got.skipped_lse)
    assert not verdict.problem, verdict.problem
    assert (got.missed >= 0).all() and (got.missed <= 1).all() and (got.missed > 0).any()
    assert (got.missed[2:] == 0).all()
    plain = cache.decode(q, delta=1.0, refined_max=False, runtime=runtime)
    assert plain.skipped_lse is None and plain.missed is None
    assert (plain.out == got.out).all() and (plain.lse == got.lse).all()
    with pytest.raises(ValueError, match="'certificate' is 'sure', expected 'none', 'plain' or"):
        cache.decode(q, certificate="sure", runtime=runtime)
    for rule in (dict(selector="all"), dict(execution="split")):
        with pytest.raises(ValueError, match=f"'certificate' is '{certificate}' with selector"):
            cache.decode(q, certificate=certificate, runtime=runtime, **rule)
    k, v = inputs(case)[1:3]
    with pytest.raises(ValueError, match=f"'certificate' is '{certificate}' with scan_bits 16"):
        ffd.decode(q, k, v, scan_bits=16, certificate=certificate, runtime=runtime)


@pytest.mark.cpu
def test_what_was_missed_of_a_bad_row(runtime):
    """Not nothing: nobody knows."""
    case = draw(633, lengths=[300], shared=False, delta=1.0, **SMALL)
    case.k[0, 299, :, :] = np.inf
    q, k, v = inputs(case)[:3]
    got = ffd.decode(q, k, v, certificate="plain", refined_max=False, runtime=runtime)
    assert np.isnan(got.lse).any() and (np.isnan(got.missed) == np.isnan(got.lse)).all()


@pytest.mark.cpu
@pytest.mark.parametrize("value", ("scan", 0, 1.0, np.array([True])), ids=repr)
def test_refined_max_is_a_bool(value, runtime):
    case = draw(634, lengths=[300], shared=False, delta=1.0, **SMALL)
    q, k, v = inputs(case)[:3]
    with pytest.raises(TypeError, match="'refined_max' is .*, expected bool or None"):
        ffd.decode(q, k, v, refined_max=value, runtime=runtime)


@BOTH
@pytest.mark.parametrize("bad", (np.nan, np.inf, -np.inf), ids=str)
@pytest.mark.parametrize("where", ("query", "committed", "tail"))
def test_scan_of_bad_numbers(where, bad, element, runtime):  # query_c5
    case = draw(617, lengths=[400, 290], shared=False, delta=1.0, **{**SMALL, "element": element})
    if where == "query":
        case.q[0, 1, 17] = bad
    else:
        case.k[0, 200 if where == "committed" else 399, 1, 9] = bad
    check_scan(case, runtime)


@BOTH
def test_scan_of_keys(element, runtime):  # scan_c3
    check_scan(draw(640, lengths=[700, 300, 0], shared=False,
                    **{**SMALL, "element": element, "scan_bits": 16}), runtime, lag=30)


def test_scores_on_request(runtime):
    case = draw(618, lengths=[400, 290], shared=False, delta=1.0, **SMALL)
    q, cache = inputs(case)[0], cache_of(case, runtime)
    plain = cache.decode(q, runtime=runtime)
    assert plain.scores is None and plain.pseudo_max is None
    full = cache.decode(q, scores=True, pseudo_max=True, runtime=runtime)
    scan = cache.scan(q, runtime=runtime)
    assert (full.scores == scan.scores).all() and (full.pseudo_max == scan.pseudo_max).all()
    assert cache.decode(q, pseudo_max=True, runtime=runtime).scores is None
    assert (full.out == plain.out).all()


# --- What a decode reads ----------------------------------------------------------------

def test_read_bytes(runtime):
    case = draw(619, lengths=[900, 500, 0], shared=False, delta=2.0, **SMALL)
    q, cache = inputs(case)[0], cache_of(case, runtime)
    assert (cache.committed == [896, 384, 0]).all()
    tokens, tail, rows = 896 + 384, 4 + 116, 2
    for block in (16, 64):
        kept = cache.decode(q, delta=2.0, select_block=block, runtime=runtime).kept
        got = cache.read_bytes(kept)
        assert got.scan == rows * (tokens // 128) * (128 * 64 * 2 // 8 + 2 * 64)
        assert got.kept == kept.sum() * block * (64 + 2 * 64)
        assert got.tail == rows * tail * 2 * (64 + 64)
        assert got.dense == rows * (tokens + tail) * 2 * (64 + 64)
        assert got.total == got.scan + got.kept + got.tail
        assert got.keep_ratio == kept.sum() * block / (rows * tokens)
    assert cache.read_bytes().keep_ratio == 1
