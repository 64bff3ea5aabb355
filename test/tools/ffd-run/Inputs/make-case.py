#!/usr/bin/env python3
"""Writes a .safetensors case for the tests of ffd-run, with the standard library only.

    make-case.py OUT [name=DTYPE:dim,dim,...[:value,value,...]]... [--lie=...]
                     [--replicate] [--nan-from=TOKEN]

Without values a tensor holds pseudo-random numbers that depend on its name. A
token's K grows with its position modulo 64, so that some blocks matter more.
--replicate gives all sequences of K and V the elements of the first one.
--nan-from makes the tokens of K and V from this one on NaN.
--lie changes the finished file in one way, see `lie`.
"""

import json
import random
import struct
import sys

SIZES = {"U8": 1, "I32": 4, "I64": 8, "F16": 2, "BF16": 2, "F32": 4, "F64": 8}
CODES = {"U8": "B", "I32": "i", "I64": "q", "F16": "e", "F32": "f", "F64": "d"}


def pack(dtype, values):
    if dtype == "BF16":
        # Truncation: the tests need some bf16 number, not the nearest one.
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack(f"<{len(values)}{CODES[dtype]}", *values)


def generate(name, dtype, shape, count):
    rng = random.Random(name)
    if dtype[0] in "IU":
        return [0] * count
    if len(shape) != 4:
        return [rng.gauss(0, 1) for _ in range(count)]
    per_token = max(1, shape[2] * shape[3])
    per_sequence = shape[1] * per_token
    values = []
    for i in range(per_sequence if "--replicate" in sys.argv else count):
        token = i // per_token % max(1, shape[1])
        values.append(rng.gauss(0, 1) * (0.2 + token % 64 / 32 if name.endswith("k") else 1))
    if "--replicate" in sys.argv:
        values *= shape[0]
    for argument in sys.argv:
        if argument.startswith("--nan-from="):
            first = int(argument.split("=")[1])
            for i in range(count):
                if i % per_sequence >= first * per_token:
                    values[i] = float("nan")
    return values


def parse(text):
    name, _, rest = text.partition("=")
    fields = rest.split(":")
    dtype = fields[0]
    shape = [int(d) for d in fields[1].split(",")] if len(fields) > 1 and fields[1] else []
    count = 1
    for dim in shape:
        count *= dim
    if len(fields) > 2:
        number = int if dtype[0] in "IU" else float
        values = [number(v) for v in fields[2].split(",") if v]
    else:
        values = generate(name, dtype, shape, count)
    return name, dtype, shape, pack(dtype, values)


def lie(kind, header, data):
    """The bytes of a file that is wrong in one way."""
    first = next(iter(header.values()))
    length = None
    if kind == "huge-header":
        length = 2**63
    elif kind == "long-header":
        length = 100_000_001
    elif kind == "overlap":
        header["extra"] = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}
    elif kind == "out-of-range":
        first["data_offsets"][1] += 2 * len(data)
    elif kind == "short-offsets":
        first["data_offsets"][1] -= 2
    elif kind == "negative-dim":
        first["shape"][0] = -1
    elif kind == "overflow":
        first["shape"] = [2**40, 2**40, 2**40]
    elif kind == "trailing":
        data += b"more"
    text = json.dumps(header)
    if kind == "duplicate":
        name = json.dumps(next(iter(header)))
        text = text[:-1] + f", {name}: " + json.dumps(first) + "}"
    elif kind == "bad-json":
        text = text[:-1]
    elif kind == "deep-json":
        text = '{"q": ' + "[" * 1_000_000
    text = text.encode()
    if length is None:
        length = len(text)
    return struct.pack("<Q", length) + text + data


def main():
    out, kind, header, data = sys.argv[1], None, {}, b""
    for argument in sys.argv[2:]:
        if argument.startswith("--lie="):
            kind = argument[len("--lie=") :]
        if argument.startswith("--"):
            continue
        name, dtype, shape, raw = parse(argument)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    content = lie(kind, header, data)
    if kind == "truncated":
        content = content[: len(content) - len(data) // 2]
    elif kind == "truncated-header":
        content = content[:20]
    with open(out, "wb") as file:
        file.write(content)


if __name__ == "__main__":
    main()
