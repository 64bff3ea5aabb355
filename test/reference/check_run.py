#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks what ffd-run wrote against the float64 reference: kept sets identical,
o and lse within the bars of docs/numerics.md. Prints one row per layer.

    check_run.py --input case.safetensors --output result.safetensors --delta 5
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import measures
from elements import F16
from ffd_reference import Result, Spec, decode
from tensorfile import TensorFile


@dataclass
class Verdict:
    """One layer: None in `problem` means that it is right."""

    layer: str
    keep: float  # share of the committed selection blocks
    differing: int  # selection blocks kept by one side only
    relative: float
    lse: float  # largest error
    problem: str | None


def compare_kept(got: np.ndarray, want: Result) -> tuple[int, str | None]:
    """kept [B, Hkv, blocks]: identical, and zero beyond what can be selected."""
    if got.ndim != 3 or got.shape[:2] != want.kept.shape[:2] or got.shape[2] < want.kept.shape[2]:
        return -1, f"kept has shape {got.shape}, expected {want.kept.shape}"
    padded = np.zeros(got.shape, np.uint8)
    padded[..., :want.kept.shape[2]] = want.kept
    differs = np.argwhere((got != 0) != (padded != 0))
    if not len(differs):
        return 0, None
    b, h, j = map(int, differs[0])
    return len(differs), (f"kept differs in {len(differs)} of {padded.size} blocks, first at "
                          f"[{b}, {h}, {j}]: {got[b, h, j]}, expected {padded[b, h, j]}")


def compare(o: np.ndarray, lse: np.ndarray, kept: np.ndarray, want: Result, spec: Spec,
            layer: str = "", dense: Result | None = None,
            skipped: np.ndarray | None = None) -> Verdict:
    """With `dense`, the result also has to be close to exact attention, which
    only a run that keeps everything is."""
    differing, problem = compare_kept(kept, want)
    # A differing set changes the output too: report the cause.
    element = spec.element.name
    problem = problem or measures.disagreement(
        o, lse, want.o, want.lse, measures.SPARSE[element],
        want.score_bar if spec.scan_bits == 2 else None)
    if spec.certificate != "none" and not problem:
        problem = measures.skipped_disagreement(skipped, want.skipped, want.shift)
    if dense and not problem:
        problem = measures.disagreement(o, lse, dense.o, dense.lse, measures.DENSE[element])
        problem = problem and f"against exact attention: {problem}"
    total = int(want.selectable.sum()) * want.kept.shape[1]
    finite = np.isfinite(want.o) & np.isfinite(o) if o.shape == want.o.shape else None
    known = np.isfinite(want.lse) & np.isfinite(lse) if lse.shape == want.lse.shape else None
    return Verdict(
        layer, want.kept.sum() / total if total else 1.0, differing,
        np.nan if finite is None else measures.relative_error(o[finite], want.o[finite]),
        np.nan if known is None else float(
            measures.lse_errors(lse[known], want.lse[known]).max(initial=0)), problem)


def check(source: str | Path, result: str | Path, spec: Spec) -> list[Verdict]:
    """All layers of a case against what ffd-run wrote. spec.element is taken
    from the file; delta = inf is also compared with exact attention."""
    given, got = TensorFile(source), TensorFile(result)
    verdicts = []
    for prefix in given.layers():
        q, k, v = (given[prefix + name] for name in "qkv")
        element = k.element or F16
        case = Spec(**{**spec.__dict__, "element": element})
        lengths = given[prefix + "lengths"].values if prefix + "lengths" in given else None
        inputs = [element.round(t.values) for t in (q, k, v)]
        want = decode(*inputs, lengths, case)
        dense = decode(*inputs, lengths, case, dense=True) if spec.delta == np.inf else None
        names = ["o", "lse", "kept"] + ["skipped_lse"] * (spec.certificate != "none")
        missing = [n for n in names if prefix + n not in got]
        if missing:
            verdicts.append(Verdict(prefix, 0, -1, np.nan, np.nan, f"no tensor {missing} in output"))
            continue
        o, lse, kept, *rest = (got[prefix + n].values for n in names)
        verdicts.append(compare(o, lse, kept, want, case, prefix, dense, *rest))
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, help="what ffd-run read")
    parser.add_argument("--output", required=True, help="what ffd-run wrote")
    parser.add_argument("--delta", type=float, default=5.0)
    parser.add_argument("--select-block", type=int, default=16)
    parser.add_argument("--scan-bits", type=int, default=2)
    parser.add_argument("--residual-bits", type=int, default=8)
    parser.add_argument("--pseudo-max", help="as of ffd-run, with the same default")
    parser.add_argument("--certificate", default="none", help="as of ffd-run")
    parser.add_argument("--lag", type=int, default=0)
    parser.add_argument("--centre", default="none", help="as of ffd-run")
    parser.add_argument("--selector", default="top_delta", help="as of ffd-run")
    args = parser.parse_args()
    rule, _, parameter = args.selector.partition("=")
    refines = rule == "top_delta" and args.residual_bits and args.scan_bits != 16
    spec = Spec(delta=args.delta, select_block=args.select_block, scan_bits=args.scan_bits,
                lag=args.lag, selector=rule, parameter=float(parameter or 0),
                residual_bits=args.residual_bits, centre=args.centre,
                pseudo_max=args.pseudo_max or ("refined" if refines else "scan"),
                certificate=args.certificate)
    verdicts = check(args.input, args.output, spec)
    print("| layer | kept | differing | relative error | lse error | |\n" + "| ---: " * 5 + "| --- |")
    for v in verdicts:
        print(f"| {v.layer.removeprefix('layers.').rstrip('.') or '-'} | {100 * v.keep:.1f} % | {v.differing} | "
              f"{v.relative:.1e} | {v.lse:.1e} | {v.problem or 'ok'} |")
    sys.exit(any(v.problem for v in verdicts))


if __name__ == "__main__":
    main()
