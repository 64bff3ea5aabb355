#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assembles kernels of many specs and looks for spills in ptxas' report.

    check-ptxas.py [--all | --sample N [--seed S]] [--table] FFD_COMPILE PTXAS

By default: pairs of spec and architecture such that any two values of any two
parameters occur together (greedily, from a fixed seed). --all takes every spec on
every architecture, --sample N that many at random. --table prints registers,
shared memory and spills of each.
"""
import argparse
import itertools
import random
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PARAMETERS = {
    "arch": ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"],
    "head-dim": [64, 80, 96, 128, 192, 256],
    "value-dim": [0, 64, 128],  # 0: as head-dim
    "group": [1, 3, 4, 5, 8, 12, 16],
    "kv-type": ["f16", "bf16"],
    "scan-bits": [2, 4, 8],
    "select-block": [16, 32, 64, 128],
    "program": ["decode", "exact", "append"],
    "pseudo-max": ["refined", "scan"],
}
NAMES = list(PARAMETERS)


def pairs_of(case):
    items = list(enumerate(case))
    return set(itertools.combinations(items, 2))


def covering(rng):
    """Few cases that contain every pair of values: greedy, best of some draws."""
    missing = set()
    for (i, a), (j, b) in itertools.combinations(enumerate(PARAMETERS.values()), 2):
        missing |= {((i, x), (j, y)) for x in a for y in b}
    cases = []
    while missing:
        (i, x), (j, y) = min(missing, key=str)
        best = None
        for _ in range(40):
            case = [rng.choice(v) for v in PARAMETERS.values()]
            case[i], case[j] = x, y
            gain = len(pairs_of(case) & missing)
            if best is None or gain > best[0]:
                best = gain, case
        cases.append(tuple(best[1]))
        missing -= pairs_of(best[1])
    return cases


def number(pattern, text):
    match = re.search(pattern, text)
    return int(match[1]) if match else 0


def check(case, tools, folder):
    """Compiles and assembles one case: (line of the table, problem or None)."""
    spec = dict(zip(NAMES, case))
    if not spec["value-dim"]:
        spec["value-dim"] = spec["head-dim"]
    name = " ".join(str(v) for v in spec.values())
    ptx = folder / (name.replace(" ", "-") + ".ptx")
    # Flags that a program does not depend on are errors.
    idle = {"decode": (), "exact": ("pseudo-max",),
            "append": ("group", "select-block", "pseudo-max")}[spec["program"]]
    flags = [f"--{k}={v}" for k, v in spec.items() if k not in idle]
    run = subprocess.run([tools[0], *flags, "--emit=ptx", "-o", ptx], text=True,
                         capture_output=True)
    if run.returncode:
        return name, f"ffd-compile: {run.stderr.strip()[:400]}"
    run = subprocess.run([tools[1], "-O3", "-v", f"-arch={spec['arch']}", ptx, "-o",
                          "/dev/null"], text=True, capture_output=True)
    ptx.unlink()
    report = run.stdout + run.stderr
    if run.returncode:
        return name, f"ptxas: {report.strip()[:400]}"
    registers = number(r"Used (\d+) registers", report)
    spills = number(r"(\d+) bytes spill stores", report)
    line = f"{name}: {registers} registers, {spills} bytes spilled"
    # docs/schedule.md names the kernels that spill a few registers.
    if spills > 16 and max(spec["head-dim"], spec["value-dim"]) <= 128:
        return line, f"spills {spills} bytes, expected at most 16 up to head dim 128"
    return line, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("tools", nargs=2, metavar=("FFD_COMPILE", "PTXAS"))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    every = list(itertools.product(*PARAMETERS.values()))
    if options.all:
        cases = every
    elif options.sample:
        cases = rng.sample(every, options.sample)
    else:
        cases = covering(rng)
    problems = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        for line, problem in pool.map(
                lambda c: check(c, options.tools, Path(folder)), cases):
            if problem:
                problems += 1
                print(f"{line}: {problem}", flush=True)
            elif options.table:
                print(line, flush=True)
    print(f"{len(cases)} kernels assembled, {problems} problems")
    sys.exit(problems > 0)


if __name__ == "__main__":
    main()
