#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Holds the scan loop of kernels against what the algorithm needs: no device is
asked, so a slower kernel is noticed wherever the compiler runs.

    check-scan.py [--assemble] FFD_COMPILE

Figures are those of `ffd-compile --stats=json`, per block of 128 tokens. The needs
follow from the spec: with G channel groups of 32, T query tiles of four heads and
b scan bits,
  mma        8 token tiles and the centre, by G and T
  reads      codes (D b / 32 of 16 bytes a lane), scales (G), the folded query (G T),
             and one factor of 4 bytes per query tile
  copies     one, or one per 512 bytes where there are no bulk copies
  floats     20 per channel group and query tile: four folds of five instructions
  integers   unpacking the codes, permuting the fold, sums and signs per tile
Above four heads a block is first scanned with the high bytes of the query (docs/
schedule.md): the same again with tiles of eight heads and folds of two instructions.
The counts are of both paths, of which most blocks take the first. What is left for stages, pages, masks and the loop itself is bounded. Without
--assemble registers and spills are not looked at.
"""
import argparse
import itertools
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HEAD_DIMS, GROUPS, SCAN_BITS = (64, 128, 256), (1, 4, 8), (2, 4, 8)
ARCHS = ("sm_90a", "sm_80")
UNPACK = {2: 5, 4: 4, 8: 0}  # instructions per tile and channel group
BOOKKEEPING = 56
SLACK = 1.03


def stats(compiler, archs, head_dim, group, bits, stage):
    """The kernel of a spec on each architecture."""
    run = subprocess.run(
        [compiler, f"--arch={','.join(archs)}", f"--head-dim={head_dim}",
         f"--group={group}", f"--scan-bits={bits}", "--pseudo-max=scan", "--stats=json",
         f"--emit={stage}"],
        capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"check-scan: ffd-compile: {run.stderr.strip()[:400]}")
    return json.loads(run.stdout)["kernels"]


def screen_tiles(group, direct):
    """Query tiles of eight heads for the high bytes."""
    return 0 if group <= 4 or direct else (group + 7) // 8


def needs(arch, head_dim, group, bits, direct):
    """What the loop must execute: {name in the JSON: count}."""
    groups, tiles = head_dim // 32, (group + 3) // 4
    codes, scales, query = head_dim * bits // 32, groups, groups * tiles
    thumbnail = 128 * head_dim * bits // 8 + 2 * head_dim
    copies = 1 if arch == "sm_90a" else -(-thumbnail // 512)
    screens = screen_tiles(group, direct)
    again = codes + scales + groups * screens if screens else 0
    return {
        "mma": 9 * groups * (tiles + screens),
        "shared_loads_16": query if direct else codes + scales + query + again,
        "shared_loads_8": 0,
        "shared_loads_4": tiles + screens,
        "global_loads": codes + scales if direct else 0,
        "copies": 0 if direct else copies,
        "local": 0,
        "float": 20 * groups * tiles + 8 * groups * screens,
    }


def check_loop(arch, head_dim, group, bits, loop, direct):
    """What is wrong with the counts of a loop, as a list of texts."""
    if not loop:
        return ["has no scan loop, expected one"]
    exact = needs(arch, head_dim, group, bits, direct)
    problems = [f"{loop[name]} {name}, expected {count}"
                for name, count in exact.items() if loop[name] != count]
    groups, tiles = head_dim // 32, (group + 3) // 4
    integers = groups * (8 * UNPACK[bits] + 2 * tiles) + 54 * tiles
    if screens := screen_tiles(group, direct):
        integers += groups * (8 * UNPACK[bits] + 2 * screens) + 54 * screens + 8  # the counter
    # Without bulk copies each has two addresses.
    addresses = 2 * exact["copies"] if arch != "sm_90a" else 0
    most = int((sum(exact.values()) + integers + addresses + BOOKKEEPING) * SLACK)
    if loop["total"] > most:
        problems.append(f"{loop['total']} instructions, expected at most {most}")
    return problems


def check(kernel, head_dim, group, bits):
    arch = kernel["arch"]
    # The one shape here whose thumbnails do not fit a ring (docs/schedule.md).
    direct = (arch, head_dim, bits) == ("sm_80", 256, 8)
    problems = check_loop(arch, head_dim, group, bits, kernel["scan_loop"]["ptx"], direct)
    if kernel["registers"] is not None:
        if kernel["registers"] > kernel["register_limit"]:
            problems.append(f"{kernel['registers']} registers, expected at most "
                            f"{kernel['register_limit']}")
        # docs/schedule.md names the kernels that spill a few registers.
        if kernel["spill_store_bytes"] > 16:
            problems.append(f"{kernel['spill_store_bytes']} bytes spilled, expected at most 16")
    if kernel["occupancy"]["ctas"] < kernel["ctas_asked_for"]:
        problems.append(f"{kernel['occupancy']['ctas']} CTAs fit a multiprocessor, "
                        f"expected {kernel['ctas_asked_for']}")
    return [f"{arch}, head dim {head_dim}, group {group}, {bits} bits: {p}" for p in problems]


def check_spec(compiler, spec, assemble):
    kernels = stats(compiler, ARCHS, *spec, "cubin" if assemble else "ptx")
    if [kernel["arch"] for kernel in kernels] != list(ARCHS):
        return [f"{spec}: {len(kernels)} kernels, expected one for each of {ARCHS}"]
    return [problem for kernel in kernels for problem in check(kernel, *spec)]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assemble", action="store_true",
                        help="ask ptxas for registers and spills, of fewer kernels")
    parser.add_argument("compiler", metavar="FFD_COMPILE")
    options = parser.parse_args()
    specs = list(itertools.product(HEAD_DIMS, GROUPS, SCAN_BITS))
    if options.assemble:
        specs = [spec for spec in specs if spec[0] <= 128 and spec[2] == 2]
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda s: check_spec(options.compiler, s, options.assemble), specs)
        problems = [problem for result in results for problem in result]
    for problem in problems:
        print(problem)
    print(f"{len(specs) * len(ARCHS)} kernels, {len(problems)} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
