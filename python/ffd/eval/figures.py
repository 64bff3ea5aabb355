# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Figures of the report as SVG text (needs matplotlib)."""

from __future__ import annotations

import io
import itertools

import matplotlib
import numpy as np

from .evaluate import unpack_map
from .model_tables import ALL
from .tables import by_layer, by_method, family

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib import ticker  # noqa: E402

# Okabe and Ito's palette, readable with every kind of colour vision.
COLOURS = {"ffd": "#0072B2", "quest": "#D55E00", "twilight": "#CC79A7", "sparq": "#E69F00",
           "streaming": "#56B4E9", "kivi": "#009E73", "oracle": "#999999", "exact": "#000000"}
EXTRA = ("#0072B2", "#003f6b", "#00a5a5", "#5a4fcf", "#7fb2d9", "#274690")


def _svg(figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg"):]


def _axes(width: float, height: float, columns: int = 1, **options):
    plt.rcParams.update({"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10,
                         "axes.spines.top": False, "axes.spines.right": False,
                         "svg.hashsalt": "ffd"})
    return plt.subplots(1, columns, figsize=(width, height), squeeze=False, **options)


def _style(names: list[str]) -> dict[str, dict]:
    """Colour and marker per family; variants of FFD get blues of their own."""
    styles, extra = {}, itertools.cycle(EXTRA)
    for i, name in enumerate(names):
        kind = name.split(":")[0]
        colour = next(extra) if kind == "ffd" else COLOURS.get(kind, "#444444")
        styles[name] = {"color": colour, "marker": "osD^vPX*"[i % 8], "markersize": 5}
    return styles


def quality_against_bytes(summary: dict[str, dict[str, float]]) -> str:
    """The paper's Figure 6: every method at every setting."""
    groups: dict[str, list[dict[str, float]]] = {}
    for method, line in summary.items():
        if method != "exact":
            groups.setdefault(family(method), []).append(line)
    styles = _style(list(groups))
    figure, axes = _axes(11, 4.2, 3)
    kinds = (("cosine", "1 - cosine", lambda x: max(1 - x, 1e-6)),
             ("lse", "error of the log-sum-exp", lambda x: max(x, 1e-6)),
             ("missed", "missed softmax mass", lambda x: max(x, 1e-6)))
    for axis, (key, title, shown) in zip(axes[0], kinds):
        for name, lines in groups.items():
            if key == "missed" and name == "kivi":
                continue  # reads every token, coarsely
            lines = sorted(lines, key=lambda x: x["read"])
            axis.plot([100 * x["read"] for x in lines], [shown(x[key]) for x in lines],
                      label=name, linewidth=1.4, **styles[name])
        axis.set_yscale("log")
        axis.set_xlabel("bytes read, % of exact attention")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=min(5, len(labels)),
                  bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize=9)
    figure.tight_layout()
    return _svg(figure)


def layer_lines(records: list[dict], methods: list[str], key: str, title: str,
                shown=lambda x: x) -> str:
    """One line per method over the layers: the paper's Figures 7 and 8."""
    figure, axes = _axes(8, 3.2)
    axis, styles = axes[0][0], _style(methods)
    for method in methods:
        lines = by_layer(records, method)
        points = [(layer, shown(x[key])) for layer, x in lines.items() if key in x]
        if points:
            axis.plot(*zip(*points), label=method, linewidth=1.4, **styles[method])
    axis.set_xlabel("layer")
    axis.set_ylabel(title)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=9, ncols=3, loc="lower center",
                bbox_to_anchor=(0.5, 1.0))
    return _svg(figure)


def max_gap(records: list[dict], method: str) -> str:
    """The paper's Figure 5: true maximum minus pseudo-max, by layer."""
    rows = sorted((r for r in records if r["method"] == method and "gap" in r["heads"]),
                  key=lambda r: r["layer"])
    figure, axes = _axes(8, 3.2)
    axis, layers = axes[0][0], [r["layer"] for r in rows]

    def of(point: int) -> list[float]:
        return [float(np.mean(r["heads"][f"gap_{point}"])) for r in rows]
    colour = COLOURS["ffd"]
    axis.fill_between(layers, of(5), of(95), color=colour, alpha=0.18, label="5 to 95 % of queries")
    axis.fill_between(layers, of(25), of(75), color=colour, alpha=0.35, label="25 to 75 %")
    axis.plot(layers, of(50), color=colour, linewidth=1.6, label="median")
    axis.axhline(0, color="#444444", linewidth=0.8)
    axis.set_xlabel("layer")
    axis.set_ylabel("max - pseudo-max, nat")
    axis.set_title(method, fontsize=10)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=9)
    return _svg(figure)


def heat_map(records: list[dict], methods: list[str]) -> str:
    """Share of tokens that is kept, by layer and kv head."""
    figure, axes = _axes(2.6 * len(methods) + 1, 5, len(methods), sharey=True)
    for axis, method in zip(axes[0], methods):
        rows = sorted((r for r in records if r["method"] == method), key=lambda r: r["layer"])
        kept = np.array([r["heads"]["kept"][::r["group"]] for r in rows])
        image = axis.imshow(100 * kept, aspect="auto", cmap="viridis", vmin=0, vmax=100,
                            interpolation="nearest")
        axis.set_xticks(range(kept.shape[1]))
        axis.set_yticks(range(0, len(rows), max(1, len(rows) // 10)),
                        [rows[i]["layer"] for i in range(0, len(rows), max(1, len(rows) // 10))])
        axis.set_xlabel("kv head")
        axis.set_title(method, fontsize=9)
    axes[0][0].set_ylabel("layer")
    figure.colorbar(image, ax=axes[0].tolist(), label="kept, %")
    return _svg(figure)


def pick_map(records: list[dict]) -> tuple[dict, int] | None:
    """The head with stored kept blocks whose keep ratio is the median of those
    that are neither empty nor full: its record and kv head."""
    found = [(r["heads"]["kept"][head * r["group"]], i, head)
             for i, r in enumerate(records) for head in range(len(r.get("maps", [])))]
    found = sorted(x for x in found if 0.02 < x[0] < 0.6) or sorted(found)
    if not found:
        return None
    _, i, head = found[len(found) // 2]
    return records[i], head


def kept_blocks(record: dict, head: int) -> str:
    kept = unpack_map(record["maps"][head])
    figure, axes = _axes(9, 2.6)
    axis = axes[0][0]
    block = record["maps"][head]["block"]
    axis.imshow(kept, aspect="auto", cmap="Blues", interpolation="nearest", vmin=0, vmax=1,
                extent=(0, kept.shape[1] * block, len(kept), 0))
    axis.set_xlabel("token of the context")
    axis.set_yticks([])
    axis.set_ylabel("queries")
    axis.set_title(f"{record['method']}, layer {record['layer']}, kv head {head}: "
                   f"{kept.mean():.1%} of {kept.shape[1]} blocks kept", fontsize=10)
    return _svg(figure)


def model_quality(lines: list[dict]) -> str:
    """Divergence and changed tokens through the model against bytes, at the longest
    context, of all texts together where there are several; bars are intervals."""
    longest = max(x["tokens"] for x in lines)
    lines = [x for x in lines if x["tokens"] == longest and x["method"] != "exact"]
    if any(x["text"] == ALL for x in lines):
        lines = [x for x in lines if x["text"] == ALL]
    names = list(dict.fromkeys(family(x["method"]) for x in lines))
    styles = _style(names)
    figure, axes = _axes(11, 4.2, 2)
    kinds = (("kl", "KL to exact, nat per token", lambda x: max(x, 1e-5)),
             ("agree", "tokens that differ from exact, %", lambda x: max(100 * (1 - x), 0.01)))
    for axis, (key, title, shown) in zip(axes[0], kinds):
        for name in names:
            points = sorted((x for x in lines if family(x["method"]) == name),
                            key=lambda x: x["read"])
            value, one, other = ([shown(x[key + end]) for x in points]
                                 for end in ("", "_low", "_high"))
            axis.errorbar([100 * x["read"] for x in points], value,
                          yerr=np.abs([np.subtract(value, np.minimum(one, other)),
                                       np.subtract(np.maximum(one, other), value)]),
                          label=name, linewidth=1.2, elinewidth=0.8, **styles[name])
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axis.yaxis.set_minor_formatter(ticker.NullFormatter())
        axis.set_xlabel("bytes read, % of exact attention")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="lower center",
                  ncols=min(4, len(names)), bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize=9)
    figure.tight_layout()
    return _svg(figure)


def task_bars(lines: list[dict]) -> str:
    """Agreement with exact attention on the answers of all tasks."""
    lengths = sorted({x["tokens"] for x in lines})
    methods = [m for m in dict.fromkeys(x["method"] for x in lines) if m != "exact"]
    figure, axes = _axes(8, 0.5 + 0.34 * len(methods), len(lengths), sharey=True)
    for axis, tokens in zip(axes[0], lengths):
        for i, method in enumerate(methods):
            x = next((x for x in lines if (x["tokens"], x["method"], x["task"])
                      == (tokens, method, "all")), None)
            if x is None:
                continue
            axis.barh(i, 100 * x["agree"], color=COLOURS.get(method.split(":")[0], "#444444"),
                      xerr=[[100 * (x["agree"] - x["agree_low"])],
                            [100 * (x["agree_high"] - x["agree"])]], ecolor="#444444")
        axis.set_xlim(0, 100)
        axis.set_title(f"{tokens} tokens", fontsize=10)
        axis.set_xlabel("same token as exact, %")
    axes[0][0].set_yticks(range(len(methods)), methods)
    axes[0][0].invert_yaxis()
    return _svg(figure)


def all_figures(records: list[dict], perplexity: list[dict], scores: list[dict]
                ) -> list[tuple[str, str, str]]:
    """(title, caption, SVG) of what the records allow."""
    made = []
    if records:
        summary = by_method(records)
        ffd = [m for m in summary if m.startswith("ffd")]
        plain = [m for m in ffd if family(m) == "ffd"]
        made.append(("Quality against bytes read",
                     "Lower and further left is better. A line is one method at several settings. "
                     "(The paper's Figure 6.)", quality_against_bytes(summary)))
        if plain:
            made.append(("Sparsity by layer", "Share of tokens that is skipped. (Figure 8.)",
                         layer_lines(records, plain, "kept", "skipped, %",
                                     lambda x: 100 * (1 - x))))
        centred = list({family(m): m for m in reversed(ffd) if "centre" in m}.values())[::-1][:3]
        for method in (*plain[:1], *centred[:1]):
            made.append(("Gap between maximum and pseudo-max: " + method,
                         "Above zero, more is kept than necessary; below zero the pseudo-max is "
                         "too high for the scan and blocks that matter can be lost. (Figure 5.)",
                         max_gap(records, method)))
        ranked = [m for m in (*plain[:1], *centred, "quest", "twilight", "sparq")
                  if m in summary and "spearman" in summary[m]]
        made.append(("Rank correlation of estimated with true scores by layer",
                     "Spearman, over all but the newest 128 tokens. (Figure 7.)",
                     layer_lines(records, ranked, "spearman", "Spearman")))
        if ffd:
            made.append(("Kept tokens by layer and head", "", heat_map(records, ffd[:4])))
        picked = pick_map(records)
        if picked:
            made.append(("Kept blocks of one head along the context",
                         "One row per query, newest last.", kept_blocks(*picked)))
    if perplexity:
        made.append(("Through the model: divergence against bytes",
                     "Mean KL divergence of the next-token distribution from that of exact "
                     "attention.", model_quality(perplexity)))
    if scores:
        made.append(("Tasks: agreement with exact attention",
                     "Share of the answers' tokens that the model would choose under exact "
                     "attention too; bars are 95 % intervals.", task_bars(scores)))
    return made
