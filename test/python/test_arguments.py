# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of all kinds fit; what does not is an exception that names the
argument, its value and what was expected. Threads may share everything."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import threading
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import ffd
from arrays import OnlyDLPack, half
from elements import BF16, F16

RNG = np.random.default_rng(3)
B, T, HKV, G, D = 2, 300, 2, 2, 64


def tensors(element=F16) -> list[np.ndarray]:
    shapes = (B, HKV * G, D), (B, T, HKV, D), (B, T, HKV, D)
    return [half(element.round(RNG.normal(size=s).astype(np.float32)), element) for s in shapes]


Q, K, V = tensors()
QB, KB, VB = tensors(BF16)


def same(a: ffd.Result, b: ffd.Result) -> bool:
    return bool((a.out == b.out).all() and (a.lse == b.lse).all() and (a.kept == b.kept).all())


# --- Arrays ---------------------------------------------------------------------------

def test_strides(runtime):
    want = ffd.decode(Q, K, V, runtime=runtime)
    heads_first = np.ascontiguousarray(K.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    channels_apart = np.ascontiguousarray(K.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    backwards = np.ascontiguousarray(V[:, ::-1])[:, ::-1]
    every_other = np.repeat(Q, 2, axis=2)[:, :, ::2]
    assert channels_apart.strides[3] != 2 and backwards.strides[1] < 0
    for k in (heads_first, channels_apart):
        assert same(ffd.decode(every_other, k, backwards, runtime=runtime), want)


def test_read_only(runtime):
    want = ffd.decode(Q, K, V, runtime=runtime)
    frozen = [x.copy() for x in (Q, K, V)]
    for x in frozen:
        x.flags.writeable = False
    assert same(ffd.decode(*frozen, runtime=runtime), want)


def test_the_cache_copies(runtime):
    k, v = K.copy(), V.copy()
    cache = ffd.Cache(k, v, runtime=runtime)
    want = cache.decode(Q, runtime=runtime)
    k[...], v[...] = 0, 0
    assert same(cache.decode(Q, runtime=runtime), want)


def test_dlpack_bfloat16(runtime):
    want = ffd.decode(QB, KB, VB, runtime=runtime)
    given = [OnlyDLPack(x) for x in (QB, KB.transpose(0, 1, 2, 3), VB)]
    assert same(ffd.decode(*given, runtime=runtime), want)
    assert all(x.released >= 1 for x in given)


def test_page_locked_memory(runtime):
    """Which a framework may hand out as memory of CUDA's, is host memory."""
    want = ffd.decode(QB, KB, VB, runtime=runtime)
    locked = [OnlyDLPack(x, OnlyDLPack.CUDA_HOST) for x in (QB, KB, VB)]
    assert same(ffd.decode(*locked, runtime=runtime), want)


@pytest.mark.parametrize("bits", (16, "b16"))
def test_torch(bits, runtime):
    torch = pytest.importorskip("torch")
    q, k, v = (Q, K, V) if bits == 16 else (QB, KB, VB)
    want = ffd.decode(q, k, v, runtime=runtime)
    kind = torch.float16 if bits == 16 else torch.bfloat16
    given = [torch.from_numpy(x.view(np.int16)).view(kind) for x in (q, k, v)]
    got = ffd.decode(*given, lengths=torch.full((B,), T), delta=torch.full((B,), 5.0),
                     runtime=runtime)
    assert same(got, want)
    assert torch.equal(torch.from_dlpack(got.out), torch.from_numpy(want.out))


def test_torch_bfloat16_of_small_arguments(runtime):
    torch = pytest.importorskip("torch")
    cache = ffd.Cache(K, V, runtime=runtime)
    some = torch.tensor([1.0, 2.5], dtype=torch.bfloat16)
    assert same(cache.decode(Q, delta=some, runtime=runtime),
                cache.decode(Q, delta=[1.0, 2.5], runtime=runtime))
    out, lse = ffd.merge([torch.full((2, 16), 1.5, dtype=torch.bfloat16)] * 2, [some, some])
    assert (out == 1.5).all() and np.allclose(lse, [1 + np.log(2), 2.5 + np.log(2)])


@pytest.mark.parametrize("element", (F16, BF16), ids=lambda e: e.name)
def test_jax(element, runtime):
    jax = pytest.importorskip("jax")
    q, k, v = (Q, K, V) if element is F16 else (QB, KB, VB)
    want = ffd.decode(q, k, v, runtime=runtime)
    host = jax.devices("cpu")[0]  # not where arrays go by themselves if there is a GPU
    given = [jax.device_put(x, host) for x in (q, k, v)]
    got = ffd.decode(*given, lengths=jax.numpy.full((B,), T), runtime=runtime)
    assert same(got, want)


def test_results_offer_dlpack(runtime):
    got = ffd.decode(Q, K, V, runtime=runtime)
    assert (np.from_dlpack(got.out) == got.out).all()
    kept = got.out[0, 0]
    del got
    assert np.isfinite(kept).all()  # the memory lives as long as any view


# --- What is refused ------------------------------------------------------------------

@pytest.fixture(scope="module")
def cache(runtime):
    return ffd.Cache(K, V, runtime=runtime)


class NoArray:
    pass


class OnlyCuda:
    """An array that only offers the CUDA array interface, as numba's do."""
    __cuda_array_interface__ = {"shape": (B, T, HKV, D), "typestr": "<f2", "data": (16, False),
                                "version": 3}


CACHES = {
    "not an array": ((NoArray(), V), {}, TypeError, r"'k' is .*NoArray, expected a float16"),
    "a list": (([[1.0]], V), {}, TypeError, "'k' is list, expected"),
    "float32": ((K.astype(np.float32), V), {}, TypeError, "'k' has dtype float32, expected"),
    "int16": ((K.view(np.int16), V), {}, TypeError, "'k' has dtype int16, expected"),
    "uint16": ((K.view(np.uint16), V), {}, TypeError, "'k' has dtype uint16, expected"),
    "other byte order": ((K.astype(">f2"), V), {}, TypeError, "'k' is .*ndarray of dtype >f2"),
    "3 axes": ((K[0], V), {}, ValueError, "'k' has 3 axes, expected a float16 or bfloat16 array "
                                          r"\[batch, tokens, kv_heads, channels\]"),
    "mixed": ((K, VB), {}, TypeError, "'v' has dtype bfloat16, expected float16, the dtype of 'k'"),
    "device": ((OnlyDLPack(KB, OnlyDLPack.CUDA), VB), {}, TypeError,
               "'k' is on CUDA device 0, expected an array in host memory"),
    "other device": ((KB, OnlyDLPack(VB, 99)), {}, TypeError,
                     "'v' is on device 0 of DLPack type 99, expected an array in host memory"),
    "device, without DLPack": ((OnlyCuda(), V), {}, TypeError,
                               "'k' is on a CUDA device, expected an array in host memory"),
    "fewer tokens": ((K, V[:, :9]), {}, ValueError,
                     r"'v' has shape \[2, 9, 2, 64\], expected 300 in axis 1, as in 'k'"),
    "head dim": ((K[..., :48], V), {}, ValueError,
                 r"'k' has shape \[2, 300, 2, 48\], expected a head dim of 64, 80"),
    "value dim": ((K, V[..., :20]), {}, ValueError,
                  r"'v' has shape \[2, 300, 2, 20\], expected a head dim that is a multiple of 16"),
    "no sequence": ((K[:0], V[:0]), {}, ValueError, "expected at least one sequence"),
    "no head": ((K[:, :, :0], V[:, :, :0]), {}, ValueError, "expected at least one kv head"),
    "too long": ((K, V), {"lengths": [300, 301]}, ValueError,
                 "'lengths' has 301 at 1, expected 0 to 300"),
    "negative": ((K, V), {"lengths": [-1, 3]}, ValueError, "'lengths' has -1 at 0, expected 0"),
    "more lengths": ((K, V), {"lengths": [1, 2, 3]}, ValueError,
                     "'lengths' has 3 entries, expected 2"),
    "no lengths": ((K, V), {"lengths": []}, (TypeError, ValueError), "lengths"),
    "lengths of reals": ((K, V), {"lengths": [1.0, 2.0]}, TypeError,
                         "'lengths' has dtype float64, expected integers"),
    "lengths' shape": ((K, V), {"lengths": [[1, 2]]}, ValueError,
                       r"'lengths' has shape \[1, 2\], expected \[batch\]"),
    "scan bits": ((K, V), {"scan_bits": 3}, ValueError, "'scan_bits' is 3, expected 2, 4, 8 or 16"),
    "scan bits' type": ((K, V), {"scan_bits": 2.0}, TypeError, "'scan_bits' is float"),
    "residual bits": ((K, V), {"residual_bits": 4}, ValueError,
                      "'residual_bits' is 4, expected 8 or 0"),
    "residuals of keys": ((K, V), {"scan_bits": 16, "residual_bits": 8}, ValueError,
                          "'residual_bits' is 8 with scan_bits 16, expected 0"),
    "lag": ((K, V), {"lag": -1}, ValueError, "'lag' is -1, expected 0 to"),
    "huge lag": ((K, V), {"lag": 2 ** 31}, ValueError, "'lag' is 2147483648, expected 0 to"),
    "centre": ((K, V), {"centre": "mean"}, ValueError,
               "'centre' is 'mean', expected 'none' or 'row'"),
    "centre's type": ((K, V), {"centre": 1}, TypeError, "'centre' is int, expected str"),
    "runtime": ((K, V), {"runtime": 3}, TypeError, "'runtime' is int, expected ffd.Runtime"),
}


@pytest.mark.parametrize("name", CACHES)
def test_bad_cache(name):
    arguments, options, kind, message = CACHES[name]
    with pytest.raises(kind, match=message):
        ffd.Cache(*arguments, **options)


DECODES = {
    "batch": (Q[:1], {}, ValueError, r"'q' has shape \[1, 4, 64\], expected 2 in axis 0"),
    "head dim": (Q[..., :32], {}, ValueError, "expected 64 in axis 2, the head dim of K"),
    "heads": (Q[:, :3], {}, ValueError, "expected heads that are 1 to 16 times the kv heads of K, 2"),
    "no heads": (Q[:, :0], {}, ValueError, "expected heads that are 1 to 16 times"),
    "many heads": (np.zeros((B, 34, D), np.float16), {}, ValueError, "1 to 16 times"),
    "dtype": (QB, {}, TypeError, "'q' has dtype bfloat16, expected float16, the dtype of K"),
    "negative delta": (Q, {"delta": -0.5}, ValueError, "'delta' is -0.5, expected"),
    "nan in delta": (Q, {"delta": [1, np.nan]}, ValueError, "'delta' is nan at 1, expected"),
    "deltas": (Q, {"delta": [1, 2, 3]}, ValueError, r"'delta' has shape \[3\], expected a number"),
    "text": (Q, {"delta": "5"}, TypeError, "'delta' has dtype <U1, expected real numbers"),
    "no delta": (Q, {"delta": None}, TypeError, "'delta' is NoneType, expected numbers"),
    "scale 0": (Q, {"sm_scale": 0.0}, ValueError, "'sm_scale' is 0.0, expected a finite number"),
    "huge scale": (Q, {"sm_scale": 1e300}, ValueError, r"'sm_scale' is 1e\+300, expected"),
    "scale text": (Q, {"sm_scale": "x"}, TypeError, "'sm_scale' is str, expected a number"),
    "select block": (Q, {"select_block": 48}, ValueError,
                     "'select_block' is 48, expected 16, 32, 64 or 128"),
    "rule": (Q, {"selector": "best"}, ValueError,
             "'selector' is 'best', expected top_delta, top_k=K, top_p=P or all"),
    "k": (Q, {"selector": "top_k=0"}, ValueError, "'selector' is 'top_k=0', expected top_k=K"),
    "p": (Q, {"selector": "top_p=nan"}, ValueError, "'selector' is 'top_p=nan', expected top_p=P"),
    "rule's type": (Q, {"selector": 3}, TypeError, "'selector' is int, expected str"),
    "execution": (Q, {"execution": "both"}, ValueError,
                  "'execution' is 'both', expected fused or split"),
    "no fusion": (Q, {"selector": "top_k=3", "execution": "fused"}, ValueError,
                  "'execution' is 'fused' with argument 'selector' 'top_k=3', expected split"),
    "splits": (Q, {"splits": 1025}, ValueError, "'splits' is 1025, expected 0 to 1024"),
}


@pytest.mark.parametrize("name", DECODES)
def test_bad_decode(name, cache, runtime):
    q, options, kind, message = DECODES[name]
    with pytest.raises(kind, match=message):
        cache.decode(q, runtime=runtime, **options)


OTHERS = {
    "split rest": (lambda: ffd.split(K), ValueError, "expected a multiple of 128 tokens in axis 1"),
    "split axes": (lambda: ffd.split(K[0, :128]), ValueError, "'k' has 3 axes"),
    "split dim": (lambda: ffd.split(K[:, :128, :, :16]), ValueError, "expected a head dim of 64"),
    "split bits": (lambda: ffd.split(K[:, :128], scan_bits=1), ValueError, "'scan_bits' is 1"),
    "reconstruct": (lambda: ffd.reconstruct(K), TypeError, "'parts' is ndarray, expected ffd.Split"),
    "merge nothing": (lambda: ffd.merge([], []), ValueError, "have 0 and 0 parts"),
    "merge parts": (lambda: ffd.merge([K], []), ValueError, "have 1 and 0 parts"),
    "merge shapes": (lambda: ffd.merge([np.ones((2, 3)), np.ones((2, 4))], [np.ones(2)] * 2),
                     ValueError, r"'outs\[1\]' has shape \[2, 4\], expected \[2, 3\]"),
    "merge lse": (lambda: ffd.merge([np.ones((2, 3))], [np.ones(3)]), ValueError,
                  r"'lses\[0\]' has shape \[3\], expected \[2\]"),
    "target": (lambda: ffd.Runtime("gpu"), ValueError, "'target' is 'gpu', expected 'cpu'"),
    "isa": (lambda: ffd.Runtime("cpu:mmx"), ValueError, "'target' is 'cpu:mmx', expected 'cpu'"),
    "threads": (lambda: ffd.Runtime(threads=-1), ValueError, "'threads' is -1, expected 0 to 4096"),
    "no kernel": (lambda: ffd.Runtime(threads=1, jit=False).prepare(head_dim=64, group=1),
                  ffd.Error, "no kernel 'decode-d64-v64-g1-f16-b2-q128-s16-refined'"),
    "jit path": (lambda: ffd.Runtime(threads=1, jit_path="/nowhere.so").prepare(head_dim=64, group=1),
                 ffd.Error, "/nowhere.so"),
    "prepare dim": (lambda: ffd.Runtime(threads=1).prepare(head_dim=65, group=1), ValueError,
                    "'head_dim' is 65, expected 64, 80"),
    "prepare dtype": (lambda: ffd.Runtime(threads=1).prepare(head_dim=64, group=1, dtype="f16"),
                      ValueError, "'dtype' is 'f16', expected 'float16' or 'bfloat16'"),
    "attribute": (lambda: ffd.nothing, AttributeError, "'ffd' has no attribute 'nothing'"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_refused(name):
    call, kind, message = OTHERS[name]
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("shape", ((2, 2, 17), (2, 1, 16), (2, 2), (1, 2, 16)), ids=str)
def test_bad_kept(shape, cache):
    with pytest.raises(ValueError, match="'kept' has shape"):
        cache.read_bytes(np.ones(shape, bool))


def test_no_gpu():
    count, reason = ffd.cuda_devices()
    if count:
        pytest.skip("there is a GPU")
    with pytest.raises(ffd.Error) as caught:
        ffd.Runtime("cuda")
    assert "libcuda" in reason or reason == "" or "CUDA" in str(caught.value)


# --- Threads --------------------------------------------------------------------------

def test_threads_share_a_cache():
    runtime = ffd.Runtime(threads=2)
    cache = ffd.Cache(K, V, runtime=runtime)
    wants = {block: cache.decode(Q, delta=1.0, select_block=block, runtime=runtime)
             for block in (16, 32)}
    wrong = []

    def work(block):
        for _ in range(20):
            got = cache.decode(Q, delta=1.0, select_block=block, scores=True, runtime=runtime)
            if not same(got, wants[block]):
                wrong.append(block)

    threads = [threading.Thread(target=work, args=(block,)) for block in (16, 32, 16, 32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_compiling_releases_the_lock():
    runtime = ffd.Runtime(threads=1)
    started = threading.Event()

    def compile_():
        started.set()
        runtime.prepare(head_dim=96, group=5, select_block=64)

    thread = threading.Thread(target=compile_)
    thread.start()
    started.wait()
    turns = 0
    while thread.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 5  # a compilation takes hundreds of them


def test_the_end_of_a_program():
    """Nothing is printed about what is still in use then."""
    program = ("import ctypes, ffd; runtime = ffd.Runtime(threads=2)\n"
               "ctypes.pythonapi.Py_IncRef(ctypes.py_object(runtime))\n"
               "ctypes.pythonapi.Py_IncRef(ctypes.py_object(runtime._native))")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- Types ----------------------------------------------------------------------------

def declared(node: ast.AST) -> set[str]:
    return {n.name for n in ast.iter_child_nodes(node) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}


def test_stubs_name_what_the_extension_has():
    from ffd import _ffd
    stub = ast.parse((Path(ffd.__file__).parent / "_ffd.pyi").read_text())
    public = {n for n in dir(_ffd) if not n.startswith("_")}
    assert declared(stub) == public
    for node in ast.iter_child_nodes(stub):
        if isinstance(node, ast.ClassDef) and node.name != "Error":
            real = {n for n in vars(getattr(_ffd, node.name)) if not n.startswith("_")}
            assert {n for n in declared(node) if n != "__init__"} == real


def test_everything_public_is_documented():
    assert (Path(ffd.__file__).parent / "py.typed").exists()
    for name in ffd.__all__:
        value = getattr(ffd, name)
        if callable(value):
            assert inspect.getdoc(value), name
