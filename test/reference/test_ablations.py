# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules, executions and precisions for ablations: ffd-run on the CPU against the
float64 reference. Kept sets are identical, outputs within the bars.

FFD_RUN is the ffd-run binary (unset: skipped), FFD_SEED repeats the fresh part.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from cases import Case, draw
from check_run import compare
from elements import BF16, F16
from ffd_reference import Spec, decode, pseudo_max, rows_of, select, top_p_margin
from tensorfile import TensorFile

RUN = os.environ.get("FFD_RUN")
FRESH = int(os.environ.get("FFD_SEED") or secrets.randbits(31))
needs_run = pytest.mark.skipif(not RUN, reason="FFD_RUN does not name an ffd-run binary")


def run(case: Case, spec: Spec, tmp_path, execution: str | None = None,
        target: str = "cpu") -> list[np.ndarray]:
    source, output = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    case.write(source)
    rule = spec.selector
    if rule in ("top_k", "top_p"):
        rule += f"={spec.parameter!r}"
    command = [str(RUN), f"--input={source}", f"--output={output}", f"--delta={spec.delta!r}",
               f"--select-block={spec.select_block}", f"--scan-bits={spec.scan_bits}",
               f"--selector={rule}", f"--lag={spec.lag}", f"--centre={spec.centre}",
               f"--pseudo-max={spec.pseudo_max}", f"--target={target}"]
    if spec.scan_bits != 16:
        command.append(f"--residual-bits={spec.residual_bits}")
    if spec.certificate != "none":
        command.append(f"--certificate={spec.certificate}")
    if execution:
        command.append(f"--execution={execution}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\nexit {done.returncode}\n{done.stderr[-2000:]}"
    file = TensorFile(output)
    names = ["o", "lse", "kept"] + ["skipped_lse"] * (spec.certificate != "none")
    return [file[n].values for n in names]


def reference(case: Case, spec: Spec):
    return decode(case.q, case.k, case.v, np.array(case.lengths), spec)


def verify(case: Case, spec: Spec, tmp_path, execution: str | None = None, target: str = "cpu"):
    case.poison()
    want = reference(case, spec)
    o, lse, kept, *skipped = run(case, spec, tmp_path, execution, target)
    verdict = compare(o, lse, kept, want, spec, "", None, *skipped)
    assert not verdict.problem, f"{verdict.problem}\n{spec}\n{case.describe()}"
    return want


def with_rule(case: Case, spec: Spec, rng: np.random.Generator) -> Spec:
    """A parameter in the middle of what the rule can choose; for top_p one that
    no share comes near (rule_c2)."""
    if spec.selector == "top_k":
        most = max(spec.committed(t) for t in case.lengths) * 128 // spec.select_block
        return replace(spec, parameter=int(rng.integers(1, max(2, most))))
    if spec.selector != "top_p":
        return spec
    for _ in range(100):
        spec = replace(spec, parameter=float(np.round(rng.uniform(0.05, 0.999), 3)))
        rows = rows_of(case.q, case.k, case.v, np.array(case.lengths), spec)
        if all(top_p_margin(row.scores, spec) > 1e-4 for _, _, row in rows):
            return spec
    raise AssertionError("no share is far enough from every block's")


# scan bits, residual bits, rule, execution: every pair of two factors is there.
COMBINATIONS = [
    (2, 8, "top_delta", "split"), (2, 8, "top_k", None), (2, 8, "top_p", None),
    (2, 0, "all", "fused"), (4, 0, "top_delta", "fused"), (4, 8, "top_k", "split"),
    (4, 0, "top_p", None), (4, 8, "all", "split"), (8, 0, "top_k", None),
    (8, 8, "top_p", "split"), (8, 0, "top_delta", "split"), (16, 0, "top_delta", "fused"),
    (16, 0, "top_delta", "split"), (16, 0, "top_k", None), (16, 0, "top_p", None),
    (16, 0, "all", "fused"),
]


@needs_run
@pytest.mark.parametrize("number", range(len(COMBINATIONS)),
                         ids=lambda i: "-".join(map(str, COMBINATIONS[i])))
def test_combinations(number, tmp_path):
    bits, residual, rule, execution = COMBINATIONS[number]
    case = draw(800 + number, group=1 + number % 5, head_dim=(64, 80, 128)[number % 3],
                scan_bits=2, select_block=(16, 32, 64, 128)[number % 4],
                element=(F16, BF16)[number // 2 % 2])
    spec = replace(case.spec, scan_bits=bits, residual_bits=residual, selector=rule,
                   lag=(0, 0, 40)[number % 3])
    verify(case, with_rule(case, spec, np.random.default_rng(number)), tmp_path, execution)


@needs_run
@pytest.mark.parametrize("seed", range(FRESH, FRESH + 3))
def test_fresh(seed, tmp_path):
    rng = np.random.default_rng(seed)
    case = draw(seed, group=int(rng.integers(1, 5)), scan_bits=2)
    bits = int(rng.choice((2, 4, 8, 16)))
    spec = replace(case.spec, scan_bits=bits, selector=("top_k", "top_p", "top_delta")[seed % 3],
                   residual_bits=0 if bits == 16 else int(rng.choice((0, 8))))
    verify(case, with_rule(case, spec, rng), tmp_path)


@needs_run
def test_ties_go_to_the_lower_block(tmp_path):  # rule_c1
    case = draw(820, head_dim=64, kv_heads=1, group=2, lengths=[700], shared=False, kind="plain",
                planted=False, scan_bits=2, select_block=16, element=F16)
    case.k[0, 128:] = np.tile(case.k[0, :128], (5, 1, 1))[:len(case.k[0]) - 128]  # equal blocks
    spec = replace(case.spec, selector="top_k", parameter=7)
    want = verify(case, spec, tmp_path)
    kept = want.kept[0, 0].reshape(-1, 8).sum(axis=1, dtype=int)
    assert kept.sum() == 7 and (np.diff(kept) <= 0).all()


@needs_run
def test_more_than_there_are(tmp_path):
    case = draw(821, head_dim=64, group=1, lengths=[300, 0, 100], scan_bits=2, select_block=64)
    want = verify(case, replace(case.spec, selector="top_k", parameter=1000), tmp_path)
    assert want.kept[0].all()


@needs_run
def test_all_of_the_mass(tmp_path):  # rule_c2
    case = draw(822, head_dim=64, group=1, lengths=[500], scan_bits=2, deviation=3.0)
    want = verify(case, replace(case.spec, selector="top_p", parameter=1.0), tmp_path)
    assert want.kept.all()


@needs_run
@pytest.mark.parametrize("bits,rule", ((2, "top_k"), (16, "top_p"), (16, "top_delta")))
@pytest.mark.parametrize("where", ("query", "committed"))
def test_bad_numbers(where, bits, rule, tmp_path):  # rule_c3, query_c5, split_c8
    case = draw(823, head_dim=64, kv_heads=2, group=2, shared=False, lengths=[400, 290],
                delta=1.0, kind="plain", planted=True, element=F16, scan_bits=2, select_block=16)
    if where == "query":
        case.q[0, 1, 17] = np.nan
    else:
        case.k[0, 200, 0, 9] = np.inf
    spec = replace(case.spec, scan_bits=bits, residual_bits=0 if bits == 16 else 8, selector=rule,
                   parameter=1 if rule == "top_k" else 0.3)
    want = verify(case, spec, tmp_path)
    assert want.kept[0, 0].all() and not want.kept[0, 1].all()


@needs_run
@pytest.mark.parametrize("element", (F16, BF16), ids=lambda e: e.name)
def test_keys_to_the_unit(element, tmp_path):  # scan_c3
    """The pseudo-max comes from the tail; the best token of one block lies on the
    threshold, then one unit below it."""
    case = draw(824, head_dim=64, value_dim=64, kv_heads=1, group=1, lengths=[600], shared=False,
                delta=0.0, kind="plain", planted=False, element=element, scan_bits=2,
                select_block=16)
    aim = case.q[0, 0] / np.linalg.norm(case.q[0, 0])
    case.k[0, 590, 0] = element.round(aim * np.float32(8 * np.sqrt(case.k.var())))
    spec = replace(case.spec, scan_bits=16)
    (_, _, row), = rows_of(case.q, case.k, case.v, np.array([600]), spec)
    best = np.sort(row.scores.a_int.reshape(-1, 16).max(axis=1))
    units = int(pseudo_max(row.scores)[0, 0]) - int(best[len(best) // 2])
    F = float(row.scores.query.F[0, 0])
    counts = [int(verify(case, replace(spec, delta=float(np.float32((u - 0.5) * F))),
                         tmp_path).kept.sum()) for u in (units, units - 1)]
    assert counts[0] > counts[1] >= 1


# --- The reference itself ----------------------------------------------------------------

@pytest.mark.parametrize("seed", range(6))
def test_rules_by_their_definition(seed):
    """Kept sets of the reference against loops over blocks, straight from the page."""
    case = draw(830 + seed, head_dim=64, kv_heads=1, group=2, lengths=[500], scan_bits=2,
                select_block=32, kind=("plain", "integers")[seed % 2])
    (_, _, row), = rows_of(case.q, case.k, case.v, np.array([500]), case.spec)
    scores = row.scores
    blocks = scores.a_int.shape[-1] // 32
    a = [[[float(np.float32(scores.query.F[0, g] * np.float32(scores.a_int[0, g, t])))
           for t in range(32 * j, 32 * j + 32)] for g in range(2)] for j in range(blocks)]
    w = [max(map(max, block)) for block in a]
    order = sorted(range(blocks), key=lambda j: (-w[j], j))
    for k in (1, 3, blocks, blocks + 5):
        got = select(scores, replace(case.spec, selector="top_k", parameter=k))[0]
        assert set(np.flatnonzero(got)) == set(order[:k])
    mass = [sum(np.exp(x - max(w)) for head in block for x in head) for block in a]
    for p in (0.1, 0.5, 0.9, 0.99):
        count, share = 0, 0.0
        while share < p * sum(mass):
            share += mass[order[count]]
            count += 1
        got = select(scores, replace(case.spec, selector="top_p", parameter=p))[0]
        assert set(np.flatnonzero(got)) == set(order[:count])
    assert select(scores, replace(case.spec, selector="all")).all()
