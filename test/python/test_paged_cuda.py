# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Caches that grow on a GPU, with tensors of PyTorch, CuPy and JAX as they are: on
their streams, in CUDA graphs, without waiting. Skipped without a GPU."""

from __future__ import annotations

import gc
import os
import threading
from dataclasses import replace

import numpy as np
import pytest

import ffd
import measures
from arrays import half
from cases import Case
from elements import BF16, F16
from ffd import _views
from ffd_reference import decode
from test_cuda import from_bits, on_device, torch  # noqa: F401 (a fixture)
from test_decode import BOTH, asked_by
from test_paged import arrays_of, drawn, paged

GPUS, WHY = ffd.cuda_devices()
pytestmark = pytest.mark.skipif(not GPUS, reason=f"no GPU: {WHY or 'the driver finds none'}")


def host(array) -> np.ndarray:
    """Of whatever framework, after its work."""
    if isinstance(array, np.ndarray):
        return array
    return array.get() if hasattr(array, "get") else array.float().cpu().numpy()


def agree(got, case: Case, q=None, lengths=None, **spec) -> None:
    want = decode(case.q if q is None else q, case.k, case.v,
                  np.array(case.lengths if lengths is None else lengths),
                  replace(case.spec, **spec))
    problem = measures.disagreement(host(got[0]), host(got[1]), want.o, want.lse,
                                    measures.SPARSE[case.element.name])
    assert not problem, problem


def on_gpu(torch, case: Case, **options):  # noqa: F811
    """(cache, q, k, v) of a case, nothing appended yet."""
    q, k, v = (from_bits(torch, x, "cuda") for x in arrays_of(case))
    given = dict(target="cuda", delta=2.0, threads=0,
                 dtype="bfloat16" if case.element is BF16 else "float16")
    return paged(**{**given, **options}), q, k, v


def fill(cache, k, v, lengths) -> list[int]:
    sequences = [cache.create() for _ in lengths]
    for s, n in zip(sequences, lengths):
        if n:
            for layer in range(cache.layers):
                cache.append(layer, s, k[s, :n], v[s, :n])
    return sequences


# --- Tokens and results -------------------------------------------------------------------

@BOTH
@pytest.mark.parametrize("centre, lag", (("none", 0), ("row", 40)))
def test_chunks_and_single_tokens(element, centre, lag, torch):  # noqa: F811
    lengths = [900, 0, 515]
    cases = [drawn(seed, lengths, element) for seed in (1, 2)]
    caches = None
    inputs = []
    for case in cases:
        made, *given = on_gpu(torch, case, layers=2, centre=centre, lag=lag)
        caches = caches or made
        inputs.append(given)
    sequences = [caches.create() for _ in lengths]
    rng = np.random.default_rng(3)
    for layer, (_, k, v) in enumerate(inputs):
        at = [0, 0, 0]
        while at != lengths:
            each = [min(n - a, int(rng.choice((0, 1, 1, 7, 128, 300))))
                    for a, n in zip(at, lengths)]
            rows = [torch.cat([x[s, a:a + n] for s, a, n in zip(sequences, at, each)])
                    for x in (k, v)]
            caches.append(layer, sequences, *rows, tokens=each)
            at = [a + n for a, n in zip(at, each)]
    for layer, (case, (q, _, _)) in enumerate(zip(cases, inputs)):
        out, lse = caches.decode(layer, sequences, q, lse=True)
        assert out.device == lse.device == q.device and out.dtype == torch.float32
        agree((out, lse), case, lag=lag, centre=centre)
        q16, k16, v16 = arrays_of(case)
        once = ffd.decode(q16, k16, v16, lengths=lengths, delta=2.0, lag=lag, centre=centre)
        assert not measures.disagreement(host(out), host(lse), once.out, once.lse,
                                         measures.SPARSE[element.name])
    caches.request_statistics()
    torch.cuda.synchronize()
    seen = caches.statistics()
    assert (seen.scanned > 0).all() and (0 < seen.kept).all() and (seen.kept < seen.scanned).all()
    assert caches.append_errors() == {}


def test_lists_results_and_thresholds(torch):  # noqa: F811
    case = drawn(40, [900, 200, 500, 0])
    cache, q, k, v = on_gpu(torch, case)
    fill(cache, k, v, case.lengths)
    want = cache.decode(0, None, q, lse=True)
    agree(want, case)
    out, lse = cache.decode(0, [2, 0], q[[2, 0]], lse=True)  # in no row
    agree((out, lse), replace(case, q=case.q[[2, 0]], k=case.k[[2, 0]], v=case.v[[2, 0]],
                              lengths=[500, 900]))
    room = torch.full((3, 4, 4, 64), 7.0, device="cuda")
    logs = torch.full((4, 4), 7.0, device="cuda")
    got = cache.decode(0, range(4), q, out=room[1], lse=logs)
    assert got[1] is logs and (room[1] == want[0]).all() and (logs == want[1]).all()
    assert (room[::2] == 7).all()
    assert cache.decode(0, [0, 1, 2, 3], q[:, None]).shape == (4, 1, 4, 64)
    every = cache.decode(0, None, q, delta=[np.inf, 2, np.inf, 2], lse=True)
    for b, delta in enumerate((np.inf, 2.0, np.inf, 2.0)):
        agree([x[b:b + 1] for x in every],
              replace(case, q=case.q[b:b + 1], k=case.k[b:b + 1], v=case.v[b:b + 1],
                      lengths=case.lengths[b:b + 1], delta=delta))
    assert (every[1][3] == -torch.inf).all() and (every[0][3] == 0).all()


def test_strides(torch):  # noqa: F811
    """As models have them: heads before tokens, queries of a fused projection."""
    case = drawn(41, [384, 384])
    cache, q, k, v = on_gpu(torch, case)
    sequences = [cache.create(), cache.create()]
    heads_first = [x.transpose(1, 2).contiguous() for x in (k, v)]
    for a, b in ((0, 250), (250, 251), (251, 380)):
        cache.append(0, sequences, *(x[:, :, a:b].transpose(1, 2) for x in heads_first))
    fused = torch.cat([k[:, 380:384], v[:, 380:384]], dim=3)  # [.., 2 * 64]
    cache.append(0, sequences, fused[..., :64], fused[..., 64:])
    odd = torch.zeros(2 * 4 * 64 + 1, dtype=torch.float16, device="cuda")[1:].view(2, 4, 64)
    odd.copy_(q)
    agree(cache.decode(0, sequences, odd, lse=True), case)
    agree(cache.decode(0, sequences, torch.cat([q, q], dim=1)[:, :4], lse=True), case)


@pytest.mark.parametrize("options", (dict(host_pages=True), dict(batch_invariant=True),
                                     dict(pseudo_max="scan")), ids=str)
def test_options(options, torch):  # noqa: F811
    case = drawn(42, [900, 300])
    cache, q, k, v = on_gpu(torch, case, **options)
    fill(cache, k, v, case.lengths)
    both = cache.decode(0, [0, 1], q, lse=True)
    agree(both, case, pseudo_max=options.get("pseudo_max", "refined"))
    if "batch_invariant" in options:
        assert (cache.decode(0, 1, q[1:]) == both[0][1:]).all()


def test_query_tokens(torch):  # noqa: F811
    case = drawn(43, [900, 0, 3, 515])
    several = asked_by(case, 4, 43)
    cache, _, k, v = on_gpu(torch, case, query_tokens=4, lag=3)
    fill(cache, k, v, case.lengths)
    agree(cache.decode(0, None, from_bits(torch, half(several, F16), "cuda"), lse=True), case,
          q=several, lag=3)


# --- Sequences ------------------------------------------------------------------------------

def test_fork_truncate_files(torch, tmp_path):  # noqa: F811
    case = drawn(44, [700, 700])
    cache, q, k, v = on_gpu(torch, case, pages=11)
    a = cache.create()
    cache.append(0, a, k[0, :600], v[0, :600])
    b = cache.fork(a)
    case.k[1, :600], case.v[1, :600] = case.k[0, :600], case.v[0, :600]
    cache.append(0, [a, b], k[:, 600:700], v[:, 600:700])
    agree(cache.decode(0, [a, b], q, lse=True), case)
    cache.truncate(a, 650)
    cache.truncate(b, 384)
    got = cache.decode(0, [a, b], q, lse=True)
    agree(got, case, lengths=[650, 384])
    cache.save(a, tmp_path / "a")
    with paged(delta=2.0) as other:  # on the CPU
        s = other.load(tmp_path / "a")
        assert not measures.disagreement(*other.decode(0, s, arrays_of(case)[0][:1], lse=True),
                                         host(got[0][:1]), host(got[1][:1]),
                                         measures.SPARSE["f16"])
        keys, values = cache.gather(0, a)
        assert keys.is_cuda and keys.dtype == torch.float16
        for mine, theirs in zip((keys, values), other.gather(0, s)):
            assert (mine.cpu().numpy() == theirs).all()
    c = cache.load(tmp_path / "a")
    assert (cache.decode(0, c, q[:1]) == cache.decode(0, a, q[:1])).all()
    free = cache.pages_free
    with pytest.raises(ffd.OutOfPages):
        cache.append(0, [a, b], k[:, :300], v[:, :300])
    assert cache.pages_free == free and cache.length(b) == 384
    for s in (a, b, c):
        cache.free(s)
    assert cache.pages_free == cache.pages == 11


# --- Streams --------------------------------------------------------------------------------

def late(torch, *sources, cycles=900_000_000):  # noqa: F811
    """Copies that the current stream still has to make, half a second from now."""
    copies = [torch.zeros_like(x) for x in sources]
    torch.cuda._sleep(cycles)
    for copy, x in zip(copies, sources):
        copy.copy_(x)
    return copies


def test_current_stream_and_no_waiting(torch):  # noqa: F811
    """Tensors that are not there yet; calls that return before they are."""
    case = drawn(45, [900, 400, 0])
    cache, q, k, v = on_gpu(torch, case, layers=2)
    mixed = q[[0, 2, 1]]
    torch.cuda.synchronize()
    side = torch.cuda.Stream()

    def before_they_are(cycles) -> bool:
        """Whether the stream was still at work when the last call had returned."""
        with torch.cuda.stream(side):
            a, b = late(torch, k, v, cycles=cycles)
            sequences = [cache.create(), cache.create(), cache.create()]
            assert sequences == [0, 1, 2]
            for layer in range(2):
                cache.append(layer, sequences[:2], torch.cat([a[0, :600], a[1, :400]]),
                             torch.cat([b[0, :600], b[1, :400]]), tokens=[600, 400])
                for t in range(600, 610):
                    cache.append(layer, [0], a[0, t:t + 1], b[0, t:t + 1])
            other = cache.fork(0)
            cache.free(other)
            for layer in range(2):
                cache.append(layer, [0], a[0, 610:900], b[0, 610:900])
            results = cache.decode(1, [0, 2, 1], mixed, lse=True)
            copies = [x.clone() for x in results]
            cache.request_statistics()
            busy = not side.query()
            side.synchronize()
            agree([x[[0, 2, 1]] for x in copies], case)
            assert (copies[0] == results[0]).all()
            for s in sequences:
                cache.free(s)
            return busy

    before_they_are(1)  # loads the kernels of both, which may wait for the device
    # A busy host may need longer than the stream, but not than one that takes 16 times as
    # long; calls that wait for the stream never return before it is done.
    assert any(before_they_are(times * 900_000_000) for times in (1, 4, 16)), "a call waits"


@pytest.mark.parametrize("kind", ("torch", "number", "cupy"))
def test_a_given_stream(kind, torch):  # noqa: F811
    """It waits for what the current stream still has to make."""
    case = drawn(46, [900, 400])
    cache, q, k, v = on_gpu(torch, case)
    side = torch.cuda.Stream()
    stream = side if kind == "torch" else side.cuda_stream
    if kind == "cupy":
        stream = _views._cupy_stream(pytest.importorskip("cupy").cuda, side.cuda_stream, 0)
    sequences = [cache.create(stream=stream), cache.create(stream=stream)]
    a, b = late(torch, k, v)
    for s, n in zip(sequences, case.lengths):
        cache.append(0, s, a[s, :n], b[s, :n], stream=stream)
    del a, b  # the memory stays theirs until the stream is done
    junk = [torch.full_like(k, 9.0) for _ in range(4)]
    got = cache.decode(0, sequences, q, lse=True, stream=stream)
    torch.cuda.current_stream().wait_stream(side)
    agree(got, case)
    del junk
    if kind == "torch":
        with pytest.raises(TypeError, match="'stream' is torch.Tensor|'stream' is Tensor"):
            cache.create(stream=q)


def test_threads_with_streams(torch):  # noqa: F811
    """A cache and a stream each."""
    wrong = []

    def work(seed):
        try:
            case = drawn(seed, [700, 300])
            with torch.cuda.stream(torch.cuda.Stream()):
                cache, q, k, v = on_gpu(torch, case)
                torch.cuda.current_stream().synchronize()
                sequences = [cache.create(), cache.create()]
                for t in range(0, 700, 50):
                    some = sequences if t < 300 else sequences[:1]
                    cache.append(0, some, k[:len(some), t:t + 50], v[:len(some), t:t + 50])
                    cache.decode(0, some, q[:len(some)])
                agree(cache.decode(0, sequences, q, lse=True), case)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(50 + i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


# --- Graphs ---------------------------------------------------------------------------------

@pytest.mark.parametrize("element, centre", ((F16, "none"), (BF16, "row")), ids=str)
def test_a_captured_step(element, centre, torch):  # noqa: F811
    """300 replays over block boundaries, each compared with a cache without graphs."""
    steps, start = 300, [250, 100, 0]
    case = drawn(47, [n + steps + 1 for n in start], element)
    cache, q, k, v = on_gpu(torch, case, layers=2, centre=centre)
    plain = on_gpu(torch, case, layers=2, centre=centre)[0]
    new_k, new_v = torch.empty_like(k[:, 0]), torch.empty_like(v[:, 0])
    rows = torch.arange(3, device="cuda")
    at = torch.tensor(start, device="cuda")

    def next_tokens():
        new_k.copy_(k[rows, at]), new_v.copy_(v[rows, at])
        at.add_(1)

    def step(to):
        for layer in range(2):
            to.append(layer, [0, 1, 2], new_k, new_v)
            result = to.decode(layer, [0, 1, 2], q, lse=True)
        return result

    for to in (cache, plain):
        assert fill(to, k, v, start) == [0, 1, 2]
    next_tokens()
    step(cache), step(plain)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = step(cache)
    assert [cache.length(s) for s in range(3)] == [251, 101, 1]  # it has only been recorded
    worst = torch.zeros(2, device="cuda")
    for t in range(steps):
        next_tokens()
        cache.reserve([0, 1, 2], 1)
        graph.replay()
        cache.advance([0, 1, 2])
        want = step(plain)
        worst = torch.maximum(worst, torch.stack([
            ((out - want[0]).flatten(1).norm(dim=1) / want[0].flatten(1).norm(dim=1)).max(),
            (lse - want[1]).abs().max()]))
        if t == 100:  # tables change in between
            other = cache.fork(1)
            cache.truncate(other, 0)
            cache.free(other)
    relative, absolute, _ = measures.SPARSE[element.name]
    assert (worst.cpu().numpy() <= (relative, absolute)).all(), worst
    agree((out, lse), case, centre=centre)
    assert cache.append_errors() == {} and cache.pages_free == plain.pages_free
    for s in range(3):
        assert cache.length(s) == plain.length(s) == case.lengths[s]
        for mine, theirs in zip(cache.gather(1, s), plain.gather(1, s)):
            assert (mine == theirs).all()


def test_lists_on_the_device(torch):  # noqa: F811
    """Slots and numbers of tokens that change between replays."""
    case = drawn(48, [600, 500, 400, 300])
    cache, q, k, v = on_gpu(torch, case)
    fill(cache, k, v, [200, 200, 200, 200])
    lengths = [200] * 4
    listed = torch.tensor([0, 1, 2], dtype=torch.int32, device="cuda")
    offsets = torch.tensor([0, 1, 2, 3], dtype=torch.int32, device="cuda")
    new_k, new_v = (torch.zeros(12, 2, 64, dtype=torch.float16, device="cuda") for _ in "kv")
    query = torch.zeros(3, 4, 64, dtype=torch.float16, device="cuda")
    cache.decode(0, [0, 1, 2], query)
    out = torch.zeros(3, 4, 64, device="cuda")
    lse = torch.zeros(3, 4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cache.append(0, listed, new_k, new_v, offsets=offsets)
        cache.decode(0, listed, query, out=out, lse=lse)
    rng = np.random.default_rng(48)
    for _ in range(40):
        slots = rng.permutation(4)[:3].tolist()
        slots[int(rng.integers(3))] = -1
        each = [int(min(rng.integers(0, 5), case.lengths[s] - lengths[s])) if s >= 0 else 0
                for s in slots]
        used = [(s, n) for s, n in zip(slots, each) if s >= 0]
        cache.reserve([s for s, _ in used], [n for _, n in used])
        listed.copy_(torch.tensor(slots, dtype=torch.int32))
        offsets.copy_(torch.tensor(np.cumsum([0, *each]), dtype=torch.int32))
        row = 0
        for s, n in used if used else ():
            row = sum(each[:slots.index(s)])
            new_k[row:row + n] = k[s, lengths[s]:lengths[s] + n]
            new_v[row:row + n] = v[s, lengths[s]:lengths[s] + n]
            lengths[s] += n
        for i, s in enumerate(slots):
            query[i] = q[s]
        out.fill_(7), lse.fill_(7)
        graph.replay()
        cache.advance([s for s, _ in used], [n for _, n in used])
        gone = slots.index(-1)
        assert (out[gone] == 7).all() and (lse[gone] == 7).all()
        stay = [i for i in range(3) if i != gone]
        at = [slots[i] for i in stay]
        agree((out[stay], lse[stay]), replace(case, q=case.q[at], k=case.k[at], v=case.v[at],
                                              lengths=[lengths[s] for s in at]))
    assert [cache.length(s) for s in range(4)] == lengths and cache.append_errors() == {}


def test_a_graph_without_pages(torch):  # noqa: F811
    """What is not reserved is not appended, and is said once asked."""
    case = drawn(49, [200])
    cache, q, k, v = on_gpu(torch, case)
    [s] = fill(cache, k, v, [119])
    new_k, new_v = k[:, 0].clone(), v[:, 0].clone()
    cache.append(0, s, k[:, 119], v[:, 119])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cache.append(0, [s], new_k, new_v)
    for t in range(120, 140):  # the 128th token would commit a block
        new_k.copy_(k[:, t]), new_v.copy_(v[:, t])
        graph.replay()
    torch.cuda.synchronize()
    assert cache.append_errors() == {s: "beyond what is reserved"}
    cache.clear_errors()
    cache.advance(s, 7)  # 127 tokens are there
    cache.append(0, s, k[0, 127:200], v[0, 127:200])
    agree(cache.decode(0, s, q, lse=True), case)
    assert cache.append_errors() == {}
    with pytest.raises((ValueError, ffd.Error), match="captur"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            cache.create()


# --- Other frameworks -------------------------------------------------------------------------

def test_cupy(torch):  # noqa: F811
    cupy = pytest.importorskip("cupy")
    case = drawn(60, [700, 300])
    cache = paged(target="cuda", delta=2.0)
    q, k, v = (cupy.asarray(x) for x in arrays_of(case))
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        # PyTorch uses the GPU too, so that calls without arrays do not know whose stream.
        sequences = [cache.create(stream=stream), cache.create(stream=stream)]
        for s, n in zip(sequences, case.lengths):
            cache.append(0, s, k[s, :n - 1], v[s, :n - 1])
            # no strides for it: copied
            cache.append(0, s, cupy.repeat(k[s, n - 1:n], 2, axis=2)[..., ::2], v[s, n - 1:n])
        out, lse = cache.decode(0, sequences, q, lse=True)
        assert isinstance(out, cupy.ndarray) and out.dtype == cupy.float32
        assert cache._stream(None) == stream.ptr
        agree((out, lse), case)
        keys, _ = cache.gather(0, 0, like=q)
        assert isinstance(keys, cupy.ndarray)
        # On another stream, before and after which CuPy's own waits.
        again = cache.decode(0, sequences, q, stream=cupy.cuda.Stream(non_blocking=True))
        assert (again.get() == out.get()).all()
        mixed = cache.decode(0, sequences, torch.from_dlpack(q))
    assert isinstance(mixed, torch.Tensor)
    torch.cuda.synchronize()
    assert (mixed.cpu().numpy() == out.get()).all()


@BOTH
def test_jax(element, torch):  # noqa: F811
    case = drawn(61, [700, 300], element)
    q, k, v = (on_device("jax", x) for x in arrays_of(case))
    cache = paged(target="cuda", delta=2.0, dtype="float16" if element is F16 else "bfloat16")
    sequences = [cache.create(), cache.create()]
    for s, n in zip(sequences, case.lengths):
        cache.append(0, s, k[s, :n], v[s, :n])
    out = torch.empty(2, 4, 64, device="cuda")
    lse = torch.empty(2, 4, device="cuda")
    assert cache.decode(0, sequences, q, out=out, lse=lse)[0] is out
    agree((out, lse), case)
    with pytest.raises(TypeError, match="results on cuda:0 are allocated by PyTorch or CuPy"):
        cache.decode(0, sequences, q)
    with pytest.raises(TypeError, match="'out' is ArrayImpl, which cannot be written to"):
        cache.decode(0, sequences, q, out=on_device("jax", np.zeros((2, 4, 64), np.float32)))


def test_what_is_elsewhere_is_refused(torch):  # noqa: F811
    case = drawn(62, [300])
    cache, q, k, v = on_gpu(torch, case)
    [s] = fill(cache, k, v, [300])
    for here in (q.cpu(), q.cpu().pin_memory(), arrays_of(case)[0]):
        with pytest.raises(TypeError, match="'q' is on cpu, expected cuda:0, the device of the"):
            cache.decode(0, s, here)
    with pytest.raises(TypeError, match="'v' is on cpu, expected cuda:0"):
        cache.append(0, s, k[0, :1], v[0, :1].cpu())
    with pytest.raises(TypeError, match="'out' is on cpu, expected cuda:0"):
        cache.decode(0, s, q, out=torch.empty(1, 4, 64))
    with pytest.raises(TypeError, match="'q' has dtype bfloat16, expected float16"):
        cache.decode(0, s, q.bfloat16())
    with pytest.raises(TypeError, match="'q' is on meta, expected cuda:0"):
        cache.decode(0, s, q.to("meta"))
    with pytest.raises(ValueError, match="'sequences' is given outside of a capture"):
        cache.decode(0, torch.zeros(1, dtype=torch.int32, device="cuda"), q)
    with paged() as other:
        with pytest.raises(TypeError, match="'k' is on cuda:0, expected cpu, the device of the"):
            other.append(0, other.create(), k[0, :1], v[0, :1])
    agree(cache.decode(0, s, q, lse=True), case)


def test_memory_of_the_device(torch):  # noqa: F811
    """Calls take none; a cache gives back all."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("other workers take and give memory of the device: run this without -n")
    case = drawn(63, [900, 300])

    def free() -> int:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0]

    first, q, k, v = on_gpu(torch, case)  # keeps the context and its kernels
    fill(first, k, v, case.lengths)
    first.decode(0, [0, 1], q)
    before = free()
    cache = on_gpu(torch, case, layers=8, max_tokens=20_000)[0]
    fill(cache, k, v, case.lengths)
    cache.decode(0, [0, 1], q)
    assert cache.nbytes - (4 << 20) <= before - free() <= cache.nbytes + (128 << 20)
    warm = free()
    for i in range(200):
        t = cache.fork(0)
        cache.append(0, [t], k[0, :1], v[0, :1])
        cache.decode(i % 8, [0, 1], q)
        cache.decode(0, [1, 0], q, lse=True)
        cache.free(t)
        if i % 50 == 0:
            with pytest.raises(TypeError):
                cache.decode(0, [0, 1], q.cpu())
    assert warm - free() <= 4 << 20
    cache.close()
    assert before - free() <= 4 << 20
