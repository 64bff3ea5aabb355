# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches that grow, on the CPU: whatever way the tokens came in, decodes agree with
the float64 reference and with a cache that is split at once. test_paged_cuda.py has
the same on a GPU."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import ffd
import measures
from arrays import OnlyDLPack, half
from cases import Case
from default_case import draw
from elements import BF16, F16
from ffd_reference import decode
from ffd import _views
from test_decode import BOTH, SMALL, asked_by

SHAPE = dict(heads=4, kv_heads=2, head_dim=64)


def paged(**options) -> ffd.PagedCache:
    given = dict(layers=1, max_sequences=4, max_tokens=1000, threads=1, **SHAPE)
    return ffd.PagedCache(**{**given, **options})


def drawn(seed: int, lengths: list[int], element=F16, **options) -> Case:
    return draw(seed, lengths=lengths, shared=False, delta=2.0,
                **{**SMALL, "element": element, **options})


def arrays_of(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    q, k, v = (half(x, case.element) for x in (case.q, case.k, case.v))
    return q, k, v


def agree(got, case: Case, q=None, lengths=None, **spec) -> None:
    """(out, lse) of a decode of all sequences of a case."""
    out, lse = got
    assert out.dtype == lse.dtype == np.float32
    want = decode(case.q if q is None else q, case.k, case.v,
                  np.array(case.lengths if lengths is None else lengths),
                  replace(case.spec, **spec))
    problem = measures.disagreement(out, lse, want.o, want.lse,
                                    measures.SPARSE[case.element.name])
    assert not problem, problem


def filled(case: Case, **options) -> tuple[ffd.PagedCache, list[int]]:
    """A cache with the sequences of a case, each appended at once."""
    _, k, v = arrays_of(case)
    cache = paged(dtype="bfloat16" if case.element is BF16 else "float16", **options)
    sequences = [cache.create(delta=2.0) for _ in case.lengths]
    for s, n in zip(sequences, case.lengths):
        cache.append(0, s, k[s, :n], v[s, :n])
    return cache, sequences


@pytest.fixture(params=("numpy", "torch"))
def made(request):
    """Turns a numpy array of elements into one of a framework, and results back."""
    if request.param == "numpy":
        return lambda array: array, lambda array: array
    torch = pytest.importorskip("torch")

    def into(array):
        kind = torch.float16 if array.dtype == np.float16 else torch.bfloat16
        if not array.size:
            return torch.empty(array.shape, dtype=kind)
        flat = torch.frombuffer(bytearray(np.ascontiguousarray(array).tobytes()), dtype=kind)
        return flat.reshape(array.shape)

    def back(tensor):
        assert isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32
        return np.from_dlpack(tensor).copy()
    return into, back


# --- Tokens come in -----------------------------------------------------------------------

@BOTH
@pytest.mark.parametrize("centre", ("none", "row"))
@pytest.mark.parametrize("lag", (0, 40))
def test_chunks_and_single_tokens(element, centre, lag, made):
    """Two layers with keys of their own, sequences of other lengths, in any pieces."""
    into, back = made
    lengths = [900, 0, 515]
    cases = [drawn(seed, lengths, element) for seed in (1, 2)]
    cache = paged(layers=2, centre=centre, lag=lag, delta=2.0,
                  dtype="bfloat16" if element is BF16 else "float16")
    sequences = [cache.create() for _ in lengths]
    assert sequences == [0, 1, 2] and cache.sequences == 3
    rng = np.random.default_rng(3)
    for layer, case in enumerate(cases):
        _, k, v = arrays_of(case)
        at = [0, 0, 0]
        while at != lengths:  # any of them, none to many tokens of each
            each = [min(n - a, int(rng.choice((0, 1, 1, 7, 128, 300))))
                    for a, n in zip(at, lengths)]
            rows = [np.concatenate([x[s, a:a + n] for s, a, n in zip(sequences, at, each)])
                    for x in (k, v)]
            cache.append(layer, sequences, into(rows[0]), into(rows[1]), tokens=each)
            at = [a + n for a, n in zip(at, each)]
        assert cache.length(0) == (900 if layer else 0)  # of the layer that has the fewest
    for layer, case in enumerate(cases):
        q, k, v = arrays_of(case)
        got = tuple(map(back, cache.decode(layer, sequences, into(q), lse=True)))
        agree(got, case, lag=lag, centre=centre)
        once = ffd.decode(q, k, v, lengths=lengths, delta=2.0, lag=lag, centre=centre)
        np.testing.assert_allclose(got[0], once.out, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[1], once.lse, rtol=1e-5, atol=1e-6)
    assert cache.committed(0) == (900 - lag) // 128 * 128
    assert cache.pages - cache.pages_free == (900 - lag) // 128 + (515 - lag) // 128


def test_whose_rows_they_are():
    """tokens, offsets, an axis of sequences, and equal shares are the same append."""
    case = drawn(5, [300, 300, 300])
    q, k, v = arrays_of(case)
    flat = [x[:, :300].reshape(900, 2, 64) for x in (k, v)]
    results = []
    for ways in (dict(tokens=[300, 300, 300]), dict(offsets=[0, 300, 600, 900]), dict(),
                 dict(offsets=np.array([0, 300, 600, 900], np.int32)), dict(tokens=300), None):
        cache = paged(delta=2.0)
        sequences = [cache.create() for _ in range(3)]
        if ways is None:
            cache.append(0, sequences, k[:, :300], v[:, :300])
        else:
            cache.append(0, sequences, *flat, **ways)
        results.append(cache.decode(0, sequences, q, lse=True))
        agree(results[-1], case)
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other))


def test_order_of_sequences(made):
    into, back = made
    case = drawn(6, [200, 500, 900])
    q, k, v = arrays_of(case)
    cache, _ = filled(case, delta=2.0)
    out, lse = (back(x) for x in cache.decode(0, [2, 0], into(q[[2, 0]]), lse=True))
    straight = cache.decode(0, None, q, lse=True)
    assert (out == straight[0][[2, 0]]).all() and (lse == straight[1][[2, 0]]).all()
    assert (cache.decode(0, 1, q[1:2]) == straight[0][1]).all()


def test_strides(made, monkeypatch):
    """Heads before tokens, as models have them: only what has no strides is copied."""
    into, back = made
    case = drawn(7, [384, 384])
    q, k, v = arrays_of(case)
    copies = []
    monkeypatch.setattr(_views.View, "copy", lambda self, real=_views.View.copy: (
        copies.append(self.name), real(self))[1])
    cache = paged(delta=2.0)
    sequences = [cache.create() for _ in range(2)]

    def model(x):  # [sequences, heads, tokens, dim]
        return into(np.ascontiguousarray(x.swapaxes(1, 2))).swapaxes(1, 2)

    cache.append(0, sequences[0], model(k[:1, :250])[0], model(v[:1, :250])[0])
    cache.append(0, sequences[:1], model(k[:1, 250:300]), model(v[:1, 250:300]))
    cache.append(0, sequences[1:], into(k[1:, :299]), into(v[1:, :299]))
    cache.append(0, sequences[1:], into(k[1:, 299]), into(v[1:, 299]))
    for t in range(300, 320):
        cache.append(0, sequences, model(k[:, t:t + 1]), model(v[:, t:t + 1]))
    assert not copies
    cache.append(0, sequences, model(k[:, 320:380]), model(v[:, 320:380]))
    assert copies == ["k", "v"]
    wide = into(np.repeat(k[:, 380:384], 2, axis=3))[..., ::2]  # channels apart
    cache.append(0, sequences, wide, model(v[:, 380:384]))
    assert copies == ["k", "v"] * 2
    every = np.repeat(q, 2, axis=1)
    got = cache.decode(0, sequences, into(every)[:, ::2], lse=True)
    assert copies == ["k", "v"] * 2
    agree(tuple(map(back, got)), case)
    again = cache.decode(0, sequences, into(np.repeat(q, 2, axis=2))[..., ::2])
    assert copies == ["k", "v"] * 2 + ["q"] and (back(again) == back(got[0])).all()


def test_values_of_another_size():
    case = drawn(8, [700, 130], value_dim=32)
    q, k, v = arrays_of(case)
    cache, sequences = filled(case, value_dim=32)
    got = cache.decode(0, sequences, q, lse=True)
    assert got[0].shape == (2, 4, 32)
    agree(got, case)


@pytest.mark.parametrize("tokens", (1, 4))
def test_query_tokens(tokens):
    case = drawn(9, [900, 0, 3, 515])
    q = asked_by(case, tokens, 9)
    cache, sequences = filled(case, query_tokens=tokens, lag=tokens - 1)
    got = cache.decode(0, sequences, half(q, F16), lse=True)
    assert got[0].shape == (4, tokens, 4, 64) and got[1].shape == (4, tokens, 4)
    agree(got, case, q=q, lag=tokens - 1)
    assert (got[1][1] == -np.inf).all() and (got[0][1] == 0).all()
    if tokens > 1:
        with pytest.raises(ValueError, match=r"'q' has shape \[4, 4, 64\], expected \[4, 4, 4, 64"):
            cache.decode(0, sequences, half(q[:, 0], F16))


def test_both_kinds_of_pseudo_max():
    case = drawn(10, [900, 300])
    q, k, v = arrays_of(case)
    cache, sequences = filled(case)
    agree(cache.decode(0, sequences, q, lse=True), case, pseudo_max="refined")
    plain, sequences = filled(case, pseudo_max="scan")
    agree(plain.decode(0, sequences, q, lse=True), case, pseudo_max="scan")


@pytest.mark.parametrize("certificate", ("plain", "noise"))
def test_a_certificate(certificate):
    case = drawn(12, [900, 300, 0, 100])
    q = arrays_of(case)[0]
    cache, sequences = filled(case, certificate=certificate)
    out, lse, skipped = cache.decode(0, sequences, q, lse=True, skipped_lse=True)
    agree((out, lse), case)
    want = decode(case.q, case.k, case.v, np.array(case.lengths),
                  replace(case.spec, certificate=certificate))
    problem = measures.skipped_disagreement(skipped, want.skipped, want.shift)
    assert not problem, problem
    assert np.isfinite(skipped[:2]).any() and np.isneginf(skipped[2:]).all()
    mine = np.full(skipped.shape, np.nan, np.float32)
    alone = cache.decode(0, sequences, q, skipped_lse=mine)
    assert (alone[0] == out).all() and (alone[1] == skipped).all() and (mine == skipped).all()
    assert (cache.decode(0, sequences, q) == out).all()
    with pytest.raises(ValueError, match="'lse' and 'skipped_lse' overlap"):
        cache.decode(0, sequences, q, lse=mine, skipped_lse=mine)
    plain, sequences = filled(case)
    with pytest.raises(ValueError, match="'skipped_lse' is given, expected a cache with certif"):
        plain.decode(0, sequences, q, skipped_lse=True)


def test_softmax_scale():
    case = drawn(11, [500])
    cache, sequences = filled(case, sm_scale=0.25)
    agree(cache.decode(0, sequences, arrays_of(case)[0], lse=True), case, sm_scale=0.25)


# --- Results ------------------------------------------------------------------------------

def test_where_results_go(made):
    into, back = made
    case = drawn(12, [500, 300])
    q = arrays_of(case)[0]
    cache, sequences = filled(case)
    want = cache.decode(0, sequences, q, lse=True)
    out = cache.decode(0, sequences, into(q))
    assert (back(out) == want[0]).all()
    assert (back(cache.decode(0, sequences, into(q), out=out)) == want[0]).all()
    assert cache.decode(0, sequences, into(q), out=out) is out
    room, logs = np.full((3, 2, 4, 64), 7, np.float32), np.full((2, 4), 7, np.float32)
    got = cache.decode(0, sequences, into(q), out=room[1], lse=logs)  # numpy's, whatever q is
    assert got[1] is logs and (room[1] == want[0]).all() and (logs == want[1]).all()
    assert (room[::2] == 7).all()


def test_thresholds():
    """Of the cache, of a sequence, of a call, which stay; a fork has its origin's."""
    case = drawn(13, [900, 900])
    q, k, v = arrays_of(case)
    cache = paged(delta=0.5)
    a, b = cache.create(), cache.create(delta=np.inf)
    cache.append(0, [a, b], k[:, :900], v[:, :900])

    def expect(sequences, deltas, got):
        for i, (s, delta) in enumerate(zip(sequences, deltas)):
            want = ffd.decode(q[s % 2:s % 2 + 1], k[s % 2:s % 2 + 1, :900],
                              v[s % 2:s % 2 + 1, :900], delta=delta)
            np.testing.assert_allclose(got[i], want.out[0], rtol=1e-5, atol=1e-6)

    expect([a, b], [0.5, np.inf], cache.decode(0, [a, b], q))
    expect([a, b], [2.0, 2.0], cache.decode(0, [a, b], q, delta=2.0))
    expect([a, b], [2.0, 2.0], cache.decode(0, [a, b], q))
    expect([a, b], [1.0, 3.0], cache.decode(0, [a, b], q, delta=[1, 3]))
    c = cache.fork(a)  # slot 2, the keys of 0
    assert c == 2
    expect([c], [1.0], cache.decode(0, c, q[:1]))
    cache.set_delta([a, c], [0.25, np.inf])
    expect([a, c], [0.25, np.inf], cache.decode(0, [a, c], q[[0, 0]]))
    cache.free(a)
    assert cache.create() == a
    cache.append(0, a, k[0, :900], v[0, :900])
    expect([a], [0.5], cache.decode(0, a, q[:1]))
    with pytest.raises(ValueError, match="'delta' is -1.0 at 1, expected a number of at least 0"):
        cache.decode(0, [a, b], q, delta=[1, -1])
    with pytest.raises(ValueError, match=r"'delta' has shape \[3\], expected a number or \[2\]"):
        cache.set_delta([a, b], [1, 2, 3])


@pytest.mark.parametrize("layer, others, message", (
    (0, [3], "sequence 3|3 is no sequence"), (0, [77], "77"), (0, [1], None),
    (0, [0], r"'sequences' is \[0, 0\], expected each at most once"),
    (1, [1], "'layer' is 1, expected 0 to 0"),
), ids=str)
def test_thresholds_of_a_call_that_fails(layer, others, message):
    """None is set, not even those of sequences before the one that is none."""
    case = drawn(13, [900, 900])
    q = arrays_of(case)[0]
    cache, _ = filled(case)
    before, given = cache.decode(0, [0, 1], q), [0, *others]
    if message is None:  # what would be seen
        cache.set_delta(given, 0.0)
        assert not (cache.decode(0, [0, 1], q) == before).all(axis=(1, 2)).any()
        return
    with pytest.raises(ValueError, match=message):
        cache.decode(layer, given, q, delta=0.0)
    assert (cache.decode(0, [0, 1], q) == before).all()
    if others[0] > 1:
        with pytest.raises(ValueError, match=message):
            cache.set_delta(given, 0.0)
        assert (cache.decode(0, [0, 1], q) == before).all()


def test_thresholds_of_two_threads():
    """What one sets between another's calls is known to be set."""
    case = drawn(13, [900])
    q = arrays_of(case)[0]
    cache, [s] = filled(case)
    want = cache.decode(0, s, q, delta=0.0)
    cache.set_delta(s, 2.0)

    class Interrupted:
        """The extension's cache, after whose next call to set a threshold another thread
        has its turn."""

        def __getattr__(self, name):
            call = getattr(native, name)
            if not name.startswith("set_delta"):
                return call

            def interrupted(*arguments):
                call(*arguments)
                cache._native = native
                other = threading.Thread(target=cache.set_delta, args=(s, np.inf))
                other.start()
                other.join()
            return interrupted

    native, cache._native = cache._native, Interrupted()
    cache.set_delta(s, 0.0)
    assert cache._native is native
    cache.set_delta(s, 0.0)  # no more than it seems: the other thread's is there
    assert (cache.decode(0, s, q) == want).all()


# --- Sequences ----------------------------------------------------------------------------

def test_fork_truncate_free():
    case = drawn(14, [700, 700])
    q, k, v = arrays_of(case)
    cache = paged(delta=2.0)
    a = cache.create()
    cache.append(0, a, k[0, :600], v[0, :600])
    used = cache.pages - cache.pages_free
    b = cache.fork(a)
    assert cache.pages - cache.pages_free == used == 4 and cache.length(b) == 600
    case.k[1, :600], case.v[1, :600] = case.k[0, :600], case.v[0, :600]
    cache.append(0, [a, b], k[:, 600:700], v[:, 600:700])
    agree(cache.decode(0, [a, b], q, lse=True), case)
    cache.truncate(a, 650)  # in the tail
    cache.truncate(b, 384)  # whole blocks
    agree(cache.decode(0, [a, b], q, lse=True), case, lengths=[650, 384])
    with pytest.raises(ffd.Error, match="committed"):
        cache.truncate(b, 300)
    assert cache.length(b) == 384 and cache.reserved(b) >= 0
    cache.free(a)
    assert cache.sequences == 1 and cache.pages - cache.pages_free == 3
    agree(cache.decode(0, [b], q[1:], lse=True), replace(case, q=case.q[1:], k=case.k[1:],
                                                         v=case.v[1:], lengths=[384]))
    with pytest.raises(ValueError, match=f"sequence {a}|{a} is no sequence"):
        cache.length(a)


def test_out_of_pages():
    case = drawn(15, [700, 700])
    q, k, v = arrays_of(case)
    cache = paged(pages=5, delta=2.0)
    a, b = cache.create(), cache.create()
    cache.append(0, [a, b], k[:, :300], v[:, :300])
    with pytest.raises(ffd.OutOfPages, match="pages") as caught:
        cache.append(0, [a, b], k[:, 300:450], v[:, 300:450])
    assert isinstance(caught.value, ffd.Error)
    assert cache.length(a) == cache.length(b) == 300 and cache.pages_free == 1
    with pytest.raises(ffd.OutOfPages):
        cache.reserve([a, b], 200)
    cache.reserve([a], [200])
    assert cache.pages_free == 0 and cache.reserved(a) >= 200
    agree(cache.decode(0, [a, b], q, lse=True), case, lengths=[300, 300])
    cache.free(b)
    cache.append(0, a, k[0, 300:700], v[0, 300:700])
    assert cache.committed(a) == 640


def test_out_of_sequences():
    cache = paged(max_sequences=2)
    cache.create(), cache.create()
    with pytest.raises(ffd.OutOfSequences, match="2"):
        cache.create()
    with pytest.raises(ffd.Error):
        cache.fork(0)


def test_longer_than_a_sequence_may_get():
    case = drawn(16, [200])
    _, k, v = arrays_of(case)
    cache = paged(max_tokens=150)
    s = cache.create()
    cache.append(0, s, k[0, :149], v[0, :149])
    with pytest.raises(ValueError, match="sequence 0 has 149 and may get 150"):
        cache.append(0, s, k[0, :2], v[0, :2])


def test_files(tmp_path):
    case = drawn(17, [700])
    q, k, v = arrays_of(case)
    cache, [s] = filled(case)
    cache.set_delta(s, 3.0)
    cache.save(s, tmp_path / "sequence")
    other = paged(max_sequences=2, max_tokens=2000, delta=9.0)
    t = other.load(tmp_path / "sequence")
    want = cache.decode(0, s, q)
    assert (other.decode(0, t, q) == want).all()  # its threshold too
    assert not (other.decode(0, t, q, delta=0.0) == want).all()
    assert (other.decode(0, t, q, delta=3.0) == want).all()
    with pytest.raises(ffd.Error, match="has group 2, expected the cache.s 4"):
        paged(kv_heads=1).load(tmp_path / "sequence")
    (tmp_path / "cut").write_bytes((tmp_path / "sequence").read_bytes()[:-9])
    with pytest.raises(ffd.Error, match="cut' ends after"):
        other.load(tmp_path / "cut")
    assert other.sequences == 1
    with pytest.raises(FileNotFoundError, match="nowhere"):
        other.load(tmp_path / "nowhere")


@BOTH
def test_gather(element, made):
    into, _ = made
    case = drawn(18, [700], element)
    q, k, v = arrays_of(case)
    cache, [s] = filled(case)
    keys, values = cache.gather(0, s, like=into(q))
    assert tuple(keys.shape) == tuple(values.shape) == (700, 2, 64)
    assert type(keys) is type(into(q))
    keys, values = cache.gather(0, s)
    assert keys.dtype == (np.float16 if element is F16 else ml_dtypes.bfloat16)
    assert (values == v[0, :700]).all() and (keys[640:] == k[0, 640:700]).all()
    parts = ffd.reconstruct(ffd.split(k[:, :640]))[0]
    assert np.abs(keys[:640].astype(np.float32) - parts).max() < 2e-2 * np.abs(parts).max()
    some = cache.gather(0, s, first=600, tokens=50)
    assert (some[0] == keys[600:650]).all() and (some[1] == values[600:650]).all()
    with pytest.raises(ValueError, match="700"):
        cache.gather(0, s, first=600, tokens=101)


def test_statistics():
    case = drawn(19, [900, 300])
    q, k, v = arrays_of(case)
    cache, sequences = filled(case)
    with pytest.raises(ValueError, match="request"):
        cache.statistics()
    cache.decode(0, sequences, q)
    cache.request_statistics()
    seen = cache.statistics()
    kept = ffd.decode(q, k, v, lengths=[900, 300], delta=2.0).kept
    assert (seen.scanned == (896 + 256) // 16).all() and seen.scanned.shape == (1, 2)
    assert (seen.kept[0] == kept.sum(axis=(0, 2))).all() and 0 < seen.kept.min()
    assert cache.append_errors() == {}
    cache.clear_errors()


def test_memory():
    cache = paged(max_sequences=4, max_tokens=100_000, memory=10_000_000)
    assert 0 < cache.pages == cache.fit(10_000_000)[0] and cache.nbytes <= 10_000_000
    assert cache.fit(10_000_000)[1] == cache.pages * 128
    assert paged().pages == 4 * 8
    with pytest.raises(MemoryError, match="the sequences alone take"):
        paged(memory=1000)
    with pytest.raises(ValueError, match="'pages' and 'memory' are both given"):
        paged(memory=10_000_000, pages=3)


# --- Mistakes -------------------------------------------------------------------------------

@pytest.mark.parametrize("options, message", (
    (dict(heads=5), "'heads' is 5, expected a multiple of the 2 kv_heads"),
    (dict(head_dim=65), "head_dim.*65"),
    (dict(value_dim=24), "value_dim.*24"),
    (dict(dtype="float32"), "'dtype' is 'float32', expected 'float16' or 'bfloat16'"),
    (dict(target="cuda:x"), "'target' is 'cuda:x', expected 'cpu', 'cuda' or 'cuda:0'"),
    (dict(target="sm_90a"), "'target' is 'sm_90a'"),
    (dict(select_block=24), "'select_block' is 24, expected 16, 32, 64 or 128"),
    (dict(scan_bits=3), "'scan_bits' is 3"),
    (dict(centre="mean"), "'centre' is 'mean'"),
    (dict(pseudo_max="exact"), "'pseudo_max' is 'exact', expected 'refined' or 'scan'"),
    (dict(certificate="sure"), "'certificate' is 'sure', expected 'none', 'plain' or 'noise'"),
    (dict(query_tokens=4), "lag"),
    (dict(sm_scale=-1), "'sm_scale' is -1"),
    (dict(delta=-1), "'delta' is -1"),
    (dict(max_tokens=0), "'max_tokens' is 0, expected 1 to"),
    (dict(layers=0), "'layers' is 0, expected 1 to"),
), ids=str)
def test_options(options, message):
    with pytest.raises(ValueError, match=message):
        paged(**options)


@pytest.mark.parametrize("call, message", (
    (lambda c, x: paged(heads=34), "heads / kv_heads is 17, expected 1 to 16"),
    (lambda c, x: paged(head_dim=65), "argument 'head_dim' is 65, expected 64"),
    (lambda c, x: paged(host_pages=True), "argument 'host_pages' is set"),
    (lambda c, x: paged(query_tokens=8, heads=32, lag=7),
     "argument 'query_tokens' is 8 with group 16"),
    (lambda c, x: c.append(9, 0, x, x), "argument 'layer' is 9, expected 0 to 0"),
    (lambda c, x: c.append(0, 0, x.repeat(2000, 0), x.repeat(2000, 0)),
     r"argument 'tokens\[0\]' is 2000"),
    (lambda c, x: c.advance(0, 1), "^advance tells .*: here append counts"),
    (lambda c, x: c.statistics(), "expected request_statistics before"),
))
def test_errors_of_the_library_speak_python(call, message):
    cache = paged()
    cache.create()
    with pytest.raises(ValueError, match=message) as raised:
        call(cache, np.zeros((1, 2, 64), np.float16))
    assert "ffd" not in str(raised.value)


def test_files_that_are_none(tmp_path):
    cache = paged()
    s = cache.create()
    with pytest.raises(FileNotFoundError, match="none/x'"):
        cache.save(s, tmp_path / "none" / "x")
    with pytest.raises(FileNotFoundError, match="/none'"):
        cache.load(tmp_path / "none")
    (tmp_path / "ffdAppend").touch()
    with pytest.raises(ffd.Error, match="/ffdAppend' ends after 0 bytes, expected a whole seq"):
        cache.load(tmp_path / "ffdAppend")
    with pytest.raises(ValueError, match="is a folder, expected a regular file"):
        cache.load(tmp_path)


def test_arguments():
    case = drawn(20, [300, 300])
    q, k, v = arrays_of(case)
    cache, _ = filled(case)
    single = k[:, 0]

    def refused(kind, message, call, *arguments, **options):
        with pytest.raises(kind, match=message):
            call(*arguments, **options)

    append, ask = cache.append, cache.decode
    refused(ValueError, "layer.* is 1", append, 1, [0, 1], single, single)
    refused(ValueError, "layer.* is 3", ask, 3, [0, 1], q)
    refused(TypeError, "'k' has dtype float32, expected float16, the dtype of the cache", append,
            0, [0, 1], single.astype(np.float32), single)
    refused(TypeError, "'v' has dtype bfloat16, expected float16", append, 0, [0, 1], single,
            single.astype(ml_dtypes.bfloat16))
    refused(TypeError, "'q' has dtype float64", ask, 0, [0, 1], q.astype(np.float64))
    refused(TypeError, "'k' is str, expected an array", append, 0, [0, 1], "keys", single)
    refused(ValueError, r"'k' has shape \[2, 2, 32\], expected \[rows, kv_heads, head_dim\]",
            append, 0, [0, 1], single[..., :32], single)
    refused(ValueError, r"'v' has shape \[1, 2, 64\], expected \[2, 2, 64\], the tokens of 'k'",
            append, 0, [0, 1], single, single[:1])
    refused(ValueError, r"'v' has shape \[1, 2, 2, 64\], expected \[2, 1, 2, 64\]", append, 0,
            [0, 1], single[:, None], single[None])
    refused(ValueError, r"'k' has shape \[2, 1, 2, 64\], expected 3 in axis 0", append, 0,
            [0, 1, 2], single[:, None], single[:, None])
    refused(ValueError, "'k' has 3 rows for 2 sequences", append, 0, [0, 1], k[0, :3], v[0, :3])
    refused(ValueError, "'tokens' adds up to 3, expected 2, the rows of 'k'", append, 0, [0, 1],
            single, single, tokens=[1, 2])
    refused(ValueError, "'tokens' has 3 numbers, expected 2", append, 0, [0, 1], single, single,
            tokens=[1, 1, 0])
    refused(ValueError, r"'offsets' is \[0, 2\], expected 3 numbers that rise from 0 to 2", append,
            0, [0, 1], single, single, offsets=[0, 2])
    refused(ValueError, "'tokens' is given with 'k' of 4 axes", append, 0, [0, 1], single[:, None],
            single[:, None], tokens=1)
    refused(ValueError, "'tokens' and 'offsets' are both given", append, 0, [0, 1], single, single,
            tokens=1, offsets=[0, 1, 2])
    refused(ValueError, "sequence.*0", append, 0, [0, 0], single, single)
    refused(ValueError, "3", append, 0, [0, 3], single, single)
    refused(ValueError, "'sequences' has -1", append, 0, [0, -1], single, single)
    refused(TypeError, "'sequences' has dtype float64, expected integers", ask, 0, [0.5, 1], q)
    refused(ValueError, r"'q' has shape \[2, 4, 64\], expected \[1, 4, 64\]", ask, 0, 0, q)
    refused(ValueError, r"'q' has shape \[2, 2, 64\], expected \[2, 4, 64\]", ask, 0, [0, 1],
            q[:, :2])
    right = np.empty((2, 4, 64), np.float32)
    refused(ValueError, "'out' and 'lse' overlap", ask, 0, [0, 1], q, out=right,
            lse=right.reshape(-1)[-8:].reshape(2, 4))
    refused(TypeError, "'out' has dtype float16, expected float32", ask, 0, [0, 1], q,
            out=np.empty((2, 4, 64), np.float16))
    refused(ValueError, r"'out' has shape \[2, 64\], expected \[2, 4, 64\]", ask, 0, [0, 1], q,
            out=right[:, 0])
    refused(ValueError, "'out' has strides .*, expected a contiguous array", ask, 0, [0, 1], q,
            out=np.empty((2, 4, 128), np.float32)[..., :64])
    frozen = right.copy()
    frozen.flags.writeable = False
    refused(ValueError, "'out' is read-only", ask, 0, [0, 1], q, out=frozen)
    refused(ValueError, r"'lse' has shape \[2\], expected \[2, 4\]", ask, 0, [0, 1], q,
            lse=np.empty(2, np.float32))
    odd = np.empty(2 * 4 * 64 + 1, np.float32)[1:].reshape(2, 4, 64)
    refused(ValueError, "'out' is at address .*, expected a multiple of 16", ask, 0, [0, 1], q,
            out=odd)
    for name, call in (("k", lambda x: append(0, [0, 1], x, single)),
                       ("q", lambda x: ask(0, 0, x)),
                       ("out", lambda x: ask(0, [0, 1], q, out=x)),
                       ("lse", lambda x: ask(0, [0, 1], q, lse=x))):
        size = ">f2" if name in "kq" else ">f4"
        like = dict(k=single, q=q[:1], out=right, lse=right[..., 0])[name]
        refused(TypeError, f"'{name}' has dtype {size} of the other byte order, expected the "
                "machine's", call, np.ascontiguousarray(like).astype(size))
    refused(TypeError, "'k' has dtype >f2", append, 0, [0, 1], memoryview(single.astype(">f2")),
            single)
    refused(TypeError, "'sequence' is float, expected int", cache.free, 1.5)
    refused(ValueError, "'length' is -1", cache.truncate, 0, -1)
    refused(TypeError, "'sequences' is on cuda:0, expected cpu, the device of the cache, or "
            "integers in host memory", ask, 0,
            OnlyDLPack(np.zeros(2, ml_dtypes.bfloat16), OnlyDLPack.CUDA), q)
    assert cache.length(0) == cache.length(1) == 300
    agree(cache.decode(0, [0, 1], q, lse=True), case)


def test_arrays_elsewhere():
    """What offers DLPack alone, the buffer protocol alone, or is on a device."""
    case = drawn(21, [300], BF16)
    q, k, v = arrays_of(case)
    cache = paged(dtype="bfloat16", delta=2.0)
    s = cache.create()
    given = [OnlyDLPack(k[0, :300]), OnlyDLPack(v[0, :300], OnlyDLPack.CUDA_HOST), OnlyDLPack(q)]
    cache.append(0, s, *given[:2])
    got = cache.decode(0, s, given[2], lse=True)
    assert isinstance(got[0], np.ndarray)
    agree(got, case)
    gc.collect()
    assert [x.released for x in given] == [1, 1, 1]
    away = OnlyDLPack(q, OnlyDLPack.CUDA)
    with pytest.raises(TypeError, match="'q' is on cuda:0, expected cpu, the device of the cache"):
        cache.decode(0, s, away)
    with pytest.raises(TypeError, match="'v' is on cuda:0, expected cpu"):
        cache.append(0, s, given[0], OnlyDLPack(v[0, :300], OnlyDLPack.CUDA))
    half_cache = paged(delta=2.0)
    s = half_cache.create()
    k16, v16 = (np.ascontiguousarray(x[0, :300].astype(np.float16)) for x in (k, v))
    half_cache.append(0, s, memoryview(k16), memoryview(v16))
    assert (half_cache.gather(0, s, first=256)[0] == k16[256:]).all()


def test_gradients():
    torch = pytest.importorskip("torch")
    case = drawn(22, [300])
    cache, _ = filled(case)
    q = torch.zeros(1, 4, 64, dtype=torch.float16, requires_grad=True)
    with pytest.raises(TypeError, match="'q' requires grad, expected a tensor that does not"):
        cache.decode(0, 0, q)
    with torch.no_grad():
        assert cache.decode(0, 0, q).shape == (1, 4, 64)
    assert cache.decode(0, 0, q.detach()).shape == (1, 4, 64)
    assert paged(dtype=torch.bfloat16).dtype == "bfloat16"


def test_copies_of_cupy(monkeypatch):
    """Are made on the device of the array, whichever is current. Without CuPy."""
    current = [0]

    class Device:
        def __init__(self, number):
            self.id = number

        def __enter__(self):
            current.append(self.id)

        def __exit__(self, *_):
            current.pop()

    class Array:
        def __init__(self, host, number):
            self.host, self.device, self.made_on = host, Device(number), current[-1]
            self.shape, self.strides, self.dtype = host.shape, host.strides, host.dtype
            self.itemsize = host.itemsize
            self.data = type("Memory", (), {"ptr": host.__array_interface__["data"][0]})

        def copy(self, order):
            assert order == "C"
            return Array(np.ascontiguousarray(self.host), current[-1])

    cupy = type("cupy", (), {"ndarray": Array, "cuda": type("cuda", (), {"Device": Device})})
    monkeypatch.setattr(_views, "_cupy", lambda: cupy)
    apart = _views.view("k", Array(np.zeros((4, 2, 128), np.float16)[..., ::2], 1))
    assert apart.device == "cuda:1" and apart.strides == (256, 128, 2)
    copy = apart.copy()
    assert copy.array.made_on == 1 and copy.device == "cuda:1" and copy.strides == (128, 64, 1)
    assert current == [0]


# --- Ends and threads -----------------------------------------------------------------------

def test_closing():
    case = drawn(23, [300])
    q = arrays_of(case)[0]
    with filled(case)[0] as cache:
        assert not cache.closed
        cache.decode(0, 0, q)
    assert cache.closed and "max_sequences=4" in repr(cache)
    cache.close()
    for call in (lambda: cache.decode(0, 0, q), cache.create, lambda: cache.length(0),
                 lambda: cache.pages, lambda: cache.free(0)):
        with pytest.raises(ValueError, match="the cache is closed"):
            call()


def test_threads():
    """One cache, many threads: calls run one after the other, each on its own."""
    case = drawn(24, [600, 500, 400, 300])
    q, k, v = arrays_of(case)
    cache = paged(delta=2.0)
    sequences = [cache.create() for _ in range(4)]
    wrong = []

    def work(s):
        try:
            for t in range(0, case.lengths[s], 50):
                cache.append(0, s, k[s, t:t + 50], v[s, t:t + 50])
                cache.decode(0, s, q[s:s + 1])
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(s,)) for s in sequences]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    agree(cache.decode(0, sequences, q, lse=True), case)


def test_contexts_are_shared():
    from ffd import _paged
    gc.collect()
    before = len(_paged._contexts)
    a, b, c = paged(threads=2), paged(threads=2, layers=3), paged(threads=3)
    assert len(_paged._contexts) == before + 2
    del a, b, c
    gc.collect()
    assert len(_paged._contexts) == before


def test_a_gpu_that_is_not_there():
    count, why = ffd.cuda_devices()
    if not count:
        with pytest.raises(ffd.Error):
            paged(target="cuda")
    else:
        with pytest.raises((ffd.Error, ValueError), match=str(count)):
            paged(target=f"cuda:{count}")
