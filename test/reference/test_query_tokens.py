# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several query tokens of one sequence: each sees what it would see alone, all
share one kept set, and ffd-run agrees with the reference."""

from __future__ import annotations

import dataclasses
import os
import subprocess

import numpy as np
import pytest

from cases import draw
from check_run import compare
from ffd_reference import decode
from tensorfile import TensorFile, half, plain, save

RUN = os.environ.get("FFD_RUN")
TARGET = os.environ.get("FFD_TARGET", "cpu")


def several(seed: int, tokens: int, group: int, lag: int, **given):
    """A case of `tokens` query tokens, and its spec."""
    case = draw(seed, group=group, **given)
    rng = np.random.default_rng(seed)
    q = np.stack([case.q] + [case.q + 0.3 * rng.normal(size=case.q.shape).astype(np.float32)
                             for _ in range(tokens - 1)], axis=1)
    return case, case.element.round(q.astype(np.float32)), dataclasses.replace(case.spec, lag=lag)


@pytest.mark.parametrize("seed", range(6))
def test_every_token_as_if_alone(seed):
    """With everything kept, token i of n is a decode of a sequence that is
    n - 1 - i tokens shorter."""
    tokens = (2, 4, 8)[seed % 3]
    case, q, spec = several(seed, tokens, 16 // tokens, tokens - 1, delta=np.inf,
                            lengths=[0, 1, tokens, 300, 131])
    together = decode(q, case.k, case.v, np.array(case.lengths), spec)
    for i in range(tokens):
        lengths = np.maximum(0, np.array(case.lengths) - (tokens - 1 - i))
        alone = decode(q[:, i], case.k, case.v, lengths, spec, dense=True)
        dense = decode(q, case.k, case.v, np.array(case.lengths), spec, dense=True)
        np.testing.assert_allclose(dense.o[:, i], alone.o, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(dense.lse[:, i], alone.lse, rtol=1e-12)
        empty = lengths == 0
        assert (together.o[empty, i] == 0).all() and (together.lse[empty, i] == -np.inf).all()


@pytest.mark.parametrize("seed", range(4))
def test_kept_set_is_the_union(seed):
    case, q, spec = several(seed, 4, 4, 3, lengths=[900, 700], delta=1.0, kind="plain")
    together = decode(q, case.k, case.v, np.array(case.lengths), spec)
    union = np.zeros_like(together.kept)
    for i in range(4):
        # The same committed blocks: what a token does not see is all in the tail.
        shorter = np.array(case.lengths) - (3 - i)
        assert [spec.committed(t) for t in case.lengths] == \
            [dataclasses.replace(spec, lag=i).committed(t) for t in shorter]
        alone = decode(q[:, i], case.k, case.v, shorter, dataclasses.replace(spec, lag=i))
        union |= alone.kept
    assert 0 < union.sum() < union.size
    np.testing.assert_array_equal(together.kept, union)


@pytest.mark.skipif(not RUN, reason="FFD_RUN does not name an ffd-run binary")
@pytest.mark.parametrize("seed", range(8))
def test_ffd_run(seed, tmp_path):
    tokens = (2, 3, 4, 8)[seed % 4]
    lag = tokens - 1 + 7 * (seed % 2)
    case, q, spec = several(200 + seed, tokens, 16 // tokens, lag)
    case.poison()
    source, output = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    save(source, {"q": half(q, case.element), "k": half(case.k, case.element),
                  "v": half(case.v, case.element),
                  "lengths": plain(np.array(case.lengths, np.int32))}, {})
    command = [str(RUN), f"--input={source}", f"--output={output}", f"--delta={spec.delta!r}",
               f"--select-block={spec.select_block}", f"--scan-bits={spec.scan_bits}",
               f"--lag={lag}", f"--pseudo-max={spec.pseudo_max}", f"--target={TARGET}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    got = [TensorFile(output)[name].values for name in ("o", "lse", "kept")]
    want = decode(q, case.k, case.v, np.array(case.lengths), spec)
    verdict = compare(*got, want, spec)
    assert not verdict.problem, f"{verdict.problem}\n{case.describe()}"


@pytest.mark.skipif(not RUN, reason="FFD_RUN does not name an ffd-run binary")
def test_too_small_a_lag_is_refused(tmp_path):
    case, q, _ = several(1, 4, 2, 3, lengths=[300])
    source = tmp_path / "in.safetensors"
    save(source, {"q": half(q, case.element), "k": half(case.k, case.element),
                  "v": half(case.v, case.element)}, {})
    done = subprocess.run([str(RUN), f"--input={source}", "--lag=2"], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode != 0
    assert "option --lag is 2, expected at least 3" in done.stderr
