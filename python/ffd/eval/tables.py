# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Summaries of results and their tables: text, Markdown, CSV, JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict

import numpy as np

# name, heading, format
COLUMNS = (
    ("kept", "kept", "{:.1%}"), ("read", "read", "{:.1%}"),
    ("kib", "KiB / kv head", "{:.0f}"), ("cosine", "cosine", "{:.5f}"),
    ("cosine_min", "least", "{:.3f}"), ("relative", "rel. error", "{:.2e}"),
    ("lse", "lse error", "{:.2e}"), ("lse_max", "largest", "{:.2f}"),
    ("missed", "missed mass", "{:.2%}"), ("spearman", "Spearman", "{:.3f}"),
    ("gap", "max gap", "{:.2f}"), ("hit", "salient hits", "{:.1%}"))


SWEPT = re.compile(r"\b(delta|budget|window|p|rank)=[^,]*,?")
COMPARED = (("relative", "rel. error"), ("lse", "lse error"), ("missed", "missed mass"))


def family(method: str) -> str:
    """The method without the parameter that trades bytes for quality."""
    return SWEPT.sub("", method).rstrip(":,") or method


def summarise(records: list[dict]) -> dict[str, float]:
    """One line of figures over all heads of the given records."""
    heads: dict[str, list[float]] = defaultdict(list)
    for record in records:
        for key, values in record["heads"].items():
            heads[key] += values
    a = {key: np.array(values) for key, values in heads.items()}
    line = {key: float(a[key].mean()) for key in
            ("kept", "cosine", "lse", "missed", "spearman", "gap", "hit", "certificate",
             "certificate_error", "certificate_low") if key in a}
    line["read"] = float(a["bytes"].sum() / a["dense_bytes"].sum())
    line["kib"] = float(a["bytes"].mean() / 1024)
    line["cosine_min"] = float(a["cosine_min"].min())
    line["lse_max"] = float(a["lse_max"].max())
    line["missed_max"] = float(a["missed_max"].max())
    size = a["size2"].sum()
    line["relative"] = float(np.sqrt(a["error2"].sum() / size)) if size else 0.0
    return line


def by_method(records: list[dict]) -> dict[str, dict[str, float]]:
    groups: dict[str, list[dict]] = defaultdict(list)
    for record in records:
        groups[record["method"]].append(record)
    return {method: summarise(group) for method, group in groups.items()}


def by_layer(records: list[dict], method: str) -> dict[int, dict[str, float]]:
    return {r["layer"]: summarise([r]) for r in sorted(records, key=lambda r: r["layer"])
            if r["method"] == method}


def cells(line: dict[str, float]) -> list[str]:
    return [form.format(line[name]) if name in line else "-" for name, _, form in COLUMNS]


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, [":---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def text(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    return "\n".join("  ".join(c.ljust(w) if i == 0 else c.rjust(w)
                               for i, (c, w) in enumerate(zip(line, widths))).rstrip()
                     for line in (header, *rows))


def method_table(summary: dict[str, dict[str, float]], form=text) -> str:
    return form(["method", *(title for _, title, _ in COLUMNS)],
                [[method, *cells(line)] for method, line in summary.items()])


def layer_table(lines: dict[int, dict[str, float]], form=text) -> str:
    return form(["layer", *(title for _, title, _ in COLUMNS)],
                [[str(layer), *cells(line)] for layer, line in lines.items()])


def equal_bytes(summary: dict[str, dict[str, float]], base: str, form=text) -> str:
    """Every method's errors over those of the family `base` at the same bytes,
    interpolated on a log scale between its settings; below 1 is better than the
    family. Methods outside its range of bytes are left out."""
    own = sorted((x for m, x in summary.items() if family(m) == base), key=lambda x: x["read"])
    rows = []
    for method, line in summary.items():
        if family(method) == base or not own or not (
                own[0]["read"] <= line["read"] <= own[-1]["read"]):
            continue
        ratios = []
        for key, _ in COMPARED:
            at = np.exp(np.interp(line["read"], [x["read"] for x in own],
                                  [np.log(max(x[key], 1e-12)) for x in own]))
            ratios.append(f"{line[key] / at:.2f}")
        rows.append([method, f"{line['read']:.1%}", *ratios])
    return form(["method", "read", *(f"{title}, ratio" for _, title in COMPARED)], rows)


def variation(records: list[dict], methods: list[str], form=text) -> str:
    """Spread over all query heads of all layers: the paper's Table 5."""
    rows = []
    for method in methods:
        heads = [r["heads"] for r in records if r["method"] == method]
        kept = 100 * np.concatenate([h["kept"] for h in heads])
        hit = 100 * np.concatenate([h["hit"] for h in heads])
        rows.append([method, str(len(kept)), *(f"{x:.1f}" for x in (
            kept.mean(), kept.std(), kept.min(), kept.max(), hit.mean(), hit.min()))])
    return form(["method", "heads", "kept, % mean", "std", "min", "max", "hits, % mean", "min"],
                rows)


def stress(records: list[dict], methods: list[str], form=text) -> str:
    """Heads whose attention is flat or has several peaks, that is in the lowest
    decile of the distance between the two best scores or of the scores' standard
    deviation, against the others: the paper's Table 6."""
    shape = {(r["trace"], r["layer"]): r["heads"] for r in records if r["method"] == "exact"}
    rows = []
    for method in methods:
        mine = [r for r in records if r["method"] == method and (r["trace"], r["layer"]) in shape]
        if not mine:
            continue

        def column(key: str, exact: bool = False) -> np.ndarray:
            return np.concatenate([(shape[r["trace"], r["layer"]] if exact else r["heads"])[key]
                                   for r in mine])
        flat = np.zeros(len(column("kept")), bool)
        for key in ("top_gap", "score_std"):
            value = column(key, exact=True)
            flat |= value <= np.percentile(value, 10)
        for name, mask in (("regular", ~flat), ("flat or several peaks", flat)):
            rows.append([method, name, f"{100 * mask.mean():.1f} %",
                         *(f"{100 * column(k)[mask].mean():.1f} %" for k in ("kept", "hit",
                                                                             "missed")),
                         f"{column('cosine')[mask].mean():.5f}"])
    return form(["method", "heads", "share", "kept", "salient hits", "missed mass", "cosine"], rows)


def as_csv(records: list[dict]) -> str:
    """One row per trace, method, layer and query head; sums of squares become
    the relative error."""
    names = sorted({key for r in records for key in r["heads"]} - {"error2", "size2"})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["trace", "method", "layer", "head", *names, "relative"])
    for r in records:
        heads = r["heads"]
        for i in range(len(heads["kept"])):
            size = heads["size2"][i]
            relative = (heads["error2"][i] / size) ** 0.5 if size else 0.0
            writer.writerow([r["trace"], r["method"], r["layer"], i,
                             *(heads[n][i] if n in heads else "" for n in names),
                             f"{relative:.6g}"])
    return out.getvalue()


def as_json(records: list[dict]) -> str:
    return json.dumps({"methods": by_method(records),
                       "layers": {m: by_layer(records, m) for m in by_method(records)}}, indent=1)
