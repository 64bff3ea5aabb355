#!/usr/bin/env python3
"""Packs a shared object as a CPU kernel package (runtime/include/ffd/Package.h).

    pack-kernel.py OBJECT FOLDER ENTRY
"""

import os
import sys
import zlib

payload = open(sys.argv[1], "rb").read()
fields = {
    "abi": 6,
    "kind": "cpu-object",
    "program": "decode",
    "target": "cpu",
    "entry": sys.argv[3],
    "head_dim": 64,
    "value_dim": 64,
    "group": 1,
    "element": "f16",
    "scan_bits": 2,
    "quant_block": 128,
    "select_block": 16,
    "query_tokens": 1,
    "centre": "none",
    "pseudo_max": "refined",
    "certificate": "none",
    "threads": 0,
    "shared_bytes": 0,
    "ctas_per_sm": 0,
    "crc32": "",
    "payload": len(payload),
}


def header():
    return ("FFDK1\n" + "".join(f"{k}={v}\n" for k, v in fields.items()) + "\n").encode()


fields["crc32"] = f"{zlib.crc32(header() + payload):08x}"
os.makedirs(sys.argv[2], exist_ok=True)
with open(os.path.join(sys.argv[2], "decode-d64-v64-g1-f16-b2-q128-s16-refined.cpu.ffdk"), "wb") as file:
    file.write(header() + payload)
