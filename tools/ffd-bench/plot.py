#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws time against context from the JSON of ffd-bench, one panel per batch, as
the FFD paper's Figure 3 does: plot.py bench.json [more.json ...] -o figure.svg.

Of reports with several head dims or groups it draws the first, or those that
--head-dim and --group name. The format follows the name of the output. SVG needs
nothing but Python; other formats need matplotlib."""

from __future__ import annotations

import argparse
import json
import math
import sys
from html import escape

COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 320, 60, 12, 30, 44


def shape_of(report: dict, point: dict) -> tuple[int, int]:
    """Head dim and group; reports of one shape may have them in the settings only."""
    settings = report["settings"]
    return point.get("head_dim", settings["head_dim"]), point.get("group", settings["group"])


def curves(reports: list[dict], shape: tuple[int, int]) -> dict[int, dict[str, list[tuple[float, float]]]]:
    """{batch: {label: [(tokens, microseconds)]}} of a shape, each sorted by tokens."""
    found: dict[int, dict[str, dict[int, float]]] = {}

    def add(point: dict, label: str, seconds: float | None) -> None:
        if seconds:  # an emulated kernel has none
            labels = found.setdefault(point["batch"], {})
            labels.setdefault(label, {})[point["tokens"]] = seconds * 1e6

    points = [p for r in reports for p in r["points"] if shape_of(r, p) == shape]
    keeps = {p.get("keep") for p in points}
    selects = {p["select_block"] for p in points}
    for point in points:
        parts = ["FFD"]
        if point.get("keep") == 1:
            parts.append("everything kept")
        elif len(keeps) > 1:
            parts.append(f"{100 * point['keep']:g} % kept")
        if len(selects) > 1 or len(keeps) == 1:
            parts.append(f"blocks of {point['select_block']}")
        add(point, ", ".join(parts), point["decode"]["median"])
        if "all" in point:
            add(point, "FFD, everything kept", point["all"]["median"])
        if "exact" in point:
            add(point, "exact, 16 bit", point["exact"]["median"])
        if point.get("torch"):
            add(point, "PyTorch, best backend", min(point["torch"].values()))
    return {batch: {label: sorted(times.items()) for label, times in labels.items()}
            for batch, labels in sorted(found.items())}


def short(tokens: float) -> str:
    for unit, name in ((1 << 20, "M"), (1 << 10, "K")):
        if tokens >= unit:
            return f"{tokens / unit:g}{name}"
    return f"{tokens:g}"


def title(report: dict, shape: tuple[int, int]) -> str:
    s, machine = report["settings"], report["machine"]
    keeps = {p.get("keep") for p in report["points"]}
    keep = f", keep {s['keep']:g}" if len(keeps) == 1 else ""
    return (f"{machine['name']}: d = {shape[0]}, {s['kv_heads']} kv heads, group {shape[1]}, "
            f"{s['element']}{keep}, {report['date'][:10]}")


def svg_panel(x0: float, batch: int, labels: dict, colors: dict[str, str]) -> list[str]:
    xs = sorted({t for line in labels.values() for t, _ in line})
    ys = [us for line in labels.values() for _, us in line]
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)) + 1e-9)
    span = max(math.log2(xs[-1] / xs[0]), 1e-9)
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(tokens: float, us: float) -> tuple[float, float]:
        across = math.log2(tokens / xs[0]) / span if len(xs) > 1 else 0.5
        up = (math.log10(us) - low) / max(1, high - low)
        return x0 + LEFT + across * inner_width, TOP + (1 - up) * inner_height

    out = [f'<text x="{x0 + WIDTH / 2}" y="{TOP - 8}" text-anchor="middle">batch {batch}</text>']
    for decade in range(low, high + 1):
        _, y = at(xs[0], 10.0**decade)
        out.append(f'<line x1="{x0 + LEFT}" x2="{x0 + WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                   f'<text x="{x0 + LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**decade:g}</text>')
    for tokens in xs:
        x, _ = at(tokens, 10.0**low)
        out.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{short(tokens)}</text>')
    out.append(f'<text x="{x0 + WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">context, tokens</text>')
    for label, line in labels.items():
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in line))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colors[label]}" stroke-width="2"/>')
        out += [f'<circle cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="3" fill="{colors[label]}"/>'
                for p in points.split()]
    return out


def write_svg(path: str, heading: str, panels: dict) -> None:
    names = sorted({label for labels in panels.values() for label in labels})
    colors = {name: COLORS[i % len(COLORS)] for i, name in enumerate(names)}
    width, height = WIDTH * len(panels), HEIGHT + 18 * len(names) + 34
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>',
           f'<text x="14" y="{HEIGHT / 2}" transform="rotate(-90 14 {HEIGHT / 2})" '
           'text-anchor="middle">time of one decode, µs</text>']
    for i, (batch, labels) in enumerate(panels.items()):
        out += svg_panel(i * WIDTH, batch, labels, colors)
    for i, name in enumerate(names):
        y = HEIGHT + 14 + 18 * i
        out.append(f'<rect x="{LEFT}" y="{y - 8}" width="18" height="4" fill="{colors[name]}"/>'
                   f'<text x="{LEFT + 26}" y="{y}">{escape(name)}</text>')
    out.append(f'<text x="{LEFT}" y="{height - 8}" fill="#555">{escape(heading)}</text></svg>')
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


def write_matplotlib(path: str, heading: str, panels: dict) -> None:
    try:
        import matplotlib
    except ImportError:
        sys.exit(f"plot.py: error: '{path}' needs matplotlib, expected it or a name that ends in .svg")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), squeeze=False, figsize=(5 * len(panels), 4))
    for axis, (batch, labels) in zip(axes[0], panels.items()):
        for label, line in labels.items():
            axis.loglog(*zip(*line), marker="o", label=label)
        ticks = sorted({t for line in labels.values() for t, _ in line})
        axis.set_xticks(ticks, [short(t) for t in ticks])
        axis.set(title=f"batch {batch}", xlabel="context, tokens", ylabel="time of one decode, µs")
        axis.grid(True, which="major", alpha=0.3)
    axes[0][0].legend(fontsize=8)
    figure.suptitle(heading, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", help="JSON files of ffd-bench")
    parser.add_argument("-o", "--output", required=True, help="figure.svg, figure.png ...")
    parser.add_argument("--head-dim", type=int, help="of the points to draw (default: the first)")
    parser.add_argument("--group", type=int, help="of the points to draw (default: the first)")
    args = parser.parse_args()
    reports = []
    for path in args.reports:
        try:
            with open(path, encoding="utf-8") as file:
                reports.append(json.load(file))
        except (OSError, ValueError) as problem:
            sys.exit(f"plot.py: error: cannot read '{path}': {problem}")
    shapes = dict.fromkeys(shape_of(r, p) for r in reports for p in r["points"])
    wanted = [s for s in shapes if args.head_dim in (None, s[0]) and args.group in (None, s[1])]
    panels = curves(reports, wanted[0]) if wanted else {}
    if not panels:
        sys.exit("plot.py: error: the reports hold no such points with times")
    write = write_svg if args.output.endswith(".svg") else write_matplotlib
    write(args.output, title(reports[0], wanted[0]), panels)


if __name__ == "__main__":
    main()
