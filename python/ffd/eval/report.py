# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The report: one HTML file without outside references, and the same tables as
text, Markdown, CSV and JSON."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path

from . import model_tables, tables
from .evaluate import Journal
from .methods import parse

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
       color: #1b1b1b; background: #fff }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.2rem }
figure { margin: 1rem 0 } figure img { max-width: 100%; height: auto }
figcaption, .note { color: #555; font-size: .9rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .85rem }
th, td { padding: .2rem .6rem; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
thead th { border-bottom: 2px solid #888 } tbody tr:nth-child(even) { background: #f4f6f8 }
"""


def html_table(header: list[str], rows: list[list[str]]) -> str:
    def line(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"
    body = "".join(line(r, "td") for r in rows)
    return (f'<div class="scroll"><table><thead>{line(header, "th")}</thead>'
            f"<tbody>{body}</tbody></table></div>")


def _image(svg: str, title: str) -> str:
    data = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{html.escape(title)}" src="data:image/svg+xml;base64,{data}">'


def build(folder: Path, command: str) -> list[Path]:
    """Writes report.html, tables.md, heads.csv and summary.json from the
    journals in the folder; returns what was written."""
    traces = Journal(folder / "trace.jsonl").records
    model = Journal(folder / "model.jsonl").records
    if not traces and not model:
        raise ValueError(f"{folder}: no results; run 'trace' or 'model' first")
    perplexity = model_tables.perplexities(model)
    scores = model_tables.task_scores(model)
    parts: list[str] = []
    text: list[str] = []

    def table(title: str, note: str, make) -> None:
        parts.append(f"<h2>{html.escape(title)}</h2><p class=note>{html.escape(note)}</p>"
                     + make(html_table))
        text.append(f"## {title}\n\n{note}\n\n{make(tables.markdown)}\n")

    if traces:
        layers: dict[tuple[str, int], set[int]] = {}  # fewer than the model's after a stopped run
        for r in traces:
            layers.setdefault((r["trace"], r["tokens"]), set()).add(r["layer"])
        used = [f"{name} ({tokens} tokens, {len(found)} layers)"
                for (name, tokens), found in sorted(layers.items())]
        summary = tables.by_method(traces)
        table("Attention, by method",
              f"Traces: {', '.join(used)}. kept: share of tokens whose value is read, mean over "
              "query heads; read: bytes of exact attention; cosine: mean, and the worst query; "
              "missed mass: of the exact softmax; max gap: true maximum minus pseudo-max; salient "
              "hits: share of the fewest tokens with 90 % of the softmax that is read.",
              lambda form: tables.method_table(summary, form))
        ffd = [m for m in summary if m.startswith("ffd")]
        for base in dict.fromkeys(tables.family(m) for m in ffd):
            if sum(tables.family(m) == base for m in ffd) >= 3:
                table(f"At the bytes of {base}", "Errors over those of this method with a delta "
                      "that reads as much; below 1 is better.",
                      lambda form, base=base: tables.equal_bytes(summary, base, form))
        table("Spread over heads", "The paper's Table 5.",
              lambda form: tables.variation(traces, ffd, form))
        if "exact" in summary:
            table("Heads under stress", "Heads in the lowest decile of the distance between the "
                  "two best scores or of the scores' standard deviation. The paper's Table 6.",
                  lambda form: tables.stress(traces, ffd, form))
        plain = next(iter(ffd), None)
        if plain:
            table(f"By layer: {plain}", "",
                  lambda form: tables.layer_table(tables.by_layer(traces, plain), form))
    if perplexity:
        table("Through the model: perplexity and agreement",
              "Teacher-forced decoding of the last tokens of a text whose beginning was processed "
              "with exact attention; 95 % intervals by bootstrap over blocks of 32 tokens.",
              lambda form: model_tables.perplexity_table(perplexity, form))
        longest = [x for x in perplexity if x["tokens"] == max(y["tokens"] for y in perplexity)]
        if any(x["text"] == model_tables.ALL for x in longest):
            for title, what in (("increase of perplexity", "increase"), ("KL to exact", "kl"),
                                ("same token as exact", "agree")):
                table(f"By text: {title}", f"{longest[0]['tokens']} tokens.",
                      lambda form, what=what: model_tables.by_text(longest, what, form))
    if scores:
        table("Through the model: tasks",
              "Items that the model gives if its answer so far is right; points above exact: in "
              "the same prompts; 95 % intervals by bootstrap over samples, since questions "
              "of one prompt depend on each other.",
              lambda form: model_tables.task_table(scores, form))
    methods = list(dict.fromkeys(r["method"] for r in [*traces, *model]))
    table("Methods", "", lambda form: form(
        ["method", "paper"], [[m, parse(m).paper] for m in methods]))

    from .figures import all_figures
    drawn = all_figures(traces, perplexity, scores)
    figures = "".join(
        f"<h2>{html.escape(title)}</h2><figure>{_image(svg, title)}"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        for title, caption, svg in drawn)
    page = ("<!doctype html><html lang=en><head><meta charset=utf-8>"
            "<meta name=viewport content='width=device-width'>"
            f"<title>FFD quality</title><style>{STYLE}</style></head><body>"
            "<h1>Quality of sparse decode attention</h1>"
            f"<p class=note>Made by <code>{html.escape(command)}</code>.</p>"
            f"{figures}{''.join(parts)}</body></html>\n")
    written = {"report.html": page, "tables.md": "\n".join(text)}
    if traces:
        written["heads.csv"] = tables.as_csv(traces)
    written["summary.json"] = json.dumps({
        "methods": tables.by_method(traces) if traces else {},
        "perplexity": perplexity, "tasks": scores}, indent=1) + "\n"
    for i, (_, _, svg) in enumerate(drawn, 1):
        written[f"figure-{i}.svg"] = svg
    for name, content in written.items():
        (folder / name).write_text(content, encoding="utf-8")
    return [folder / name for name in written]
