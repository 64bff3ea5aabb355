# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares two results of ffd-run: masks must be identical, lse within 4e-3 and
every output vector within a relative 4e-3, twice the bars of docs/numerics.md.
Prints what it saw; exits with 1 if they differ."""
import array
import json
import math
import struct
import sys


def load(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, stop = entry["data_offsets"]
            code = {"F32": "f", "U8": "B"}[entry["dtype"]]
            tensors[name] = entry["shape"], array.array(code, data[start:stop])
    return tensors


a, b = load(sys.argv[1]), load(sys.argv[2])
problems, masks, worst, lses = [], 0, 0.0, 0.0
if a.keys() != b.keys():
    sys.exit(f"tensors {sorted(a)}, expected {sorted(b)}")
for name, (shape, x) in a.items():
    y = b[name][1]
    kind = name.rsplit(".", 1)[-1]
    if shape != b[name][0]:
        problems.append(f"{name} has shape {shape}, expected {b[name][0]}")
    elif kind == "kept":
        masks += 1
        if x != y:
            problems.append(f"{name} differs in {sum(p != q for p, q in zip(x, y))} blocks")
    elif kind == "lse":
        lses = max([lses] + [abs(p - q) for p, q in zip(x, y) if p != q])
    else:
        step = shape[-1]
        for i in range(0, len(x), step):
            gap = math.dist(x[i:i + step], y[i:i + step])
            size = math.hypot(*y[i:i + step])
            worst = max(worst, gap / size if size else gap)
if not (worst <= 4e-3 and lses <= 4e-3):
    problems.append("outputs are too far apart")
print(f"{masks} masks compared, relative error {worst:.1e}, lse error {lses:.1e}")
sys.exit("\n".join(problems) or None)
