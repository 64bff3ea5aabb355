# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the tools with values that make no sense, a row of the table each."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(sys.argv[1])
# Numbers that no option with a number takes; lists name the value alike.
NUMBERS = ("", "x", "nan", "1.5", " 4", "99999999999999999999", "-9223372036854775808")
KERNEL = """module {
  llvm.func @kernel() attributes {gpu.kernel, nvvm.kernel} { llvm.return }
}"""

# tool, arguments before the option
BASES = {
    "ffd-bench": ["--launch-only"],
    "ffd-compile": ["-o", "/dev/null"],
    "ffd-emulate": ["kernel.mlir"],
    "ffd-run": ["--input=none"],
    "ffd-soak": [],
}
# tool: {options: values}, where a name may stand for many
TABLE = {
    "ffd-bench": {
        "batch head-dim group tokens select-block kv-heads reps scan-bits tail threads ragged "
        "time-limit value-dim": (*NUMBERS, "-1"),
        "batch head-dim group tokens select-block kv-heads reps scan-bits": ("0", "2147483648"),
        "delta": ("", "-1", "nan", "x"),
        "keep": ("", "0", "-1", "1.01", "nan", "x"),
        "splits": ("", "0", "-1", "x", "1025"),
        "centre kv-type pseudo-max pages table target against": ("", "x", "a\nb"),
        "kernel-dir": ("", "none", "file"),
        "json plot python torch-script": ("",),
        "python torch-script": ("python3",),  # without what uses it
        "json plot": ("none/x.svg",),
    },
    "ffd-compile": {
        "head-dim value-dim group scan-bits quant-block select-block warps ctas stages slots "
        "query-tokens residual-bits time": (*NUMBERS, "-1", "9223372036854775807"),
        "head-dim value-dim group scan-bits quant-block select-block warps ctas stages slots "
        "query-tokens time": ("0",),
        "arch emit centre execution isa kv-type program pseudo-max selector stats": ("x", "a\nb"),
        "arch emit centre execution isa kv-type program pseudo-max selector": ("",),
        "selector": ("top_k=", "top_k=-1", "top_p=nan", "top_p=1e9", "top_delta=5"),
    },
    "ffd-emulate": {
        "-O": ("99", "4", "-1", "x", "99999999999999999999"),
        "seed seeds shared resident-blocks step-budget": (*NUMBERS, "-1"),
        "seeds resident-blocks": ("0", "4294967295"),
        "shared": ("4294967295",),
        "grid block": ("", "0", "-1", "1,", "1,2,3,4", "4294967296", "x"),
        "arg": ("", "1", "x:i32", "1:i33", "f32[-1]", "f32[", "i32[1]=x", "i32[1]=@none",
                "i32[1]=@pipe", "i32[1]=@.", "i32[2]=@file"),
        "tensor-cores": ("", "x"),
    },
    "ffd-run": {
        "lag threads splits repeat seed select-block scan-bits residual-bits": NUMBERS,
        "lag threads splits repeat": ("-1",),
        "select-block scan-bits residual-bits": ("3", "2147483648"),
        "delta": ("", "-1", "nan", "x", "1,,2"),
        "sm-scale": ("", "0", "-1", "nan", "inf", "1e99", "1e-99"),
        "target cpu centre element execution pseudo-max selector": ("", "x", "a\nb"),
        "arch": ("sm_80",),  # without an emulation
        "kernel-dir": ("", "none", "file"),
        "output json": ("",),
        "input": ("", "none", ".", "pipe", "/dev/zero", "file", "a\nb"),
    },
    "ffd-soak": {
        "steps slots layers heads lag check-every host-pages batch-invariant cpu centre":
            (*NUMBERS, "-1", "2147483647"),
        "steps slots layers heads check-every": ("0",),
        "measure kernel-dir compiler kernel-cache": ("",),
        "measure": ("x",),
    },
}
# Others: the message has what stands last.
CASES = [
    ("ffd-compile", ["none.mlir"], "none.mlir"),
    ("ffd-compile", ["."], "."),
    ("ffd-compile", [""], "the input is ''"),
    ("ffd-compile", ["file"], "file"),
    ("ffd-compile", ["-o", "none/x"], "none/x"),
    ("ffd-compile", ["-o", ""], "option -o is ''"),
    ("ffd-compile", ["--residual-bits=0"], "residual_bits"),
    ("ffd-emulate", ["none.mlir"], "none.mlir"),
    ("ffd-opt", ["none.mlir"], "none.mlir"),
    ("ffd-opt", ["file"], "file"),
    ("ffd-soak", ["--nonsense"], "--nonsense"),
    ("ffd-soak", ["--steps"], "--steps"),
]
# Passes: an option, and an operation for it to meet.
PASSES = [("ffd-to-cpu=isa", ("", "x")), ("ffd-to-ptx=arch", ("", "x", "sm_1", "sm_90a,sm_80")),
          ("ffd-schedule=arch", ("", "x")), ("ffd-schedule=warps", ("x", "-1", "3", "1.5")),
          ("ffd-schedule=stages", ("x", "-1", "99")), ("ffd-schedule=slots", ("x", "-1", "99")),
          ("ffd-schedule=ctas", ("x", "-1", "99")), ("ffd-tile-to-gpu=arch", ("", "x")),
          ("ffd-specialize=head-dim", ("x", "-1", "99")),
          ("ffd-specialize=element", ("x",))]


def rows() -> list[tuple[str, list[str], str]]:
    result = [*CASES]
    for tool, options in TABLE.items():
        for names, values in options.items():
            for name in names.split():
                for value in values:
                    option = f"{name}{value}" if name[0] == "-" else f"--{name}={value}"
                    result.append((tool, [*BASES[tool], option], name.lstrip("-")))
    for name, values in PASSES:
        file = "ffd.mlir" if name.startswith(("ffd-to-", "ffd-spec")) else "tile.mlir"
        result += [("ffd-opt", [file, f"--{name}={value}"], name.split("=")[1])
                   for value in values]
    return result


def complaint(row: tuple[str, list[str], str]) -> str:
    tool, arguments, named = row
    try:
        run = subprocess.run([tool, *arguments], cwd=FOLDER, stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "takes more than a minute"
    said = run.stderr
    if run.returncode != 1:
        return f"status {run.returncode}, expected 1: {said[:300]}"
    if any(word in said for word in ("Stack dump", "LLVM ERROR", "PLEASE submit", "Assertion")):
        return f"crashes: {said[:300]}"
    # "GPU architecture is ..." is the option of passes that have one of that name.
    if named not in said.replace("architecture", "arch"):
        return f"does not name '{named}': {said[:300]}"
    return ""


def main() -> int:
    os.mkfifo(FOLDER / "pipe")
    (FOLDER / "file").write_bytes(b"no data")
    (FOLDER / "kernel.mlir").write_text(KERNEL)
    for stage in ("ffd", "tile"):
        subprocess.run(["ffd-compile", f"--emit={stage}", "-o", FOLDER / f"{stage}.mlir"],
                       check=True)
    table = rows()
    bad = 0
    with ThreadPoolExecutor(2) as pool:
        for row, text in zip(table, pool.map(complaint, table)):
            if text:
                bad += 1
                print(f"{row[0]} {row[1]}: {text}")
    print(f"{len(table)} runs, {bad} bad")
    return bad != 0


sys.exit(main())
