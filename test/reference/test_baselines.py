# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every method of ffd.eval against its definition, transcribed token by token in
float64, and FFD against the reference: the same blocks, bit for bit. On numpy, and
where torch is installed also on its CPU and on a GPU if there is one.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import evalpath  # noqa: F401
from cases import draw
from elements import BF16, F16
from devices import DEVICES, moved, on_device, outcome
from ffd.eval.arrays import host
from ffd.eval.methods import FFD, METHODS, Method, parse
from ffd.eval.methods.split import Blocks, split
from ffd.eval.problem import Outcome, Problem, round_element
from ffd_reference import Spec, pseudo_max, rows_of
from ffd_reference import split as split_reference


@pytest.fixture(params=DEVICES, autouse=True)
def device(request) -> str:
    """What run() runs on."""
    global _device
    _device = request.param
    return _device


def run(method: str | Method, p: Problem) -> Outcome:
    method = parse(method) if isinstance(method, str) else method
    return outcome(method.run(moved(p, _device)))


def problem(seed: int, T: int = 333, R: int = 3, G: int = 3, D: int = 64, layer: int = 9,
            element: str = "f16", lengths: list[int] | None = None) -> Problem:
    rng = np.random.default_rng(seed)
    k = rng.normal(size=(T, D)) * np.exp(0.5 * rng.normal(size=D)) + 0.5 * rng.normal(size=D)
    q = 2.5 * rng.normal(size=(R, G, D))
    v = rng.normal(size=(T, D)) + rng.normal(size=D)
    q, k, v = (round_element(x.astype(np.float32), element) for x in (q, k, v))
    given = lengths or sorted(int(n) for n in rng.integers(T // 2, T + 1, R))
    return Problem(q, k, v, np.array(given), layer=layer, element=element, want_estimates=True)


# --- Definitions -----------------------------------------------------------------
# Each takes one query head's q [D] and what it sees, K and V [T, D], all float64,
# and returns the weights' numerators per token, the kept tokens and o.

def attention(scores: list[float], kept: list[bool], v: np.ndarray) -> tuple[np.ndarray, float]:
    numbers = [math.exp(s) if keep else 0.0 for s, keep in zip(scores, kept)]
    total = sum(numbers)
    return sum(n * row for n, row in zip(numbers, v)) / total, math.log(total)


def exact_scores(q: np.ndarray, k: np.ndarray) -> list[float]:
    return [float(q @ row) / math.sqrt(len(q)) for row in k]


def highest(values: list[float], count: int) -> set[int]:
    return set(sorted(range(len(values)), key=lambda i: (-values[i], i))[:count])


def quest_tokens(q: np.ndarray, k: np.ndarray, budget: int, page: int) -> list[bool]:
    newest = (len(k) - 1) // page
    bounds = []
    for p in range(newest):
        low, high = k[p * page:(p + 1) * page].min(axis=0), k[p * page:(p + 1) * page].max(axis=0)
        bounds.append(sum(max(a * b, a * c) for a, b, c in zip(q, low, high)))
    chosen = highest(bounds, math.ceil(budget / page) - 1) | {newest}
    return [t // page in chosen for t in range(len(k))]


def kivi_group(x: np.ndarray, bits: int) -> np.ndarray:
    low = float(np.float16(x.min()))
    step = float(np.float16(np.float32(x.max() - np.float32(low)) / np.float32(2 ** bits - 1)))
    if step == 0:
        return np.full(len(x), low)
    return np.array([min(max(round((float(a) - low) / step), 0), 2 ** bits - 1) * step + low
                     for a in x])


def compare(got_o: np.ndarray, got_lse: float, want: tuple[np.ndarray, float]) -> None:
    assert np.abs(got_o - want[0]).max() < 2e-5 * max(1, np.abs(want[0]).max())
    assert abs(got_lse - want[1]) < 2e-5 * max(1, abs(want[1]))


def each(p: Problem):
    for r in range(len(p.q)):
        T = int(p.lengths[r])
        for g in range(p.q.shape[1]):
            yield r, g, p.q[r, g].astype(float), p.k[:T].astype(float), p.v[:T].astype(float)


def kept_of(outcome, r: int, g: int, T: int) -> np.ndarray:
    kept = np.broadcast_to(outcome.kept, (*outcome.kept.shape[:1], 3, outcome.kept.shape[2]))
    assert not kept[r, g, T:].any()
    return kept[r, g, :T]


@pytest.mark.parametrize("seed", range(2))
def test_exact(seed: int) -> None:
    p = problem(seed)
    out = run("exact", p)
    for r, g, q, k, v in each(p):
        compare(out.o[r, g], out.lse[r, g], attention(exact_scores(q, k), [True] * len(k), v))
        assert kept_of(out, r, g, len(k)).all()
        assert out.bytes[r] == len(k) * 256


@pytest.mark.parametrize("sinks, window", [(4, 100), (0, 1), (10, 1000), (4, 0.3)])
def test_streaming(sinks: int, window: float) -> None:
    p = problem(1)
    out = run(f"streaming:sinks={sinks},window={window}", p)
    for r, g, q, k, v in each(p):
        T = len(k)
        near = window if window >= 1 else math.ceil(window * T)
        kept = [t < sinks or t >= T - near for t in range(T)]
        compare(out.o[r, g], out.lse[r, g], attention(exact_scores(q, k), kept, v))
        assert kept_of(out, r, g, T).tolist() == kept
        assert out.bytes[r] == sum(kept) * 256


def test_oracle_with_ties() -> None:
    p = problem(2)
    p.k[10:40] = p.k[9]  # the lower of equal tokens wins
    out = run("oracle:budget=50", p)
    for r, g, q, k, v in each(p):
        chosen = highest([float(s) for s in p.scores[r, g, :len(k)]], 50)
        kept = [t in chosen for t in range(len(k))]
        assert kept_of(out, r, g, len(k)).tolist() == kept
        compare(out.o[r, g], out.lse[r, g], attention(exact_scores(q, k), kept, v))


@pytest.mark.parametrize("budget, page, lengths", [
    (64, 16, None), (100, 16, [160, 161, 176]), (32, 8, [7, 8, 9]), (0.5, 16, None),
    (16, 16, None)])
def test_quest(budget: float, page: int, lengths: list[int] | None) -> None:
    p = problem(3, lengths=lengths)
    out = run(f"quest:budget={budget:g},page={page}", p)
    for r, g, q, k, v in each(p):
        T = len(k)
        tokens = math.ceil(budget * T) if budget <= 1 else min(int(budget), T)
        kept = quest_tokens(q, k, tokens, page)
        assert kept_of(out, r, g, T).tolist() == kept
        compare(out.o[r, g], out.lse[r, g], attention(exact_scores(q, k), kept, v))
        union = np.any([kept_of(out, r, h, T) for h in range(3)], axis=0).sum()
        assert out.bytes[r] == union * 256 + (T - 1) // page * 256


def test_quest_keeps_the_first_layers_exact() -> None:
    for name in ("quest:budget=32", "twilight"):
        first, third = (run(name, problem(3, layer=n)) for n in (1, 2))
        assert first.bytes.sum() == problem(3).lengths.sum() * 256
        assert third.bytes.sum() < first.bytes.sum()


@pytest.mark.parametrize("lengths", [None, [127, 128, 129], [5, 31, 32], [255, 256, 300]])
def test_kivi(lengths: list[int] | None) -> None:
    p = problem(4, lengths=lengths)
    out = run("kivi", p)
    for r, g, q, k, v in each(p):
        T, D = k.shape
        packed_k, packed_v = T - T % 128, max(0, T - 128)
        keys, values = k.copy(), v.copy()
        for start in range(0, packed_k, 32):
            for c in range(D):
                keys[start:start + 32, c] = kivi_group(k[start:start + 32, c].astype(np.float32), 2)
        for t in range(packed_v):
            for c in range(0, D, 32):
                values[t, c:c + 32] = kivi_group(v[t, c:c + 32].astype(np.float32), 2)
        compare(out.o[r, g], out.lse[r, g],
                attention(exact_scores(q, keys), [True] * T, values))
        packed = 64 * (2 / 8 + 4 / 32)
        assert out.bytes[r] == (packed_k + packed_v) * packed + (2 * T - packed_k - packed_v) * 128


@pytest.mark.parametrize("p_share, budget", [(0.85, 0.25), (0.5, 1.0), (0.99, 96.0)])
def test_twilight(p_share: float, budget: float) -> None:
    p = problem(5)
    out = run(f"twilight:p={p_share},budget={budget:g}", p)
    for r, g, q, k, v in each(p):
        T = len(k)
        tokens = math.ceil(budget * T) if budget <= 1 else min(int(budget), T)
        candidates = quest_tokens(q, k, tokens, 16)
        coarse = np.array([kivi_group(row.astype(np.float32), 4) for row in k])
        weights = [math.exp(s) if c else 0.0 for s, c in zip(exact_scores(q, coarse), candidates)]
        order = sorted(range(T), key=lambda t: -weights[t])
        kept, mass = [False] * T, 0.0
        for t in order:
            if mass >= p_share * sum(weights):
                break
            kept[t] = True
            mass += weights[t]
        assert kept_of(out, r, g, T).tolist() == kept
        compare(out.o[r, g], out.lse[r, g], attention(exact_scores(q, k), kept, v))


@pytest.mark.parametrize("rank, budget", [(16, 64), (64, 40), (4, 1000)])
def test_sparq(rank: int, budget: int) -> None:
    p = problem(6)
    out = run(f"sparq:rank={rank},budget={budget}", p)
    for r in range(len(p.q)):
        T = int(p.lengths[r])
        k, v = p.k[:T].astype(float), p.v[:T].astype(float)
        group = p.q[r].astype(float)
        channels = sorted(highest([float(x) for x in np.abs(group).sum(axis=0)], rank))
        weights = []
        for q in group:
            share = np.abs(q[channels]).sum() / np.abs(q).sum()
            s = [float(q[channels] @ row[channels]) / math.sqrt(64 * share) for row in k]
            total = sum(math.exp(x) for x in s)
            weights.append([math.exp(x) / total for x in s])
        count = min(budget, T)
        local = set(range(T - count // 4, T))
        ranked = [sum(w[t] for w in weights) + (100 if t in local else 0) for t in range(T)]
        chosen = highest(ranked, count)
        kept = [t in chosen for t in range(T)]
        for g, q in enumerate(group):
            assert kept_of(out, r, g, T).tolist() == kept
            o, lse = attention(exact_scores(q, k), kept, v)
            alpha = sum(weights[g][t] for t in chosen)
            compare(out.o[r, g], out.lse[r, g],
                    (alpha * o + (1 - alpha) * v.mean(axis=0), lse - math.log(alpha)))


# --- FFD against the reference -------------------------------------------------------

def split_on(device: str, blocks: np.ndarray, bits: int, element: str) -> Blocks:
    got = split(on_device(blocks, device), bits, element, "none")
    return Blocks(host(got.scales), host(got.weights), host(got.residuals), host(got.keys),
                  None)


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_split_is_the_reference_s(device: str, bits: int, element: str) -> None:
    rng = np.random.default_rng(bits)
    k = rng.normal(size=(256, 96)) * np.exp(rng.normal(size=96))
    k[:, 3] = 0
    k[:, 4] = np.rint(k[:, 4])
    k[5, 7] = np.inf
    k[:, 8] *= 1e-7
    k[9:20, 9] = -k[9:20, 9].max() * 2.0 ** -26
    spec = Spec({"f16": F16, "bf16": BF16}[element], bits)
    k = spec.element.round(k.astype(np.float32))
    want = split_reference(k, spec)
    got = split_on(device, k.reshape(2, 128, 96), bits, element)
    assert np.array_equal(got.scales, want.scales, equal_nan=True)
    assert np.array_equal(got.weights, 2 * want.thumbnails - (2 ** bits - 1))
    assert np.array_equal(got.residuals, want.residuals)
    finite = np.isfinite(want.keys())
    assert np.allclose(got.keys[finite], want.keys()[finite], rtol=1e-6)


def test_split_next_to_the_middle_code(device: str) -> None:
    """Keys worth -2^-16 of a code, with every mantissa of the scale: where the
    fused multiply-add decides between two codes by its last bits."""
    amax = np.arange(1024, 2048, dtype=np.float32) * 16
    spec = Spec(F16)
    s = F16.round(amax / np.float32(1.5))
    k = np.zeros((128, 1024), np.float32)
    k[0], k[1] = amax, F16.round(-s * np.float32(2.0 ** -24))
    for i, factor in enumerate((1 - 2.0 ** -10, 1 + 2.0 ** -10, 0.5, 2)):
        k[2 + i] = F16.round(k[1] * np.float32(factor))
    want = split_reference(k, spec)
    got = split_on(device, k[None], 2, "f16")
    assert np.array_equal(got.weights, 2 * want.thumbnails - 3)
    assert 0 < (want.thumbnails[0, 1] == 1).sum()


def ffd_of(spec: Spec) -> FFD:
    return FFD(delta=spec.delta, select_block=spec.select_block, scan_bits=spec.scan_bits,
               lag=spec.lag, selector=spec.selector, parameter=spec.parameter,
               refine_max=spec.pseudo_max == "refined")


@pytest.mark.parametrize("seed", range(24))
def test_ffd_keeps_the_same_blocks(seed: int) -> None:
    """Random shapes, both element types, all scan widths and selectors."""
    given: dict = {"group": 1 + seed % 5, "kv_heads": 1}
    case = draw(seed, **given)
    selector, parameter = [("top_delta", 0), ("top_delta", 0), ("top_k", 7), ("top_p", 0.9),
                           ("all", 0)][seed % 5]
    spec = Spec(case.element, case.scan_bits, select_block=case.select_block, delta=case.delta,
                lag=[0, 0, 100][seed % 3], selector=selector, parameter=parameter,
                pseudo_max="refined" if seed % 5 == 1 else "scan")
    lengths = np.array(case.lengths)
    seen = 0
    for some, head, row in rows_of(case.q, case.k, case.v, lengths, spec):
        use = lengths[some] > 0
        if not use.any():
            continue
        source = 0 if case.shared else int(some[0])
        heads = case.q.reshape(len(lengths), case.kv_heads, -1, case.head_dim)[some, head][use]
        p = Problem(heads, case.k[source, :, head], case.v[source, :, head], lengths[some][use],
                    element=case.element.name, want_estimates=True)
        out = run(ffd_of(spec), p)
        want = row.select()[use]
        seen += want.size
        tokens = np.repeat(want, spec.select_block, axis=-1)
        assert np.array_equal(out.kept[:, 0, :row.start], tokens), case.describe()
        assert out.kept[:, 0, row.start:].sum() == (lengths[some][use] - row.start).sum()
        o, lse = row.sparse(row.select())
        assert np.allclose(out.o, o[use], rtol=1e-3, atol=1e-3)
        assert np.allclose(out.lse, lse[use], rtol=1e-4, atol=1e-3)
        if row.start:
            pm = pseudo_max(row.scores)[use] * row.scores.query.F[use]
            assert np.allclose(out.pseudo_max, pm, rtol=1e-5, atol=1e-5)
            approx = row.scores.a_int[use] * row.scores.query.F[use][..., None]
            assert np.allclose(out.estimate[..., :row.start], approx, rtol=1e-6, atol=1e-6)
    assert seen or max(case.lengths) < 256


@pytest.mark.parametrize("seed", range(3))
def test_blocks_at_the_very_threshold(seed: int) -> None:
    """delta half a unit short of what a block needs rounds up to keep it."""
    p = problem(20 + seed, T=400, R=1, G=1, lengths=[400])
    spec = Spec(F16, 2)
    (_, _, row), = rows_of(p.q, p.k[None, :, None], p.v[None, :, None], p.lengths, spec)
    best = row.scores.a_int[0, 0].reshape(-1, 16).max(axis=-1)
    units = int(pseudo_max(row.scores)[0, 0]) - best
    F = float(row.scores.query.F[0, 0])
    for block in np.flatnonzero((units > 1) & (units < 50_000)):
        for shift in (-0.5, 0.5):
            delta = np.float32((units[block] + shift) * F)
            out = run(FFD(delta=float(delta)), p)
            kept = out.kept[0, 0, :384].reshape(-1, 16)[:, 0]
            assert np.array_equal(kept, row.select(Spec(F16, 2, delta=float(delta)))[0])
            assert kept[block], (units[block], shift)


def test_ffd_of_many_rows_equals_each_alone_and_uses_its_store() -> None:
    lengths = [250, 255, 256, 257, 300, 383, 384, 400]
    p = problem(7, T=400, R=8, lengths=lengths)
    p.fixed = 300
    for name in ("ffd:delta=3", "ffd:delta=3,centre=mean", "quest:budget=64", "kivi", "sparq",
                 "twilight:budget=0.5", "ffd:delta=2,scan_bits=16"):
        method = parse(name)
        for _ in range(2):  # the second time from the store
            out = run(method, p)
            for r, length in enumerate(lengths):
                alone = Problem(p.q[r:r + 1], p.k, p.v, np.array([length]), layer=p.layer)
                one = run(method, alone)
                assert np.array_equal(one.kept[0, ..., :length], out.kept[r, ..., :length]), name
                assert np.allclose(one.o[0], out.o[r], atol=1e-5), name
                assert one.bytes[0] == out.bytes[r], name


def test_ffd_bytes() -> None:
    p = problem(8, T=400, R=1, lengths=[400])
    out = run("ffd:delta=1", p)
    kept = out.kept[0, 0, :384].sum()
    assert out.bytes[0] == 384 * 16 + 3 * 128 + kept * (64 + 128) + 16 * 256
    assert 0 < kept < 384


@pytest.mark.parametrize("centre", ["row", "rowmean", "mean", "middle"])
def test_centred_keys_change_no_result(centre: str) -> None:
    """Kept or not, softmax ignores a constant; offsets only sharpen the scan."""
    p = problem(9, T=400, R=2, lengths=[390, 400])
    p.k += round_element(np.linspace(-8, 8, 64, dtype=np.float32), "f16")
    p.k = round_element(p.k, "f16")
    exact = run("exact", p)
    everything = run(f"ffd:delta=1e9,centre={centre}", p)
    assert np.allclose(everything.o, exact.o, atol=0.05)
    assert np.allclose(everything.lse, exact.lse, atol=0.05)

    def error(name: str) -> float:
        out = run(name, p)
        return float(np.abs(out.estimate[..., :384] - p.scores[..., :384]).mean())
    assert error(f"ffd:centre={centre}") < 0.7 * error("ffd")


def test_certificate_of_skipped_mass() -> None:
    p = problem(10, T=400, R=2, lengths=[390, 400])
    out = run("ffd:delta=0.5,certificate=plain", p)
    weights = np.exp(p.scores - run("exact", p).lse[..., None])
    missed = np.where(out.kept, 0, weights).sum(axis=-1)
    scanned = np.exp(out.estimate - out.lse[..., None])
    guess = np.where(out.kept, 0, scanned).sum(axis=-1)
    assert np.allclose(out.missed, guess / (1 + guess), atol=1e-5)
    assert (missed > 0).all() and np.abs(out.missed - missed).max() < 0.35
    folded = run("ffd:delta=0.5,certificate=plain,fold=norm", p)
    assert np.allclose(folded.lse, out.lse + np.log1p(guess), atol=1e-5)


ALL = ("exact", "ffd", "ffd:delta=2,centre=row", "ffd:delta=3,centre=middle,noise=1",
       "ffd:refine_max=true", "ffd:scan_bits=4,select_block=64", "ffd:scan_bits=16,delta=2",
       "ffd:selector=top_k,parameter=5", "ffd:selector=top_p,parameter=0.9", "ffd:keep_local=40",
       "ffd:delta=1,centre=mean,certificate=noise,fold=mean", "ffd:lag=100,residual=false",
       "quest:budget=64", "twilight:p=0.95", "sparq:budget=64", "streaming:window=50", "kivi",
       "oracle:budget=30")


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("name", ALL)
def test_heads_together_are_heads_alone(device: str, name: str, element: str) -> None:
    """A GPU gets all kv heads of a layer in one problem; numpy has them one by one."""
    lengths = [100, 270, 384, 400]
    heads = [problem(30 + i, T=400, R=4, lengths=lengths, element=element) for i in range(2)]
    together = Problem(*(np.stack([getattr(p, name) for p in heads]) for name in "qkv"),
                       heads[0].lengths, 9, element=element, want_estimates=True)
    got = outcome(parse(name).run(moved(together, device)))
    for i, p in enumerate(heads):
        want = parse(name).run(p)
        for key, tolerance in (("o", 2e-4), ("lse", 2e-4), ("bytes", 0), ("kept", 0),
                               ("estimate", 1e-3), ("pseudo_max", 1e-3), ("missed", 1e-3)):
            one, full = getattr(want, key), getattr(got, key)
            assert (one is None) == (full is None), key
            if one is not None:
                full = full if full.ndim == one.ndim else full[i]
                assert full.shape == one.shape, key
                one, full = (np.nan_to_num(x.astype(float)) for x in (one, full))
                assert np.abs(one - full).max() <= tolerance, key


# --- The textual form --------------------------------------------------------------

def test_text_form() -> None:
    assert parse("ffd:delta=7,select_block=64").text == "ffd:delta=7,select_block=64"
    for name in METHODS:
        assert parse(parse(name).text) == parse(name)


@pytest.mark.parametrize("text, says", [
    ("fdd", "unknown method 'fdd'"), ("ffd:dela=5", "no parameter 'dela=5'"),
    ("ffd:delta=x", "ffd:delta=x: expected a number"), ("ffd:delta=-1", "0 or more"),
    ("ffd:select_block=48", "a divisor of"), ("quest:page=0", "1 or more"),
    ("kivi:residual=100", "multiple of group"), ("twilight:p=0", "up to 1"),
    ("ffd:scan_bits=3", "2, 4, 8 or 16"), ("ffd:fold=norm", "ffd:certificate=none")])
def test_wrong_methods_are_named(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(text)


def test_pseudo_max_from_refined_scores() -> None:
    p = problem(11, T=400, R=2, lengths=[390, 400])
    out = run("ffd:delta=0.5,refine_max=true", p)
    assert out.kept[:, 0, :16].all() and out.kept[:, 0, 368:384].all()
    for r in range(2):
        seen = np.r_[0:128, 256:p.lengths[r]]
        want = p.scores[r][:, seen].max(axis=-1)
        assert np.allclose(out.pseudo_max[r], want, atol=0.05)
    assert not np.allclose(run("ffd", p).pseudo_max, out.pseudo_max, atol=0.05)
