#!/usr/bin/env python3
"""A random split as a program, and what it must print.

    split-case.py program ELEMENT BITS SEED   # MLIR that splits and prints
    split-case.py expected ELEMENT BITS SEED  # by exact fractions (scalar.py)

Keys are 4 blocks of 8 tokens of 3 channels; channels differ in magnitude, and
one is zero. Even seeds have a centre.
"""
import random
import sys
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "reference"))
import scalar  # noqa: E402

BLOCK, BLOCKS, CHANNELS = 8, 4, 3


def draw(element, seed):
    """Values that the element type has exactly."""
    rng = random.Random(seed)
    magnitudes = [rng.choice([2.0 ** -14, 0.01, 1.0, 300.0]), rng.random(), 0.0]
    return [[scalar.rounded(Fraction(rng.gauss(0, 1) * m), element)
             for m in magnitudes] for _ in range(BLOCK * BLOCKS)]


def draw_centre(element, seed):
    """One that differs from the keys in magnitude, and is zero somewhere."""
    rng = random.Random(-seed)
    return [scalar.rounded(Fraction(rng.gauss(0, 1) * m), element)
            for m in (1.0, 0.0, 2.0 ** -10)]


def program(element, bits, keys, centre):
    values = ", ".join(
        "[" + ", ".join(f"{float(x):.20e}" for x in row) + "]" for row in keys)
    tokens = BLOCK * BLOCKS
    keys_type = f"tensor<{tokens}x{CHANNELS}x{element}>"
    codes_type = f"tensor<{tokens}x{CHANNELS}xi8>"
    scales_type = f"tensor<{BLOCKS}x{CHANNELS}x{element}>"
    constant = operand = ""
    if centre:
        centre_type = f"tensor<{CHANNELS}x{element}>"
        numbers = ", ".join(f"{float(x):.20e}" for x in centre)
        constant = f"%centre = arith.constant dense<[{numbers}]> : {centre_type}"
        operand = f"centre(%centre : {centre_type}) "
    text = f"""
func.func private @printMemrefI32(memref<*xi32>) attributes {{llvm.emit_c_interface}}
func.func @main() {{
  %k = arith.constant dense<[{values}]> : {keys_type}
  {constant}
  %c, %r, %s = ffd.split %k {operand}{{scan_bits = {bits} : i64, quant_block = {BLOCK} : i64}}
      : {keys_type} -> {codes_type}, {codes_type}, {scales_type}
  %s16 = arith.bitcast %s : {scales_type} to {scales_type.replace(element, "i16")}
"""
    for name, kind in (("c", codes_type), ("r", codes_type),
                       ("s16", scales_type.replace(element, "i16"))):
        wide = kind.rsplit("x", 1)[0] + "xi32>"
        buffer = wide.replace("tensor", "memref")
        text += f"""  %{name}_wide = arith.extui %{name} : {kind} to {wide}
  %{name}_buffer = bufferization.to_buffer %{name}_wide : {wide} to {buffer}
  %{name}_any = memref.cast %{name}_buffer : {buffer} to memref<*xi32>
  call @printMemrefI32(%{name}_any) : (memref<*xi32>) -> ()
"""
    return text + "  return\n}\n"


def bits_of(value, element):
    """The 16-bit encoding of a non-negative value the element type has."""
    mantissa, bias = {"f16": (10, 15), "bf16": (7, 127)}[element]
    if value == 0:
        return 0
    exponent = max(scalar.exponent(value), 1 - bias)
    fraction = value / Fraction(2) ** (exponent - mantissa)
    assert fraction.denominator == 1
    if fraction < 2 ** mantissa:  # subnormal
        return int(fraction)
    return (exponent + bias << mantissa) + int(fraction) - 2 ** mantissa


def expected(element, bits, keys, centre):
    if centre:
        keys = [[scalar.rounded(k - c, element) for k, c in zip(row, centre)] for row in keys]
    codes = [[0] * CHANNELS for _ in keys]
    scales = [[0] * CHANNELS for _ in range(BLOCKS)]
    for block in range(BLOCKS):
        for channel in range(CHANNELS):
            rows = range(block * BLOCK, (block + 1) * BLOCK)
            scale, xs = scalar.split_channel(
                [keys[t][channel] for t in rows], bits, element)
            scales[block][channel] = bits_of(scale, element)
            for t, x in zip(rows, xs):
                codes[t][channel] = x
    return "\n".join(
        " ".join(map(str, row))
        for table in ([[x >> 8 for x in row] for row in codes],
                      [[x & 255 for x in row] for row in codes], scales)
        for row in table)


def main():
    what, element, bits, seed = sys.argv[1:]
    keys = draw(element, int(seed))
    centre = None if int(seed) % 2 else draw_centre(element, int(seed))
    print((program if what == "program" else expected)(element, int(bits), keys, centre))


if __name__ == "__main__":
    main()
