#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints a C++ file of static_asserts: the numbers of docs/layout.md.

A table whose columns are headed `D=.. b=..` gives calls in its first column and
their values in the others; `call(..) = value` anywhere is about D = 128, b = 2.
"""
import re
import sys


def main():
    text = open(sys.argv[1]).read()
    print('#include "ffd/layout.h"\n'
          "constexpr ffd::Layout at(int d, int b) {\n"
          "  ffd::Layout l;\n  l.headDim = l.valueDim = d;\n"
          "  l.scanBits = b;\n  return l;\n}")
    checks = [(128, 2, call, value) for call, value in re.findall(
        r"`(\w+\([\d, ]*\)) = (\d+)`", text)]
    columns = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        sizes = [re.fullmatch(r"D=(\d+) b=(\d+)", cell) for cell in cells[1:]]
        if sizes and all(sizes):
            columns = [(int(m[1]), int(m[2])) for m in sizes]
            continue
        call = re.match(r"`(\w+\(\))`", cells[0])
        if columns and call and len(cells) == len(columns) + 1:
            checks += [(d, b, call[1], value)
                       for (d, b), value in zip(columns, cells[1:])]
    for d, b, call, value in checks:
        print(f'static_assert(at({d}, {b}).{call} == {value}, '
              f'"docs/layout.md: {call}, D = {d}, b = {b}");')
    print(f"// {len(checks)} numbers")


if __name__ == "__main__":
    main()
