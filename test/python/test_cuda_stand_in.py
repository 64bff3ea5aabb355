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


def main() -> None:
    import measures
    from arrays import half
    from cases import draw
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
    state = fake.state
    left = state.live_allocations, state.live_modules, state.context_depth, state.retains
    assert left == (0, 0, 0, 0), left
    print("all is given back")


if __name__ == "__main__":
    main()
