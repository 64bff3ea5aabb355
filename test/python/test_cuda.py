# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decodes on a GPU whose arrays come from frameworks that use it too: PyTorch,
CuPy, JAX. Skipped without a GPU. FFD_TARGET=cuda runs the rest of this folder on
one."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

import ffd
import measures
from arrays import half
from cases import Case
from check_run import compare
from default_case import draw
from elements import BF16, F16
from ffd_reference import decode
from test_decode import BOTH, SMALL, asked_by, inputs

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX: others need some too
GPUS, WHY = ffd.cuda_devices()
pytestmark = pytest.mark.skipif(not GPUS, reason=f"no GPU: {WHY or 'the driver finds none'}")


@pytest.fixture(scope="module")
def cuda() -> ffd.Runtime:
    return ffd.Runtime("cuda", threads=2)


@pytest.fixture
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("torch does not see the GPU")
    return module


def from_bits(torch, array: np.ndarray, device: str):
    """A torch tensor of float16 or ml_dtypes.bfloat16."""
    kind = torch.float16 if array.dtype == np.float16 else torch.bfloat16
    return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).to(device).view(kind)


def problem_of(case: Case, got: ffd.Result, **options) -> str | None:
    spec = replace(case.spec, **options)
    want = decode(case.q, case.k, case.v, np.array(case.lengths), spec)
    return compare(got.out, got.lse, got.kept.astype(np.uint8), want, spec).problem


# --- Tensors of PyTorch ---------------------------------------------------------------

@BOTH
@pytest.mark.parametrize("strided", (False, True), ids=("contiguous", "strided"))
def test_tensors_by_way_of_the_host(element, strided, cuda, torch):
    """Made on the GPU, decoded through host memory, and back on the GPU."""
    case = draw(800, lengths=[900, 0, 515], shared=False, delta=2.0,
                **{**SMALL, "element": element})
    case.poison()
    q, k, v = (from_bits(torch, x, "cuda") for x in inputs(case))
    if strided:  # heads before tokens, as models have them
        k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v))
        assert not k.is_contiguous()
    got = ffd.decode(q.cpu(), k.cpu(), v.cpu(), lengths=case.lengths, delta=2.0, runtime=cuda)
    assert not problem_of(case, got)
    back = torch.from_dlpack(got.out).to(q.device)
    assert back.device.type == "cuda" and (back.cpu().numpy() == got.out).all()


def test_page_locked_tensors(cuda, torch):
    case = draw(801, lengths=[700, 300], shared=False, delta=2.0, **SMALL)
    locked = [from_bits(torch, x, "cpu").pin_memory() for x in inputs(case)]
    assert all(x.is_pinned() for x in locked)
    assert not problem_of(case, ffd.decode(*locked, lengths=case.lengths, delta=2.0, runtime=cuda))


def test_the_current_stream(cuda, torch):
    """Work that a stream still has to do is in the copies that it makes, and the
    caller's device, stream and pending work stay as they are."""
    case = draw(802, lengths=[900, 400], shared=False, delta=2.0, **SMALL)
    q, k, v = (from_bits(torch, x, "cuda") for x in inputs(case))
    side, count = torch.cuda.Stream(), torch.zeros(1 << 26, device="cuda")
    late, first = torch.zeros_like(k), torch.cuda.current_stream()
    want = ffd.decode(q.cpu(), k.cpu(), v.cpu(), lengths=case.lengths, delta=2.0, runtime=cuda)
    side.wait_stream(first)
    with torch.cuda.stream(side):
        for _ in range(300):
            count += 1
        late.copy_(k)
        host = late.cpu()
        q, v = q.cpu(), v.cpu()
        for _ in range(300):  # may still run while FFD decodes
            count += 1
        got = ffd.decode(q, host, v, lengths=case.lengths, delta=2.0, runtime=cuda)
        assert torch.cuda.current_stream() == side
    assert torch.cuda.current_device() == 0 and torch.cuda.current_stream() == first
    assert not problem_of(case, got) and (got.out == want.out).all()
    side.synchronize()
    assert (count == 600).all().item()


# --- What is on a device is refused ----------------------------------------------------

def on_device(framework: str, array: np.ndarray):
    if framework == "cupy":
        return pytest.importorskip("cupy").asarray(array)
    if framework == "jax":
        jax = pytest.importorskip("jax")
        try:
            return jax.device_put(array, jax.devices("cuda")[0])
        except RuntimeError as error:
            pytest.skip(f"jax does not see the GPU: {error}")
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch does not see the GPU")
    return from_bits(torch, array, "cuda")


FRAMEWORKS = pytest.mark.parametrize("framework", ("torch", "cupy", "jax"))


@FRAMEWORKS
@pytest.mark.parametrize("strided", (False, True), ids=("contiguous", "strided"))
@pytest.mark.parametrize("which", range(3), ids="qkv".__getitem__)
def test_device_arrays_are_refused(which, strided, framework, cuda):
    """One alone, the others being in host memory, in every function."""
    case = draw(803, lengths=[256, 256], shared=False, delta=2.0, **SMALL)
    case.k, case.v = case.k[:, :256], case.v[:, :256]
    arrays = inputs(case)
    given = arrays[which] = on_device(framework, arrays[which])
    if strided:
        if framework == "jax":
            pytest.skip("arrays of JAX have no strides")
        given = given.swapaxes(0, 1)
        given = given.contiguous() if framework == "torch" else given.copy(order="C")
        arrays[which] = given.swapaxes(0, 1)
    name = "qkv"[which]
    calls = [lambda: ffd.decode(*arrays, runtime=cuda), lambda: ffd.exact(*arrays, runtime=cuda)]
    if name == "k":
        calls.append(lambda: ffd.split(arrays[1], runtime=cuda))
    for call in calls:
        with pytest.raises(TypeError, match=f"'{name}' is on CUDA device 0, expected an array in "
                                            "host memory"):
            call()


@FRAMEWORKS
def test_bfloat16_on_a_device_is_refused(framework, cuda):
    case = draw(804, lengths=[256], shared=False, delta=2.0, **{**SMALL, "element": BF16})
    q, k, v = inputs(case)
    if framework == "cupy":
        pytest.skip("CuPy has no bfloat16 of its own")
    with pytest.raises(TypeError, match="'v' is on CUDA device 0, expected an array in host"):
        ffd.decode(q, k, on_device(framework, v), runtime=cuda)


@pytest.mark.parametrize("framework", ("torch", "cupy"))
def test_small_arguments_on_a_device_are_refused(framework, cuda):
    """PyTorch and CuPy do not turn device memory into numpy by themselves."""
    case = draw(805, lengths=[300, 200], shared=False, delta=2.0, **SMALL)
    q, k, v = inputs(case)
    if framework == "torch":
        torch = pytest.importorskip("torch")
        lengths = torch.tensor(case.lengths, device="cuda")
    else:
        lengths = pytest.importorskip("cupy").asarray(case.lengths)
    with pytest.raises(TypeError, match="'lengths' is .*, expected numbers in host memory"):
        ffd.Cache(k, v, lengths=lengths, runtime=cuda)
    cache = ffd.Cache(k, v, lengths=case.lengths, runtime=cuda)
    with pytest.raises(TypeError, match="'delta' is .*, expected numbers in host memory"):
        cache.decode(q, delta=lengths, runtime=cuda)
    with pytest.raises(TypeError, match=r"'outs\[0\]' is .*, expected numbers in host memory"):
        ffd.merge([lengths], [lengths])


@FRAMEWORKS
def test_host_copies(framework, cuda):
    case = draw(806, lengths=[700, 300], shared=False, delta=2.0, **SMALL)
    given = [on_device(framework, x) for x in inputs(case)]
    if framework == "torch":
        host = [x.cpu() for x in given]
    elif framework == "cupy":
        host = [x.get() for x in given]
    else:
        jax = pytest.importorskip("jax")
        host = [jax.device_put(x, jax.devices("cpu")[0]) for x in given]
    got = ffd.decode(*host, lengths=case.lengths, delta=2.0, runtime=cuda)
    assert not problem_of(case, got)


# --- Everything a call can ask for ------------------------------------------------------

@pytest.mark.parametrize("element, centre, tokens", ((F16, "none", 1), (BF16, "row", 1),
                                                     (F16, "row", 4)), ids=str)
def test_everything_at_once(element, centre, tokens, cuda):
    """Thresholds of every sequence, an empty one, scores and pseudo-max, several
    query tokens, centred keys: kept sets as the reference's and the CPU's."""
    case = draw(807, lengths=[900, 0, 3, 1000], shared=False, delta=2.0,
                **{**SMALL, "element": element})
    case.poison()
    q = asked_by(case, tokens, 807)
    if tokens == 1:
        q = q[:, 0]
    deltas, lag = np.array([0.5, 1.0, 2.0, np.inf]), tokens + 3
    _, k, v = inputs(case)
    cache = ffd.Cache(k, v, lengths=case.lengths, lag=lag, centre=centre, runtime=cuda)
    ask = dict(delta=deltas, pseudo_max=True, scores=True)
    got = cache.decode(half(q, element), runtime=cuda, **ask)
    cpu = cache.decode(half(q, element), **ask)
    assert (got.kept == cpu.kept).all() and (got.pseudo_max == cpu.pseudo_max).all()
    np.testing.assert_array_equal(got.scores, cpu.scores)
    assert not measures.disagreement(got.out, got.lse, cpu.out, cpu.lse,
                                     measures.SPARSE[element.name])
    assert (got.lse[1] == -np.inf).all() and (got.out[1] == 0).all() and not got.kept[1].any()
    for b, delta in enumerate(deltas):
        spec = replace(case.spec, lag=lag, centre=centre, delta=float(delta))
        want = decode(q, case.k, case.v, np.array(case.lengths), spec)
        assert (got.kept[b][:, :want.kept.shape[2]] == (want.kept[b] != 0)).all()
        assert measures.lse_errors(got.lse[b], want.lse[b]).max() < 1e-2
        assert measures.relative_error(got.out[b], want.o[b]) < 2e-2
    assert 0 < got.kept[0].sum() < got.kept[3].sum()


@pytest.mark.parametrize("options, message", (
    (dict(selector="top_k=4"), "top_k"),
    (dict(selector="all", execution="split"), "split|all")), ids=str)
def test_ablations_are_refused(options, message, cuda):
    case = draw(808, lengths=[300], shared=False, delta=2.0, **SMALL)
    q, k, v = inputs(case)
    with pytest.raises((ValueError, ffd.Error), match=message):
        ffd.decode(q, k, v, runtime=cuda, **options)


@pytest.mark.parametrize("bits, residual", ((16, 0), (2, 0)))
def test_caches_of_ablations_are_refused(bits, residual, cuda):
    case = draw(809, lengths=[300], shared=False, delta=2.0, **SMALL)
    q, k, v = inputs(case)
    with pytest.raises((ValueError, ffd.Error), match="residual|scan_bits|keys"):
        ffd.decode(q, k, v, scan_bits=bits, residual_bits=residual, runtime=cuda)


def test_what_it_is_compiled_for(cuda):
    assert cuda.target == "cuda"
    assert cuda.prepare(head_dim=64, group=2).startswith("sm_")
    with pytest.raises(ffd.Error, match="code for target 'sm_80a' does not run on '.*' .sm_"):
        ffd.Runtime("sm_80a", threads=1).prepare(head_dim=64, group=2)


# --- Threads, memory, the end -----------------------------------------------------------

def test_threads_that_never_used_cuda(cuda):
    case = draw(810, lengths=[900, 500], shared=False, delta=2.0, **SMALL)
    q, k, v = inputs(case)
    cache = ffd.Cache(k, v, lengths=case.lengths, runtime=cuda)
    want = {block: cache.decode(q, delta=2.0, select_block=block, splits=2, runtime=cuda)
            for block in (16, 32)}
    wrong: list = []

    def work(block: int) -> None:
        try:
            for _ in range(20):
                got = cache.decode(q, delta=2.0, select_block=block, splits=2, runtime=cuda)
                if not ((got.out == want[block].out).all() and
                        (got.kept == want[block].kept).all()):
                    wrong.append(block)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(block,)) for block in (16, 32, 16, 32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_of_the_device(torch):
    """200 calls take no more of it than the first; a runtime gives back its own."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("other workers take and give memory of the device: run this without -n")
    case = draw(811, lengths=[6000, 2000], shared=False, delta=2.0, **SMALL)
    q, k, v = inputs(case)
    torch.zeros(1, device="cuda")
    ffd.decode(q, k, v, lengths=case.lengths, runtime=ffd.Runtime("cuda", threads=2))

    def free() -> int:
        gc.collect()
        torch.cuda.synchronize()
        return torch.cuda.mem_get_info()[0]

    before = free()
    runtime = ffd.Runtime("cuda", threads=2)
    cache = ffd.Cache(k, v, lengths=case.lengths, runtime=runtime)
    for _ in range(3):
        cache.decode(q, delta=2.0, runtime=runtime)
    warm = free()
    for i in range(200):
        cache.decode(q, delta=float(i % 7), splits=i % 3, runtime=runtime)
        if i % 50 == 0:  # an error leaves nothing behind either
            with pytest.raises(TypeError):
                cache.decode(torch.zeros(2, 4, 64, dtype=torch.float16, device="cuda"),
                             runtime=runtime)
    # The driver hands out 2 MB at a time; any leaked buffer of a call is 200 of them.
    assert warm - free() <= 4 << 20
    del runtime
    for _ in range(5):
        ffd.Runtime("cuda", threads=1).prepare(head_dim=64, group=2)
    assert before - free() <= 4 << 20


ENDS = {
    "kept to the end": "r = ffd.Runtime('cuda'); ffd.decode(q, k, v, runtime=r)",
    "given back": "r = ffd.Runtime('cuda'); ffd.decode(q, k, v, runtime=r); del r",
    "torch first": "import torch; t = torch.ones(3, device='cuda'); r = ffd.Runtime('cuda'); "
                   "ffd.decode(q, k, v, runtime=r); del r; assert t.sum().item() == 3",
    "torch second": "r = ffd.Runtime('cuda'); ffd.decode(q, k, v, runtime=r); import torch; "
                    "t = torch.ones(3, device='cuda'); ffd.decode(q, k, v, runtime=r); "
                    "assert t.sum().item() == 3",
}


@pytest.mark.parametrize("name", ENDS)
def test_programs_end(name):
    """Whoever opened the GPU first, and whatever is alive at the end."""
    if "torch" in name:
        pytest.importorskip("torch")
    program = ("import numpy as np, ffd; k, v = np.ones((2, 1, 300, 1, 64), np.float16); "
               "q = np.ones((1, 2, 64), np.float16)\n" + ENDS[name])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    assert "nanobind" not in done.stderr and "CUDA" not in done.stderr, done.stderr
