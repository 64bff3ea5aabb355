#!/usr/bin/env python3
"""Prints the tensors of a .safetensors file: name, dtype, shape and a few values."""

import json
import struct
import sys

CODES = {"U8": ("B", 1), "F32": ("f", 4)}

with open(sys.argv[1], "rb") as file:
    content = file.read()
length = struct.unpack_from("<Q", content)[0]
header = json.loads(content[8 : 8 + length])
for name, tensor in sorted(header.items()):
    code, size = CODES[tensor["dtype"]]
    begin, end = tensor["data_offsets"]
    begin, end = begin + 8 + length, end + 8 + length
    assert begin % size == 0, "every tensor is aligned"
    values = struct.unpack(f"<{(end - begin) // size}{code}", content[begin:end])
    shown = " ".join(f"{v:g}" for v in values[:16])
    print(f"{name} {tensor['dtype']} {tensor['shape']} {shown}".rstrip())
