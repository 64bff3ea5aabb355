# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the package does around a kernel on a GPU, with a stand-in for the driver
(cuda_stand_in.py): everything arrives, comes back and is given back. FFD_FAKE_CUDA
is libffdFakeCuda.so, by default that of the build tree of the package."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ffd

FAKE = Path(os.environ.get("FFD_FAKE_CUDA") or
            Path(ffd.__file__).parents[2] / "test/unit/libffdFakeCuda.so")
HERE = Path(__file__).resolve().parent


@pytest.mark.skipif(not FAKE.exists(), reason=f"no stand-in for the CUDA driver at {FAKE}")
def test_around_a_kernel(tmp_path):
    """In a process of its own: a driver stays loaded."""
    (tmp_path / "libcuda.so.1").symlink_to(FAKE.resolve())
    paths = [str(tmp_path), os.environ.get("LD_LIBRARY_PATH", "")]
    modules = [str(HERE), str(HERE.parent / "reference"), *sys.path]
    done = subprocess.run([sys.executable, str(Path(__file__).resolve())], text=True,
                          capture_output=True, timeout=300,
                          env={**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths)),
                               "PYTHONPATH": ":".join(filter(None, modules))})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().endswith("all is given back")


def a_cache_that_grows(fake) -> None:
    """What ffd.PagedCache hands to append and decode: addresses, strides, lists of
    sequences, streams, and what of it a captured graph reads anew."""
    import ctypes

    import ml_dtypes

    import measures
    from arrays import OnlyDLPack, half
    from default_case import draw
    from elements import BF16
    from ffd_reference import decode
    from test_decode import SMALL

    def device(array):
        return OnlyDLPack(array, OnlyDLPack.CUDA)

    case = draw(31, lengths=[100, 90, 0], shared=False, delta=2.0, **{**SMALL, "element": BF16})
    q, k, v = (half(x, BF16) for x in (case.q, case.k, case.v))
    options = dict(layers=2, heads=4, kv_heads=2, head_dim=64, dtype="bfloat16", delta=2.0,
                   max_sequences=5, max_tokens=1000, target="cuda")
    cache = ffd.PagedCache(**options)
    assert cache.device == "cuda:0" and fake.state.retains == 2  # the context's, and to wait
    again = ffd.PagedCache(**options)  # shares the context
    assert fake.state.retains == 2
    again.close()
    fake.stand_in_for(cache)
    for s in range(4):
        assert cache.create() == s

    def agree(got, sequences, lengths):
        want = decode(case.q[sequences], case.k[sequences], case.v[sequences], np.array(lengths),
                      case.spec)
        problem = fake.problem or measures.disagreement(*got, want.o, want.lse,
                                                        measures.SPARSE["bf16"])
        assert not problem, problem

    def ask(sequences, rows, **options):
        """Into memory of the device; slots other than the sequences of the case."""
        out = np.full((len(rows), 4, 64), 7, np.float32)
        lse = np.full((len(rows), 4), 7, np.float32)
        given = device(np.ascontiguousarray(q[rows]))
        result = cache.decode(1, sequences, given, out=device(out), lse=device(lse), **options)
        assert isinstance(result[0], OnlyDLPack) and given.stream == options.get("stream", 1)
        return out, lse

    # Rows of three sequences in slots out of order, heads before tokens.
    rows = [np.concatenate([x[0, :80], x[1, :90]]) for x in (k, v)]
    wide = [np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1) for x in rows]
    cache.append(1, [3, 0, 1], *map(device, wide), tokens=[80, 90, 0])
    agree(ask([3, 0, 1], [0, 1, 2]), [0, 1, 2], [80, 90, 0])
    assert cache.length(3) == 0  # of layer 0
    cache.append(1, 3, device(k[0, 80:85]), device(v[0, 80:85]), stream=0)
    agree(ask([3], [0], stream=4096), [0], [85])

    # A graph: one token of each row of slots, or of those in a list that changes.
    driver = ctypes.CDLL("libcuda.so.1")
    stream, graph, run = (ctypes.c_void_p() for _ in range(3))
    driver.cuStreamCreate(ctypes.byref(stream), 1)
    new = [np.ascontiguousarray(x[:3, 85]) for x in (k, v)]
    listed = np.array([3, -1, 77], np.int32)
    out, lse = np.full((3, 4, 64), 7, np.float32), np.full((3, 4), 7, np.float32)
    query = np.ascontiguousarray(q)
    driver.cuStreamBeginCapture_v2(stream, 0)
    for layer in (0, 1):
        cache.append(layer, device(listed), *map(device, new), stream=stream.value)
    cache.decode(1, device(listed), device(query), out=device(out), lse=device(lse),
                 stream=stream.value)
    for call in (lambda: cache.create(stream=stream.value),
                 lambda: cache.append(1, [3, 0], device(new[0][:2]), device(new[1][:2]),
                                      stream=stream.value),
                 lambda: cache.decode(1, [3], device(query[:1]), out=device(out[:1]), delta=1.0,
                                      stream=stream.value)):
        try:
            call()
        except ValueError as error:
            assert "captured" in str(error), error
        else:
            raise AssertionError("in a capture")
    driver.cuStreamEndCapture(stream, ctypes.byref(graph))
    driver.cuGraphInstantiateWithFlags(ctypes.byref(run), graph, ctypes.c_ulonglong(0))
    assert (out == 7).all() and (lse == 7).all()
    for token in range(85, 95):  # memory that the graph reads anew
        for to, x in zip(new, (k, v)):
            to[0] = x[0, token]
        driver.cuGraphLaunch(run, stream)
        agree((out[:1], lse[:1]), [0], [token + 1])
        assert (out[1:] == 7).all() and (lse[1:] == 7).all()
    cache.advance(3, 10)
    assert cache.length(3) == 10  # as many in layer 0
    agree(ask([3], [0]), [0], [95])
    listed[:] = -1, 3, 77
    new[0][1], new[1][1] = k[0, 95], v[0, 95]
    query[1] = query[0]
    driver.cuGraphLaunch(run, stream)
    agree((out[1:2], lse[1:2]), [0], [96])
    driver.cuGraphDestroy(graph), driver.cuGraphExecDestroy(run)

    # What is not on the device, or nobody knows how to make there.
    def refused(kind, message, call, *arguments, **options):
        try:
            call(*arguments, **options)
        except kind as error:
            assert message in str(error), error
        else:
            raise AssertionError(f"no error: {message}")

    here = k[0, :1]
    refused(TypeError, "argument 'k' is on cpu, expected cuda:0, the device of the cache",
            cache.append, 1, 0, here, device(here))
    refused(TypeError, "argument 'v' is on cpu, expected cuda:0", cache.append, 1, 0, device(here),
            here)
    refused(TypeError, "argument 'out' is on cpu, expected cuda:0", cache.decode, 1, [0],
            device(q[:1]), out=np.empty((1, 4, 64), np.float32))
    refused(TypeError, "results on cuda:0 are allocated by PyTorch or CuPy", cache.decode, 1, [0],
            device(q[:1]))
    refused(TypeError, "argument 'sequences' has dtype bfloat16, expected int32", cache.decode, 1,
            device(q[0, 0]), device(q[:1]))
    refused(ValueError, "'sequences' is given outside of a capture", cache.append, 1,
            device(listed), device(k[:3, 0]), device(v[:3, 0]))
    apart = np.zeros((1, 2, 128), ml_dtypes.bfloat16)[..., ::2]
    refused(ValueError, "argument 'k' has strides [256, 128, 2], expected channels side by side",
            cache.append, 1, 0, device(apart), device(here))
    odd = np.zeros(2 * 64 + 1, ml_dtypes.bfloat16)[1:].reshape(1, 2, 64)
    refused(ValueError, "multiples of 16 bytes", cache.append, 1, 0, device(odd), device(here))
    refused(TypeError, "argument 'stream' is str, expected int", cache.create, stream="side")
    refused(ValueError, "argument 'stream' is -1", cache.create, stream=-1)

    class Stream:
        def __cuda_stream__(self):
            return 0, 4096

    cache.append(1, 0, device(k[1, 90:91]), device(v[1, 90:91]), stream=Stream())
    refused(TypeError, "results on cuda:0 are allocated by PyTorch or CuPy, expected 'like', an array "
            "of one of them", cache.gather, 1, 0, tokens=1)

    # What DLPack lends is given back when the stream is done with it, also of a call that
    # fails; of a captured one at once, and of a cache that is closed.
    def lent(n=1):
        return [device(k[0, :n]), device(v[0, :n])]

    kept = lent()
    fake.state.pending = 1
    cache.append(0, 2, *kept)
    gc.collect()
    assert [x.released for x in kept] == [0, 0]
    more = lent()
    cache.append(0, 2, *more, stream=4096)
    refused(ValueError, "7", cache.append, 7, 2, *more)
    gc.collect()
    assert [x.released for x in kept + more] == [0] * 4
    fake.state.pending = 0
    cache.append(0, 2, *lent())
    gc.collect()
    assert [x.released for x in kept + more] == [1, 1, 2, 2]
    fake.state.pending = 1
    driver.cuStreamBeginCapture_v2(stream, 0)
    captured = lent()
    cache.append(0, [2], *captured, stream=stream.value)
    driver.cuStreamEndCapture(stream, ctypes.byref(graph))
    driver.cuGraphDestroy(graph)
    last = lent()
    cache.append(0, 2, *last)
    gc.collect()
    assert [x.released for x in captured + last] == [1, 1, 0, 0]

    # A sequence whose threshold does not arrive is none.
    count, copies = cache.sequences, 0
    while True:
        fake.state.copies_left = copies
        try:
            cache.create(delta=9.0)
        except ffd.Error as error:
            assert "copy" in str(error), error
            assert cache.sequences == count
            copies += 1
        else:
            break
    fake.state.copies_left = -1
    assert cache.sequences == count + 1 and copies > 1

    live = fake.state.live_allocations
    assert live > 0
    cache.close()
    assert fake.state.live_allocations == 0
    assert [x.released for x in last] == [1, 1]
    fake.state.pending = 0
    refused(ValueError, "the cache is closed", cache.create)


def main() -> None:
    import measures
    from arrays import half
    from default_case import draw
    from check_run import compare
    from cuda_stand_in import StandIn
    from elements import BF16, F16
    from ffd_reference import decode
    from test_decode import SMALL, asked_by, inputs

    assert ffd.cuda_devices() == (1, ""), ffd.cuda_devices()
    fake = StandIn()
    runtime = ffd.Runtime("cuda", threads=1)
    assert fake.state.retains == 1

    planned = 0
    for seed, element, centre, tokens, lengths in (
            (1, F16, "none", 1, [900, 0, 515]), (2, BF16, "row", 1, [700, 700]),
            (3, F16, "row", 4, [900, 3, 515])):
        case = draw(seed, lengths=lengths, shared=False, delta=2.0,
                    **{**SMALL, "element": element})
        case.poison()
        q, lag = asked_by(case, tokens, seed), tokens + 1
        q = q[:, 0] if tokens == 1 else q
        cache = ffd.Cache(*inputs(case)[1:], lengths=lengths, lag=lag, centre=centre,
                          runtime=runtime)
        launches = fake.state.launches
        got = cache.decode(half(q, element), delta=2.0, runtime=runtime)
        assert fake.state.launches == launches + 1 and fake.state.threads > 0
        spec = replace(case.spec, lag=lag, centre=centre)
        want = decode(q, case.k, case.v, np.array(lengths), spec)
        problem = compare(got.out, got.lse, got.kept.astype(np.uint8), want, spec).problem
        assert not problem, problem
        planned += len(set(lengths)) > 1
        assert fake.planned == planned  # rows of unequal lengths are cut by a plan

    case = draw(4, lengths=[700, 0, 129], shared=False, delta=np.inf, **SMALL)
    got = ffd.exact(*inputs(case), lengths=case.lengths, runtime=runtime)
    want = case.reference(dense=True)
    assert not measures.disagreement(got.out, got.lse, want.o, want.lse, measures.DENSE["f16"])

    # Buffers live as long as the kernel, and a call that finds no memory says so.
    cache = ffd.Cache(*inputs(case)[1:], lengths=case.lengths, runtime=runtime)
    q = inputs(case)[0]
    cache.decode(q, delta=2.0, runtime=runtime)
    live = fake.state.live_allocations
    for i in range(20):
        cache.decode(q, delta=float(i), runtime=runtime)
    assert 0 < fake.state.live_allocations == live
    other = ffd.Runtime("cuda", threads=1)
    assert fake.state.retains == 2
    fake.state.memory_left = 1000
    try:
        cache.decode(q, delta=2.0, runtime=other)
    except MemoryError as error:
        assert "on the device" in str(error) or "bytes" in str(error), error
    else:
        raise AssertionError("no MemoryError")
    fake.state.memory_left = -1
    assert np.isfinite(cache.decode(q, delta=2.0, runtime=other).out).all()

    # A kernel of another architecture is refused by its name.
    try:
        cache.decode(q, delta=2.0, runtime=ffd.Runtime("sm_100a", threads=1))
    except ffd.Error as error:
        assert "sm_100a" in str(error) and "sm_90a" in str(error), error
    else:
        raise AssertionError("a kernel for sm_100a ran")

    # Rules of ablations are for the CPU.
    for options in ({"selector": "top_k=4"}, {"execution": "split"}):
        try:
            cache.decode(q, delta=2.0, runtime=runtime, **options)
        except (ValueError, ffd.Error) as error:
            print(f"{options}: {error}")
        else:
            raise AssertionError(f"{options} ran")

    del runtime, other, cache, got
    gc.collect()
    a_cache_that_grows(fake)
    gc.collect()
    state = fake.state
    left = state.live_allocations, state.live_modules, state.context_depth, state.retains
    assert left == (0, 0, 0, 0), left
    print("all is given back")


if __name__ == "__main__":
    main()
